"""One connection to a broker, with the codec of kafka-python 3: requests and responses are plain dicts.

An independent codec, so that the same bytes are sent to Apache Kafka and to Ottla.
"""

from __future__ import annotations

import importlib
import itertools
import socket
import struct
import warnings
from functools import cache
from typing import Any

from ottla_testing.patience import PATIENCE_S

PARTS = ("producer", "admin", "metadata", "consumer")


class Closed(Exception):
    """The broker closed the connection instead of sending a response."""


@cache
def message(name: str) -> Any:
    """Returns the class of a request or response."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about how it opens its own files
        for part in PARTS:
            found = getattr(importlib.import_module(f"kafka.protocol.{part}"), name, None)
            if found is not None:
                return found
    raise LookupError(name)


def filled(fields: Any, given: dict[str, Any], version: int) -> dict[str, Any]:
    """Returns the arguments for the constructor of a message or a struct. Raises KeyError for an unknown field."""
    known = {field.name: field for field in fields}
    made = {}
    for name, value in given.items():
        field = known[name]
        if field.is_struct_array() and value is not None:
            inner = field.array_of
            value = [inner(version=version, **filled(inner._fields, one, version)) for one in value]
        made[name] = value
    return made


def plain(struct_: Any, value: Any, version: int) -> dict[str, Any]:
    """Returns the fields of a response, with tagged ones, without the throttle time."""
    tagged = struct_.tagged_fields(version)._tags.values() if struct_._flexible_versions is not None else ()
    found = {}
    for field in (*struct_.untagged_fields(version), *tagged):
        given = getattr(value, field.name)
        if field.is_struct_array():
            given = None if given is None else [plain(field.array_of, one, version) for one in given]
        elif field.is_struct():
            given = None if given is None else plain(field, given, version)
        elif isinstance(given, memoryview):
            given = bytes(given)
        found[field.name] = given
    found.pop("throttle_time_ms", None)
    return found


class Wire:
    """Sends a request and waits for its response. Reconnects after the broker closed."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.place = host, int(port)
        self.connection = socket.create_connection(self.place, PATIENCE_S)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self.connection.close()

    def send(self, name: str, version: int, **fields: Any) -> None:
        """Sends the request `name`, without Request at its end."""
        cls = message(f"{name}Request")
        request = cls(version=version, **filled(cls._struct._fields, fields, version))
        request.with_header(correlation_id=next(self._numbers), client_id="oracle")
        self.connection.sendall(bytes(request.encode(version=version, header=True, framed=True)))

    def receive(self, name: str, version: int) -> dict[str, Any]:
        """Returns the next response, which must be one to `name`. Raises Closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        cls = message(f"{name}Response")
        return plain(cls._struct, cls.decode(self._exactly(size), version=version, header=True), version)

    def call(self, name: str, version: int, **fields: Any) -> dict[str, Any]:
        """Sends a request and returns the response. Raises Closed; the next call is then on a new connection."""
        try:
            self.send(name, version, **fields)
            return self.receive(name, version)
        except (Closed, ConnectionError) as error:
            self.connection.close()
            self.connection = socket.create_connection(self.place, PATIENCE_S)
            raise Closed from error

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            part = self.connection.recv(count - len(found))
            if not part:
                raise Closed
            found += part
        return bytes(found)

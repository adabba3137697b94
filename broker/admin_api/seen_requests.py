"""A request of a client, for tests: its fields, its version, its sender, and its response.

Adds to an exchange the names of errors and topics, and for Produce requests the configuration of the producer (acks,
codec, idempotence). Each part is decoded at its first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import Any

from ...protocol.apis import apis, name_of
from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.narrowing import is_list
from ...protocol.schema import Value
from ...storage.format.partition_metadata import encode_id
from ..message_parts import places, shape_of
from ..metrics.errors import name_of as error_name
from ..recording import decoding
from ..recording.decoding import produced_of
from ..recording.exchange import Ending, Exchange, Produced


class TopicNames:
    """Topics by their ids, for `message_parts.Topics`. An id without a topic is shown as itself."""

    def __init__(self, names: Mapping[bytes, str]) -> None:
        self._names = names

    def topic_name(self, id: bytes) -> str | None:
        """Returns the name of a topic."""
        return self._names.get(id) or (encode_id(id) if any(id) else None)

    def topic_names(self) -> list[str]:
        """Returns no names: a request for all topics lists none."""
        return []

    def partition_count(self, topic: str) -> int:
        """Returns 0: a request for all partitions lists none."""
        return 0


NO_NAMES = TopicNames({})


def attribute(path: str) -> Any:
    """Returns a property: the attribute at a path."""
    return property(attrgetter(path))


class SeenRequest:
    """A request and its response at the moment when they were listed: one that is pending stays pending."""

    def __init__(self, exchange: Exchange, names: TopicNames = NO_NAMES) -> None:
        self.exchange = replace(exchange) if exchange.ending is Ending.PENDING else exchange
        """The exchange itself, with its bytes."""
        self._names = names

    number: int = attribute("exchange.number")
    """The number of the request, counted from 1 in the order in which the broker began them."""

    @property
    def api(self) -> str:
        """Kafka's name of the API, such as Produce; its number if the API is unknown."""
        return name_of(self.exchange.api_key)

    version: int = attribute("exchange.api_version")
    """The version of the API."""
    client_id: str | None = attribute("exchange.client_id")
    """The client id in the request's header."""
    software: str | None = attribute("exchange.software_name")
    """The client library, such as librdkafka; None if the client does not send it (KIP-511)."""
    software_version: str | None = attribute("exchange.software_version")
    """The version of the client library."""
    principal: str = attribute("exchange.principal")
    """The principal of the connection when the request arrived, such as User:ann."""
    node: int = attribute("exchange.peer.node_id")
    """The id of the node that received the request."""
    connection: int = attribute("exchange.peer.number")
    """The number of the connection, counted from 1."""
    time_ms: int = attribute("exchange.time_ms")
    """The broker's clock when the request was received."""

    @property
    def duration_ms(self) -> float | None:
        """Milliseconds until the response was sent; None before."""
        return None if self.exchange.duration_ns < 0 else self.exchange.duration_ns / 1_000_000

    @property
    def ending(self) -> str:
        """ "responded", "silent" (acks=0), "closed" or "pending"."""
        return str(self.exchange.ending)

    reason: str = attribute("exchange.reason")
    """Why the connection was closed; empty if it was not."""

    @cached_property
    def request(self) -> dict[str, Any] | None:
        """The request's fields by name, as the broker read them; None if its frame was too large to be kept."""
        return decoding.request_plain(self.exchange)

    @cached_property
    def response(self) -> dict[str, Any] | None:
        """The response's fields by name; None also if there is no response."""
        return decoding.response_plain(self.exchange)

    @cached_property
    def request_value(self) -> Any | None:
        """The request's message."""
        return decoding.request_value(self.exchange)

    @cached_property
    def errors(self) -> tuple[str, ...]:
        """The names of the errors in the response, in order and once each."""
        response = decoding.response_value(self.exchange)
        return tuple(dict.fromkeys(map(error_name, filter(None, () if response is None else _codes(response)))))

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics that the request names, in order and once each."""
        message = self.request_value
        if message is None:
            found = self.exchange.produced.topics if self.exchange.produced is not None else ()
            names = [self._names.topic_name(one) if isinstance(one, bytes) else one for one in found]
            return tuple(name for name in names if name is not None)
        shape = shape_of(apis()[self.exchange.api_key].request, self.version)
        return tuple(dict.fromkeys(one.topic for one in places(message, shape, self._names) if one.topic is not None))

    @cached_property
    def produced(self) -> Produced | None:
        """The facts about the producer, if this is a Produce request that can be decoded."""
        message = self.request_value
        return produced_of(message) if isinstance(message, ProduceRequest) else self.exchange.produced

    @property
    def text(self) -> str:
        """One line for people."""
        client = "" if self.client_id is None else f" of {self.client_id}"
        return f"#{self.number} {self.api} v{self.version}{client}"

    def __repr__(self) -> str:
        errors = f" {','.join(self.errors)}" if self.errors else ""
        return f"<SeenRequest {self.text}, {self.ending}{errors}>"


def _codes(value: Any) -> Iterator[int]:
    for name in value._fields:
        item = getattr(value, name)
        if name.endswith("error_code"):
            yield item
        elif isinstance(item, Value):
            yield from _codes(item)
        elif is_list(item) and item and isinstance(item[0], Value):
            for one in item:
                yield from _codes(one)

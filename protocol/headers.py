"""Request and response headers: the bytes between a frame's size and its message.

Requests of older versions have header v1 (correlation id, client id), those of flexible versions v2 (with tagged
fields). Responses have header v0, flexible ones v1; ApiVersions responses always v0, since a client parses them before
it has the broker's version (KIP-511). The client id keeps its non-compact encoding in every header.
"""

from __future__ import annotations

import struct

from .api_key import ApiKey
from .errors import ProtocolViolation
from .named import NamedTuple
from .primitives import read_varint
from .records.new_tuple import new_tuple

_API_VERSIONS = int(ApiKey.API_VERSIONS)
HEADER_TAGS_MAX = 100  # no client sends any; without a bound, 100 MiB of them would take a minute to skip
_PREFIX = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


class RequestPrefix(NamedTuple):
    """The part of a request header that is the same in all versions."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id_length: int


def read_prefix(frame: bytes | bytearray | memoryview) -> RequestPrefix:
    """Reads the first ten bytes of a request. Raises ProtocolViolation if there are fewer."""
    if len(frame) < _PREFIX.size:
        raise ProtocolViolation(f"a request of {len(frame)} bytes has no header")
    return new_tuple(RequestPrefix, _PREFIX.unpack_from(frame))


def read_rest(frame: bytes | bytearray | memoryview, prefix: RequestPrefix, flexible: bool) -> tuple[str, int]:
    """Returns the client id and the position of the message. A null client id becomes "". Raises ProtocolViolation."""
    position = _PREFIX.size
    client_id = ""
    if prefix.client_id_length >= 0:
        end = position + prefix.client_id_length
        if end > len(frame):
            raise ProtocolViolation("client id longer than the request")
        try:
            client_id = str(frame[position:end], "utf8")
        except UnicodeDecodeError:
            raise ProtocolViolation("client id is not UTF-8") from None
        position = end
    elif prefix.client_id_length < -1:
        raise ProtocolViolation(f"client id of length {prefix.client_id_length}")
    if flexible:
        position = _skip_tags(frame, position)
    return client_id, position


def _skip_tags(frame: bytes | bytearray | memoryview, position: int) -> int:
    try:
        if frame[position] == 0:
            return position + 1
        count, position = read_varint(frame, position)
        if count > HEADER_TAGS_MAX:
            raise ProtocolViolation(f"{count} tagged fields in the header; the most is {HEADER_TAGS_MAX}")
        for _ in range(count):
            _, position = read_varint(frame, position)
            size, position = read_varint(frame, position)
            position += size
    except IndexError:
        raise ProtocolViolation("tagged fields of the header run past the end") from None
    except ValueError as error:
        raise ProtocolViolation(f"{error} in the header") from None
    if position > len(frame):
        raise ProtocolViolation("tagged fields of the header run past the end")
    return position


def response_header(correlation_id: int, api_key: int, flexible: bool) -> bytes:
    """Returns the header of a response."""
    header = _CORRELATION.pack(correlation_id)
    return header + b"\0" if flexible and api_key != _API_VERSIONS else header


def request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: bytes | None, flexible: bool
) -> bytes:
    """Returns the header of a request. `client_id` is UTF-8 of at most 32767 bytes, None for null."""
    if client_id is None:
        header = _PREFIX.pack(api_key, api_version, correlation_id, -1)
    else:
        header = _PREFIX.pack(api_key, api_version, correlation_id, len(client_id)) + client_id
    return header + b"\0" if flexible else header


def read_response_header(frame: bytes | bytearray | memoryview, api_key: int, flexible: bool) -> tuple[int, int]:
    """Returns the correlation id of a response and the position of its message. Raises ProtocolViolation."""
    if len(frame) < _CORRELATION.size:
        raise ProtocolViolation(f"a response of {len(frame)} bytes has no header")
    (correlation_id,) = _CORRELATION.unpack_from(frame)
    if flexible and api_key != _API_VERSIONS:
        return correlation_id, _skip_tags(frame, _CORRELATION.size)
    return correlation_id, _CORRELATION.size

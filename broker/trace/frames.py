"""Captured frames: one request or response, with or without its size, and the message in it.

Identifies frames, and has the schemas of headers (KIP-482: header v2 of requests and v1 of responses have tagged
fields; responses to ApiVersions always have header v0, KIP-511). The message is printed by `trace` from its own schema.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

from ...protocol.api_key import ApiKey
from ...protocol.apis import Api, apis
from ...protocol.compiler import parse
from ...protocol.errors import MalformedMessage
from ...protocol.layouts import Blob, Group, Length, int16, int32, struct_of
from ...protocol.named import NamedTuple
from ...protocol.primitives import Int16, Int32, Text
from ...protocol.schema import group, spec
from ...protocol.structs import Construct, Struct, members, parse_value
from .describe import describe, versions_text
from .tracer import Stopped, Tracer, Window

SIZE_BYTES = 4
LEFT_OVER_SHOWN = 64


@group
class RequestHeader:
    """The header of a request."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: Text | None


@group
class ResponseHeader:
    """The header of a response."""

    correlation_id: Int32


def _header(cls: Any, *plan: tuple[str, Construct], flexible: bool) -> Group:
    return Group(cls, list(plan), {} if flexible else None, [])


# By hand: a client id keeps its old length in the flexible header, which declarations cannot express.
_REQUEST: list[tuple[str, Construct]] = [
    ("request_api_key", int16),
    ("request_api_version", int16),
    ("correlation_id", int32),
    ("client_id", Blob(Length(int16, True), text=True, view=False)),
]
REQUEST_HEADER_V1 = _header(RequestHeader, *_REQUEST, flexible=False)
REQUEST_HEADER_V2 = _header(RequestHeader, *_REQUEST, flexible=True)
RESPONSE_HEADER_V0 = _header(ResponseHeader, ("correlation_id", int32), flexible=False)
RESPONSE_HEADER_V1 = _header(ResponseHeader, ("correlation_id", int32), flexible=True)


def api_name(key: int) -> str:
    """Returns the name of an API in parentheses, with a leading space; " (unknown)" for an unknown key."""
    api = apis().get(key)
    return f" ({api.name})" if api else " (unknown)"


def parse_api(text: str) -> tuple[Api, int]:
    """Parses `KEY:VERSION` or `NAME:VERSION`. Raises ValueError with one line."""
    name, colon, number = text.partition(":")
    if not colon or not number.isascii() or not number.isdigit():
        raise ValueError(f"{text!r} is not KEY:VERSION, such as 0:9 or Produce:9")
    if name.isascii() and name.isdigit():
        api = apis().get(int(name)) if len(name) < 10 else None
    else:
        api = next((api for api in apis().values() if api.name.lower() == name.lower()), None)
    if api is None:
        raise ValueError(f"no API is known as {name!r}")
    version = int(number) if len(number) < 10 else -1
    if version not in spec(api.response).versions:
        raise ValueError(f"{api.name} has no version {number}; it has {versions_text(spec(api.response).versions)}")
    return api, version


class Frame(NamedTuple):
    """An identified frame: it lies in `begin`..`end` of the input, and begins with its size if `has_size`."""

    begin: int
    end: int
    has_size: bool
    header: Group
    cls: type
    version: int
    title: str

    @property
    def start(self) -> int:
        """The position of the header."""
        return self.begin + (SIZE_BYTES if self.has_size else 0)


def _request(data: bytes, begin: int, end: int, has_size: bool) -> Frame | None:
    """Returns the request at this position; None if its key and version are unknown."""
    start = begin + (SIZE_BYTES if has_size else 0)
    if start + 8 > end:
        return None
    key, version = struct.unpack_from(">hh", data, start)
    api = apis().get(key)
    if api is None or version not in spec(api.request).versions:
        return None
    header = REQUEST_HEADER_V2 if version in spec(api.request).flexible else REQUEST_HEADER_V1
    return Frame(begin, end, has_size, header, api.request, version, f"{api.name} request v{version}")


def _response(data: bytes, api: Api, version: int, has_size: bool) -> Frame:
    flexible = version in spec(api.response).flexible and api.key != ApiKey.API_VERSIONS
    header = RESPONSE_HEADER_V1 if flexible else RESPONSE_HEADER_V0
    return Frame(0, len(data), has_size, header, api.response, version, f"{api.name} response v{version}")


def request_frame(data: bytes) -> Frame | None:
    """Returns the request in these bytes, which begin with its header; None if its key and version are unknown."""
    return _request(data, 0, len(data), False)


def response_frame(data: bytes, api_key: int, version: int) -> Frame | None:
    """Returns the response in these bytes, which begin with its header; None if the API has no such version."""
    api = apis().get(api_key)
    if api is None or version not in spec(api.response).versions:
        return None
    return _response(data, api, version, False)


def _is_whole(data: bytes, frame: Frame | None) -> bool:
    """Returns whether the message fills the frame, by the bounded parser that the broker uses."""
    if frame is None:
        return False
    stream = io.BytesIO(data[frame.start : frame.end])
    try:
        parse_value(frame.header, stream, None, "header")
        parse(frame.cls, frame.version, memoryview(data)[: frame.end], frame.start + stream.tell())
    except MalformedMessage:
        return False
    return True


def _size_at(data: bytes, position: int) -> int:
    return struct.unpack_from(">i", data, position)[0] if len(data) - position >= SIZE_BYTES else -1


def find_requests(data: bytes) -> Iterator[Frame]:
    """Yields the requests in these bytes: one alone, or several, each with its size.

    A damaged request is yielded as the API that its header names. Bytes without a known API end the iteration.
    """
    position = 0
    while position < len(data):
        frame = _next_request(data, position)
        if frame is None:
            return
        yield frame
        position = frame.end


def _next_request(data: bytes, position: int) -> Frame | None:
    size = _size_at(data, position)
    left = len(data) - position - SIZE_BYTES
    sized = _request(data, position, position + SIZE_BYTES + min(size, left), True) if size > 0 else None
    plain = _request(data, 0, len(data), False) if position == 0 else None
    order = (sized, plain) if size == left or position else (plain, sized)
    return next((frame for frame in (sized, plain) if _is_whole(data, frame)), order[0] or order[1])


def find_response(data: bytes, api: Api, version: int) -> Frame:
    """Returns the response in these bytes, with or without its size."""
    plain = _response(data, api, version, False)
    if _size_at(data, 0) != len(data) - SIZE_BYTES:
        return plain
    sized = _response(data, api, version, True)
    return plain if not _is_whole(data, sized) and _is_whole(data, plain) else sized


def trace_frame(data: bytes, frame: Frame, tracer: Tracer) -> int:
    """Prints size, header and message; returns the end of the frame. Raises Stopped."""
    window = Window(data[frame.begin : frame.end], frame.begin)
    size = frame.end - frame.start
    tracer.line(window.position, 0, f"{frame.title}, {size} bytes")
    if frame.has_size:
        tracer.field("size", int32, window, 1)
    tracer.line(window.position, 1, "header")
    tracer.struct(frame.header, window, 2)
    tracer.line(window.position, 1, frame.cls.__name__)
    tracer.struct(struct_of(frame.cls, frame.version), window, 2)
    if window.left:
        _trace_left_over(window, tracer)
    if frame.has_size and (announced := _size_at(data, frame.begin)) != size:
        raise Stopped(str(frame.end), f"{announced} bytes announced, {size} found")
    return frame.end


def _trace_left_over(window: Window, tracer: Tracer) -> None:
    position, size = window.position, window.left
    shown = "" if tracer.hide_bytes else f": {window.stream.read(LEFT_OVER_SHOWN).hex()}"
    more = "..." if shown and size > LEFT_OVER_SHOWN else ""
    tracer.line(position, 1, f"{size} bytes left over, which a broker ignores{shown}{more}")


def describe_frame(frame: Frame) -> Iterator[str]:
    """Yields the schema of header and message."""
    declared = spec(frame.cls)
    flexible = "none" if declared.flexible.last < 0 else versions_text(declared.flexible)
    yield f"{frame.title} (versions {versions_text(declared.versions)}, flexible {flexible})"
    yield "  header"
    yield from _without_versions(frame.header)
    yield f"  {frame.cls.__name__}"
    yield from describe(struct_of(frame.cls, frame.version), 2)


def _without_versions(header: Group) -> Iterator[str]:
    yield from describe(Struct(*members(header)), 2)
    if header.tags is not None:
        yield "    tagged fields"

"""The bytes of a frame beside their meaning: each field with its position, its bytes in hex, its name and its value.

Frames are traced as by `ottla dump`, with the message's own schema; the number of lines is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....protocol.named import NamedTuple
from ...trace import frames
from ...trace.entries import Entries
from ...trace.tracer import Stopped, Tracer

LINES_MAX = 1500
HEX_BYTES = 24  # of one field


class _Full(Exception):
    """The maximum of lines is reached."""


class Line(NamedTuple):
    """A field: its position ("+" counts in decompressed data), the first of its bytes, their number, its depth, name
    and value; a line without a field has no name."""

    position: str
    hex: str
    size: int
    depth: int
    name: str
    value: str
    is_problem: bool


@dataclass(slots=True)
class _Traced:
    position: str
    depth: int
    text: str
    is_problem: bool


class _Lines(Tracer):
    def __init__(self) -> None:
        super().__init__(lambda text: None, 1, names={"request_api_key": frames.api_name, "api_key": frames.api_name})
        self.found: list[_Traced] = []
        self._is_problem = False

    def line(self, position: str, depth: int, text: str) -> None:
        if len(self.found) >= LINES_MAX:
            raise _Full
        self.found.append(_Traced(position, depth, text, self._is_problem))

    def problem(self, stopped: Stopped, depth: int) -> None:
        self._is_problem = True
        try:
            super().problem(stopped, depth)
        finally:
            self._is_problem = False


class Decoded(NamedTuple):
    """A frame in lines; `damage` is why it ends early, `is_full` is whether lines are omitted."""

    title: str
    lines: list[Line]
    damage: str | None
    is_full: bool


def decoded(data: bytes, api_key: int, version: int, *, is_request: bool) -> Decoded:
    """Decodes the frame of a request of that key and version, or of a response to one, header first."""
    frame = frames.request_frame(data) if is_request else frames.response_frame(data, api_key, version)
    if frame is None:
        title = f"{'' if is_request else 'response of '}API {api_key} v{version}"
        return Decoded(title, _with_bytes(data, [_Traced("0", 0, "(unknown API or version)", True)]), None, False)
    tracer = _Lines()
    damage, is_full = None, False
    tracer.on_records = Entries(tracer, topic=None, with_records=True).in_message
    try:
        frames.trace_frame(data, frame, tracer)
    except _Full:
        is_full = True
    except Stopped as stopped:
        damage = str(stopped)
    return Decoded(frame.title, _with_bytes(data, tracer.found), damage, is_full)


def _with_bytes(data: bytes, traced: list[_Traced]) -> list[Line]:
    """Returns each line with the bytes up to the beginning of the next."""
    found: list[Line] = []
    end = len(data)
    for one in reversed(traced):
        begin = int(one.position) if one.position.isdecimal() else -1
        size = max(0, end - begin) if begin >= 0 else 0
        part = data[begin : begin + min(size, HEX_BYTES)] if begin >= 0 else b""
        name, colon, value = one.text.partition(": ")
        if one.is_problem or not colon:
            name, value = (one.text, "") if not one.is_problem else ("", one.text)
        found.append(Line(one.position, part.hex(" "), size, min(one.depth, 12), name, value, one.is_problem))
        if begin >= 0:
            end = begin
    found.reverse()
    return found

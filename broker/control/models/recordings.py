"""Recordings of requests and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from ....protocol.limits import INT64_MAX
from ...config.record_options import LEAST_BYTES, MAX_BYTES, Format
from .parts import Count, Model, doc, text, whole

PATH_MAX = 4096

if TYPE_CHECKING:
    FormatName: TypeAlias = str
else:
    FormatName = Literal[tuple(map(str, Format))]


class NewRecording(Model):
    file: Annotated[
        str, text(PATH_MAX, "a path of the broker's; its ending chooses JSON lines (.jsonl) or Wireshark's .pcapng", 1)
    ]
    max_bytes: Annotated[int, whole(LEAST_BYTES, INT64_MAX, "the recording ends at this size")] = MAX_BYTES
    ring: Annotated[bool, doc("keep the newest instead, in FILE and FILE.1")] = False
    contents: Annotated[bool, doc("false omits keys and values of records, and values of their headers")] = True


class Recording(Model):
    """The recording that runs, or the last one; file is null without any."""

    running: bool
    file: str | None
    format: FormatName | None
    max_bytes: int | None
    ring: bool
    contents: bool
    since_ms: Annotated[int | None, doc("when it began, by the broker's clock")]
    exchanges: Annotated[Count, doc("requests that ended since")]
    dropped: Annotated[Count, doc("requests too fast or too large to be written, or removed by a ring undecoded")]
    waiting_bytes: Annotated[Count, doc("bytes still to be written, before they are decoded")]
    size_bytes: Annotated[Count, doc("the size of its files now")]
    ended: Annotated[str | None, doc("why it ended: stopped, or the error")]

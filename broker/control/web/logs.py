"""The segments of a log with their message formats, from the headers of their first and last batches.

Each takes an index look-up and a few headers, however large the log is. Blocking, on the broker's loop, like all reads
of a log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ....protocol.records.compression import CODEC_NAMES
from ....storage.errors import StorageError

if TYPE_CHECKING:
    from ....protocol.records.batch import BatchHeader
    from ....storage.partition_log import PartitionLog
    from ....storage.segments.segment import Segment

WALK_MAX = 10_000  # batches after the last entry of an index; normally some dozens


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment. `first_ms` and `last_ms` are the largest timestamps of its first batch and of the whole segment, -1
    without any. `first` and `last` are format and codec of its first and last batch, empty without batches. `damage` is
    why they are unknown."""

    base_offset: int
    next_offset: int
    size_bytes: int
    is_active: bool
    first_ms: int = -1
    last_ms: int = -1
    first: str = ""
    last: str = ""
    damage: str | None = None


def format_name(magic: int, codec: int) -> str:
    """Returns a message format with its codec: "v2", "v2 zstd"."""
    return f"v{magic}" + (f" {CODEC_NAMES.get(codec, f'codec {codec}')}" if codec else "")


def _name(header: BatchHeader) -> str:
    return format_name(header.magic, header.codec)


async def segments_of(log: PartitionLog, first: int = 0, count: int | None = None) -> list[SegmentFacts]:
    """Returns the facts of some segments of a log, oldest first. Yields to the event loop after each: its indexes may
    have to be read from disk."""
    segments = log.segments
    active = segments[-1]
    found: list[SegmentFacts] = []
    for segment in segments[first:] if count is None else segments[first : first + count]:
        if not segment.is_removed:
            found.append(_facts(segment, segment is active))
            await asyncio.sleep(0)
    return found


def _facts(segment: Segment, is_active: bool) -> SegmentFacts:
    plain = SegmentFacts(segment.base_offset, segment.next_offset, segment.size_bytes, is_active)
    if not segment.size_bytes:
        return plain
    with _closed_again(segment):
        try:
            largest_ms, first_ms = segment.times_ms()
            first, last = segment.header(0), segment.header(_last_position(segment))
        except StorageError as error:
            return replace(plain, damage=str(error))
    return replace(plain, first_ms=first_ms, last_ms=largest_ms, first=_name(first), last=_name(last))


def _last_position(segment: Segment) -> int:
    """Returns the position of the last batch: from the last entry of the index, it walks the batches that follow."""
    position = segment.boundaries(segment.size_bytes)[-1]
    for _ in range(WALK_MAX):
        end = segment.batch_end(position)
        if end >= segment.size_bytes:
            break
        position = end
    return position


@contextlib.contextmanager
def _closed_again(segment: Segment) -> Generator[None]:
    """Closes the segment afterwards, if it was closed before: a page must not leave the files of a thousand segments
    open."""
    was_open = segment.is_open
    try:
        yield
    finally:
        if not was_open:
            with contextlib.suppress(OSError):
                segment.close()


def formats_of(log: PartitionLog) -> list[str]:
    """Returns formats and codecs of the first and the last batch of a log; batches between may have others. Reads only
    the index of the newest segment with records. Raises StorageError."""
    segments = log.segments
    first = next((segment for segment in segments if segment.size_bytes), None)
    if first is None:
        return []
    last = next(segment for segment in reversed(segments) if segment.size_bytes)
    with _closed_again(first), _closed_again(last):
        return list(dict.fromkeys((_name(first.header(0)), _name(last.header(_last_position(last))))))

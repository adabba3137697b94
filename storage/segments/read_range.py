"""Finds the bytes of a slice of a log: its segment, start and end. Has no state."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.named import NamedTuple
from ...protocol.records.new_tuple import new_tuple
from .segment import Segment


class Run(NamedTuple):
    """Bytes of one segment."""

    segment: Segment
    position: int
    end: int


def run_of(
    segments: Iterable[Segment],
    offset: int,
    end_offset: int,
    max_bytes: int,
    at_least_one_batch: bool,
    hard_limit: bool,
    whole: bool = True,
) -> Run | None:
    """Returns the bytes that `PartitionLog.read` reads from these segments, below `end_offset`; None if there are none.

    Raises StorageError.
    """
    for segment in segments:
        position = segment.position_of(offset)
        if position is None:
            continue
        limit = position + max(max_bytes, 0)
        shown = segment.end_below(end_offset)
        if hard_limit:
            end = min(limit, shown)
        else:
            end = min(limit, shown) if not whole else segment.end_of_whole(position, min(limit, shown))
            if end < shown and (not whole or end <= position):
                first_end = segment.batch_end(position)
                if end < first_end:
                    end = first_end if at_least_one_batch else position
        return new_tuple(Run, (segment, position, end)) if end > position else None
    return None


def bytes_between(segments: Iterable[Segment], offset: int, after: Iterable[Segment], end_offset: int) -> int:
    """Returns the bytes of these segments between the batches that contain two offsets; `after` are the segments from
    the later one on. As exact as `Segment.bytes_from`, and at least 1 if the range is not empty."""
    size_bytes = sum(segment.bytes_from(offset) for segment in segments)
    size_bytes -= sum(segment.bytes_from(end_offset) for segment in after)
    return max(size_bytes, 1 if offset < end_offset else 0)

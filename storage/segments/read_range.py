"""Where a slice of a log lies: which segment it is of, and from which byte to which. Has no state of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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
) -> Run | None:
    """What `PartitionLog.read` reads of these segments, which is below `end_offset`; None if there is nothing.

    StorageError.
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
            end = segment.end_of_whole(position, min(limit, shown))
            if end <= position < shown and at_least_one_batch:
                end = segment.batch_end(position)
        return new_tuple(Run, (segment, position, end)) if end > position else None
    return None


def bytes_between(segments: Iterable[Segment], offset: int, behind: Iterable[Segment], end_offset: int) -> int:
    """Bytes of these segments from the batch that holds an offset to the one that holds a later one, which `behind` are
    those from; as `Segment.bytes_from` knows them, and never none where there may be some."""
    size_bytes = sum(segment.bytes_from(offset) for segment in segments)
    size_bytes -= sum(segment.bytes_from(end_offset) for segment in behind)
    return max(size_bytes, 1 if offset < end_offset else 0)

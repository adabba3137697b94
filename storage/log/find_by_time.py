"""Finds records by timestamp over the segments of a log. Has no state.

Records of a segment below the log start are ignored. `most` is the limit on a record of a compressed batch that is
read (max.decompressed.message.bytes); RecordAboveLimit, a StorageError, is raised for a larger one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...protocol.limits import INT32_MAX
from ...protocol.records import batch, formats, record_sizes
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ..errors import RecordAboveLimit, StorageError
from ..segments.segment import LOG_SUFFIX, Segment
from .results import TimestampOffset


def find(
    segments: Iterable[Segment], log_start_offset: int, timestamp_ms: int, most: int = INT32_MAX
) -> TimestampOffset | None:
    """Returns the first record at or above the log start whose timestamp is >= `timestamp_ms`, or None. Raises
    StorageError."""
    for segment in segments:
        if segment.largest_timestamp()[0] < timestamp_ms:
            continue
        found = _first_in(segment, log_start_offset, timestamp_ms, most)
        if found is not None:
            return found
    return None


def largest(segments: Sequence[Segment], log_start_offset: int, most: int = INT32_MAX) -> TimestampOffset | None:
    """Returns the first record with the largest timestamp; None if no record has one. Raises StorageError."""
    best, best_segment = -1, None
    for segment in segments:
        timestamp_ms, offset = segment.largest_timestamp()
        if segment.base_offset < log_start_offset and timestamp_ms >= 0:
            position = segment.position_of(offset)
            header = segment.header(position) if position is not None else None
            if header is not None and (header.base_offset < log_start_offset or _is_wrapper(header)):
                timestamp_ms = _largest_from_start(segment, log_start_offset, most)
        if timestamp_ms > best:
            best, best_segment = timestamp_ms, segment
    if best_segment is None:
        return None
    # The batch with it may have no record left: compaction keeps a header for the sequences of its producer.
    return _first_in(best_segment, log_start_offset, best, most) or _largest_record(segments, log_start_offset, most)


def _largest_record(segments: Sequence[Segment], log_start_offset: int, most: int) -> TimestampOffset | None:
    """The result of `largest` without the headers of empty batches, in one pass over all segments."""
    times = [(_largest_from_start(segment, log_start_offset, most), segment) for segment in segments]
    best, segment = max(times, key=lambda found: found[0])
    return None if best < 0 else _first_in(segment, log_start_offset, best, most)


def _is_wrapper(header: BatchHeader) -> bool:
    """Returns whether the entry is a compressed message of an old format, whose header lacks the first offset."""
    return header.magic < batch.MAGIC and header.codec != 0


def _largest_from_start(segment: Segment, log_start_offset: int, most: int) -> int:
    """Returns the largest timestamp of a segment's records at or above the log start, which lies inside it; -1 without
    one."""
    found, previous_end = -1, segment.base_offset
    for position, header in segment.batches():
        begins = previous_end if _is_wrapper(header) else header.base_offset
        previous_end = header.next_offset
        if header.magic == batch.MAGIC and not header.record_count:
            continue
        if begins >= log_start_offset:
            found = max(found, header.max_timestamp)
        elif header.last_offset >= log_start_offset:
            records = _records(segment, position, header, most)
            found = max([found, *(record.timestamp for record in records if record.offset >= log_start_offset)])
    return found


def _first_in(segment: Segment, log_start_offset: int, timestamp_ms: int, most: int) -> TimestampOffset | None:
    for position, header in segment.batches_not_before(timestamp_ms):
        if header.last_offset < log_start_offset:
            continue
        for record in _records(segment, position, header, most):
            if record.timestamp >= timestamp_ms and record.offset >= log_start_offset:
                return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader, most: int) -> Iterator[batch.Record]:
    where = f"{segment.path(LOG_SUFFIX)}: the batch at offset {header.base_offset}"
    entry = segment.read(position, header.size_bytes)
    try:
        record_sizes.check_entry(entry, header, most)
    except InvalidRecords as error:
        raise RecordAboveLimit(f"{where}: {error}") from error
    except (CorruptRecords, UnsupportedCodec) as error:
        raise StorageError(f"{where}: {error}") from error
    try:
        yield from formats.records(entry)
    except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
        raise StorageError(f"{where}: {error}") from error

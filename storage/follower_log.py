"""A partition log written as by a follower: with fetched batches, unconverted (KIP-724).

Checks fetched batches, and divides them between segments. Offsets and leader epochs are the leader's; offsets may be
missing where the leader's log was compacted. Producer state, transactions and indexes follow from the batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.records import formats
from ..protocol.records.batch import MAGIC, BatchHeader
from ..protocol.records.errors import CorruptRecords
from .config import LogConfig
from .errors import StorageError, storage_errors
from .format.index import MAX_RELATIVE_OFFSET, TIME_ENTRY_BYTES
from .log.append_plan import must_roll
from .log.availability import when_available
from .partition_log import PartitionLog
from .producers import txn_index
from .segments.segment import SUFFIXES, Segment


class FollowerLog(PartitionLog):
    """A partition log that appends fetched batches."""

    __slots__ = ()

    @when_available
    def begin_at(self, offset: int, now_ms: int) -> None:
        """Moves an empty log to the offset where the leader's log begins. Raises StorageError."""
        self._check_writable()
        if self.size_bytes:
            raise StorageError(f"{self._directory} has records, so cannot begin at {offset}")
        if offset == self.log_end_offset == self._active.base_offset:
            return
        gone = list(self._segments)
        self._roll(offset, now_ms)
        self.log_end_offset = self.log_start_offset = offset
        self._flusher.forget(gone)
        self._segments = self._segments[-1:]
        with storage_errors(f"cannot begin {self._directory} at {offset}"):
            for segment in gone:
                segment.close()
                for suffix in SUFFIXES[::-1]:
                    if self._files.exists(segment.path(suffix)):
                        self._files.remove(segment.path(suffix))

    def last_batch(self) -> bytes:
        """Returns the newest batch as it is stored; empty if the log has none. Raises StorageError."""
        if not self.size_bytes:
            return b""
        segment = next(segment for segment in reversed(self._segments) if segment.size_bytes)
        position = segment.boundaries(segment.size_bytes - 1)[0]
        for at, _ in segment.batches(position):
            position = at
        return bytes(segment.read(position, segment.size_bytes - position))

    @when_available
    def append_fetched(self, records: bytes | bytearray | memoryview, *, now_ms: int) -> int:
        """Appends the whole batches of a fetch, with one write per segment, and returns their number.

        An incomplete batch at the end is ignored. Raises CorruptRecords, without appending anything, if a batch is
        damaged or its offset is not above the log end and the batch before; StorageError.
        """
        self._check_writable()
        with memoryview(records) as data:
            headers = sound_batches(data, self.log_end_offset)
            done, position = 0, 0
            while done < len(headers):
                left = headers[done:] if done else headers
                roll = must_roll(self._active, self.config, left[:1], left[0].size_bytes, now_ms)
                if roll:  # the first offset of a wrapper in an old format is unknown
                    self._roll(left[0].base_offset if left[0].magic == MAGIC else self.log_end_offset, now_ms)
                run = first_run(left, self._active, self.config, now_ms)
                size_bytes = sum(header.size_bytes for header in run)
                self._append_run(data[position : position + size_bytes], run, now_ms)
                done, position = done + len(run), position + size_bytes
        return len(headers)

    def _append_run(self, data: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> None:
        for header in headers:
            if header.magic < MAGIC or header.partition_leader_epoch >= 0:
                self._epochs.note(header.magic, header.partition_leader_epoch, header.base_offset)
        self.leader_epoch = max(self._epochs.newest, 0)
        known = self._known_producers() if any(header.producer_id >= 0 for header in headers) else None
        self._active.append(data, headers)
        self._adopt(self._active, headers, len(data), None, now_ms)
        if known is not None:
            try:
                self._follow(data, headers)
            except StorageError as error:
                self.report(error)
                # the batches are written, but their effect on the producer state is unknown: a recovery rebuilds it
                self.fail(str(error))
                raise

    def _follow(self, data: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Applies batches to the producer state, and adds aborted transactions to the segment's index."""
        known, position = self._known_producers(), 0
        aborted: list[txn_index.AbortedTransaction] = []
        if any(header.is_transactional for header in headers):
            self._transactions.know()
        for header in headers:
            start, rules = self.log_start_offset, self.config.producer_rules
            if (entry := txn_index.apply(data, position, header, known, start, rules)) is not None:
                aborted.append(entry)
            if header.is_transactional and (after := known.get(header.producer_id)) is not None:
                self._transactions.note(header, after, self.high_watermark)
            position += header.size_bytes
        if aborted:
            self._flusher.wrote_file(self._transactions.append(self._active.base_offset, aborted))


def sound_batches(records: memoryview, end_offset: int) -> list[BatchHeader]:
    """Returns the headers of the whole batches. Raises CorruptRecords like `FollowerLog.append_fetched`."""
    found: list[BatchHeader] = []
    for position, header in formats.headers(records):
        if not formats.crc_matches(records, position, header):
            raise CorruptRecords(f"the CRC of the batch at offset {header.base_offset} is wrong")
        if header.base_offset < end_offset or header.last_offset_delta < 0:
            raise CorruptRecords(f"a batch at offset {header.base_offset} where the log ends at {end_offset}")
        found.append(header)
        end_offset = header.next_offset
    return found


def first_run(headers: Sequence[BatchHeader], active: Segment, config: LogConfig, now_ms: int) -> Sequence[BatchHeader]:
    """Returns the batches to write at once: the first, and as many of the next as the segment has room for."""
    size_bytes, count = headers[0].size_bytes, 1
    index_entries = config.segment_index_bytes // TIME_ENTRY_BYTES - 1
    for header in headers[1:]:
        longer = size_bytes + header.size_bytes
        entries = longer // (config.index_interval_bytes + 1) + 1
        if (
            active.size_bytes + longer > config.segment_bytes
            or header.last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or entries > index_entries
            or active.is_index_full(config.segment_index_bytes, entries)
            or must_roll(active, config, (header,), longer, now_ms)
        ):
            break
        size_bytes, count = longer, count + 1
    return headers[:count]

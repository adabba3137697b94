"""Reads from the log of one partition: slices, offsets by time and by epoch, and the offsets visible to consumers.

Has the list of segments and the start and end offsets, which `PartitionLog` changes; changes nothing itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..config import LogConfig
from ..errors import OffsetOutOfRange
from ..format.clean_close import ClosedLog
from ..io.files import Files
from ..segments import read_range
from ..segments.segment import Segment
from . import find_by_time
from .availability import LogAvailability, when_available
from .losses import Loss
from .results import Slice, TimestampOffset
from .stable_offset import Transactions

if TYPE_CHECKING:
    from ..format.leader_epochs import LeaderEpochs
    from ..producers.producer_state import Producer
    from ..producers.txn_index import AbortedTransaction
    from .recovery import Recovered


class ReadableLog(LogAvailability):
    """The read side of a partition log."""

    __slots__ = (
        "_active",
        "_epochs",
        "_files",
        "_held_from",
        "_segments",
        "_transactions",
        "_unreplicated_from",
        "_unsynced_from",
        "config",
        "cut_bytes",
        "has_hole",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "losses",
        "size_bytes",
    )

    # Set by the writing subclass.
    _epochs: LeaderEpochs
    leader_epoch: int
    size_bytes: int

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        recovered: Recovered,
        load_producers: Callable[[], dict[int, Producer]],
    ) -> None:
        super().__init__(directory)
        self._files = files
        self._segments = recovered.segments
        self._active = recovered.segments[-1]
        self._transactions = Transactions(files, directory, recovered, load_producers)
        self._held_from: int | None = None  # the lower one of the next two
        self._unsynced_from: int | None = None
        self._unreplicated_from: int | None = None
        self.has_hole = recovered.has_hole
        """Whether recovery found missing offsets between segments and accepted them."""
        self.cut_bytes = recovered.cut_bytes
        """Bytes that recovery removed when the log was opened."""
        self.losses: Sequence[Loss] = recovered.losses
        """Records that were missing or dropped when the log was opened."""
        self.config = config
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = self._active.next_offset

    def configure(self, config: LogConfig) -> None:
        """Sets a new configuration, valid from the next call on."""
        self.config = config

    @property
    def high_watermark(self) -> int:
        """The offset up to which consumers may read: with one replica the log end offset, or where records are held
        back."""
        return self.log_end_offset if self._held_from is None else self._held_from

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which read_committed consumers may read, see stable_offset.py. Raises StorageError."""
        return self._transactions.stable_offset(self.high_watermark, self.log_start_offset)

    @when_available
    def open_transactions(self) -> dict[int, int]:
        """Returns the first offset of each open transaction, by producer id. Raises StorageError."""
        return self._transactions.opened()

    @property
    def first_segment_offset(self) -> int:
        """The base offset of the oldest segment, at or below the log start."""
        return self._segments[0].base_offset

    @when_available
    def segment_bases(self) -> list[tuple[int, int]]:
        """Returns (base offset, time in ms) of each segment, oldest first: its largest timestamp, or its creation
        time."""
        times = ((segment, segment.largest_timestamp()[0]) for segment in self._segments)
        return [(segment.base_offset, time if time >= 0 else segment.created_ms) for segment, time in times]

    # -- slices and offsets

    @when_available
    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one_batch: bool = True,
        committed: bool = False,
        hard_limit: bool = False,
        whole: bool = True,
    ) -> Slice:
        """Reads batches of one segment, from the one that contains the offset on, at most `max_bytes` of them.

        A larger first batch is returned alone, or not at all without `at_least_one_batch`. Without `whole` (Fetch) the
        last of several batches may be cut at `max_bytes`, with `hard_limit` (Fetch v0 to v2) also the first. At the end
        of the log the slice is empty. Raises OffsetOutOfRange, StorageError.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        high_watermark = self.high_watermark
        stable_offset = self._transactions.stable_offset(high_watermark, self.log_start_offset)
        end_offset = stable_offset if committed else high_watermark
        records: bytes | memoryview = b""
        aborted: Sequence[AbortedTransaction] = ()
        if offset < end_offset:
            segments = self._segments_from(offset)
            run = read_range.run_of(segments, offset, end_offset, max_bytes, at_least_one_batch, hard_limit, whole)
            if run is not None:
                records = run[0].read_batches(run[1], run[2] - run[1])
                aborted = self._transactions.aborted(self, run, offset) if committed else ()
        return Slice(records, high_watermark, self.log_start_offset, stable_offset, aborted)

    @when_available
    def read_appended(self, offset: int, max_bytes: int) -> bytes | memoryview:
        """Like `read`, up to the log end offset, including records held back from consumers. Raises OffsetOutOfRange,
        StorageError."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        run = read_range.run_of(self._segments_from(offset), offset, self.log_end_offset, max_bytes, True, False)
        return b"" if run is None else run[0].read(run[1], run[2] - run[1])

    def _segments_from(self, offset: int) -> Sequence[Segment]:
        """Returns the segments that may contain the offset or later ones, oldest first."""
        if offset >= self._active.base_offset:
            return (self._active,)
        first = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        return self._segments[max(first, 0) :]

    def available_bytes(self, offset: int, *, committed: bool = False) -> int:
        """Returns the bytes from the batch that contains the offset to the high watermark or last stable offset,
        without reading the log.

        Exact for the newest batches, otherwise off by up to an index interval and a batch (or an unread segment).
        """
        end_offset = self.last_stable_offset if committed else self.high_watermark
        after = self._segments_from(end_offset) if end_offset < self.log_end_offset else ()
        return read_range.bytes_between(self._segments_from(offset), offset, after, end_offset)

    def growing_from(self, *, committed: bool = False) -> int:
        """Returns the base offset of the segment that contains the end of the visible records; earlier segments are
        visible as a whole."""
        end_offset = self.last_stable_offset if committed else self.high_watermark
        return next(iter(self._segments_from(end_offset))).base_offset

    def hold_back(self, offset: int | None) -> None:
        """Hides records from consumers from this offset on; None shows all. For appends that must be durable before
        they are visible."""
        self._unsynced_from = offset
        self._reckon_held()

    @property
    def unreplicated_from(self) -> int | None:
        """The offset given to `hold_unreplicated`."""
        return self._unreplicated_from

    def hold_unreplicated(self, offset: int | None) -> None:
        """Hides records from consumers from this offset on; None shows all. For a partition with fewer replicas in sync
        than min.insync.replicas, whose high watermark stays (KAFKA-15583)."""
        self._unreplicated_from = offset
        self._reckon_held()

    def _reckon_held(self) -> None:
        offsets = [one for one in (self._unsynced_from, self._unreplicated_from) if one is not None]
        self._held_from = min(offsets, default=None)

    @when_available
    def find_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Returns the first record at or above the log start whose timestamp is >= `timestamp_ms`, or None. Raises
        StorageError."""
        start = self.log_start_offset
        return find_by_time.find(self._segments_from(start), start, timestamp_ms, self.config.rules.max_record_bytes)

    @when_available
    def max_timestamp(self) -> TimestampOffset | None:
        """Returns the first record with the largest timestamp; None if no record has one. Raises StorageError."""
        start = self.log_start_offset
        return find_by_time.largest(self._segments_from(start), start, self.config.rules.max_record_bytes)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the largest epoch at or below the given one; (-1, -1) if unknown."""
        if not self._epochs.entries and self.size_bytes:  # the log ends with messages of an old format
            return -1, -1
        return self._epochs.end_offset(epoch, self.leader_epoch, self.log_end_offset)

    def epoch_at_start(self) -> int:
        """Returns the epoch of the first record, or of the leader if the log is empty; -1 if unknown."""
        if not self.size_bytes or (self._epochs.entries and self.log_start_offset == self.log_end_offset):
            return self.leader_epoch
        return self._epochs.epoch_at(self.log_start_offset)

    def as_closed(self) -> ClosedLog:
        """Returns the state that a close records of the log, after everything is in its files. Raises StorageError."""
        sizes = {
            one.base_offset: (one.size_bytes, self._transactions.index_bytes(one.base_offset)) for one in self._segments
        }
        return ClosedLog(self.log_start_offset, self.log_end_offset, sizes)

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments, oldest first; the last one is active. Must not be changed by the caller."""
        return self._segments

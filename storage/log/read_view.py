"""What can be read of the log of one partition: slices, offsets by time and by epoch, and how far consumers see.

Owns the list of segments and where the log begins and ends, which `PartitionLog` changes; changes nothing itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..config import LogConfig
from ..errors import OffsetOutOfRange
from ..format.clean_close import ClosedLog
from ..io.files import Files
from ..segments import read_range
from ..segments.segment import Segment
from . import find_by_time
from .availability import Watched, watched
from .losses import Loss
from .results import Slice, TimestampOffset
from .stable_offset import Transactions

if TYPE_CHECKING:
    from ..format.leader_epochs import LeaderEpochs
    from ..producers.producer_state import Producer
    from ..producers.txn_index import AbortedTransaction
    from .recovery import Recovered


class ReadableLog(Watched):
    """See the module."""

    __slots__ = (
        "_active",
        "_epochs",
        "_files",
        "_held_from",
        "_segments",
        "_transactions",
        "config",
        "cut_bytes",
        "has_hole",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "losses",
        "size_bytes",
    )

    # Of whoever writes.
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
        self._held_from: int | None = None
        self.has_hole = recovered.has_hole
        """Whether recovery found offsets missing between segments, and let it be."""
        self.cut_bytes = recovered.cut_bytes
        """Bytes that recovery removed when the log was opened."""
        self.losses: Sequence[Loss] = recovered.losses
        """What the log had and has no more, as found when it was opened."""
        self.config = config
        self.log_start_offset = recovered.log_start_offset
        self.log_end_offset = self._active.next_offset

    def configure(self, config: LogConfig) -> None:
        """Takes new settings; they hold from the next call on."""
        self.config = config

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read: with one replica, the end of the log, or of what is not held back."""
        return self.log_end_offset if self._held_from is None else self._held_from

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` consumers may read, see transactions.py. Raises StorageError."""
        return self._transactions.stable_offset(self.high_watermark, self.log_start_offset)

    @watched
    def open_transactions(self) -> dict[int, int]:
        """The first offset of each transaction that has not ended, by producer id. Raises StorageError."""
        return self._transactions.opened()

    @property
    def first_segment_offset(self) -> int:
        """The base offset of the oldest segment, at or below the log start."""
        return self._segments[0].base_offset

    @property
    def active_segment_offset(self) -> int:
        """The base offset of the segment that is appended to."""
        return self._active.base_offset

    @watched
    def segment_bases(self) -> list[tuple[int, int]]:
        """(base offset, time in ms) of each segment, oldest first: the largest timestamp in it, else its making."""
        times = ((segment, segment.largest_timestamp()[0]) for segment in self._segments)
        return [(segment.base_offset, time if time >= 0 else segment.created_ms) for segment, time in times]

    # -- slices and offsets

    @watched
    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one_batch: bool = True,
        committed: bool = False,
        hard_limit: bool = False,
    ) -> Slice:
        """Whole batches of one segment, from the one that holds the offset on, at most `max_bytes` of them.

        If the first is larger it comes alone, or nothing comes without `at_least_one_batch`. With `hard_limit` (Fetch
        v0 to v2) as many bytes come as there are up to `max_bytes`, whatever they cut. At the end of the log the slice
        is empty. Raises OffsetOutOfRange, StorageError.
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
            run = read_range.run_of(segments, offset, end_offset, max_bytes, at_least_one_batch, hard_limit)
            if run is not None:
                records = run[0].read(run[1], run[2] - run[1])
                aborted = self._transactions.aborted(self, run, offset) if committed else ()
        return Slice(records, high_watermark, self.log_start_offset, stable_offset, aborted)

    @watched
    def read_appended(self, offset: int, max_bytes: int) -> bytes | memoryview:
        """As `read`, up to the end of the log, whatever is held back from consumers. OffsetOutOfRange, StorageError."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        run = read_range.run_of(self._segments_from(offset), offset, self.log_end_offset, max_bytes, True, False)
        return b"" if run is None else run[0].read(run[1], run[2] - run[1])

    def _segments_from(self, offset: int) -> Iterable[Segment]:
        """The segments that may hold the offset or something behind it, oldest first."""
        if offset >= self._active.base_offset:
            return (self._active,)
        first = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        return self._segments[max(first, 0) :]

    def available_bytes(self, offset: int, *, committed: bool = False) -> int:
        """Bytes from the batch that holds the offset to the high watermark, or to the last stable offset; reads no log.

        Exact for the newest batches, else off by up to an index interval and a batch (or an unread segment).
        """
        end_offset = self.last_stable_offset if committed else self.high_watermark
        behind = self._segments_from(end_offset) if end_offset < self.log_end_offset else ()
        return read_range.bytes_between(self._segments_from(offset), offset, behind, end_offset)

    def growing_from(self, *, committed: bool = False) -> int:
        """The base offset of the segment in which that ends: what lies in those before is shown as a whole."""
        end_offset = self.last_stable_offset if committed else self.high_watermark
        return next(iter(self._segments_from(end_offset))).base_offset

    def hold_back(self, offset: int | None) -> None:
        """Shows consumers nothing from the first offset of an append on; None shows them all. For appends that are to
        be durable before they are seen."""
        self._held_from = offset

    @watched
    def find_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or behind the log start with this timestamp (ms) or a later one. StorageError."""
        start = self.log_start_offset
        return find_by_time.find(self._segments_from(start), start, timestamp_ms)

    @watched
    def max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp; None if no record has one. StorageError."""
        start = self.log_start_offset
        return find_by_time.largest(self._segments_from(start), start)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below the one asked for; (-1, -1) if that is not known."""
        if not self._epochs.entries and self.size_bytes:  # the log ends with messages of an old format
            return -1, -1
        return self._epochs.end_offset(epoch, self.leader_epoch, self.log_end_offset)

    def epoch_at_start(self) -> int:
        """The epoch of the first record that there is; in a log without any that of its leader; -1 if not known."""
        if not self.size_bytes or (self._epochs.entries and self.log_start_offset == self.log_end_offset):
            return self.leader_epoch
        return self._epochs.epoch_at(self.log_start_offset)

    def as_closed(self) -> ClosedLog:
        """What a close notes of the log, once everything is in its files. StorageError."""
        sizes = {
            one.base_offset: (one.size_bytes, self._transactions.index_bytes(one.base_offset)) for one in self._segments
        }
        return ClosedLog(self.log_start_offset, self.log_end_offset, sizes)

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments, oldest first; the last is appended to. Not for the caller to change."""
        return self._segments

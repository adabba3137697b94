"""Verifies the files of one partition and compares them; each fault is a `Finding`.

One walk over the segments checks everything else against them: CRCs and offsets, the indexes, the producer snapshots
(against a replay), the aborted transactions, the leader epochs. Reads through `inspect`, so it can run beside a broker,
in bounded memory. `repair` decides how to mend a fault.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from .. import inspect
from ..compaction.swap import OF_JOBS, SEGMENT_FILE
from ..errors import StorageError
from ..format import checkpoint
from ..format.file_names import offsets_in
from ..io.files import Files
from ..producers import snapshot, txn_index
from ..producers.producer_state import Producer, advance
from ..producers.txn_index import AbortedTransaction, Marker
from ..segments.segment import LOG_SUFFIX
from .facts import Bad, Circumstances, End, EpochStretch, Event, Finding, First, Run, SegmentTask, SnapshotDue
from .segment import segment_events

LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp", *OF_JOBS)
SNAPSHOT_BYTES_MAX = 256 << 20

__all__ = ["LEFTOVERS", "Circumstances", "Finding", "Walk"]


def agrees(known: AbortedTransaction, stored: AbortedTransaction, first_offset: int, log_start: int) -> bool:
    """Returns whether `stored` is a valid index entry for a transaction of the log. A transaction that began below the
    first offset has a start that the log no longer contains; batches below the log start may have been skipped."""
    return all(
        by_file == by_log or by_file < first_offset <= by_log or by_log < min(by_file, log_start)
        for by_file, by_log in (
            (stored.first_offset, known.first_offset),
            (stored.last_stable_offset, known.last_stable_offset),
        )
    )


def _shown(entry: AbortedTransaction) -> str:
    offsets = f"offsets {entry.first_offset}-{entry.last_offset}, last stable offset {entry.last_stable_offset}"
    return f"producer {entry.producer_id}, {offsets}"


class _EpochOrder:
    """Checks that the leader epochs of a log do not fall. An epoch lies outside the CRC, so a single one may be wrong.

    Where the epoch falls, one entry is reported: a single entry with a higher epoch than both its neighbours, if there
    is one; otherwise the first entry of the lower epoch.
    """

    def __init__(self) -> None:
        self._before: int | None = None  # the epoch before that of `_last`
        self._last: tuple[str, EpochStretch] | None = None

    def take(self, file: str, stretch: EpochStretch) -> Iterator[Finding]:
        """Adds a stretch and yields its faults."""
        epoch = stretch.epoch
        if epoch is None or epoch < 0:  # old messages have none, nor have batches converted from them
            if epoch is None:
                self._last = self._before = None
            return
        if self._last is not None:
            last_file, last = self._last
            assert last.epoch is not None
            if epoch == last.epoch:
                self._last = (last_file, last._replace(entries=last.entries + stretch.entries))
                return
            if epoch < last.epoch:
                if last.entries == 1 and self._before is not None and epoch >= self._before:
                    what = f"leader epoch {last.epoch} between entries of {self._before} and {epoch}"
                    yield Finding(last_file, last.position, last.offset, what)
                    self._last = (file, stretch)
                    return
                what = f"leader epoch {epoch} does not follow those before it, up to {last.epoch}"
                yield Finding(file, stretch.position, stretch.offset, what)
                self._last, self._before = (file, stretch), None
                return
            self._before = last.epoch
        self._last = (file, stretch)


@dataclass
class Walk:
    """One check of a partition. Call `findings()` and use it to its end. If another process reads the segments, call
    `leftovers()`, then `step()` for each event of the segments in order, then `finish()`. Its results:

    bad_at: segment number and byte position of the first bad entry.
    end_offset: the offset after the last sound entry before `bad_at`.
    log_end: the offset after the last entry of the log; None if unknown.
    epochs: the leader epochs up to `bad_at`.
    aborted: the valid transaction index of each segment, by the path of its log; the first offset of an entry is -1 if
    the log no longer contains the start of the transaction.
    missing: the number of offsets before the current segment that are in no sound entry.
    holes: the number of gaps that these offsets are in.
    """

    folder: inspect.PartitionFolder
    names: list[str]
    circumstances: Circumstances = field(default_factory=Circumstances)
    files: Files = inspect.INSPECTION_FILES
    bad_at: tuple[int, int] | None = None
    end_offset: int = 0
    first_offset: int = 0
    log_end: int | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    bytes_read: int = 0
    aborted: dict[str, list[AbortedTransaction]] = field(default_factory=dict[str, list[AbortedTransaction]])
    missing: int = 0
    holes: int = 0

    def __post_init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._left: dict[int, Producer] = {}  # producers after the batches from the log start on
        self._aborts: dict[int, AbortedTransaction] = {}  # by the offset of the marker; of the current segment
        self._deleted: set[int] = set()  # markers among these whose transaction has no batch left
        self._has_gaps = False
        self._rewritten = False  # a batch has no epoch: it was converted from old messages
        self._expected: int | None = -1
        self._doubt = -1  # below it offsets are in no sound entry, so the producer state is incomplete
        self._snapshots = offsets_in(self.names, snapshot.SUFFIX)
        self._label = os.path.basename(self.folder.path)
        self._swapping = any(name.endswith(".log.swap") for name in self.names)
        self._epoch_order = _EpochOrder()
        segments = self.folder.segments
        if segments:
            self.first_offset = self.end_offset = segments[0].base_offset
            self._expected = self._doubt = self.first_offset

    # -- the parts

    def findings(self) -> Iterator[Finding]:
        """Yields all findings, segment by segment. Raises StorageError if a file cannot be read."""
        yield from self.leftovers()
        for number, task in enumerate(self.tasks()):
            for event in segment_events(task, self.files):
                yield from self.step(number, event)
        yield from self.finish()

    def tasks(self) -> list[SegmentTask]:
        """Returns the segments to read, in any order."""
        tasks: list[SegmentTask] = []
        segments, circumstances = self.folder.segments, self.circumstances
        gaps = circumstances.gaps or self._swapping
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            first = bisect_right(self._snapshots, segment.base_offset)
            last = len(self._snapshots) if following is None else bisect_right(self._snapshots, following)
            cuts = tuple(self._snapshots[first:last])
            tasks.append(
                SegmentTask(self._label, segment, following, circumstances.clean, gaps, circumstances.deep, cuts)
            )
        return tasks

    def leftovers(self) -> Iterator[Finding]:
        """Yields findings about files that belong to no segment."""
        for name in self.names:
            match = SEGMENT_FILE.fullmatch(name)
            if name.endswith(LEFTOVERS):
                yield Finding(f"{self._label}/{name}", None, None, _leftover(name), False, "leftover")
            elif match and match[2] != LOG_SUFFIX and match[1] + LOG_SUFFIX not in self.names:
                what = "an index without a log; the next start on the directory removes it"
                yield Finding(f"{self._label}/{name}", None, None, what, False, "leftover")

    def step(self, number: int, event: Event) -> Iterator[Finding]:
        """Adds one event of a segment; reads the segment's snapshots and transaction index."""
        segment = self.folder.segments[number]
        if isinstance(event, Run):
            self._replay(event)
        elif isinstance(event, EpochStretch):
            yield from self._stretch(number, segment, event)
        elif isinstance(event, Bad):
            self._bad(number, event.finding.byte or 0)
            yield event.finding
        elif isinstance(event, Finding):
            yield event
        elif isinstance(event, First):
            yield from self._first(number, segment, event)
        elif isinstance(event, SnapshotDue):
            self._doubt = max(self._doubt, event.doubt)
            yield from self._snapshots_up_to(event.offset)
        else:
            yield from self._end(number, segment, event)
            self._aborts.clear()
            self._deleted.clear()

    def finish(self) -> Iterator[Finding]:
        """Yields findings about snapshots after the last segment, and about epochs."""
        self.log_end = self._expected
        yield from self._snapshots_up_to(None)
        yield from self._epochs()

    def _first(self, number: int, segment: inspect.SegmentFile, first: First) -> Iterator[Finding]:
        """Compares the first sound entry of a segment with the end of the one before."""
        if self._expected is None or not first.is_sure or first.offset > self._expected:
            self._doubt = max(self._doubt, first.offset)
        if self._expected is None or not first.is_sure:
            self._has_gaps = True
            self.missing += 1
        elif first.offset > self._expected:
            self._has_gaps = True
            # the segment itself has counted the offsets after its base
            self.missing += segment.base_offset - self._expected
            self.holes += first.offset == segment.base_offset
            if not (self.circumstances.gaps or self._swapping):
                self._bad(number, first.position)
                what = f"offsets {self._expected}-{first.offset - 1} are missing before it"
                yield Finding(self._name(segment.path), first.position, first.offset, what)
        yield from self._snapshots_up_to(first.offset)

    def _end(self, number: int, segment: inspect.SegmentFile, end: End) -> Iterator[Finding]:
        self.bytes_read += end.size_bytes
        self.missing += end.missing
        self.holes += end.holes
        self._doubt = max(self._doubt, end.doubt)
        self._has_gaps = self._has_gaps or end.doubt > segment.base_offset
        is_last = number + 1 == len(self.folder.segments)
        # The end of a segment is valid if it has entries before the first bad one, or is empty and last.
        is_valid = end.sound_end > segment.base_offset or (is_last and not end.entries)
        if is_valid and (self.bad_at is None or self.bad_at[0] == number):
            self.end_offset = max(self.end_offset, end.sound_end)
        if end.entries or end.is_cut or end.end_offset is None:
            self._expected = end.end_offset
        elif self._expected is not None and is_last:
            self._expected = max(self._expected, segment.base_offset)
        if not end.is_cut:
            yield from self._transactions(segment.path.removesuffix(LOG_SUFFIX) + txn_index.SUFFIX, end.bad)

    def _name(self, path: str) -> str:
        return f"{self._label}/{os.path.basename(path)}"

    def _bad(self, number: int, byte: int) -> None:
        if self.bad_at is None:
            self.bad_at = (number, byte)

    # -- the entries

    def _stretch(self, number: int, segment: inspect.SegmentFile, stretch: EpochStretch) -> Iterator[Finding]:
        """Adds entries of one leader epoch."""
        for finding in self._epoch_order.take(self._name(segment.path), stretch):
            self._bad(number, finding.byte or 0)
            yield finding
        if self.bad_at is not None:
            return
        epoch = stretch.epoch
        if epoch is None:
            self.epochs.clear()
        elif epoch == -1:
            self._rewritten = True
        elif epoch >= 0 and (not self.epochs or epoch > self.epochs[-1][0]):
            self.epochs.append((epoch, stretch.offset))

    def _replay(self, run: Run) -> None:
        header = run.newest()
        if run.marker == txn_index.ABORT:
            unknown = AbortedTransaction(header.producer_id, -1, header.last_offset, -1)
            marker = Marker(run.marker, run.coordinator_epoch)
            self._aborts[header.last_offset] = txn_index.aborted(marker, header, self._producers) or unknown
            left = self._left.get(header.producer_id)
            if left is None or left.transaction_first_offset < 0:
                self._deleted.add(header.last_offset)
        advance(self._producers, header, 0, coordinator_epoch=run.coordinator_epoch)
        if run.transactional:
            log_start = self.circumstances.log_start_offset
            advance(self._left, header, log_start, coordinator_epoch=run.coordinator_epoch)

    # -- beside the log

    def _snapshots_up_to(self, offset: int | None) -> Iterator[Finding]:
        """Compares the snapshots at or below an offset with the producers of the entries so far."""
        while self._snapshots and (offset is None or self._snapshots[0] <= offset):
            at = self._snapshots.pop(0)
            path = os.path.join(self.folder.path, snapshot.file_name(at))
            name = self._name(path)
            data = _small_file(self.files, path, SNAPSHOT_BYTES_MAX)
            if data is None:
                continue
            found = snapshot.parse(data, at)
            if found is None:
                wrong = self.circumstances.clean or len(data) > 0
                yield Finding(name, 0, at, "its version, CRC, size or an offset is wrong", wrong, "snapshot")
            elif offset is None and self._expected is not None and at > self._expected:
                what = f"the log ends at {self._expected}, before it"
                yield Finding(name, None, at, what, self.circumstances.clean, "snapshot")
            elif at >= self.first_offset:
                yield from self._compare_snapshot(name, at, found)

    def _compare_snapshot(self, name: str, at: int, found: dict[int, Producer]) -> Iterator[Finding]:
        """Compares a snapshot with the producers of the log. For a producer whose newest batch is after all missing
        offsets, only a transaction that began before them is unknown."""
        log_start = self.circumstances.log_start_offset
        doubt = self._doubt if self._expected is not None else at
        for producer_id, known in found.items():
            replayed = self._producers.get(producer_id)
            if doubt > self.first_offset:
                by_snapshot = known.batches[-1].last_offset if known.batches else -1
                by_log = replayed.batches[-1].base_offset if replayed and replayed.batches else -1
                if max(by_snapshot, by_log) < doubt or not known.batches:
                    continue
                begun = replayed.transaction_first_offset if replayed is not None else -1
                if min(begun, known.transaction_first_offset) < doubt:
                    known = known._replace(transaction_first_offset=-1)
            what = _contradiction(known, replayed, self.first_offset, log_start)
            if what is not None:
                yield Finding(name, None, at, f"producer {producer_id}: {what}", True, "snapshot")

    def _transactions(self, path: str, bad: Sequence[tuple[int, int | None]]) -> Iterator[Finding]:
        """Compares the index of aborted transactions with the markers of its segment."""
        name = self._name(path)
        self.aborted[path.removesuffix(txn_index.SUFFIX) + LOG_SUFFIX] = list(self._aborts.values())
        found = self._wrong_entry(path, bad)
        if found is not None:
            yield Finding(name, found[0], found[1], found[2], True, "transactions")
            return
        # A read_committed consumer would receive the records of a missing entry. A cleaner removes transactions without
        # batches, a recovery skips those below the log start, and recent aborts need not be in the file yet.
        missing = [
            aborted
            for aborted in self._aborts.values()
            if aborted.first_offset >= 0 and aborted.last_offset not in self._deleted
        ]
        if missing and self.circumstances.clean and not (self._has_gaps and self.circumstances.gaps):
            first = missing[0]
            what = f"the abort of producer {first.producer_id} at offset {first.last_offset} is missing"
            yield Finding(name, None, first.last_offset, what, True, "transactions")

    def _wrong_entry(self, path: str, bad: Sequence[tuple[int, int | None]]) -> tuple[int, int | None, str] | None:
        """Removes its entries from the known aborts of the segment; returns (byte, offset, description) of a fault."""
        last = -1
        with inspect.FileSource.if_exists(path, self.files) as source:
            if source is None:
                return None
            for at in range(0, source.size, txn_index.ENTRY_BYTES):
                data = source.read(at, txn_index.ENTRY_BYTES)
                if len(data) < txn_index.ENTRY_BYTES:
                    return at, None, f"{len(data)} bytes where an entry begins"
                version, *fields = txn_index.ENTRY.unpack(data)
                stored = AbortedTransaction(*fields)
                known = self._aborts.pop(stored.last_offset, None)
                if version != 0 or not (
                    0 <= stored.first_offset <= stored.last_offset
                    and last < stored.last_offset
                    and 0 <= stored.last_stable_offset <= stored.last_offset + 1
                ):
                    return at, stored.last_offset, f"version {version}, {_shown(stored)} cannot be"
                if known is None and any(first <= stored.last_offset < (end or 2**63) for first, end in bad):
                    continue  # its marker is within another fault
                if known is None or known.producer_id != stored.producer_id:
                    what = f"the log has no abort of producer {stored.producer_id} at offset {stored.last_offset}"
                    return at, stored.last_offset, what
                log_start = self.circumstances.log_start_offset
                is_valid = known.first_offset < 0 or agrees(known, stored, self.first_offset, log_start)
                if not (self._has_gaps or is_valid):
                    return at, stored.last_offset, f"{_shown(stored)}, by the log {_shown(known)}"
                last = stored.last_offset
        return None

    def _epochs(self) -> Iterator[Finding]:
        """Compares the epoch checkpoint with the epochs of the entries."""
        name = f"{self._label}/{checkpoint.LEADER_EPOCH}"
        if checkpoint.LEADER_EPOCH not in self.names:
            if self.epochs and self.circumstances.clean:
                yield Finding(name, None, None, "missing; it is rebuilt from the batches", False, "epochs")
            return
        try:
            stored = checkpoint.read_epochs(self.files, os.path.join(self.folder.path, checkpoint.LEADER_EPOCH))
        except StorageError as error:
            yield Finding(name, 0, None, str(error), True, "epochs")
            return
        if not (stored or self.circumstances.clean):
            return
        for (epoch, start), (later, later_start) in pairwise(stored):
            if later <= epoch or later_start <= start:
                what = f"epoch {later} from {later_start} after {epoch} from {start}"
                yield Finding(name, None, later_start, what, True, "epochs")
                return
        if self.circumstances.clean and self.log_end is not None:
            for epoch, start in stored:
                if start > max(self.log_end, self.circumstances.log_start_offset):
                    what = f"epoch {epoch} begins at {start}, after the log's end {self.log_end}"
                    yield Finding(name, None, None, what, True, "epochs")
        # For converted batches the file has the epochs of the old messages, or those of the batches.
        if self.bad_at is not None or self._rewritten:
            return
        loose = self._has_gaps or not self.circumstances.clean
        first = max(self.first_offset, self.circumstances.log_start_offset)
        for what in _epoch_problems(stored, self.epochs, (first, self.end_offset), loose):
            yield Finding(name, None, None, what, True, "epochs")


def _leftover(name: str) -> str:
    return {
        ".deleted": "deleted; the next start on the directory removes it",
        ".cleaned": "of an unfinished rewrite; the next start on the directory removes it",
        ".swap": "of an unfinished swap; the next start on the directory completes or undoes it",
        ".tmp": "an incomplete small file; the next start on the directory removes it",
        **dict.fromkeys(
            OF_JOBS, "of a job that did not end, or is running; the next start on the directory removes it"
        ),
    }[os.path.splitext(name)[1]]


def _small_file(files: Files, path: str, most: int) -> bytes | None:
    """Returns the bytes of a file; None if it was removed in the meantime."""
    try:
        with inspect.FileSource.if_exists(path, files) as source:
            return None if source is None else source.read(0, most + 1)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def _contradiction(known: Producer, replayed: Producer | None, first_offset: int, log_start: int) -> str | None:
    """Returns how a snapshot's producer contradicts the log; None if it does not, or if the log no longer contains the
    batches. Deleted records may have been skipped when the snapshot was made, even if they are still in the log."""
    newest = known.batches[-1] if known.batches else None
    if replayed is None:
        if newest is not None and newest.last_offset >= first_offset:
            return f"the log has no batch of it at {newest.last_offset}"
        return None
    if replayed.epoch != known.epoch:
        return f"epoch {known.epoch}, by the log {replayed.epoch}"
    if replayed.batches:
        by_log = replayed.batches[-1]
        is_passed_over = newest is None and by_log.last_offset < log_start
        if not is_passed_over and (newest is None or newest[:4] != by_log[:4]):
            at = "no batch" if newest is None else f"sequence {newest.last_sequence} at {newest.last_offset}"
            return f"{at}, by the log sequence {by_log.last_sequence} at {by_log.last_offset}"
    by_log_first, first = replayed.transaction_first_offset, known.transaction_first_offset
    if first not in (by_log_first, -1) and not (
        first < first_offset <= by_log_first or by_log_first < max(first_offset, min(first, log_start))
    ):
        return f"a transaction from {first}, by the log from {by_log_first}"
    return None


def _epoch_problems(
    stored: list[tuple[int, int]], found: list[tuple[int, int]], offsets: tuple[int, int], loose: bool
) -> Iterator[str]:
    """Yields the differences between the epoch checkpoint (`stored`) and the batches, from the log start to its end.

    `loose`: a cleaner may have removed an epoch's first batches, or all its batches, or the file may lag. Of the epochs
    below the log start Kafka keeps one, with the log start of that time as its start offset.
    """
    first, end = offsets
    starts = dict(stored)
    for number, (epoch, start) in enumerate(found):
        by_file = starts.pop(epoch, None)
        if by_file is None:
            if not loose and (number + 1 == len(found) or found[number + 1][1] > first):
                yield f"epoch {epoch}, which begins at {start}, is missing"
        elif not (loose or start <= by_file <= max(start, first) or (by_file < start and number == 0)):
            yield f"epoch {epoch} begins at {by_file}, by the log at {start}"
    for epoch, start in starts.items():
        if first < start < end and found and not loose and start > found[0][1]:
            yield f"no batch of epoch {epoch} at {start}"

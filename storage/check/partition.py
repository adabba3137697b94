"""Whether the files of one partition are sound and agree with each other; what is not is a `Finding`.

Owns the one walk over a partition's segments that holds everything else against it: CRCs and offsets, the indexes, the
producer snapshots (against a replay), the aborted transactions, the leader epochs. Reads through `inspect`, so beside
an owner, in bounded memory. Decides nothing about what is to be done: see `repair`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ...protocol.records.batch import BatchHeader
from .. import inspect
from ..compaction.swap import OF_JOBS, SEGMENT_FILE
from ..errors import StorageError
from ..format import checkpoint
from ..format.schemas import ABORTED_TRANSACTION_BYTES
from ..io.files import Files
from ..producers import snapshot, txn_index
from ..producers.producer_state import Producer, advance
from ..segments.segment import LOG_SUFFIX
from .epochs import EpochOrder, epoch_problems
from .facts import Bad, Circumstances, End, EpochStretch, Event, Finding, First, Run, SegmentTask, SnapshotDue
from .segment import look

LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp", *OF_JOBS)
SNAPSHOT_BYTES_MAX = 256 << 20

__all__ = ["LEFTOVERS", "Aborted", "Circumstances", "Finding", "Walk"]


class Aborted(NamedTuple):
    """An entry of the transaction index. `first_offset` is -1 if the log no longer tells where it began."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def agrees(self, told: Aborted, first_offset: int, log_start: int) -> bool:
        """Whether an entry of an index may say `told` where the log says this. What began below the first offset lies
        there as the log tells it no longer; what lies below the log start may have been passed over."""
        return all(
            by_file == by_log or by_file < first_offset <= by_log or by_log < min(by_file, log_start)
            for by_file, by_log in (
                (told.first_offset, self.first_offset),
                (told.last_stable_offset, self.last_stable_offset),
            )
        )

    def __str__(self) -> str:
        offsets = f"offsets {self.first_offset}-{self.last_offset}, last stable offset {self.last_stable_offset}"
        return f"producer {self.producer_id}, {offsets}"


@dataclass
class Walk:
    """One walk over a partition: either `findings()`, once and to its end; or, where the segments are looked over by
    others, `beside()`, `take` for each of them in order, and `finish()`. The rest is filled by it.

    `bad_at` is (segment number, byte) of the first entry that cannot stay, `end_offset` the offset behind the last
    sound entry in front of it, `log_end` the one behind the last of all, None if that is not known; `epochs` what the
    entries up to the first bad one tell, `aborted` what the transaction index of each segment (by the path of its log)
    must tell. `missing` counts offsets in front of the segment at hand that are in no sound entry, `holes` the places.
    """

    folder: inspect.PartitionFolder
    names: list[str]
    circumstances: Circumstances = field(default_factory=Circumstances)
    files: Files = inspect.LOOKING
    bad_at: tuple[int, int] | None = None
    end_offset: int = 0
    first_offset: int = 0
    log_end: int | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    bytes_read: int = 0
    aborted: dict[str, list[Aborted]] = field(default_factory=dict[str, list[Aborted]])
    missing: int = 0
    holes: int = 0

    def __post_init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._left: dict[int, Producer] = {}  # those that the batches from the log start on leave
        self._aborts: dict[int, Aborted] = {}  # by the marker's offset; those of the segment that is read
        self._deleted: set[int] = set()  # of these the markers of transactions of which nothing is left
        self._has_gaps = False
        self._rewritten = False  # a batch has no epoch: it was made of old messages
        self._expected: int | None = -1
        self._doubt = -1  # below it offsets are in no sound entry, so not all is known of what producers did
        self._snapshots = sorted(int(match[1]) for match in map(snapshot.NAME.fullmatch, self.names) if match)
        self._label = os.path.basename(self.folder.path)
        self._swapping = any(name.endswith(".log.swap") for name in self.names)
        self._epoch_order = EpochOrder()
        segments = self.folder.segments
        if segments:
            self.first_offset = self.end_offset = segments[0].base_offset
            self._expected = self._doubt = self.first_offset

    # -- the parts

    def findings(self) -> Iterator[Finding]:
        """Everything, segment by segment. Raises StorageError if a file cannot be read."""
        yield from self.beside()
        for number, task in enumerate(self.tasks()):
            yield from self.take(number, look(task, self.files))
        yield from self.finish()

    def tasks(self) -> list[SegmentTask]:
        """The segments, to be looked over in any order."""
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

    def beside(self) -> Iterator[Finding]:
        """What lies beside the segments and belongs to none."""
        for name in self.names:
            match = SEGMENT_FILE.fullmatch(name)
            if name.endswith(LEFTOVERS):
                yield Finding(f"{self._label}/{name}", None, None, _leftover(name), False, "leftover")
            elif match and match[2] != LOG_SUFFIX and match[1] + LOG_SUFFIX not in self.names:
                what = "an index without a log; whoever opens the directory removes it"
                yield Finding(f"{self._label}/{name}", None, None, what, False, "leftover")

    def take(self, number: int, events: Iterable[Event]) -> Iterator[Finding]:
        """One segment more. Snapshots and the transaction index are read here."""
        for event in events:
            yield from self.step(number, event)

    def step(self, number: int, event: Event) -> Iterator[Finding]:
        """One event of a segment."""
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
        """What is behind the last segment, and the epochs."""
        self.log_end = self._expected
        yield from self._snapshots_up_to(None)
        yield from self._epochs()

    def _first(self, number: int, segment: inspect.SegmentFile, first: First) -> Iterator[Finding]:
        """The first sound entry of a segment after the end of the one before."""
        if self._expected is None or not first.is_sure or first.offset > self._expected:
            self._doubt = max(self._doubt, first.offset)
        if self._expected is None or not first.is_sure:
            self.missing += 1
        elif first.offset > self._expected:
            self._has_gaps = True
            self.missing += segment.base_offset - self._expected  # what is behind that the segment itself has counted
            self.holes += first.offset == segment.base_offset
            if not (self.circumstances.gaps or self._swapping):
                self._bad(number, first.position)
                what = f"offsets {self._expected}-{first.offset - 1} are missing in front of it"
                yield Finding(self._name(segment.path), first.position, first.offset, what)
        yield from self._snapshots_up_to(first.offset)

    def _end(self, number: int, segment: inspect.SegmentFile, end: End) -> Iterator[Finding]:
        self.bytes_read += end.size_bytes
        self.missing += end.missing
        self.holes += end.holes
        self._doubt = max(self._doubt, end.doubt)
        self._has_gaps = self._has_gaps or end.doubt > segment.base_offset
        if self.bad_at is None or self.bad_at[0] == number:
            self.end_offset = max(self.end_offset, end.sound_end) if self._holds(number, end) else self.end_offset
        if end.entries or end.is_cut or end.end_offset is None:
            self._expected = end.end_offset
        elif self._expected is not None and number + 1 == len(self.folder.segments):
            self._expected = max(self._expected, segment.base_offset)
        if not end.is_cut:
            yield from self._transactions(segment.path.removesuffix(LOG_SUFFIX) + txn_index.SUFFIX, end.bad)

    def _holds(self, number: int, end: End) -> bool:
        """Whether the end of a segment counts: it has entries in front of the first bad one, or is empty and last."""
        is_last = number + 1 == len(self.folder.segments)
        return end.sound_end > self.folder.segments[number].base_offset or (is_last and not end.entries)

    def _name(self, path: str) -> str:
        return f"{self._label}/{os.path.basename(path)}"

    def _bad(self, number: int, byte: int) -> None:
        if self.bad_at is None:
            self.bad_at = (number, byte)

    # -- what the entries tell

    def _stretch(self, number: int, segment: inspect.SegmentFile, stretch: EpochStretch) -> Iterator[Finding]:
        """Entries of one leader epoch."""
        name = self._name(segment.path)
        for place, what in self._epoch_order.take(name, stretch):
            self._bad(number, place[1])
            yield Finding(place[0], place[1], place[2], what)
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
            self._aborts[header.base_offset] = self._aborted(header)
            left = self._left.get(header.producer_id)
            if left is None or left.transaction_first_offset < 0:
                self._deleted.add(header.base_offset)
        advance(self._producers, header, 0, coordinator_epoch=run.coordinator_epoch)
        if run.transactional:
            log_start = self.circumstances.log_start_offset
            advance(self._left, header, log_start, coordinator_epoch=run.coordinator_epoch)

    def _aborted(self, header: BatchHeader) -> Aborted:
        """What the transaction index must say of a transaction that ends here (Kafka's lastStableOffset(completed))."""
        known = self._producers.get(header.producer_id)
        others = (
            producer.transaction_first_offset
            for producer_id, producer in self._producers.items()
            if producer_id != header.producer_id and producer.transaction_first_offset >= 0
        )
        stable = min(others, default=header.base_offset + 1)
        return Aborted(header.producer_id, known.transaction_first_offset if known else -1, header.base_offset, stable)

    # -- beside the log

    def _snapshots_up_to(self, offset: int | None) -> Iterator[Finding]:
        """Snapshots at or below an offset are held against the producers that the entries left so far."""
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
                what = f"the log ends at {self._expected}, in front of it"
                yield Finding(name, None, at, what, self.circumstances.clean, "snapshot")
            elif at >= self.first_offset:
                yield from self._held_against(name, at, found)

    def _held_against(self, name: str, at: int, found: dict[int, Producer]) -> Iterator[Finding]:
        """What a snapshot says, as far as the log knows it. Of a producer whose newest batch lies behind all that is
        missing from the log, all is known but a transaction that began in front of it."""
        log_start = self.circumstances.log_start_offset
        doubt = self._doubt if self._expected is not None else at
        for producer_id, known in found.items():
            replayed = self._producers.get(producer_id)
            if doubt > self.first_offset:
                told = known.batches[-1].last_offset if known.batches else -1
                by_log = replayed.batches[-1].base_offset if replayed and replayed.batches else -1
                if max(told, by_log) < doubt or not known.batches:
                    continue
                begun = replayed.transaction_first_offset if replayed is not None else -1
                if min(begun, known.transaction_first_offset) < doubt:
                    known = known._replace(transaction_first_offset=-1)
            what = _contradiction(known, replayed, self.first_offset, log_start)
            if what is not None:
                yield Finding(name, None, at, f"producer {producer_id}: {what}", True, "snapshot")

    def _transactions(self, path: str, bad: Sequence[tuple[int, int | None]]) -> Iterator[Finding]:
        """The index of aborted transactions against the markers of its segment."""
        name = self._name(path)
        self.aborted[path.removesuffix(txn_index.SUFFIX) + LOG_SUFFIX] = list(self._aborts.values())
        found = self._wrong_entry(path, bad)
        if found is not None:
            yield Finding(name, found[0], found[1], found[2], True, "transactions")
            return
        # Who reads committed records only would be given those of a transaction that is missing. A cleaner leaves out
        # transactions of which nothing is left, as does a recovery of what was deleted, and what is appended meanwhile
        # need not be there yet.
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
        """Takes what the file tells from what is known of the segment's aborts; (byte, offset, what) where it errs."""
        last = -1
        try:
            source = inspect.FileSource(path, self.files)
        except StorageError:
            if self.files.exists(path):
                raise
            return None
        with source:
            for at in range(0, source.size, ABORTED_TRANSACTION_BYTES):
                data = source.read(at, ABORTED_TRANSACTION_BYTES)
                if len(data) < ABORTED_TRANSACTION_BYTES:
                    return at, None, f"{len(data)} bytes where an entry begins"
                version, *fields = txn_index.ENTRY.unpack(data)
                told = Aborted(*fields)
                known = self._aborts.pop(told.last_offset, None)
                if version != 0 or not (
                    0 <= told.first_offset <= told.last_offset
                    and last < told.last_offset
                    and 0 <= told.last_stable_offset <= told.last_offset + 1
                ):
                    return at, told.last_offset, f"version {version}, {told} cannot be"
                if known is None and any(first <= told.last_offset < (end or 2**63) for first, end in bad):
                    continue  # its marker lies where something else is wrong
                if known is None or known.producer_id != told.producer_id:
                    what = f"the log has no abort of producer {told.producer_id} at offset {told.last_offset}"
                    return at, told.last_offset, what
                log_start = self.circumstances.log_start_offset
                agrees = known.first_offset < 0 or known.agrees(told, self.first_offset, log_start)
                if not (self._has_gaps or agrees):
                    return at, told.last_offset, f"{told}, by the log {known}"
                last = told.last_offset
        return None

    def _epochs(self) -> Iterator[Finding]:
        """The epoch checkpoint against the epochs of the entries."""
        name = f"{self._label}/{checkpoint.LEADER_EPOCH}"
        if checkpoint.LEADER_EPOCH not in self.names:
            if self.epochs and self.circumstances.clean:
                yield Finding(name, None, None, "missing; it is made from the batches", False, "epochs")
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
                what = f"epoch {later} from {later_start} behind {epoch} from {start}"
                yield Finding(name, None, later_start, what, True, "epochs")
                return
        if self.circumstances.clean and self.log_end is not None:
            for epoch, start in stored:
                if start > max(self.log_end, self.circumstances.log_start_offset):
                    what = f"epoch {epoch} begins at {start}, behind the log's end {self.log_end}"
                    yield Finding(name, None, None, what, True, "epochs")
        # Of rewritten ones the file tells what was known while they were old, or what their batches tell.
        if self.bad_at is not None or self._rewritten:
            return
        loose = self._has_gaps or not self.circumstances.clean
        first = max(self.first_offset, self.circumstances.log_start_offset)
        for what in epoch_problems(stored, self.epochs, (first, self.end_offset), loose):
            yield Finding(name, None, None, what, True, "epochs")


def _leftover(name: str) -> str:
    return {
        ".deleted": "deleted; whoever opens the directory removes it",
        ".cleaned": "of a rewrite that did not end; whoever opens the directory removes it",
        ".swap": "of a swap that did not end; whoever opens the directory completes or undoes it",
        ".tmp": "a small file half written; whoever opens the directory removes it",
        **dict.fromkeys(OF_JOBS, "of a job that did not end, or goes on; whoever opens the directory removes it"),
    }[os.path.splitext(name)[1]]


def _small_file(files: Files, path: str, most: int) -> bytes | None:
    """A file's bytes; None if it went meanwhile."""
    try:
        with inspect.FileSource(path, files) as source:
            return source.read(0, most + 1)
    except StorageError:
        if files.exists(path):
            raise
        return None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def _contradiction(known: Producer, replayed: Producer | None, first_offset: int, log_start: int) -> str | None:
    """What a snapshot says of a producer and the log does not; None if they agree, or the log no longer tells. What is
    deleted may have been passed over when the snapshot was made, though it lies in the log yet."""
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
    begun, told = replayed.transaction_first_offset, known.transaction_first_offset
    if told not in (begun, -1) and not (
        told < first_offset <= begun or begun < max(first_offset, min(told, log_start))
    ):
        return f"a transaction from {told}, by the log from {begun}"
    return None

"""Whether the files of one partition are sound and agree with each other; what is not is a `Finding`.

Owns the one walk over a partition's segments that holds everything else against it: CRCs and offsets, the indexes, the
producer snapshots (against a replay), the aborted transactions, the leader epochs. Reads through `inspect`, so beside
an owner, in bounded memory. Decides nothing about what is to be done: see `repair`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ..protocol.records.batch import BatchHeader
from . import checkpoint, inspect, snapshot, txn_index
from .errors import StorageError
from .files import Files
from .producer_state import Producer, advance
from .schemas import ABORTED_TRANSACTION_BYTES
from .segment import LOG_SUFFIX
from .swap import SEGMENT_FILE
from .verify_entry import GAP, Place, entry_problem, epoch_problem, record_problem
from .verify_index import OffsetEntries, TimeEntries

LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp")
SNAPSHOT_BYTES_MAX = 256 << 20


class Finding(NamedTuple):
    """Something that was seen. `file` is relative to the data directory; `byte` and `offset` where they are known.

    `wrong` is False for what only is worth a word: leftovers, an end that is being written. `part` says which kind of
    file it speaks of: log, index, snapshot, transactions, epochs, checkpoint, identity, leftover.
    """

    file: str
    byte: int | None
    offset: int | None
    what: str
    wrong: bool = True
    part: str = "log"


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


@dataclass(frozen=True)
class Circumstances:
    """What the directory tells of a partition. `clean`: it was closed, so nothing may be unfinished.

    `gaps`: offsets may be missing (a cleaner works here, or that is not known). `deep`: records are read as well.
    `log_start_offset`: what was deleted up to there may still lie in the first segment.
    """

    clean: bool = True
    gaps: bool = False
    deep: bool = False
    log_start_offset: int = 0


@dataclass
class Walk:
    """One walk over a partition. `findings()` is run once and to its end; the rest is filled by it.

    `bad_at` is (segment number, byte) of the first entry that cannot stay, `end_offset` the offset behind the last
    sound entry in front of it, `epochs` what the entries up to there tell, `aborted` what the transaction index of each
    segment (by the path of its log) must tell.
    """

    folder: inspect.PartitionFolder
    names: list[str]
    circumstances: Circumstances = field(default_factory=Circumstances)
    files: Files = inspect.LOOKING
    bad_at: tuple[int, int] | None = None
    end_offset: int = 0
    first_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    bytes_read: int = 0
    aborted: dict[str, list[Aborted]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._left: dict[int, Producer] = {}  # those that the batches from the log start on leave
        self._aborts: dict[int, Aborted] = {}  # by the marker's offset; those of the segment that is read
        self._deleted: set[int] = set()  # of these the markers of transactions of which nothing is left
        self._has_gaps = False
        self._rewritten = False  # a batch has no epoch: it was made of old messages
        self._expected = -1
        self._largest_ms = -1
        self._snapshots = sorted(int(match[1]) for match in map(snapshot.NAME.fullmatch, self.names) if match)
        self._label = os.path.basename(self.folder.path)
        self._swapping = any(name.endswith(".log.swap") for name in self.names)

    # -- the parts

    def findings(self) -> Iterator[Finding]:
        """Everything, segment by segment. Raises StorageError if a file cannot be read."""
        for name in self.names:
            match = SEGMENT_FILE.fullmatch(name)
            if name.endswith(LEFTOVERS):
                yield Finding(f"{self._label}/{name}", None, None, _leftover(name), False, "leftover")
            elif match and match[2] != LOG_SUFFIX and match[1] + LOG_SUFFIX not in self.names:
                what = "an index without a log; whoever opens the directory removes it"
                yield Finding(f"{self._label}/{name}", None, None, what, False, "leftover")
        segments = self.folder.segments
        if segments:
            self.first_offset = self.end_offset = self._expected = segments[0].base_offset
        for number, segment in enumerate(segments):
            yield from self._segment(number, segment)
        yield from self._snapshots_up_to(None)
        yield from self._epochs()

    def _segment(self, number: int, segment: inspect.SegmentFile) -> Iterator[Finding]:
        stem = segment.path.removesuffix(".log")
        base, is_last = segment.base_offset, number == len(self.folder.segments) - 1
        self._aborts.clear()
        self._deleted.clear()
        self._largest_ms = -1
        with contextlib.ExitStack() as stack:
            # The indexes first: what is appended meanwhile may be in the log and not in them, never the other way.
            zeros = not self.circumstances.clean
            offsets = stack.enter_context(OffsetEntries.open(stem + ".index", base, zeros, self.files))
            times = stack.enter_context(TimeEntries.open(stem + ".timeindex", base, zeros, self.files))
            log = stack.enter_context(inspect.FileSource(segment.path, self.files))
            sound = True
            for found in inspect.entries(log, open_wrappers=self.circumstances.deep):
                if isinstance(found, inspect.Damage):
                    yield self._damage(number, segment, found, is_last)
                    self.bytes_read = self.bytes_read + found.position
                    sound = False
                    break
                problem = self._entry_problem(segment, number, found)
                if problem is not None:
                    yield problem
                    sound = sound and not problem.wrong
                if found.header.magic == 2:
                    yield from self._snapshots_up_to(found.header.base_offset)
                    self._replay(log, found)
                self._count(found)
                offsets.take(found.position, found.last_offset)
                times.take(found.header)
                if self.circumstances.deep and sound:
                    what = record_problem(log, found, segment.path, self.circumstances.gaps)
                    if what is not None:
                        self._bad(number, found.position)
                        yield Finding(self._name(segment.path), found.position, found.header.base_offset, what)
            else:
                self.bytes_read += log.size
            if sound:
                largest = self._largest_ms if self.circumstances.clean else -1
                for index, problems in ((offsets, offsets.end(log.size)), (times, times.end(largest))):
                    for at, what, wrong in problems:
                        yield Finding(self._name(index.path), at, None, what, wrong, "index")
                for index in (offsets, times):
                    if self.circumstances.clean and not index.exists:
                        yield Finding(self._name(index.path), None, None, "missing; it is rebuilt", False, "index")
                yield from self._transactions(stem + txn_index.SUFFIX)
        if is_last and log.size == 0:
            self.end_offset = max(self.end_offset, base)

    def _name(self, path: str) -> str:
        return f"{self._label}/{os.path.basename(path)}"

    def _bad(self, number: int, byte: int) -> None:
        if self.bad_at is None:
            self.bad_at = (number, byte)

    def _damage(self, number: int, segment: inspect.SegmentFile, damage: inspect.Damage, is_last: bool) -> Finding:
        unfinished = damage.is_tail and is_last and not self.circumstances.clean
        if not unfinished:
            self._bad(number, damage.position)
        end = ": unfinished, or being written" if unfinished else ""
        what = f"no entry begins here{end}: {damage.reason}; {damage.left_bytes} bytes"
        return Finding(self._name(segment.path), damage.position, self._expected, what, not unfinished)

    # -- one entry

    def _entry_problem(self, segment: inspect.SegmentFile, number: int, found: inspect.BatchFacts) -> Finding | None:
        segments = self.folder.segments
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
        epoch = self.epochs[-1][0] if self.epochs else 0
        problem = entry_problem(found, Place(segment.base_offset, next_base, self._expected, epoch))
        if found.first_offset < 0 and self.circumstances.gaps:  # a wrapper, unopened: what lies before it is not known
            self._has_gaps = True
        if problem is not None and problem[0] == GAP:
            self._has_gaps = True
            if self.circumstances.gaps or self._swapping:
                problem = epoch_problem(found.header, epoch)
        if problem is None:
            return None
        self._bad(number, found.position)
        return Finding(self._name(segment.path), found.position, found.header.base_offset, problem[1])

    def _count(self, found: inspect.BatchFacts) -> None:
        """Goes behind an entry."""
        header = found.header
        self._expected = max(self._expected, header.next_offset)
        self._largest_ms = max(self._largest_ms, header.max_timestamp)
        if self.bad_at is not None:
            return
        self.end_offset = self._expected
        epoch = header.partition_leader_epoch
        if header.magic < 2:
            self.epochs.clear()
        elif epoch == -1:
            self._rewritten = True
        elif epoch >= 0 and (not self.epochs or epoch > self.epochs[-1][0]):
            self.epochs.append((epoch, header.base_offset))

    def _replay(self, log: inspect.Source, found: inspect.BatchFacts) -> None:
        header = found.header
        if header.producer_id < 0 or self.bad_at is not None:
            return
        marker_epoch = -1
        if header.is_control and found.size_bytes <= inspect.WINDOW_BYTES:
            data = log.read(found.position, found.size_bytes)
            marker = txn_index.read_marker(data, 0, header)
            if marker is not None:
                marker_epoch = marker.coordinator_epoch
                if marker.kind == txn_index.ABORT:
                    self._aborts[header.base_offset] = self._aborted(header)
                    left = self._left.get(header.producer_id)
                    if left is None or left.transaction_first_offset < 0:
                        self._deleted.add(header.base_offset)
        advance(self._producers, header, 0, coordinator_epoch=marker_epoch)
        if header.is_transactional:
            advance(self._left, header, self.circumstances.log_start_offset, coordinator_epoch=marker_epoch)

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
            elif self.bad_at is None and offset is None and at > self.end_offset:
                what = f"the log ends at {self.end_offset}, in front of it"
                yield Finding(name, None, at, what, self.circumstances.clean, "snapshot")
            elif self.bad_at is None and not self._has_gaps and at >= self.first_offset:
                for producer_id, known in found.items():
                    log_start = self.circumstances.log_start_offset
                    what = _contradiction(known, self._producers.get(producer_id), self.first_offset, log_start)
                    if what is not None:
                        yield Finding(name, None, at, f"producer {producer_id}: {what}", True, "snapshot")

    def _transactions(self, path: str) -> Iterator[Finding]:
        """The index of aborted transactions against the markers of its segment."""
        name = self._name(path)
        self.aborted[path.removesuffix(txn_index.SUFFIX) + LOG_SUFFIX] = list(self._aborts.values())
        found = self._wrong_entry(path)
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
        if missing and self.circumstances.clean and not self._has_gaps:
            first = missing[0]
            what = f"the abort of producer {first.producer_id} at offset {first.last_offset} is missing"
            yield Finding(name, None, first.last_offset, what, True, "transactions")

    def _wrong_entry(self, path: str) -> tuple[int, int | None, str] | None:
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
        if self.bad_at is not None or not (stored or self.circumstances.clean):
            return
        for (epoch, start), (later, later_start) in pairwise(stored):
            if later <= epoch or later_start <= start:
                what = f"epoch {later} from {later_start} behind {epoch} from {start}"
                yield Finding(name, None, later_start, what, True, "epochs")
                return
        if self._rewritten:  # the file tells what was known while they were old ones, or what their batches tell
            return
        loose = self._has_gaps or not self.circumstances.clean
        first = max(self.first_offset, self.circumstances.log_start_offset)
        for what in _epoch_problems(stored, self.epochs, (first, self.end_offset), loose):
            yield Finding(name, None, None, what, True, "epochs")


def _leftover(name: str) -> str:
    return {
        ".deleted": "deleted; whoever opens the directory removes it",
        ".cleaned": "of a rewrite that did not end; whoever opens the directory removes it",
        ".swap": "of a swap that did not end; whoever opens the directory completes or undoes it",
        ".tmp": "a small file half written; whoever opens the directory removes it",
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


def _epoch_problems(
    stored: list[tuple[int, int]], found: list[tuple[int, int]], offsets: tuple[int, int], loose: bool
) -> Iterator[str]:
    """`loose`: a cleaner may have taken an epoch's first batches, or old ones in its midst, or the file may lag behind.
    Of epochs below the log start Kafka keeps one, and notes it as beginning there: where the log then began."""
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
        elif start > end and not loose:
            yield f"epoch {epoch} begins at {start}, behind the log's end {end}"

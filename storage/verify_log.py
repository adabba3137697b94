"""Whether the files of one partition are sound and agree with each other; what is not is a `Finding`.

Owns the one walk over a partition's segments that holds everything else against it: CRCs and offsets, the indexes, the
producer snapshots (against a replay), the aborted transactions, the leader epochs. Reads through `inspect`, so beside
an owner, in bounded memory. Decides nothing about what is to be done: see `repair`.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ..protocol.records import formats
from ..protocol.records.batch import MAX_DECOMPRESSED_BYTES, BatchHeader
from ..protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from . import checkpoint, inspect, snapshot
from .append import MAX_RELATIVE_OFFSET
from .errors import StorageError
from .files import DiskFiles
from .producer_state import Producer, advance
from .producers import coordinator_epoch
from .schemas import ABORTED_TRANSACTION_BYTES
from .verify_index import OffsetEntries, TimeEntries

LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp")
SNAPSHOT_BYTES_MAX = 256 << 20
_ABORTED = struct.Struct(">hqqqq")
_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0


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


@dataclass(frozen=True)
class Circumstances:
    """What the directory tells of a partition. `clean`: it was closed, so nothing may be unfinished.

    `gaps`: offsets may be missing (a cleaner works here, or that is not known). `deep`: records are read as well.
    """

    clean: bool = True
    gaps: bool = False
    deep: bool = False


@dataclass
class Walk:
    """One walk over a partition. `findings()` is run once and to its end; the rest is filled by it.

    `bad_at` is (segment number, byte) of the first entry that cannot stay, `end_offset` the offset behind the last
    sound entry in front of it, `epochs` what the entries up to there tell.
    """

    folder: inspect.PartitionFolder
    names: list[str]
    circumstances: Circumstances = field(default_factory=Circumstances)
    bad_at: tuple[int, int] | None = None
    end_offset: int = 0
    first_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    bytes_read: int = 0

    def __post_init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._aborts: dict[int, tuple[int, int]] = {}  # marker's offset: producer, first offset or -1
        self._has_gaps = False
        self._expected = -1
        self._largest_ms = -1
        self._snapshots = sorted(int(match[1]) for match in map(snapshot.NAME.fullmatch, self.names) if match)
        self._label = os.path.basename(self.folder.path)
        self._swapping = any(name.endswith(".log.swap") for name in self.names)

    # -- the parts

    def findings(self) -> Iterator[Finding]:
        """Everything, segment by segment. Raises StorageError if a file cannot be read."""
        for name in self.names:
            if name.endswith(LEFTOVERS):
                yield Finding(f"{self._label}/{name}", None, None, _leftover(name), False, "leftover")
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
        self._largest_ms = -1
        with contextlib.ExitStack() as stack:
            # The indexes first: what is appended meanwhile may be in the log and not in them, never the other way.
            zeros = not self.circumstances.clean
            offsets = stack.enter_context(OffsetEntries.open(stem + ".index", base, zeros))
            times = stack.enter_context(TimeEntries.open(stem + ".timeindex", base, zeros))
            log = stack.enter_context(inspect.FileSource(segment.path))
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
                    yield from self._records(number, segment, log, found)
            else:
                self.bytes_read += log.size
            if sound:
                largest = self._largest_ms if self.circumstances.clean else -1
                for index, problems in ((offsets, offsets.end(log.size)), (times, times.end(largest))):
                    for at, what, wrong in problems:
                        yield Finding(self._name(index.path), at, None, what, wrong, "index")
                if self.circumstances.clean and not offsets.exists:
                    yield Finding(self._name(offsets.path), None, None, "missing; it is rebuilt", False, "index")
                yield from self._transactions(stem + ".txnindex", log.size)
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
        header, expected = found.header, self._expected
        name, at, offset = self._name(segment.path), found.position, header.base_offset
        what = None
        wrong = True
        first = found.first_offset if found.is_wrapper else header.base_offset
        if not found.crc_ok:
            what = f"CRC {header.crc:#010x} does not match what it covers, {found.size_bytes} bytes"
        elif found.problem is not None:
            what = f"a compressed message that cannot be opened: {found.problem}"
        elif header.last_offset < expected or 0 <= first < expected or header.last_offset_delta < 0:
            what = f"offsets {header.base_offset}-{header.last_offset} where {expected} is next"
        elif header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            what = f"last offset {header.last_offset} is too far from the segment's base"
        elif number + 1 < len(self.folder.segments) and (
            header.last_offset >= (behind := self.folder.segments[number + 1].base_offset)
        ):
            what = f"last offset {header.last_offset} lies in the next segment, which begins at {behind}"
        elif header.magic == 2 and not 0 <= header.record_count <= header.last_offset_delta + 1:
            what = f"{header.record_count} records in offsets {header.base_offset}-{header.last_offset}"
        elif first > expected:
            self._has_gaps = True
            wrong = not (self.circumstances.gaps or self._swapping)
            what = f"offsets {expected}-{first - 1} are missing in front of it" if wrong else None
        elif (
            # A batch that was made of old messages has epoch -1 wherever it lies.
            header.magic == 2
            and header.partition_leader_epoch != -1
            and header.partition_leader_epoch < (self.epochs[-1][0] if self.epochs else 0)
        ):
            what = f"leader epoch {header.partition_leader_epoch} does not follow those before it"
        if what is None:
            return None
        if wrong:
            self._bad(number, at)
        return Finding(name, at, offset, what, wrong)

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
        elif epoch >= 0 and (not self.epochs or epoch > self.epochs[-1][0]):
            self.epochs.append((epoch, header.base_offset))

    def _replay(self, log: inspect.Source, found: inspect.BatchFacts) -> None:
        header = found.header
        if header.producer_id < 0 or self.bad_at is not None:
            return
        marker_epoch = -1
        if header.is_control and found.size_bytes <= inspect.WINDOW_BYTES:
            data = log.read(found.position, found.size_bytes)
            marker_epoch = coordinator_epoch(data, 0, header)
            if _is_abort(data):
                known = self._producers.get(header.producer_id)
                begun = known.transaction_first_offset if known else -1
                self._aborts[header.base_offset] = (header.producer_id, begun)
        advance(self._producers, header, 0, coordinator_epoch=marker_epoch)

    def _records(
        self, number: int, segment: inspect.SegmentFile, log: inspect.Source, found: inspect.BatchFacts
    ) -> Iterator[Finding]:
        """Opens one entry: how many records, at which offsets, how late."""
        header, count, expected = found.header, 0, -1
        largest = -1
        what = None
        try:
            if found.size_bytes > inspect.ENTRY_BYTES_MAX:
                raise InvalidRecords(f"{found.size_bytes} bytes are not opened")
            data = log.read(found.position, found.size_bytes)
            for record in formats.records(data, 0, max_bytes=MAX_DECOMPRESSED_BYTES):
                count += 1
                if record.offset <= expected:
                    what = what or f"record offset {record.offset} behind {expected}"
                expected = record.offset
                largest = max(largest, record.timestamp)
        except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
            what = f"its records cannot be read: {error}"
        except OSError as error:
            raise StorageError(f"cannot read {segment.path}: {error.strerror}") from error
        what = what or _record_problem(header, count, expected, largest, self.circumstances.gaps)
        if what is not None:
            self._bad(number, found.position)
            yield Finding(self._name(segment.path), found.position, header.base_offset, what)

    # -- beside the log

    def _snapshots_up_to(self, offset: int | None) -> Iterator[Finding]:
        """Snapshots at or below an offset are held against the producers that the entries left so far."""
        while self._snapshots and (offset is None or self._snapshots[0] <= offset):
            at = self._snapshots.pop(0)
            path = os.path.join(self.folder.path, snapshot.file_name(at))
            name = self._name(path)
            data = _small_file(path, SNAPSHOT_BYTES_MAX)
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
                    what = _contradiction(known, self._producers.get(producer_id), self.first_offset)
                    if what is not None:
                        yield Finding(name, None, at, f"producer {producer_id}: {what}", True, "snapshot")

    def _transactions(self, path: str, log_bytes: int) -> Iterator[Finding]:
        name, last = self._name(path), -1
        try:
            source = inspect.FileSource(path)
        except StorageError:
            if os.path.exists(path):
                raise
            return
        with source:
            for at in range(0, source.size, ABORTED_TRANSACTION_BYTES):
                data = source.read(at, ABORTED_TRANSACTION_BYTES)
                if len(data) < ABORTED_TRANSACTION_BYTES:
                    yield Finding(name, at, None, f"{len(data)} bytes where an entry begins", True, "transactions")
                    return
                version, producer_id, first, end, stable = _ABORTED.unpack(data)
                what = None
                known = self._aborts.pop(end, None)
                if version != 0 or not (0 <= first <= end and last < end and 0 <= stable <= end + 1):
                    what = f"version {version}, offsets {first}-{end}, last stable offset {stable} cannot be"
                elif known is None or known[0] != producer_id:
                    what = f"the log has no abort of producer {producer_id} at offset {end}"
                elif known[1] >= 0 and known[1] != first and not self._has_gaps:
                    what = f"begins at {first}, by the log at {known[1]}"
                if what is not None:
                    yield Finding(name, at, end, what, True, "transactions")
                    return
                last = end

    def _epochs(self) -> Iterator[Finding]:
        """The epoch checkpoint against the epochs of the entries."""
        name = f"{self._label}/{checkpoint.LEADER_EPOCH}"
        if checkpoint.LEADER_EPOCH not in self.names:
            if self.epochs and self.circumstances.clean:
                yield Finding(name, None, None, "missing; it is made from the batches", False, "epochs")
            return
        try:
            stored = checkpoint.read_epochs(DiskFiles(), os.path.join(self.folder.path, checkpoint.LEADER_EPOCH))
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
        loose = self._has_gaps or not self.circumstances.clean
        for what in _epoch_problems(stored, self.epochs, (self.first_offset, self.end_offset), loose):
            yield Finding(name, None, None, what, True, "epochs")


def _leftover(name: str) -> str:
    return {
        ".deleted": "deleted; whoever opens the directory removes it",
        ".cleaned": "of a rewrite that did not end; whoever opens the directory removes it",
        ".swap": "of a swap that did not end; whoever opens the directory completes or undoes it",
        ".tmp": "a small file half written; whoever opens the directory removes it",
    }[os.path.splitext(name)[1]]


def _small_file(path: str, most: int) -> bytes | None:
    """A file's bytes; None if it went meanwhile."""
    try:
        with inspect.FileSource(path) as source:
            return source.read(0, most + 1)
    except StorageError:
        if os.path.exists(path):
            raise
        return None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error


def _is_abort(data: bytes) -> bool:
    try:
        record = next(formats.records(data), None)
        return record is not None and _CONTROL_KEY.unpack_from(record.key or b"")[1] == _ABORT
    except (CorruptRecords, InvalidRecords, UnsupportedCodec, struct.error):
        return False


def _record_problem(header: BatchHeader, count: int, last: int, largest_ms: int, gaps: bool) -> str | None:
    if 0 <= header.record_count != count:
        return f"{count} records where its header says {header.record_count}"
    if last > header.last_offset or (count and last < header.last_offset and not gaps):
        return f"its last record has offset {last}, by its header {header.last_offset}"
    is_create_time = header.magic > 0 and not header.attributes & 8
    if header.magic == 2 and count and is_create_time and largest_ms != header.max_timestamp and not gaps:
        return f"its latest record is of {largest_ms}, by its header of {header.max_timestamp}"
    return None


def _contradiction(known: Producer, replayed: Producer | None, first_offset: int) -> str | None:
    """What a snapshot says of a producer and the log does not; None if they agree, or the log no longer tells."""
    newest = known.batches[-1] if known.batches else None
    if replayed is None:
        if newest is not None and newest.last_offset >= first_offset:
            return f"the log has no batch of it at {newest.last_offset}"
        return None
    if replayed.epoch != known.epoch:
        return f"epoch {known.epoch}, by the log {replayed.epoch}"
    if replayed.batches:
        by_log = replayed.batches[-1]
        if newest is None or newest[:4] != by_log[:4]:
            at = "no batch" if newest is None else f"sequence {newest.last_sequence} at {newest.last_offset}"
            return f"{at}, by the log sequence {by_log.last_sequence} at {by_log.last_offset}"
    begun = replayed.transaction_first_offset
    if begun >= first_offset and known.transaction_first_offset not in (begun, -1):
        return f"a transaction from {known.transaction_first_offset}, by the log from {begun}"
    return None


def _epoch_problems(
    stored: list[tuple[int, int]], found: list[tuple[int, int]], offsets: tuple[int, int], loose: bool
) -> Iterator[str]:
    """`loose`: a cleaner may have taken an epoch's first batches, or the file may lag behind."""
    first, end = offsets
    starts = dict(stored)
    for number, (epoch, start) in enumerate(found):
        by_file = starts.pop(epoch, None)
        if by_file is None:
            if not loose:
                yield f"epoch {epoch}, which begins at {start}, is missing"
        elif by_file != start and not (by_file < start and (number == 0 or loose)):
            yield f"epoch {epoch} begins at {by_file}, by the log at {start}"
    for epoch, start in starts.items():
        if first < start < end and found and not loose and start > found[0][1]:
            yield f"no batch of epoch {epoch} at {start}"
        elif start > end and not loose:
            yield f"epoch {epoch} begins at {start}, behind the log's end {end}"

"""Verifies one segment: each entry by itself and after the one before, and both indexes against them.

Checks only what does not need other segments. Producers, transactions, leader epochs and offsets between segments are
passed on as events, see facts.py, and checked by partition.py. Memory grows with the number of producers, not of
batches.

One fault is one finding: a bad entry causes no further findings about later entries or the indexes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from ...protocol.records.batch import BatchHeader
from .. import inspect
from ..format.file_names import METADATA_TOPIC
from ..format.index import MAX_RELATIVE_OFFSET
from ..io.files import Files
from ..segments.entry_check import GAP, OFFSET, OVERLAP, TOO_FAR, Place, entry_problem, record_problem
from ..segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from . import internal_records
from .facts import Bad, End, EpochStretch, Events, Finding, First, SegmentTask, SnapshotDue
from .index import IndexTail, OffsetEntries, TimeEntries
from .producer_runs import OpenRuns

BAD_STRETCHES_MAX = 1000
_ELSEWHERE = (OFFSET, TOO_FAR, OVERLAP)
_MAGIC_POSITION = 16

Entries = Iterator[inspect.BatchFacts | inspect.Damage]
Opened = Iterator[tuple[inspect.BatchFacts | inspect.Damage, str | None]]
Opener = Callable[[inspect.Source, Entries, SegmentTask], Opened]
"""Decodes entries: yields each with the fault of its records, or None. For wrappers of old formats it also finds the
number of messages and the first offset."""


def one_by_one(source: inspect.Source, entries: Entries, task: SegmentTask) -> Opened:
    """Decodes each entry by itself, in plain Python. Wrappers must already be open. Raises StorageError."""
    for found in entries:
        what = None
        if isinstance(found, inspect.BatchFacts) and found.crc_ok and found.problem is None:
            what = record_problem(source, found, task.segment.path, task.gaps)
        yield found, what


def _closed_indexes(task: SegmentTask) -> bool:
    """Returns whether the indexes have what a close adds. Kafka 4.4 closes all logs but that of the metadata: the
    indexes of its newest segment stay preallocated."""
    return task.clean and not (task.next_base is None and task.label.startswith(f"{METADATA_TOPIC}-"))


def segment_events(
    task: SegmentTask,
    files: Files = inspect.INSPECTION_FILES,
    opener: Opener | None = None,
    check: internal_records.RecordCheck | None = None,
) -> Events:
    """Yields all events of a segment; an End comes last. Without an opener entries are decoded one by one. `check` is
    for the records of internal topics.

    Raises StorageError if a file cannot be read.
    """
    if task.deep and check is not None:
        yield from internal_records.findings(task, files, check)
    stem = task.segment.path.removesuffix(LOG_SUFFIX)
    with contextlib.ExitStack() as stack:
        # The indexes first: records appended in the meantime may be in the log and not in the indexes, never the
        # reverse.
        base, zeros = task.segment.base_offset, not _closed_indexes(task)
        offset_index = stack.enter_context(inspect.FileSource.if_exists(stem + INDEX_SUFFIX, files))
        offsets = OffsetEntries(stem + INDEX_SUFFIX, offset_index, base, zeros)
        time_index = stack.enter_context(inspect.FileSource.if_exists(stem + TIME_INDEX_SUFFIX, files))
        times = TimeEntries(stem + TIME_INDEX_SUFFIX, time_index, base, zeros)
        log = stack.enter_context(inspect.FileSource(task.segment.path, files))
        entries = inspect.entries(log, open_wrappers=task.deep and opener is None)
        opened: Opened = ((found, None) for found in entries)
        if task.deep:
            opened = (opener or one_by_one)(log, entries, task)
        yield from _SegmentPass(task, log, offsets, times).events(opened)


class _SegmentPass:
    """The state of one pass."""

    def __init__(self, task: SegmentTask, log: inspect.FileSource, offsets: OffsetEntries, times: TimeEntries) -> None:
        self._task = task
        self._log = log
        self._offsets = offsets
        self._times = times
        self._file = f"{task.label}/{os.path.basename(task.segment.path)}"
        self._cuts = [offset for offset in task.cuts if offset > task.segment.base_offset]
        self._expected = task.segment.base_offset
        self._place = Place(task.segment.base_offset, task.next_base, self._expected, 0)
        self._sound_end: int | None = None  # set at the first bad entry
        self._bad_before = False  # the entry before is bad: the next offset is unknown
        self._held: Finding | None = None  # the finding about that entry, which may explain the following ones
        # the next offset if that entry and following ones were written twice, or are of another segment
        self._held_next = -1
        self._held_kind = ""
        self._held_entries = 0
        # expected offset, the entry with the jump, reported?
        self._jump: tuple[int, inspect.BatchFacts, bool] | None = None
        # the entry before, not yet accepted: offsets are missing before it
        self._pending: inspect.BatchFacts | None = None
        self._compared = True  # whether to compare the indexes, which needs ordered entries
        self._is_cut = False
        self._doubt = task.segment.base_offset
        self._missing = self._holes = self._seen = self._entries = self._records = 0
        self._bad: list[tuple[int, int | None]] = []
        self._largest_ms = -1
        self._read_bytes = log.size
        self._tail = IndexTail()
        self._producers = OpenRuns()
        self._stretch: EpochStretch | None = None

    def events(self, opened: Opened) -> Events:
        for found, what in opened:
            if isinstance(found, inspect.Damage):
                yield from self._damage(found)
                break
            plain = found.header.base_offset == self._expected and self._pending is None
            if not plain or not self._is_plain(found, what):
                yield from self._entry(found, what)
            else:
                yield from self._adopt(found)
            self._seen += 1
        yield from self._believe_pending()
        yield from self._report_held()
        yield from self._producers.close()
        yield from self._end_stretch()
        if self._compared and not self._is_cut:
            yield from self._index_findings()
        yield End(
            self._read_bytes,
            None if self._is_cut or self._bad_before else self._expected,
            self._expected if self._sound_end is None else self._sound_end,
            self._missing,
            self._doubt,
            self._holes,
            tuple(self._bad[:BAD_STRETCHES_MAX]),
            self._is_cut,
            self._entries,
            self._records,
            self._largest_ms,
        )

    def _is_plain(self, found: inspect.BatchFacts, what: str | None) -> bool:
        """Returns whether a batch at the expected offset needs no further check; most do not."""
        header = found.header
        delta, base, following = header.last_offset_delta, self._place.base_offset, self._place.next_base
        return (
            header.magic == 2
            and found.crc_ok is True
            and what is None
            and self._entries > 0
            and not self._bad_before
            and 0 <= header.record_count <= delta + 1
            and header.base_offset + delta - base <= MAX_RELATIVE_OFFSET
            and (following is None or header.base_offset + delta < following)
            and header.partition_leader_epoch >= -1
        )

    def _index_findings(self) -> Events:
        task = self._task
        largest = self._largest_ms if _closed_indexes(task) else -1
        by_offset, by_time = self._offsets.end(self._log.size), self._times.end(largest)
        if self._offsets.exists and _closed_indexes(task) and not (self._bad or by_offset or by_time):
            cut = self._tail.problem()
            by_offset = by_offset if cut is None else [(self._offsets.size_bytes, *cut)]
        both = ((self._offsets, by_offset), (self._times, by_time))
        for index, problems in both:
            name = f"{task.label}/{os.path.basename(index.path)}"
            for at, what, wrong in problems:
                yield Finding(name, at, None, what, wrong, "index")
        for index, _ in both:
            if task.clean and not index.exists:
                name = f"{task.label}/{os.path.basename(index.path)}"
                yield Finding(name, None, None, "missing; it is rebuilt", False, "index")

    def _damage(self, damage: inspect.Damage) -> Events:
        task = self._task
        yield from self._believe_pending()
        self._read_bytes = damage.position
        unfinished = damage.is_tail and task.next_base is None and not task.clean
        end = ": unfinished, or being written" if unfinished else ""
        what = f"no entry begins here{end}: {damage.reason}; {damage.left_bytes} bytes"
        if unfinished:
            self._compared = False
        else:
            self._is_cut = True
            self._bad.append((self._expected, task.next_base))
            if self._held is not None and not self._may_begin(damage.position):
                # The size of that entry is doubtful, so a fault at its end is not a second one.
                more = f"; {damage.left_bytes} bytes after it are not read: no entry begins at byte {damage.position}"
                self._held = self._held._replace(what=self._held.what + more)
                return
        yield from self._report_held()
        finding = Finding(self._file, damage.position, self._expected, what, not unfinished)
        if not unfinished:
            yield from self._bad_from_here(finding)
        else:
            yield finding

    def _may_begin(self, position: int) -> bool:
        """Returns whether the bytes at a position look like the start of an entry with a plausible next offset."""
        try:
            data = self._log.read(position, _MAGIC_POSITION + 1)
        except OSError:
            return False
        offset = int.from_bytes(data[:8], "big")
        near = len(data) >= 8 and self._expected <= offset <= self._expected + MAX_RELATIVE_OFFSET
        return near and (len(data) <= _MAGIC_POSITION or data[_MAGIC_POSITION] <= 2)

    # -- one entry

    def _entry(self, found: inspect.BatchFacts, what: str | None) -> Events:
        header = found.header
        problem = entry_problem(found, self._place._replace(expected=self._expected))
        kind, words = problem if problem is not None else (None, "")
        if self._held is not None and kind == self._held_kind and self._continues_held(header):
            self._held_next = header.next_offset
            self._held_entries += 1
            return
        if kind == OFFSET and self._jump is not None and header.base_offset >= self._jump[0]:
            self._pending = None
            yield from self._blame_the_jump(found, *self._jump)
            kind = None
        yield from self._believe_pending()
        yield from self._report_held()
        if kind is not None and kind != GAP:
            self._compared = self._compared and kind not in (OFFSET, TOO_FAR, OVERLAP)
            self._put_aside(found, words, kind if kind in _ELSEWHERE else "")
            return
        if what is not None and kind is None:
            self._put_aside(found, what)
            return
        yield from self._hole(found, kind == GAP)
        if what is not None:
            self._put_aside(found, what)
            return
        if self._jump is None:
            yield from self._adopt(found)
        else:
            self._pending = found
            self._expected = header.next_offset

    def _believe_pending(self) -> Events:
        found, self._pending = self._pending, None
        if found is not None:
            yield from self._adopt(found)

    def _hole(self, found: inspect.BatchFacts, is_gap: bool) -> Events:
        """Handles missing offsets before a sound entry; some may be in a bad one."""
        header, expected = found.header, self._expected
        first = found.first_offset if found.is_wrapper else header.base_offset
        if self._entries == 0:
            yield First(found.position, first if first >= 0 else expected, self._seen == 0)
        if first < 0:  # an unopened wrapper: its first offset is unknown
            self._jump = None
            if self._task.gaps or self._bad_before:
                self._doubt = header.last_offset
            self._bad_before = False
            return
        jump = first - expected
        # The first entry is checked by partition.py against the segment before; the indexes would report missing
        # entries, too.
        self._compared = self._compared and (self._seen > 0 or not is_gap or self._task.gaps)
        is_gap = is_gap and self._seen > 0 and not self._bad_before
        if jump > 0 or self._bad_before:
            self._missing += max(jump, 1)
            self._doubt = first
        if jump > 0:
            self._holes += 1
        if self._bad_before and self._bad and self._bad[-1][1] is None:
            self._bad[-1] = (self._bad[-1][0], first)
        self._jump = (expected, found, is_gap and not self._task.gaps) if jump > 0 and not self._bad_before else None
        self._bad_before = False
        if is_gap and not self._task.gaps:
            self._compared = False
            self._bad.append((expected, first))
            what = f"offsets {expected}-{first - 1} are missing before it"
            yield from self._bad_from_here(Finding(self._file, found.position, header.base_offset, what))

    def _blame_the_jump(
        self, found: inspect.BatchFacts, expected: int, jumper: inspect.BatchFacts, is_reported: bool
    ) -> Events:
        """Reports an entry with a wrong offset, since this one continues from the entry before it."""
        header, other = found.header, jumper.header
        self._compared = False
        self._expected = header.base_offset
        self._bad_before = True
        self._jump = None
        if not is_reported:
            what = f"offsets {other.base_offset}-{other.last_offset} between {expected} and {header.base_offset}"
            self._bad.append((expected, None))
            yield from self._bad_from_here(Finding(self._file, jumper.position, other.base_offset, what), expected)

    def _continues_held(self, header: BatchHeader) -> bool:
        """Returns whether an entry follows the held one in the log from which both were copied."""
        return 0 <= self._held_next == header.base_offset or (
            self._task.gaps and 0 <= self._held_next < header.base_offset
        )

    def _put_aside(self, found: inspect.BatchFacts, what: str, kind: str = "") -> None:
        """Skips a bad entry. None of its fields is trusted except its size. Entries of the same `kind` that follow it
        are part of the finding."""
        header = found.header
        self._held = Finding(self._file, found.position, header.base_offset, what)
        self._held_next = header.next_offset if kind else -1
        self._held_kind, self._held_entries = kind, 1
        if not self._bad_before:
            self._bad.append((self._expected, None))
        self._bad_before = True
        self._jump = None
        self._offsets.pass_over(found.position)
        self._times.pass_over()

    def _report_held(self) -> Events:
        finding, self._held = self._held, None
        if finding is None:
            return
        if self._held_entries > 1:
            first, last = finding.offset, self._held_next - 1
            what = f"{finding.what}; it and the {self._held_entries - 1} entries after it have offsets {first}-{last}"
            if not finding.byte and self._held_entries == self._seen:
                what = (
                    f"all {self._held_entries} entries have offsets {first}-{last}, the segment's begin at "
                    f"{self._task.segment.base_offset}: the file of another segment"
                )
            finding = finding._replace(what=what)
        yield from self._bad_from_here(finding)

    def _bad_from_here(self, finding: Finding, sound_end: int | None = None) -> Events:
        if self._sound_end is None:
            self._sound_end = self._expected if sound_end is None else sound_end
        yield from self._end_stretch()
        yield Bad(finding)

    def _adopt(self, found: inspect.BatchFacts) -> Events:
        """Accepts a sound entry: adds its epoch, its producer and its index entries, and advances past it."""
        header = found.header
        if self._cuts and self._cuts[0] <= header.base_offset:
            yield from self._producers.close()
            while self._cuts and self._cuts[0] <= header.base_offset:
                yield SnapshotDue(self._cuts.pop(0), self._doubt)
        epoch = header.partition_leader_epoch if header.magic == 2 else None
        if self._stretch is None or self._stretch.epoch != epoch:
            yield from self._end_stretch()
            self._stretch = EpochStretch(epoch, found.position, header.base_offset, 0)
            self._stretch_from = self._entries
        if header.magic == 2 and header.producer_id >= 0:
            yield from self._producers.take(found, self._log, self._missing)
        elif not header.record_count and header.magic == 2:  # written by a repair in place of lost entries
            self._missing += header.last_offset_delta + 1
            self._holes += 1
        self._expected = header.base_offset + header.last_offset_delta + 1
        if header.max_timestamp > self._largest_ms:
            self._largest_ms = header.max_timestamp
        self._entries += 1
        self._records += max(found.record_count, 0)
        if self._compared:
            self._offsets.take(found.position, self._expected - 1)
            self._times.take(header)
            self._tail.add(found.position, indexed=self._offsets.indexed == found.position, times=self._times.taken)

    def _end_stretch(self) -> Events:
        if self._stretch is not None:
            yield self._stretch._replace(entries=self._entries - self._stretch_from)
            self._stretch = None

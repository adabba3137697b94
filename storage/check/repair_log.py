"""Plans and makes the repair of the `.log` files of a faulty partition.

Without `keep` a log ends where an unclean start would end it: at the first damaged entry, or at a hole between segments
that no cleaner made. With `keep` only the damaged stretch is removed, and every sound entry after it stays. Missing
offsets are then covered by an empty batch (a header without records, as a cleaner leaves it): the next start would cut
the log at a hole between two segments, and a hole inside a segment is a finding.

Offset and leader epoch lie outside the CRC of an entry. If its neighbours allow only one value, it is corrected, and
nothing is removed. Of two overlapping segments, the older one ends at the base of the newer one if its entries reach
it.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...protocol.records.batch import MAGIC, BatchHeader
from ...protocol.records.checksum import crc32c
from ...protocol.records.layout import CRC_AT, CRC_FROM, HEADER, HEADER_BYTES, LEADER_EPOCH_AT, PREFIX_BYTES
from .. import inspect
from ..format.index import MAX_RELATIVE_OFFSET
from ..io.files import Files
from ..io.undo_journal import Part, SavingFiles
from ..producers import txn_index
from ..segments.entry_check import EPOCH, GAP, OFFSET, OVERLAP, TOO_FAR, Place, entry_problem, sound_at, sound_entries
from ..segments.segment import SUFFIXES


def empty_batch(first_offset: int, last_offset: int) -> bytes:
    """Returns a v2 batch without records, producer, leader epoch and timestamps."""
    length, delta = HEADER_BYTES - PREFIX_BYTES, last_offset - first_offset
    data = bytearray(HEADER.pack(first_offset, length, -1, MAGIC, 0, 0, delta, -1, -1, -1, -1, -1, 0))
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[CRC_FROM:])))
    return bytes(data)


@dataclass
class Edit:
    """The changes of one segment's log. Positions are those in the present file."""

    segment: inspect.SegmentFile
    drops: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    patches: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    inserts: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])  # before a position

    def parts(self) -> list[Part]:
        """Returns the parts of the new file."""
        changes: list[tuple[int, int, bytes]] = [
            *((start, end, b"") for start, end in self.drops),
            *((position, position + len(data), data) for position, data in self.patches),
            *((position, position, data) for position, data in self.inserts),
        ]
        # Data inserted before a position comes after a change that ends there.
        parts: list[Part] = []
        at = 0
        for start, end, data in sorted(changes, key=lambda change: (change[1], change[0])):
            if start > at:
                parts.append((at, start))
            if data:
                parts.append(data)
            at = max(at, end)
        if at < self.segment.size_bytes:
            parts.append((at, self.segment.size_bytes))
        return parts


Note = tuple[str, int | None, int | None, str]
"""(path, byte, offset, description of the change)."""


@dataclass
class LogPlan:
    """`notes` describe the changes; `removed` are whole segments to remove, oldest first."""

    edits: list[Edit] = field(default_factory=list[Edit])
    removed: list[inspect.SegmentFile] = field(default_factory=list[inspect.SegmentFile])
    notes: list[Note] = field(default_factory=list[Note])
    kept_entries: int = 0

    @property
    def loses_bytes(self) -> bool:
        return bool(self.removed) or any(edit.drops for edit in self.edits)

    def is_empty(self) -> bool:
        return not (self.removed or any(edit.drops or edit.patches or edit.inserts for edit in self.edits))


def remove_segments(saving: SavingFiles, segments: Sequence[inspect.SegmentFile], names: Sequence[str]) -> None:
    """Removes these segments of a folder with files of these names, the newest first. Raises OSError."""
    for segment in reversed(segments):
        stem = segment.path.removesuffix(".log")
        for suffix in (txn_index.SUFFIX, *SUFFIXES[::-1]):  # the log last, as a recovery does
            if os.path.basename(stem) + suffix in names:
                saving.remove(stem + suffix)


def apply_plan(saving: SavingFiles, plan: LogPlan, names: Sequence[str]) -> None:
    """Applies a plan in a folder with files of these names. After an interruption at any point, a new plan leads to the
    same end. Raises OSError."""
    remove_segments(saving, plan.removed, names)
    if plan.removed:
        saving.sync_directory(os.path.dirname(plan.removed[0].path))
    for edit in plan.edits:
        if not (edit.drops or edit.patches or edit.inserts):
            continue
        if len(edit.drops) == 1 and edit.drops[0][1] == edit.segment.size_bytes and not (edit.patches or edit.inserts):
            with contextlib.closing(saving.open(edit.segment.path)) as file:
                file.truncate(edit.drops[0][0])
                file.sync()
        else:
            saving.rewrite(edit.segment.path, edit.parts())


@dataclass
class _Run:
    """The entries of the newest epoch so far: position of the first, number, and the epoch before."""

    edit: Edit
    position: int
    count: int
    before: int | None


class Planner:
    """Plans the repair of a partition's segments. `gaps`: offsets may be missing."""

    def __init__(self, files: Files, folder: inspect.PartitionFolder, *, gaps: bool, keep: bool) -> None:
        self._files = files
        self._gaps = gaps
        self._keep = keep
        self._segments = list(folder.segments)
        self._plan = LogPlan()
        self._expected = folder.segments[0].base_offset
        self._epoch = 0
        self._known = False  # whether an entry had this epoch
        self._run: _Run | None = None
        self._made_hole = False  # the end of the last segment was dropped

    def plan(self) -> LogPlan:
        """Returns the plan; called once. Raises StorageError, OSError."""
        number = 0
        while number < len(self._segments):
            if number and not self._joins(number):
                break
            edit = Edit(self._segments[number])
            self._plan.edits.append(edit)
            if not self._segment(number, edit):
                self._remove_from(number + 1, None)
                break
            number += 1
        self._plan.removed.sort()
        return self._plan

    def _note(self, segment: inspect.SegmentFile, byte: int | None, offset: int | None, what: str) -> None:
        self._plan.notes.append((segment.path, byte, offset, what))

    def _remove_from(self, number: int, why: str | None) -> None:
        gone = self._segments[number:]
        if gone and why:
            self._note(gone[0], None, gone[0].base_offset, why)
        self._plan.removed += gone
        del self._segments[number:]

    def _joins(self, number: int) -> bool:
        """Returns whether a segment follows the one before; a hole between the two is filled or ends the log."""
        segment, before = self._segments[number], self._plan.edits[-1]
        first, last = self._expected, segment.base_offset - 1
        is_hole, made = last >= first, self._made_hole
        self._made_hole = False
        if is_hole and (made or not self._gaps):
            if not self._keep:
                self._remove_from(number, f"end the log at {first}: offsets {first}-{last} are missing")
                return False
            if last - before.segment.base_offset <= MAX_RELATIVE_OFFSET:
                before.inserts.append((before.segment.size_bytes, empty_batch(first, last)))
                what = f"put an empty batch in the place of offsets {first}-{last}"
                self._note(before.segment, before.segment.size_bytes, first, what)
        self._expected = max(first, segment.base_offset)
        return True

    # -- one segment

    def _segment(self, number: int, edit: Edit) -> bool:
        """Returns False if the log ends in this segment."""
        position: int | None = 0
        with inspect.FileSource(edit.segment.path, self._files) as source:
            while position is not None and position < source.size:
                position = self._stretch(number, edit, source, position)
                if position == -1:
                    return False
        return True

    def _stretch(self, number: int, edit: Edit, source: inspect.Source, position: int) -> int | None:
        """Checks entries up to a bad one; returns where to resume, None at the end, -1 if the log ends here."""
        for found in inspect.entries(source, position=position):
            if isinstance(found, inspect.Damage):
                return self._skip(number, edit, source, found.position, found.position + 1)
            place = self._place(number)
            problem = entry_problem(found, place)
            if problem is not None and problem[0] == GAP and self._gaps:
                problem = entry_problem(found, place._replace(expected=found.header.base_offset))
            if problem is not None and problem[0] in (OFFSET, TOO_FAR, OVERLAP, GAP):
                offset = self._true_offset(source, found, place)
                if offset is not None:
                    edit.patches.append((found.position, struct.pack(">q", offset)))
                    what = f"give it the offset {offset}, which is the only one between its neighbours"
                    self._note(edit.segment, found.position, found.header.base_offset, what)
                    moved = found.header._replace(base_offset=offset)
                    self._take(edit, found.position, moved)
                    continue
            while problem is not None and problem[0] == OVERLAP and self._drop_empty(number + 1):
                problem = entry_problem(found, self._place(number))
            if problem is None:
                self._take(edit, found.position, found.header)
            elif problem[0] == GAP:
                self._fill(edit, found.position, found.first_offset)
                self._take(edit, found.position, found.header)
            elif problem[0] == EPOCH:
                self._patch_epoch(edit, found)
                self._take(edit, found.position, found.header._replace(partition_leader_epoch=self._epoch))
            elif problem[0] == OVERLAP:
                return self._end_at_next(number, edit, source, found)
            else:
                return self._skip(number, edit, source, found.position, self._next_start(number, source, found))
        return None

    def _place(self, number: int) -> Place:
        next_base = self._segments[number + 1].base_offset if number + 1 < len(self._segments) else None
        return Place(self._segments[number].base_offset, next_base, self._expected, self._epoch)

    def _take(self, edit: Edit, position: int, header: BatchHeader) -> None:
        """Advances past an entry that stays."""
        self._plan.kept_entries += 1
        self._expected = max(self._expected, header.next_offset)
        epoch = header.partition_leader_epoch
        if header.magic < MAGIC:
            self._epoch, self._known, self._run = 0, False, None
        elif epoch > self._epoch or (epoch >= 0 and self._run is None):
            self._run = _Run(edit, position, 1, self._epoch if self._known else None)
            self._known = True
            self._epoch = epoch
        elif epoch >= 0 and self._run is not None:
            self._run.count += 1

    def _fill(self, edit: Edit, position: int, next_offset: int) -> None:
        """Covers the offsets missing before an entry."""
        if next_offset > self._expected:
            edit.inserts.append((position, empty_batch(self._expected, next_offset - 1)))
            what = f"put an empty batch in the place of offsets {self._expected}-{next_offset - 1}"
            self._note(edit.segment, position, self._expected, what)

    # -- faults

    def _true_offset(self, source: inspect.Source, found: inspect.BatchFacts, place: Place) -> int | None:
        """Returns the only offset of an entry that fits between its neighbours; None if there are several or none."""
        header = found.header
        if found.is_wrapper or header.last_offset_delta < 0 or header.base_offset == place.expected:
            return None
        next_offset = place.expected + header.last_offset_delta + 1
        after = found.position + found.size_bytes
        if after >= source.size:
            return place.expected if place.next_base == next_offset else None
        follower = inspect.entry_at(source, after)
        if isinstance(follower, inspect.Damage) or not follower.crc_ok or follower.is_wrapper:
            return None
        return place.expected if follower.header.base_offset == next_offset else None

    def _patch_epoch(self, edit: Edit, found: inspect.BatchFacts) -> None:
        """Corrects a falling epoch: of an epoch and a lower one after it, the isolated one is taken for wrong."""
        run, epoch = self._run, found.header.partition_leader_epoch
        if run is not None and run.count == 1 and (run.before is None or epoch >= run.before):
            true = epoch if run.before is None else run.before
            run.edit.patches.append((run.position + LEADER_EPOCH_AT, struct.pack(">i", true)))
            what = f"give it the leader epoch {true} of its neighbours"
            self._note(run.edit.segment, run.position, None, what)
            self._epoch, self._run = epoch, None
        else:
            edit.patches.append((found.position + LEADER_EPOCH_AT, struct.pack(">i", self._epoch)))
            what = f"give it the leader epoch {self._epoch} of those before it"
            self._note(edit.segment, found.position, found.header.base_offset, what)

    def _drop_empty(self, number: int) -> bool:
        """Removes a segment without a sound entry if the segment before it contains its offsets."""
        segment = self._segments[number] if number < len(self._segments) else None
        if segment is None:
            return False
        place = self._place(number)._replace(expected=segment.base_offset, epoch=0)
        with inspect.FileSource(segment.path, self._files) as source:
            if next(sound_entries(source, 0, place), None) is not None:
                return False
        self._note(segment, None, segment.base_offset, "remove it: the segment before it has these offsets")
        self._plan.removed.append(segment)
        del self._segments[number]
        return True

    def _end_at_next(self, number: int, edit: Edit, source: inspect.Source, found: inspect.BatchFacts) -> int | None:
        """Resolves an entry with an offset of the next segment: one of the two is cut."""
        base = self._segments[number + 1].base_offset
        if self._expected < base and not self._keep:
            self._remove_from(number + 1, "remove it and all after it: the segment before it reaches into it")
            return found.position
        edit.drops.append((found.position, source.size))
        what = f"cut {source.size - found.position} bytes: the next segment has these offsets"
        self._note(edit.segment, found.position, found.header.base_offset, what)
        self._made_hole = True
        return None

    def _skip(self, number: int, edit: Edit, source: inspect.Source, start: int, after: int) -> int | None:
        """Ends the log at a damaged stretch, or leaves it out; see `_stretch`."""
        later = len(self._segments) - number - 1
        continues = later > 0 and self._segments[number + 1].base_offset == self._expected  # no offset is missing
        follower = None
        if self._keep and not continues:
            follower = next(sound_entries(source, after, self._place(number)), None)
        end = follower.position if follower is not None else source.size
        edit.drops.append((start, end))
        what = f"cut {end - start} bytes"
        if continues:
            what += ": the next segment has the offsets after them"
        elif later and not self._keep:
            what += f" and remove {later} segment{'' if later == 1 else 's'} after it"
        elif later or follower:
            what = f"leave out {end - start} bytes"
        self._note(edit.segment, start, self._expected, what)
        if continues:
            return None
        if not self._keep:
            return -1
        if follower is None:
            self._made_hole = True
            return None
        self._fill(edit, follower.position, _first_offset(follower))
        self._expected = max(self._expected, _first_offset(follower))
        return follower.position

    def _next_start(self, number: int, source: inspect.Source, found: inspect.BatchFacts) -> int:
        """Returns where to look for a sound entry. A size is trusted if the CRC covers it, or a sound entry follows."""
        after = found.position + found.size_bytes
        leads = after >= source.size or sound_at(source, after, self._place(number)._replace(epoch=0)) is not None
        return after if found.crc_ok or leads else found.position + 1


def _first_offset(found: inspect.BatchFacts) -> int:
    return found.first_offset if found.is_wrapper else found.header.base_offset

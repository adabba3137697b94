"""Repairs the faults that a verification finds in a data directory, or in one partition, with a backup of all bytes.

The log decides: only entries that must go are removed from it (see `repair_log`), all else is rebuilt or removed:

1. The clean shutdown marker is renamed before the first change and never restored: the next start recovers from the
  recovery points. The other name records that the directory was clean, for a repair that resumes after a crash. In a
  directory that was not clean, everything that a start recovers is left to it, except for an incomplete end of a log.
2. Per partition: leftovers are completed or removed as a start does. Then the log; then indexes, transaction indexes
  and leader epochs, from the log; producer snapshots that contradict it are removed. The partition is verified again
  each time, so a repair ends without findings, or reports the faults it cannot mend.
3. Malformed topic ids: that of the metadata log, otherwise that of the topic's other partitions.
4. All changes are synced; then the checkpoints, whose offsets must lie within the logs.
5. Files beside the partitions: deleted folders, incomplete files.

All changes go through `SavingFiles`, so removed data is in the backup first. After each step a new repair leads to the
same end. A directory without faults is not changed. The caller of `repair` holds the directory's lock.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ...protocol.named import NamedTuple
from ...protocol.primitives import ZERO_UUID
from .. import inspect, restore
from ..compaction.swap import SEGMENT_FILE, finish_leftovers
from ..errors import StorageError, storage_errors
from ..format import checkpoint
from ..format.file_names import CLEAN_SHUTDOWN, META_PROPERTIES, aside_of
from ..format.partition_metadata import FILE_NAME, read_topic_id, write_topic_id
from ..io.copy_on_write import Overlay
from ..io.files import Files, write_atomically
from ..io.undo_journal import Backup, SavingFiles
from ..log.retention import epochs_from
from ..producers import txn_index
from ..producers.txn_index import AbortedTransaction
from ..segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment, file_name
from .directory import REPAIRING, MayHaveGaps, commonest, properties_findings
from .internal_records import INTERNAL_TOPICS
from .partition import LEFTOVERS, Circumstances, Finding, Walk, agrees
from .repair_log import Planner, apply_plan, remove_segments

_LINE = re.compile(r"([a-zA-Z0-9._-]{1,249}) (0|[1-9][0-9]{0,9}) (0|[1-9][0-9]{0,18})")
_ROUNDS_MAX = 8  # each one mends something, or is the last
_REASONS_MAX = 5  # for one line of the manifest

TopicPartition = tuple[str, int]


class Step(NamedTuple):
    """A step that is done, or a fault that cannot be mended: `finding` is the reason, `does` the description; `mends`
    is False if the finding remains."""

    finding: Finding
    does: str
    mends: bool = True


class Options(NamedTuple):
    """keep_sound: removes damaged stretches from a log; otherwise the log ends at the damage. may_have_gaps, topic_ids
    and index_interval_bytes describe topics, as far as known."""

    keep_sound: bool = False
    may_have_gaps: MayHaveGaps = lambda topic: True
    topic_ids: Mapping[str, bytes] = {}
    index_interval_bytes: Callable[[str], int] = lambda topic: 4096


class Repair:
    """One repair. `root` is the data directory; `only` limits it to one partition (by the name of its folder).

    Raises StorageError if the directory cannot be read at all.
    """

    def __init__(
        self, files: Files, root: str, backup: Backup, options: Options | None = None, only: str | None = None
    ) -> None:
        self.root = root
        self.was_clean = any(files.exists(os.path.join(root, name)) for name in (CLEAN_SHUTDOWN, REPAIRING))
        self.changed = False
        self._met_error = False
        self._files = files
        self._saving = SavingFiles(files, root, backup, self._before_first)
        self._options = options or Options()
        self._only = only
        inspect.partitions(root, files)  # raises if it is not a data directory
        if restore.is_planned(files, root):  # a planned restore may replace the repaired files
            raise StorageError(f"{root}: {restore.described(files, root)}")
        self._ends: dict[TopicPartition, int] = {}  # of the sound logs
        self._unknown_ends: set[TopicPartition] = set()  # partitions whose log end is unknown
        self._stored: dict[str, dict[TopicPartition, int] | None] = {}  # None: malformed

    def run(self, each: Callable[[list[str]], Iterable[str]] = iter) -> Iterator[Step]:
        """Repairs everything; yields each step before it is done. To be called once, and to its end. `each` iterates
        over the names in the directory, to show the progress."""
        for name in checkpoint.OF_DIRECTORY:
            try:
                self._stored[name] = checkpoint.read_offsets(self._files, os.path.join(self.root, name))
            except StorageError:
                self._stored[name] = None
        for name in each(sorted(self._files.list(self.root))):
            key = inspect.partition_of(name)
            if key and self._only in (None, name):
                self._unknown_ends.add(key)
                yield from self._guarded(name, self._partition(os.path.join(self.root, name), key))
        yield from self._guarded(FILE_NAME, self._identities())
        self._settle()
        for name in checkpoint.OF_DIRECTORY:
            yield from self._guarded(name, self._checkpoint(name))
        if self._only is None:
            yield from self._guarded(META_PROPERTIES, self._other_files())
        self._settle()
        yield from self._guarded(REPAIRING, self._end())
        self._settle()

    def _guarded(self, name: str, steps: Iterator[Step]) -> Iterator[Step]:
        """Runs the steps of one item; a disk error ends them."""
        try:
            yield from steps
        except (StorageError, OSError) as error:
            self._met_error = True
            yield Step(Finding(name, None, None, str(error)), "cannot be mended", False)

    def _before_first(self) -> None:
        self.changed = True
        path = os.path.join(self.root, CLEAN_SHUTDOWN)
        if self._files.exists(path):
            why, self._saving.why = self._saving.why, "a directory that is being repaired is not clean"
            self._saving.replace(path, os.path.join(self.root, REPAIRING))
            self._saving.sync_directory(self.root)
            self._saving.why = why

    def _end(self) -> Iterator[Step]:
        """Removes the clean shutdown marker under its other name."""
        path = os.path.join(self.root, REPAIRING)
        if self._files.exists(path) and not self._met_error:
            if not self.changed:
                finding = Finding(REPAIRING, None, None, "left by an unfinished repair", False, "leftover")
                yield self._step(finding, "remove it")
            self._saving.why = "the repair ended"
            self._saving.remove(path)

    def _settle(self) -> None:
        with storage_errors(f"cannot sync {self.root}"):
            self._saving.settle()

    def _step(self, finding: Finding, does: str) -> Step:
        self._saving.why = f"{finding.what}: {does}"
        return Step(finding, does)

    # -- a partition

    def _partition(self, path: str, key: TopicPartition) -> Iterator[Step]:
        label = os.path.basename(path)
        if not inspect.is_folder(path, self._files):
            self._unknown_ends.discard(key)
            return
        yield from self._leftovers(path, label)
        log_start = (self._stored[checkpoint.LOG_START_OFFSET] or {}).get(key, 0)
        for _ in range(_ROUNDS_MAX):
            folder = inspect.partition_folder(path, self._files)
            if folder is None:
                if log_start > 0 and self._files.list(path):
                    finding = Finding(label, None, log_start, "no segment")
                    yield self._step(finding, f"make an empty segment at the log start {log_start}")
                    self._saving.open(os.path.join(path, file_name(log_start)), create=True).close()
                    continue
                self._unknown_ends.discard(key)
                return
            circumstances = Circumstances(self.was_clean, self._gaps(key), False, log_start)
            walk = Walk(folder, self._files.list(path), circumstances, self._files)
            findings = [one for one in walk.findings() if one.part != "leftover"]
            reached = not findings and self._must_be_empty(key, walk.end_offset)
            if not findings and not reached:
                self._ends[key] = walk.end_offset
                self._unknown_ends.discard(key)
                return
            unmended: list[Step] = []
            done = False
            for step in self._empty(folder, walk, log_start) if reached else self._mend(folder, walk, findings):
                if step.mends:
                    done = True
                    yield step
                else:  # the mended faults may be the cause
                    unmended.append(step)
            if not done:
                yield from unmended
                return
        yield Step(Finding(label, None, None, "still not sound"), "cannot be mended", False)

    def _leftovers(self, path: str, label: str) -> Iterator[Step]:
        names = self._files.list(path)
        found = [name for name in names if name.endswith(LEFTOVERS)]
        for name in sorted(found):
            does = "complete or undo the swap, as a start does" if name.endswith(".swap") else "remove it"
            yield self._step(Finding(f"{label}/{name}", None, None, "left over", False, "leftover"), does)
        if found:
            self._saving.why = "completed or removed as at a start"
            try:
                finish_leftovers(self._saving, path, names)
            except StorageError as error:  # a start fails with it as well
                yield self._step(Finding(label, None, None, str(error)), "complete the swap up to the damage")
                finish_leftovers(self._saving, path, self._files.list(path), up_to_damage=True)
            self._saving.sync_directory(path)
            names = self._files.list(path)
        for name in sorted(names):
            match = SEGMENT_FILE.fullmatch(name)
            if match and match[2] != LOG_SUFFIX and match[1] + LOG_SUFFIX not in names:
                finding = Finding(f"{label}/{name}", None, None, "an index without a log", False, "leftover")
                yield self._step(finding, "remove it")
                self._saving.remove(os.path.join(path, name))

    def _gaps(self, key: TopicPartition) -> bool:
        cleaned = self._stored[checkpoint.CLEANER_OFFSET]
        by_cleaner = cleaned is None or key in cleaned  # a malformed checkpoint may have contained the partition
        return by_cleaner or key[0] in INTERNAL_TOPICS or self._options.may_have_gaps(key[0])

    def _mend(self, folder: inspect.PartitionFolder, walk: Walk, findings: list[Finding]) -> Iterator[Step]:
        """Repairs the log, or if it is sound the files derived from it."""
        if any(finding.part == "log" for finding in findings):
            yield from self._mend_log(folder, findings)
            return
        by_file: dict[str, Finding] = {}
        for finding in findings:
            by_file.setdefault(os.path.splitext(finding.file)[0] + finding.part, finding)
        for finding in by_file.values():
            path = os.path.join(os.path.dirname(folder.path), finding.file)
            if finding.part == "index":
                yield self._step(finding, "rebuild both indexes from the log")
                self._make_indexes(folder, path)
            elif finding.part == "transactions":
                yield self._step(finding, "rebuild it from the markers in the log")
                self._make_transactions(folder, walk, path)
            elif finding.part == "snapshot":
                yield self._step(finding, "remove it")
                self._saving.remove(path)
            elif finding.part == "epochs":
                yield self._step(finding, "rebuild it from the batches")
                first = max(walk.circumstances.log_start_offset, walk.first_offset)
                checkpoint.write_epochs(self._saving, path, epochs_from(walk.epochs, first))
            else:
                yield Step(finding, "cannot be mended", False)

    def _mend_log(self, folder: inspect.PartitionFolder, findings: list[Finding]) -> Iterator[Step]:
        key = (folder.topic, folder.partition)
        plan = Planner(self._files, folder, gaps=self._gaps(key), keep=self._options.keep_sound).plan()
        if plan.is_empty():
            for finding in findings:
                yield Step(finding, "cannot be mended", False)
            return
        label = os.path.basename(folder.path)
        at = {(finding.file, finding.byte): finding for finding in findings}
        noted: set[Finding] = set()
        reasons: list[str] = []
        for path, byte, offset, does in plan.notes:
            name = f"{label}/{os.path.basename(path)}"
            finding = at.get((name, byte)) or Finding(name, byte, offset, "follows from the fault there")
            noted.add(finding)
            reasons.append(f"{finding.what}: {does}")
            yield self._step(finding, does)
        if plan.loses_bytes and not self._options.keep_sound:
            other = Planner(self._files, folder, gaps=self._gaps(key), keep=True).plan()
            if (kept := other.kept_entries - plan.kept_entries) > 0:
                what = f"{kept} sound batches or messages follow the damage"
                finding = Finding(label, None, None, what, False)
                yield self._step(finding, "remove them as well, as a recovery does; --skip keeps them")
        for finding in findings:
            if finding not in noted and finding.part == "log":
                yield self._step(finding, "is removed or corrected with the others")
        self._saving.why = "; ".join(reasons[:_REASONS_MAX])
        apply_plan(self._saving, plan, self._files.list(folder.path))

    # -- rebuilt files

    def _make_indexes(self, folder: inspect.PartitionFolder, path: str) -> None:
        base_offset = int(os.path.basename(path)[:20])
        found = next(segment for segment in folder.segments if segment.base_offset == base_offset)
        interval = self._options.index_interval_bytes(folder.topic)
        with Overlay(self._saving) as aside:
            with contextlib.closing(Segment(aside, folder.path, base_offset, found.size_bytes, interval)) as segment:
                segment.rebuild()
                segment.save_indexes()
            made = {segment.path(suffix): b"" for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
            made = {name: aside.read_bytes(name) for name in made}
        # The faulty index is written last: until then, a repeated repair comes here again.
        for name in sorted(made, key=lambda name: name == path):
            if not self._files.exists(name) or self._files.read_bytes(name) != made[name]:
                write_atomically(self._saving, name, made[name])

    def _make_transactions(self, folder: inspect.PartitionFolder, walk: Walk, path: str) -> None:
        """Rebuilds the file from the markers; a transaction whose start the log lacks is taken from the old file."""
        stored: dict[tuple[int, int], AbortedTransaction] = {}
        for version, *fields in txn_index.ENTRY.iter_unpack(txn_index.read_whole(self._files, path)):
            entry = AbortedTransaction(*fields)
            if version == 0 and 0 <= entry.first_offset <= entry.last_offset >= entry.last_stable_offset - 1:
                stored[entry.producer_id, entry.last_offset] = entry
        made: list[AbortedTransaction] = []
        for aborted in walk.aborted.get(path.removesuffix(txn_index.SUFFIX) + LOG_SUFFIX, []):
            old = stored.get((aborted.producer_id, aborted.last_offset))
            log_start = walk.circumstances.log_start_offset
            is_valid = old is not None and agrees(aborted, old, walk.first_offset, log_start)
            chosen = old if is_valid or aborted.first_offset < 0 else aborted
            if chosen is not None:
                made.append(chosen)
        if made:
            write_atomically(self._saving, path, txn_index.dump(made))
        else:
            self._saving.remove(path)

    def _must_be_empty(self, key: TopicPartition, end_offset: int) -> bool:
        """Returns whether the log start lies above the log end, and the log once reached it: its offsets are then used,
        and a start makes an empty log at the log start."""
        start = (self._stored[checkpoint.LOG_START_OFFSET] or {}).get(key, 0)
        others = (self._stored[name] or {} for name in (checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET))
        return end_offset < start <= max(known.get(key, 0) for known in others)

    def _empty(self, folder: inspect.PartitionFolder, walk: Walk, log_start: int) -> Iterator[Step]:
        label = os.path.basename(folder.path)
        finding = Finding(label, None, walk.end_offset, f"the log ends before its start {log_start}")
        yield self._step(finding, "remove all segments, whose records were deleted, and continue at the log start")
        remove_segments(self._saving, folder.segments, self._files.list(folder.path))
        self._saving.open(os.path.join(folder.path, file_name(log_start)), create=True).close()

    # -- topic ids

    def _identities(self) -> Iterator[Step]:
        ids: dict[str, Counter[bytes]] = {}
        found: list[tuple[inspect.PartitionFolder, bytes | None, str]] = []
        for folder in inspect.partitions(self.root, self._files):
            what = "no topic id in it"
            topic_id: bytes | None = None
            try:
                topic_id = read_topic_id(self._files, folder.path)
            except StorageError as error:
                what = str(error)
            if topic_id not in (None, ZERO_UUID):
                ids.setdefault(folder.topic, Counter())[topic_id] += 1
            found.append((folder, topic_id, what))
        for folder, topic_id, what in found:
            label = os.path.basename(folder.path)
            if self._only not in (None, label) or not self._files.exists(os.path.join(folder.path, FILE_NAME)):
                continue
            counted = ids.get(folder.topic, Counter()).most_common(2)
            finding = Finding(f"{label}/{FILE_NAME}", 0, None, what, True, "identity")
            true = self._options.topic_ids.get(folder.topic)
            if topic_id not in (None, ZERO_UUID):
                if topic_id != (commonest(ids[folder.topic]) if true is None else true):
                    # the records may be those of a deleted topic
                    other = "that of the topic's other partitions" if true is None else "that of the metadata log"
                    finding = finding._replace(what=f"another topic id than {other}")
                    does = "cannot be mended: remove the folder, or only this file if the records are the topic's"
                    yield Step(finding, does, False)
                continue
            if true is None and counted and (len(counted) == 1 or counted[0][1] > counted[1][1]):
                true = counted[0][0]
            if true is not None:
                yield self._step(finding, "write the topic's id")
                write_topic_id(self._saving, folder.path, true)
            elif topic_id is None or self.was_clean:
                # A power loss leaves an empty file, and the metadata log has the id.
                yield Step(finding, "cannot be mended: the topic's id is unknown", False)

    # -- checkpoints

    def _checkpoint(self, name: str) -> Iterator[Step]:
        path = os.path.join(self.root, name)
        stored = self._stored[name]
        wanted = dict(stored or {})
        if stored is None:
            if self._only is not None or self._unknown_ends:
                finding = Finding(name, 0, None, "malformed", True, "checkpoint")
                yield Step(finding, "can be mended only when all partitions are sound", False)
                return
            wanted = self._salvaged(name, path)
            try:
                checkpoint.read_offsets(self._files, path)
            except StorageError as error:
                does = f"rewrite it: {len(wanted)} offsets from the logs or its own lines"
                yield self._step(Finding(name, 0, None, str(error), True, "checkpoint"), does)
        for key in sorted(wanted):
            offset, right = wanted[key], self._right_offset(name, key, wanted[key])
            if right == offset:
                continue
            finding = Finding(name, None, offset, f"{offset} of {key[0]}-{key[1]}", True, "checkpoint")
            if right is None:
                del wanted[key]
                yield self._step(finding, "take it out")
            else:
                wanted[key] = right
                yield self._step(finding, f"write {right}, by the log")
        if wanted != stored:
            checkpoint.write_offsets(self._saving, path, wanted)
            self._stored[name] = wanted

    def _right_offset(self, name: str, key: TopicPartition, offset: int) -> int | None:
        """Returns the valid offset of a partition in a checkpoint; None for no entry."""
        label = f"{key[0]}-{key[1]}"
        if key not in self._ends:
            known = self._only not in (None, label) or inspect.is_folder(os.path.join(self.root, label), self._files)
            return offset if known or name == checkpoint.CLEANER_OFFSET or not self.was_clean else None
        folder = inspect.partition_folder(os.path.join(self.root, label), self._files)
        start, end = folder.segments[0].base_offset if folder else 0, self._ends[key]
        if name == checkpoint.RECOVERY_POINT:
            return offset if 0 <= offset <= end and not (self.was_clean and offset != end) else end
        if name == checkpoint.REPLICATION_OFFSET:
            return end if offset < 0 or offset > end else max(offset, start if self.was_clean else 0)
        if 0 <= offset <= end:
            return offset
        return start if name == checkpoint.CLEANER_OFFSET else None

    def _salvaged(self, name: str, path: str) -> dict[TopicPartition, int]:
        """Returns the entries for a malformed checkpoint, from its readable lines or the logs."""
        if name in (checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET):
            if name == checkpoint.RECOVERY_POINT and not self.was_clean:
                return {}  # the durable part of the logs is unknown
            return dict(self._ends)
        found: dict[TopicPartition, int] = {}
        for line in self._files.read_bytes(path).decode(errors="replace").splitlines()[2:]:
            match = _LINE.fullmatch(line)
            key = (match[1], int(match[2])) if match else None
            if match and key in self._ends and int(match[3]) <= self._ends[key]:
                found[key] = int(match[3])
        return found

    # -- files outside partitions

    def _other_files(self) -> Iterator[Step]:
        for name in sorted(self._files.list(self.root)):
            path = os.path.join(self.root, name)
            if name.endswith(LEFTOVERS):
                finding = Finding(name, None, None, "an incomplete file; not used", False, "leftover")
                yield self._step(finding, "remove it")
                self._saving.remove(path)
            elif aside_of(name)[1] == "delete" and inspect.is_folder(path, self._files):
                yield self._step(Finding(name, None, None, "deleted", False, "leftover"), "remove it")
                for inside in sorted(self._files.list(path)):
                    self._saving.remove(os.path.join(path, inside))
                self._saving.remove_directory(path)
        for finding in properties_findings(self._files, self.root):
            yield Step(finding, "cannot be mended: no other file has these ids", False)


def place_of(path: str, files: Files = inspect.INSPECTION_FILES) -> tuple[str, str | None]:
    """Returns (data directory, None) or, for the path of a partition's folder, (its data directory, its name)."""
    full = os.path.abspath(path)
    names = files.list(full) if inspect.is_folder(full, files) else []
    if inspect.partition_of(os.path.basename(full)) and any(SEGMENT_FILE.fullmatch(name) for name in names):
        return os.path.dirname(full), os.path.basename(full)
    return full, None


def is_data_directory(path: str, files: Files = inspect.INSPECTION_FILES) -> bool:
    """Returns whether a broker may use the directory: it then has a lock, and no other files may be put there."""
    beside = (META_PROPERTIES, CLEAN_SHUTDOWN, *checkpoint.OF_DIRECTORY)
    return any(files.exists(os.path.join(path, name)) for name in beside)


def backup_place(path: str, files: Files = inspect.INSPECTION_FILES) -> str:
    """Returns the path for a backup of a directory or partition folder: beside it, outside all data directories."""
    beside = os.path.dirname(os.path.abspath(path))
    while is_data_directory(beside, files) and os.path.dirname(beside) != beside:
        beside = os.path.dirname(beside)
    number = 1
    while files.exists(os.path.join(beside, f"ottla-repair-{number}")):
        number += 1
    return os.path.join(beside, f"ottla-repair-{number}")

"""Verifies a data directory, of Ottla or of Apache Kafka: every partition, and the files beside them.

The order of reads makes the result valid beside a running broker (checkpoints before logs, since logs only grow).
Checkpoints and topic ids are compared with the logs. Takes no lock, writes nothing. A fault in a directory that may be
in use is reported only if a second read finds it too: a file may be rolled or replaced in between.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...protocol.limits import INT32_MAX
from ...protocol.primitives import ZERO_UUID
from .. import inspect, restore
from ..errors import StorageError
from ..format import checkpoint
from ..format.file_names import CLEAN_SHUTDOWN, META_PROPERTIES, RESTORE
from ..format.meta_properties import read_meta_properties
from ..format.partition_metadata import FILE_NAME, decode_id, encode_id, read_topic_id
from ..io.files import Files
from .facts import Event
from .internal_records import INTERNAL_TOPICS, RecordCheck
from .partition import LEFTOVERS, Circumstances, Finding, Walk
from .segment import segment_events

REPAIRING = CLEAN_SHUTDOWN + ".repairing"
_SET_ASIDE = {
    "-delete": "deleted; the next start on the directory removes it",
    "-stray": "set aside; no broker reads it",
    "-future": "a replica that is being moved to another directory",
}

MayHaveGaps = Callable[[str], bool]
"""Whether a topic's cleanup policy includes compaction, or is unknown."""
TopicIds = Callable[[], Mapping[str, bytes]]
EachFolder = Callable[[list[inspect.PartitionFolder]], Iterable[inspect.PartitionFolder]]


@dataclass
class Report:
    """The progress so far."""

    clean: bool = False
    partitions: int = 0
    segments: int = 0
    bytes: int = 0


class Verification:
    """One verification of a data directory. Raises StorageError if the path is none, or cannot be read."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        deep: bool = False,
        may_have_gaps: MayHaveGaps = lambda topic: True,
        chosen: Callable[[str, int], bool] = lambda topic, partition: True,
        files: Files = inspect.INSPECTION_FILES,
        check: RecordCheck | None = None,
        topic_ids: TopicIds = dict,
    ) -> None:
        """`deep` opens the batches; `check` is then applied to the records of internal topics. `topic_ids` reads the
        ids of the directory's metadata log."""
        self.root = os.fspath(directory)
        self._files = files
        self.report = Report(clean=files.exists(os.path.join(self.root, CLEAN_SHUTDOWN)))
        self.folders = inspect.partitions(self.root, files)
        self._deep = deep
        self._check = check
        self._may_have_gaps = may_have_gaps
        self._topic_ids = topic_ids
        self._chosen = chosen
        self._offsets: dict[str, dict[tuple[str, int], int]] = {}
        self._ids: dict[tuple[str, int], tuple[str, bytes]] = {}

    def findings(self, each: EachFolder = iter) -> Iterator[Finding]:
        """Yields all findings. To be called once. `each` iterates over the partitions, to show the progress."""
        yield from self.other_findings()
        for folder in each([one for one in self.folders if self._chosen(one.topic, one.partition)]):
            yield from self._partition(folder)
        yield from self.identities()

    # -- for a caller that walks over the partitions itself: first `other_findings`, then a `PartitionCheck` for each
    # partition, then `identities`

    def walk(self, folder: inspect.PartitionFolder) -> Walk:
        """Returns a new walk over a partition in its current state."""
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = sorted(self._files.list(folder.path))
        key = (folder.topic, folder.partition)
        gaps = self._may_have_gaps(folder.topic) or key in self._offsets[checkpoint.CLEANER_OFFSET]
        gaps = gaps or folder.topic in INTERNAL_TOPICS
        log_start = self._offsets[checkpoint.LOG_START_OFFSET].get(key, 0)
        return Walk(folder, names, Circumstances(self.report.clean, gaps, self._deep, log_start), self._files)

    def around(self, walk: Walk) -> Iterator[Finding]:
        """Yields the findings of the checkpoints and of the partition's topic id, after its walk."""
        yield from self._checkpoints(walk.folder, walk)
        topic_id = ZERO_UUID
        try:
            topic_id = read_topic_id(self._files, walk.folder.path)
            if FILE_NAME in walk.names and topic_id == ZERO_UUID and self.report.clean:
                raise StorageError("no topic id in it")
        except StorageError as error:
            name = f"{os.path.basename(walk.folder.path)}/{FILE_NAME}"
            yield Finding(name, 0, None, str(error), True, "identity")
        self._ids[walk.folder.topic, walk.folder.partition] = (walk.folder.path, topic_id)

    def listed_again(self, folder: inspect.PartitionFolder) -> inspect.PartitionFolder | None:
        """Returns a partition's folder in its current state; None if it was deleted in the meantime."""
        found = inspect.partition_folder(folder.path, self._files)
        if found is None:
            self._ids.pop((folder.topic, folder.partition), None)
        return found

    def identities(self) -> Iterator[Finding]:
        """Yields the verified partitions whose topic id differs from that of the metadata log, or from that of most
        partitions of the topic. A broker sets the former aside when it starts, and serves an empty log."""
        counts: dict[str, Counter[bytes]] = {}
        known = {key: found for key, found in self._ids.items() if found[1] != ZERO_UUID}
        for (topic, _), (_, topic_id) in known.items():
            counts.setdefault(topic, Counter())[topic_id] += 1
        by_log = dict(self._topic_ids()) if known else {}
        for (topic, _), (path, topic_id) in known.items():
            if self._is_other(path, topic, topic_id, by_log):
                what = f"topic id {encode_id(topic_id)}, by the metadata log {encode_id(by_log[topic])}"
            elif topic not in by_log and commonest(counts[topic]) != topic_id:
                what = "another topic id than that of the topic's other partitions"
            else:
                continue
            yield Finding(f"{os.path.basename(path)}/{FILE_NAME}", None, None, what, True, "identity")

    def _is_other(self, path: str, topic: str, topic_id: bytes, by_log: dict[str, bytes]) -> bool:
        """Returns whether the metadata log has another id of a topic. In a directory in use the topic may have been
        created again since one of them was read."""
        if by_log.get(topic, topic_id) == topic_id:
            return False
        if self.report.clean:
            return True
        by_log.update(self._topic_ids())
        with contextlib.suppress(StorageError):
            return by_log.get(topic, topic_id) != topic_id == read_topic_id(self._files, path)
        return False

    # -- files outside partitions

    def other_findings(self) -> Iterator[Finding]:
        """Yields findings about files outside partitions. Called before the partitions are read: logs only grow, so
        checkpoints read first cannot be ahead of them."""
        for name in sorted(self._files.list(self.root)):
            for suffix, what in _SET_ASIDE.items():
                if name.endswith(suffix) and inspect.is_folder(os.path.join(self.root, name), self._files):
                    yield Finding(name, None, None, what, False, "leftover")
            if name.endswith(LEFTOVERS):
                yield Finding(name, None, None, "an incomplete file; not used", False, "leftover")
            if name == RESTORE:
                yield Finding(name, None, None, restore.described(self._files, self.root) or "", False, "leftover")
            if name == REPAIRING:
                yield Finding(name, None, None, "left by an unfinished repair: run the repair again", False, "leftover")
        for name in checkpoint.OF_DIRECTORY:
            try:
                self._offsets[name] = checkpoint.read_offsets(self._files, os.path.join(self.root, name))
            except StorageError as error:
                self._offsets[name] = {}
                yield Finding(name, 0, None, str(error), True, "checkpoint")
            # a close writes the others for the existing partitions
            if self.report.clean and name != checkpoint.CLEANER_OFFSET:
                for topic, partition in self._offsets[name]:
                    if not inspect.is_folder(os.path.join(self.root, f"{topic}-{partition}"), self._files):
                        what = f"an offset of {topic}-{partition}, which does not exist here"
                        yield Finding(name, None, None, what, True, "checkpoint")
        yield from properties_findings(self._files, self.root)

    def _checkpoints(self, folder: inspect.PartitionFolder, walk: Walk) -> Iterator[Finding]:
        """Yields what the directory's checkpoints contradict in a partition, after its walk."""
        key = (folder.topic, folder.partition)
        start, end = walk.folder.segments[0].base_offset, walk.log_end
        if end is None:
            return  # the end of the log is unknown
        for name in checkpoint.OF_DIRECTORY:
            offset = self._offsets[name].get(key)
            if offset is None:
                continue
            what = None
            if offset < 0 or offset > end:
                what = f"{offset} of {folder.topic}-{folder.partition}, whose log ends at {end}"
            elif name == checkpoint.RECOVERY_POINT and self.report.clean and offset != end:
                what = f"{offset} of {folder.topic}-{folder.partition}, which was closed at {end}"
            elif name == checkpoint.REPLICATION_OFFSET and self.report.clean and offset < start:
                what = f"{offset} of {folder.topic}-{folder.partition}, whose log begins at {start}"
            if what is not None:
                yield Finding(name, None, offset, what, True, "checkpoint")

    # -- partitions

    def _partition(self, folder: inspect.PartitionFolder) -> list[Finding]:
        self.report.partitions += 1
        self.report.segments += len(folder.segments)
        check = PartitionCheck(self, folder)
        self._read(check)
        self.report.bytes += check.walk.bytes_read
        if check.begin_again():
            self._read(check)
        return check.findings

    def _read(self, check: PartitionCheck) -> None:
        for number, task in enumerate(check.walk.tasks()):
            check.take(number, segment_events(task, self._files, check=self._check))
        check.end()


class PartitionCheck:
    """The check of one partition: `take` for each of the tasks of its walk, in order, then `end`. A faulty partition to
    which a broker may be writing is then checked once more, see `begin_again`."""

    def __init__(self, verification: Verification, folder: inspect.PartitionFolder) -> None:
        self.folder = folder
        self.is_there = True
        self._verification = verification
        self._before: list[Finding] | None = None  # the findings of the first check
        self._begin()

    def _begin(self) -> None:
        self.walk: Walk = self._verification.walk(self.folder)
        self.findings: list[Finding] = list(self.walk.leftovers())
        self._failed = False

    def take(self, number: int, events: Iterable[Event]) -> None:
        """Adds the events of a segment."""
        if self._failed:
            return
        try:
            for event in events:
                self.findings += self.step(number, event)
        except StorageError as error:
            self.fail(str(error))

    def step(self, number: int, event: Event) -> Iterator[Finding]:
        """Returns the findings of one event of a segment."""
        return self.walk.step(number, event)

    def fail(self, problem: str) -> None:
        """Ends the walk with a problem, unless it has ended already."""
        if not self._failed:
            self.findings.append(Finding(os.path.basename(self.folder.path), None, None, problem))
        self._failed = True

    def end(self) -> None:
        """Completes a check after the last segment."""
        if not self._failed:
            try:
                self.findings += self.walk.finish()
            except StorageError as error:
                self.fail(str(error))
        self.findings += self._verification.around(self.walk)
        if self._before is not None:
            # Without faults that the first check did not have.
            self.findings = [finding for finding in self.findings if not finding.wrong or finding in self._before]

    def begin_again(self) -> bool:
        """Prepares a second check of a partition with faults, unless its directory was closed. Returns whether it is
        needed: a partition that was deleted meanwhile has no findings."""
        if self._verification.report.clean or not any(finding.wrong for finding in self.findings):
            return False
        self._before = self.findings
        if (folder := self._verification.listed_again(self.folder)) is None:
            self.is_there, self.findings = False, []
            return False
        self.folder = folder
        self._begin()
        return True


def commonest(ids: Counter[bytes]) -> bytes:
    """Returns the topic id that most partitions have. Of several it is the same one in whatever order the partitions
    were read: else verify and repair name different partitions."""
    return max(ids, key=lambda topic_id: (ids[topic_id], topic_id))


def properties_findings(files: Files, root: str) -> Iterator[Finding]:
    """Yields a finding if meta.properties exists and lacks a valid value that a broker needs."""
    try:
        _check_properties(files, root)
    except FileNotFoundError:
        pass
    except (StorageError, ValueError, OSError) as error:
        yield Finding(META_PROPERTIES, 0, None, str(error), True, "identity")


def _check_properties(files: Files, root: str) -> None:
    found, path = read_meta_properties(files, root), os.path.join(root, META_PROPERTIES)
    if not found:
        raise StorageError(f"{path} is empty")
    node = found.get("node.id", found.get("broker.id", ""))
    if not (node.isascii() and node.isdigit() and int(node) <= INT32_MAX):
        raise StorageError(f"{path}: node id {node!r}")
    if not found.get("cluster.id") and found.get("version") == "1":
        raise StorageError(f"{path} has no cluster id")
    if found.get("directory.id"):
        decode_id(found["directory.id"])

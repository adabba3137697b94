"""Whether a data directory, of Ottla or of Apache Kafka, is sound: every partition, and the files beside them.

Owns the order of reading that makes it true beside a running broker (checkpoints before logs, as logs only grow) and
the comparison of checkpoints and identities with what the logs say. Takes no lock, writes nothing. What is wrong in a
directory that may be in use is looked at twice: a file that was rolled or replaced meanwhile is no fault.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..protocol.primitives import ZERO_UUID
from . import checkpoint, inspect
from .directory import CLEAN_SHUTDOWN, META_PROPERTIES
from .errors import StorageError
from .files import Files
from .partition_metadata import FILE_NAME, decode_id, read_topic_id
from .properties import parse_properties
from .verify_log import LEFTOVERS, Circumstances, Finding, Walk

CHECKPOINTS = (
    checkpoint.RECOVERY_POINT,
    checkpoint.LOG_START_OFFSET,
    checkpoint.REPLICATION_OFFSET,
    checkpoint.CLEANER_OFFSET,
)
REPAIRING = CLEAN_SHUTDOWN + ".repairing"
COMPACTED_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_SET_ASIDE = {
    "-delete": "deleted; whoever opens the directory removes it",
    "-stray": "set aside; no broker looks at it",
    "-future": "a replica on its way to another directory",
}

MayHaveGaps = Callable[[str], bool]
"""Whether a topic's cleanup policy lets a cleaner take records, or is not known."""


@dataclass
class Report:
    """What was looked at so far. `walks` are kept only where something was wrong, for whoever repairs it."""

    clean: bool = False
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    walks: dict[str, Walk] = field(default_factory=dict)


class Verification:
    """One look at a data directory. Raises StorageError for what is no data directory, or cannot be read."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        deep: bool = False,
        may_have_gaps: MayHaveGaps = lambda topic: True,
        chosen: Callable[[str, int], bool] = lambda topic, partition: True,
        files: Files = inspect.LOOKING,
    ) -> None:
        self.root = os.fspath(directory)
        self._files = files
        self.report = Report(clean=files.exists(os.path.join(self.root, CLEAN_SHUTDOWN)))
        self.folders = inspect.partitions(self.root, files)
        self._deep = deep
        self._may_have_gaps = may_have_gaps
        self._chosen = chosen
        self._offsets: dict[str, dict[tuple[str, int], int]] = {}

    def findings(self) -> Iterator[Finding]:
        """Everything that was found. To be run once."""
        names = sorted(self._files.list(self.root))
        yield from self._beside(names)
        ids: dict[str, Counter[bytes]] = {}
        folder_ids: list[tuple[inspect.PartitionFolder, bytes]] = []
        for folder in self.folders:
            if not self._chosen(folder.topic, folder.partition):
                continue
            self.report.partitions += 1
            self.report.segments += len(folder.segments)
            found, topic_id = self._partition(folder)
            yield from found
            if topic_id != ZERO_UUID:
                ids.setdefault(folder.topic, Counter())[topic_id] += 1
                folder_ids.append((folder, topic_id))
        for folder, topic_id in folder_ids:
            if ids[folder.topic].most_common(1)[0][0] != topic_id:
                what = "another topic id than that of the topic's other partitions"
                yield Finding(f"{os.path.basename(folder.path)}/{FILE_NAME}", None, None, what, True, "identity")

    # -- the files beside the partitions

    def _beside(self, names: list[str]) -> Iterator[Finding]:
        for name in names:
            for suffix, what in _SET_ASIDE.items():
                if name.endswith(suffix) and inspect.is_folder(os.path.join(self.root, name), self._files):
                    yield Finding(name, None, None, what, False, "leftover")
            if name.endswith(LEFTOVERS):
                yield Finding(name, None, None, "a file half written; not used", False, "leftover")
            if name == REPAIRING:
                yield Finding(name, None, None, "of a repair that did not end: run it again", False, "leftover")
        for name in CHECKPOINTS:
            try:
                self._offsets[name] = checkpoint.read_offsets(self._files, os.path.join(self.root, name))
            except StorageError as error:
                self._offsets[name] = {}
                yield Finding(name, 0, None, str(error), True, "checkpoint")
            if self.report.clean and name != checkpoint.CLEANER_OFFSET:  # a close writes the others for what is there
                for topic, partition in self._offsets[name]:
                    if not inspect.is_folder(os.path.join(self.root, f"{topic}-{partition}"), self._files):
                        what = f"an offset of {topic}-{partition}, which is not here"
                        yield Finding(name, None, None, what, True, "checkpoint")
        try:
            check_properties(self._files, os.path.join(self.root, META_PROPERTIES))
        except FileNotFoundError:
            pass
        except (StorageError, ValueError, OSError) as error:
            yield Finding(META_PROPERTIES, 0, None, str(error), True, "identity")

    def _checkpoints(self, folder: inspect.PartitionFolder, walk: Walk) -> Iterator[Finding]:
        """What the directory's checkpoints say of a partition whose log was walked over."""
        key = (folder.topic, folder.partition)
        start, end = walk.folder.segments[0].base_offset, walk.end_offset
        if walk.bad_at is not None:
            return  # the log does not tell where it ended
        for name in CHECKPOINTS:
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

    def _partition(self, folder: inspect.PartitionFolder) -> tuple[list[Finding], bytes]:
        """Findings and topic id. A faulty one is looked at again if a broker may have been at work."""
        found, walk, topic_id = self._once(folder)
        self.report.bytes += walk.bytes_read
        if any(finding.wrong for finding in found) and not self.report.clean:
            again = inspect.partition_folder(folder.path, self._files)
            if again is None:
                return [], ZERO_UUID
            second, walk, topic_id = self._once(again)
            found = [finding for finding in second if not finding.wrong or finding in found]
        if any(finding.wrong for finding in found):
            self.report.walks[folder.path] = walk
        return found, topic_id

    def _once(self, folder: inspect.PartitionFolder) -> tuple[list[Finding], Walk, bytes]:
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = sorted(self._files.list(folder.path))
        key = (folder.topic, folder.partition)
        gaps = self._may_have_gaps(folder.topic) or key in self._offsets[checkpoint.CLEANER_OFFSET]
        gaps = gaps or folder.topic in COMPACTED_TOPICS
        log_start = self._offsets[checkpoint.LOG_START_OFFSET].get(key, 0)
        circumstances = Circumstances(self.report.clean, gaps, self._deep, log_start)
        walk = Walk(folder, names, circumstances, self._files)
        found: list[Finding] = []
        try:
            found += walk.findings()
            found += self._checkpoints(folder, walk)
        except StorageError as error:
            found.append(Finding(os.path.basename(folder.path), None, None, str(error)))
        topic_id = ZERO_UUID
        try:
            topic_id = read_topic_id(self._files, folder.path)
            if FILE_NAME in names and topic_id == ZERO_UUID and self.report.clean:
                raise StorageError("no topic id in it")
        except StorageError as error:
            name = f"{os.path.basename(folder.path)}/{FILE_NAME}"
            found.append(Finding(name, 0, None, str(error), True, "identity"))
        return found, walk, topic_id


def check_properties(files: Files, path: str) -> None:
    """Raises StorageError or ValueError if meta.properties is not what a broker needs."""
    found = parse_properties(files.read_bytes(path), path)
    if not found:
        raise StorageError(f"{path} is empty")
    node = found.get("node.id", found.get("broker.id", ""))
    if not (node.isascii() and node.isdigit() and int(node) < 2**31):
        raise StorageError(f"{path}: node id {node!r}")
    if not found.get("cluster.id") and found.get("version") == "1":
        raise StorageError(f"{path} has no cluster id")
    if found.get("directory.id"):
        decode_id(found["directory.id"])

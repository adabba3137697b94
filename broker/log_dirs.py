"""The data directories of a broker, as one place for partitions.

Owns which directory holds which partition (a new one goes where the fewest are, as in Kafka), the cluster id that all
directories share, and the putting aside of folders that belong to no topic. What is inside a directory is storage's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..storage.config import LogConfig
from ..storage.directory import META_PROPERTIES, DataDirectory, stored_node_id
from ..storage.errors import StorageError
from ..storage.files import Files
from ..storage.log import PartitionLog
from ..storage.partition_metadata import decode_id
from .forced_upgrade import ForcedUpgrade
from .logs import get_logger
from .metadata_log import TOPIC as METADATA_TOPIC
from .metadata_log import TOPIC_ID as METADATA_TOPIC_ID

FIRST_DIRECTORY_ID = bytes(15) + b"\x64"  # those below are words (unassigned, lost), not directories (KIP-858)
METADATA_SEGMENT_BYTES = 1 << 30  # metadata.log.segment.bytes
DEFAULT_NODE_ID = 1


class LogDir:
    """One data directory with the partitions that are open in it."""

    def __init__(self, directory: DataDirectory) -> None:
        self.data = directory
        self.id: bytes = decode_id(directory.directory_id)
        self.path: str = directory.path
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.placed = 0  # partitions that are on their way here

    def holds(self, log: PartitionLog) -> bool:
        """Whether this open log lies here."""
        return self.logs.get((log.topic, log.partition)) is log

    def volume_bytes(self) -> tuple[int, int]:
        """(all, usable) bytes of the file system; -1 where it cannot be asked."""
        try:
            found = os.statvfs(self.path)
        except (OSError, AttributeError):
            return -1, -1
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


class LogDirs:
    """All data directories. Made by `open`; ended by `close`, or by `release` when the start failed."""

    def __init__(self, directories: list[LogDir]) -> None:
        self.directories = directories
        self.cluster_id = directories[0].data.cluster_id
        self.node_id = directories[0].data.node_id
        self.upgrade: ForcedUpgrade | None = None
        """While it is set, partitions are brought to message format v2 as they are opened."""
        self.later: Callable[[Callable[[], None]], None] = lambda remove: remove()
        """When the files of a deleted partition go; at once unless somebody with a clock says otherwise."""
        self._found: dict[tuple[str, int], LogDir] = {}  # folders that were there, until they are opened
        for log_dir in directories:
            for key in log_dir.data.partitions():
                self._found.setdefault(key, log_dir)

    @classmethod
    def open(cls, files: Files, paths: Sequence[Path], node_id: int | None) -> LogDirs:
        """Locks all directories. Raises StorageError (DirectoryLocked); then none stays locked.

        Without a `node_id` it is that of the first directory which was used before.
        """
        opened: dict[Path, LogDir] = {}
        # Those in use come first: a new one takes over their cluster id.
        order = sorted(paths, key=lambda path: not files.exists(os.path.join(path, META_PROPERTIES)))
        cluster_id: str | None = None
        try:
            if node_id is None:
                stored = (stored_node_id(files, path) for path in order)
                node_id = next((id for id in stored if id is not None), DEFAULT_NODE_ID)
            for path in order:
                data = DataDirectory.open(files, path, node_id=node_id, cluster_id=cluster_id)
                cluster_id = data.cluster_id
                opened[path] = LogDir(data)
                for warning in data.warnings:
                    get_logger().warning("checkpoint not readable, its partitions are recovered", reason=warning)
        except BaseException:
            for log_dir in opened.values():
                log_dir.data.abandon()
            raise
        return cls([opened[path] for path in paths])

    def metadata_holder(self) -> LogDir | None:
        """The directory in which a metadata log was found."""
        return self._found.get((METADATA_TOPIC, 0))

    def holds_partitions(self) -> bool:
        """Whether any partition was found besides the metadata log."""
        return any(topic != METADATA_TOPIC for topic, _ in self._found)

    def begin_metadata(self, prepared: str, holder: LogDir) -> None:
        """Makes a folder that was written beside the metadata log; one that is there is set aside. StorageError."""
        if self.metadata_holder() is holder:
            holder.data.set_aside(METADATA_TOPIC, 0)
        holder.data.put_in_place(prepared, METADATA_TOPIC, 0)
        self._found[METADATA_TOPIC, 0] = holder

    def open_metadata(self, now_ms: int) -> PartitionLog:
        """The log of `__cluster_metadata`, in the directory that has it, else in the first. Raises StorageError."""
        holder = self.metadata_holder() or self.directories[0]
        config = LogConfig(segment_bytes=METADATA_SEGMENT_BYTES)
        return self._open(holder, METADATA_TOPIC, 0, METADATA_TOPIC_ID, config, now_ms)

    def put_strays_aside(self, known: Mapping[tuple[str, int], bytes]) -> None:
        """Renames every folder whose partition is not `known` {(topic, index): topic id}, so that nothing is lost."""
        for log_dir in self.directories:
            for topic, index in log_dir.data.partitions():
                if topic == METADATA_TOPIC:
                    continue
                topic_id = log_dir.data.topic_id(topic, index)
                elsewhere = self._found.get((topic, index)) is not log_dir
                if elsewhere or (topic, index) not in known or topic_id not in (bytes(16), known[topic, index]):
                    renamed = log_dir.data.set_aside(topic, index)
                    if not elsewhere:
                        del self._found[topic, index]
                    get_logger().warning("a folder of no known partition was put aside", folder=renamed)

    def place(self) -> bytes:
        """The id of the directory for one more partition."""
        chosen = min(self.directories, key=lambda log_dir: len(log_dir.logs) + log_dir.placed)
        if len(self.directories) > 1:
            chosen.placed += 1
        return chosen.id

    def open_partition(
        self, topic: str, index: int, topic_id: bytes, config: LogConfig, directory_id: bytes | None, now_ms: int
    ) -> PartitionLog:
        """Opens a partition where its folder is, else makes it in the directory of that id.

        Raises StorageError, also when that directory was not given: the partition must not begin anew elsewhere.
        """
        holder = self._found.pop((topic, index), None)
        is_new = holder is None
        if holder is None:
            holder = self._holder(directory_id)
            if holder is None:
                raise StorageError(f"{topic}-{index} lies in a data directory that was not given: log.dirs lacks one")
        try:
            log = self._open(holder, topic, index, topic_id, config, now_ms)
        except StorageError:
            if is_new:  # what was made of it would stand in the way of the next topic of that name
                with contextlib.suppress(StorageError):
                    holder.data.delete_partition(topic, index)()
            raise
        holder.placed = max(0, holder.placed - 1)
        return log

    def _holder(self, directory_id: bytes | None) -> LogDir | None:
        if directory_id is None or directory_id < FIRST_DIRECTORY_ID:
            return self.directories[0]
        return next((log_dir for log_dir in self.directories if log_dir.id == directory_id), None)

    def _open(
        self, holder: LogDir, topic: str, index: int, topic_id: bytes, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        upgrade = self.upgrade.watch(topic, index) if self.upgrade else None
        log = holder.data.open_partition(topic, index, topic_id=topic_id, config=config, now_ms=now_ms, upgrade=upgrade)
        holder.logs[topic, index] = log
        if log.cut_bytes:
            get_logger().warning("a torn tail was cut", topic=topic, partition=index, bytes=log.cut_bytes)
        return log

    def delete(self, log: PartitionLog, *, at_once: bool = False) -> None:
        """Deletes a partition; its files go a little `later`, unless `at_once`. Raises StorageError."""
        for log_dir in self.directories:
            if log_dir.holds(log):
                del log_dir.logs[log.topic, log.partition]
                remove = log_dir.data.delete_partition(log.topic, log.partition)
                remove() if at_once else self.later(remove)

    def checkpoint(self) -> None:
        """Writes the recovery points as they are now. Raises StorageError."""
        for log_dir in self.directories:
            log_dir.data.write_checkpoints()

    def close(self) -> None:
        """Flushes and closes everything; the first StorageError is raised when all have been tried."""
        failures = []
        for log_dir in self.directories:
            try:
                log_dir.data.close()
            except StorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def release(self) -> None:
        """Gives the directories back without closing them, as after a crash."""
        for log_dir in self.directories:
            log_dir.data.abandon()

"""The data directories of a broker.

Owns the placement of partitions (a new one goes to the directory with the fewest, as in Kafka), the cluster id that all
directories share, and putting folders of unknown topics aside. The content of a directory is storage's.

A directory whose disk fails, at the start or later, takes its partitions offline and nothing else (KIP-112): none of
them is created elsewhere, and new partitions go to the other directories. The metadata log records the directory of
each partition (KIP-858), so the broker cannot run without the directory of the metadata log.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.internal_records.metadata_values import TOPIC as METADATA_TOPIC
from ...protocol.internal_records.metadata_values import TOPIC_ID as METADATA_TOPIC_ID
from ...protocol.named import NamedTuple
from ...storage.config import LogConfig
from ...storage.errors import DirectoryFailed, StorageError
from ...storage.format.file_names import META_PROPERTIES, RESTORE, stored_node_id
from ...storage.format.meta_properties import parse_meta_properties
from ...storage.format.partition_metadata import decode_id
from ...storage.io.disk_errors import lasting_error
from ...storage.io.files import Files
from ...storage.log.losses import Loss
from ...storage.log_dir.directory import DataDirectory
from ...storage.partition_log import PartitionLog
from ..config.values import EVERY_DIRECTORY
from ..logs import get_logger
from .flush import SYNC_THREADS
from .start_progress import Opening

if TYPE_CHECKING:
    from .forced_upgrade import ForcedUpgrade

FIRST_DIRECTORY_ID = bytes(15) + b"\x64"  # lower ids are reserved words (unassigned, lost; KIP-858)
DEFAULT_NODE_ID = 1
PREFERRED_MAX = 10_000  # preferred directories of partitions that do not exist yet


class LogDir:
    """One data directory with its open partitions."""

    def __init__(self, directory: DataDirectory) -> None:
        self.data = directory
        self.id: bytes = decode_id(directory.directory_id)
        self.path: str = directory.path
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.placed = 0  # partitions that are about to be created here

    @property
    def failure(self) -> str | None:
        """The error of a directory that failed, or None."""
        return self.data.failure

    def holds(self, log: PartitionLog) -> bool:
        """Returns whether this open log is in this directory."""
        return self.logs.get((log.topic, log.partition)) is log

    def volume_bytes(self) -> tuple[int, int]:
        """Returns (all, usable) bytes of the file system; -1 if the system does not report them."""
        try:
            found = os.statvfs(self.path)
        except (OSError, AttributeError):
            return -1, -1
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


class UnusableDir(NamedTuple):
    """A data directory that could not be opened at the start. `id` is None if it could not be read."""

    path: str
    failure: str
    id: bytes | None


class LogDirs:
    """All data directories. Made by `open`; ended by `close`, or by `release` after a failed start."""

    def __init__(self, all: Sequence[LogDir | UnusableDir]) -> None:
        self.all = all
        """All directories, in the order in which they were given."""
        self.directories = directories = [log_dir for log_dir in all if isinstance(log_dir, LogDir)]
        """The directories that were opened; some may have failed since."""
        self.unusable = [log_dir for log_dir in all if isinstance(log_dir, UnusableDir)]
        self.metadata_dir = directories[0]
        """The directory with the metadata log."""
        self.cluster_id = directories[0].data.cluster_id
        self.node_id = directories[0].data.node_id
        self.upgrade: ForcedUpgrade | None = None
        """Set during a forced upgrade: partitions are converted to message format v2 as they are opened."""
        self.opening: Opening | None = None
        """Set during the start: counts the partitions and the bytes that recovery checks."""
        self.cordoned: Callable[[], Sequence[str]] = tuple
        """Returns the value of `cordoned.log.dirs`."""
        self.later: Callable[[Callable[[], None]], None] = lambda remove: remove()
        """Called with a function that removes the files of a deleted partition; removes them at once by default."""
        self.on_delete: Callable[[PartitionLog], None] = lambda log: None
        """Called before a partition is deleted."""
        self.on_offline: Callable[[LogDir], None] = lambda log_dir: None
        """Called, in any thread, when a directory has failed; its logs refuse all operations already."""
        self.moving: dict[tuple[str, int], Callable[[], None]] = {}
        """The partitions that move to another directory, each with a function that cancels the move."""
        self._preferred: dict[tuple[str, int], LogDir] = {}  # for partitions that do not exist yet
        self._found: dict[tuple[str, int], LogDir] = {}  # folders found at the start, until they are opened
        for log_dir in directories:
            log_dir.data.on_failure = functools.partial(self._failed, log_dir)
            for key in log_dir.data.partitions():
                self._found.setdefault(key, log_dir)

    @classmethod
    def open(cls, files: Files, paths: Sequence[Path], node_id: int | None, nodes: Sequence[int] = ()) -> LogDirs:
        """Locks all directories whose disks work.

        Without a `node_id` it is that of the first directory which was used before, else the first of `nodes`. A
        directory of a node that is not in `nodes` is refused, unless `nodes` is empty. Raises StorageError or
        DirectoryLocked if a directory belongs to another broker or none is left; then none stays locked.
        """
        unusable = _finish_restores(files, paths)
        # Used directories come first: a new one takes their cluster id.
        order = sorted(paths, key=lambda path: not files.exists(os.path.join(path, META_PROPERTIES)))
        if node_id is None:
            node_id = _stored_node_id(files, order, nodes[0] if nodes else DEFAULT_NODE_ID)
        if nodes and node_id not in nodes:
            ids = ",".join(map(str, nodes))
            raise StorageError(
                f"the data directory belongs to node {node_id}, and the nodes are {ids}: name it in --node-ids"
            )
        taken: dict[Path, DataDirectory] = {}
        try:
            for path in order:
                if path in unusable:
                    continue
                try:
                    taken[path] = DataDirectory.take(files, path, node_id=node_id)
                except DirectoryFailed as error:
                    unusable[path] = UnusableDir(os.path.abspath(path), str(error), _stored_id(files, path))
            # Up to here nothing was written, and the markers of a clean shutdown are intact.
            cluster_id = next((data.cluster_id for data in taken.values() if data.cluster_id), None)
            for data in taken.values():
                data.check_cluster(cluster_id)
            _check_unusable(files, list(unusable.values()), [data.path for data in taken.values()])
            opened: dict[Path, LogDir] = {}
            for path, data in taken.items():
                try:
                    data.begin(cluster_id)
                except DirectoryFailed as error:
                    data.abandon()
                    unusable[path] = UnusableDir(data.path, str(error), _stored_id(files, path))
                    continue
                cluster_id = data.cluster_id
                opened[path] = LogDir(data)
                for warning in data.warnings:
                    get_logger().warning("checkpoint not readable, its partitions are recovered", reason=warning)
            _check_unusable(files, list(unusable.values()), [log_dir.path for log_dir in opened.values()])
        except BaseException:
            for data in taken.values():
                data.abandon()
            raise
        return cls([opened[path] if path in opened else unusable[path] for path in paths])

    @property
    def online(self) -> list[LogDir]:
        """The directories that have not failed."""
        return [log_dir for log_dir in self.directories if log_dir.failure is None]

    def _failed(self, log_dir: LogDir) -> None:
        get_logger().error(
            "log directory failed, its partitions are offline",
            log_dir=log_dir.path,
            reason=log_dir.failure,
            partitions=len(log_dir.logs),
        )
        self.on_offline(log_dir)

    def metadata_holder(self) -> LogDir | None:
        """Returns the directory in which a metadata log was found, or None."""
        return self._found.get((METADATA_TOPIC, 0))

    def holds_partitions(self) -> bool:
        """Returns whether any partition was found besides the metadata log."""
        return any(topic != METADATA_TOPIC for topic, _ in self._found)

    def begin_metadata(self, prepared: str, holder: LogDir) -> None:
        """Makes the prepared folder the metadata log, after setting an existing one aside. Raises StorageError."""
        if self.metadata_holder() is holder:
            holder.data.set_aside(METADATA_TOPIC, 0)
        holder.data.forget_offsets([(METADATA_TOPIC, 0)])  # they belong to the other log, which may have been longer
        holder.data.put_in_place(prepared, METADATA_TOPIC, 0)
        self._found[METADATA_TOPIC, 0] = holder

    def open_metadata(self, now_ms: int, config: LogConfig | None = None) -> PartitionLog:
        """Opens the log of `__cluster_metadata`, in the directory that has it, else in the first. Raises
        StorageError.
        """
        holder = self.metadata_dir = self.metadata_holder() or self.directories[0]
        return self._open(holder, METADATA_TOPIC, 0, METADATA_TOPIC_ID, config or LogConfig(), now_ms)

    def put_strays_aside(self, known: Mapping[tuple[str, int], tuple[bytes, bytes | None]]) -> None:
        """Sets aside every folder whose partition is not in `known` {(topic, index): (topic id, directory id)}, so that
        no data is lost. Of several folders of a partition, the one in its directory stays, else the first.
        """
        holders: dict[tuple[str, int], list[LogDir]] = {}
        aside = {key for log_dir in self.online for key in log_dir.data.partitions() if key[0] != METADATA_TOPIC}
        for log_dir in self.online:
            with contextlib.suppress(DirectoryFailed):  # its partitions are offline then
                for key in log_dir.data.partitions():
                    if key[0] != METADATA_TOPIC:
                        topic_id = log_dir.data.topic_id(*key)
                        if key in known and topic_id in (bytes(16), known[key][0]):
                            holders.setdefault(key, []).append(log_dir)
                        else:
                            self._put_aside(log_dir, key, "an unknown partition")
        self._found = {key: log_dir for key, log_dir in self._found.items() if key[0] == METADATA_TOPIC}
        for key, found in holders.items():
            named = known[key][1]
            holder = self._found[key] = next((log_dir for log_dir in found if log_dir.id == named), found[0])
            for log_dir in found:
                if log_dir is not holder:
                    with contextlib.suppress(DirectoryFailed):
                        self._put_aside(log_dir, key, f"a partition in {holder.path}")
        for log_dir in self.online:
            with contextlib.suppress(DirectoryFailed):
                log_dir.data.forget_offsets(aside)  # they belong to the folders, which may be of deleted topics

    def _put_aside(self, log_dir: LogDir, key: tuple[str, int], of: str) -> None:
        end_offset = log_dir.data.noted_end(*key)
        renamed = log_dir.data.set_aside(*key)
        get_logger().warning(
            f"folder of {of} put aside",
            topic=key[0],
            partition=key[1],
            folder=renamed,
            log_end_offset=end_offset,
        )

    def prefer(self, topic: str, index: int, log_dir: LogDir) -> None:
        """Sets the directory for a partition that does not exist yet. Beyond PREFERRED_MAX the oldest entry is
        dropped.
        """
        self._preferred.pop((topic, index), None)
        self._preferred[topic, index] = log_dir
        if len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def is_cordoned(self, log_dir: LogDir) -> bool:
        """Returns whether `cordoned.log.dirs` excludes a directory from new partitions."""
        cordoned = self.cordoned()
        return EVERY_DIRECTORY in cordoned or str(log_dir.path) in map(os.path.abspath, cordoned)

    def place(self, topic: str = "", index: int = -1) -> bytes:
        """Chooses the directory of a new partition and returns its id. Raises StorageError if none is left."""
        preferred = self._preferred.pop((topic, index), None)
        online = self.online if preferred is None or preferred.failure is not None else [preferred]
        open_ones = [
            log_dir for log_dir in online if not self.is_cordoned(log_dir)
        ]  # if all are cordoned, one takes it
        chosen = min(open_ones or online, key=lambda log_dir: len(log_dir.logs) + log_dir.placed, default=None)
        if chosen is None:
            raise StorageError("all log directories are offline")
        if len(self.directories) > 1:
            chosen.placed += 1
        return chosen.id

    def forget_offsets(self, topic: str, indexes: Iterable[int]) -> None:
        """Removes the checkpointed offsets of deleted partitions, durably, before new partitions get the same names.
        Raises StorageError.
        """
        keys = [(topic, index) for index in indexes]
        for log_dir in self.online:
            with contextlib.suppress(DirectoryFailed):
                log_dir.data.forget_offsets(keys)

    def open_partition(
        self, topic: str, index: int, topic_id: bytes, config: LogConfig, directory_id: bytes | None, now_ms: int
    ) -> PartitionLog:
        """Opens a partition where its folder is, or creates it in the directory with that id.

        Raises DirectoryFailed if its directory failed, and StorageError, also if its directory is not among the
        configured ones: creating the partition elsewhere would lose its records.
        """
        holder = self._found.pop((topic, index), None)
        is_new = holder is None
        if holder is None:
            holder = self._holder(topic, index, directory_id)
        holder.placed = max(0, holder.placed - 1)
        try:
            return self._open(holder, topic, index, topic_id, config, now_ms)
        except StorageError:
            # Its remains would block the next topic of that name; those of an open log are not its own.
            if is_new and (topic, index) not in holder.logs:
                with contextlib.suppress(StorageError):
                    holder.data.discard_partition(topic, index)
            raise

    def _holder(self, topic: str, index: int, directory_id: bytes | None) -> LogDir:
        """The directory for a partition whose folder was not found."""
        is_named = directory_id is not None and directory_id >= FIRST_DIRECTORY_ID
        for log_dir in self.directories:
            if log_dir.id == directory_id:
                return log_dir
        for log_dir in self.unusable:
            if not is_named or log_dir.id in (None, directory_id):
                raise DirectoryFailed(log_dir.failure)
        if is_named:
            raise StorageError(f"{topic}-{index} is in a data directory that is not configured: add it to log.dirs")
        return self.directories[0]

    def id_of(self, log: PartitionLog) -> bytes | None:
        """Returns the id of the directory in which this open log is."""
        return next((log_dir.id for log_dir in self.directories if log_dir.holds(log)), None)

    def _open(
        self, holder: LogDir, topic: str, index: int, topic_id: bytes, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        upgrade = self.upgrade.watch(topic, index) if self.upgrade else None
        on_checked = self.opening.watch(topic, index) if self.opening else None
        log = holder.data.open_partition(
            topic, index, topic_id=topic_id, config=config, now_ms=now_ms, upgrade=upgrade, on_checked=on_checked
        )
        holder.logs[topic, index] = log
        for loss in log.losses:
            _log_loss(log, loss)
        return log

    def note_losses(self) -> None:
        """Writes the checkpoints of directories that have lost records, so that the next start does not report the same
        loss again. Raises StorageError.
        """
        for log_dir in self.online:
            if any(log.losses for log in log_dir.logs.values()):
                with contextlib.suppress(DirectoryFailed):
                    log_dir.data.write_checkpoints()

    def holder(self, log: PartitionLog) -> LogDir:
        """Returns the directory of an open log. Raises StorageError if it has none any more."""
        for log_dir in self.directories:
            if log_dir.holds(log):
                return log_dir
        raise StorageError(f"{log.topic}-{log.partition} is in no log directory")

    def delete(self, log: PartitionLog, *, at_once: bool = False) -> None:
        """Deletes a partition. Its files are removed after a delay, or `at_once`. Raises StorageError."""
        for log_dir in self.directories:
            if log_dir.holds(log):
                self.on_delete(log)
                if (cancel := self.moving.pop((log.topic, log.partition), None)) is not None:
                    cancel()
                del log_dir.logs[log.topic, log.partition]
                remove = log_dir.data.delete_partition(log.topic, log.partition)
                remove() if at_once else self.later(remove)

    def replaced(self, old: PartitionLog, source: LogDir, new: PartitionLog, target: LogDir) -> None:
        """Adopts the new log of a partition that has moved; the old folder is removed after a delay. If that fails, a
        later start puts it aside.
        """
        self.on_delete(old)
        key = old.topic, old.partition
        target.logs[key] = new
        del source.logs[key]
        try:
            self.later(source.data.delete_partition(*key))
        except StorageError as error:
            old.abandon()
            get_logger().error("old folder of a moved partition not removed", folder=repr(old), reason=str(error))

    def close(self) -> None:
        """Flushes and closes everything. Tries all directories, then raises the first StorageError."""
        self._each(self.directories, lambda log_dir: log_dir.data.close(SYNC_THREADS))

    @staticmethod
    def _each(directories: Sequence[LogDir], work: Callable[[LogDir], None]) -> None:
        failures: list[StorageError] = []
        for log_dir in directories:
            try:
                work(log_dir)
            except StorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def release(self) -> None:
        """Releases the directories without closing them, as after a crash."""
        for log_dir in self.directories:
            log_dir.data.abandon()


def _finish_restores(files: Files, paths: Sequence[Path]) -> dict[Path, UnusableDir]:
    """Completes interrupted restores of snapshots, before a directory is opened. Returns the directories whose disks
    failed in it. Raises StorageError if a restore cannot be completed for another reason.
    """
    unusable: dict[Path, UnusableDir] = {}
    if not any(files.exists(os.path.join(path, RESTORE)) for path in paths):
        return unusable
    from ...storage import restore  # needed for few starts, and takes 2 ms of one

    by_name = {os.path.abspath(path): path for path in paths}
    for problem in restore.finish(files, paths):
        if not restore.is_planned(files, problem.path):
            get_logger().warning("restore of a snapshot not completed", log_dir=problem.path, reason=problem.reason)
        elif problem.is_transient:
            raise StorageError(f"{problem.path}: {problem.reason}")
        else:
            path = by_name[problem.path]
            unusable[path] = UnusableDir(problem.path, f"{problem.path}: {problem.reason}", _stored_id(files, path))
    return unusable


def _log_loss(log: PartitionLog, loss: Loss) -> None:
    """Logs the records that a log has lost."""
    facts: dict[str, object] = {
        "topic": log.topic,
        "partition": log.partition,
        "log_dir": os.path.dirname(log.directory),
    }
    facts |= {"log_start_offset": log.log_start_offset, "log_end_offset": log.log_end_offset}
    if loss.dropped_bytes:
        facts |= {"bytes": loss.dropped_bytes, "batches": loss.batches, "records": loss.records}
    if loss.is_torn:
        get_logger().warning(loss.kind, **facts)
        return
    facts["lost_offsets"] = f"{loss.first}..{loss.end - 1}"
    if loss.end > log.log_end_offset:
        facts["advice"] = (
            f"offsets from {log.log_end_offset} on will be assigned again: to recover the old records, stop the broker"
            " before anything is produced and restore a copy of the folder"
        )
    get_logger().error(loss.kind, **facts)


def _check_unusable(files: Files, unusable: Sequence[UnusableDir], usable: Sequence[str]) -> None:
    """Raises StorageError if the metadata log may be in an unusable directory. A first start is refused too: a cluster
    id made without that directory would not match its own.
    """
    if unusable and not any(files.exists(os.path.join(path, f"{METADATA_TOPIC}-0")) for path in usable):
        problem = f"no usable directory has {METADATA_TOPIC}-0: " if usable else ""
        raise StorageError(problem + "; ".join(log_dir.failure for log_dir in unusable))


def _stored_node_id(files: Files, paths: Sequence[Path], otherwise: int) -> int:
    """Returns the node id of the first readable directory that was used before, else `otherwise`."""
    for path in paths:
        try:
            stored = stored_node_id(files, path)
        except StorageError as error:
            if lasting_error(error) is None:
                raise
            continue
        if stored is not None:
            return stored
    return otherwise


def _stored_id(files: Files, path: Path) -> bytes | None:
    """Returns the id of an unusable directory if it can be read."""
    name = os.path.join(path, META_PROPERTIES)
    try:
        return decode_id(parse_meta_properties(files.read_bytes(name), name)["directory.id"])
    except (OSError, StorageError, KeyError, ValueError):
        return None

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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.internal_records.metadata_values import TOPIC as METADATA_TOPIC
from ...protocol.internal_records.metadata_values import TOPIC_ID as METADATA_TOPIC_ID
from ...protocol.named import NamedTuple
from ...storage.config import LogConfig
from ...storage.errors import DirectoryFailed, StorageError
from ...storage.format.file_names import META_PROPERTIES, RESTORE
from ...storage.format.meta_properties import read_meta_properties, stored_node_id
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


class UnusableDir(NamedTuple):
    """A data directory that could not be opened at the start. `id` is None if it could not be read."""

    path: str
    failure: str
    id: bytes | None


class LogDirs:
    """All data directories. Made by `open`; ended by `close`, or by `release` after a failed start."""

    def __init__(self, all: Sequence[DataDirectory | UnusableDir]) -> None:
        self.all = all
        """All directories, in the order in which they were given."""
        self.directories = directories = [log_dir for log_dir in all if isinstance(log_dir, DataDirectory)]
        """The directories that were opened; some may have failed since."""
        self.unusable = [log_dir for log_dir in all if isinstance(log_dir, UnusableDir)]
        self.metadata_dir = directories[0]
        """The directory with the metadata log."""
        self.cluster_id = directories[0].cluster_id
        self.node_id = directories[0].node_id
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
        self.on_offline: Callable[[DataDirectory], None] = lambda log_dir: None
        """Called, in any thread, when a directory has failed; its logs refuse all operations already."""
        self.moving: dict[tuple[str, int], Callable[[], None]] = {}
        """The partitions that move to another directory, each with a function that cancels the move."""
        self._preferred: dict[tuple[str, int], DataDirectory] = {}  # for partitions that do not exist yet
        self._placed: Counter[bytes] = Counter()  # partitions that are about to be created, by directory id
        self._found: dict[tuple[str, int], DataDirectory] = {}  # folders found at the start, until they are opened
        for log_dir in directories:
            log_dir.on_failure = functools.partial(self._failed, log_dir)
            for key in log_dir.partitions():
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
            for path, data in list(taken.items()):
                try:
                    data.begin(cluster_id)
                except DirectoryFailed as error:
                    taken.pop(path).abandon()
                    unusable[path] = UnusableDir(data.path, str(error), _stored_id(files, path))
                    continue
                cluster_id = data.cluster_id
                for warning in data.warnings:
                    get_logger().warning("checkpoint not readable, its partitions are recovered", reason=warning)
            _check_unusable(files, list(unusable.values()), [data.path for data in taken.values()])
        except BaseException:
            for data in taken.values():
                data.abandon()
            raise
        return cls([taken[path] if path in taken else unusable[path] for path in paths])

    @property
    def online(self) -> list[DataDirectory]:
        """The directories that have not failed."""
        return [log_dir for log_dir in self.directories if log_dir.failure is None]

    def _failed(self, log_dir: DataDirectory) -> None:
        get_logger().error(
            "log directory failed, its partitions are offline",
            log_dir=log_dir.path,
            reason=log_dir.failure,
            partitions=len(log_dir.logs),
        )
        self.on_offline(log_dir)

    def metadata_holder(self) -> DataDirectory | None:
        """Returns the directory in which a metadata log was found, or None."""
        return self._found.get((METADATA_TOPIC, 0))

    def holds_partitions(self) -> bool:
        """Returns whether any partition was found besides the metadata log."""
        return any(topic != METADATA_TOPIC for topic, _ in self._found)

    def begin_metadata(self, prepared: str, holder: DataDirectory) -> None:
        """Makes the prepared folder the metadata log, after setting an existing one aside. Raises StorageError."""
        if self.metadata_holder() is holder:
            holder.set_aside(METADATA_TOPIC, 0)
        holder.forget_offsets([(METADATA_TOPIC, 0)])  # they belong to the other log, which may have been longer
        holder.put_in_place(prepared, METADATA_TOPIC, 0)
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
        holders: dict[tuple[str, int], list[DataDirectory]] = {}
        aside = {key for log_dir in self.online for key in log_dir.partitions() if key[0] != METADATA_TOPIC}
        for log_dir in self.online:
            with contextlib.suppress(DirectoryFailed):  # its partitions are offline then
                for key in log_dir.partitions():
                    if key[0] != METADATA_TOPIC:
                        topic_id = log_dir.topic_id(*key)
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
                log_dir.forget_offsets(aside)  # they belong to the folders, which may be of deleted topics

    def _put_aside(self, log_dir: DataDirectory, key: tuple[str, int], of: str) -> None:
        end_offset = log_dir.noted_end(*key)
        renamed = log_dir.set_aside(*key)
        get_logger().warning(
            f"folder of {of} put aside",
            topic=key[0],
            partition=key[1],
            folder=renamed,
            log_end_offset=end_offset,
        )

    def prefer(self, topic: str, index: int, log_dir: DataDirectory) -> None:
        """Sets the directory for a partition that does not exist yet. Beyond PREFERRED_MAX the oldest entry is
        dropped.
        """
        self._preferred.pop((topic, index), None)
        self._preferred[topic, index] = log_dir
        if len(self._preferred) > PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]

    def is_cordoned(self, log_dir: DataDirectory) -> bool:
        """Returns whether `cordoned.log.dirs` excludes a directory from new partitions."""
        cordoned = self.cordoned()
        return EVERY_DIRECTORY in cordoned or str(log_dir.path) in map(os.path.abspath, cordoned)

    def place(self, topic: str = "", index: int = -1) -> bytes:
        """Chooses the directory of a new partition and returns its id. Raises StorageError if none is left."""
        preferred = self._preferred.pop((topic, index), None)
        online = self.online if preferred is None or preferred.failure is not None else [preferred]
        open_ones = [one for one in online if not self.is_cordoned(one)]  # if all are cordoned, one takes it
        chosen = min(
            open_ones or online, key=lambda log_dir: len(log_dir.logs) + self._placed[log_dir.id], default=None
        )
        if chosen is None:
            raise StorageError("all log directories are offline")
        if len(self.directories) > 1:
            self._placed[chosen.id] += 1
        return chosen.id

    def forget_offsets(self, topic: str, indexes: Iterable[int]) -> None:
        """Removes the checkpointed offsets of deleted partitions, durably, before new partitions get the same names.
        Raises StorageError.
        """
        keys = [(topic, index) for index in indexes]
        for log_dir in self.online:
            with contextlib.suppress(DirectoryFailed):
                log_dir.forget_offsets(keys)

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
        self._placed[holder.id] = max(0, self._placed[holder.id] - 1)
        try:
            return self._open(holder, topic, index, topic_id, config, now_ms)
        except StorageError:
            # Its remains would block the next topic of that name; those of an open log are not its own.
            if is_new and (topic, index) not in holder.logs:
                with contextlib.suppress(StorageError):
                    holder.discard_partition(topic, index)
            raise

    def _holder(self, topic: str, index: int, directory_id: bytes | None) -> DataDirectory:
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

    def _open(
        self, holder: DataDirectory, topic: str, index: int, topic_id: bytes, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        upgrade = self.upgrade.watch(topic, index) if self.upgrade else None
        on_checked = self.opening.watch(topic, index) if self.opening else None
        log = holder.open_partition(
            topic, index, topic_id=topic_id, config=config, now_ms=now_ms, upgrade=upgrade, on_checked=on_checked
        )
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
                    log_dir.write_checkpoints()

    def holder(self, log: PartitionLog) -> DataDirectory:
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
                remove = log_dir.delete_partition(log.topic, log.partition)
                remove() if at_once else self.later(remove)

    def replaced(self, old: PartitionLog, source: DataDirectory) -> None:
        """Deletes the old log of a partition that has moved; its folder is removed after a delay. If that fails, a
        later start puts it aside.
        """
        self.on_delete(old)
        try:
            self.later(source.delete_partition(old.topic, old.partition))
        except StorageError as error:
            get_logger().error("old folder of a moved partition not removed", folder=repr(old), reason=str(error))

    def close(self) -> None:
        """Flushes and closes everything. Tries all directories, then raises the first StorageError."""
        failures: list[StorageError] = []
        for log_dir in self.directories:
            try:
                log_dir.close(SYNC_THREADS)
            except StorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def release(self) -> None:
        """Releases the directories without closing them, as after a crash."""
        for log_dir in self.directories:
            log_dir.abandon()


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
    try:
        return decode_id(read_meta_properties(files, path)["directory.id"])
    except (OSError, StorageError, KeyError, ValueError):
        return None

"""One data directory (Kafka's log.dir): its lock, its identity, its partitions and its checkpoints.

Manages the files beside the partition folders: `.lock`, `meta.properties`, `.kafka_cleanshutdown` and the offset
checkpoints. Only the directory and its lock file are created before the lock is held and the arguments are checked.

A directory fails as a whole, and once: after the first lasting disk error, of the directory or of one of its logs, all
of them refuse every call, and nothing more is written, including the clean shutdown marker. The next start recovers.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ...protocol.limits import INT32_MAX
from ...protocol.primitives import ZERO_UUID
from ...protocol.properties import format_properties
from ..config import LogConfig
from ..errors import DirectoryFailed, DirectoryLocked, StorageError, storage_errors
from ..format import checkpoint, clean_close, file_names
from ..format.file_names import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_BYTES, LOCK, META_PROPERTIES, METADATA_TOPIC, RESTORE
from ..format.meta_properties import read_meta_properties
from ..format.partition_metadata import decode_id, encode_id, read_topic_id
from ..io import random_ids
from ..io.disk_errors import is_transient, lasting_error
from ..io.files import Files, write_atomically
from ..io.folder_copies import remove_tree
from ..log.losses import FOLDER_GONE, Loss
from ..log.recovery import LogCheckpoints
from ..partition_log import LogOwner, PartitionLog, TopicIdPartition
from .offset_checkpoints import OffsetCheckpoints

if TYPE_CHECKING:
    from ..log.recovery import OnChecked
    from ..log.upgrade import OnUpgrade

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
FEW_LOGS = 32  # for fewer, threads would cost more than they save

TopicPartition = tuple[str, int]


def new_id() -> bytes:
    """Returns a random id that is not zero and does not begin with "-", as Kafka's do."""
    while True:
        value = random_ids.uuid4()
        if not encode_id(value).startswith("-"):
            return value


class DataDirectory:
    """An open data directory. Made by `open`, or by `take` and `begin`; ended by `close`. Raises StorageError only."""

    def __init__(self, files: Files, path: str, release: Callable[[], None], pick: Callable[[int], int]):
        self._files = files
        self._release = release
        self._pick = pick
        self._unopened: set[TopicPartition] = set()
        self.logs: dict[TopicPartition, PartitionLog] = {}
        """The open logs."""
        self._noted = OffsetCheckpoints(files, path, self._unopened, self.logs)
        self.warnings = self._noted.warnings
        """Checkpoints that could not be read, one line each: their partitions are recovered from the start."""
        self._closed = False
        self._as_closed: dict[TopicPartition, clean_close.ClosedLog] = {}
        self._closed_well: set[TopicPartition] = set()  # since the directory was opened
        self._identity: dict[str, str] = {}
        self._failing = threading.Lock()
        self.path = path
        self.node_id = 0
        self.cluster_id = ""
        self.directory_id = ""
        self.was_clean = False
        self.is_new = False
        """Whether the directory had no meta.properties: no broker has used it yet."""
        self.futures: list[tuple[TopicPartition, str]] = []
        """Unfinished copies of partitions, with the paths of their folders: see future_log.py."""
        self.guests: set[PartitionLog] = set()
        """Logs of such copies, which go offline with the directory."""
        self.failure: str | None = None
        """The reason why the directory is offline, or None."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called once when `failure` is set, in the thread that met the error: a flush may run in any thread."""

    @classmethod
    def open(
        cls,
        files: Files,
        path: str | os.PathLike[str],
        *,
        node_id: int,
        cluster_id: str | None = None,
        make_id: Callable[[], bytes] = new_id,
        pick: Callable[[int], int] = random.randrange,
    ) -> DataDirectory:
        """Locks the directory (created if missing) and reads its identity and checkpoints; opens no partition.

        Without `cluster_id` the directory's own is used; a new directory gets one from `make_id`. Raises
        DirectoryLocked if the lock is held, DirectoryFailed if the disk does not work, StorageError if the directory
        belongs to another node or cluster.
        """
        if cluster_id is not None and not re.fullmatch(r"[a-zA-Z0-9._-]{1,255}", cluster_id):
            raise StorageError(f"cluster id {cluster_id!r} is malformed")
        directory = cls.take(files, path, node_id=node_id, pick=pick)
        try:
            directory.begin(cluster_id, make_id)
        except BaseException:
            directory.abandon()
            raise
        return directory

    @classmethod
    def take(
        cls, files: Files, path: str | os.PathLike[str], *, node_id: int, pick: Callable[[int], int] = random.randrange
    ) -> DataDirectory:
        """Locks the directory (created if missing) and reads its identity only: `begin` or `abandon` must follow.
        Raises like `open`."""
        if not 0 <= node_id <= INT32_MAX:
            raise StorageError(f"node id {node_id} is not in 0..2147483647")
        full_path: str = os.path.abspath(os.fspath(path))
        try:
            files.make_directory(full_path)
            lock = files.lock(os.path.join(full_path, LOCK))
        except BlockingIOError as error:
            raise DirectoryLocked(f"{full_path} is in use by another broker") from error
        except OSError as error:
            raise _unusable(full_path, error) from error
        directory = cls(files, full_path, lock.release, pick)
        try:
            if files.exists(os.path.join(full_path, RESTORE)):
                _refuse_planned_restore(files, full_path)
            directory._read_identity(node_id)
        except OSError as error:
            directory.abandon()
            raise _unusable(full_path, error) from error
        except BaseException:
            directory.abandon()
            raise
        return directory

    def begin(self, cluster_id: str | None, make_id: Callable[[], bytes] = new_id) -> None:
        """Writes the identity and reads the checkpoints, so that partitions can be opened. Raises like `open`."""
        try:
            self._identify(cluster_id, make_id)
            self._begin()
        except OSError as error:
            raise _unusable(self.path, error) from error
        except StorageError as error:
            if lasting_error(error) is not None:
                raise DirectoryFailed(str(error)) from error.__cause__
            raise

    @functools.cached_property
    def id(self) -> bytes:
        """The 16 bytes of the directory id, once it has one (KIP-858)."""
        return decode_id(self.directory_id)

    def holds(self, log: PartitionLog) -> bool:
        """Returns whether this open log is in this directory."""
        return self.logs.get((log.topic, log.partition)) is log

    def _join(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _read_identity(self, node_id: int) -> None:
        try:
            found = self._identity = read_meta_properties(self._files, self.path)
        except FileNotFoundError:
            found = {}
        self.is_new = not found
        self.node_id = node_id
        self.cluster_id = found.get("cluster.id", "")
        self.directory_id = found.get("directory.id", "")
        stored_node = found.get("node.id", found.get("broker.id"))
        if stored_node is not None and stored_node != str(node_id):
            raise StorageError(f"{self.path} belongs to node {stored_node}, not {node_id}")

    def check_cluster(self, cluster_id: str | None) -> None:
        """Raises StorageError if the directory belongs to a cluster other than this one."""
        if self.cluster_id and cluster_id and self.cluster_id != cluster_id:
            raise StorageError(f"{self.path} belongs to cluster {self.cluster_id}, not {cluster_id}")

    def _identify(self, cluster_id: str | None, make_id: Callable[[], bytes]) -> None:
        self.check_cluster(cluster_id)
        self.cluster_id = self.cluster_id or cluster_id or encode_id(make_id())
        self.directory_id = self.directory_id or encode_id(make_id())
        wanted = {
            "version": "1",
            "node.id": str(self.node_id),
            "cluster.id": self.cluster_id,
            "directory.id": self.directory_id,
        }
        if any(self._identity.get(key) != value for key, value in wanted.items()):
            write_atomically(self._files, self._join(META_PROPERTIES), format_properties(wanted))

    def _begin(self) -> None:
        """Removes the clean shutdown marker before anything is loaded, reads the checkpoints, removes deleted
        folders."""
        names = self._files.list(self.path)
        self.was_clean = CLEAN_SHUTDOWN in names
        self._noted.read()
        if self.was_clean:
            if self._files.read_bytes(self._join(CLEAN_SHUTDOWN)) == CLEAN_SHUTDOWN_BYTES:
                try:
                    self._as_closed = clean_close.read(self._files, self.path)
                except StorageError as error:
                    self.warnings.append(str(error))
            self._files.remove(self._join(CLEAN_SHUTDOWN))
            self._files.sync_directory(self.path)
        if clean_close.FILE_NAME in names:  # it belongs to this close, whose marker was removed, or to an older one
            clean_close.discard(self._files, self.path)
        for name in names:
            former, kind = file_names.aside_of(name)
            key = file_names.partition_of(former)
            if kind == "delete":
                self._remove_folder(self._join(name))
            elif key is not None and kind == "future":
                self.futures.append((key, self._join(name)))
            elif key is not None and not kind:
                self._unopened.add(key)

    # -- partitions

    def partitions(self) -> list[TopicPartition]:
        """Returns (topic, partition) of every partition folder, opened or not."""
        return sorted(self._unopened | self.logs.keys())

    def topic_id(self, topic: str, partition: int) -> bytes:
        """Returns the topic id in a partition's folder; zeros if it has none, or an incomplete one after a crash."""
        folder = self._folder(topic, partition)
        with self._failing_on_disk_error():
            try:
                return read_topic_id(self._files, folder)
            except StorageError as error:
                if self.was_clean or lasting_error(error) is not None:
                    raise
                return ZERO_UUID

    def open_partition(
        self,
        topic: str,
        partition: int,
        *,
        topic_id: bytes = ZERO_UUID,
        config: LogConfig,
        now_ms: int,
        kind: type[PartitionLog] = PartitionLog,
        upgrade: OnUpgrade | None = None,
        on_checked: OnChecked | None = None,
    ) -> PartitionLog:
        """Opens the log of a partition, which is made if it is missing. A `topic_id` of zeros stands for the one in the
        folder.

        `kind` is the class of the log; `upgrade` and `on_checked` as in `LogOwner`. Raises DirectoryFailed if a lasting
        disk error prevents the opening.
        """
        self._check_open()
        key = (topic, partition)
        if key in self.logs:
            raise StorageError(f"{topic}-{partition} is already open")
        existed = key in self._unopened
        if not existed and not self._files.exists(self.path):  # creating the folder would create the directory as well
            self.fail(f"{self.path} is gone")
            self._check_open()
        checkpoints = self._checkpoints_of(key)
        if not existed:
            self.forget_offsets((key,))
        with self._failing_on_disk_error():
            log = kind.open(
                self._files,
                self._folder(topic, partition),
                TopicIdPartition(topic, partition, topic_id),
                config=config,
                now_ms=now_ms,
                checkpoints=checkpoints if existed else LogCheckpoints(clean_shutdown=True),
                owner=LogOwner(self._noted.log_start_moves, self._pick, on_checked, upgrade),
            )
        if not existed and checkpoints.end_offset:
            log.losses = [Loss(FOLDER_GONE, 0, checkpoints.end_offset)]
        log.on_failure = self.log_failed
        self.logs[key] = log  # first: a checkpoint written in between must have the partition
        self._unopened.discard(key)
        self._closed_well.discard(key)
        self._as_closed.pop(key, None)
        if log.has_hole and key not in self._noted.cleaned:  # it must not count as damage if the cleanup policy changes
            self.cleaned(log, log.log_start_offset)
        return log

    def _checkpoints_of(self, key: TopicPartition) -> LogCheckpoints:
        """Returns the state of a partition according to the files beside the partitions. The metadata log must be
        whole, since it has the names of all other partitions."""
        as_closed = self._as_closed.get(key) if key not in self._closed_well else None
        noted = {name: offsets[key] for name, offsets in self._noted.offsets.items() if key in offsets}
        recovery_point = noted.get(checkpoint.RECOVERY_POINT, 0)
        end = max(recovery_point, noted.get(checkpoint.REPLICATION_OFFSET, 0))
        return LogCheckpoints(
            clean_shutdown=self.was_clean or key in self._closed_well,
            recovery_point=recovery_point,
            log_start_offset=noted.get(checkpoint.LOG_START_OFFSET, 0),
            has_gaps=checkpoint.CLEANER_OFFSET in noted,
            end_offset=as_closed.log_end_offset if as_closed else end,
            closed=as_closed,
            must_be_whole=key[0] == METADATA_TOPIC,
        )

    def noted_end(self, topic: str, partition: int) -> int:
        """Returns the highest checkpointed offset that a log had reached; 0 if there is none."""
        return self._checkpoints_of((topic, partition)).end_offset

    def delete_partition(self, topic: str, partition: int) -> Callable[[], None]:
        """Deletes a partition at once: its folder is renamed, durably, since a new partition of that name must not find
        it after a power loss. Its log is closed, also after an error. Call the returned function to remove the files.

        If that is never called, the next start on the directory removes them.
        """
        self._check_open()
        key = (topic, partition)
        folder = self._folder(topic, partition)
        renamed = self._join(file_names.aside_name(topic, partition, "delete"))
        log = self.logs.pop(key, None)  # first: after an error the log would block the next partition of that name
        if log is not None:
            log.abandon()  # before the sync, which may need the descriptor that this frees
        with self._failing_on_disk_error(), storage_errors(f"cannot delete {folder}"):
            self._files.replace(folder, renamed)
            self._unopened.discard(key)
            self._files.sync_directory(self.path)
        self.write_cleaner_offset(topic, partition, None)
        return lambda: self._remove_deleted(renamed)

    def discard_partition(self, topic: str, partition: int) -> None:
        """Removes the files of a new partition that could not be opened, if there are any. Raises StorageError."""
        if self._files.exists(self._folder(topic, partition)):
            self.delete_partition(topic, partition)()

    def set_aside(self, topic: str, partition: int, copy: str | None = None) -> str:
        """Renames the folder of an unknown partition, or a `copy`, to `...-stray`, which is kept; returns its path."""
        self._check_open()
        if copy is None and (topic, partition) in self.logs:
            raise StorageError(f"{topic}-{partition} is open")
        folder = copy or self._folder(topic, partition)
        renamed = self._join(file_names.aside_name(topic, partition, "stray"))
        with self._failing_on_disk_error(), storage_errors(f"cannot rename {folder}"):
            self._files.replace(folder, renamed)
        if copy is None:
            self._unopened.discard((topic, partition))
        return renamed

    def put_in_place(
        self, prepared: str, topic: str, partition: int, *, end_offset: int = 0, log_start_offset: int = 0
    ) -> None:
        """Renames a durable folder of this directory to that of a partition, durably.

        `end_offset` is the log end offset at its close; `log_start_offset` is needed if it lies above the first
        segment's base.
        """
        self._check_open()
        folder, key = self._folder(topic, partition), (topic, partition)
        with self._noted.writing:  # a checkpoint written in between would omit the partition
            if log_start_offset:
                self._noted.write_log_start(key, log_start_offset)
            with storage_errors(f"cannot rename {prepared} to {folder}"):
                self._files.replace(prepared, folder)
                self._files.sync_directory(self.path)
            self._unopened.add(key)
            self._as_closed.pop(key, None)
            if end_offset:
                self._closed_well.add(key)
                for name in (checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET):
                    self._noted.offsets[name][key] = end_offset

    def _folder(self, topic: str, partition: int) -> str:
        if not _TOPIC.fullmatch(topic) or topic in (".", "..") or not 0 <= partition <= INT32_MAX:
            raise StorageError(f"{topic!r}-{partition} is not a valid partition")
        return self._join(f"{topic}-{partition}")

    def _remove_deleted(self, path: str) -> None:
        if self.failure is None:  # otherwise the next start removes it
            with self._failing_on_disk_error():
                self._remove_folder(path)

    def _remove_folder(self, path: str) -> None:
        with storage_errors(f"cannot remove {path}"), contextlib.suppress(FileNotFoundError):
            remove_tree(self._files, path)

    # -- checkpoints

    def forget_offsets(self, keys: Iterable[TopicPartition]) -> None:
        """Removes partitions that do not exist here from the checkpoints, durably: to be called before new partitions
        of these names are recorded, which must not inherit the offsets of deleted ones."""
        self._check_open()
        gone = [key for key in keys if key not in self._unopened and key not in self.logs]
        for key in gone:
            self._as_closed.pop(key, None)
        with self._failing_on_disk_error():
            self._noted.forget(gone)

    def note_log_starts(self, moves: Mapping[PartitionLog, int]) -> None:
        """Makes log starts durable that logs are about to adopt; adopting them then writes nothing. May run in any
        thread."""
        self._check_open()
        with self._failing_on_disk_error():
            self._noted.write_log_starts(moves)

    def write_checkpoints(self, *names: str) -> None:
        """Writes the current offsets of these checkpoints, by default of all but the cleaner's; to be called
        periodically, in any thread. Each log start was written before it moved: its file only loses outdated lines."""
        self._check_open()
        with self._failing_on_disk_error():
            self._noted.write(*names)

    def cleaner_offset(self, topic: str, partition: int) -> int | None:
        """Returns the offset up to which a partition was cleaned; None if it never was. Below it offsets may be
        missing."""
        return self._noted.cleaned.get((topic, partition))

    def write_cleaner_offset(self, topic: str, partition: int, offset: int | None) -> None:
        """Records durably up to which offset a partition is clean, or with None that it is dirty from its start on."""
        self._check_open()
        self._write_cleaner_offset((topic, partition), offset, self.logs.get((topic, partition)))

    def cleaned(self, log: PartitionLog, offset: int) -> None:
        """Records durably up to which offset an open log is clean, in any thread; does nothing if the log was
        deleted."""
        self._check_open()
        self._write_cleaner_offset((log.topic, log.partition), offset, log)

    def _write_cleaner_offset(self, key: TopicPartition, offset: int | None, log: PartitionLog | None) -> None:
        with self._failing_on_disk_error():
            self._noted.write_cleaned(key, offset, log)

    # -- disk failures

    def fail(self, reason: str) -> None:
        """Takes the directory and its logs offline: they refuse every call from here on. The first reason is kept."""
        with self._failing:
            if self.failure is not None:
                return
            self.failure = reason
        for log in (*list(self.logs.values()), *self.guests.copy()):
            log.fail(reason)
        self.on_failure()

    def log_failed(self, log: PartitionLog, error: OSError) -> None:
        """Handles a disk error of a log. A transient one affects only the log, unless it has lost written data."""
        if log.failure is not None or not is_transient(error):
            self.fail(str(error))

    @contextlib.contextmanager
    def _failing_on_disk_error(self) -> Generator[None]:
        """Within the context, a lasting disk error fails the directory and is raised as DirectoryFailed."""
        try:
            yield
        except StorageError as error:
            cause = lasting_error(error)
            if cause is None:
                raise
            self.fail(str(cause))
            raise DirectoryFailed(str(error)) from cause

    # -- closing

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"{self.path} is closed")
        if self.failure is not None:
            raise DirectoryFailed(f"{self.path} is offline: {self.failure}")

    def save(self) -> bool:
        """Writes everything that `close` writes except the clean shutdown marker, and stays open; returns whether a
        copy of the directory in this state may have the marker. Raises StorageError."""
        self._check_open()
        with self._failing_on_disk_error():
            for log in self.logs.values():
                log.save()
            self._noted.write()
            with storage_errors(f"cannot record the log end offsets of {self.path}"):
                self._write_closed()
        return self.was_clean or not self._unopened

    def _write_closed(self) -> None:
        """Records the state of the logs at the close; logs that were not opened keep theirs."""
        kept = {key: log for key, log in self._as_closed.items() if key in self._unopened}
        clean_close.write(self._files, self.path, kept | {key: log.as_closed() for key, log in self.logs.items()})

    def close(self, threads: int = 1) -> None:
        """Closes all logs, in `threads` threads, since a journalling file system combines their syncs; writes the
        checkpoints, then the clean shutdown marker, and releases the lock.

        The marker is not written if a log could not be closed, or if partitions that needed recovery were never opened:
        the next start then recovers. The first such error is raised at the end. A second close does nothing. A failed
        directory is only released.
        """
        if self.failure is not None:
            self.abandon()
        if self._closed:
            return
        self._closed = True
        failure: StorageError | None = None
        try:
            failure = next(iter(_close_all(list(self.logs.values()), threads)), None)
            self._noted.write()
            if failure is None and self.failure is None and (self.was_clean or not self._unopened):
                self._write_closed()
                write_atomically(self._files, self._join(CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_BYTES)
        except OSError as error:
            failure = failure or StorageError(f"cannot close {self.path}: {error}")
        except StorageError as error:
            failure = failure or error
        finally:
            self._release()
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Releases lock and files like a killed process: nothing is written, the next start recovers."""
        if not self._closed:
            self._closed = True
            for log in (*self.logs.values(), *self.guests):
                log.abandon()
            with contextlib.suppress(OSError):
                self._release()


@contextlib.contextmanager
def held_lock(files: Files, root: str, *, may_create: bool = False, may_fail: bool = False) -> Generator[None]:
    """Holds the lock of a data directory whose logs are not opened. A directory without a lock file is not in use; with
    `may_create` it gets one. `may_fail`: a copy on a read-only disk needs none. Raises DirectoryLocked,
    StorageError."""
    path = os.path.join(root, LOCK)
    with contextlib.ExitStack() as held:
        if may_create or files.exists(path):
            try:
                held.callback(files.lock(path).release)
            except BlockingIOError as error:
                raise DirectoryLocked(f"{root} is in use by a broker") from error
            except OSError as error:
                if not may_fail:
                    raise StorageError(f"cannot lock {root}: {error}") from error
        yield


def _close_all(logs: Sequence[PartitionLog], threads: int) -> list[StorageError]:
    """Closes logs in `threads` threads, or a few of them in this one; returns the errors in the order of the logs."""

    def closed(log: PartitionLog) -> StorageError | None:
        try:
            log.close()
        except StorageError as error:
            return error
        return None

    if threads == 1 or len(logs) <= FEW_LOGS:
        found = list(map(closed, logs))
    else:
        with ThreadPoolExecutor(threads, "ottla-close") as pool:
            found = list(pool.map(closed, logs))
    return [error for error in found if error is not None]


def _refuse_planned_restore(files: Files, path: str) -> None:
    from .. import restore  # needed for few starts, and takes 2 ms of one

    if restore.is_planned(files, path):
        raise StorageError(f"{path}: {restore.described(files, path)}")


def _unusable(path: str, error: OSError) -> StorageError:
    kind = StorageError if is_transient(error) else DirectoryFailed
    return kind(f"cannot use {path}: {error}")

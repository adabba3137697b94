"""Snapshots of a broker's whole state, and their restore: files, clock, and running nodes.

Defines the contents of a snapshot, and the order in which a running broker changes to another state: connections are
closed as by a fast restart, the old state writes nothing more, and the new state is opened like a data directory that
was closed, with the same listener sockets. Files in memory are forked, which costs time by the number of files.

Files on a disk are copied to the system's folder for temporary files. A restore copies them beside the contents of the
directories, while the old state is served, and decides in one step (storage/restore.py). Before the decision every
error leaves the old state in service; after it the restore is completed by this process or by the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...storage import restore as restores
from ...storage.errors import StorageError
from ...storage.format.file_names import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_BYTES
from ...storage.io import folder_copies
from ...storage.io.files import Files
from ...storage.io.folder_copies import Entry
from ...storage.io.memory import MemoryFiles
from ...storage.restore import DirectoryCopy, Staged
from ..broker_state import BrokerState
from ..metadata.topology import TopologyNote
from ..virtual_clock import ClockNote, VirtualClock
from .views import OperationError

if TYPE_CHECKING:
    from ..network.server import Running

SETTLING_SECONDS = 30.0  # for running appends and syncs; busy producers may start more of them all the time
ENDING_SECONDS = 5.0  # for work in threads that uses the old state's files
SPARE_BYTES = 1 << 20  # for the folders themselves, and for writes of a running broker during the copy
CLOSING_STEPS = 1000  # of the loop, until aborted connections have closed


class SnapshotFolders:
    """Copies of data directories on the disk; they are removed with this object."""

    def __init__(self, files: Files, clean: Mapping[str, bool]) -> None:
        """Copies the directories, which must not change meanwhile; `clean` is whether each is in the state of a cleanly
        closed one. Raises OSError, StorageError, OperationError."""
        self._entries = [restores.entries(files, path) for path in clean]
        self._clean = list(clean.values())
        check_room([(tempfile.gettempdir(), entries) for entries in self._entries])
        self.root = tempfile.mkdtemp(prefix="ottla-snapshot-")
        self._remove = weakref.finalize(self, shutil.rmtree, self.root, ignore_errors=True)
        try:
            for number, path in enumerate(clean):
                copy = os.path.join(self.root, str(number))
                files.make_directory(copy)
                folder_copies.copy(files, path, copy, self._entries[number])
        except BaseException:
            self._remove()
            raise

    def stage(self, files: Files, paths: Sequence[str], first: str) -> Staged:
        """Copies everything into the data directories, durably and without changing their contents; the decision will
        be written to the directory `first`. Raises OSError, StorageError, OperationError; then the copies are
        removed."""
        for path in paths:
            _check_mounts(path)
        check_room([(path, entries) for path, entries in zip(paths, self._entries, strict=True)])
        copies = [
            DirectoryCopy(path, os.path.join(self.root, str(number)), self._entries[number], self._clean[number])
            for number, path in enumerate(paths)
        ]
        return restores.stage(files, sorted(copies, key=lambda one: one.target != first))


def check_room(needs: Sequence[tuple[str, Sequence[Entry]]]) -> None:
    """Raises OperationError if a file system has no room for copies of these entries below these paths."""
    needed: dict[int, int] = {}
    for path, entries in needs:
        while not os.path.exists(path):
            path = os.path.dirname(path)
        device, free = os.stat(path).st_dev, free_bytes(path)
        needed[device] = needed.get(device, SPARE_BYTES) + folder_copies.room_for(entries)
        if needed[device] > free:
            raise OperationError(
                f"no room for the copy: {path} needs {needed[device]} bytes on its file system, which has {free} free"
            )


def free_bytes(path: str) -> int:
    """Returns the bytes that this process may still write to the file system of a path."""
    found = os.statvfs(path)
    return found.f_frsize * found.f_bavail


def _check_mounts(path: str) -> None:
    """Raises OperationError if an entry of a data directory is a mount point, which cannot be renamed."""
    for name in sorted(os.listdir(path) if os.path.isdir(path) else ()):
        if name not in restores.LEFT_ALONE and os.path.ismount(os.path.join(path, name)):
            raise OperationError(f"{os.path.join(path, name)} is a mount point, which a restore cannot replace")


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """The state of a broker at one time, which can be restored any number of times. Callers must not change its parts.

    A snapshot of a broker in memory needs room only for later changes, and may be restored into any broker in memory
    that has the same release, log directories and node ids; the broker then has the snapshot's cluster id. A snapshot
    of a broker with data directories is a copy in the system's folder for temporary files, which is removed with this
    object.
    """

    release: str
    nodes: tuple[int, ...]
    paths: tuple[str, ...]
    cluster_id: str
    taken_ms: int
    clock: ClockNote | None
    topology: TopologyNote
    store: MemoryFiles | SnapshotFolders

    def __repr__(self) -> str:
        return f"<Snapshot of {self.cluster_id} at {self.taken_ms}>"


def _paths(state: BrokerState) -> tuple[str, ...]:
    return tuple(log_dir.path for log_dir in state.logs.all)


async def take(running: Running) -> Snapshot:
    """Returns the state when no append or sync is running any more. Raises OperationError, also if a disk has failed.

    Data directories on a disk are copied while all requests wait.
    """
    try:
        async with asyncio.timeout(SETTLING_SECONDS):
            await running.state.settle()
    except TimeoutError:
        raise OperationError(f"no snapshot could be taken: the broker was busy for {SETTLING_SECONDS:g} s") from None
    # No await from here on: the files and the facts noted with them must be of the same moment.
    state = running.state
    for log_dir in state.logs.all:
        if log_dir.failure is not None:
            raise OperationError(f"a log directory has failed, {log_dir.path}: {log_dir.failure}")
    try:
        are_closed = {log_dir.path: log_dir.save() for log_dir in state.logs.directories}
        state.clients.save()
        if isinstance(running.store, MemoryFiles):
            store: MemoryFiles | SnapshotFolders = running.store.fork()
            for path, is_closed in are_closed.items():
                if is_closed:
                    store.open(os.path.join(path, CLEAN_SHUTDOWN), create=True).write(0, CLEAN_SHUTDOWN_BYTES)
        else:
            store = SnapshotFolders(running.store, are_closed)
    except (StorageError, OSError, OperationError) as error:
        raise OperationError(f"no snapshot could be taken: {error}") from error
    return Snapshot(
        release=state.profile.name,
        nodes=state.nodes.ids,
        paths=_paths(state),
        cluster_id=state.cluster_id,
        taken_ms=state.clock.now_ms(),
        clock=state.clock.note() if isinstance(state.clock, VirtualClock) else None,
        topology=state.topology.note(),
        store=store,
    )


async def restore(running: Running, snapshot: Snapshot) -> None:
    """Replaces the broker's state by a snapshot; ports and faults stay. Connections are closed. Raises OperationError.
    Before data directories are replaced, the broker then continues with its old state. If the new files cannot be
    opened, the broker has failed, and another restore or the next start may help."""
    _check(running, snapshot)
    if isinstance(snapshot.store, SnapshotFolders):
        _finish_earlier(running)
        _decide(running, await _staged(running, snapshot.store))
    try:
        await _end(running)
        _begin(running, snapshot)
    finally:
        running.connections.stopping = False


async def _staged(running: Running, store: SnapshotFolders) -> Staged:
    """Copies the snapshot beside the contents of the data directories, in a thread, while the old state is served."""
    state = running.state
    work = asyncio.ensure_future(
        asyncio.to_thread(store.stage, running.store, _paths(state), state.logs.metadata_dir.path)
    )
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        with contextlib.suppress(StorageError, OSError, OperationError):
            (await work).clean_up()
        raise
    except (StorageError, OSError, OperationError) as error:
        raise OperationError(f"the snapshot could not be restored, the broker continues unchanged: {error}") from error


def _decide(running: Running, staged: Staged) -> None:
    try:
        staged.decide()
    except (StorageError, OSError) as error:
        try:
            staged.discard()
        except OSError:
            # The next start may find the decision and overwrite everything that is written until then.
            _fail(running, f"a restore could neither be decided nor discarded: {error}")
        raise OperationError(f"the snapshot could not be restored: {error}") from error


def _finish_earlier(running: Running) -> None:
    """Completes a restore that was decided and then failed. Raises OperationError."""
    if running.between_states:
        try:
            _finish(running)
        except StorageError as error:
            raise OperationError(f"an earlier restore could not be completed: {error}") from error


def _finish(running: Running) -> None:
    for problem in restores.finish(running.store, _paths(running.state)):
        raise StorageError(f"{problem.path}: {problem.reason}")


def _fail(running: Running, reason: str) -> None:
    if not running.state.failed.done():
        running.state.failed.set_result(reason)


def _begin(running: Running, snapshot: Snapshot) -> None:
    """Opens the snapshot in place of the state that has ended."""
    old = running.state
    running.between_states = True
    if isinstance(snapshot.store, MemoryFiles) and isinstance(running.store, MemoryFiles):
        store = snapshot.store.fork()
        store.now_ns = running.store.now_ns
        running.store = store
    clock = old.clock
    if isinstance(clock, VirtualClock):
        clock = clock.renewed(snapshot.clock)
    try:
        if isinstance(snapshot.store, SnapshotFolders):
            _finish(running)
        old.config.forget_dynamic()
        running.reopen(clock, snapshot.topology)
    except (StorageError, OSError) as error:
        _fail(running, f"a snapshot could not be restored: {error}")
        raise OperationError(f"the snapshot could not be restored: {error}") from error
    running.between_states = False


def _check(running: Running, snapshot: Snapshot) -> None:
    """Raises OperationError unless the snapshot fits the broker."""
    state = running.state
    if isinstance(snapshot.store, MemoryFiles) != isinstance(running.store, MemoryFiles):
        raise OperationError("a snapshot of data in memory cannot replace data directories, nor the other way round")
    if snapshot.paths != _paths(state):
        raise OperationError(
            f"the snapshot is of {', '.join(snapshot.paths)}, the broker has {', '.join(_paths(state))}"
        )
    if (snapshot.release, snapshot.nodes) != (state.profile.name, state.nodes.ids):
        raise OperationError(
            f"the snapshot is of {_named(snapshot.nodes)} of release {snapshot.release}, "
            f"the broker has {_named(state.nodes.ids)} of {state.profile.name}"
        )


def _named(nodes: tuple[int, ...]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"


async def _end(running: Running) -> None:
    """Ends the state: closes its connections, ends its work in threads and its timers, and releases its files."""
    state, connections = running.state, running.connections
    connections.stopping = True
    running.connections.cut()
    state.begin_stop()
    await state.finish_appends(ENDING_SECONDS)
    for _ in range(CLOSING_STEPS):
        running.connections.cut()
        if not connections.open:
            break
        await asyncio.sleep(0)
    state.abandon()

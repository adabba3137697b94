"""A broker's whole state, kept and brought back: its files, where its clock stands, which nodes run.

Owns what a snapshot holds and the order in which a running broker takes over another state: clients are cut off as by
a fast restart, nothing of the old state is written any more, and the new one is opened like any data directory that was
closed, behind the same sockets. Files in memory are forked, which costs what their names cost; those on a disk are
copied.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..storage.directory import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_BYTES, LOCK
from ..storage.errors import StorageError
from ..storage.memory_files import MemoryFiles
from .control.views import OperationError
from .state import BrokerState
from .topology import TopologyNote
from .virtual_clock import ClockNote, VirtualClock

if TYPE_CHECKING:
    from .server import Running

SETTLING_SECONDS = 30.0  # for appends and syncs that are under way, of which producers may send ever more
ENDING_SECONDS = 5.0  # for work in threads that uses the old state's files
LOST_TURNS = 1000  # of the loop, for connections that were aborted to be gone


class _Folders:
    """Copies of data directories on the disk, which go with this object."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ottla-snapshot-"))
        self._remove = weakref.finalize(self, shutil.rmtree, str(self.root), ignore_errors=True)
        try:
            for number, path in enumerate(paths):
                shutil.copytree(path, self.root / str(number), ignore=shutil.ignore_patterns(LOCK))
        except OSError:
            self._remove()
            raise

    def mark(self, number: int) -> None:
        """Says of a copy that it was closed."""
        (self.root / str(number) / CLEAN_SHUTDOWN).write_bytes(CLEAN_SHUTDOWN_BYTES)

    def put_back(self, paths: tuple[str, ...]) -> None:
        """Makes the directories what they were."""
        for number, path in enumerate(paths):
            os.makedirs(path, exist_ok=True)
            for entry in list(os.scandir(path)):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.remove(entry.path)
            shutil.copytree(self.root / str(number), path, dirs_exist_ok=True)


@dataclass(frozen=True, eq=False, slots=True)
class Snapshot:
    """What a broker held at one time, to be brought back any number of times. Nothing in it is for others to change.

    One of a broker in memory takes no more room than what has changed since, and may be restored into any broker in
    memory that has the same release, log directories and node ids; it brings its cluster id along. One of a
    broker with data directories is a copy in the system's folder for temporary files, which goes with this object.
    """

    release: str
    nodes: tuple[int, ...]
    paths: tuple[str, ...]
    cluster_id: str
    taken_ms: int
    clock: ClockNote | None
    topology: TopologyNote
    store: MemoryFiles | _Folders

    def __repr__(self) -> str:
        return f"<Snapshot of {self.cluster_id} at {self.taken_ms}>"


def _paths(state: BrokerState) -> tuple[str, ...]:
    return tuple(log_dir.path for log_dir in state.logs.all)


async def take(running: Running) -> Snapshot:
    """The state as it is when nothing is under way any more. Raises OperationError, also where a disk has failed.

    Data directories on a disk are copied while everything waits.
    """
    try:
        async with asyncio.timeout(SETTLING_SECONDS):
            await running.state.settle()
    except TimeoutError:
        raise OperationError(f"no snapshot could be taken: the broker was busy for {SETTLING_SECONDS:g} s") from None
    # From here on without an await: nothing may change between the files and what is noted beside them.
    state = running.state
    for log_dir in state.logs.all:
        if log_dir.failure is not None:
            raise OperationError(f"a log directory has failed, {log_dir.path}: {log_dir.failure}")
    paths = _paths(state)
    try:
        are_closed = {log_dir.path: log_dir.data.save() for log_dir in state.logs.directories}
        state.clients.save()
        if isinstance(running.store, MemoryFiles):
            store: MemoryFiles | _Folders = running.store.fork()
        else:
            store = _Folders(paths)
        for number, path in enumerate(paths):
            if not are_closed[path]:
                continue
            if isinstance(store, MemoryFiles):
                store.open(os.path.join(path, CLEAN_SHUTDOWN), create=True).write(0, CLEAN_SHUTDOWN_BYTES)
            else:
                store.mark(number)
    except (StorageError, OSError) as error:
        raise OperationError(f"no snapshot could be taken: {error}") from error
    return Snapshot(
        release=state.profile.name,
        nodes=state.nodes.ids,
        paths=paths,
        cluster_id=state.cluster_id,
        taken_ms=state.clock.now_ms(),
        clock=state.clock.note() if isinstance(state.clock, VirtualClock) else None,
        topology=state.topology.note(),
        store=store,
    )


async def restore(running: Running, snapshot: Snapshot) -> None:
    """Has the broker go on from a snapshot, with the ports and faults that it has. Clients are cut off. Raises
    OperationError; where the files could not be opened the broker has failed then, and another restore may help."""
    _check(running, snapshot)
    try:
        await _end(running)
        _begin(running, snapshot)
    finally:
        running.connections.stopping = False


def _begin(running: Running, snapshot: Snapshot) -> None:
    """Opens the snapshot in the place of the state that has ended."""
    old = running.state
    if isinstance(snapshot.store, MemoryFiles) and isinstance(running.store, MemoryFiles):
        store = snapshot.store.fork()
        store.now_ns = running.store.now_ns
        running.store = store
    clock = old.clock
    if isinstance(clock, VirtualClock):
        clock = clock.renewed(snapshot.clock)
    try:
        if not isinstance(snapshot.store, MemoryFiles):
            snapshot.store.put_back(snapshot.paths)
        old.config.forget_dynamic()
        running.reopen(clock, snapshot.topology)
    except (StorageError, OSError) as error:
        if not old.failed.done():
            old.failed.set_result(f"a snapshot could not be restored: {error}")
        raise OperationError(f"the snapshot could not be restored: {error}") from error


def _check(running: Running, snapshot: Snapshot) -> None:
    """Whether the snapshot fits the broker."""
    state = running.state
    if isinstance(snapshot.store, MemoryFiles) != isinstance(running.store, MemoryFiles):
        raise OperationError("a snapshot of data in memory and one of data directories cannot stand for each other")
    if snapshot.paths != _paths(state):
        raise OperationError(f"a snapshot of {', '.join(snapshot.paths)}, not of {', '.join(_paths(state))}")
    if (snapshot.release, snapshot.nodes) != (state.profile.name, state.nodes.ids):
        raise OperationError(
            f"a snapshot of {_named(snapshot.nodes)} of release {snapshot.release}, "
            f"not of {_named(state.nodes.ids)} of {state.profile.name}"
        )


def _named(nodes: tuple[int, ...]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"


async def _end(running: Running) -> None:
    """Ends the state: no connection, no work in a thread and no timer of it is left, and its files are given back."""
    state, connections = running.state, running.connections
    connections.stopping = True
    running.cut()
    state.begin_stop()
    await state.finish_appends(ENDING_SECONDS)
    for _ in range(LOST_TURNS):
        running.cut()
        if not connections.open:
            break
        await asyncio.sleep(0)
    state.abandon()

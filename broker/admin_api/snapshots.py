"""Snapshots of a broker's whole state, and their restore: its files, its clock, which nodes run.

Owns what a snapshot contains and the order in which a running broker changes to another state: connections are closed
as by a fast restart, nothing of the old state is written any more, and the new state is opened like a data directory
that was closed, with the same sockets. Files in memory are forked, which costs what their names cost.

Files on a disk are copied. A restore copies them beside what the directories contain, while the old state is served,
and decides in one step (storage/restore.py). Until the decision every error leaves the old state in service;
after it the restore is completed by this process or by the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...storage import restore as restores
from ...storage.errors import StorageError
from ...storage.format.file_names import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_BYTES
from ...storage.io.memory import MemoryFiles
from ...storage.restore import Staged
from ..broker_state import BrokerState
from ..metadata.topology import TopologyNote
from ..virtual_clock import ClockNote, VirtualClock
from .snapshot_folders import SnapshotFolders
from .views import OperationError

if TYPE_CHECKING:
    from ..network.server import Running

SETTLING_SECONDS = 30.0  # for appends and syncs that are under way, of which producers may send ever more
ENDING_SECONDS = 5.0  # for work in threads that uses the old state's files
LOST_TURNS = 1000  # of the loop, for connections that were aborted to be gone


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
    store: MemoryFiles | SnapshotFolders

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
            store: MemoryFiles | SnapshotFolders = running.store.fork()
        else:
            store = SnapshotFolders(running.store, paths)
        for number, path in enumerate(paths):
            if not are_closed[path]:
                continue
            if isinstance(store, MemoryFiles):
                store.open(os.path.join(path, CLEAN_SHUTDOWN), create=True).write(0, CLEAN_SHUTDOWN_BYTES)
            else:
                store.mark(number)
    except (StorageError, OSError, OperationError) as error:
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
    """Has the broker go on from a snapshot, with the ports and faults that it has. Connections are closed. Raises
    OperationError. Until data directories are about to be replaced the broker goes on as it was then; where the files
    could not be opened afterwards the broker has failed, and another restore, or the next start, may help."""
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
    """The copies, beside what the data directories contain; made in a thread, as the old state is served meanwhile."""
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
        raise OperationError(f"the snapshot could not be restored, the broker goes on as it was: {error}") from error


def _decide(running: Running, staged: Staged) -> None:
    try:
        staged.decide()
    except (StorageError, OSError) as error:
        try:
            staged.discard()
        except OSError:
            # The next start may find the decision and replace what would be written until then.
            _fail(running, f"a restore could neither be decided nor discarded: {error}")
        raise OperationError(f"the snapshot could not be restored: {error}") from error


def _finish_earlier(running: Running) -> None:
    """Completes a restore that was decided and met an error. Raises OperationError."""
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
    """Opens the snapshot in the place of the state that has ended."""
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

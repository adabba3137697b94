"""A broker that accepts connections: its sockets, its data, its connections, from start to stop.

Owns the order. Start: bind all sockets (nothing on disk is touched before that succeeds), open the data, accept. Stop:
stop accepting, answer what is in flight, flush and close the data.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from ...storage.errors import StorageError
from ...storage.io.files import DiskFiles, Files
from ..broker_state import BrokerState
from ..clock import Clock, SystemClock
from ..config.record_options import RecordError
from ..config.serve_options import ServeOptions, StartupError, format_address
from ..metadata.topology import NOTHING_NOTED, TopologyNote
from . import router
from .connections import Connections
from .listener import Door, SocketSettings

if TYPE_CHECKING:
    from ..faults import Faults
    from ..recording.recorder import Recorder
    from ..recording.ring import Ring

DRAIN_SECONDS = 5.0  # for answers in flight; clients wait longer than that for a broker to come back


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes an event loop: uvloop, where there is one."""
    try:
        import uvloop
    except ImportError:  # where uvloop does not exist, asyncio's own loop does the same more slowly
        return None
    return uvloop.new_event_loop


class Running:
    """A broker that accepts connections: the sockets of all its nodes, and its state, which may be replaced."""

    def __init__(
        self,
        state: BrokerState,
        connections: Connections,
        doors: list[Door],
        store: Files,
        faults: Faults | None = None,
        ring: Ring | None = None,
    ) -> None:
        self.connections = connections
        self.ring = ring
        """The newest requests with their answers, whatever the state; None where they are not kept."""
        if ring is not None:
            connections.listen(ring, ring.frame_bytes)
        self.store = store
        """Where the data lie."""
        self.faults = faults
        """What goes wrong on command, whatever the state; None where nothing can be made to."""
        self.on_failed: Callable[[], object] = lambda: None
        """Called when `failed` is done."""
        self.between_states = False
        """Whether the last state has ended and no other one could be opened since."""
        self._doors = doors
        self.attach(state)
        if faults is not None:
            faults.attach(self)

    def attach(self, state: BrokerState) -> None:
        """Has a state, the first or another one, answer at these sockets; of nodes that are stopped there none
        listens. Raises OSError."""
        self.state = state
        self.connections.attach(state)
        state.faults = self.faults
        self.failed: asyncio.Future[str] = state.loop.create_future()
        """Done, with the reason, when the state as it is cannot go on."""
        state.failed.add_done_callback(partial(self._state_failed, self.failed))
        state.topology.on_node = self.show_node
        for door in self._doors:
            door.is_stopped = door.node_id in state.nodes.stopped
        self._update(self._doors)

    def _state_failed(self, failed: asyncio.Future[str], of_state: asyncio.Future[str]) -> None:
        if failed is self.failed and not failed.done() and not of_state.cancelled():
            failed.set_result(of_state.result())
            self.on_failed()

    def reopen(self, clock: Clock, note: TopologyNote) -> None:
        """Opens what `store` has anew, and serves that: the last state was abandoned. Raises StorageError."""
        old = self.state
        waits = None if old.waits is old.clock else old.waits
        files = _with_faults(self.store, self.faults)
        state = BrokerState.open(old.options, self.ports, old.apis, clock, old.loop, files, waits, note)
        try:
            state.go_on_from(old)
        except BaseException:
            state.begin_stop()
            state.abandon()
            raise
        self.attach(state)

    @functools.cached_property
    def recorder(self) -> Recorder:
        """What writes requests and answers to a file, when it is asked to, whatever the state."""
        from ..recording.recorder import Recorder  # a broker that records nothing does not wait for its import

        return Recorder()

    @property
    def sockets(self) -> list[socket.socket]:
        """Those of the listeners, node by node, also of listeners that refuse now."""
        return [door.sock for door in self._doors]

    @property
    def ports(self) -> dict[tuple[int, str], int]:
        """The port of each listener of each node, by (node id, listener's name)."""
        return {(door.node_id, door.listener.name): door.sock.getsockname()[1] for door in self._doors}

    @property
    def addresses(self) -> list[str]:
        """Where clients connect, as HOST:PORT, in the order of `sockets`."""
        found = [(door.listener.host, door.sock.getsockname()) for door in self._doors]
        return [format_address(host or address[0], address[1]) for host, address in found]

    @property
    def unready(self) -> str | None:
        """Why no client can be served now; None if one can."""
        if self.failed.done():
            return self.failed.result()
        if self.connections.stopping:
            return "the broker is being stopped, or restored"
        return None if any(door.server is not None for door in self._doors) else "no listener accepts connections"

    def check_named(self, node_id: int | None, listener: str | None) -> None:
        """Raises ValueError, one line, for a node or a listener that is not here."""
        nodes, names = {door.node_id: None for door in self._doors}, {door.listener.name: None for door in self._doors}
        if node_id is not None and node_id not in nodes:
            raise ValueError(f"there is no node {node_id}: the nodes are {', '.join(map(str, nodes))}")
        if listener is not None and listener not in names:
            raise ValueError(f"there is no listener {listener!r}: the listeners are {', '.join(names)}")

    def refuse(self, node_id: int | None = None, listener: str | None = None) -> None:
        """From here on the system refuses new connections, by a node, a listener, or both; the ports stay ours. Open
        connections stay, too. Raises OSError."""
        doors = self._found(node_id, listener)
        for door in doors:
            door.is_refusing = True
        self._update(doors)

    def accept(self, node_id: int | None = None, listener: str | None = None) -> None:
        """Ends what `refuse` began; the listeners of a node that is stopped go on refusing. Raises OSError."""
        doors = self._found(node_id, listener)
        for door in doors:
            door.is_refusing = False
        self._update(doors)

    def cut(self, node_id: int | None = None, listener: str | None = None) -> None:
        """Aborts open connections, by node, listener, or both."""
        self.connections.cut(node_id, listener)

    def show_node(self, node_id: int, is_running: bool) -> None:
        """A node stops, so that it refuses and its connections are cut, or runs again. Raises OSError."""
        doors = self._found(node_id, None)
        for door in doors:
            door.is_stopped = not is_running
        self._update(doors)
        if not is_running:
            self.cut(node_id)
            self.state.fetch_sessions.forget(node_id)
            self.state.quotas.forget(node_id)

    def _found(self, node_id: int | None, listener: str | None) -> list[Door]:
        return [
            door for door in self._doors if node_id in (None, door.node_id) and listener in (None, door.listener.name)
        ]

    def _update(self, doors: list[Door]) -> None:
        for door in doors:
            door.update(self.state.loop, partial(self.connections.factory, door.listener.name, door.node_id))

    async def stop(self) -> None:
        """Stops accepting, answers what is in flight, flushes and closes the data."""
        if self.faults is not None:
            self.faults.attach(None)
        for door in self._doors:
            door.close()
        self.state.begin_stop()
        try:
            await self.connections.drain(DRAIN_SECONDS)
            await self.state.finish_appends(DRAIN_SECONDS)
            self.state.close()
        finally:
            if "recorder" in self.__dict__:
                await self.recorder.stop()


async def start(
    options: ServeOptions,
    loop: asyncio.AbstractEventLoop,
    clock: Clock | None = None,
    opening: AbstractContextManager[None] | None = None,
    files: Files | None = None,
    note: TopologyNote = NOTHING_NOTED,
    faults: Faults | None = None,
    ring: Ring | None = None,
) -> Running:
    """Binds, opens the data and accepts; `clock` and `files` are the machine's unless given. Raises StartupError, one
    line.

    The data are opened within `opening`; `note` is of an earlier topology on the same data; `faults` go wrong on
    command, also on the disk; `ring` keeps the newest requests.
    """
    doors: list[Door] = []
    settings = SocketSettings.from_config(options.config)
    files = files or DiskFiles()
    record_to: int | None = None
    try:
        for node_id, listener in options.nodes():
            doors.append(Door(node_id, listener, settings))
        if options.record is not None:
            from ..recording.files import claim

            try:
                record_to = claim(options.record)
            except RecordError as error:
                raise StartupError(f"--record: {error}") from error
        ports = {(door.node_id, door.listener.name): door.sock.getsockname()[1] for door in doors}
        try:
            apis = router.apis_of(options.config.profile, telemetry=options.config["ottla.client.telemetry"])
            with opening or contextlib.nullcontext():
                opened = _with_faults(files, faults)
                state = BrokerState.open(options, ports, apis, clock or SystemClock(loop), loop, opened, note=note)
        except StorageError as error:
            raise StartupError(str(error)) from error
    except BaseException:
        for door in doors:
            door.close()
        if options.record is not None and record_to is not None:
            from ..recording.files import let_go

            let_go(options.record, record_to)
        raise
    if options.brokers == 1:
        for door in doors:
            door.node_id = state.node_id
    running = Running(state, Connections(state), doors, files, faults, ring)
    if options.record is not None:
        try:
            running.recorder.start(running, options.record, record_to)  # before the first connection is accepted
        except RecordError as error:
            await running.stop()
            raise StartupError(f"--record: {error}") from error
    return running


def _with_faults(files: Files, faults: Faults | None) -> Files:
    """The files as a broker sees them."""
    if faults is None:
        return files
    from ..faults.disk import FaultyFiles

    return FaultyFiles(files, faults)

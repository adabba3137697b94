"""A running broker: its sockets, data and connections, from start to stop.

Owns the order of both. Start: bind all sockets (before that succeeds nothing on disk changes), open the data, accept
connections. Stop: stop accepting, complete the requests in flight, flush and close the data.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from ...storage.errors import StorageError
from ...storage.io.files import DiskFiles, Files
from ..broker_state import BrokerState
from ..clock import Clock, SystemClock
from ..config.record_options import RecordError
from ..config.serve_options import WILDCARDS, ServeOptions, StartupError, format_address
from ..errors import ConfigError
from ..metadata.topology import NOTHING_NOTED, TopologyNote
from . import router
from .connections import Connections
from .listener import ListenerSocket, SocketSettings

if TYPE_CHECKING:
    from ..faults.rule_set import Faults
    from ..recording.recorder import Recorder
    from ..recording.ring import Ring
    from ..security.sasl.logins import Logins

DRAIN_SECONDS = 5.0  # for responses in flight; clients wait longer than that for a restart


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns the factory of uvloop's event loop, or None for asyncio's own."""
    try:
        import uvloop
    except ImportError:  # asyncio's own loop works too, more slowly
        return None
    return uvloop.new_event_loop


class Running:
    """A broker that accepts connections: the sockets of all its nodes, and its state, which a reset or restore
    replaces.
    """

    def __init__(
        self,
        state: BrokerState,
        connections: Connections,
        listeners: list[ListenerSocket],
        store: Files,
        faults: Faults | None = None,
        ring: Ring | None = None,
    ) -> None:
        self.connections = connections
        self.ring = ring
        """Keeps the newest requests with their responses, for all states; None if they are not kept."""
        if ring is not None:
            connections.listen(ring, ring.frame_bytes)
        self.store = store
        """The storage of the data."""
        self.faults = faults
        """The rules of fault injection, for all states; None where they are not available."""
        self.on_failed: Callable[[], object] = lambda: None
        """Called after `failed` is done."""
        self.between_states = False
        """Whether the last state was closed and no other one could be opened since."""
        self._listeners = listeners
        self.attach(state)
        if faults is not None:
            faults.attach(self)

    def attach(self, state: BrokerState) -> None:
        """Serves these sockets with a state. Listeners of stopped nodes stop listening. Raises OSError."""
        self.state = state
        self.connections.attach(state)
        state.faults = self.faults
        self.failed: asyncio.Future[str] = state.loop.create_future()
        """Done, with the reason, when the current state cannot continue."""
        state.failed.add_done_callback(partial(self._state_failed, self.failed))
        state.topology.on_node = self.show_node
        for bound in self._listeners:
            bound.is_stopped = bound.node_id in state.nodes.stopped
        self._update(self._listeners)

    def _state_failed(self, failed: asyncio.Future[str], of_state: asyncio.Future[str]) -> None:
        if failed is self.failed and not failed.done() and not of_state.cancelled():
            failed.set_result(of_state.result())
            self.on_failed()

    def reopen(self, clock: Clock, note: TopologyNote) -> None:
        """Opens the data of `store` again and serves them; the last state must be abandoned. Raises StorageError."""
        old = self.state
        waits = None if old.waits is old.clock else old.waits
        files = _with_faults(self.store, self.faults)
        state = BrokerState.open(old.options, self.ports, old.apis, clock, old.loop, files, waits, note)
        try:
            state.continue_after(old)
        except BaseException:
            state.begin_stop()
            state.abandon()
            raise
        self.attach(state)

    @functools.cached_property
    def recorder(self) -> Recorder:
        """Records requests and responses to a file on command, for all states."""
        from ..recording.recorder import Recorder  # imported late: a broker that records nothing starts without it

        return Recorder()

    @property
    def sockets(self) -> list[socket.socket]:
        """The listener sockets, node by node, including listeners that refuse connections."""
        return [bound.sock for bound in self._listeners]

    @property
    def ports(self) -> dict[tuple[int, str], int]:
        """The port of each listener of each node, by (node id, listener name)."""
        return {(bound.node_id, bound.listener.name): bound.sock.getsockname()[1] for bound in self._listeners}

    @property
    def addresses(self) -> list[str]:
        """The addresses for clients, as HOST:PORT, in the order of `sockets`."""
        found = [(bound.listener.host, bound.sock.getsockname()) for bound in self._listeners]
        return [format_address(host or address[0], address[1]) for host, address in found]

    def bootstrap(self, number: int, local_host: str) -> str:
        """Returns the addresses, node by node, at which clients on this machine, `local_host`, reach the listener of
        that number."""
        listeners = self.state.options.listeners
        host = listeners[number].host
        ports = [sock.getsockname()[1] for sock in self.sockets[number :: len(listeners)]]
        return ",".join(format_address(local_host if host in WILDCARDS else host, port) for port in ports)

    @property
    def unready(self) -> str | None:
        """The reason why no client can be served now, or None."""
        if self.failed.done():
            return self.failed.result()
        if self.connections.stopping:
            return "the broker is being stopped, or restored"
        return None if any(bound.server is not None for bound in self._listeners) else "no listener accepts connections"

    def check_named(self, node_id: int | None, listener: str | None) -> None:
        """Raises ValueError, one line, for a node or a listener that does not exist."""
        nodes = dict.fromkeys(bound.node_id for bound in self._listeners)
        names = dict.fromkeys(bound.listener.name for bound in self._listeners)
        if node_id is not None and node_id not in nodes:
            raise ValueError(f"there is no node {node_id}: the nodes are {', '.join(map(str, nodes))}")
        if listener is not None and listener not in names:
            raise ValueError(f"there is no listener {listener!r}: the listeners are {', '.join(names)}")

    def check_certificates(self) -> None:
        """Raises ValueError, one line, if the broker cannot make certificates for its listeners."""
        if self.state.options.bad_certificate is None:
            raise ValueError(
                "bad_certificate needs a broker with the security ssl, mtls, sasl_ssl or oauth_ssl, which has an "
                "authority"
            )

    def refuse(self, places: Collection[tuple[int | None, str | None]]) -> None:
        """Makes the system refuse new connections to these places, each a node, a listener or both, and to no others
        but those of stopped nodes. The ports stay bound, and open connections stay open. Raises OSError.
        """
        for bound in self._listeners:
            bound.is_refusing = any(
                node_id in (None, bound.node_id) and listener in (None, bound.listener.name)
                for node_id, listener in places
            )
        self._update(self._listeners)

    def show_node(self, node_id: int, is_running: bool) -> None:
        """Stops or starts a node: a stopped node refuses connections, and its open ones are cut. Raises OSError."""
        listeners = [bound for bound in self._listeners if bound.node_id == node_id]
        for bound in listeners:
            bound.is_stopped = not is_running
        self._update(listeners)
        if not is_running:
            self.connections.cut(node_id)
            self.state.fetch_sessions.forget(node_id)
            self.state.quotas.forget(node_id)

    def shut(self) -> None:
        """Stops all nodes, after a failure: connections are refused until another state is served."""
        for node_id in self.state.nodes.ids:
            self.show_node(node_id, False)

    def _update(self, listeners: list[ListenerSocket]) -> None:
        for bound in listeners:
            bound.update(self.state.loop, partial(self.connections.factory, bound.listener.name, bound.node_id))

    async def stop(self) -> None:
        """Stops accepting, completes the requests in flight, flushes and closes the data."""
        if self.faults is not None:
            self.faults.attach(None)
        for bound in self._listeners:
            bound.close()
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
    """Binds, opens the data and accepts connections. Raises StartupError, one line.

    `clock` and `files` are the machine's unless given. The data are opened within `opening`. `note` is the topology
    that an earlier broker on the same data has recorded. `faults` applies to requests and to the disk. `ring` keeps the
    newest requests.
    """
    listeners: list[ListenerSocket] = []
    files = files or DiskFiles()
    record_to: int | None = None
    try:
        for node_id, listener in options.nodes():
            settings = SocketSettings.from_config(options.config.of(node_id))
            listeners.append(ListenerSocket(node_id, listener, settings))
        if options.record is not None:
            from ..recording.files import claim

            try:
                record_to = claim(options.record)
            except RecordError as error:
                raise StartupError(f"--record: {error}") from error
        ports = {(bound.node_id, bound.listener.name): bound.sock.getsockname()[1] for bound in listeners}
        try:
            apis = router.apis_of(
                options.config.profile,
                telemetry=options.config["ottla.client.telemetry"],
                unstable=options.config.get("unstable.api.versions.enable", False),
            )
            logins = await _logins(options)
            with opening or contextlib.nullcontext():
                opened = _with_faults(files, faults)
                state = BrokerState.open(options, ports, apis, clock or SystemClock(loop), loop, opened, note=note)
        except StorageError as error:
            raise StartupError(str(error)) from error
    except BaseException:
        for bound in listeners:
            bound.close()
        if options.record is not None and record_to is not None:
            from ..recording.files import let_go

            let_go(options.record, record_to)
        raise
    if options.brokers == 1:
        for bound in listeners:
            bound.node_id = state.node_id
    running = Running(state, Connections(state, logins), listeners, files, faults, ring)
    if options.record is not None:
        try:
            running.recorder.start(running, options.record, record_to)  # before the first connection is accepted
        except RecordError as error:
            await running.stop()
            raise StartupError(f"--record: {error}") from error
    return running


async def _logins(options: ServeOptions) -> Logins | None:
    """Reads what logins need. Returns None where no listener has SASL. Raises StartupError."""
    if not any(listener.has_sasl for listener in options.listeners):
        return None
    from ..security.sasl.logins import Logins  # few brokers have such a listener

    found = Logins()
    try:
        await found.load(options.config, options.nodes())
    except ConfigError as error:
        raise StartupError(str(error)) from error
    return found


def _with_faults(files: Files, faults: Faults | None) -> Files:
    """The files as the broker uses them: with faults if there are rules."""
    if faults is None:
        return files
    from ..faults.disk import FaultyFiles

    return FaultyFiles(files, faults)

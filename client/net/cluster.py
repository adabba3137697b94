"""A client's view of its cluster: nodes, topics and leaders, coordinators, and a connection for each use of a node.

Owns the metadata cache and its refreshes, reconnects and their back-off, and the lookup of coordinators. Time is the
event loop's.

Metadata: a caller that needs metadata joins a round. A round is one request; callers that arrive before it is sent join
it. So any number of concurrent callers share one request, and there is at most one in flight. Rounds that only repeat
earlier topics are `retry_backoff_ms` apart, and more after each failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.messages.cluster.api_versions import ApiVersionsRequest
from ...protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ...protocol.primitives import ZERO_UUID
from ...protocol.schema import spec
from .connection import NODE_CHECKED_SINCE, Connection, Opening, connect
from .errors import (
    AuthenticationError,
    ClientClosed,
    ClientError,
    ConnectionLost,
    KafkaError,
    NoSuchTopic,
    UnsupportedVersion,
)
from .metadata import NO_NODE, Node, Topic, newer, topic_of
from .options import ClientOptions
from .retry import retry
from .threads import mark_retrieved

K = TypeVar("K")
T = TypeVar("T")
GROUP, TRANSACTION, SHARE = 0, 1, 2  # key types of FindCoordinator
LOGIN_REFUSED = (ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
"""Another broker of the cluster would refuse the login as well."""


def is_refused(error: ClientError) -> bool:
    """Returns whether another broker of the cluster would refuse as well, and a later attempt, too."""
    return isinstance(error, AuthenticationError) or (isinstance(error, KafkaError) and error.code in LOGIN_REFUSED)


@dataclass(slots=True, eq=False)
class _Round:
    """A Metadata request to be sent: its topics, and the future of its callers."""

    done: asyncio.Future[None]
    topics: set[str] = field(default_factory=set[str])
    everything: bool = False
    prompt: bool = False  # has a topic that was never requested: sent without back-off
    background: bool = False  # has no caller that retries: repeated until it succeeds


class Cluster:
    """The cluster as seen by one client. `start` needs a running event loop; `close` releases all connections.

    Methods raise ConnectionLost (no broker reachable), KafkaError (an error response), ClientClosed.
    """

    def __init__(self, options: ClientOptions, *, rng: random.Random | None = None) -> None:
        self.options = options
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.controller_id = NO_NODE
        self.cluster_id: str | None = None
        self._rng = rng or random.Random()
        self._bootstrap = options.addresses()
        self._sockets = Opening(options.connect_timeout_ms / 1000, options.tls())
        self._login = options.login
        self._loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set by start()
        self._closed = True
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open: dict[tuple[Any, str], Connection] = {}
        self._opening: dict[tuple[Any, str], asyncio.Task[Connection]] = {}
        # address -> (consecutive failures, no attempt before)
        self._failures: dict[tuple[str, int], tuple[int, float]] = {}
        self._control: Connection | None = None
        self._knows_versions = False
        self._checks_nodes = False
        self._expired: set[str] = set()
        self._next: _Round | None = None
        self._current: _Round | None = None
        self._runner: asyncio.Task[None] | None = None
        self._prompted = asyncio.Event()
        self._failed_rounds = 0
        self._not_before = 0.0
        self._age_timer: asyncio.TimerHandle | None = None
        self._listeners: list[Callable[[], None]] = []
        self._coordinators: dict[tuple[int, str], int] = {}
        self._finding: dict[tuple[int, str], asyncio.Task[int]] = {}

    # Start and close

    async def start(self) -> None:
        """Connects to the first reachable bootstrap address, and fetches the nodes.

        Raises ConnectionLost if none is reachable; start() may then be called again.
        """
        self._loop = asyncio.get_running_loop()
        self._closed = False
        try:
            await self.refresh()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Closes all connections; waiting calls fail with ClientClosed or ConnectionLost. May be called again."""
        self._closed = True
        if self._age_timer is not None:
            self._age_timer.cancel()
            self._age_timer = None
        if self._login is not None:
            self._login.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        for waiting in (self._next, self._current):
            if waiting is not None and not waiting.done.done():
                waiting.done.set_exception(ClientClosed("the client is closed"))
        self._next = self._current = None
        connections = [*self._open.values(), *([self._control] if self._control else [])]
        self._open.clear()
        self._control = None
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the client is closed, or not started")

    def _task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a task that `close` cancels, and whose exception need not be retrieved."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(mark_retrieved)
        return task

    async def _shared(self, task: asyncio.Task[Any] | asyncio.Future[Any]) -> Any:
        """Waits for a task shared with other callers; a cancellation of this caller does not cancel it."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._closed and task.cancelled():
                raise ClientClosed("the client is closed") from None
            raise

    # Connections

    async def connection(self, node_id: int, purpose: str = "data") -> Connection:
        """Returns the connection to a node for one purpose, opened if necessary.

        Each purpose has its own connection, so that it does not wait for the responses of another. Waits while the
        node's address is in back-off, then tries once. Raises ConnectionLost.
        """
        self._check_open()
        found = self._open.get((node_id, purpose))
        if found is not None and not found.is_closed:
            return found
        node = self.nodes.get(node_id)
        if node is None:
            raise ConnectionLost(f"unknown node {node_id}")
        return await self._opened((node_id, purpose), node.host, node.port)

    async def any_connection(self) -> Connection:
        """Returns a connection to any broker. Tries nodes, then bootstrap addresses, each once.

        Raises ConnectionLost if none is reachable.
        """
        self._check_open()
        if self._control is not None and not self._control.is_closed:
            return self._control
        return await self._shared(self._single(self._opening, ("", "control"), self._find_control))

    async def controller(self) -> Connection:
        """Returns a connection to the controller; to any broker if the metadata has no controller (0.8, 0.9)."""
        if not self.nodes:
            await self.refresh()
        node = self.nodes.get(self.controller_id)
        if node is None:
            return await self.any_connection()
        control = self._control
        if control is not None and not control.is_closed and (control.host, control.port) == (node.host, node.port):
            return control
        return await self.connection(node.node_id, "control")

    def _single(self, running: dict[K, asyncio.Task[T]], key: K, make: Callable[[], Any]) -> asyncio.Task[T]:
        """Returns the running attempt for a key, started if there is none."""
        task = running.get(key)
        if task is None:
            task = running[key] = self._task(make())
            task.add_done_callback(lambda _: running.pop(key, None))
        return task

    async def _opened(self, key: tuple[Any, str], host: str, port: int) -> Connection:
        async def attempt() -> Connection:
            connection = self._open[key] = await self._connect(host, port, key[0])
            return connection

        return await self._shared(self._single(self._opening, key, attempt))

    async def _connect(self, host: str, port: int, node_id: int = NO_NODE) -> Connection:
        """Opens a connection after the back-off of its address. Raises ClientError."""
        options, node = self.options, None
        if (delay := self._failures.get((host, port), (0, 0.0))[1] - self._loop.time()) > 0:
            await asyncio.sleep(delay)
        if self._checks_nodes and node_id != NO_NODE and self.cluster_id is not None:
            node = (self.cluster_id, node_id)
        try:
            connection = await connect(
                host,
                port,
                client_id=options.client_id,
                request_timeout_s=options.request_timeout_ms / 1000,
                opening=self._sockets,
                frame_bytes_max=options.response_bytes_max,
                old_brokers=options.old_brokers and not self._knows_versions,
                node=node,
            )
            if self._login is not None:
                await connection.log_in(self._login)
        except ClientError as error:
            if node is not None and isinstance(error, KafkaError) and error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self._forget_nodes()
                raise ConnectionLost(f"{host}:{port} is not node {node_id} of cluster {node[0]}") from error
            count = self._failures.get((host, port), (0, 0.0))[0] + 1
            delay_s = self._backoff_s(options.reconnect_backoff_ms, options.reconnect_backoff_max_ms, count)
            self._failures[host, port] = count, self._loop.time() + delay_s
            raise
        self._failures.pop((host, port), None)
        # Once a broker of the cluster has served ApiVersions, a closed connection does not mean an old broker.
        self._knows_versions = self._knows_versions or connection.has_negotiated
        # A broker that lacks this version needs a second request, so it is used only where it is known to be served.
        served = connection.versions.get(spec(ApiVersionsRequest).api_key)
        knows_node = served is not None and served.last >= NODE_CHECKED_SINCE
        self._checks_nodes = knows_node and options.metadata_cluster_check_enable
        return connection

    def _forget_nodes(self) -> None:
        """Forgets the nodes, which are obsolete, and closes all connections; bootstrap addresses follow (KIP-1102)."""
        self.nodes.clear()
        self._coordinators.clear()
        for connection in (*self._open.values(), self._control):
            if connection is not None:
                connection.close()

    async def _find_control(self) -> Connection:
        nodes = [(node.host, node.port) for node in self.nodes.values()]
        ids = {(node.host, node.port): node.node_id for node in self.nodes.values()}
        self._rng.shuffle(nodes)
        addresses = list(dict.fromkeys([*nodes, *self._bootstrap]))
        # Addresses without back-off come first, in order; then the others by the end of their back-off.
        addresses.sort(key=lambda address: max(self._failures.get(address, (0, 0.0))[1], self._loop.time()))
        errors: list[str] = []
        for address in addresses:
            try:
                self._control = await self._connect(*address, ids.get(address, NO_NODE))
                return self._control
            except ClientError as error:
                if is_refused(error):
                    raise
                errors.append(str(error))
        raise ConnectionLost("no broker is reachable: " + "; ".join(errors))

    def _backoff_s(self, least_ms: int, most_ms: int, attempt: int) -> float:
        """Returns an exponential back-off with 20 % jitter (KIP-144, KIP-580); `attempt` counts from 1."""
        delay_ms = min(least_ms * 2 ** min(attempt - 1, 30), max(least_ms, most_ms))
        return delay_ms / 1000 * self._rng.uniform(0.8, 1.2)

    def retry_backoff_s(self, attempt: int) -> float:
        """Returns the back-off before the next attempt of a request, after `attempt` failures."""
        return self._backoff_s(self.options.retry_backoff_ms, self.options.retry_backoff_max_ms, max(1, attempt))

    # Metadata

    def topic_ids(self, names: Iterable[str]) -> dict[str, bytes]:
        """Returns the ids of topics by name, zeros for unknown ones."""
        return {name: self.topics[name].id if name in self.topics else ZERO_UUID for name in names}

    def leader(self, topic: str, partition: int) -> int:
        """Returns the node id of a partition's known leader, or -1."""
        known = self.topics.get(topic)
        if known is None or partition not in known.partitions:
            return NO_NODE
        return known.partitions[partition].leader

    def is_fresh(self, topic: str) -> bool:
        """Returns whether a topic is known without an error, and was not expired."""
        known = self.topics.get(topic)
        return known is not None and known.error == ErrorCode.NONE and topic not in self._expired

    async def topic(self, name: str, timeout_s: float | None = None) -> Topic:
        """Returns a topic that exists and has partitions; fetches metadata until it does, or until the timeout.

        `timeout_s` is `default_api_timeout_ms` by default. Raises NoSuchTopic, KafkaError, ConnectionLost.
        """
        self._check_open()
        if self.is_fresh(name):
            return self.topics[name]

        async def attempt() -> Topic:
            await self._join(name)
            topic = self.topics.get(name)
            if topic is not None and topic.error == ErrorCode.NONE and topic.partitions:
                return topic
            code = ErrorCode.LEADER_NOT_AVAILABLE if topic is None or not topic.error else topic.error
            missing = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise NoSuchTopic(name) if missing else KafkaError(code, f"topic {name!r}")

        late = partial(ConnectionLost, f"no metadata of topic {name!r} within the timeout")
        return await retry(attempt, self.retry_backoff_s, self._default_timeout_s(timeout_s), late=late)

    def _default_timeout_s(self, timeout_s: float | None) -> float:
        return self.options.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s

    def expire(self, topic: str) -> None:
        """Marks the metadata of a topic as stale, and fetches it again in the background."""
        if topic in self.topics and not self._closed:
            self._expired.add(topic)
            self._enter([topic]).background = True

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        """Fetches metadata of topics, by default of all known ones, with a request sent after this call. One attempt.

        Raises ConnectionLost, KafkaError. The error of a topic is in its `error`.
        """
        self._check_open()
        await self._shared(self._enter(topics).done)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Registers a function that is called after each metadata response, whether it changed anything or not."""
        self._listeners.append(listener)

    async def metadata(self, names: Iterable[str] | None = None) -> MetadataResponse:
        """Fetches metadata of some topics, by default of all; creates none, and does not change the cached topics.

        Brokers before 0.11 create a topic that is requested by name: from them all topics are requested.
        """
        connection = await self.any_connection()
        version = connection.version_of(MetadataRequest)
        wanted = None if names is None else set(names)
        named = () if version == 0 else wanted if version >= 4 or not wanted else None
        response = await self._request_metadata(connection, named, creates=False)
        if wanted is not None:
            response.topics = [topic for topic in response.topics if topic.name in wanted]
        return response

    async def _join(self, name: str) -> None:
        """Waits for a round with a topic: the one in flight, or the next."""
        current = self._current
        round_ = current if current is not None and name in current.topics else self._enter([name])
        await self._shared(round_.done)

    def _enter(self, topics: Iterable[str] | None) -> _Round:
        """Adds topics to the next round, and starts the task that sends it."""
        round_ = self._next
        if round_ is None:
            round_ = self._next = _Round(self._loop.create_future())
            round_.done.add_done_callback(mark_retrieved)
        if topics is None:
            round_.everything = True
        else:
            wanted = set(topics)
            round_.prompt = round_.prompt or not wanted <= self.topics.keys()
            round_.topics |= wanted
            if round_.prompt:
                self._prompted.set()
        if self._runner is None or self._runner.done():
            self._runner = self._task(self._run_rounds())
        return round_

    async def _run_rounds(self) -> None:
        """Sends the rounds one after the other, until there is none."""
        while (round_ := self._next) is not None and not self._closed:
            await self._back_off(round_)
            try:
                connection = await self.any_connection()
                self._next, self._current = None, round_
                if round_.everything:
                    round_.topics |= self.topics.keys()
                await self._fetch_metadata(connection, round_.topics)
            except Exception as error:
                self._failed_rounds += 1
                self._finish(round_, error)
            else:
                self._failed_rounds = 0
                self._finish(round_, None)

    async def _back_off(self, round_: _Round) -> None:
        """Waits for the back-off of a round; one with a never requested topic does not wait, except after a failure."""
        while (delay := self._not_before - self._loop.time()) > 0:
            if self._failed_rounds:
                await asyncio.sleep(delay)
            elif round_.prompt:
                return
            else:
                self._prompted.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._prompted.wait()

    def _finish(self, round_: _Round, error: Exception | None) -> None:
        if self._next is round_:
            self._next = None
        self._current = None
        self._not_before = self._loop.time() + self.retry_backoff_s(self._failed_rounds or 1)
        if round_.everything or self._age_timer is None:
            if self._age_timer is not None:
                self._age_timer.cancel()
            self._age_timer = self._loop.call_later(self.options.metadata_max_age_ms / 1000, self._grown_old)
        if error is not None and round_.background and not self._closed:
            self._enter(None if round_.everything else round_.topics).background = True
        if not round_.done.done():
            if error is None:
                round_.done.set_result(None)
            else:
                round_.done.set_exception(error)
        if error is None:
            for listener in self._listeners:
                listener()

    def _grown_old(self) -> None:
        self._age_timer = None
        if not self._closed:
            self._enter(None).background = True

    async def _fetch_metadata(self, connection: Connection, names: set[str]) -> None:
        expired_before = names & self._expired
        response = await self._request_metadata(connection, names, creates=self.options.allow_auto_create_topics)
        for topic in response.topics:
            if topic.name in names:  # v0 has no request for no topics, and returns all instead
                self.topics[topic.name] = newer(self.topics.get(topic.name), topic_of(topic))
        self._expired -= expired_before

    async def _request_metadata(
        self, connection: Connection, names: Iterable[str] | None, *, creates: bool
    ) -> MetadataResponse:
        """Requests metadata, and learns the nodes of the response. Raises KafkaError and ConnectionLost."""
        version, cls = connection.version_of(MetadataRequest), MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=None if names is None else [cls(name=name) for name in sorted(names)],
            allow_auto_topic_creation=creates or version < 4,  # brokers always create then: only True can be encoded
            include_message_format=version >= 9,
        )
        response = await connection.request(request, version)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:  # KIP-1102: the known nodes are obsolete
            self._forget_nodes()
            raise ConnectionLost("the broker requires a new bootstrap (REBOOTSTRAP_REQUIRED)")
        if response.error_code:
            raise KafkaError(response.error_code)
        self._learn_nodes(response)
        return response

    def _learn_nodes(self, response: MetadataResponse) -> None:
        nodes = {one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers}
        if nodes:  # a broker that has just started may return none
            self._drop_moved(nodes)
            self.nodes = nodes
            kept = {(node.host, node.port) for node in nodes.values()} | set(self._bootstrap)
            self._failures = {address: failed for address, failed in self._failures.items() if address in kept}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id

    def _drop_moved(self, nodes: Mapping[int, Node]) -> None:
        """Closes connections to nodes that have another address now, or were removed."""
        for key, connection in list(self._open.items()):
            node = nodes.get(key[0])
            if connection.is_closed or node is None or (node.host, node.port) != (connection.host, connection.port):
                del self._open[key]
                connection.close()

    # Coordinators

    async def coordinator(self, key: str, kind: int = GROUP, timeout_s: float | None = None) -> Connection:
        """Returns a connection to the coordinator of a group or transactional id, looked up if it is unknown.

        Retries until the timeout (`default_api_timeout_ms`) while there is none. Raises KafkaError, ConnectionLost,
        UnsupportedVersion.
        """
        self._check_open()

        async def attempt() -> Connection:
            node_id = self._coordinators.get((kind, key), NO_NODE)
            if node_id == NO_NODE:
                finding = self._single(self._finding, (kind, key), lambda: self._find_coordinator(key, kind))
                node_id = await self._shared(finding)
            return await self.connection(node_id, "coordinator")

        def failed(error: ClientError) -> None:
            if isinstance(error, ConnectionLost):
                self.expire_coordinator(key, kind)

        late = partial(ConnectionLost, f"no coordinator of {key!r} within the timeout")
        seconds = self._default_timeout_s(timeout_s)
        return await retry(attempt, self.retry_backoff_s, seconds, late=late, on_failure=failed)

    def expire_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Removes a coordinator from the cache."""
        self._coordinators.pop((kind, key), None)

    async def _find_coordinator(self, key: str, kind: int) -> int:
        connection = await self.any_connection()
        version = connection.version_of(FindCoordinatorRequest)
        if version == 0 and kind != GROUP:
            raise UnsupportedVersion("the broker has no transaction coordinators (FindCoordinator v0)")
        if version >= 4:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        response = await connection.request(request, version)
        if version >= 4:
            found = next((each for each in response.coordinators if each.key == key), None)
            if found is None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the response has no such key")
        else:
            found = response
        if found.error_code:
            raise KafkaError(found.error_code, found.error_message or None)
        known = self.nodes.get(found.node_id)
        if known is None or (known.host, known.port) != (found.host, found.port):
            self.nodes[found.node_id] = Node(found.node_id, found.host, found.port, known.rack if known else None)
        self._coordinators[kind, key] = found.node_id
        return found.node_id

"""What a client knows of its cluster: nodes, topics and leaders, coordinators, and one connection per use of a node.

Owns the metadata cache (when it is asked for, by whom, how often), reconnects and their back-off, and coordinator
look-ups. Knows no records. Time is the event loop's.

Metadata: whoever needs it joins a round; a round is one request, and what comes while it is not yet sent joins it. So
any number of concurrent callers share one request, and no two requests are under way at once. Rounds that only repeat
what was asked before keep `retry_backoff_ms` apart, more after each failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from .connection import Connection, connect
from .errors import ClientClosed, ClientError, ConnectionLost, KafkaError, NoSuchTopic, UnsupportedVersion
from .metadata import NO_NODE, Node, Partition, Topic, newer, topic_of
from .options import ClientOptions
from .retry import retry

__all__ = ["GROUP", "NO_NODE", "SHARE", "TRANSACTION", "Cluster", "Node", "Partition", "Topic"]

GROUP, TRANSACTION, SHARE = 0, 1, 2  # kinds of coordinators, FindCoordinator's key types


class _Round:
    """One Metadata request that is to be sent: for which topics, and who waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.topics: set[str] = set()
        self.everything = False
        self.prompt = False  # asks for what was never asked before, so no back-off is due
        self.background = False  # nobody waits and tries again: it has to be repeated until it succeeds
        self.done: asyncio.Future[None] = loop.create_future()
        self.done.add_done_callback(_retrieved)


def _retrieved(done: asyncio.Future[Any]) -> None:
    """Marks a failure as seen: nobody may be waiting for it."""
    if not done.cancelled():
        done.exception()


class Cluster:
    """The view of one client. `start` it within a running loop, `close` it at the end.

    Methods raise ConnectionLost (no broker could be asked), KafkaError (it refused), ClientClosed.
    """

    def __init__(self, options: ClientOptions, *, rng: random.Random | None = None) -> None:
        self.options = options
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.controller_id = NO_NODE
        self.cluster_id: str | None = None
        self._rng = rng or random.Random()
        self._bootstrap = options.addresses()
        self._loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # from start() on
        self._closed = True
        self._tasks: set[asyncio.Task[Any]] = set()
        self._open: dict[tuple[Any, str], Connection] = {}
        self._opening: dict[tuple[Any, str], asyncio.Task[Connection]] = {}
        self._failures: dict[tuple[str, int], tuple[int, float]] = {}  # address -> (in a row, not again before)
        self._control: Connection | None = None
        self._knows_versions = False
        self._expired: set[str] = set()
        self._next: _Round | None = None
        self._asking: _Round | None = None
        self._runner: asyncio.Task[None] | None = None
        self._prompted = asyncio.Event()
        self._failed_rounds = 0
        self._not_before = 0.0
        self._age_timer: asyncio.TimerHandle | None = None
        self._listeners: list[Callable[[], None]] = []
        self._coordinators: dict[tuple[int, str], int] = {}
        self._finding: dict[tuple[int, str], asyncio.Task[int]] = {}

    # Life

    async def start(self) -> None:
        """Connects to the first bootstrap address that answers, and learns the nodes.

        Raises ConnectionLost when none does; a second start() may then be tried.
        """
        self._loop = asyncio.get_running_loop()
        self._closed = False
        try:
            await self.refresh()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends everything; whoever waits gets ClientClosed or ConnectionLost. May be called again."""
        self._closed = True
        if self._age_timer is not None:
            self._age_timer.cancel()
            self._age_timer = None
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
        for waiting in (self._next, self._asking):
            if waiting is not None and not waiting.done.done():
                waiting.done.set_exception(ClientClosed("the client is closed"))
        self._next = self._asking = None
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
        """A task that `close` ends, and whose failure nobody has to see."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_retrieved)
        return task

    async def _shared(self, task: asyncio.Task[Any] | asyncio.Future[Any]) -> Any:
        """The outcome of something that others wait for as well: to be cancelled here does not end it."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._closed and task.cancelled():
                raise ClientClosed("the client is closed") from None
            raise

    # Connections

    async def connection(self, node_id: int, purpose: str = "data") -> Connection:
        """The connection to a node for one use, opened if there is none. One purpose never waits for another's answers.

        Waits while the node's address is in back-off, then tries once. Raises ConnectionLost.
        """
        self._check_open()
        found = self._open.get((node_id, purpose))
        if found is not None and not found.is_closed:
            return found
        node = self.nodes.get(node_id)
        if node is None:
            raise ConnectionLost(f"node {node_id} is not known")
        return await self._opened((node_id, purpose), node.host, node.port)

    async def any_connection(self) -> Connection:
        """A connection to some broker, for what every broker answers. Tries nodes, then bootstrap addresses.

        Raises ConnectionLost when none could be reached, each tried once.
        """
        self._check_open()
        if self._control is not None and not self._control.is_closed:
            return self._control
        return await self._shared(self._single(("", "control"), self._find_control))

    async def controller(self) -> Connection:
        """A connection to the controller, for what only it answers; to any broker where none is named (0.8, 0.9)."""
        if not self.nodes:
            await self.refresh()
        node = self.nodes.get(self.controller_id)
        if node is None:
            return await self.any_connection()
        control = self._control
        if control is not None and not control.is_closed and (control.host, control.port) == (node.host, node.port):
            return control
        return await self.connection(node.node_id, "control")

    def _single(self, key: tuple[Any, str], make: Any) -> asyncio.Task[Connection]:
        """The attempt under way for a key, begun if there is none."""
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = self._task(make())
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        return task

    async def _opened(self, key: tuple[Any, str], host: str, port: int) -> Connection:
        async def attempt() -> Connection:
            delay = self._failures.get((host, port), (0, 0.0))[1] - self._loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            connection = self._open[key] = await self._connect(host, port)
            return connection

        return await self._shared(self._single(key, attempt))

    async def _connect(self, host: str, port: int) -> Connection:
        options = self.options
        try:
            connection = await connect(
                host,
                port,
                client_id=options.client_id,
                request_timeout_s=options.request_timeout_ms / 1000,
                connect_timeout_s=options.connect_timeout_ms / 1000,
                frame_bytes_max=options.response_bytes_max,
                old_brokers=options.old_brokers and not self._knows_versions,
            )
        except ClientError:
            count = self._failures.get((host, port), (0, 0.0))[0] + 1
            delay_s = self._backoff_s(options.reconnect_backoff_ms, options.reconnect_backoff_max_ms, count)
            self._failures[host, port] = count, self._loop.time() + delay_s
            raise
        self._failures.pop((host, port), None)
        # A broker that has told its versions once does not close because it is old.
        self._knows_versions = self._knows_versions or connection.tells_versions
        return connection

    async def _find_control(self) -> Connection:
        nodes = [(node.host, node.port) for node in self.nodes.values()]
        self._rng.shuffle(nodes)
        addresses = list(dict.fromkeys([*nodes, *self._bootstrap]))
        # Those that may be tried now come first, in order; the others when their time has come.
        addresses.sort(key=lambda address: max(self._failures.get(address, (0, 0.0))[1], self._loop.time()))
        errors: list[str] = []
        for address in addresses:
            delay = self._failures.get(address, (0, 0.0))[1] - self._loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            try:
                self._control = await self._connect(*address)
                return self._control
            except ClientError as error:
                errors.append(str(error))
        raise ConnectionLost("no broker could be reached: " + "; ".join(errors))

    def _backoff_s(self, least_ms: int, most_ms: int, attempt: int) -> float:
        """Exponential, with a fifth of jitter (KIP-144); `attempt` counts from 1."""
        delay_ms = min(least_ms * 2 ** min(attempt - 1, 30), max(least_ms, most_ms))
        return delay_ms / 1000 * self._rng.uniform(0.8, 1.2)

    def retry_backoff_s(self, attempt: int) -> float:
        """How long to wait before the next try of the same request, after that many failures."""
        return self._backoff_s(self.options.retry_backoff_ms, self.options.retry_backoff_max_ms, max(1, attempt))

    # Metadata

    def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader as known now, or -1."""
        known = self.topics.get(topic)
        if known is None or partition not in known.partitions:
            return NO_NODE
        return known.partitions[partition].leader

    def is_fresh(self, topic: str) -> bool:
        """Whether a topic is known without error, and nobody has found it out of date."""
        known = self.topics.get(topic)
        return known is not None and known.error == ErrorCode.NONE and topic not in self._expired

    async def topic(self, name: str, timeout_s: float | None = None) -> Topic:
        """A topic that exists and has partitions: the known one, or asked for until it is there or time is over.

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

        def late() -> ClientError:
            return ConnectionLost(f"no broker told of topic {name!r} in time")

        return await retry(attempt, self.retry_backoff_s, self._default_timeout_s(timeout_s), late=late)

    def _default_timeout_s(self, timeout_s: float | None) -> float:
        return self.options.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s

    def expire(self, topic: str) -> None:
        """Notes that what is known of a topic is out of date, and asks anew in the background."""
        if topic in self.topics and not self._closed:
            self._expired.add(topic)
            self._enter([topic]).background = True

    def forget(self, topic: str) -> None:
        """Ends the interest in a topic: it is not asked for any more."""
        self.topics.pop(topic, None)
        self._expired.discard(topic)

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        """Asks for topics, or for all that are known, with a request sent from now on. One try.

        Raises ConnectionLost, KafkaError. What is wrong with a topic stands in its `error`.
        """
        self._check_open()
        await self._shared(self._enter(topics).done)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Has `listener` called after each answer with metadata, whatever it changed."""
        self._listeners.append(listener)

    async def all_topics(self) -> dict[str, Topic]:
        """Every topic of the cluster by name, asked now; what is known of the own topics is as it was."""
        response = await self.metadata()
        return {told.name: topic_of(told) for told in response.topics if told.name is not None}

    async def metadata(self, names: Iterable[str] | None = None) -> MetadataResponse:
        """What the cluster says now of some topics, or of all; it makes none, and what is known of topics is as it was.

        Brokers before 0.11 would make a topic that is asked for by name: those are asked for all of them.
        """
        connection = await self.any_connection()
        version = connection.version_of(MetadataRequest)
        wanted = None if names is None else set(names)
        asked: list[MetadataRequest.MetadataRequestTopic] | None = None
        if version == 0:
            asked = []
        elif wanted is not None and (version >= 4 or not wanted):
            asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(wanted)]
        request = MetadataRequest(
            topics=asked, allow_auto_topic_creation=version < 4, include_message_format=version >= 9
        )
        response = await connection.request(request, version)
        if response.error_code:
            raise KafkaError(response.error_code)
        self._learn_nodes(response)
        if wanted is not None:
            response.topics = [told for told in response.topics if told.name in wanted]
        return response

    async def _join(self, name: str) -> None:
        """Waits for the request that asks for a topic: one under way, or the next."""
        asking = self._asking
        round_ = asking if asking is not None and name in asking.topics else self._enter([name])
        await self._shared(round_.done)

    def _enter(self, topics: Iterable[str] | None) -> _Round:
        """Puts topics into the next round, and sees to it that there will be one."""
        round_ = self._next
        if round_ is None:
            round_ = self._next = _Round(self._loop)
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
        """Sends the rounds, one after the other, until there is none."""
        while (round_ := self._next) is not None and not self._closed:
            await self._back_off(round_)
            try:
                connection = await self.any_connection()
                self._next, self._asking = None, round_
                if round_.everything:
                    round_.topics |= self.topics.keys()
                await self._ask(connection, round_.topics)
            except Exception as error:
                self._failed_rounds += 1
                self._finish(round_, error)
            else:
                self._failed_rounds = 0
                self._finish(round_, None)

    async def _back_off(self, round_: _Round) -> None:
        """Waits until the round may be sent; a topic that was never asked for need not wait, unless brokers fail."""
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
        self._asking = None
        self._not_before = self._loop.time() + self.retry_backoff_s(self._failed_rounds or 1)
        if round_.everything or self._age_timer is None:
            self._set_age_timer()
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

    def _set_age_timer(self) -> None:
        if self._age_timer is not None:
            self._age_timer.cancel()
        self._age_timer = self._loop.call_later(self.options.metadata_max_age_ms / 1000, self._grown_old)

    def _grown_old(self) -> None:
        self._age_timer = None
        if not self._closed:
            self._enter(None).background = True

    async def _ask(self, connection: Connection, names: set[str]) -> None:
        version = connection.version_of(MetadataRequest)
        expired_before = names & self._expired
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)],
            # Before v4 there was no choice, and a set field has no place there.
            allow_auto_topic_creation=self.options.allow_auto_create_topics or version < 4,
            include_message_format=version >= 9,
        )
        response = await connection.request(asked, version)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:  # KIP-1102: what is known of the cluster is worthless
            self.nodes.clear()
            connection.close()
            raise ConnectionLost("the broker asks for a new start from the bootstrap addresses")
        if response.error_code:
            raise KafkaError(response.error_code)
        self._learn_nodes(response)
        for told in response.topics:
            if told.name in names:  # v0 cannot ask for none, and tells of all then
                self.topics[told.name] = newer(self.topics.get(told.name), topic_of(told))
        self._expired -= expired_before

    def _learn_nodes(self, response: MetadataResponse) -> None:
        nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        }
        if nodes:  # a broker that has just started may know of none
            self._drop_moved(nodes)
            self.nodes = nodes
            kept = {(node.host, node.port) for node in nodes.values()} | set(self._bootstrap)
            self._failures = {address: failed for address, failed in self._failures.items() if address in kept}
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id

    def _drop_moved(self, nodes: Mapping[int, Node]) -> None:
        """Closes connections to nodes that are elsewhere now, or gone."""
        for key, connection in list(self._open.items()):
            node = nodes.get(key[0])
            if connection.is_closed or node is None or (node.host, node.port) != (connection.host, connection.port):
                del self._open[key]
                connection.close()

    # Coordinators

    async def coordinator(self, key: str, kind: int = GROUP, timeout_s: float | None = None) -> Connection:
        """A connection to the coordinator of a group or of a transactional id, looked up if it is not known.

        Retries until the timeout (`default_api_timeout_ms`) while there is none. Raises KafkaError, ConnectionLost,
        UnsupportedVersion.
        """
        self._check_open()

        async def attempt() -> Connection:
            node_id = self._coordinators.get((kind, key), NO_NODE)
            if node_id == NO_NODE:
                node_id = await self._shared(self._find(key, kind))
            return await self.connection(node_id, "coordinator")

        def failed(error: ClientError) -> None:
            if isinstance(error, ConnectionLost):
                self.expire_coordinator(key, kind)

        def late() -> ClientError:
            return ConnectionLost(f"no coordinator of {key!r} was found in time")

        seconds = self._default_timeout_s(timeout_s)
        return await retry(attempt, self.retry_backoff_s, seconds, late=late, on_failure=failed)

    def expire_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Forgets a coordinator: the next look-up asks again."""
        self._coordinators.pop((kind, key), None)

    def _find(self, key: str, kind: int) -> asyncio.Task[int]:
        task = self._finding.get((kind, key))
        if task is None:
            task = self._finding[kind, key] = self._task(self._find_coordinator(key, kind))
            task.add_done_callback(lambda _: self._finding.pop((kind, key), None))
        return task

    async def _find_coordinator(self, key: str, kind: int) -> int:
        connection = await self.any_connection()
        version = connection.version_of(FindCoordinatorRequest)
        if version == 0 and kind != GROUP:
            raise UnsupportedVersion("the broker finds coordinators of groups only")
        if version >= 4:
            asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            asked = FindCoordinatorRequest(key=key, key_type=kind)
        response = await connection.request(asked, version)
        if version >= 4:
            found = next((each for each in response.coordinators if each.key == key), None)
            if found is None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker did not answer for that key")
        else:
            found = response
        if found.error_code:
            raise KafkaError(found.error_code, found.error_message or None)
        known = self.nodes.get(found.node_id)
        if known is None or (known.host, known.port) != (found.host, found.port):
            self.nodes[found.node_id] = Node(found.node_id, found.host, found.port, known.rack if known else None)
        self._coordinators[kind, key] = found.node_id
        return found.node_id

"""A broker within the process of a test: `Embedded`, with an event loop in a thread of its own.

Owns the thread, and the way of each call into it and back. What the calls mean is `control/operations.py`'s. Without a
data directory the same storage engine keeps everything in memory.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import encodings.idna  # noqa: F401  used by the first look-up of an address: not to be imported within a start
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ..storage.errors import StorageError
from ..storage.files import DiskFiles, Files
from ..storage.memory_files import MemoryFiles
from . import logs, server
from .config import Config
from .config_facts import broker_fact
from .control.clock import ClockControl, ClockState, ClockView
from .control.operations import Operations, config_texts
from .control.views import (
    AlreadyExists,
    BrokerFailed,
    Group,
    NewRecord,
    NotFound,
    OperationError,
    ProducerInfo,
    Record,
    TopicInfo,
    Value,
    checked_text,
    whole,
)
from .faults import Faults, FaultsView
from .faults import disk as _disk  # noqa: F401  imported with this module, as above
from .options import WILDCARDS, ServeOptions, control_listener, flags_to_configs, format_address, serve_options
from .produced import difference
from .recording.expectations import Words
from .recording.record_options import RecordOptions
from .recording.ring import Ring
from .recording.seen import SeenRequest
from .recording.watching import RequestsView
from .releases import NEWEST, profile
from .snapshots import Snapshot
from .topology import Topology, TopologyView
from .virtual_clock import VirtualClock

if TYPE_CHECKING:
    from .control.app import ControlServer

__all__ = [
    "AlreadyExists",
    "BrokerFailed",
    "Embedded",
    "Group",
    "NewRecord",
    "NotFound",
    "OperationError",
    "ProducerInfo",
    "Record",
    "Snapshot",
    "TopicInfo",
    "TopologyFacade",
]

MEMORY_DIR = "/ottla"  # the data directory of a broker that keeps everything in memory
# What differs from a broker's defaults, where a test says nothing else: consumers of a group need not wait for others,
# and the topics of Kafka's own are made in a millisecond or two.
DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
CLOSING_TURNS = 10  # of the loop, for sockets that were accepted or aborted last to be closed
T = TypeVar("T")
_LOOP_FACTORY = server.loop_factory()


def embedded_options(
    release: str,
    configs: Mapping[str, Any] | None,
    data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
    brokers: int | None,
    listeners: str | Sequence[str] | None,
    control: str | None = None,
    control_write: bool = False,
    record: str | os.PathLike[str] | None = None,
    node_ids: Sequence[int] | None = None,
) -> ServeOptions:
    """What an embedded broker is to do. Raises UnknownRelease and ConfigError, which are ValueErrors, and TypeError, of
    one line each."""
    played = profile(checked_text("release", release or NEWEST))
    texts = config_texts({} if configs is None else configs)
    if brokers is not None:
        whole("brokers", brokers)
    if node_ids is not None:
        if isinstance(node_ids, str):
            raise TypeError(f"node_ids is a list of whole numbers, not {node_ids!r}")
        for node_id in node_ids:
            whole("a node id", node_id)
    for name, text in DEFAULTS.items():
        if name not in texts and broker_fact(name, played) is not None:
            texts[name] = text
    if not listeners and "listeners" not in texts:
        listeners = "127.0.0.1:0"
    addresses = [listeners] if isinstance(listeners, str) else list(listeners or ())
    folders: list[str] = []
    if data_dir is not None:
        paths = [data_dir] if isinstance(data_dir, str | os.PathLike) else data_dir
        folders = [os.fspath(path) for path in paths]
    elif "log.dirs" not in texts and "log.dir" not in texts:
        folders = [MEMORY_DIR]
    texts |= flags_to_configs(addresses, [], folders)
    options = serve_options(
        Config(texts, profile=played), flag_listeners=bool(addresses), brokers=brokers, node_ids=node_ids
    )
    if record is not None:
        options = replace(options, record=RecordOptions(os.fspath(record)))
    if control is None:
        return options
    return replace(options, control=control_listener(control), control_write=control_write)


def _addresses(running: server.Running, number: int) -> str:
    """Where to find the listener of that number, node by node, from this machine."""
    listeners = running.state.options.listeners
    host = listeners[number].host
    ports = [sock.getsockname()[1] for sock in running.sockets[number :: len(listeners)]]
    return ",".join(format_address("127.0.0.1" if host in WILDCARDS else host, port) for port in ports)


def _shut(running: server.Running) -> None:
    """A broker that failed is as one whose process has ended: it refuses, until another state is served."""
    for node_id in running.state.nodes.ids:
        running.show_node(node_id, False)


class TopologyFacade:
    """The nodes and leaders of a broker, for another thread: each change is done when its method returns. Raises
    TopologyError, a ValueError, for what cannot be."""

    def __init__(self, call: Callable[[Callable[[Topology], Any]], Any]) -> None:
        self._call = call

    def describe(self) -> TopologyView:
        """All nodes, and who leads each partition."""
        return self._call(lambda topology: topology.describe())

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; -1 where there is none. Raises NotFound."""
        for one in self.describe().partitions:
            if (one.topic, one.partition) == (topic, partition):
                return one.leader
        raise NotFound(f"UNKNOWN_TOPIC_OR_PARTITION: there is no {topic}-{partition}")

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Has another node lead a partition."""
        self._call(lambda topology: topology.move_leader(topic, partition, node_id))

    def take_offline(self, topic: str, partition: int) -> None:
        """Takes a partition's leader away."""
        self._call(lambda topology: topology.take_offline(topic, partition))

    def bring_online(self, topic: str, partition: int) -> None:
        """Gives it one again."""
        self._call(lambda topology: topology.bring_online(topic, partition))

    def stop_node(self, node_id: int) -> None:
        """Stops a node: others lead what it led, it refuses connections, and those it has are cut."""
        self._call(lambda topology: topology.stop_node(node_id))

    def start_node(self, node_id: int) -> None:
        """Has a node run again, at the port that it had."""
        self._call(lambda topology: topology.start_node(node_id))

    def spread_leaders(self) -> None:
        """Has each partition led by its preferred node."""
        self._call(lambda topology: topology.spread_leaders())


class Embedded:
    """A broker in a thread of this process, for tests: up in milliseconds, and gone with its context.

    `release` is the release of Kafka whose ways it has, the newest where none is given; "ottla" is that of no release.
    `configs` are a broker's, by Kafka's names; an unknown name is refused with the nearest. Beside Kafka's defaults
    `group.initial.rebalance.delay.ms` is 0, and `offsets.topic.num.partitions` and
    `transaction.state.log.num.partitions` are 4, unless given. Without `data_dir` (a folder, or several) everything is
    kept in memory and ends with the object. `brokers` is how many nodes clients see, with ids from the config `node.id`
    on or from 1; `node_ids` names any ids instead, such as `[0, 1, 2]`. `listeners` are
    `[NAME=]HOST:PORT`, by default one on a free port of 127.0.0.1. With `control`, HOST:PORT, it has a control plane
    there for other processes, as `ottla serve --control` (it needs the extra `http`); with `control_write` its page may
    change something. With `record`, a file, it writes there what it is asked and answers: `.jsonl` is JSON lines,
    `.pcapng` for Wireshark; all of it is there when the broker has stopped.

    Used as `with Embedded() as broker:` or `async with Embedded() as broker:`, or by `start` and `stop`. All methods
    may be called from any thread, also under a running event loop, which they hold up for as long as they take. What
    the broker refuses is an OperationError.
    """

    def __init__(
        self,
        release: str = NEWEST,
        configs: Mapping[str, Any] | None = {},
        data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        brokers: int | None = None,
        listeners: str | Sequence[str] | None = None,
        control: str | None = None,
        control_write: bool = False,
        record: str | os.PathLike[str] | None = None,
        node_ids: Sequence[int] | None = None,
    ) -> None:
        """Checks what is asked for, and starts nothing. Raises ValueError, TypeError."""
        self.options = embedded_options(
            release, configs, data_dir, brokers, listeners, control, control_write, record, node_ids
        )
        self.release = release
        self.bootstrap = ""
        """Where clients connect: HOST:PORT of the first listener of each node, once it is started."""
        self.bootstraps: dict[str, str] = {}
        """The same of every listener, by its name."""
        self.control_url: str | None = None
        """Where its control plane is, if it has one, once it is started."""
        self._faults = Faults()
        self.faults = FaultsView(self._faults, self._with_faults)
        """What requests, the disk and the sockets meet: errors, delays, lost answers and the like. Faults that are put
        in force before the start, or after a stop, are there from the start on."""
        self.requests = RequestsView(self._with_running)
        """What clients asked, and were answered: `requests(api="Produce", client_id="orders")` lists the newest 10,000
        or so, `requests.clear()` forgets them, `requests.mark()` is for `since=`."""
        self.clock = ClockView(self._with_clock)
        """The broker's clock: freeze, run, set, advance."""
        self.topology = TopologyFacade(self._with_topology)
        """The nodes and leaders: move, take offline, stop, start."""
        self._files: Files = DiskFiles() if data_dir is not None else MemoryFiles(self._now_ns)
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._operations: Operations | None = None
        self._stop: asyncio.Future[None] | None = None
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._clock: VirtualClock | None = None

    def _now_ns(self) -> int:
        """The broker's time, which files in memory get."""
        operations = self._operations
        clock = self._clock if operations is None else operations.running.state.clock
        return 0 if clock is None else clock.now_ms() * 1_000_000

    # Starting and stopping

    def start(self) -> Self:
        """Starts it, and returns when clients can connect. One that was stopped has its data still. Raises
        StartupError, or OperationError where it runs already."""
        ready = self._begin()
        try:
            ready.result()
        except BaseException:
            self._give_up(ready)
            raise
        return self

    def _give_up(self, ready: concurrent.futures.Future[None]) -> None:
        """Leaves nothing of a start that failed, or whose caller was interrupted and will not know of it."""
        with contextlib.suppress(Exception):  # it failed, or was cancelled: then its thread ends by itself
            ready.result()
            self._end()
        self._gone()

    def _begin(self) -> concurrent.futures.Future[None]:
        if self._thread is not None:
            raise OperationError("the broker runs already")
        self._process = os.getpid()
        ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(ready, self._ended), name="ottla-embedded", daemon=True)
        self._thread.start()
        return ready

    def stop(self) -> None:
        """Stops it, and returns when its thread is gone; harmless where it does not run. Raises OperationError when
        not everything could be written."""
        ended = self._end()
        try:
            ended.result()
        finally:
            self._gone()

    def _end(self) -> concurrent.futures.Future[None]:
        """Tells it to stop; the future is done when it has."""
        if self._process != os.getpid():
            self._thread = None
        if self._thread is None:
            ended: concurrent.futures.Future[None] = concurrent.futures.Future()
            ended.set_result(None)
            return ended
        self._check_thread()
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(self._tell_stop)
        return self._ended

    def _tell_stop(self) -> None:
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(None)

    def _gone(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self._loop = self._operations = self._stop = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except OperationError:
            if error is None:
                raise

    async def __aenter__(self) -> Self:
        ready = self._begin()
        try:
            await asyncio.wrap_future(ready)
        except BaseException:
            self._give_up(ready)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await asyncio.wrap_future(self._end())
        except OperationError:
            if error is None:
                raise
        finally:
            self._gone()

    # In its thread

    def _run(self, ready: concurrent.futures.Future[None], ended: concurrent.futures.Future[None]) -> None:
        logs.quieten_thread()
        failure: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=_LOOP_FACTORY) as runner:
                runner.run(self._live(ready))
        except BaseException as error:
            failure = error
        if not ready.done():
            ready.set_exception(failure or OperationError("the broker ended before it was ready"))
            failure = None
        if failure is None:
            ended.set_result(None)
        else:
            ended.set_exception(failure)

    async def _live(self, ready: concurrent.futures.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        self._clock = VirtualClock(loop)
        running = await server.start(
            self.options, loop, self._clock, files=self._files, faults=self._faults, ring=Ring()
        )
        operations = Operations(running)
        control: ControlServer | None = None
        try:
            await operations.keep_start()
            if self.options.control is not None:
                from .control.app import start_control

                where = self.options.control
                control = await start_control(operations, where.host, where.port, may_write=self.options.control_write)
                self.control_url = control.url
            running.on_failed = partial(_shut, running)
            names = [listener.name for listener in self.options.listeners]
            self.bootstraps = {name: _addresses(running, number) for number, name in enumerate(names)}
            self.bootstrap = self.bootstraps[names[0]]
            self._stop = loop.create_future()
            self._loop, self._operations = loop, operations
            ready.set_result(None)
            await self._stop
        finally:
            if control is not None:
                await control.stop()
            await self._close(operations)

    async def _close(self, operations: Operations) -> None:
        running = operations.running
        has_failed = running.failed.done()
        try:
            await operations.stop()
        except StorageError as error:
            if not has_failed:
                raise OperationError(f"stopped, but not everything could be written: {error}") from error
        finally:
            self._files = running.store
            for _ in range(CLOSING_TURNS):
                await asyncio.sleep(0)

    def _check_thread(self) -> None:
        if self._thread is threading.current_thread():
            raise RuntimeError("an embedded broker is not to be called in its own thread")

    def _call(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        """What an operation comes to, done on the broker's loop."""
        self._check_thread()
        if self._process != os.getpid():
            raise OperationError("the broker runs in another process, of which this one is a copy")
        loop, operations = self._loop, self._operations
        if loop is None or operations is None:
            raise OperationError("the broker does not run")
        return self._wait(loop, work(operations))

    @staticmethod
    def _wait(loop: asyncio.AbstractEventLoop, work: Any) -> Any:
        coroutine: Coroutine[Any, Any, Any] = work
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError as error:  # its loop is closed
            coroutine.close()
            raise OperationError("the broker does not run") from error
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise OperationError("the broker stopped before it was done") from error

    def _with_faults(self, work: Callable[[], T]) -> T:
        async def done(operations: Operations) -> T:
            return work()

        return work() if self._operations is None else self._call(done)

    def _with_clock(self, work: Callable[[ClockControl], Awaitable[ClockState]]) -> ClockState:
        return self._call(lambda operations: operations.moving(work))

    def _with_running(self, work: Callable[[server.Running], Awaitable[T]]) -> T:
        return self._call(lambda operations: work(operations.running))

    def _with_topology(self, work: Callable[[Topology], T]) -> T:
        async def done(operations: Operations) -> T:
            return work(operations.topology)

        return self._call(done)

    # The whole state

    def snapshot(self) -> Snapshot:
        """Keeps all that the broker holds, for `restore`; clients notice nothing."""
        return self._call(lambda operations: operations.snapshot())

    def restore(self, snapshot: Snapshot) -> None:
        """Has the broker hold what it held then, with the clock, the leaders and the stopped nodes of that time, behind
        the same ports; faults stay. A broker whose disk failed works again.

        Clients are cut off, and find it so when they come back. What they know goes no way back: so leaders' epochs do
        not, and no producer's id is given out twice; an idempotent producer that has sent since is told that its
        sequence is out of order, as by a cluster that lost what it had. A transactional id goes on from its epoch of
        then, so a client that used it since may not be fenced by the first that takes it over.
        """
        self._call(lambda operations: operations.restore(snapshot))

    def reset(self) -> None:
        """Has the broker be as it was at its start: data, clock, leaders, and no faults."""
        self._call(lambda operations: operations.reset())

    # Topics

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        configs: Mapping[str, Any] = {},
        replication_factor: int | None = None,
    ) -> str:
        """Makes a topic and returns its name; without one it gets a name that no other has. The factor is
        `default.replication.factor` unless given."""
        return self._call(lambda operations: operations.create_topic(name, partitions, configs, replication_factor))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic. Raises NotFound."""
        self._call(lambda operations: operations.delete_topic(name))

    def topics(self) -> list[TopicInfo]:
        """All topics by name, Kafka's own too."""
        return self._call(lambda operations: operations.topics())

    def topic(self, name: str) -> TopicInfo:
        """One topic. Raises NotFound."""
        return self._call(lambda operations: operations.topic(name))

    # Records

    def send(
        self,
        topic: str,
        value: Value,
        key: Value = None,
        headers: Iterable[tuple[str, Value]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Appends one record past the wire, and returns its offset; texts are stored as UTF-8.

        Without a partition it goes where Java's client puts its key; records without a key go to the partitions in
        turns.
        """
        return self._call(lambda operations: operations.send(topic, value, key, headers, partition, timestamp_ms))

    def send_many(self, topic: str, records: Iterable[Any]) -> list[int]:
        """Appends many in few batches: values, (key, value) pairs, NewRecords or Records; the offset of each."""
        given = list(records)
        return self._call(lambda operations: operations.send_many(topic, given))

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """All committed records of a topic, or of one of its partitions, by partition and offset."""
        return self._call(lambda operations: operations.records(topic, partition))

    def assert_produced(self, topic: str, expected: Iterable[Any], ordered: bool = True) -> None:
        """Raises AssertionError with the difference unless the topic's committed records are those expected.

        An expectation is a value, a (key, value) pair or a whole Record; what it does not name is not compared. They
        stand by partition and offset, unless `ordered` is False: then in any order.
        """
        __tracebackhide__ = True
        told = difference(topic, self.records(topic), expected, ordered)
        if told is not None:
            raise AssertionError(told)

    # Requests

    def assert_requests(self, *, within_ms: int = 0, **words: Unpack[Words]) -> list[SeenRequest]:
        """Raises AssertionError, with what was otherwise, unless the requests that clients made are as the words say;
        they are `Words`. Returns the requests that were looked at.

            broker.assert_requests(api="Produce", client_id="orders", acks=-1, idempotent=True, codec="lz4")

        Where requests or answers are missing, they have `within_ms` of real time to come. Raises ValueError and
        TypeError for words that make no sense.
        """
        __tracebackhide__ = True
        told = self.requests.judge(within_ms, words)
        if not told.passed:
            raise AssertionError(told.text)
        return told.looked_at

    # Groups and producers

    def groups(self) -> list[Group]:
        """All groups by id."""
        return self._call(lambda operations: operations.groups())

    def group(self, id: str) -> Group:
        """One group: its state, members, committed offsets and lag. One that is not there is in state Dead."""
        return self._call(lambda operations: operations.group(id))

    def producers(self, topic: str | None = None) -> list[ProducerInfo]:
        """What the partitions of all topics, or of one, know of producers with ids."""
        return self._call(lambda operations: operations.producers(topic))

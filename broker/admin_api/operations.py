"""All operations on a running broker, on the broker's own loop and in plain values.

Defines their meaning: the partition of a record, which records are committed, the lag of a group. `Embedded` (another
thread) and the control plane (HTTP) call them. Uses sockets only through `Running`, whose state may be replaced between
any two awaits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.murmur2 import java_partition
from ...protocol.records import batch, formats
from ...storage.errors import StorageError
from ...storage.format.partition_metadata import encode_id
from ...storage.io import random_ids
from ...storage.io.memory import MemoryFiles
from ..config.resource_types import BROKER, TOPIC
from ..errors import CODES, Refused, code_of
from ..futures import settled
from ..groups.resets import SCENARIOS, Reset
from ..handlers.configs import resources
from ..logs import get_logger
from ..metadata.topics import PARTITIONS_AT_ONCE_MAX
from ..replica.assignment import NO_LEADER
from ..replica.partition import PRODUCE_VERSION
from . import group_offsets, snapshots
from .administration import (
    ACLS_MAX,
    ALL_ACLS,
    acl_of,
    changes_of,
    check_entries,
    config_info,
    entries_of,
    entry_of,
    filter_of,
    request_context,
)
from .clock import ClockControl
from .snapshots import Snapshot
from .views import (
    AclEntry,
    AlreadyExists,
    BrokerFailed,
    ConfigInfo,
    Group,
    GroupReset,
    NewRecord,
    NotFound,
    OperationError,
    PartitionInfo,
    ProducerInfo,
    Record,
    ShareRecordsInFlight,
    TopicInfo,
    Value,
    checked_text,
    config_texts,
    headers_of,
    to_bytes,
    whole,
)

if TYPE_CHECKING:
    from ...storage.partition_log import PartitionLog
    from ..broker_state import BrokerState
    from ..metadata.topics import Topic
    from ..metadata.topology import Topology
    from ..network.server import Running
    from ..replica.partition import Partition

START_BYTES = 64 << 20  # of logs that are copied at a start: about a tenth of a second
BATCH_BYTES = 256 * 1024  # of one batch to one partition
READ_BYTES = 1 << 20
_NOT_FOUND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.GROUP_ID_NOT_FOUND)


T = TypeVar("T")


@contextlib.contextmanager
def _as_operation_errors(topic: str = "", partition: int | None = None) -> Generator[None]:
    """Turns refusals of the broker into OperationErrors with Kafka's error name; unknown names are reported of this
    topic."""
    try:
        yield
    except (*CODES, Refused) as error:
        code = code_of(error)
        text = str(error)
        message = text if text.startswith(code.name) else f"{code.name}: {text}"
        if code in _NOT_FOUND:
            named = f"{code.name}: there is no {topic}" + ("" if partition is None else f"-{partition}")
            raise NotFound(named if topic and text == code.name else message) from error
        if code is ErrorCode.TOPIC_ALREADY_EXISTS:
            raise AlreadyExists(message) from error
        raise OperationError(message) from error


class Operations:
    """The operations of one broker. Every method is called on the broker's loop, and raises OperationError with one
    line."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.clock = ClockControl(running)
        """The broker's clock: freeze, run, set, advance."""
        self._scheduler: dict[str, Iterator[int]] = {}
        self._start: Snapshot | None = None
        self._no_start = "the state at the start was not kept: no reset is possible"
        self._alone = asyncio.Lock()
        self._is_stopped = False

    @property
    def topology(self) -> Topology:
        """The present nodes and leaders; another object after a `restore`."""
        return self._state.topology

    @property
    def _state(self) -> BrokerState:
        """The present state. Raises BrokerFailed if it cannot continue."""
        self._check_running()
        state = self.running.state
        if state.failed.done():
            raise BrokerFailed(state.failed.result())
        return state

    def _check_running(self) -> None:
        """Refuses operations after the stop, also those that waited for an earlier one meanwhile."""
        if self._is_stopped:
            raise OperationError("the broker does not run")

    # The whole state

    async def keep_start(self) -> None:
        """Keeps the present state for `reset`. Called once, before clients learn the broker's address.

        Data directories on a disk are copied if they hold at most START_BYTES, and are not kept otherwise.
        """
        running = self.running
        if not isinstance(running.store, MemoryFiles) and _size_of(running.state) > START_BYTES:
            self._no_start = (
                f"the state at the start was too large to be kept (more than {START_BYTES} bytes): no reset is possible"
            )
            return
        try:
            self._start = await self.snapshot()
        except OperationError as error:  # a disk has failed, or is full
            self._no_start = f"the state at the start was not kept, no reset is possible: {error}"
            get_logger().warning("state at the start not kept, a reset is not possible", reason=str(error))

    async def snapshot(self) -> Snapshot:
        """Takes a snapshot of the whole state, for `restore`, when no append or sync is running; clients notice
        nothing."""
        async with self._alone:
            self._state  # noqa: B018  raises BrokerFailed, rather than waiting for appends that may never end
            return await snapshots.take(self.running)

    async def restore(self, snapshot: Snapshot) -> None:
        """Replaces the broker's state by a snapshot, with the clock, the leaders and the stopped nodes of that time;
        ports and faults stay. A broker whose disk failed works again.

        Clients are disconnected, and see the restored state when they reconnect. Leader epochs do not go back, and no
        producer id is assigned twice: an idempotent producer that has sent records after the snapshot receives
        OUT_OF_ORDER_SEQUENCE_NUMBER, as from a cluster that lost data. A transactional id has its epoch of the snapshot
        again, so a client that used it after the snapshot may not be fenced by the next one that initializes it.
        """
        given: Any = snapshot
        if not isinstance(given, Snapshot):
            raise TypeError(f"restore takes a Snapshot, not {given!r}")
        async with self._alone:
            self._check_running()
            await snapshots.restore(self.running, snapshot)

    async def stop(self) -> None:
        """Stops the broker, after any other operation on the whole state. Raises StorageError if not everything could
        be written."""
        async with self._alone:
            self._is_stopped = True
            await self.running.stop()

    async def moving(self, work: Callable[[ClockControl], Awaitable[T]]) -> T:
        """Runs an operation of the clock, while no other operation on the whole state runs."""
        async with self._alone:
            self._state  # noqa: B018
            return await work(self.clock)

    async def reset(self) -> None:
        """Resets the broker to its state at the start, removes all faults, and clears the list of requests."""
        if self._start is None:
            raise OperationError(self._no_start)
        if self.running.faults is not None:
            self.running.faults.clear()
        await self.restore(self._start)
        if self.running.ring is not None:
            self.running.ring.clear()

    # Topics

    async def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        configs: Mapping[str, Any] | None = None,
        replication_factor: int | None = None,
    ) -> str:
        """Creates a topic and returns its name; without `name` the topic gets a unique one. The replication factor is
        the broker's default unless given."""
        state = self._state
        name = name or f"topic-{random_ids.uuid4().hex()[:12]}"
        checked_text("the name of a topic", name)
        if whole("partitions", partitions) < 1:
            raise OperationError(f"INVALID_PARTITIONS: a topic has at least one partition, not {partitions}")
        if partitions > PARTITIONS_AT_ONCE_MAX:
            raise OperationError(f"POLICY_VIOLATION: at most {PARTITIONS_AT_ONCE_MAX} partitions, not {partitions}")
        with _as_operation_errors():
            topics = state.topics
            factor = None if replication_factor is None else topics.check_factor(replication_factor)
            replicas = None if factor is None else topics.place(partitions, factor)
            topics.create(name, partitions, config_texts(configs or {}), state.clock.now_ms(), replicas)
        return name

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic; requests that wait for its partitions get their responses. Raises NotFound."""
        state = self._state
        with _as_operation_errors(name):
            state.topics.delete(state.topics.named(name), state.clock.now_ms())
            state.groups.forget_topic(name)

    async def topics(self) -> list[TopicInfo]:
        """Returns all topics by name, including internal ones."""
        state = self._state
        return [_topic_info(state, topic) for topic in sorted(state.topics, key=lambda topic: topic.name)]

    async def topic(self, name: str) -> TopicInfo:
        """Returns one topic. Raises NotFound."""
        state = self._state
        with _as_operation_errors(name):
            return _topic_info(state, state.topics.named(name))

    # Records

    async def send(
        self,
        topic: str,
        value: Value,
        key: Value = None,
        headers: Iterable[tuple[str, Value]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Appends one record without a connection, and returns its offset when it is stored; texts are stored as UTF-8.

        Without a partition, its key chooses one as in Java's client; without a key the partitions are used round-robin.
        A missing topic is created if the broker's `auto.create.topics.enable` allows that. The timestamp is the
        broker's time unless given.
        """
        (offset,) = await self.send_many(topic, [NewRecord(value, key, headers_of(headers), partition, timestamp_ms)])
        return offset

    async def send_many(self, topic: str, records: Iterable[Any]) -> list[int]:
        """Appends records (values, (key, value) pairs, NewRecords or Records) in few batches, and returns the offset of
        each."""
        state = self._state
        with _as_operation_errors(checked_text("the name of a topic", topic)):
            found = state.topics.get(topic)
            if found is None:
                if not state.config["auto.create.topics.enable"]:
                    raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                found = await state.auto_create(topic, state.clock.now_ms())
            now_ms = state.clock.now_ms()
            chosen: dict[int, list[tuple[int, batch.Record]]] = {}
            count = 0
            for count, given in enumerate(records, 1):
                record = NewRecord.of(given)
                key = to_bytes(record.key)
                index = self._partition(found, record.partition, key)
                time_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
                headers = tuple(batch.Header(name, to_bytes(value)) for name, value in headers_of(record.headers))
                chosen.setdefault(index, []).append(
                    (count - 1, batch.Record(0, time_ms, key, to_bytes(record.value), headers))
                )
            offsets = [-1] * count
            for index, entries in chosen.items():
                partition = state.topics.partition(topic, index)
                for run in _runs(entries):
                    await self._append(state, partition, run, offsets)
            return offsets

    def _partition(self, topic: Topic, wanted: int | None, key: bytes | None) -> int:
        count = len(topic.partitions)
        if wanted is not None:
            if not 0 <= whole("partition", wanted) < count:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {wanted}")
            return wanted
        if count == 1:
            return 0
        if key is not None:
            return java_partition(key, count)
        return next(self._scheduler.setdefault(topic.name, itertools.count())) % count

    async def _append(
        self, state: BrokerState, partition: Partition, run: Sequence[tuple[int, batch.Record]], offsets: list[int]
    ) -> None:
        if partition.leader == NO_LEADER:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition.topic}-{partition.index} has no leader")
        records = [record._replace(offset=delta) for delta, (_, record) in enumerate(run)]
        data = batch.build(records)
        appended = await settled(partition.submit(data, state.clock.now_ms(), PRODUCE_VERSION, state.scheduler))
        for delta, (position, _) in enumerate(run):
            offsets[position] = appended.base_offset + delta

    async def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """Returns all committed records of a topic, or of one of its partitions, by partition and offset."""
        return [record async for some in self.slices(topic, partition) for record in some]

    async def slices(self, topic: str, partition: int | None = None, offset: int = 0) -> AsyncIterator[list[Record]]:
        """Yields the result of `records` in slices; each partition from `offset` on."""
        state = self._state
        with _as_operation_errors(topic, partition):
            named = state.topics.named(topic)
            if partition is not None:
                state.topics.partition(topic, partition)
            for one in named.partitions if partition is None else [named.partitions[partition]]:
                for records in _committed(one.log, offset):
                    yield [
                        Record(topic, one.index, at, time_ms, key, value, tuple((h[0], h[1]) for h in headers))
                        for at, time_ms, key, value, headers in records
                    ]
                    await asyncio.sleep(0)

    def marks(self, topic: str) -> tuple[Any, ...]:
        """Returns a value that changes whenever the topic's committed records may have changed. Raises NotFound."""
        state = self._state
        with _as_operation_errors(topic):
            named = state.topics.named(topic)
        logs = [one.log for one in named.online_partitions()]
        return named.id, *((log.log_start_offset, log.last_stable_offset, log.size_bytes) for log in logs)

    def fetch_positions(self, topic: str) -> list[tuple[Partition, int, int]]:
        """Returns the positions from which a `bytes_waiter` waits for the topic's next committed record: (partition,
        offset, bytes). Empty if the topic does not exist yet."""
        named = self._state.topics.get(topic)
        partitions = [] if named is None else named.online_partitions()
        return [(one, one.log.last_stable_offset, READ_BYTES) for one in partitions]

    # Groups and producers

    async def groups(self) -> list[Group]:
        """Returns all groups by id."""
        from .group_views import group_view  # has all kinds of groups, which many tests do not need

        state = self._state
        _, listed = state.groups.list_groups()
        return [group_view(state, group_id) for group_id in sorted(one.group_id for one in listed)]

    async def group(self, id: str) -> Group:
        """Returns one group: its state, members, committed offsets and lag. A missing group is in state Dead."""
        from .group_views import group_view

        return group_view(self._state, id)

    async def share_records(self, id: str, topic: str, partition: int) -> ShareRecordsInFlight:
        """Returns the records in flight of a share group in a partition. Raises NotFound."""
        from .group_views import share_records

        with _as_operation_errors(topic, partition):
            return share_records(self._state, id, topic, partition)

    async def delete_group(self, id: str) -> None:
        """Deletes a group with its committed offsets. Refused while it has members; raises NotFound."""
        with _as_operation_errors():
            await group_offsets.delete(self._state, id)

    async def reset_offsets(
        self,
        id: str,
        to: str,
        number: int = 0,
        of: Iterable[tuple[str, int | None]] | None = None,
        *,
        dry_run: bool = False,
    ) -> GroupReset:
        """Sets the committed offsets of a group without members, as kafka-consumer-groups does, and returns each
        partition with its offset before and after; with `dry_run` only returns them.

            broker.reset_offsets("readers", "earliest")
            broker.reset_offsets("readers", "shift", -10, of=[("orders", 0)])

        `to` is "earliest", "latest", "current", or with its `number` "offset", "shift" (by how many, negative to go
        back) or "time" (milliseconds since 1970). `of` are (topic, partition)s, with None for all partitions of the
        topic; the default is every partition for which the group has committed an offset.
        """
        if to not in SCENARIOS:
            raise OperationError(f"INVALID_REQUEST: offsets are reset to one of {', '.join(SCENARIOS)}, not {to!r}")
        reset = Reset(to, whole("number", number))
        with _as_operation_errors():
            return await group_offsets.reset(self._state, id, reset, of, dry_run=dry_run)

    # Configs and access control lists

    async def topic_configs(self, topic: str) -> list[ConfigInfo]:
        """Returns all configs of a topic, with defaults. Raises NotFound."""
        state = self._state
        with _as_operation_errors(topic):
            config, facts = state.topics.named(topic).config, state.config.facts("topic")
            return [config_info(config.describe(key), facts.get(key)) for key in sorted(config.names())]

    async def broker_configs(self) -> list[ConfigInfo]:
        """Returns all configs of the broker, with defaults."""
        state = self._state
        with _as_operation_errors():
            config = state.config.of(state.nodes.ids[0])
            return [config_info(config.describe(key), config.fact(key)) for key in sorted(config.names())]

    async def change_topic_configs(
        self,
        topic: str,
        set: Mapping[str, Any] | None = None,
        *,
        delete: Iterable[str] = (),
        append: Mapping[str, Any] | None = None,
        subtract: Mapping[str, Any] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Changes configs of a topic, all or none, like IncrementalAlterConfigs: values to set, names to delete,
        elements to append to lists or subtract from them, joined by commas."""
        changes, context = changes_of(set, delete, append, subtract), request_context(self._state)
        with _as_operation_errors(topic):
            context.broker.topics.named(topic)
            resources.alter(context, TOPIC, topic, changes, validate_only=validate_only)

    async def change_broker_configs(
        self,
        set: Mapping[str, Any] | None = None,
        *,
        delete: Iterable[str] = (),
        append: Mapping[str, Any] | None = None,
        subtract: Mapping[str, Any] | None = None,
        for_all: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Changes dynamic configs of the broker like `change_topic_configs`; with `for_all` the default of all brokers,
        which a value of the broker itself overrides."""
        changes, context = changes_of(set, delete, append, subtract), request_context(self._state)
        name = "" if for_all else str(context.node_id)
        with _as_operation_errors():
            resources.alter(context, BROKER, name, changes, validate_only=validate_only)

    async def acls(self, wanted: AclEntry = ALL_ACLS) -> list[AclEntry]:
        """Returns the first 10,000 access control entries that match a filter, sorted; by default all. Refused if the
        broker has no authorizer."""
        with _as_operation_errors():
            return [entry_of(acl) for acl in sorted(entries_of(self._state).find(filter_of(wanted)))[:ACLS_MAX]]

    async def add_acls(self, entries: Iterable[AclEntry]) -> None:
        """Adds access control entries, all or none; entries that exist stay as they are."""
        state = self._state
        with _as_operation_errors():
            stored, acls = entries_of(state), [acl_of(entry) for entry in entries]
            check_entries(state, acls)
            stored.add(acls, state.clock.now_ms())

    async def remove_acls(self, wanted: AclEntry) -> list[AclEntry]:
        """Removes the entries that match a filter, all or none, and returns them."""
        state = self._state
        with _as_operation_errors():
            going = sorted(entries_of(state).find(filter_of(wanted)))
            state.acls.remove(going, state.clock.now_ms())
            return [entry_of(acl) for acl in going]

    async def producers(self, topic: str | None = None) -> list[ProducerInfo]:
        """Returns the producer state entries of the partitions of all topics, or of one topic."""
        state = self._state
        found: list[ProducerInfo] = []
        with _as_operation_errors(topic or ""):
            topics = [state.topics.named(topic)] if topic is not None else list(state.topics)
            for one in sorted(topics, key=lambda topic: topic.name):
                for partition in one.online_partitions():
                    for producer_id, known in sorted(partition.log.producers().items()):
                        found.append(
                            ProducerInfo(
                                topic=one.name,
                                partition=partition.index,
                                producer_id=producer_id,
                                producer_epoch=known.epoch,
                                last_sequence=known.last_sequence,
                                last_timestamp_ms=known.last_timestamp_ms,
                                coordinator_epoch=known.coordinator_epoch,
                                transaction_start_offset=known.transaction_first_offset,
                            )
                        )
        return found


def _runs(entries: list[tuple[int, batch.Record]]) -> Iterator[list[tuple[int, batch.Record]]]:
    """Yields the records of one partition in runs of one batch each."""
    run: list[tuple[int, batch.Record]] = []
    size = 0
    for entry in entries:
        record = entry[1]
        length = 64 + len(record.key or b"") + len(record.value or b"")
        length += sum(32 + len(name) + len(value or b"") for name, value in record.headers)
        if run and size + length > BATCH_BYTES:
            yield run
            run, size = [], 0
        run.append(entry)
        size += length
    if run:
        yield run


def _committed(log: PartitionLog, first_offset: int) -> Iterator[list[batch.Record]]:
    """Yields the committed records of a log from an offset on, slice by slice. Raises StorageError and the errors of
    records."""
    offset = start = max(log.log_start_offset, first_offset)
    end = log.last_stable_offset
    while offset < end:
        piece = log.read(offset, READ_BYTES, committed=True)
        data = piece.records
        found: list[batch.Record] = []
        after = offset
        for position, header in formats.headers(data):
            after = max(after, header.base_offset + header.last_offset_delta + 1)
            if header.is_control or any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                for one in (piece.aborted if header.is_transactional else ())
            ):
                continue
            found += [r for r in formats.records(data, position) if max(offset, start) <= r.offset < end]
        if after == offset:  # only offsets without records follow
            return
        offset = after
        yield found


def _size_of(state: BrokerState) -> int:
    """Returns the bytes of all logs."""
    return sum(log.size_bytes for log_dir in state.logs.directories for log in log_dir.logs.values())


def _topic_info(state: BrokerState, topic: Topic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        id=encode_id(topic.id),
        is_internal=topic.is_internal,
        partitions=tuple(partition_info(partition) for partition in topic.partitions),
        configs=topic.config.overrides,
    )


def partition_info(partition: Partition) -> PartitionInfo:
    """Returns the present facts of a partition."""
    leader, epoch = partition.leader, partition.leader_epoch
    try:
        log = partition.log
        offsets = (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.size_bytes)
        return PartitionInfo(partition.index, leader, epoch, *offsets)
    except StorageError as error:
        return PartitionInfo(partition.index, -1, epoch, -1, -1, -1, -1, partition.offline or str(error))

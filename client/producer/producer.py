"""The producer: sending, flushing and transactions for an application.

Owns `send` with its work for each record (serialization, choice of a partition, appending to a batch), start and stop.
Requests, retries and idempotence are in `sender.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from random import Random
from typing import Any, cast

from ...protocol.limits import INT64_MAX
from ..consumer.group_offsets import GroupMetadata, OffsetAndMetadata, read_offsets
from ..consumer.list_offsets import TopicPartition
from ..net import clock
from ..net.cluster import NO_NODE, Cluster
from ..net.errors import (
    ClientClosed,
    ClientError,
    ConfigError,
    InvalidTransactionState,
    KafkaError,
    MessageTooLarge,
    ProducerFailed,
    TransactionUnsettled,
)
from ..net.metadata import Partition, Topic
from ..net.options import field_values
from ..net.retry import retry
from .accumulator import PartitionQueue, RecordMetadata
from .batches import RECORD_BYTES_MAX_OVERHEAD, RECORD_OVERHEAD, Headers, headers_bytes
from .log_tail import CommittedRecord
from .options import ProducerOptions
from .partitioners import Factory, java_default
from .partitioners import partitioner as factory_of
from .sender import Sender
from .transactions.manager import Transactions

Serializer = Callable[[Any], bytes | None]


class _Route:
    """The queues of a topic for the current metadata."""

    __slots__ = ("available", "batch_bytes", "count", "queues", "topic")

    def __init__(self, topic: Topic, queues: dict[int, PartitionQueue], batch_bytes: int) -> None:
        self.topic = topic
        self.queues = queues
        self.count = len(queues)
        self.available = [index for index, partition in topic.partitions.items() if partition.leader != NO_NODE]
        self.batch_bytes = batch_bytes


class Producer:
    """Sends records to topics.

        async with Producer("127.0.0.1:9092") as producer:
            future = await producer.send("greetings", b"hello", key=b"me")
            metadata = await future

    Options are those of `ProducerOptions` and `ClientOptions`; `from_config` accepts Kafka's names. All errors are
    ClientErrors. The future of a record has RecordMetadata, or raises DeliveryTimeout, KafkaError (refused by the
    broker), IdempotenceUnsupported, or ProducerFailed. After ProducerFailed the producer can send no more: check the
    log with `last_committed`, stop it, and continue with a new producer.

    With a `transactional_id` records are sent within transactions; consumers with `read_committed` see them when their
    transaction is committed, all or none:

        async with Producer("127.0.0.1:9092", transactional_id="greeter") as producer:
            async with producer.transaction():
                await producer.send("greetings", b"hello")
                await producer.send_offsets_to_transaction({("names", 0): 7}, consumer.group_metadata())

    In a transaction the futures of records need not be awaited: the commit waits for all, and raises if one failed. A
    new producer with the same transactional id fences the older ones, which fail with ProducerFenced.

    `partitioner` is a name of `partitioners.py` or a factory; `key_serializer` and `value_serializer` convert keys and
    values to bytes. `now_ms` is the clock for records without a timestamp; `random` is for back-off and partitions.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str] = "127.0.0.1:9092",
        *,
        partitioner: str | Factory = java_default,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        now_ms: Callable[[], int] = clock.now_ms,
        random: Random | None = None,
        **options: Any,
    ) -> None:
        # Checked here, so that the error for an unknown name has the nearest known one.
        values = field_values(ProducerOptions, options)
        self.options = ProducerOptions(bootstrap=bootstrap, **values)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._now_ms = now_ms
        self._rng = random if random is not None else Random()
        self._partitioner = factory_of(partitioner)(self._rng)
        self._cluster = Cluster(self.options, rng=self._rng)
        self._routes: dict[str, _Route] = {}
        self._sender: Sender | None = None
        self._is_open = False
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **more: Any) -> Producer:
        """Creates a producer from Kafka's option names: `{"bootstrap.servers": ..., "linger.ms": 5}`.

        `more` are the other parameters: serializers, clock, random. Raises ConfigError.
        """
        rest = dict(config)
        if "partitioner" in rest:
            more.setdefault("partitioner", rest.pop("partitioner"))
        return cls(**field_values(ProducerOptions, rest), **more)

    # Start and stop

    async def start(self) -> None:
        """Connects to the cluster. Raises ConnectionLost if no broker is reachable."""
        if self._is_open or self._stopping is not None:
            raise ClientError("a producer can be started only once")
        await self._cluster.start()
        self._sender = Sender(self._cluster, self.options, self._partitioner.batch_closed)
        self._is_open = True

    async def stop(self, timeout_s: float | None = None) -> None:
        """Sends all records, waits for their acknowledgements, and closes.

        Records that are unfinished after `timeout_s` (default: no limit but their delivery timeout) fail with
        ClientClosed; so do all at once if the call is cancelled. May be called again.
        """
        if self._stopping is None:
            self._is_open = False
            self._stopping = asyncio.get_running_loop().create_task(self._stop(timeout_s))
        try:
            await asyncio.shield(self._stopping)
        except asyncio.CancelledError:
            self._abandon()
            raise

    async def _stop(self, timeout_s: float | None) -> None:
        sender = self._sender
        if sender is not None:
            sender.accumulator.refuse_waiters(_closed)
            try:
                async with asyncio.timeout(timeout_s):
                    if sender.transactions is not None:
                        await sender.transactions.finish()
                    await sender.flush()
            except TimeoutError:
                pass
            self._abandon()
            await sender.close()
        await self._cluster.close()

    def _abandon(self) -> None:
        if self._sender is not None:
            if self._sender.transactions is not None:
                self._sender.transactions.close()
            self._sender.fail_all(_closed)

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    # Sending

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Appends a record to a batch; returns a future of its RecordMetadata.

        Waits only for metadata of the topic and for memory, at most `max_block_ms` together, and one iteration of the
        event loop when a batch is full. Cancelling the future does not prevent the sending. Raises NoSuchTopic,
        KafkaError, MessageTooLarge, BufferFull, ProducerFailed, ClientClosed, and TypeError for a key or value that is
        not bytes.
        """
        sender = self._sender
        if sender is None or not self._is_open or sender.failure is not None:
            raise self._unusable()
        ticket = 0 if sender.transactions is None else sender.transactions.ticket()
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        size = RECORD_OVERHEAD
        if value is not None:
            if type(value) is not bytes:
                value = _bytes(value, "value")
            size += len(value)
        if key is not None:
            if type(key) is not bytes:
                key = _bytes(key, "key")
            size += len(key)
        pairs: Headers = ()
        if headers:
            pairs = _headers(headers)
            size += headers_bytes(pairs)
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        elif not 0 <= timestamp_ms <= INT64_MAX:
            raise ConfigError(f"timestamp_ms must be 0 or more, not {timestamp_ms}")
        route = self._routes.get(topic)
        accumulator = sender.accumulator
        if route is None or route.topic is not self._cluster.topics.get(topic) or size > accumulator.free:
            route = await self._blocked(sender, topic, size, ticket)
        else:
            if size > self.options.max_request_size - RECORD_BYTES_MAX_OVERHEAD:
                raise self._too_large(size)
            if accumulator.is_waited_for:
                route = await self._blocked(sender, topic, size, ticket)
            else:
                accumulator.free -= size
        if partition is None:
            partition = self._partitioner.choose(topic, key, route.count, route.available)
        queue = route.queues.get(partition)
        if queue is None:
            accumulator.give_room(size)
            raise KafkaError(3, f"topic {topic!r} has no partition {partition}: it has {route.count} partitions")
        batch = queue.open
        if batch is None:
            batch = accumulator.open_batch(queue, sender.now_s())
        elif batch.size + size > route.batch_bytes:
            queue.open = None  # full: it is sent before the next batch is opened
            sender.wake()
            self._partitioner.batch_closed(topic, partition)
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                accumulator.give_room(size)
                raise
            self._check_after_waiting(sender, size, ticket)
            batch = queue.open
            if batch is None or batch.size + size > route.batch_bytes:
                batch = accumulator.open_batch(queue, sender.now_s())
        batch.size += size
        batch.records.append((timestamp_ms, key, value, pairs))
        queue.next_ordinal += 1
        future: asyncio.Future[RecordMetadata] = sender.loop.create_future()
        batch.futures.append(future)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends a record and waits for its RecordMetadata; see `send`."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    async def flush(self) -> None:
        """Sends all batches at once, and returns when all records sent before are acknowledged or failed."""
        if self._sender is None:
            raise self._unusable()
        await self._sender.flush()

    def _unusable(self) -> ClientError:
        if self._sender is not None and self._sender.failure is not None:
            return self._sender.failed()
        return _closed()

    def _too_large(self, size: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"a record of about {size} bytes is larger than max.request.size ({self.options.max_request_size})"
            f" or buffer.memory ({self.options.buffer_memory}) allow"
        )

    async def _blocked(self, sender: Sender, topic: str, size: int, ticket: int) -> _Route:
        """Waits for metadata, and reserves memory."""
        if size > min(self.options.max_request_size - RECORD_BYTES_MAX_OVERHEAD, self.options.buffer_memory):
            raise self._too_large(size)
        deadline_s = sender.now_s() + self.options.max_block_ms / 1000
        route = await self._route(topic, max(0.0, self.options.max_block_ms / 1000))
        await sender.accumulator.room(size, max(0.0, deadline_s - sender.now_s()))
        self._check_after_waiting(sender, size, ticket)
        return route

    def _check_after_waiting(self, sender: Sender, size: int, ticket: int) -> None:
        """Releases the memory and raises, if the record can no longer be sent after a wait."""
        error: ClientError | None = None
        if sender.failure is not None or not self._is_open:
            error = self._unusable()
        elif sender.transactions is not None:
            error = sender.transactions.refuses(ticket)
        if error is not None:
            sender.accumulator.give_room(size)
            raise error

    async def _route(self, name: str, timeout_s: float) -> _Route:
        assert self._sender is not None
        known = self._cluster.topics.get(name)
        route = self._routes.get(name)
        if route is not None and known is not None and known.error == 0 and known.partitions:
            if route.topic is known:
                return route
        else:
            known = await self._cluster.topic(name, timeout_s)
        accumulator = self._sender.accumulator
        queues = {index: accumulator.queue(name, index) for index in known.partitions}
        largest = self.options.batch_size
        if known.max_message_bytes is not None:
            largest = min(largest, known.max_message_bytes)
        route = self._routes[name] = _Route(known, queues, largest)
        return route

    # Transactions

    def _transactional(self) -> Transactions:
        if self._sender is None or not self._is_open:
            raise self._unusable()
        if self._sender.transactions is None:
            raise InvalidTransactionState("transactions need a transactional_id: none is set")
        return self._sender.transactions

    async def init_transactions(self) -> None:
        """Initializes the transactional id: fences earlier producers, and aborts their open transaction.

        The first `begin` does the same. All calls on transactions wait at most `max_block_ms` for the coordinator, then
        raise TransactionUnsettled. Raises ProducerFailed (TransactionsUnsupported before Kafka 0.11).
        """
        await self._transactional().init()

    async def begin(self) -> None:
        """Begins a transaction. Raises InvalidTransactionState if one is open."""
        await self._transactional().begin()

    async def commit(self) -> None:
        """Waits until all records are acknowledged, and commits the transaction.

        Raises TransactionFailed if a record has failed: the transaction can only be aborted. Raises ProducerFenced if a
        newer producer has the transactional id or the transaction has timed out; and InvalidTransactionState.
        """
        await self._transactional().commit()

    async def abort(self) -> None:
        """Aborts the transaction; unsent records fail with TransactionAborted.

        Raises ProducerFailed, InvalidTransactionState.
        """
        await self._transactional().abort()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata], group: str | GroupMetadata
    ) -> None:
        """Commits offsets (of the next record to read) of a group as part of the transaction.

        `group` is the result of `Consumer.group_metadata`: a member that has lost its partitions is refused with
        KafkaError 22, 25 or 82, and the transaction can only be aborted. Or it is a group id, without that check.
        Raises KafkaError, ProducerFailed, InvalidTransactionState, TransactionFailed, and UnsupportedVersion for a
        member before Kafka 2.5.
        """
        whose = GroupMetadata(group) if isinstance(group, str) else GroupMetadata(*group)
        await self._transactional().send_offsets(read_offsets(offsets), whose)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Producer]:
        """A transaction for the body of an `async with`: committed at its end, aborted on an exception.

        Also aborted if the commit fails. Raises the errors of `begin` and `commit`. After TransactionUnsettled it is
        not aborted: `commit` may be called again.
        """
        await self.begin()
        try:
            yield self
            await self.commit()
        except (ProducerFailed, TransactionUnsettled):
            raise
        except BaseException as error:
            try:
                await self.abort()
            except ProducerFailed:
                raise
            except ClientError as another:
                error.add_note(f"the transaction was not aborted: {another}")
            raise

    # Queries

    async def partitions_for(self, topic: str) -> list[Partition]:
        """Returns the partitions of a topic, with their leaders. Raises NoSuchTopic, KafkaError."""
        if self._sender is None:
            raise self._unusable()
        found = await self._cluster.topic(topic, self.options.max_block_ms / 1000)
        return list(found.partitions.values())

    async def last_committed(self, topic: str, partition: int) -> CommittedRecord | None:
        """Returns the last record of this producer in the log of a partition, or None.

        After a fatal error it shows which records must be sent again: `ordinal` counts the records sent to the
        partition. Works until `stop`. Raises ClientError, also for a partition that is written without idempotence:
        its batches have no producer id.
        """
        sender = self._sender
        if sender is None:
            raise self._unusable()
        queue = sender.accumulator.queues.get((topic, partition))
        if queue is None:
            await self._cluster.topic(topic, self.options.max_block_ms / 1000)
            return None
        if queue.mode is False:
            raise ClientError(f"{topic}-{partition} is written without idempotence: its batches have no producer id")
        if not sender.producer_ids:
            return None
        found = await retry(
            lambda: sender.inquiries.tail.last_of(topic, partition, sender.producer_ids),
            self._cluster.retry_backoff_s,
            self.options.default_api_timeout_ms / 1000,
        )
        if found is None:
            return None
        ordinal = queue.ordinal_of(found.producer_id, found.producer_epoch, found.sequence)
        return found._replace(ordinal=ordinal)


def _closed() -> ClientClosed:
    return ClientClosed("the producer is closed, or not started")


def _bytes(given: Any, what: str) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(cast("bytes | bytearray | memoryview", given))
    raise TypeError(f"a {what} must be bytes or None, not {type(given).__name__}: use a {what}_serializer")


def _headers(headers: Any) -> Headers:
    pairs: Iterable[tuple[Any, Any]] = headers
    if isinstance(headers, Mapping):
        pairs = cast("Mapping[Any, Any]", headers).items()
    checked: list[tuple[str, bytes | None]] = []
    for key, value in pairs:
        if not isinstance(key, str):
            raise TypeError(f"a header's key must be a str, not {type(key).__name__}")
        checked.append((key, None if value is None else _bytes(value, "header's value")))
    return checked

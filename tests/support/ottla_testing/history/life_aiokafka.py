"""aiokafka with the interface of `ports`: its event loop runs while a call waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest

from ottla_testing.history.ports import PATIENCE_S, Abortable, Final, Joining, Moved, OnSent, Took, split

LOOP = asyncio.new_event_loop()
FATAL = ("ProducerFenced", "InvalidProducerEpoch", "OutOfOrderSequenceNumber", "IllegalOperation")


T = TypeVar("T")


def wait(what: Coroutine[Any, Any, T]) -> T:
    return LOOP.run_until_complete(asyncio.wait_for(what, PATIENCE_S))


class Sending:
    def __init__(self, address: str, transactional_id: str | None, timeout_ms: int) -> None:
        more: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        self._more: dict[str, Any] = more if transactional_id else {"enable_idempotence": True}
        self._address = address
        self._under_way: set[asyncio.Future[Any]] = set()
        self._producer: AIOKafkaProducer | None = None
        if not transactional_id:
            self.init()

    def init(self) -> None:
        async def start() -> AIOKafkaProducer:
            options: dict[str, Any] = {"retry_backoff_ms": 20, "linger_ms": 2, "request_timeout_ms": 5000}
            producer = AIOKafkaProducer(bootstrap_servers=self._address, **options, **self._more)
            await producer.start()
            return producer

        try:
            self._producer = wait(start())
        except (KafkaError, TimeoutError) as error:
            raise Final(repr(error)) from None

    @property
    def producer(self) -> AIOKafkaProducer:
        assert self._producer
        return self._producer

    @staticmethod
    def _call(what: Coroutine[Any, Any, Any]) -> None:
        try:
            wait(what)
        except (KafkaError, TimeoutError, AssertionError) as error:
            is_final = type(error).__name__ in FATAL or isinstance(error, (TimeoutError, AssertionError))
            raise (Final if is_final else Abortable)(repr(error)) from None

    def begin(self) -> None:
        QUIET.clear()
        try:
            self._call(self.producer.begin_transaction())
        except Abortable as error:
            raise Final(*error.args) from None

    def send(self, partition: str, data: bytes, on_sent: OnSent) -> None:
        async def send() -> asyncio.Future[Any]:
            topic, index = split(partition)
            return await self.producer.send(topic, data, partition=index)

        def done(sent: asyncio.Future[Any]) -> None:
            self._under_way.discard(sent)
            error = sent.exception() if not sent.cancelled() else asyncio.CancelledError()
            on_sent(None if error else sent.result().offset, error)

        try:
            sent = wait(send())
        except (KafkaError, TimeoutError) as error:
            on_sent(None, error)
            raise Abortable(repr(error)) from None
        self._under_way.add(sent)
        sent.add_done_callback(done)

    def work(self, seconds: float) -> None:
        wait(asyncio.sleep(seconds))

    def flush(self) -> None:
        self._call(self.producer.flush())
        self.work(0)  # for the callbacks

    def send_offsets(self, offsets: Mapping[str, int], receiving: Receiving) -> None:
        wanted = {TopicPartition(*split(place)): offset for place, offset in offsets.items()}
        self._call(self.producer.send_offsets_to_transaction(wanted, receiving.group))

    def commit(self) -> None:
        self._call(self.producer.commit_transaction())
        self.work(0)
        QUIET.set()

    def abort(self) -> None:
        try:
            self._call(self.producer.abort_transaction())
        except Abortable as error:
            raise Final(*error.args) from None
        self.work(0)
        QUIET.set()

    def close(self) -> None:
        if self._producer:
            wait(self._producer.stop())


# Set while no transaction is open. aiokafka commits offsets for a group by the group's name alone, so only the
# application can prevent a rebalance between what it has polled and what it commits.
QUIET = asyncio.Event()
QUIET.set()


def heed_error_of_group(consumer: AIOKafkaConsumer) -> None:
    """aiokafka 0.14 ignores the error of a whole group in a response to OffsetFetch. Without this, a member that
    requests offsets while its coordinator moves takes its partitions for never read, and a loop makes all its records
    again.
    """
    coordinator: Any = consumer._coordinator
    send = coordinator._send_req

    async def checked(request: Any) -> Any:
        response = await send(request)
        if isinstance(request, OffsetFetchRequest) and (code := getattr(response, "error_code", 0)):
            coordinator.coordinator_dead()
            raise for_code(code)
        return response

    coordinator._send_req = checked


class _Listener(ConsumerRebalanceListener):
    def __init__(self, assigned: Moved, revoked: Moved) -> None:
        self._assigned, self._revoked = assigned, revoked

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await QUIET.wait()
        self._revoked([f"{one.topic}-{one.partition}" for one in revoked])

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._assigned([f"{one.topic}-{one.partition}" for one in assigned])


class Receiving:
    def __init__(self, address: str, joining: Joining, took: Took, assigned: Moved, revoked: Moved) -> None:
        group, topics, isolation, _ = joining
        self.group, self._took = group, took

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=address,
                group_id=group,
                isolation_level=isolation,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=4000,
                heartbeat_interval_ms=500,
                fetch_max_wait_ms=100,
                retry_backoff_ms=20,
                request_timeout_ms=5000,
            )
            await consumer.start()
            heed_error_of_group(consumer)
            consumer.subscribe(topics, listener=_Listener(assigned, revoked))
            return consumer

        self._consumer = wait(start())

    def poll(self, seconds: float) -> None:
        async def poll() -> None:
            found = await self._consumer.getmany(timeout_ms=int(seconds * 1000), max_records=200)
            for place, records in found.items():  # in the same loop iteration, so no listener runs in between
                self._took(f"{place.topic}-{place.partition}", [(one.offset, one.value or b"") for one in records])

        try:
            wait(poll())
        except KafkaError:  # the broker is down
            wait(asyncio.sleep(seconds))

    def commit(self, offsets: Mapping[str, int]) -> None:
        wanted = {TopicPartition(*split(place)): offset for place, offset in offsets.items()}
        wait(self._consumer.commit(wanted))

    def rewind(self) -> dict[str, int | None]:
        async def rewind() -> dict[str, int | None]:
            places: dict[str, int | None] = {}
            for one in self._consumer.assignment():
                offset = await self._consumer.committed(one) or 0
                self._consumer.seek(one, offset)
                places[f"{one.topic}-{one.partition}"] = offset
            return places

        try:
            return wait(rewind())
        except (KafkaError, TimeoutError) as error:
            raise Final(repr(error)) from None

    def close(self) -> None:
        wait(self._consumer.stop())

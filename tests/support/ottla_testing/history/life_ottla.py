"""`ottla.client` with the interface of `ports`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ottla.client import ClientError, Consumer, Producer
from ottla.client.net.errors import InvalidTransactionState, ProducerFailed, TransactionUnsettled
from ottla_testing.history.ports import PATIENCE_S, Abortable, Final, Joining, Moved, NotSent, OnSent, Took, split

LOOP = asyncio.new_event_loop()
T = TypeVar("T")


def wait(what: Coroutine[Any, Any, T]) -> T:
    return LOOP.run_until_complete(asyncio.wait_for(what, PATIENCE_S))


class Sending:
    def __init__(self, address: str, transactional_id: str | None, timeout_ms: int) -> None:
        more: dict[str, Any] = {}
        if transactional_id:
            more = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}

        async def start() -> Producer:
            producer = Producer(address, **more)
            await producer.start()
            return producer

        self._producer = wait(start())

    @staticmethod
    def _insist(call: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> None:
        """Calls again while the outcome is unknown."""
        while True:
            try:
                wait(call(*arguments))
                return
            except TransactionUnsettled:
                continue
            except (ProducerFailed, InvalidTransactionState) as error:
                raise Final(repr(error)) from None
            except ClientError as error:
                raise Abortable(repr(error)) from None

    def init(self) -> None:
        self._insist(self._producer.init_transactions)

    def begin(self) -> None:
        self._insist(self._producer.begin)

    def send_offsets(self, offsets: Mapping[str, int], receiving: Any) -> None:
        wanted = {split(place): offset for place, offset in offsets.items()}
        # The generation at the time of the poll; it may have changed since.
        self._insist(self._producer.send_offsets_to_transaction, wanted, receiving.generation)

    def commit(self) -> None:
        self._insist(self._producer.commit)
        self.work(0)  # for the callbacks

    def abort(self) -> None:
        self._insist(self._producer.abort)
        self.work(0)

    def send(self, partition: str, data: bytes, on_sent: OnSent) -> None:
        def done(sent: asyncio.Future[Any]) -> None:
            error = sent.exception() if not sent.cancelled() else asyncio.CancelledError()
            on_sent(None if error else sent.result().offset, error)

        topic, index = split(partition)
        try:
            sent = wait(self._producer.send(topic, data, partition=index))
        except ProducerFailed as error:
            on_sent(None, error)
            raise Final(repr(error)) from None
        except ClientError as error:
            raise NotSent(error) from None
        sent.add_done_callback(done)

    def work(self, seconds: float) -> None:
        wait(asyncio.sleep(seconds))

    def flush(self) -> None:
        wait(self._producer.flush())
        self.work(0)  # for the callbacks

    def close(self) -> None:
        wait(self._producer.stop())


class Receiving:
    def __init__(self, address: str, joining: Joining, took: Took, assigned: Moved, revoked: Moved) -> None:
        group, topics, isolation, _ = joining
        self._took, self._assigned, self._revoked = took, assigned, revoked
        self.generation: Any = None
        self._partitions: list[str] = []

        async def start() -> Consumer:
            consumer = Consumer(
                address,
                topics=topics,
                group=group,
                isolation=isolation,
                offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=4000,
                heartbeat_interval_ms=500,
                fetch_max_wait_ms=100,
                default_api_timeout_ms=5000,
            )
            await consumer.start()
            return consumer

        try:
            self._consumer = wait(start())
        except (ClientError, TimeoutError) as error:
            raise Final(repr(error)) from None

    def _look(self) -> None:
        """The client has no listeners: a new generation means that partitions were reassigned; it is known before they
        are."""
        generation = self._consumer.group_metadata()
        partitions = [f"{topic}-{partition}" for topic, partition in self._consumer.assignment()]
        if (generation, partitions) != (self.generation, self._partitions):
            self._revoked(self._partitions)
            self.generation, self._partitions = generation, partitions
            self._assigned(partitions)

    def poll(self, seconds: float) -> None:
        async def poll() -> None:
            found = await self._consumer.getmany(timeout_ms=seconds * 1000, max_records=200)
            self._look()
            for (topic, partition), records in found.items():
                self._took(f"{topic}-{partition}", [(one.offset, one.value or b"") for one in records])

        try:
            wait(poll())
        except ClientError:  # the broker is down
            wait(asyncio.sleep(seconds))

    def commit(self, offsets: Mapping[str, int]) -> None:
        wait(self._consumer.commit({split(place): offset for place, offset in offsets.items()}))

    def rewind(self) -> dict[str, int | None]:
        async def rewind() -> dict[str, int | None]:
            places: dict[str, int | None] = {}
            for place, found in (await self._consumer.committed(self._consumer.assignment())).items():
                offset = found.offset if found else 0
                self._consumer.seek(*place, offset)
                places[f"{place[0]}-{place[1]}"] = offset
            return places

        try:
            return wait(rewind())
        except (ClientError, TimeoutError) as error:
            raise Final(repr(error)) from None

    def close(self) -> None:
        wait(self._consumer.stop())

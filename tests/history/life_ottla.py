"""`ottla.client` as `ports` wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ports import PATIENCE_S, Final, Moved, NotSent, Told, Took, split

from ottla.client import ClientError, Consumer, Producer

LOOP = asyncio.new_event_loop()
T = TypeVar("T")


def wait(what: Coroutine[Any, Any, T]) -> T:
    return LOOP.run_until_complete(asyncio.wait_for(what, PATIENCE_S))


class Sending:
    def __init__(self, address: str, transactional_id: str | None, timeout_ms: int) -> None:
        async def start() -> Producer:
            producer = Producer(address)
            await producer.start()
            return producer

        self._producer = wait(start())

    def send(self, partition: str, data: bytes, told: Told) -> None:
        def done(sent: asyncio.Future[Any]) -> None:
            error = sent.exception() if not sent.cancelled() else asyncio.CancelledError()
            told(None if error else sent.result().offset, error)

        topic, index = split(partition)
        try:
            sent = wait(self._producer.send(topic, data, partition=index))
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
    def __init__(
        self, address: str, group: str, topics: list[str], isolation: str, took: Took, assigned: Moved, revoked: Moved
    ) -> None:
        self._took, self._assigned, self._revoked = took, assigned, revoked
        self._generation: object = None

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
        """It has no listeners: a new generation shows that partitions came anew."""
        generation = self._consumer.group_metadata()
        if generation != self._generation:
            self._generation = generation
            self._assigned([f"{topic}-{partition}" for topic, partition in self._consumer.assignment()])

    def poll(self, seconds: float) -> None:
        async def poll() -> None:
            found = await self._consumer.getmany(timeout_ms=seconds * 1000, max_records=200)
            self._look()
            for (topic, partition), records in found.items():
                self._took(f"{topic}-{partition}", [(one.offset, one.value or b"") for one in records])

        try:
            wait(poll())
        except ClientError:  # it tells of a broker that is away
            wait(asyncio.sleep(seconds))

    def commit(self, offsets: Mapping[str, int]) -> None:
        wait(self._consumer.commit({split(place): offset for place, offset in offsets.items()}))

    def close(self) -> None:
        wait(self._consumer.stop())

"""aiokafka, on an event loop in a thread of its own, so that its heartbeats continue between the calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, ProducerFenced, for_code

from shop import wire

T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="aiokafka", daemon=True)
        self.thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(wire.CALL_SECONDS)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Sender:
    """An AIOKafkaProducer and its records without a response so far."""

    def __init__(self, bootstrap: str, settings: wire.Sending) -> None:
        self.loop = Loop()
        self.queued: list[Any] = []
        self.loop.run(self.start(bootstrap, settings))

    async def start(self, bootstrap: str, settings: wire.Sending) -> None:
        transactional = settings.transactional_id is not None
        self.client = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=settings.client_id,
            acks="all" if settings.acks == -1 or settings.idempotent or transactional else settings.acks,
            enable_idempotence=settings.idempotent or transactional,
            transactional_id=settings.transactional_id,
            compression_type=None if settings.compression == "none" else settings.compression,
            linger_ms=settings.linger_ms,
            max_request_size=settings.max_request_bytes,
            request_timeout_ms=settings.timeout_ms,
            retry_backoff_ms=20,
        )
        await self.client.start()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[wire.Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        try:
            self.queued.append(
                self.loop.run(self.client.send(topic, value, key, partition, timestamp_ms, list(headers)))
            )
        except KafkaError as error:
            raise wire.SendFailed(repr(error)) from error

    def flush(self) -> list[int]:
        queued, self.queued = self.queued, []

        async def sent() -> list[Any]:
            return await asyncio.gather(*queued)

        try:
            return [-1 if response is None else response.offset for response in self.loop.run(sent())]
        except ProducerFenced as error:
            raise wire.Fenced(repr(error)) from error
        except KafkaError as error:
            raise wire.SendFailed(repr(error)) from error

    def begin(self) -> None:
        self.loop.run(self.client.begin_transaction())

    def commit(self, read: Mapping[wire.Place, int] | None = None, receiver: wire.Receiver | None = None) -> None:
        try:
            if read and receiver:
                offsets = {TopicPartition(*place): offset for place, offset in read.items()}
                self.loop.run(self.client.send_offsets_to_transaction(offsets, receiver.group))
            self.loop.run(self.client.commit_transaction())
        except ProducerFenced as error:
            raise wire.Fenced(repr(error)) from error

    def abort(self) -> None:
        self.loop.run(self.client.abort_transaction())

    def close(self) -> None:
        try:
            self.loop.run(self.client.stop())
        finally:
            self.loop.close()


class Receiver:
    """An AIOKafkaConsumer that commits on request."""

    def __init__(self, bootstrap: str, settings: wire.Receiving) -> None:
        self.group = settings.group
        self.loop = Loop()
        self.loop.run(self.start(bootstrap, settings))

    async def start(self, bootstrap: str, settings: wire.Receiving) -> None:
        self.client: Any = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=settings.client_id,
            group_id=settings.group,
            group_instance_id=settings.instance,
            auto_offset_reset=settings.start,
            enable_auto_commit=False,
            isolation_level="read_committed" if settings.committed_only else "read_uncommitted",
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=max(100, settings.session_ms // 30),
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
        )
        await self.client.start()

    def subscribe(self, *topics: str) -> None:
        async def subscribe() -> None:
            self.client.subscribe(list(topics))

        self.loop.run(subscribe())

    def assign(self, *places: wire.Place) -> None:
        async def assign() -> None:
            self.client.assign([TopicPartition(*place) for place in places])

        self.loop.run(assign())

    def poll(self, seconds: float = 0.05) -> list[wire.Message]:
        return [
            wire.Message(r.topic, r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp)
            for records in self.loop.run(self.client.getmany(timeout_ms=int(seconds * 1000))).values()
            for r in records
        ]

    def assigned(self) -> set[wire.Place]:
        return {(place.topic, place.partition) for place in self.client.assignment()}

    def commit(self, read: Mapping[wire.Place, int]) -> None:
        self.loop.run(self.client.commit({TopicPartition(*place): offset for place, offset in read.items()}))

    def committed(self, place: wire.Place) -> int | None:
        return self.loop.run(self.client.committed(TopicPartition(*place)))

    def seek(self, place: wire.Place, offset: int) -> None:
        async def seek() -> None:
            self.client.seek(TopicPartition(*place), offset)

        self.loop.run(seek())

    def pause(self, *places: wire.Place) -> None:
        async def pause() -> None:
            self.client.pause(*(TopicPartition(*place) for place in places))

        self.loop.run(pause())

    def resume(self, *places: wire.Place) -> None:
        async def resume() -> None:
            self.client.resume(*(TopicPartition(*place) for place in places))

        self.loop.run(resume())

    def offset_at(self, place: wire.Place, timestamp_ms: int) -> int | None:
        at = TopicPartition(*place)
        found = self.loop.run(self.client.offsets_for_times({at: timestamp_ms}))[at]
        return None if found is None else found.offset

    def ends(self, place: wire.Place) -> tuple[int, int]:
        at = TopicPartition(*place)
        first = self.loop.run(self.client.beginning_offsets([at]))[at]
        return first, self.loop.run(self.client.end_offsets([at]))[at]

    def close(self) -> None:
        try:
            self.loop.run(self.client.stop())
        finally:
            self.loop.close()


class Admin:
    """An AIOKafkaAdminClient, which returns errors rather than raising them."""

    def __init__(self, bootstrap: str) -> None:
        self.loop = Loop()

        async def start() -> Any:
            client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await client.start()
            return client

        self.client = self.loop.run(start())

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        wanted = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
        self.check(self.loop.run(self.client.create_topics([wanted])).topic_errors)

    @staticmethod
    def check(responses: Sequence[Any]) -> None:
        """Raises the first error."""
        for _topic, code, *_message in responses:
            if code:
                raise for_code(code)

    def delete(self, topic: str) -> None:
        self.check(self.loop.run(self.client.delete_topics([topic])).topic_error_codes)

    def topics(self) -> set[str]:
        return set(self.loop.run(self.client.list_topics()))

    def partitions(self, topic: str) -> int:
        (described,) = self.loop.run(self.client.describe_topics([topic]))
        return len(described["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        self.check(self.loop.run(self.client.create_partitions({topic: NewPartitions(partitions)})).topic_errors)

    def config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: None})
        (response,) = self.loop.run(self.client.describe_configs([resource]))
        ((code, _message, _type, _name, entries),) = response.resources
        if code:
            raise for_code(code)
        return next(value for found, value, *_ in entries if found == name)

    def set_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        self.loop.run(self.client.alter_configs([resource]))

    def groups(self) -> set[str]:
        return {group for group, *_ in self.loop.run(self.client.list_consumer_groups())}

    def group_offsets(self, group: str) -> dict[wire.Place, int]:
        found = self.loop.run(self.client.list_consumer_group_offsets(group))
        return {(place.topic, place.partition): one.offset for place, one in found.items()}

    def delete_records(self, place: wire.Place, before: int) -> None:
        self.loop.run(self.client.delete_records({TopicPartition(*place): RecordsToDelete(before)}))

    def close(self) -> None:
        try:
            self.loop.run(self.client.close())
        finally:
            self.loop.close()

"""confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka.admin
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from shop import wire

kafka_admin: Any = confluent_kafka.admin
FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


def partitions_of(offsets: Mapping[wire.Place, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]


class Sender:
    """A Producer and its records without a response so far."""

    def __init__(self, bootstrap: str, settings: wire.Sending) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": settings.client_id,
            "acks": settings.acks,
            "enable.idempotence": settings.idempotent,
            "compression.type": settings.compression,
            "linger.ms": settings.linger_ms,
            "message.max.bytes": settings.max_request_bytes,
            "delivery.timeout.ms": settings.timeout_ms,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "log_level": 0,
        }
        if settings.transactional_id is not None:
            config |= {"transactional.id": settings.transactional_id, "acks": -1, "enable.idempotence": True}
            config |= {"transaction.timeout.ms": settings.timeout_ms}
        self.client = Producer(config)
        self.offsets: dict[int, int] = {}
        self.failures: list[KafkaError] = []
        self.queued = 0
        if settings.transactional_id is not None:
            self.client.init_transactions(wire.CALL_SECONDS)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[wire.Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        number = self.queued

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                self.offsets[number] = int(message.offset() or 0)

        more: dict[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        if partition is not None:
            more["partition"] = partition
        try:
            self.client.produce(topic, value, key, headers=list(headers), on_delivery=delivered, **more)
        except KafkaException as error:
            raise wire.SendFailed(str(error)) from error
        self.queued += 1
        self.client.poll(0)

    def flush(self) -> list[int]:
        try:
            left = self.client.flush(wire.CALL_SECONDS)
        except (KafkaException, SystemError) as error:  # 2.16 raises either one at a fatal error, which is to be fenced
            raise wire.Fenced(str(error)) from error
        failures, self.failures = self.failures, []
        offsets, self.offsets, self.queued = self.offsets, {}, 0
        if any(failure.code() in FENCED for failure in failures):
            raise wire.Fenced(str(failures[0]))
        if failures or left:
            raise wire.SendFailed(str(failures[0]) if failures else f"{left} are still under way")
        return [offset for _, offset in sorted(offsets.items())]

    def begin(self) -> None:
        self.client.begin_transaction()

    def commit(self, read: Mapping[wire.Place, int] | None = None, receiver: wire.Receiver | None = None) -> None:
        try:
            if read and receiver:
                group = receiver.client.consumer_group_metadata()
                self.client.send_offsets_to_transaction(partitions_of(read), group, wire.CALL_SECONDS)
            self.client.commit_transaction(wire.CALL_SECONDS)
        except KafkaException as error:
            if error.args[0].code() in FENCED:
                raise wire.Fenced(str(error)) from error
            raise

    def abort(self) -> None:
        self.client.abort_transaction(wire.CALL_SECONDS)

    def close(self) -> None:
        self.client.purge()
        self.client.flush(0)


class Receiver:
    """A Consumer that commits on request."""

    def __init__(self, bootstrap: str, settings: wire.Receiving) -> None:
        self.group = settings.group
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": settings.client_id,
            "group.id": settings.group or "nobody",
            "auto.offset.reset": settings.start,
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if settings.committed_only else "read_uncommitted",
            "session.timeout.ms": settings.session_ms,
            "heartbeat.interval.ms": max(100, settings.session_ms // 30),
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "log_level": 0,
        }
        if settings.instance is not None:
            config["group.instance.id"] = settings.instance
        self.client: Any = Consumer(config)

    def subscribe(self, *topics: str) -> None:
        self.client.subscribe(list(topics))

    def assign(self, *places: wire.Place) -> None:
        self.client.assign([TopicPartition(*place) for place in places])

    def poll(self, seconds: float = 0.05) -> list[wire.Message]:
        found = []
        if (first := self.client.poll(seconds)) is not None:
            for m in (first, *self.client.consume(499, 0)):
                if error := m.error():
                    raise KafkaException(error)
                headers = tuple(m.headers() or ())
                found.append(
                    wire.Message(m.topic(), m.partition(), m.offset(), m.key(), m.value(), headers, m.timestamp()[1])
                )
        return found

    def assigned(self) -> set[wire.Place]:
        return {(place.topic, place.partition) for place in self.client.assignment()}

    def commit(self, read: Mapping[wire.Place, int]) -> None:
        self.client.commit(offsets=partitions_of(read), asynchronous=False)

    def committed(self, place: wire.Place) -> int | None:
        (found,) = self.client.committed([TopicPartition(*place)], wire.CALL_SECONDS)
        return None if found.offset < 0 else found.offset

    def seek(self, place: wire.Place, offset: int) -> None:
        self.client.seek(TopicPartition(*place, offset))

    def pause(self, *places: wire.Place) -> None:
        self.client.pause([TopicPartition(*place) for place in places])

    def resume(self, *places: wire.Place) -> None:
        self.client.resume([TopicPartition(*place) for place in places])

    def offset_at(self, place: wire.Place, timestamp_ms: int) -> int | None:
        (found,) = self.client.offsets_for_times([TopicPartition(*place, timestamp_ms)], wire.CALL_SECONDS)
        return None if found.offset < 0 else found.offset

    def ends(self, place: wire.Place) -> tuple[int, int]:
        return self.client.get_watermark_offsets(TopicPartition(*place), wire.CALL_SECONDS)

    def close(self) -> None:
        self.client.close()


class Admin:
    """An AdminClient."""

    def __init__(self, bootstrap: str) -> None:
        self.client: Any = kafka_admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    @staticmethod
    def result(futures: Mapping[Any, Any]) -> Any:
        """Returns the result of the only future."""
        (future,) = futures.values()
        return future.result(wire.CALL_SECONDS)

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self.result(self.client.create_topics([kafka_admin.NewTopic(topic, partitions, config=dict(configs or {}))]))

    def delete(self, topic: str) -> None:
        self.result(self.client.delete_topics([topic]))

    def topics(self) -> set[str]:
        return set(self.client.list_topics(timeout=wire.CALL_SECONDS).topics)

    def partitions(self, topic: str) -> int:
        return len(self.client.list_topics(topic, timeout=wire.CALL_SECONDS).topics[topic].partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self.result(self.client.create_partitions([kafka_admin.NewPartitions(topic, partitions)]))

    def config(self, topic: str, name: str) -> str:
        return self.result(
            self.client.describe_configs([kafka_admin.ConfigResource(kafka_admin.ResourceType.TOPIC, topic)])
        )[name].value

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = kafka_admin.ConfigEntry(name, value, incremental_operation=kafka_admin.AlterConfigOpType.SET)
        resource = kafka_admin.ConfigResource(kafka_admin.ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.result(self.client.incremental_alter_configs([resource]))

    def groups(self) -> set[str]:
        found: Any = self.client.list_consumer_groups().result(wire.CALL_SECONDS)
        return {group.group_id for group in found.valid}

    def group_offsets(self, group: str) -> dict[wire.Place, int]:
        found = self.result(self.client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {(one.topic, one.partition): one.offset for one in found.topic_partitions}

    def delete_records(self, place: wire.Place, before: int) -> None:
        self.result(self.client.delete_records([TopicPartition(*place, before)]))

    def close(self) -> None:
        """Does nothing: this client needs no close."""

"""Requests of real clients and their responses are decoded to the last byte: each frame is encoded again from its
values.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from ottla.broker import Embedded
from ottla.broker.recording import decoding
from ottla_testing.patience import PATIENCE_MS, PATIENCE_S


def by_confluent(broker: Embedded, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "c", "compression.type": "zstd", "transactional.id": "tx"}
        if broker.release == "4.3"
        else {"bootstrap.servers": broker.bootstrap, "client.id": "c", "compression.type": "lz4"}
    )
    if broker.release == "4.3":
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
    for number in range(20):
        producer.produce(
            topic, b"value" * 20, str(number), headers=[("h", b"\xff")] if broker.release == "4.3" else None
        )
    if broker.release == "4.3":
        producer.commit_transaction(PATIENCE_S)
    producer.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "c", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert len(consumer.consume(20, PATIENCE_S)) == 20
    consumer.commit(asynchronous=False)
    consumer.close()
    AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S)


def by_kafka_python(broker: Embedded, topic: str) -> None:
    made = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="k", compression_type="gzip")
    with contextlib.closing(made) as producer:
        for _ in range(20):
            producer.send(topic, b"value" * 20)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id="k",
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_MS,
    )
    for _ in range(20):
        next(consumer)
    consumer.close()
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.list_topics()
    admin.close()


def by_aiokafka(broker: Embedded, topic: str) -> None:
    async def session() -> None:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True) as producer:
            for _ in range(20):
                await producer.send(topic, b"value" * 20)
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id="a", auto_offset_reset="earliest"
        )
        async with consumer:
            for _ in range(20):
                await consumer.getone()

    asyncio.run(session())


@pytest.mark.parametrize(
    ("release", "session"),
    [("4.3", by_confluent), ("0.10.2", by_confluent), ("4.3", by_kafka_python), ("4.3", by_aiokafka)],
)
def test_each_recorded_frame_round_trips(release: str, session: Callable[[Embedded, str], None]) -> None:
    with Embedded(release=release) as broker:
        session(broker, broker.create_topic())
        seen = broker.requests()
        assert {"ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup", "SyncGroup"} <= {one.api for one in seen}
        records = 0
        for one in seen:
            exchange = one.exchange
            for frame, plain, is_request in (
                (exchange.request, one.request, True),
                (exchange.response, one.response, False),
            ):
                assert (frame is None) == (plain is None)
                if plain is None:
                    continue
                assert decoding.UNDECODABLE not in plain, (one, plain)
                text = json.dumps(plain, allow_nan=False)
                assert '"damaged"' not in text
                result = decoding.encoded(
                    exchange.api_key,
                    exchange.api_version,
                    json.loads(text),
                    is_request,
                    correlation_id=exchange.correlation_id,
                    client_id=exchange.client_id,
                )
                assert result == frame, one
            records += one.produced.records if one.produced is not None else 0
        assert records >= (20 if release != "0.10.2" else 1), "a wrapper of an old format counts as one record"
        fetched = [
            record
            for one in broker.requests(api="Fetch")
            for topic in (one.response or {"responses": []})["responses"]
            for partition in topic["partitions"]
            for batch in (partition["records"] or {"batches": []})["batches"]
            if not batch["is_control"]
            for record in batch["records"]
        ]
        assert {record["value"] for record in fetched} == {"value" * 20}

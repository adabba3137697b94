"""Consumers read from the replica in their rack (KIP-392), and from the leader while that replica does not run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import NewTopic
from kafka.structs import TopicPartition

from ottla.broker import Embedded
from ottla.broker.config.java_classes import RACK_AWARE
from ottla_testing.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("close_what_kafka_python_leaves_open")

RACKS = {1: "east", 2: "west", 3: "north"}
COUNT = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Embedded]:
    racks = {f"node.{node}.broker.rack": rack for node, rack in RACKS.items()}
    with Embedded(brokers=3, configs={"replica.selector.class": RACK_AWARE, **racks}) as broker:
        yield broker


@pytest.fixture
def topic(cluster: Embedded) -> Iterator[str]:
    """A topic with three replicas that node 1 leads."""
    name = cluster.create_topic()
    cluster.topology.move_leader(name, 0, 1)
    cluster.send_many(name, wanted(0))
    yield name
    for node in RACKS:
        cluster.topology.start_node(node)


def wanted(start: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + COUNT)]


def nodes_with_records(cluster: Embedded, client_id: str) -> list[int]:
    """The nodes that sent records to a client, in order, each once."""
    found: dict[int, None] = {}
    for one in cluster.requests(api="Fetch", client_id=client_id):
        response: Any = one.response or {"responses": ()}  # none while the request waits
        if any(part["records"]["size"] for topic in response["responses"] for part in topic["partitions"]):
            found[one.node] = None
    return list(found)


def test_nodes_report_their_racks_to_kafka_python(cluster: Embedded) -> None:
    admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        described = admin.describe_cluster()
        assert {one["broker_id"]: one["rack"] for one in described["brokers"]} == RACKS
        admin.create_topics([NewTopic("spread", num_partitions=6, replication_factor=3)])
        placed = [one for one in cluster.topology.describe().partitions if one.topic == "spread"]
        assert [set(one.replicas) for one in placed] == [{1, 2, 3}] * 6
    finally:
        admin.close()


def test_confluent_kafka_reads_in_its_rack(cluster: Embedded, topic: str) -> None:
    config = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "client.id": topic, "client.rack": "west"}
    consumer: Any = Consumer({**config, "log_level": 0})
    consumer.assign([ConfluentPartition(topic, 0, 0)])

    def read(count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if not message.error():
                found.append(message.value())
        return found

    try:
        assert read(COUNT) == wanted(0)
        assert nodes_with_records(cluster, topic) == [2]
        cluster.topology.stop_node(2)
        cluster.send_many(topic, wanted(COUNT))
        assert read(COUNT) == wanted(COUNT)
        assert nodes_with_records(cluster, topic) == [2, 1]
    finally:
        consumer.close()


def test_kafka_python_reads_in_its_rack(cluster: Embedded, topic: str) -> None:
    config: Any = {"bootstrap_servers": cluster.bootstrap, "client_id": topic, "client_rack": "west"}
    consumer: Any = KafkaConsumer(auto_offset_reset="earliest", **config)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes] = []
        while len(found) < COUNT:
            for records in consumer.poll(timeout_ms=1000 * PATIENCE_S).values():
                found += [record.value for record in records]
        assert found == wanted(0)
        assert nodes_with_records(cluster, topic) == [2]
    finally:
        consumer.close()


async def test_aiokafka_in_a_rack_reads_all_records(cluster: Embedded, topic: str) -> None:
    config: Any = {"bootstrap_servers": cluster.bootstrap, "client_id": topic, "client_rack": "west"}
    consumer: Any = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **config)
    async with asyncio.timeout(PATIENCE_S):
        await consumer.start()
        try:
            assert [(await consumer.getone()).value for _ in range(COUNT)] == wanted(0)
        finally:
            await consumer.stop()
    assert nodes_with_records(cluster, topic) == [2]

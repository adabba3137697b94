"""The admin sides of the clients: topics, configs, records, groups and their offsets, the cluster and its log
directories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import ConfigResource as PyConfigResource
from kafka.admin import ConfigResourceType as PyConfigResourceType
from kafka.errors import GroupIdNotFoundError, InvalidConfigurationError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PyTopicPartition

from ottla_testing.clients.four_clients import READERS, WRITERS, run_kcat
from ottla_testing.clients.mixed_records import mixed
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S


@pytest.fixture
def kafka_python(broker: RunningBroker) -> Iterator[Any]:  # its types are unknown to type checkers
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    yield admin
    admin.close()


@pytest.fixture
def confluent(broker: RunningBroker) -> Any:  # nor are these completely
    return AdminClient({"bootstrap.servers": broker.address})


def done(futures: dict) -> list:
    """Returns the results of all; raises the first failure."""
    return [future.result(PATIENCE_S) for future in futures.values()]


def commit(address: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


# kafka-python


def test_kafka_python_administers_topics(kafka_python: Any, name: str) -> None:
    made = kafka_python.create_topics(
        {name: {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "1000"}}}
    )["topics"][0]
    assert (made["num_partitions"], made["replication_factor"], made["error_code"]) == (3, 1, 0)
    with pytest.raises(TopicAlreadyExistsError):
        kafka_python.create_topics([name])
    with pytest.raises(InvalidConfigurationError):
        kafka_python.create_topics({f"{name}-bad": {"configs": {"retention.ms": "soon"}}})
    kafka_python.create_topics([f"{name}-unmade"], validate_only=True)
    names = kafka_python.list_topics()
    assert name in names and f"{name}-bad" not in names and f"{name}-unmade" not in names
    kafka_python.create_partitions({name: 5})
    (described,) = kafka_python.describe_topics([name])
    assert [(p["partition_index"], p["leader_id"]) for p in described["partitions"]] == [(n, 1) for n in range(5)]
    kafka_python.delete_topics([name])
    assert name not in kafka_python.list_topics()


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_administers_configs(incremental: bool, kafka_python: Any, name: str) -> None:
    kafka_python.create_topics({name: {"configs": {"segment.bytes": "2097152"}}})

    def modified() -> dict[str, str]:
        found = kafka_python.describe_configs([PyConfigResource(PyConfigResourceType.TOPIC, name)])
        return {key: entry["value"] for key, entry in found["topic"][name].items()}

    assert modified() == {"segment.bytes": "2097152"}
    change = PyConfigResource(PyConfigResourceType.TOPIC, name, {"cleanup.policy": "compact", "retention.ms": "5000"})
    assert kafka_python.alter_configs([change], incremental=incremental) == {"topic": {name: "OK"}}
    assert modified() == {"segment.bytes": "2097152", "cleanup.policy": "compact", "retention.ms": "5000"}
    kafka_python.reset_configs([PyConfigResource(PyConfigResourceType.TOPIC, name, {"retention.ms": ""})])
    assert modified() == {"segment.bytes": "2097152", "cleanup.policy": "compact"}
    everything = kafka_python.describe_configs(
        [PyConfigResource(PyConfigResourceType.TOPIC, name)], include_synonyms=True, config_filter="all"
    )["topic"][name]
    assert everything["max.message.bytes"]["value"] == "1048588" and len(everything) > 20


def test_kafka_python_administers_groups_and_offsets(kafka_python: Any, broker: RunningBroker, topic: str) -> None:
    WRITERS["kafka-python"](broker.address, topic, mixed(20, plain=True, null_values=False))
    partition, group = PyTopicPartition(topic, 0), f"group-{topic}"
    commit(broker.address, group, topic, 7)
    assert kafka_python.list_group_offsets(group)[group][partition].offset == 7
    moved = kafka_python.alter_group_offsets(group, {partition: OffsetAndMetadata(12, "why", -1)})
    assert moved[partition].errno == 0
    found = kafka_python.list_group_offsets({group: [partition]})[group][partition]
    assert (found.offset, found.metadata) == (12, "why")
    assert [g["group_id"] for g in kafka_python.list_groups() if g["group_id"] == group] == [group]
    assert kafka_python.describe_groups([group])[group]["group_state"] == "Empty"
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False)
    try:
        consumer.assign([partition])
        assert next(iter(consumer)).offset == 12
        assert (consumer.position(partition), consumer.end_offsets([partition])) == (
            13,
            {partition: 20},
        )  # its lag is 7
    finally:
        consumer.close()
    assert kafka_python.delete_group_offsets(group, [partition])[partition].errno == 0
    assert partition not in kafka_python.list_group_offsets(group)[group]
    commit(broker.address, group, topic, 3)
    assert kafka_python.delete_groups([group]) == {group: "OK"}
    assert kafka_python.delete_groups([group]) == {group: GroupIdNotFoundError.__name__}


def test_kafka_python_deletes_records(kafka_python: Any, broker: RunningBroker, topic: str) -> None:
    sent = mixed(20, plain=True, null_values=False)
    WRITERS["kafka-python"](broker.address, topic, sent)
    partition = PyTopicPartition(topic, 0)
    assert kafka_python.delete_records({partition: 8})[partition]["low_watermark"] == 8
    left = READERS["kafka-python"](broker.address, topic, 12)
    assert [message.value for message in left] == [message.value for message in sent[8:]]


def test_kafka_python_describes_the_cluster(kafka_python: Any, broker: RunningBroker, topic: str) -> None:
    WRITERS["kafka-python"](broker.address, topic, mixed(20, plain=True, null_values=False))
    cluster = kafka_python.describe_cluster()
    assert [(b["broker_id"], b["port"]) for b in cluster["brokers"]] == [(1, broker.port)]
    assert cluster["controller_id"] == 1 and len(cluster["cluster_id"]) == 22
    (folders,) = kafka_python.describe_log_dirs()
    (folder,) = folders["log_dirs"]
    sizes = {t["name"]: t["partitions"][0]["partition_size"] for t in folder["topics"]}
    assert folder["log_dir"] == str(broker.data_dir)
    assert sizes[topic] == sum(header.size_bytes for header in broker.stored(topic)) > 0


# confluent-kafka


def test_confluent_administers_topics(confluent: Any, name: str) -> None:
    done(confluent.create_topics([NewTopic(name, 3, 1, config={"cleanup.policy": "compact"})]))
    with pytest.raises(KafkaException) as caught:
        done(confluent.create_topics([NewTopic(name, 3)]))
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as caught:
        done(confluent.create_topics([NewTopic(f"{name}-3", 1, 3)]))
    assert caught.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
    done(confluent.create_partitions([NewPartitions(name, 5)]))
    assert len(confluent.list_topics(timeout=PATIENCE_S).topics[name].partitions) == 5
    (described,) = done(confluent.describe_topics(TopicCollection([name])))
    assert [(p.id, p.leader.id, len(p.replicas), len(p.isr)) for p in described.partitions] == [
        (n, 1, 1, 1) for n in range(5)
    ]
    done(confluent.delete_topics([name]))
    assert name not in confluent.list_topics(timeout=PATIENCE_S).topics
    with pytest.raises(KafkaException) as caught:
        done(confluent.delete_topics([name]))
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_administers_configs(confluent: Any, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def value(key: str) -> str | None:
        return done(confluent.describe_configs([resource]))[0][key].value

    resource.add_incremental_config(ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET))
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    done(confluent.incremental_alter_configs([resource]))
    assert (value("retention.ms"), value("cleanup.policy")) == ("5000", "delete,compact")
    bad = ConfigResource(ResourceType.TOPIC, topic)
    bad.add_incremental_config(ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET))
    with pytest.raises(KafkaException) as caught:
        done(confluent.incremental_alter_configs([bad]))
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    back = ConfigResource(ResourceType.TOPIC, topic)
    back.add_incremental_config(ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE))
    done(confluent.incremental_alter_configs([back]))
    assert value("retention.ms") == "604800000"
    (broker_configs,) = done(confluent.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker_configs["group.initial.rebalance.delay.ms"].value == "0"
    assert broker_configs["node.id"].is_read_only


def test_confluent_administers_groups_and_offsets(confluent: Any, broker: RunningBroker, topic: str) -> None:
    group = f"group-{topic}"
    WRITERS["confluent-kafka"](broker.address, topic, mixed(20, plain=True))
    commit(broker.address, group, topic, 7)

    def offset() -> int:
        (response,) = done(confluent.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return response.topic_partitions[0].offset

    assert offset() == 7
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 12)])
    (response,) = done(confluent.alter_consumer_group_offsets([moved]))
    assert response.topic_partitions[0].error is None and offset() == 12
    listed = confluent.list_consumer_groups().result(PATIENCE_S)
    assert group in [one.group_id for one in listed.valid] and not listed.errors
    (described,) = done(confluent.describe_consumer_groups([group]))
    assert described.state.name == "EMPTY" and described.coordinator.port == broker.port
    done(confluent.delete_consumer_groups([group]))
    with pytest.raises(KafkaException) as caught:
        done(confluent.delete_consumer_groups([group]))
    assert caught.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


def test_confluent_deletes_records(confluent: Any, broker: RunningBroker, topic: str) -> None:
    WRITERS["confluent-kafka"](broker.address, topic, mixed(20, plain=True))
    (deleted,) = done(confluent.delete_records([TopicPartition(topic, 0, 8)]))
    assert deleted.low_watermark == 8
    assert len(READERS["confluent-kafka"](broker.address, topic, 12)) == 12
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "nobody"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S) == (8, 20)
    consumer.close()


def test_confluent_describes_the_cluster(confluent: Any, broker: RunningBroker) -> None:
    cluster = confluent.describe_cluster().result(PATIENCE_S)
    assert [(node.id, node.port) for node in cluster.nodes] == [(1, broker.port)]
    assert cluster.controller.id == 1 and len(cluster.cluster_id) == 22


def test_confluent_describes_the_members_of_a_group(confluent: Any, broker: RunningBroker, topic: str) -> None:
    group = f"group-{topic}"
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group, "client.id": "me"})
    try:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        (described,) = done(confluent.describe_consumer_groups([group]))
        (member,) = described.members
        assert (described.state.name, member.client_id, member.host) == ("STABLE", "me", "/127.0.0.1")
        assert [(p.topic, p.partition) for p in member.assignment.topic_partitions] == [(topic, 0)]
        with pytest.raises(KafkaException) as caught:
            done(confluent.delete_consumer_groups([group]))
        assert caught.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    finally:
        consumer.close()


# aiokafka


async def test_aiokafka_administers_topics_configs_and_records(broker: RunningBroker, name: str) -> None:
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        made = await admin.create_topics([AioNewTopic(name, 2, 1, topic_configs={"retention.ms": "1000"})])
        assert [error[:2] for error in made.topic_errors] == [(name, 0)]
        assert name in await admin.list_topics()
        await admin.create_partitions({name: AioNewPartitions(3)})
        (described,) = await admin.describe_topics([name])
        assert len(described["partitions"]) == 3
        cluster = await admin.describe_cluster()
        assert [b["port"] for b in cluster["brokers"]] == [broker.port]
        resource = AioConfigResource(AioConfigResourceType.TOPIC, name, {"retention.ms": "2000"})
        (altered,) = await admin.alter_configs([resource])
        assert altered.resources[0][0] == 0
        (configs,) = await admin.describe_configs([AioConfigResource(AioConfigResourceType.TOPIC, name)])
        assert {entry[0]: entry[1] for entry in configs.resources[0][4]}["retention.ms"] == "2000"
        WRITERS["confluent-kafka"](broker.address, name, mixed(20, plain=True))
        partition = AioTopicPartition(name, 0)
        assert await admin.delete_records({partition: RecordsToDelete(before_offset=8)}) == {partition: 8}
        assert [error[:2] for error in (await admin.delete_topics([name])).topic_error_codes] == [(name, 0)]
        assert name not in await admin.list_topics()
    finally:
        await admin.close()


async def test_aiokafka_administers_groups(broker: RunningBroker, topic: str) -> None:
    group = f"group-{topic}"
    commit(broker.address, group, topic, 7)
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        assert group in [listed[0] for listed in await admin.list_consumer_groups()]
        (described,) = await admin.describe_consumer_groups([group])
        assert described.groups[0][:3] == (0, group, "Empty")
        offsets = await admin.list_consumer_group_offsets(group)
        assert offsets[AioTopicPartition(topic, 0)].offset == 7
    finally:
        await admin.close()


# kcat

if "kcat" in READERS:

    def test_kcat_lists_the_cluster_and_its_topics(
        broker: RunningBroker, name: str, create: Callable[..., str]
    ) -> None:
        create(broker.address, name, 3)
        output = run_kcat("-L", "-b", broker.address).stdout.decode()
        assert f"broker 1 at {broker.address} (controller)" in output
        assert f'topic "{name}" with 3 partitions:' in output
        assert "partition 2, leader 1, replicas: 1, isrs: 1" in output

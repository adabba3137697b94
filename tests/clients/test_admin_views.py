"""The admin clients of Ottla, confluent-kafka and kafka-python on one broker: each sees the changes of the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition as PyTopicPartition

from ottla.client import Admin
from ottla.client.admin import admin as own
from ottla_testing.clients.four_clients import WRITERS
from ottla_testing.clients.mixed_records import mixed
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S


@pytest.fixture
async def admin(broker: RunningBroker) -> AsyncIterator[Admin]:
    async with Admin(broker.address) as ours:
        yield ours


@pytest.fixture
def confluent(broker: RunningBroker) -> Any:  # its types are not fully known
    return AdminClient({"bootstrap.servers": broker.address})


@pytest.fixture
def kafka_python(broker: RunningBroker) -> Iterator[Any]:
    theirs = KafkaAdminClient(bootstrap_servers=broker.address)
    yield theirs
    theirs.close()


def done(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(PATIENCE_S) for future in futures.values()]


async def test_views_of_topics_and_the_cluster_are_equal(
    admin: Admin, confluent: Any, kafka_python: Any, name: str
) -> None:
    own.checked(await admin.create_topics([own.NewTopic(name, 3, 1)]))
    (theirs,) = done(confluent.describe_topics(TopicCollection([name])))
    ours = own.checked(await admin.describe_topics([name]))[name]
    assert [(p.index, p.leader, p.replicas, p.isr) for p in ours.partitions] == [
        (p.id, p.leader.id, tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr)) for p in theirs.partitions
    ]
    assert set(await admin.list_topics(include_internal=True)) == set(kafka_python.list_topics())
    cluster = confluent.describe_cluster().result(PATIENCE_S)
    outcome = await admin.describe_cluster()
    assert outcome.cluster_id == cluster.cluster_id
    assert [node[:3] for node in outcome.nodes] == [(node.id, node.host, node.port) for node in cluster.nodes]
    assert own.checked(await admin.delete_topics([name])) == {name: None}
    assert name not in kafka_python.list_topics()


async def test_views_of_configs_are_equal(admin: Admin, confluent: Any, topic: str) -> None:
    ours = own.ConfigResource.topic(topic)
    own.checked(await admin.alter_configs({ours: {"cleanup.policy": "compact", "retention.ms": "5000"}}))
    for resource, theirs in (
        (ours, ConfigResource(ResourceType.TOPIC, topic)),
        (own.ConfigResource.broker(1), ConfigResource(ResourceType.BROKER, "1")),
    ):
        (expected,) = done(confluent.describe_configs([theirs]))
        found = own.checked(await admin.describe_configs([resource], include_synonyms=True))[resource]
        assert {name: (e.value, e.source, e.is_read_only, e.is_sensitive) for name, e in found.items()} == {
            name: (e.value, e.source, e.is_read_only, e.is_sensitive) for name, e in expected.items()
        }
        # Theirs are a dict by name: of several sources of one name it has the last.
        assert {name: {s.name: (s.value, s.source) for s in e.synonyms} for name, e in found.items()} == {
            name: {s.name: (s.value, s.source) for s in e.synonyms.values()} for name, e in expected.items()
        }


async def test_views_of_offsets_records_and_groups_are_equal(
    admin: Admin, confluent: Any, kafka_python: Any, broker: RunningBroker, topic: str
) -> None:
    WRITERS["kafka-python"](broker.address, topic, mixed(20, plain=True, null_values=False))
    where, group = (topic, 0), f"group-{topic}"
    assert own.checked(await admin.delete_records({where: 4})) == {where: 4}
    for spec, theirs in (
        (own.EARLIEST, OffsetSpec.earliest()),
        (own.LATEST, OffsetSpec.latest()),
        (own.MAX_TIMESTAMP, OffsetSpec.max_timestamp()),
        (1, OffsetSpec.for_timestamp(1)),
    ):
        (expected,) = done(confluent.list_offsets({TopicPartition(*where): theirs}))
        found = own.checked(await admin.list_offsets({where: spec}))[where]
        assert (found.offset, found.timestamp_ms) == (expected.offset, expected.timestamp)
    own.checked(await admin.alter_group_offsets(group, {where: own.OffsetAndMetadata(7, "why")}))
    seen = kafka_python.list_group_offsets(group)[group][PyTopicPartition(*where)]
    assert (seen.offset, seen.metadata) == (7, "why")
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(*where, 9)])
    done(confluent.alter_consumer_group_offsets([moved]))
    assert await admin.list_group_offsets(group) == {where: own.OffsetAndMetadata(9, "", -1)}
    listed = [each for each in await admin.list_groups() if each.group == group]
    (expected,) = [g for g in confluent.list_consumer_groups().result(PATIENCE_S).valid if g.group_id == group]
    assert [(each.group, each.state.upper()) for each in listed] == [(group, expected.state.name)]
    (theirs,) = done(confluent.describe_consumer_groups([group]))
    ours = own.checked(await admin.describe_groups([group]))[group]
    assert (ours.state.upper(), ours.coordinator, ours.members) == (theirs.state.name, theirs.coordinator.id, ())
    own.checked(await admin.delete_groups([group]))
    assert group not in [each["group_id"] for each in kafka_python.list_groups()]

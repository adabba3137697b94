"""Real clients without permission: their own exceptions, for records, groups, transactions.

Everything is allowed except for names that begin with "closed", which only another user may describe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType
from kafka.admin import NewTopic as PyNewTopic
from kafka.errors import (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from kafka.structs import TopicPartition as PyTopicPartition

from ottla.broker import Embedded
from ottla_testing.patience import PATIENCE_MS, PATIENCE_S

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONFIGS = {
    "authorizer.class.name": STANDARD,
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
}
TOPIC, READ_ONLY, SHOWN, GROUP = "closed-topic", "readable", "shown", "closed-group"
TRANSACTIONAL_ID = "closed-id"
CLOSED = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Embedded(configs=CONFIGS) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([PyNewTopic(name, 1, 1) for name in (TOPIC, READ_ONLY, SHOWN)])

        def entry(kind: Any, name: str, who: str, operation: Any, pattern: Any) -> ACL:
            return ACL(who, "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name, pattern))

        prefixed, literal = ACLResourcePatternType.PREFIXED, ACLResourcePatternType.LITERAL
        entries = [entry(kind, "closed", "User:other", ACLOperation.ALL, prefixed) for kind in CLOSED]
        entries.append(entry(ResourceType.TOPIC, READ_ONLY, "User:*", ACLOperation.READ, literal))
        entries.append(entry(ResourceType.TOPIC, SHOWN, "User:*", ACLOperation.DESCRIBE, literal))
        entries.append(entry(ResourceType.CLUSTER, "kafka-cluster", "User:other", ACLOperation.ALL, literal))
        assert admin.create_acls(entries)["failed"] == []
        admin.close()
        yield broker.bootstrap


def test_kafka_python_is_denied_writes_and_reads(address: str) -> None:
    producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=False)
    for topic in (TOPIC, READ_ONLY):
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"v").get(PATIENCE_S)
    assert producer.send("open", b"v").get(PATIENCE_S).offset == 0
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.assign([PyTopicPartition(SHOWN, 0)])
    with pytest.raises(TopicAuthorizationFailedError):
        consumer.poll(PATIENCE_MS)
    consumer.assign([PyTopicPartition(READ_ONLY, 0)])
    assert consumer.end_offsets([PyTopicPartition(READ_ONLY, 0)]) == {PyTopicPartition(READ_ONLY, 0): 0}
    assert consumer.poll(0) == {}
    consumer.close()


def test_kafka_python_is_denied_a_group(address: str) -> None:
    consumer = KafkaConsumer("open", bootstrap_servers=address, group_id=GROUP)
    with pytest.raises(GroupAuthorizationFailedError):
        consumer.poll(PATIENCE_MS)
    consumer.close(autocommit=False)


def test_kafka_python_is_denied_a_transaction(address: str) -> None:
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=TRANSACTIONAL_ID)
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close(timeout=1)


def test_kafka_python_is_denied_administration(address: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    with pytest.raises(TopicAuthorizationFailedError):
        admin.create_topics([PyNewTopic("closed-new", 1, 1)])
    with pytest.raises(TopicAuthorizationFailedError):
        admin.delete_topics([TOPIC])
    listed = admin.list_topics()
    assert TOPIC not in listed and {READ_ONLY, SHOWN} <= set(listed)
    admin.close()


def codes_of(futures: Any) -> set[Any]:
    found = set()
    for future in futures.values():
        with pytest.raises(KafkaException) as refused:
            future.result(PATIENCE_S)
        found.add(refused.value.args[0].code())
    return found


def test_confluent_is_denied_writes_and_reads(address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    delivered: list[Any] = []
    for topic in (TOPIC, READ_ONLY):
        producer.produce(topic, b"v", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [error.code() for error in delivered] == [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2
    consumer = Consumer({"bootstrap.servers": address, "group.id": "open-group", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, 0)])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


def test_confluent_is_denied_a_group(address: str) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": GROUP})
    consumer.subscribe(["open"])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    error = message.error()
    assert error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


def test_confluent_is_denied_a_transaction(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": TRANSACTIONAL_ID})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_confluent_is_denied_administration(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    denied = {KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert codes_of(admin.create_topics([NewTopic("closed-new", 1, 1)])) == denied
    assert codes_of(admin.delete_topics([TOPIC])) == denied
    assert codes_of(admin.create_partitions([NewPartitions(TOPIC, 2)])) == denied
    assert codes_of(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, TOPIC)])) == denied
    brokers = [ConfigResource(ConfigResource.Type.BROKER, "1")]
    assert codes_of(admin.describe_configs(brokers)) == {KafkaError.CLUSTER_AUTHORIZATION_FAILED}
    assert codes_of(admin.describe_consumer_groups([GROUP])) == {KafkaError.GROUP_AUTHORIZATION_FAILED}
    assert codes_of(admin.delete_consumer_groups([GROUP])) == {KafkaError.GROUP_AUTHORIZATION_FAILED}

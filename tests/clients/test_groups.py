"""Groups of real consumers: one joins, one is killed, the broker is restarted, and every record is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla_testing.clients.four_clients import READERS
from ottla_testing.clients.group_members import Members, members
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

pytestmark = pytest.mark.slow

PARTITIONS = 12
GROUPS = {client: [client] * 3 for client in READERS}
ENDS_WITH_THE_BROKER = "kcat"
GROUPS["mixed"] = ["kafka-python", "confluent-kafka", "aiokafka"]


def produce(address: str, topic: str, numbers: Iterable[int]) -> None:
    """Writes one record for each number; the partition is the number's remainder."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for number in numbers:
        producer.produce(
            topic,
            str(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0 and not failures, failures


def committed(address: str, group: str, topic: str) -> dict[int, int]:
    """Returns partition -> committed offset, from the admin client."""
    admin = AdminClient({"bootstrap.servers": address})
    request = ConsumerGroupTopicPartitions(group)
    response = admin.list_consumer_group_offsets([request])[group].result(PATIENCE_S)
    return {p.partition: p.offset for p in response.topic_partitions if p.topic == topic}


def end_offsets(address: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody"})
    try:
        found = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 30) for p in range(PARTITIONS)}
        return {p: offsets[1] for p, offsets in found.items() if offsets}
    finally:
        consumer.close()


def wait_for_commits(group: Members) -> dict[int, int]:
    """Waits until all that was read is committed; returns the offsets."""
    ends = end_offsets(group.address, group.topic)
    for _ in range(200):
        if committed(group.address, group.group, group.topic) == ends:
            return ends
        with group.changed:
            group.changed.wait(0.1)
    raise AssertionError((committed(group.address, group.group, group.topic), ends))


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("kinds", GROUPS)
def test_every_record_is_read_across_a_join_a_kill_and_a_restart(
    kinds: str, how: str, own_broker: RunningBroker, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    address, count = own_broker.address, scaled(600)
    create(address, "work", PARTITIONS)
    with members(address, "workers", "work") as group:
        first, second = (group.start(kind) for kind in GROUPS[kinds][:2])
        group.wait_for_shares([first, second], 6)
        produce(address, "work", range(count))
        third = group.start(GROUPS[kinds][2])
        group.wait_for_shares([first, second, third], 4)
        produce(address, "work", range(count, 2 * count))
        first.kill()
        group.wait_for_shares([second, third], 6)
        produce(address, "work", range(2 * count, 3 * count))
        group.wait_for(lambda: len(group.values) == 3 * count)
        if kinds != ENDS_WITH_THE_BROKER:  # the others keep their position over the restart
            own_broker.restart(how)
        produce(address, "work", range(3 * count, 4 * count))
        group.wait_for(lambda: len(group.values) == 4 * count)
        assert group.values == {str(number) for number in range(4 * count)}
        ends = wait_for_commits(group)
        assert sum(ends.values()) == 4 * count
        second.leave()
        third.leave()
        own_broker.restart(how)
        assert committed(address, "workers", "work") == ends
        produce(address, "work", range(-PARTITIONS, 0))
        late = group.start(GROUPS[kinds][1])
        group.wait_for(lambda: len(late.records) >= PARTITIONS)
        assert {value for _, _, value in late.records} == {str(number) for number in range(-PARTITIONS, 0)}
        late.leave()


def test_cooperative_members_keep_their_other_partitions(own_broker: RunningBroker, create: Callable[..., str]) -> None:
    """Incremental rebalances (KIP-429): the new member gets four partitions, the others lose only those."""
    create(own_broker.address, "work", PARTITIONS)
    with members(own_broker.address, "workers", "work") as group:
        settings = {"partition.assignment.strategy": "cooperative-sticky"}
        first = group.start("confluent-kafka", **settings)
        group.wait_for_shares([first], 12)
        second = group.start("confluent-kafka", **settings)
        group.wait_for_shares([first, second], 6)
        produce(own_broker.address, "work", range(240))
        third = group.start("confluent-kafka", **settings)
        group.wait_for_shares([first, second, third], 4)
        assert [len(gone) for gone in first.revoked] == [6, 2]
        assert [len(gone) for gone in second.revoked] == [2]
        group.wait_for(lambda: len(group.values) == 240)
        third.leave()
        group.wait_for_shares([first, second], 6)
        assert [len(gone) for gone in first.revoked] == [6, 2]  # no other partition was revoked for that
        produce(own_broker.address, "work", range(240, 480))
        group.wait_for(lambda: len(group.values) == 480)
        wait_for_commits(group)


@pytest.mark.parametrize("kind", ["kafka-python", "confluent-kafka"])
def test_static_member_returns_to_its_partitions_without_a_rebalance(
    kind: str, own_broker: RunningBroker, create: Callable[..., str]
) -> None:
    """KIP-345: the absence of a member with a group.instance.id for less than a session has no effect."""
    create(own_broker.address, "work", PARTITIONS)
    name, session = {
        "kafka-python": ("group_instance_id", "session_timeout_ms"),
        "confluent-kafka": ("group.instance.id", "session.timeout.ms"),
    }[kind]
    with members(own_broker.address, "workers", "work") as group:
        first = group.start(kind, **{name: "one", session: "30000"})
        second = group.start(kind, **{name: "two", session: "30000"})
        group.wait_for_shares([first, second], 6)
        held = set(first.held)
        spoken = len(second.printed)
        first.kill()
        again = group.start(kind, **{name: "one", session: "30000"})
        group.wait_for(lambda: len(again.held) == 6)
        assert again.held == held
        produce(own_broker.address, "work", range(240))
        group.wait_for(lambda: len(group.values) == 240)
        assert {partition for partition, _, _ in again.records} == held
        assert not [line for line in second.printed[spoken:] if "record" not in line]


def test_second_static_member_with_the_same_id_fences_the_first(
    own_broker: RunningBroker, create: Callable[..., str]
) -> None:
    create(own_broker.address, "work", PARTITIONS)
    with members(own_broker.address, "workers", "work") as group:
        first = group.start("confluent-kafka", **{"group.instance.id": "one"})
        group.wait_for_shares([first], 12)
        second = group.start("confluent-kafka", **{"group.instance.id": "one"})
        group.wait_for(lambda: len(second.held) == 12 and first.errors)
        assert first.errors[0] in ("FENCED_INSTANCE_ID", "_FATAL"), first.errors

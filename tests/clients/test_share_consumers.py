"""Real members of share groups (KIP-932): the ShareConsumer of confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer, TopicPartition

from ottla.protocol.messages.share.share_group_describe import ShareGroupDescribeRequest
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.history.life_wire import Wire, configure_sharing
from ottla_testing.patience import PATIENCE_S, until

pytestmark = pytest.mark.slow

LOCK_MS, LIMIT = 2000, 3
CONFIGS = {
    "group_share_record_lock_duration_ms": str(LOCK_MS),
    "group_share_delivery_count_limit": str(LIMIT),
    "group_share_heartbeat_interval_ms": "300",
    "group_share_session_timeout_ms": "3000",
    "group_share_min_record_lock_duration_ms": "1000",
    "group_share_min_heartbeat_interval_ms": "100",
    "group_share_min_session_timeout_ms": "1000",
    "group_share_assignment_interval_ms": "0",
    "share_coordinator_state_topic_num_partitions": "3",
    "offsets_topic_num_partitions": "3",
}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker with short locks."""
    running = RunningBroker(tmp_path, **CONFIGS)
    yield running
    running.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The shared broker of this module, with short locks."""
    running = RunningBroker(tmp_path_factory.mktemp("broker"), **CONFIGS)
    yield running
    running.close()


def produce(address: str, topic: str, *values: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for value in values:
        producer.produce(topic, str(value), partition=0)
    assert producer.flush(PATIENCE_S) == 0


class Member:
    """A share consumer with the records that it got: (value, delivery count) in order."""

    def __init__(self, address: str, group: str, *topics: str, **config: Any) -> None:
        given = {"bootstrap.servers": address, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self.consumer = ShareConsumer({**given, **config})
        self.consumer.subscribe(list(topics))
        self.got: list[tuple[int, int]] = []

    def poll(self) -> list[Any]:
        found = [message for message in self.consumer.poll(0.2) if not message.error()]
        self.got += [(int(message.value() or b""), message.delivery_count() or 0) for message in found]
        return found

    def take(self, count: int) -> list[Any]:
        """Polls until this many records have come, and accepts none: what is polled again is released before."""
        found: list[Any] = []

        def is_enough() -> bool:
            if not found:
                found.extend(self.poll())
            return len(found) >= count

        until(is_enough, lambda: f"{len(found)} of {count} records")
        return found

    def give(self, messages: list[Any], kind: AcknowledgeType) -> None:
        for message in messages:
            self.consumer.acknowledge(message, kind)

    def commit(self) -> None:
        failed = {place: error for place, error in self.consumer.commit_sync(PATIENCE_S).items() if error}
        assert not failed, failed

    def work(self) -> None:
        """Accepts the records of one poll."""
        found = self.poll()
        self.give(found, AcknowledgeType.ACCEPT)
        if found:
            self.commit()

    @property
    def values(self) -> set[int]:
        return {value for value, _ in self.got}


@contextmanager
def members(address: str, group: str, *topics: str, count: int = 1, **config: Any) -> Iterator[list[Member]]:
    """Members of a group that begins at the first record."""
    configure_sharing(address, group, "read_uncommitted")
    with ExitStack() as stack:
        made = [Member(address, group, *topics, **config) for _ in range(count)]
        for member in made:
            stack.callback(member.consumer.close)
        yield made


def working(*members: Member) -> None:
    for member in members:
        member.work()


def test_members_of_a_group_share_the_records_of_one_partition(broker: RunningBroker, topic: str) -> None:
    with members(broker.address, topic, topic, count=2, **{"max.poll.records": 5}) as (one, other):
        until(lambda: working(one, other) or len(members_of(broker.address, topic)) == 2, "no two members")
        sent = 0

        def have_both() -> bool:
            nonlocal sent
            produce(broker.address, topic, *range(sent, sent := sent + 50))
            working(one, other)
            return bool(one.got and other.got)

        until(have_both, "one member gets everything")
        until(lambda: working(one, other) or len(one.got) + len(other.got) == sent, "not all is shared")
        assert one.values | other.values == set(range(sent)) and not one.values & other.values


def members_of(address: str, group: str) -> set[str]:
    """Returns the member ids of a share group; confluent-kafka does not describe one."""
    wire = Wire(address)
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    (found,) = wire.call(request, 1).groups
    wire.close()
    return {member.member_id for member in found.members}


def test_released_record_is_delivered_again_until_the_limit(broker: RunningBroker, topic: str) -> None:
    produce(broker.address, topic, 7)
    with members(broker.address, topic, topic) as (member,):
        for count in range(1, LIMIT + 1):
            (message,) = member.take(1)
            assert message.delivery_count() == count
            member.give([message], AcknowledgeType.RELEASE)
            member.commit()
        produce(broker.address, topic, 8)
        assert [message.value() for message in member.take(1)] == [b"8"]


def test_rejected_record_is_not_delivered_again(broker: RunningBroker, topic: str) -> None:
    produce(broker.address, topic, 7)
    with members(broker.address, topic, topic) as (member,):
        member.give(member.take(1), AcknowledgeType.REJECT)
        member.commit()
        produce(broker.address, topic, 8)
        member.give(member.take(1), AcknowledgeType.ACCEPT)
        assert member.got == [(7, 1), (8, 1)]


def test_implicit_acknowledgement_accepts_with_the_next_poll(broker: RunningBroker, topic: str) -> None:
    implicit: dict[str, Any] = {"share.acknowledgement.mode": "implicit"}
    produce(broker.address, topic, *range(5))
    with members(broker.address, topic, topic, **implicit) as (member,):
        until(lambda: member.poll() is None or len(member.got) == 5, "not all is delivered")
        member.poll()
    with members(broker.address, topic, topic, **implicit) as (member,):
        produce(broker.address, topic, 5)
        until(lambda: member.poll() is None or member.got, "nothing is delivered")
        assert member.got == [(5, 1)]


def test_closed_member_releases_its_records(broker: RunningBroker, topic: str) -> None:
    produce(broker.address, topic, *range(3))
    with members(broker.address, topic, topic) as (member,):
        first, *others = member.take(3)
        member.give([first], AcknowledgeType.ACCEPT)
        member.give(others, AcknowledgeType.RELEASE)
    with members(broker.address, topic, topic) as (member,):
        member.give(member.take(2), AcknowledgeType.ACCEPT)
        assert member.got == [(1, 2), (2, 2)]


def test_end_of_a_lock_lets_another_member_get_the_record(broker: RunningBroker, topic: str) -> None:
    """The late acknowledgement is refused, and the record delivered again with a higher count."""
    with members(broker.address, topic, topic, count=2) as (one, other):
        produce(broker.address, topic, 7)
        held: dict[int, list[Any]] = {}

        def is_held() -> bool:
            for number, member in enumerate((one, other)):
                if not held and (found := member.poll()):
                    held[number] = found
            return bool(held)

        until(is_held, "nothing is delivered")
        ((number, messages),) = held.items()
        late, heir = (one, other) if number == 0 else (other, one)
        until(heir.poll, "the lock does not end")
        assert heir.got == [(7, 2)]
        late.give(messages, AcknowledgeType.ACCEPT)
        results = late.consumer.commit_sync(PATIENCE_S)
        errors = [error.args[0].name() for error in results.values() if isinstance(error, KafkaException)]
        assert errors == ["INVALID_RECORD_STATE"], results
        assert list(results) == [TopicPartition(topic, 0)]


def test_callback_gets_the_acknowledged_offsets(broker: RunningBroker, topic: str) -> None:
    produce(broker.address, topic, *range(3))
    calls: list[tuple[set[int], object]] = []
    with members(broker.address, topic, topic) as (member,):
        member.consumer.set_acknowledgement_commit_callback(
            lambda offsets, error: calls.extend((set(found), error) for found in offsets.values())
        )
        member.give(member.take(3), AcknowledgeType.ACCEPT)
        member.consumer.commit_async()
        until(lambda: member.poll() or calls, "the callback is not called")
    assert calls == [({0, 1, 2}, None)]


def test_subscription_may_change(broker: RunningBroker, name: str, create: Callable[..., str]) -> None:
    first, second = create(broker.address, f"{name}-1"), create(broker.address, f"{name}-2")
    produce(broker.address, first, 1)
    produce(broker.address, second, 2)
    with members(broker.address, name, first) as (member,):
        until(lambda: member.work() or member.values == {1}, "nothing of the first topic")
        member.consumer.subscribe([second])
        until(lambda: member.work() or member.values == {1, 2}, "nothing of the second topic")
        assert member.consumer.subscription() == [second]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_share_state_is_where_it_was_after_a_restart(
    how: str, own_broker: RunningBroker, create: Callable[..., str]
) -> None:
    """The members stay, accepted records do not come back, the others do, also those that were locked."""
    address = own_broker.address
    create(address, "work")
    produce(address, "work", *range(10))
    with members(address, "workers", "work") as (member,):
        found = member.take(10)
        member.give(found[:4], AcknowledgeType.ACCEPT)
        member.give(found[4:6], AcknowledgeType.RELEASE)
        member.give(found[6:7], AcknowledgeType.REJECT)
        member.commit()
        before = members_of(address, "workers")
        own_broker.restart(how)
        member.give(found[7:], AcknowledgeType.ACCEPT)
        lost = member.consumer.commit_sync(PATIENCE_S)
        assert all(isinstance(error, KafkaException) for error in lost.values()), lost
        member.got.clear()
        until(lambda: member.work() or len(member.got) >= 5, lambda: f"{member.got}")
        counts = dict(member.got)
        assert counts.keys() == {4, 5, 7, 8, 9} and counts[4] == counts[5] == 2, counts
        assert members_of(address, "workers") == before
        produce(address, "work", 10)
        until(lambda: member.work() or 10 in member.values, "nothing new is delivered")
        assert len(member.got) == 6

"""Real consumers in groups of the consumer protocol (KIP-848): confluent-kafka with `group.protocol=consumer`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla_testing.clients.group_members import Member, Members, members
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S, until

pytestmark = pytest.mark.slow

PARTITIONS = 12
CONSUMER = {"group.protocol": "consumer"}
QUICK = {
    "group_consumer_heartbeat_interval_ms": "300",
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_assignment_interval_ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The shared broker of this module, with quick heartbeats."""
    running = RunningBroker(tmp_path_factory.mktemp("broker"), **QUICK)
    yield running
    running.close()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker whose members are removed after three seconds without a heartbeat."""
    running = RunningBroker(tmp_path, group_consumer_session_timeout_ms="3000", **QUICK)
    yield running
    running.close()


@pytest.fixture
def patient_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker whose members stay for a minute without a heartbeat."""
    running = RunningBroker(tmp_path, group_consumer_session_timeout_ms="60000", **QUICK)
    yield running
    running.close()


def produce(address: str, topic: str, first: int, last: int) -> None:
    """Writes one record for each number; the partition is the number's remainder."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for number in range(first, last):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def described(address: str, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": address})  # must live on until the response
    return admin.describe_consumer_groups([group])[group].result(PATIENCE_S)


def assignments(address: str, group: str) -> dict[str, set[int]]:
    """Returns the partitions of each member, by member id."""
    found = described(address, group)
    return {
        one.member_id: {place.partition for place in one.assignment.topic_partitions or ()} for one in found.members
    }


def lines(member: Member) -> list[str]:
    """Returns the changes of a member's assignment."""
    return [line for line in member.printed if "assigned" in line or "revoked" in line]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_every_record_is_read_across_a_join_a_kill_and_a_restart(
    how: str, own_broker: RunningBroker, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    address, count = own_broker.address, scaled(600)
    create(address, "work", PARTITIONS)
    with members(address, "workers", "work") as group:
        first, second = (group.start("confluent-kafka", **CONSUMER) for _ in range(2))
        group.wait_for_shares([first, second], 6)
        produce(address, "work", 0, count)
        third = group.start("confluent-kafka", **CONSUMER)
        group.wait_for_shares([first, second, third], 4)
        produce(address, "work", count, 2 * count)
        first.kill()
        group.wait_for_shares([second, third], 6)
        own_broker.restart(how)
        produce(address, "work", 2 * count, 3 * count)
        group.wait_for(lambda: len(group.values) == 3 * count)
        assert group.values == {str(number) for number in range(3 * count)}
        second.leave()
        third.leave()


def test_members_continue_after_a_kill_of_the_broker_without_a_rebalance(
    patient_broker: RunningBroker, create: Callable[..., str]
) -> None:
    """Their epochs and assignments are stored: no member has to join again."""
    address = patient_broker.address
    create(address, "work", PARTITIONS)
    with members(address, "workers", "work") as group:
        both = [group.start("confluent-kafka", **CONSUMER) for _ in range(2)]
        group.wait_for_shares(both, 6)
        until(lambda: sorted(map(len, assignments(address, "workers").values())) == [6, 6], "not assigned")
        before, printed = assignments(address, "workers"), [lines(member) for member in both]
        patient_broker.restart("kill")
        produce(address, "work", 0, 240)
        group.wait_for(lambda: len(group.values) == 240)
        assert assignments(address, "workers") == before
        assert [lines(member) for member in both] == printed


def test_members_change_between_both_protocols_and_back(own_broker: RunningBroker, create: Callable[..., str]) -> None:
    """An online migration: the group is converted when the first member of the other protocol joins or leaves."""
    address = own_broker.address
    create(address, "work", PARTITIONS)
    with members(address, "workers", "work") as group:
        old = [group.start("confluent-kafka") for _ in range(2)]
        group.wait_for_shares(old, 6)
        produce(address, "work", 0, 120)
        new = group.start("confluent-kafka", **CONSUMER)
        group.wait_for_shares([*old, new], 4)
        produce(address, "work", 120, 240)
        old[0].leave()
        group.wait_for_shares([old[1], new], 6)
        old[1].leave()
        group.wait_for_shares([new], 12)
        produce(address, "work", 240, 360)
        back = group.start("confluent-kafka")
        group.wait_for_shares([new, back], 6)
        new.leave()
        group.wait_for_shares([back], 12)
        produce(address, "work", 360, 480)
        group.wait_for(lambda: len(group.values) == 480)
        assert described(address, "workers").type.name == "CLASSIC"


# -- static members


def static(group: Members, instance: str) -> Member:
    return group.start("confluent-kafka", **CONSUMER, **{"group.instance.id": instance})


def test_static_member_returns_to_its_partitions(patient_broker: RunningBroker, create: Callable[..., str]) -> None:
    """A member that is closed and comes back within its session gets the same partitions, and the other one none."""
    create(patient_broker.address, "work", PARTITIONS)
    with members(patient_broker.address, "workers", "work") as group:
        first, second = static(group, "one"), static(group, "two")
        group.wait_for_shares([first, second], 6)
        held, printed = set(first.held), lines(second)
        first.leave()
        again = static(group, "one")
        group.wait_for(lambda: len(again.held) == 6)
        assert again.held == held
        produce(patient_broker.address, "work", 0, 240)
        group.wait_for(lambda: len(group.values) == 240)
        assert lines(second) == printed


def test_instance_id_in_use_is_refused_until_its_session_ends(
    own_broker: RunningBroker, create: Callable[..., str]
) -> None:
    """The new protocol does not fence a living member with the same instance id (UNRELEASED_INSTANCE_ID)."""
    create(own_broker.address, "work", PARTITIONS)
    with members(own_broker.address, "workers", "work") as group:
        first = static(group, "one")
        group.wait_for_shares([first], 12)
        second = static(group, "one")
        group.wait_for(lambda: second.errors)
        assert second.errors[0] in ("UNRELEASED_INSTANCE_ID", "_FATAL"), second.errors
        produce(own_broker.address, "work", 0, 24)
        group.wait_for(lambda: len(first.records) == 24)
        first.kill()
        until(lambda: not described(own_broker.address, "workers").members, "the session does not end")
        third = static(group, "one")
        group.wait_for(lambda: len(third.held) == 12)


def test_static_member_that_returns_too_late_is_fenced_by_its_successor(
    own_broker: RunningBroker, create: Callable[..., str]
) -> None:
    """The process is stopped for longer than its session: another member has its instance id when it continues."""
    create(own_broker.address, "work", PARTITIONS)
    with members(own_broker.address, "workers", "work") as group:
        first = static(group, "one")
        group.wait_for_shares([first], 12)
        first.process.send_signal(signal.SIGSTOP)
        until(lambda: not described(own_broker.address, "workers").members, "the session does not end")
        second = static(group, "one")
        group.wait_for(lambda: len(second.held) == 12)
        first.process.send_signal(signal.SIGCONT)
        group.wait_for(lambda: first.errors)
        assert first.errors[0] in ("FENCED_INSTANCE_ID", "_FATAL"), first.errors
        produce(own_broker.address, "work", 0, 24)
        group.wait_for(lambda: len(second.records) == 24)
        assert not first.records


# -- one consumer


def consumer(address: str, group: str, **more: Any) -> Consumer:
    config = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", **CONSUMER}
    return Consumer({**config, "enable.auto.commit": False, **more})


def taken(consumer: Consumer, count: int) -> list[Any]:
    """Returns this many records."""
    found: list[Any] = []

    def is_enough() -> bool:
        found.extend(message for message in consumer.consume(count - len(found), 0.2) if not message.error())
        return len(found) >= count

    until(is_enough, lambda: f"{len(found)} of {count} records")
    return found


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_assignors(assignor: str, broker: RunningBroker, name: str, create: Callable[..., str]) -> None:
    """Two topics of three partitions: range gives the first member two of each, uniform three to each member."""
    for topic in (f"{name}-a", f"{name}-b"):
        create(broker.address, topic, 3)
    both = [consumer(broker.address, name, **{"group.remote.assignor": assignor}) for _ in range(2)]
    try:
        for one in both:
            one.subscribe([f"{name}-a", f"{name}-b"])

        def shares() -> list[int]:
            for one in both:
                one.poll(0.1)
            return sorted(len(one.assignment()) for one in both)

        until(lambda: shares() == ([3, 3] if assignor == "uniform" else [2, 4]), lambda: f"the shares are {shares()}")
        assert described(broker.address, name).partition_assignor == assignor
        if assignor == "range":
            largest = max((one.assignment() for one in both), key=len)
            assert sorted({place.partition for place in largest}) == [0, 1]
    finally:
        for one in both:
            one.close()


def test_regular_expression_matches_topics_that_are_created_later(
    broker: RunningBroker, name: str, create: Callable[..., str]
) -> None:
    create(broker.address, f"{name}-1", 1)
    one = consumer(broker.address, name, **{"topic.metadata.refresh.interval.ms": 500})
    try:
        one.subscribe([f"^{name}-[0-9]"])
        until(lambda: one.poll(0.1) or len(one.assignment()) == 1, "no topic is assigned")
        create(broker.address, f"{name}-2", 1)
        create(broker.address, f"{name}-x", 1)

        def names() -> set[str]:
            one.poll(0.1)
            return {place.topic for place in one.assignment()}

        until(lambda: names() == {f"{name}-1", f"{name}-2"}, lambda: f"assigned are {names()}")
    finally:
        one.close()


def test_callbacks_are_called_for_partitions_that_change(
    broker: RunningBroker, name: str, create: Callable[..., str]
) -> None:
    create(broker.address, name, 4)
    first, second = consumer(broker.address, name), consumer(broker.address, name)
    changes: list[tuple[str, int]] = []

    def note(change: str, places: list[TopicPartition]) -> None:
        if places:  # librdkafka also reports that nothing was added
            changes.append((change, len(places)))

    first.subscribe(
        [name],
        on_assign=lambda _, places: note("assigned", places),
        on_revoke=lambda _, places: note("revoked", places),
    )
    try:
        until(lambda: first.poll(0.1) or len(first.assignment()) == 4, "nothing is assigned")
        second.subscribe([name])

        def are_equal() -> bool:
            for one in (first, second):
                one.poll(0.1)
            return len(first.assignment()) == len(second.assignment()) == 2

        until(are_equal, "the members have not two partitions each")
        assert changes == [("assigned", 4), ("revoked", 2)]
        second.close()
        until(lambda: first.poll(0.1) or len(first.assignment()) == 4, "nothing is taken over")
        assert changes == [("assigned", 4), ("revoked", 2), ("assigned", 2)]
    finally:
        first.close()
    until(lambda: not described(broker.address, name).members, "a closed consumer is still a member")


def test_pause_seek_and_committed_offsets(broker: RunningBroker, topic: str) -> None:
    produce_to_one(broker.address, topic, 10)
    one = consumer(broker.address, topic)
    place = TopicPartition(topic, 0)
    try:
        one.subscribe([topic])
        assert [message.offset() for message in taken(one, 10)] == list(range(10))
        one.pause([place])
        produce_to_one(broker.address, topic, 2)
        assert one.poll(1) is None
        one.resume([place])
        assert [message.offset() for message in taken(one, 2)] == [10, 11]
        one.seek(TopicPartition(topic, 0, 5))
        assert [message.offset() for message in taken(one, 2)] == [5, 6]
        one.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    finally:
        one.close()
    again = consumer(broker.address, topic)
    try:
        again.subscribe([topic])
        assert taken(again, 1)[0].offset() == 7
    finally:
        again.close()


def produce_to_one(address: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(PATIENCE_S) == 0


def test_transactions_commit_the_offsets_of_a_member(
    broker: RunningBroker, name: str, create: Callable[..., str]
) -> None:
    """An aborted transaction takes its offsets back; one of a member that has left is refused."""
    create(broker.address, name, 1)
    produce_to_one(broker.address, name, 6)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    one = consumer(broker.address, name)
    place = TopicPartition(name, 0)
    try:
        one.subscribe([name])
        taken(one, 6)
        for offset, is_committed in ((3, True), (5, False)):
            producer.begin_transaction()
            offsets = [TopicPartition(name, 0, offset)]
            producer.send_offsets_to_transaction(offsets, one.consumer_group_metadata(), PATIENCE_S)
            if is_committed:
                producer.commit_transaction(PATIENCE_S)
            else:
                producer.abort_transaction(PATIENCE_S)
        assert one.committed([place], PATIENCE_S)[0].offset == 3
        metadata = one.consumer_group_metadata()
    finally:
        one.close()
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(name, 0, 6)], metadata, PATIENCE_S)
    assert caught.value.args[0].txn_requires_abort(), caught.value
    producer.abort_transaction(PATIENCE_S)

"""The guarantees of the clients' transactional producers: atomicity, fencing, timeouts, also over restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaError as PyKafkaError

from ottla.client import ClientError
from ottla_testing.clients.copying import committed_offsets, end_offsets, read_topic
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.clients.transactional import PRODUCERS, ConfluentKafka, Fatal, KafkaPython, MustAbort, librdkafka
from ottla_testing.patience import PATIENCE_S, until

SWEEP_MS = 50
# librdkafka accepts no lower timeout.
TIMEOUTS_MS = {"confluent-kafka": 1000, "kafka-python": 200, "aiokafka": 200, "ottla": 200}
CLIENTS, EACH = 50, 4
REFUSED = (
    Fatal,
    MustAbort,
    KafkaException,
    PyKafkaError,
    AioKafkaError,
    ClientError,
)  # of its own class in each client
Make = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("close_what_kafka_python_leaves_open")


@pytest.fixture(scope="module")
def sweeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that checks for silent transactions all the time."""
    overrides = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": str(SWEEP_MS)}
    running = RunningBroker(tmp_path_factory.mktemp("broker"), **overrides)
    yield running
    running.close()


@pytest.fixture
def make() -> Iterator[Make]:
    """`make(client, address, transactional_id, ...)`: a producer that is closed after the test."""
    made: list[Any] = []

    def one(client: str, *arguments: Any, **more: Any) -> Any:
        made.append(PRODUCERS[client](*arguments, **more))
        return made[-1]

    yield one
    for producer in made:
        producer.close()


def both(address: str, topic: str, partitions: int = 1) -> tuple[dict[int, list[bytes]], dict[int, list[bytes]]]:
    """Returns the records of read_committed readers, and those of the others."""
    return read_topic(address, topic, partitions), read_topic(address, topic, partitions, "read_uncommitted")


def settled(address: str, topic: str, partition: int = 0) -> bool:
    """Returns whether no transaction is open in the partition."""
    ends = [
        end_offsets(address, topic, partition + 1, isolation) for isolation in ("read_committed", "read_uncommitted")
    ]
    return ends[0] == ends[1]


@pytest.mark.parametrize("client", PRODUCERS)
def test_transaction_over_topics_and_partitions_is_atomic(
    sweeping: RunningBroker, name: str, create: Callable[..., str], make: Make, client: str
) -> None:
    address = sweeping.address
    topics = [create(address, f"{name}-{word}", 3) for word in ("one", "two", "three")]
    places = [(topic, partition) for topic in topics for partition in range(3)]
    producer = make(client, address, name)
    for number, end in enumerate((producer.commit, producer.abort, producer.commit)):
        producer.begin()
        for topic, partition in places:
            producer.send(topic, partition, b"%d" % number)
        producer.flush()
        wanted = [b"0"] if number else []
        for topic in topics:
            assert read_topic(address, topic, 3) == {partition: wanted for partition in range(3)}
        end()
    for topic in topics:
        committed, written = both(address, topic, 3)
        assert committed == {partition: [b"0", b"2"] for partition in range(3)}
        assert written == {partition: [b"0", b"1", b"2"] for partition in range(3)}


@pytest.mark.parametrize("client", PRODUCERS)
def test_second_producer_fences_the_first_permanently(
    sweeping: RunningBroker, name: str, create: Callable[..., str], make: Make, client: str
) -> None:
    address, topic = sweeping.address, create(sweeping.address, name)
    first = make(client, address, name)
    first.begin()
    first.send(topic, 0, b"of a zombie")
    first.flush()
    second = make(client, address, name)
    with pytest.raises(REFUSED) as caught:
        first.commit()
    assert isinstance(caught.value, Fatal) or "Fenced" in type(caught.value).__name__, repr(caught.value)
    with pytest.raises(REFUSED):
        first.begin()
    second.begin()
    second.send(topic, 0, b"of the living")
    second.commit()
    committed, written = both(address, topic)
    assert committed == {0: [b"of the living"]}
    assert written == {0: [b"of a zombie", b"of the living"]}


@pytest.mark.parametrize("client", PRODUCERS)
def test_records_of_a_fenced_zombie_are_never_written(
    sweeping: RunningBroker, name: str, create: Callable[..., str], make: Make, client: str
) -> None:
    address, topic = sweeping.address, create(sweeping.address, name)
    first = make(client, address, name)
    second = make(client, address, name)
    with pytest.raises(REFUSED):
        first.begin()
        first.send(topic, 0, b"of a zombie")
        first.flush()
        first.commit()
    second.begin()
    second.send(topic, 0, b"of the living")
    second.commit()
    assert both(address, topic) == ({0: [b"of the living"]}, {0: [b"of the living"]})


def test_clients_silent_in_a_transaction_are_aborted(
    sweeping: RunningBroker, name: str, create: Callable[..., str], make: Make
) -> None:
    address = sweeping.address
    topics = {client: create(address, f"{name}-{client}") for client in PRODUCERS}
    silent = {client: make(client, address, topics[client], timeout_ms=TIMEOUTS_MS[client]) for client in PRODUCERS}
    for client, producer in silent.items():
        producer.begin()
        producer.send(topics[client], 0, b"unheard")
        producer.flush()
    for topic in topics.values():
        until(lambda topic=topic: settled(address, topic), "a silent client is not aborted")
        assert both(address, topic) == ({0: []}, {0: [b"unheard"]})
    for producer in silent.values():
        with pytest.raises(REFUSED):
            producer.commit()
    for client, topic in topics.items():
        producer = make(client, address, topic)
        producer.begin()
        producer.send(topic, 0, b"heard")
        producer.commit()
        assert both(address, topic) == ({0: [b"heard"]}, {0: [b"unheard", b"heard"]})


@pytest.mark.parametrize("client", PRODUCERS)
def test_offsets_by_group_id_only_are_committed_with_the_transaction(
    sweeping: RunningBroker, name: str, create: Callable[..., str], make: Make, client: str
) -> None:
    address, topic = sweeping.address, create(sweeping.address, name, 2)
    admin = AdminClient(librdkafka(address))
    group: Any = name
    if client == ConfluentKafka.name:  # it accepts only metadata: here without a generation and a member
        consumer = Consumer({**librdkafka(address), "group.id": name})
        group = consumer.consumer_group_metadata()
        consumer.close()
    producer = make(client, address, name)
    for offsets, end, wanted in (
        ({0: 3}, producer.commit, {0: 3}),
        ({0: 7, 1: 8}, producer.abort, {0: 3}),
        ({1: 5}, producer.commit, {0: 3, 1: 5}),
    ):
        producer.begin()
        producer.send_offsets({(topic, partition): offset for partition, offset in offsets.items()}, group)
        producer.send(topic, 0, b"x")
        end()
        assert committed_offsets(admin, name, topic) == wanted


def member(address: str, group: str, topic: str) -> Consumer:
    """A member of a group that has partition 0."""
    config: dict[str, Any] = {**librdkafka(address), "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.auto.commit": False, "group.instance.id": "the only one"})
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.05) is not None, "the member gets nothing")
    return consumer


@pytest.mark.parametrize("client", [ConfluentKafka.name, KafkaPython.name])
def test_offsets_of_a_replaced_member_are_refused(
    sweeping: RunningBroker, name: str, create: Callable[..., str], make: Make, client: str
) -> None:
    """KIP-447: the zombie is not detected by the transactional id, but by the group's metadata."""
    address, topic = sweeping.address, create(sweeping.address, name)
    admin = AdminClient(librdkafka(address))
    own = make(ConfluentKafka.name, address, f"{name}-filling")
    own.begin()
    own.send(topic, 0, b"x")
    own.commit()
    old, new = replaced_members(address, name, topic, client)
    zombie, living = make(client, address, f"{name}-zombie"), make(client, address, f"{name}-living")
    zombie.begin()
    zombie.send(topic, 0, b"of a zombie")
    zombie.flush()
    with pytest.raises(REFUSED):
        zombie.send_offsets({(topic, 0): 1}, old)
    zombie.abort()
    assert committed_offsets(admin, name, topic) == {}
    living.begin()
    living.send(topic, 0, b"of the living")
    living.send_offsets({(topic, 0): 1}, new)
    living.commit()
    assert committed_offsets(admin, name, topic) == {0: 1}
    assert both(address, topic) == ({0: [b"x", b"of the living"]}, {0: [b"x", b"of a zombie", b"of the living"]})


def replaced_members(address: str, group: str, topic: str, client: str) -> tuple[Any, Any]:
    """Returns the metadata of a static member and of its replacement, as the client has them."""
    if client == ConfluentKafka.name:
        first = member(address, group, topic)
        old = first.consumer_group_metadata()
        second = member(address, group, topic)
        new = second.consumer_group_metadata()
        first.close()
        second.close()
        return old, new
    from kafka import KafkaConsumer

    found: list[Any] = []
    consumers: list[Any] = []
    for _ in range(2):
        consumer: Any = KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_instance_id="the only one",
        )
        consumers.append(consumer)
        until(lambda consumer=consumer: consumer.poll(2000), "the member gets nothing")
        found.append(consumer.group_metadata())
    for consumer in consumers:
        consumer.close()
    return found[0], found[1]


def test_broker_killed_between_the_records_and_the_commit_keeps_the_transaction_open(
    own_broker: RunningBroker, create: Callable[..., str], make: Make
) -> None:
    address = own_broker.address
    for client in PRODUCERS:
        create(address, client)
        create(address, f"{client}-abort")
    producers = {client: make(client, address, client) for client in PRODUCERS}
    for word in ("", "-abort"):
        for client, producer in producers.items():
            producer.begin()
            producer.send(client + word, 0, b"written before")
            producer.flush()
        own_broker.restart("kill")
        for client in PRODUCERS:
            assert both(address, client + word) == ({0: []}, {0: [b"written before"]})
        for client, producer in producers.items():
            producer.send(client + word, 0, b"written after")
            (producer.abort if word else producer.commit)()
    for client in PRODUCERS:
        whole = {0: [b"written before", b"written after"]}
        assert both(address, client) == (whole, whole)
        committed, written = both(address, f"{client}-abort")
        assert committed == {0: []} and written[0][0] == b"written before"


def test_fifty_clients_run_transactions_at_once(sweeping: RunningBroker, name: str, create: Callable[..., str]) -> None:
    """Each has transactions over two topics, every third of them aborted; all of them wait for each other first."""
    address, partitions = sweeping.address, 4
    topics = [create(address, f"{name}-{word}", partitions) for word in ("one", "two")]
    together = threading.Barrier(CLIENTS)

    def work(number: int) -> list[bytes]:
        producer = ConfluentKafka(address, f"{name}-{number}")
        committed: list[bytes] = []
        together.wait(PATIENCE_S)
        for turn in range(EACH):
            value = b"%d:%d" % (number, turn)
            producer.begin()
            for topic in topics:
                producer.send(topic, number % partitions, value)
            if (number + turn) % 3:
                producer.commit()
                committed.append(value)
            else:
                producer.flush()
                producer.abort()
        return committed

    with ThreadPoolExecutor(CLIENTS) as threads:
        wanted = sorted(value for values in threads.map(work, range(CLIENTS)) for value in values)
    for topic in topics:
        committed, written = both(address, topic, partitions)
        found = [value for values in committed.values() for value in values]
        assert sorted(found) == wanted
        assert sorted(found, key=lambda v: [int(n) for n in v.split(b":")]) == sorted(
            found, key=lambda v: int(v.split(b":")[0])
        ), "a client's transactions are out of order"
        assert sum(map(len, written.values())) == CLIENTS * EACH
        assert all(settled(address, topic, partition) for partition in range(partitions))

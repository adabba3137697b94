"""Leaders move, nodes stop and return, while real clients produce and consume: nothing is lost or duplicated.

The three nodes share one log, so the test covers the clients' failover and the broker's responses for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import cycle

import pytest
from confluent_kafka.admin import AdminClient

from ottla.broker import Embedded
from ottla_testing.clients.idempotent_writers import PRODUCERS, Progress
from ottla_testing.clients.quick_clients import CLIENTS, Reading, consuming, producing
from ottla_testing.clients.transactional import PRODUCERS as TRANSACTIONAL
from ottla_testing.patience import PATIENCE_S

pytestmark = pytest.mark.slow

every_client = pytest.mark.parametrize("client", CLIENTS)
MORE = 300  # acknowledged records between two disturbances


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Embedded]:
    with Embedded(brokers=3, configs={"offsets.topic.num.partitions": "3"}) as embedded:
        yield embedded


@pytest.fixture
def cluster(three_nodes: Embedded, close_what_kafka_python_leaves_open: None) -> Iterator[Embedded]:
    """Three nodes, all of which run again afterwards."""
    yield three_nodes
    for node in three_nodes.topology.describe().nodes:
        if not node.running:
            three_nodes.topology.start_node(node.id)


def coordinator(cluster: Embedded, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.describe_consumer_groups([group])[group].result(PATIENCE_S).coordinator.id


def disturbances(cluster: Embedded, topic: str) -> Iterator[Callable[[], object]]:
    """Yields in turn: the leader moves; its node stops and returns; both at once; the preferred leaders return."""
    topology = cluster.topology
    for step in cycle(range(4)):
        now = topology.leader(topic)
        if step == 0:
            yield lambda now=now: topology.move_leader(topic, 0, now % 3 + 1)
        elif step == 1:
            yield lambda now=now: topology.stop_node(now)
        elif step == 2:
            for node in topology.describe().nodes:
                if not node.running:
                    topology.start_node(node.id)
            yield lambda now=now: topology.move_leader(topic, 0, now % 3 + 1)
        else:
            yield topology.spread_leaders


class Consumption:
    """A group member in a thread that reads and commits until it has read the wanted records."""

    def __init__(self, client: str, address: str, topic: str) -> None:
        self.values: list[int] = []
        self.failures: list[BaseException] = []
        self.wanted: int | None = None
        self.has_begun = threading.Event()
        self._arguments = (client, address, topic, topic)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with consuming(*self._arguments) as consumer:
                while self.wanted is None or len(self.values) < self.wanted:
                    self._step(consumer)
        except BaseException as error:
            self.failures.append(error)

    def _step(self, consumer: Reading) -> None:
        found = consumer.poll(0.2 if self.has_begun.is_set() else 30)
        self.values += [int(read.value) for read in found]
        if found:
            consumer.commit()
            self.has_begun.set()

    def begin(self) -> None:
        """Returns when it is in its group: kafka-python (3.0.12) never rejoins if its SyncGroup is lost."""
        assert self.has_begun.wait(PATIENCE_S), self.failures

    def read_up_to(self, count: int) -> list[int]:
        self.wanted = count
        self._thread.join(PATIENCE_S)
        assert not self.failures, self.failures[0]
        assert not self._thread.is_alive(), f"{len(self.values)} of {count}"
        return self.values


@pytest.mark.soak
@every_client
def test_moving_leaders_lose_and_duplicate_nothing(
    client: str, cluster: Embedded, name: str, scaled: Callable[[int], int]
) -> None:
    topic = cluster.create_topic(name)
    progress, moves = Progress(), scaled(6)
    writer = threading.Thread(target=PRODUCERS[client], args=(cluster.bootstrap, topic, progress))
    writer.start()
    reader = Consumption(client, cluster.bootstrap, topic)
    try:
        reader.begin()
        for _, disturb in zip(range(moves), disturbances(cluster, topic), strict=False):
            progress.wait_for(len(progress.offsets) + MORE)
            disturb()
        progress.wait_for(len(progress.offsets) + MORE)
    finally:
        progress.stop.set()
        writer.join(PATIENCE_S)
    (partition,) = [one for one in cluster.topology.describe().partitions if one.topic == topic]
    assert partition.leader_epoch >= moves - 1  # the preferred leader may lead already
    assert not progress.failures, progress.failures[0]
    stored = [int(record.value or b"") for record in cluster.records(topic)]
    assert stored == list(range(len(stored)))
    assert all(offset < 0 or stored[offset] == number for number, offset in progress.offsets.items())
    assert reader.read_up_to(len(stored)) == stored


@every_client
def test_group_continues_after_its_coordinator_moved(client: str, cluster: Embedded, name: str) -> None:
    """A member commits at the new coordinator; its successor continues there."""
    topic = cluster.create_topic(name)
    for number in range(4):
        cluster.send(topic, b"%d" % number)
    with consuming(client, cluster.bootstrap, topic, name) as consumer:
        assert len(consumer.read(4)) == 4
        consumer.commit()
        of = coordinator(cluster, name)
        cluster.topology.stop_node(of)
        assert coordinator(cluster, name) != of
        cluster.send(topic, b"4")
        assert [read.value for read in consumer.read(1)] == [b"4"]
        consumer.commit()
    cluster.topology.start_node(of)
    cluster.send(topic, b"5")
    with consuming(client, cluster.bootstrap, topic, name) as consumer:
        assert [read.value for read in consumer.read(1)] == [b"5"]


@every_client
def test_partition_without_a_leader_is_retried(client: str, cluster: Embedded, name: str) -> None:
    topic = cluster.create_topic(name)
    with producing(client, cluster.bootstrap) as producer:
        assert producer.send(topic, b"a") == 0
        cluster.topology.take_offline(topic, 0)
        timer = threading.Timer(0.3, lambda: cluster.topology.bring_online(topic, 0))
        timer.start()
        assert producer.send(topic, b"b") == 1
        timer.join()
    assert [record.value for record in cluster.records(topic)] == [b"a", b"b"]


@pytest.mark.parametrize("client", TRANSACTIONAL)
def test_transaction_survives_the_stop_of_its_coordinators(client: str, cluster: Embedded, name: str) -> None:
    """Each node stops once while it is open, including those of its partition and of its coordinator."""
    topic = cluster.create_topic(name)
    producer = TRANSACTIONAL[client](cluster.bootstrap, name)
    try:
        for value, end in ((b"a", producer.commit), (b"never", producer.abort), (b"b", producer.commit)):
            producer.begin()
            producer.send(topic, 0, value)
            producer.flush()
            for node in (1, 2, 3):
                cluster.topology.stop_node(node)
                cluster.topology.start_node(node)
            end()
    finally:
        producer.close()
    assert [record.value for record in cluster.records(topic)] == [b"a", b"b"]

"""The replicas and leaders of partitions, changed by admin calls of the clients."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import NoError
from kafka.structs import TopicPartition as PyTopicPartition

from ottla.broker.testing.embedded import Embedded
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S, until

MOVES = 6


@pytest.fixture
def cluster() -> Iterator[Embedded]:
    with Embedded(brokers=3) as broker:
        yield broker


def test_partitions_are_reassigned_and_leaders_elected(cluster: Embedded) -> None:
    cluster.create_topic("t", 1)
    admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        at = PyTopicPartition("t", 0)
        (first,) = cluster.topology.describe().partitions
        others = sorted({1, 2, 3} - {first.leader})
        futures = admin.alter_partition_reassignments({at: others})
        assert list(futures) == [at] and futures[at] in (None, NoError)
        until(lambda: admin.list_partition_reassignments() == {})  # in progress for a moment, as in Kafka
        (now,) = cluster.topology.describe().partitions
        assert (now.replicas, now.leader) == (tuple(others), others[0])
        cluster.topology.move_leader("t", 0, others[1])
        confluent: Any = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wanted = [TopicPartition("t", 0)]
        (error,) = confluent.elect_leaders(ElectionType.PREFERRED, wanted).result(PATIENCE_S).values()
        assert error is None
        assert cluster.topology.leader("t", 0) == others[0]
        (again,) = confluent.elect_leaders(ElectionType.PREFERRED, wanted).result(PATIENCE_S).values()
        assert again.name() == "ELECTION_NOT_NEEDED"
    finally:
        admin.close()


class OnTwoDisks(RunningBroker):
    """A broker with two data directories."""

    def launch(self) -> None:
        command = [sys.executable, "-m", "ottla.tools", "serve", "--listen", self.address]
        command += ["--data-dir", str(self.data_dir), "--data-dir", str(self.other_dir)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    @property
    def other_dir(self) -> Path:
        return self.data_dir.with_name("other")


def holders(broker: OnTwoDisks) -> list[Path]:
    return [folder for folder in (broker.data_dir, broker.other_dir) if (folder / "t-0").exists()]


def test_partition_moves_during_writes_and_survives_a_kill(tmp_path: Path) -> None:
    broker = OnTwoDisks(tmp_path)
    try:
        admin: Any = KafkaAdminClient(bootstrap_servers=broker.address)
        producer: Any = KafkaProducer(bootstrap_servers=broker.address, acks="all", linger_ms=0)
        sent = [producer.send("t", b"%d" % number, partition=0) for number in range(100)]
        producer.flush()
        node = admin.describe_cluster()["controller_id"]
        for _ in range(MOVES):
            (here,) = holders(broker)
            there = next(folder for folder in (broker.data_dir, broker.other_dir) if folder != here)
            (error,) = admin.alter_replica_log_dirs({("t", 0, node): str(there)}).values()
            assert error is NoError
            deadline = time.monotonic() + PATIENCE_S
            while holders(broker) != [there]:
                sent.append(producer.send("t", b"%d" % len(sent), partition=0))
                producer.flush()
                assert time.monotonic() < deadline
        assert [future.get(PATIENCE_S).offset for future in sent] == list(range(len(sent)))
        (folders,) = admin.describe_log_dirs()
        assert folders
        producer.close()
        admin.alter_replica_log_dirs({("t", 0, node): str(here)})
        admin.close()  # before the kill: kafka-python may leave the socket open after it
        broker.kill()
        broker.start()
        consumer: Any = KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest")
        consumer.assign([PyTopicPartition("t", 0)])
        found: list[bytes] = []
        while len(found) < len(sent):
            for records in consumer.poll(timeout_ms=5000).values():
                found += [record.value for record in records]
        consumer.close()
        assert found == [b"%d" % number for number in range(len(sent))]
    finally:
        broker.kill()

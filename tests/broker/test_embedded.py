"""A broker within the process: its start and its end, topics, records, and what it tells of groups and producers."""

from __future__ import annotations

import socket

import pytest

from ottla.broker import Embedded
from ottla.broker.embedded import AlreadyExists, BrokerFailed, NotFound, OperationError


def test_records_are_where_they_were_sent():
    with Embedded() as broker:
        topic = broker.create_topic("orders", partitions=3)
        assert broker.send(topic, "first", key="a", headers=[("h", "1"), ("n", None)]) == 0
        assert broker.send(topic, b"\xff", partition=2) == 0
        assert broker.send(topic, None, key=b"a", timestamp_ms=5) == 1
        found = broker.records(topic)
        assert [(r.key, r.value) for r in found] == [(b"a", b"first"), (b"a", None), (None, b"\xff")]
        assert found[0].headers == (("h", b"1"), ("n", None)) and found[1].timestamp_ms == 5
        assert broker.records(topic, 2) == found[2:]
        assert [(t.name, len(t.partitions)) for t in broker.topics()] == [("orders", 3)]
        broker.delete_topic(topic)
        assert broker.topics() == []
        with pytest.raises(NotFound, match="UNKNOWN_TOPIC_OR_PARTITION"):
            broker.records(topic)


def test_what_is_refused_is_one_line():
    with Embedded(configs={"auto.create.topics.enable": False}) as broker:
        broker.create_topic("t")
        with pytest.raises(AlreadyExists, match=r"TOPIC_ALREADY_EXISTS: Topic 't' already exists"):
            broker.create_topic("t")
        with pytest.raises(OperationError, match="INVALID_TOPIC_EXCEPTION"):
            broker.create_topic("a b")
        with pytest.raises(OperationError, match="INVALID_CONFIG"):
            broker.create_topic("u", configs={"retention": 1})
        with pytest.raises(NotFound):
            broker.send("u", "x")
        with pytest.raises(NotFound, match="no partition 1"):
            broker.send("t", "x", partition=1)
    with pytest.raises(OperationError, match="does not run"):
        broker.topics()
    with pytest.raises(ValueError, match=r"did you mean num\.partitions\?"):
        Embedded(configs={"num.partition": 1})


def test_faults_meet_requests_the_disk_and_the_sockets():
    with Embedded() as broker:
        broker.create_topic("t")
        snapshot = broker.snapshot()
        with broker.faults.disk_error(topic="t", on="write") as fault:
            with pytest.raises(OperationError, match="KAFKA_STORAGE_ERROR"):
                broker.send("t", "x")
            assert fault.fired
        with pytest.raises(BrokerFailed):
            broker.send("t", "x")
        broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
        broker.restore(snapshot)
        assert broker.send("t", "x") == 0 and len(broker.faults.list()) == 1
        broker.faults.refuse()
        host, _, port = broker.bootstrap.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        broker.reset()
        assert broker.faults.list() == [] and broker.topics() == []
        socket.create_connection((host, int(port))).close()

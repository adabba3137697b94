"""Each kind of fault with real consumers: alone and in a group.

Each record is returned once in the end; a wrong CRC and a refusal are raised, and the next poll continues at the same
position.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.errors import CommitFailedError as AioCommitFailedError
from aiokafka.errors import CorruptRecordException
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import CommitFailedError as PyCommitFailedError
from kafka.errors import CorruptRecordError

from ottla.broker import Embedded
from ottla_testing.clients.quick_clients import CLIENTS, code_of, consuming

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("close_what_kafka_python_leaves_open")]

every_client = pytest.mark.parametrize("client", CLIENTS)
VALUES = [b"a", b"b", b"c"]


@pytest.fixture
def topic(embedded: Embedded) -> Iterator[str]:
    """A topic with three records."""
    topic = embedded.create_topic()
    for value in VALUES:
        embedded.send(topic, value)
    yield topic


@every_client
@pytest.mark.parametrize(
    "code", ["NOT_LEADER_OR_FOLLOWER", "OFFSET_OUT_OF_RANGE", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR"]
)
def test_transient_error_is_hidden(client: str, code: str, embedded: Embedded, topic: str) -> None:
    """An offset out of range is reset by `auto.offset.reset`; the other requests are retried."""
    fault = embedded.faults.error("Fetch", code, topic=topic, times=2)
    with consuming(client, embedded.bootstrap, topic) as consumer:
        assert [read.value for read in consumer.read(3)] == VALUES
    assert fault.fired == 2


@every_client
def test_authorization_error_is_raised(client: str, embedded: Embedded, topic: str) -> None:
    fault = embedded.faults.error("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=topic, times=1)
    with consuming(client, embedded.bootstrap, topic) as consumer:
        with pytest.raises(Exception) as caught:
            consumer.read(3)
        assert code_of(caught.value) == 29
        assert [read.value for read in consumer.read(3)] == VALUES
    assert fault.fired == 1


@every_client
@pytest.mark.parametrize("damage", ["before", "after", "truncate"])
def test_lost_response_is_requested_again(client: str, damage: str, embedded: Embedded, topic: str) -> None:
    faults = embedded.faults
    if damage == "truncate":
        fault = faults.truncate("Fetch", 20, topic=topic, times=1)
    else:
        fault = faults.disconnect("Fetch", damage, topic=topic, times=1)
    with consuming(client, embedded.bootstrap, topic, **soon(client)) as consumer:
        assert [read.value for read in consumer.read(3)] == VALUES
    assert fault.fired == 1


def soon(client: str) -> dict[str, Any]:
    """Sets a short request timeout, for clients that wait after a malformed response."""
    return {"socket_timeout_ms": 600} if client == "confluent-kafka" else {"request_timeout_ms": 600}


@every_client
def test_wrong_crc_is_raised(client: str, embedded: Embedded, topic: str) -> None:
    """Consumers check CRCs (librdkafka: `check.crcs`), and return no record of a batch with a wrong one."""
    fault = embedded.faults.wrong_crc("Fetch", topic=topic, times=1)
    with consuming(client, embedded.bootstrap, topic) as consumer:
        with pytest.raises((CorruptRecordError, CorruptRecordException, KafkaException)) as caught:
            consumer.read(3)
        if client == "confluent-kafka":
            assert code_of(caught.value) == KafkaError._BAD_MSG
        if client != "kafka-python":  # its poll() does not return any more (3.0.12)
            assert [read.value for read in consumer.read(3)] == VALUES
    assert fault.fired == 1
    with consuming(client, embedded.bootstrap, topic) as consumer:
        assert [read.value for read in consumer.read(3)] == VALUES


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka"])
def test_corrupted_response_is_requested_again(client: str, embedded: Embedded, topic: str) -> None:
    """The effect of flipped bits depends on their place; with this seed clients cannot decode the response.

    Without aiokafka: some bits make 0.14.0 decode a response forever.
    """
    fault = embedded.faults.garble("Fetch", 2, topic=topic, times=1)
    with consuming(client, embedded.bootstrap, topic, **soon(client)) as consumer:
        assert [read.value for read in consumer.read(3)] == VALUES
    assert fault.fired == 1


@every_client
def test_delayed_response_is_awaited(client: str, embedded: Embedded, topic: str) -> None:
    fault = embedded.faults.delay("Fetch", 200, topic=topic, times=1)
    with consuming(client, embedded.bootstrap, topic) as consumer:
        begun = time.monotonic()
        assert [read.value for read in consumer.read(3)] == VALUES
        assert time.monotonic() - begun >= 0.2
    assert fault.fired == 1


@every_client
def test_stalled_fetch_continues(client: str, embedded: Embedded, topic: str) -> None:
    fault = embedded.faults.stall("Fetch", topic=topic)
    with consuming(client, embedded.bootstrap, topic, **soon(client)) as consumer:
        while not fault.fired:
            assert consumer.poll(0.1) == []
        assert consumer.poll(0.1) == []
        fault.remove()
        assert [read.value for read in consumer.read(3)] == VALUES


@every_client
def test_disk_error_while_reading_raises_nothing(client: str) -> None:
    """The partition goes offline with its directory: no record is returned, and no error ends the consumer."""
    with Embedded(configs={"log.dirs": "/one,/two"}) as embedded:
        topic = embedded.create_topic()
        embedded.send(topic, b"a")
        before = embedded.snapshot()
        fault = embedded.faults.disk_error("read", topic=topic, times=1)
        with consuming(client, embedded.bootstrap, topic) as consumer:
            while not fault.fired:
                assert consumer.poll(0.1) == []
            assert consumer.poll(0.1) == []
            embedded.restore(before)
            assert [read.value for read in consumer.read(1)] == [b"a"]


# In a group


@every_client
@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "NOT_COORDINATOR"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_member_joins_despite_errors(client: str, api: str, code: str, embedded: Embedded, topic: str) -> None:
    fault = embedded.faults.error(api, code, times=1)
    with consuming(client, embedded.bootstrap, topic, topic) as consumer:
        assert [read.value for read in consumer.read(3)] == VALUES
        consumer.commit()
    assert fault.fired == 1
    assert embedded.group(topic).offsets[0].offset == 3


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"])
def test_offsets_of_moved_group_are_requested_again(code: str, embedded: Embedded, topic: str) -> None:
    """Without librdkafka, which has an error and never reads the partition (tests/history/test_lives.py), and aiokafka:
    it does not look at the error of a group, and resets the position as if nothing was committed (0.14.0).
    """
    fault = embedded.faults.error("OffsetFetch", code, times=2)
    with consuming("kafka-python", embedded.bootstrap, topic, topic) as consumer:
        assert [read.value for read in consumer.read(3)] == VALUES
    assert fault.fired == 2


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
def test_topic_without_a_leader_is_retried(client: str, embedded: Embedded, topic: str) -> None:
    """Without librdkafka: it raises an error, or retries only with its next refresh of all metadata."""
    fault = embedded.faults.error("Metadata", "LEADER_NOT_AVAILABLE", topic=topic, times=1)
    with consuming(client, embedded.bootstrap, topic, topic) as consumer:
        assert [read.value for read in consumer.read(3)] == VALUES
    assert fault.fired == 1


@every_client
def test_commit_during_a_rebalance_fails(client: str, embedded: Embedded, topic: str) -> None:
    with consuming(client, embedded.bootstrap, topic, topic) as consumer:
        assert len(consumer.read(3)) == 3
        with embedded.faults.error("OffsetCommit", "REBALANCE_IN_PROGRESS", times=1) as fault:
            with pytest.raises((PyCommitFailedError, AioCommitFailedError, KafkaException)) as caught:
                consumer.commit()
            if client == "confluent-kafka":
                assert code_of(caught.value) == KafkaError.REBALANCE_IN_PROGRESS
            assert fault.fired == 1
    assert not embedded.group(topic).offsets

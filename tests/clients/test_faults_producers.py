"""Each kind of fault with real producers: they retry, or raise, as documented.

Retriable errors are retried, others are raised with their code; a lost connection and a malformed response count as a
lost response; exceeding the delivery timeout raises a timeout.
"""

from __future__ import annotations

import time

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError, NodeNotReadyError, RequestTimedOutError
from confluent_kafka import KafkaError, KafkaException
from kafka.errors import KafkaConnectionError as PyKafkaConnectionError
from kafka.errors import KafkaTimeoutError as PyKafkaTimeoutError
from kafka.errors import RequestTimedOutError as PyRequestTimedOutError

from ottla.broker import Embedded
from ottla_testing.clients.quick_clients import CLIENTS, code_of, producing

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("close_what_kafka_python_leaves_open")]

every_client = pytest.mark.parametrize("client", CLIENTS)


def values(embedded: Embedded, topic: str) -> list[bytes | None]:
    return [record.value for record in embedded.records(topic)]


@every_client
@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT"])
def test_retriable_error_is_retried(client: str, code: str, embedded: Embedded) -> None:
    topic = embedded.create_topic()
    with producing(client, embedded.bootstrap) as producer:
        fault = embedded.faults.error("Produce", code, topic=topic, times=2)
        assert producer.send(topic, b"a") == 0
    assert fault.fired == 2
    assert values(embedded, topic) == [b"a"]


@every_client
@pytest.mark.parametrize(("code", "number"), [("TOPIC_AUTHORIZATION_FAILED", 29), ("MESSAGE_TOO_LARGE", 10)])
def test_other_error_is_raised(client: str, code: str, number: int, embedded: Embedded) -> None:
    topic = embedded.create_topic()
    with producing(client, embedded.bootstrap) as producer:
        fault = embedded.faults.error("Produce", code, topic=topic, nth=2)
        assert producer.send(topic, b"a") == 0
        with pytest.raises(Exception) as caught:
            producer.send(topic, b"b")
        assert code_of(caught.value) == number
    with producing(client, embedded.bootstrap) as producer:  # librdkafka's sends nothing to a topic it may not write to
        assert producer.send(topic, b"c") == 1
    assert fault.fired == 1
    assert values(embedded, topic) == [b"a", b"c"]


@every_client
def test_delayed_response_is_awaited(client: str, embedded: Embedded) -> None:
    topic = embedded.create_topic()
    with producing(client, embedded.bootstrap) as producer:
        assert producer.send(topic, b"a") == 0
        with embedded.faults.delay("Produce", 150, topic=topic) as fault:
            begun = time.monotonic()
            assert producer.send(topic, b"b") == 1
            assert time.monotonic() - begun >= 0.15
        assert fault.fired == 1


@every_client
def test_missing_response_raises_a_timeout(client: str, embedded: Embedded) -> None:
    """And without the rule the connection and the broker work again."""
    topic = embedded.create_topic()
    with producing(client, embedded.bootstrap, patience_ms=1000) as producer:
        with embedded.faults.stall("Produce", topic=topic) as fault, pytest.raises(TIMED_OUT[client]) as caught:
            producer.send(topic, b"a")
        if client == "confluent-kafka":
            assert code_of(caught.value) == KafkaError._MSG_TIMED_OUT
        assert fault.fired
    with producing(client, embedded.bootstrap) as producer:
        producer.send(topic, b"b")
    assert values(embedded, topic)[-1] == b"b"


TIMED_OUT: dict[str, tuple[type[Exception], ...]] = {
    "kafka-python": (PyKafkaTimeoutError, PyRequestTimedOutError),
    "confluent-kafka": (KafkaException,),
    "aiokafka": (KafkaTimeoutError, RequestTimedOutError),
}


@every_client
def test_connection_closed_before_the_append_loses_nothing(client: str, embedded: Embedded) -> None:
    topic = embedded.create_topic()
    with producing(client, embedded.bootstrap) as producer:
        fault = embedded.faults.disconnect("Produce", "before", topic=topic, times=1)
        assert producer.send(topic, b"a") == 0
    assert fault.fired == 1
    assert values(embedded, topic) == [b"a"]


@every_client
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_response_lost_after_the_append_is_retried(client: str, idempotent: bool, embedded: Embedded) -> None:
    """The broker has appended, and the client retries: twice in the log, unless the producer is idempotent."""
    topic = embedded.create_topic()
    with producing(client, embedded.bootstrap, idempotent=idempotent) as producer:
        fault = embedded.faults.disconnect("Produce", "after", topic=topic, nth=2)
        offsets = [producer.send(topic, value) for value in (b"a", b"b", b"c")]
    assert fault.fired == 1
    assert values(embedded, topic) == ([b"a", b"b", b"c"] if idempotent else [b"a", b"b", b"b", b"c"])
    assert offsets == ([0, 1, 2] if idempotent else [0, 2, 3])


@every_client
def test_truncated_response_counts_as_lost(client: str, embedded: Embedded) -> None:
    topic = embedded.create_topic()
    with producing(client, embedded.bootstrap, idempotent=True) as producer:
        fault = embedded.faults.truncate("Produce", 12, topic=topic, nth=2)
        assert [producer.send(topic, value) for value in (b"a", b"b")] == [0, 1]
    assert fault.fired == 1
    assert values(embedded, topic) == [b"a", b"b"]


def test_librdkafka_reports_a_throttle(embedded: Embedded) -> None:
    """`throttle_cb` is called with the broker's throttle time."""
    topic, throttled = embedded.create_topic(), []
    with producing("confluent-kafka", embedded.bootstrap, throttle_cb=throttled.append) as producer:
        with embedded.faults.throttle("Produce", 50, topic=topic) as fault:
            producer.send(topic, b"a")
        producer.send(topic, b"b")
    assert fault.fired == 1
    assert [round(event.throttle_time * 1000) for event in throttled] == [50, 0]


def test_kafka_python_pauses_when_throttled(embedded: Embedded, caplog: pytest.LogCaptureFixture) -> None:
    """It logs this, and sends nothing for that time."""
    topic = embedded.create_topic()
    with producing("kafka-python", embedded.bootstrap) as producer:
        with embedded.faults.throttle("Produce", 50, topic=topic):
            producer.send(topic, b"a")
        begun = time.monotonic()
        producer.send(topic, b"b")
        assert time.monotonic() - begun > 0.03
    assert "ProduceResponse throttled by broker (50 ms)" in caplog.text


@every_client
def test_disconnected_and_refused_producer_fails_in_time(client: str, embedded: Embedded) -> None:
    """And it reconnects when connections are accepted again."""
    topic = embedded.create_topic()
    with producing(client, embedded.bootstrap, patience_ms=1000) as producer:
        assert producer.send(topic, b"a") == 0
        cut = embedded.faults.disconnect("Produce", "before", topic=topic, times=1)
        with embedded.faults.refuse(), pytest.raises(Exception) as caught:
            producer.send(topic, b"b")
        assert isinstance(caught.value, (*TIMED_OUT[client], *CUT_OFF))
        assert cut.fired == 1
    with producing(client, embedded.bootstrap) as producer:
        assert producer.send(topic, b"c") == 1


CUT_OFF = (KafkaConnectionError, NodeNotReadyError, PyKafkaConnectionError)


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka"])
def test_refused_connections_raise_no_brokers_available(client: str, embedded: Embedded) -> None:
    with (
        embedded.faults.refuse(),
        pytest.raises((KafkaException, KafkaConnectionError)) as caught,
        producing(client, embedded.bootstrap, patience_ms=300) as producer,
    ):
        producer.send("nowhere", b"a")
    assert client == "aiokafka" or code_of(caught.value) == KafkaError._MSG_TIMED_OUT


@every_client
def test_full_disk_is_retried(client: str, embedded: Embedded) -> None:
    """KAFKA_STORAGE_ERROR is retriable: the record is stored once there is space."""
    topic = embedded.create_topic()
    with producing(client, embedded.bootstrap) as producer:
        assert producer.send(topic, b"a") == 0
        fault = embedded.faults.disk_full(topic=topic, times=2)
        assert producer.send(topic, b"b") == 1
    assert fault.fired == 2
    assert values(embedded, topic) == [b"a", b"b"]


@every_client
def test_failed_disk_takes_the_partition_offline(client: str) -> None:
    """Its directory stays offline, as in Kafka, until the broker restarts: the producer gets an error code or a
    timeout.
    """
    with Embedded(configs={"log.dirs": "/one,/two"}) as embedded:
        topic = embedded.create_topic()
        with producing(client, embedded.bootstrap, patience_ms=1000) as producer:
            assert producer.send(topic, b"a") == 0
            embedded.faults.disk_error(topic=topic, times=1)
            with pytest.raises(Exception) as caught:
                producer.send(topic, b"b")
        assert isinstance(caught.value, TIMED_OUT[client]) or code_of(caught.value) in (5, 56)
        embedded.reset()
        embedded.create_topic(topic)
        with producing(client, embedded.bootstrap) as producer:
            assert producer.send(topic, b"c") == 0

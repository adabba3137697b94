import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError


def publish(bootstrap, topic, order, **settings):
    with KafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
        return producer.send(topic, order).get(timeout=10)


def test_a_response_is_lost(ottla_broker, ottla_topic):
    with ottla_broker.faults.disconnect("Produce", "after", topic=ottla_topic, times=1) as lost:
        publish(ottla_broker.bootstrap, ottla_topic, b"bread")
    assert (lost.matched, lost.fired) == (2, 1)  # the client sends again, and the broker stores one record
    ottla_broker.assert_produced(ottla_topic, [b"bread"])


def test_an_error_reaches_the_application(ottla_broker, ottla_topic):
    refused = ottla_broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=ottla_topic)
    with refused, pytest.raises(TopicAuthorizationFailedError):
        publish(ottla_broker.bootstrap, ottla_topic, b"bread")
    ottla_broker.assert_produced(ottla_topic, [])


def test_a_full_disk_is_survived(ottla_broker, ottla_topic):
    full = ottla_broker.faults.disk_full()
    with KafkaProducer(bootstrap_servers=ottla_broker.bootstrap, retry_backoff_ms=20) as producer:
        sent = producer.send(ottla_topic, b"bread")
        full.wait_fired(3)
        full.remove()
        sent.get(timeout=10)
    ottla_broker.assert_produced(ottla_topic, [b"bread"])


def test_one_slow_member_of_a_group(ottla_broker, ottla_topic):
    publish(ottla_broker.bootstrap, ottla_topic, b"bread")
    settings = {"bootstrap_servers": ottla_broker.bootstrap, "auto_offset_reset": "earliest"}
    delayed = ottla_broker.faults.delay("Fetch", 200, client_id="slow-*")
    with delayed, KafkaConsumer(ottla_topic, client_id="slow-1", **settings) as consumer:
        assert next(consumer).value == b"bread"
    assert delayed.fired > 0

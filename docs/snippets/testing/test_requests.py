import pytest
from kafka import KafkaProducer


def publish(bootstrap, topic, *orders, **settings):
    with KafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
        for order in orders:
            producer.send(topic, order).get(timeout=10)


def test_orders_are_sent_safely(ottla_broker, ottla_topic):
    publish(ottla_broker.bootstrap, ottla_topic, b"bread" * 1000, client_id="orders", compression_type="gzip")
    ottla_broker.assert_requests(api="Produce", client_id="orders", acks=-1, codec="gzip", max_version=13)
    ottla_broker.assert_requests(topic=ottla_topic, idempotent=True, error="NONE")


def test_a_field_of_a_request(ottla_broker, ottla_topic):
    before = ottla_broker.requests.mark()
    publish(ottla_broker.bootstrap, ottla_topic, b"bread", acks=1, enable_idempotence=False)
    ottla_broker.assert_requests(api="Produce", since=before, fields={"timeout_ms": lambda ms: ms <= 30_000}, count=1)
    (sent,) = ottla_broker.requests(api="Produce", topic=ottla_topic)
    assert (sent.request["acks"], sent.response["throttle_time_ms"]) == (1, 0)


def test_a_failed_assertion_names_the_requests(ottla_broker, ottla_topic):
    publish(ottla_broker.bootstrap, ottla_topic, b"bread", client_id="orders")
    with pytest.raises(AssertionError, match="codec is none"):
        ottla_broker.assert_requests(api="Produce", client_id="orders", codec="lz4", within_ms=0)

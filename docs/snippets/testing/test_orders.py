import pytest
from kafka import KafkaProducer
from kafka.errors import MessageSizeTooLargeError

DAY_MS = 24 * 60 * 60 * 1000


def publish(bootstrap, topic, *orders, **settings):
    with KafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
        for order in orders:
            producer.send(topic, order).get(timeout=10)


def test_orders_are_published(ottla_broker, ottla_topic):
    publish(ottla_broker.bootstrap, ottla_topic, b"bread", b"milk")
    ottla_broker.assert_produced(ottla_topic, [b"bread", b"milk"])


@pytest.mark.ottla(configs={"max.message.bytes": 1000}, partitions=3)
def test_large_orders_are_refused(ottla_broker, ottla_topic):
    with pytest.raises(MessageSizeTooLargeError):
        publish(ottla_broker.bootstrap, ottla_topic, b"bread" * 1000)
    ottla_broker.assert_produced(ottla_topic, [])


@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
def test_a_lost_response(ottla_broker, ottla_topic, idempotent, copies):
    with ottla_broker.faults.disconnect("Produce", "after", topic=ottla_topic, times=1) as lost:
        publish(ottla_broker.bootstrap, ottla_topic, b"bread", enable_idempotence=idempotent)
    assert lost.fired == 1
    ottla_broker.assert_produced(ottla_topic, [b"bread"] * copies)


def test_orders_are_sent_as_they_have_to_be(ottla_broker, ottla_topic):
    settings = {"client_id": "orders", "acks": "all", "compression_type": "gzip"}
    publish(ottla_broker.bootstrap, ottla_topic, b"bread" * 1000, **settings)
    ottla_broker.assert_requests(api="Produce", client_id="orders", acks=-1, codec="gzip", max_version=13)
    ottla_broker.assert_requests(topic=ottla_topic, idempotent=True, error="NONE")
    (sent,) = ottla_broker.requests(api="Produce", topic=ottla_topic)
    assert sent.request["timeout_ms"] == 30_000


def test_orders_are_kept_for_a_week(ottla_factory):
    broker = ottla_factory(release="3.9", configs={"log.retention.ms": 7 * DAY_MS})
    topic = broker.create_topic()
    publish(broker.bootstrap, topic, b"bread")
    broker.clock.advance(6 * DAY_MS)
    broker.assert_produced(topic, [b"bread"])
    broker.clock.advance(2 * DAY_MS)
    broker.assert_produced(topic, [])


def test_what_was_prepared_is_there_again(ottla_factory):
    broker = ottla_factory()
    topic = broker.create_topic()
    publish(broker.bootstrap, topic, b"bread")
    prepared = broker.snapshot()
    publish(broker.bootstrap, topic, b"milk")
    broker.restore(prepared)
    broker.assert_produced(topic, [b"bread"])


def test_the_leader_moves(ottla_factory):
    broker = ottla_factory(brokers=3)
    topic = broker.create_topic()
    publish(broker.bootstrap, topic, b"bread")
    broker.topology.stop_node(broker.topology.leader(topic))
    running = [f"127.0.0.1:{node.port}" for node in broker.topology.describe().nodes if node.running]
    publish(running, topic, b"milk")
    broker.assert_produced(topic, [b"bread", b"milk"])

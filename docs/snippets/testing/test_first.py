from kafka import KafkaProducer

DAY_MS = 24 * 60 * 60 * 1000


def publish(bootstrap, topic, order):
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, order).get(timeout=10)


def test_an_order_is_stored_once_when_its_response_is_lost(ottla_broker, ottla_topic):
    with ottla_broker.faults.disconnect("Produce", "after", topic=ottla_topic, times=1) as lost:
        publish(ottla_broker.bootstrap, ottla_topic, b"bread")
    assert lost.fired == 1
    ottla_broker.assert_produced(ottla_topic, [b"bread"])


def test_an_order_is_deleted_after_a_week(ottla_factory):
    broker = ottla_factory(configs={"log.retention.ms": 7 * DAY_MS})
    topic = broker.create_topic()
    publish(broker.bootstrap, topic, b"bread")
    broker.clock.advance(8 * DAY_MS)
    broker.assert_produced(topic, [])

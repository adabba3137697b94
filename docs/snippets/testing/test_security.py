import pytest
from confluent_kafka import KafkaException, Producer


@pytest.mark.ottla(security="sasl_ssl")
def test_order_is_sent_over_tls(ottla_factory):
    broker = ottla_factory()
    producer = Producer(broker.client_settings("confluent-kafka", mechanism="SCRAM-SHA-256"))
    producer.produce("orders", b"bread")
    producer.flush(10)
    broker.assert_produced("orders", [b"bread"])


@pytest.mark.ottla(security="sasl_ssl")
def test_wrong_password_is_reported(ottla_factory):
    settings = ottla_factory().client_settings("confluent-kafka")
    producer = Producer({**settings, "sasl.password": "wrong", "log_level": 0})
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=2)

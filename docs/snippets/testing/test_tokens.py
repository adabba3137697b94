import time

import pytest
from confluent_kafka import KafkaException, Producer


@pytest.mark.ottla(security="oauth_ssl")
def test_orders_are_sent_after_the_token_has_expired(ottla_factory):
    broker = ottla_factory()
    producer = Producer(broker.client_settings("confluent-kafka", token_lifetime_s=60))
    producer.produce("orders", b"bread")
    producer.flush(10)
    broker.clock.advance(60_001)  # the session of the producer is over, and its token is refused
    producer.produce("orders", b"milk")
    producer.flush(10)
    broker.assert_produced("orders", [b"bread", b"milk"])


@pytest.mark.ottla(security="oauth_ssl")
def test_expired_token_is_reported(ottla_factory):
    broker = ottla_factory()
    token = broker.oauth_token("user", lifetime_s=60)
    broker.clock.advance(60_000)
    settings = broker.client_settings("confluent-kafka")
    own = {"oauth_cb": lambda config: (token, time.time() + 60), "log_level": 0}
    with pytest.raises(KafkaException):
        Producer(settings | own).list_topics(timeout=2)

"""Transactions are not there yet: a producer that asks for one hears so at once, and as something final."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError
from running_broker import RunningBroker

REFUSED_SECONDS = 5  # a bound; the clients' own would be a minute


@pytest.mark.timeout(2 * REFUSED_SECONDS)
def test_confluent_kafka_is_refused_for_good_and_told_why(broker: RunningBroker, name: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(REFUSED_SECONDS)
    error = caught.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal() and not error.retriable()
    assert "does not serve transactions" in error.str()


@pytest.mark.timeout(2 * REFUSED_SECONDS)
def test_kafka_python_is_refused_for_good(broker: RunningBroker, name: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.address, transactional_id=name)
    try:
        with pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close(timeout=1)


@pytest.mark.timeout(2 * REFUSED_SECONDS)
async def test_aiokafka_is_refused_for_good(broker: RunningBroker, name: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.address, transactional_id=name)
    with pytest.raises(TransactionalIdAuthorizationFailed):
        await asyncio.wait_for(producer.start(), REFUSED_SECONDS)
    await producer.stop()

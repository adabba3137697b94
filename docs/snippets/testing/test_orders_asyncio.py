import asyncio
import json

import pytest
from aiokafka import AIOKafkaProducer


async def publish(bootstrap, topic, *orders):
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for order in orders:
            await producer.send(topic, json.dumps(order).encode())


@pytest.mark.asyncio
async def test_orders_are_published(ottla_async_broker, ottla_topic):
    publishing = asyncio.create_task(publish(ottla_async_broker.bootstrap, ottla_topic, {"bread": 2}, {"milk": 1}))
    expected = [{"bread": 2}, {"milk": 1}]
    await ottla_async_broker.assert_produced(ottla_topic, expected, within_ms=10_000, decode="json")
    await publishing


@pytest.mark.asyncio
async def test_a_refused_batch_is_sent_again(ottla_async_factory):
    broker = await ottla_async_factory(release="3.9")
    topic = await broker.create_topic()
    async with broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=1) as refused:
        await publish(broker.bootstrap, topic, {"bread": 2})
        assert refused.fired == 1
    (record,) = await broker.records(topic, decode="json")
    assert record.value["bread"] == 2

import asyncio

from aiokafka import AIOKafkaConsumer
from ottla.broker import AsyncEmbedded


async def main() -> None:
    async with AsyncEmbedded(release="4.4", configs={"num.partitions": 3}) as broker:
        topic = await broker.create_topic(partitions=1)
        await broker.send(topic, "bread", key="order 1")
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id="kitchen", auto_offset_reset="earliest"
        )
        async with consumer:
            order = await consumer.getone()
            print(order.value.decode())
            await consumer.commit()
            print((await broker.group("kitchen")).committed)


asyncio.run(main())

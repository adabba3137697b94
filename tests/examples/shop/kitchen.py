"""The kitchen: cooks orders side by side, and reports each finished order on another topic. It is asyncio and
aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from shop.orders import Order, decode


class Kitchen:
    """Cooks up to `stoves` orders at a time; commits an order only when it and all before it are done."""

    def __init__(
        self, bootstrap: str, topic: str, done: str, cook: Callable[[Order], Awaitable[None]], stoves: int = 4
    ):
        self.bootstrap = bootstrap
        self.topic = topic
        self.done = done
        self.cook = cook
        self.stoves = asyncio.Semaphore(stoves)

    async def serve(self, count: int) -> None:
        """Cooks that many orders."""
        group = f"kitchen-of-{self.topic}"
        consumer = AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
        )
        async with consumer, AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            cooking = []
            for _ in range(count):
                message = await consumer.getone()
                await self.stoves.acquire()
                cooking.append((message, asyncio.create_task(self.cook_one(decode(message.value), producer))))
            for message, task in cooking:
                await task
                place = TopicPartition(message.topic, message.partition)
                await consumer.commit({place: message.offset + 1})

    async def cook_one(self, order: Order, producer: AIOKafkaProducer) -> None:
        try:
            await self.cook(order)
            await producer.send_and_wait(self.done, str(order.number).encode(), order.key)
        finally:
            self.stoves.release()

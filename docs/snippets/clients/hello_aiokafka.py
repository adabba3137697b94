import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def main() -> None:
    async with AIOKafkaProducer(bootstrap_servers="127.0.0.1:9092") as producer:
        await producer.send_and_wait("greetings", b"hello")
    consumer = AIOKafkaConsumer("greetings", bootstrap_servers="127.0.0.1:9092", auto_offset_reset="earliest")
    async with consumer:
        print((await consumer.getone()).value)


asyncio.run(main())

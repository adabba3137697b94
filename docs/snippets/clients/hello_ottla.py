import asyncio

from ottla.client import Consumer, Producer


async def main() -> None:
    async with Producer("127.0.0.1:9092") as producer:
        await producer.send_and_wait("greetings", b"hello")
    async with Consumer("127.0.0.1:9092", topics=["greetings"], offset_reset="earliest") as consumer:
        print((await consumer.getone()).value)


asyncio.run(main())

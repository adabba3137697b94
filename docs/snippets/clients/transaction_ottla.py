import asyncio

from ottla.client import Consumer, Producer

AT = "127.0.0.1:9092"


async def main() -> None:
    async with Producer(AT) as producer:
        await producer.send_and_wait("names", b"world")
    reading = Consumer(AT, topics=["names"], group="greeters", offset_reset="earliest", enable_auto_commit=False)
    async with reading as names, Producer(AT, transactional_id="greeter") as producer:
        name = await names.getone()
        async with producer.transaction():
            await producer.send("greetings", b"hello " + name.value)
            read = {(name.topic, name.partition): name.offset + 1}
            await producer.send_offsets_to_transaction(read, names.group_metadata())
    async with Consumer(AT, topics=["greetings"], offset_reset="earliest", isolation="read_committed") as consumer:
        print((await consumer.getone()).value)


asyncio.run(main())

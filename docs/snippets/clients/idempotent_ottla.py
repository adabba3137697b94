import asyncio

from ottla.client import Producer

ORDERS = [(b"4711", b"paid"), (b"4712", b"shipped")]


async def main() -> None:
    options = {"enable_idempotence": "required", "max_in_flight_requests_per_connection": 20}
    async with Producer("127.0.0.1:9092", **options) as producer:
        sent = [await producer.send("orders", value, key=key) for key, value in ORDERS]  # waits only for room
        for record in await asyncio.gather(*sent):
            print(record.partition, record.offset if record.has_offset else "written before, offset unknown")


asyncio.run(main())

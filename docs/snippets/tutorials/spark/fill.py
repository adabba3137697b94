"""Writes 10,000 page views to a topic."""

import asyncio
import json
import random

from ottla.client import Producer

PAGES = ["/", "/bread", "/milk", "/basket"]


async def main() -> None:
    random.seed(1)
    async with Producer("127.0.0.1:9092") as producer:
        for number in range(10_000):
            view = {"user": number % 100, "page": random.choice(PAGES)}
            value, key = json.dumps(view).encode(), str(view["user"]).encode()
            await producer.send("views", value, key=key)


asyncio.run(main())

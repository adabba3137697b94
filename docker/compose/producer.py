"""Creates TOPIC, writes RECORDS numbered records to it, and then polls the cluster until it is stopped."""

from __future__ import annotations

import asyncio
import os

import alive

from ottla.client import Admin, ClientError, Producer
from ottla.client.admin.admin import NewTopic

BOOTSTRAP = os.environ.get("BOOTSTRAP", "broker:9092")
TOPIC = os.environ.get("TOPIC", "orders")
RECORDS = int(os.environ.get("RECORDS", "2000"))
AT_ONCE = 100
PAUSE_S = 0.1  # so that it takes a while, and the members share the work


async def write() -> None:
    """Each record is acknowledged once; a try that fails is the client's to repeat."""
    async with Admin(BOOTSTRAP) as admin:
        await admin.create_topics([NewTopic(TOPIC, 4)])  # or it is there already
    async with Producer(BOOTSTRAP, enable_idempotence="required") as producer:
        for first in range(0, RECORDS, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, RECORDS))
            texts = [str(number).encode() for number in numbers]
            await asyncio.gather(*[await producer.send(TOPIC, text, key=text) for text in texts])
            alive.report()
            await asyncio.sleep(PAUSE_S)
    print(f"produced {RECORDS} sum {sum(range(RECORDS))}", flush=True)


async def main() -> None:
    """A broker that is not there yet is waited for."""
    while True:
        try:
            await write()
            break
        except ClientError as error:
            print(f"not yet: {error}", flush=True)
            await asyncio.sleep(0.2)
    async with Admin(BOOTSTRAP) as admin:
        while await admin.describe_cluster():
            alive.report()
            await asyncio.sleep(1)


alive.run(main())

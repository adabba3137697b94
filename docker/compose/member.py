"""Reads TOPIC as a member of GROUP and prints the number and the sum of the records, until it is stopped."""

from __future__ import annotations

import asyncio
import os

import alive

from ottla.client import ClientError, Consumer

BOOTSTRAP = os.environ.get("BOOTSTRAP", "broker:9092")
TOPIC = os.environ.get("TOPIC", "orders")
GROUP = os.environ.get("GROUP", "billing")


async def read() -> None:
    """Sums the records up. A member is healthy with partitions and without."""
    count = total = 0
    options = {
        "group": GROUP,
        "offset_reset": "earliest",
        "allow_auto_create_topics": False,
        "heartbeat_interval_ms": 500,
    }
    async with Consumer(BOOTSTRAP, topics=[TOPIC], **options) as consumer:
        while True:
            found = await consumer.getmany(timeout_ms=500)
            alive.report()
            for records in found.values():
                count += len(records)
                total += sum(int(record.value) for record in records)
            if found:
                shares = ",".join(str(partition) for _, partition in consumer.assignment())
                print(f"consumed {count} sum {total} of partitions {shares}", flush=True)


async def main() -> None:
    """Reads, and waits for a broker that has not started yet."""
    while True:
        try:
            await read()
        except ClientError as error:
            print(f"not yet: {error}", flush=True)
            await asyncio.sleep(0.2)


alive.run(main())

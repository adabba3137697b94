"""Dead-letter queues of share groups (KIP-1191), of Kafka 4.4 and of Ottla: the same deliveries, equal queues."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from apache_kafka import Kafka

from ottla.client import Admin, Consumer, Producer
from ottla.client.admin.admin import NewTopic, checked
from ottla.client.admin.types import ConfigResource, ResourceType
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.history.life_wire import Sharing
from ottla_testing.history.ports import Joining, Lost
from ottla_testing.history.shares import ACCEPT, REJECT, RELEASE
from ottla_testing.interop.checks import Check, Failed

RELEASE_UNDER_TEST = "4.4"
SETTINGS: dict[str, Any] = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "num.partitions": "2",
}
SOURCE, PARTITIONS, PLAIN, COMPRESSED = "t", 3, 12, 5
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
QUEUES: dict[str, dict[str, str] | None] = {  # None: the topic does not exist
    "dlq.two": ENABLED,
    "dlq.small": ENABLED | {"max.message.bytes": "600"},
    "dlq.created": None,
    "dlq.disabled": {},
    "elsewhere": ENABLED,
}
GROUPS = {  # group: its queue, and whether records are copied
    "headers": ("dlq.two", False),
    "copies": ("dlq.two", True),
    "small": ("dlq.small", True),
    "created": ("dlq.created", True),
    "disabled": ("dlq.disabled", True),
    "elsewhere": ("elsewhere", True),
}
LIMIT = 2
SETTLED_S, PATIENCE_S = 3.0, 60.0


async def prepare(address: str) -> None:
    """Makes the topics, their records and the groups' configs."""
    async with Admin(address) as admin:
        topics = [NewTopic(name, 2, configs=configs) for name, configs in QUEUES.items() if configs is not None]
        checked(await admin.create_topics([NewTopic(SOURCE, PARTITIONS), *topics]))
        configs = {
            ConfigResource(ResourceType.GROUP, group): {
                "share.auto.offset.reset": "earliest",
                "share.delivery.count.limit": str(LIMIT),
                "errors.deadletterqueue.topic.name": queue,
                "errors.deadletterqueue.copy.record.enable": str(copies).lower(),
            }
            for group, (queue, copies) in GROUPS.items()
        }
        checked(await admin.alter_configs(configs))
        await admin.describe_groups(list(GROUPS))  # which creates the topic of groups
    for codec, count in (("none", PLAIN), ("gzip", COMPRESSED)):
        async with Producer(address, compression_type=codec, linger_ms=200) as producer:
            sent = [
                producer.send(SOURCE, value(codec, n), key=b"k%d" % n if n % 2 else None, partition=n % PARTITIONS)
                for n in range(count)
            ]
            await asyncio.gather(*sent)


def value(codec: str, n: int) -> bytes | None:
    """Contents of all sizes: some are larger than a batch of the smallest queue."""
    return None if n == 4 else f"{codec} {n}".encode() + b"." * (0, 200, 700)[n % 3]


def kind_of(offset: int) -> int:
    return (REJECT, RELEASE, ACCEPT, RELEASE)[offset % 4]


def share(address: str, group: str) -> None:
    """Reads everything, and acknowledges each record by its offset, until the group has nothing more."""
    member = Sharing(address, Joining(group, [SOURCE], "read_uncommitted"))
    quiet_since = time.monotonic() + PATIENCE_S
    while time.monotonic() < quiet_since + SETTLED_S:
        try:
            member.ready()
            records, _ = member.fetch(0.2)
            if not records:
                time.sleep(0.1)
            else:
                quiet_since = time.monotonic()
                member.acknowledge({place: {o: kind_of(o) for o, _, _ in some} for place, some in records.items()})
        except Lost:
            time.sleep(0.2)
    member.close()


async def read(address: str) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the records of all queues: partition, key, value and headers, in order of their group and place."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    async with Admin(address) as admin:
        names = set(await admin.list_topics())
    for name in sorted(QUEUES.keys() & names):
        async with Consumer(address, assign=[(name, 0), (name, 1)], offset_reset="earliest") as consumer:
            rows: list[tuple[Any, ...]] = []
            try:
                while True:
                    record = await asyncio.wait_for(consumer.getone(), SETTLED_S)
                    rows.append((record.partition, record.key, record.value, tuple(record.headers)))
            except TimeoutError:
                found[name] = sorted(rows, key=repr)
    return found


def lived(address: str) -> dict[str, list[tuple[Any, ...]]]:
    asyncio.run(prepare(address))
    for group in GROUPS:
        share(address, group)
    return asyncio.run(read(address))


def run() -> str:
    kafka = Kafka(RELEASE_UNDER_TEST, **SETTINGS)
    try:
        theirs = lived(kafka.address)
    finally:
        kafka.stop()
    with tempfile.TemporaryDirectory() as folder:
        broker = RunningBroker(Path(folder), RELEASE_UNDER_TEST, **SETTINGS)
        try:
            ours = lived(broker.address)
        finally:
            broker.close()
    for name in sorted(theirs.keys() | ours.keys()):
        both = [side.get(name, []) for side in (theirs, ours)]
        for row in both[0]:
            if row not in both[1]:
                raise Failed(f"{name}: only Kafka has {row}; Ottla has {len(both[1])} of {len(both[0])}")
        if both[0] != both[1]:
            raise Failed(f"{name}: Ottla has {len(both[1])} records, Kafka {len(both[0])}: {both[1]}")
    counts = {name: len(rows) for name, rows in ours.items()}
    if not all(counts.get(name) for name in ("dlq.two", "dlq.small", "dlq.created")):
        raise Failed(f"queues are empty: {counts}")
    return f"equal queues of Kafka {RELEASE_UNDER_TEST}: {counts}"


CHECKS = [Check("dead-letter queues of share groups", run)]

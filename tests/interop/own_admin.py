"""Our own admin against Apache Kafka: what it makes and changes is there, what it is refused has Kafka's codes.

What a controller has done brokers learn a moment later, so that is asked for until it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from apache_kafka import RELEASES, Kafka
from checks import Check, Failed

from ottla.client import Admin, Consumer, Producer
from ottla.client.admin import (
    EARLIEST,
    LATEST,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    GroupDescription,
    NewPartitions,
    NewTopic,
    checked,
)

PATIENCE_SECONDS = 20


class Report:
    """Counts what was compared. Raises Failed at the first difference."""

    def __init__(self) -> None:
        self.count = 0

    def same(self, what: str, found: Any, expected: Any) -> None:
        self.count += 1
        if found != expected:
            raise Failed(f"{what}: {found!r} instead of {expected!r}")

    async def soon(self, what: str, ask: Callable[[], Awaitable[Any]], expected: Any) -> None:
        """The same of what is to come."""
        for _ in range(PATIENCE_SECONDS * 10):
            if await ask() == expected:
                break
            await asyncio.sleep(0.1)
        self.same(what, await ask(), expected)


def codes(outcomes: dict[Any, Any]) -> list[int]:
    """The code of each error, 0 of success."""
    return [getattr(outcome, "code", 0) for outcome in outcomes.values()]


async def topics_and_configs(admin: Admin, report: Report) -> None:
    configs = {"retention.ms": "100000"}
    made = await admin.create_topics(
        [NewTopic("t", 2, 1, configs=configs), NewTopic("x", 1, 1, configs={"a": "b"}), "d"]
    )
    report.same("topics made", codes(made), [0, 40, 0])
    report.same("made again", codes(await admin.create_topics([NewTopic("t", 2, 1)])), [36])
    await report.soon("topics", lambda: _names(admin), ["d", "t"])
    more = await admin.create_partitions({"t": 3, "d": NewPartitions(2, [[1]]), "absent": 4})
    report.same("partitions made", codes(more), [0, 0, 3])
    await report.soon("partitions", lambda: _partitions(admin, "t"), [(n, 1, (1,), (1,)) for n in range(3)])
    report.same("absent", codes(await admin.describe_topics(["t", "absent"])), [0, 3])
    topic = ConfigResource.topic("t")
    changed = await admin.alter_configs({topic: {"cleanup.policy": "compact", "retention.ms": None}})
    report.same("set", codes(changed), [0])
    grown = ConfigChange(ConfigOperation.APPEND, "delete")
    report.same("append", codes(await admin.alter_configs({topic: {"cleanup.policy": grown}})), [0])
    await report.soon("configs", lambda: _own_configs(admin, topic), {"cleanup.policy": "compact,delete"})


async def _names(admin: Admin) -> list[str]:
    return list(await admin.list_topics())


async def _partitions(admin: Admin, topic: str) -> list[Any]:
    described = checked(await admin.describe_topics([topic]))[topic]
    return [(p.index, p.leader, p.replicas, p.isr) for p in described.partitions]


async def _own_configs(admin: Admin, topic: ConfigResource) -> dict[str, str | None]:
    entries = checked(await admin.describe_configs([topic]))[topic]
    return {name: entry.value for name, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_TOPIC}


async def logs(admin: Admin, address: str, report: Report) -> None:
    async with Producer(address, enable_idempotence="required") as producer:
        for n in range(5):
            await producer.send_and_wait("t", b"%d" % n, b"k", partition=0, timestamp_ms=1000 * (n + 1))
    for spec, expected in ((LATEST, (5, -1)), (EARLIEST, (0, -1)), (2500, (2, 3000)), (9999, (-1, -1))):
        found = checked(await admin.list_offsets({("t", 0): spec}))["t", 0]
        report.same(f"offset of {spec}", found[:2], expected)
    (state,) = checked(await admin.describe_producers([("t", 0)]))["t", 0]
    report.same("producer", (state.producer_epoch, state.last_sequence, state.last_timestamp_ms), (0, 4, 5000))
    deleted = await admin.delete_records({("t", 0): 2, ("t", 1): 7})
    report.same("records deleted", (deleted["t", 0], codes(deleted)[1]), (2, 1))
    (folder,) = checked(await admin.describe_log_dirs())[1]
    report.same(
        "sizes", [size > 0 for where, (_, _, size) in sorted(folder.partitions.items()) if where[0] == "t"], [1, 0, 0]
    )


async def groups(admin: Admin, address: str, report: Report) -> None:
    async with Consumer(address, topics=["t"], group="members", offset_reset="earliest") as consumer:
        report.same("first record", (await consumer.getone()).offset, 2)
        described = await admin.describe_groups(["members", "absent"])
        report.same("groups", codes(described), [0, 69])
        told = described["members"]
        assert isinstance(told, GroupDescription)
        report.same("group", (told.state, told.protocol, told.coordinator), ("Stable", "range", 1))
        report.same("assigned", [member.partitions for member in told.members], [tuple(("t", n) for n in range(3))])
        report.same("offsets of a live group", codes(await admin.alter_group_offsets("members", {("t", 0): 3})), [25])
        report.same("a live group deleted", codes(await admin.delete_groups(["members"])), [68])
    done = await admin.alter_group_offsets("g", {("t", 0): 5, ("t", 1): 2, ("absent", 1): 3})
    report.same("offsets set", codes(done), [0, 0, 3])
    found = {where: told and told.offset for where, told in checked(await admin.list_group_offsets("g")).items()}
    report.same("offsets", found, {("t", 0): 5, ("t", 1): 2})
    report.same("offset removed", await admin.delete_group_offsets("g", [("t", 0)]), {("t", 0): None})
    report.same("offsets left", list(await admin.list_group_offsets("g")), [("t", 1)])
    report.same("groups by state", [g.group for g in await admin.list_groups(states=["Empty"])], ["g", "members"])
    report.same("groups deleted", codes(await admin.delete_groups(["g", "absent"])), [0, 69])
    report.same("topics deleted", codes(await admin.delete_topics(["t", "absent", "d"])), [0, 3, 0])


async def calls(address: str, report: Report) -> None:
    async with Admin(address) as admin:
        await topics_and_configs(admin, report)
        await logs(admin, address, report)
        await groups(admin, address, report)


def run_admin(release: str) -> str:
    report = Report()
    kafka = Kafka(release)
    try:
        asyncio.run(asyncio.wait_for(calls(kafka.address, report), 120))
    finally:
        kafka.stop()
    return f"{report.count} answers about topics, configs, logs and groups as they should be"


CHECKS = [
    Check(f"our admin's calls with Kafka {version}", lambda release=release: run_admin(release))
    for release, version in RELEASES.items()
]

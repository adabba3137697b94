"""Groups in data directories that pass between Ottla and Apache Kafka: of the consumer protocol (KIP-848), with a
static member that is connected when its broker is killed, and share groups (KIP-932) with accepted records.

Kafka's own tools show the same groups before and after, and the members continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from directories import folder
from tool_process import ToolProcess, tools

from ottla.client import Admin, ClientError, Consumer, KafkaError, Producer
from ottla.client.admin.admin import NewTopic, checked
from ottla.protocol.errors import ErrorCode
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Check, Failed
from ottla_testing.oracle.kafka_process import Kraft

RELEASE = "4.3.1"
COUNT, READ, SHARED = 12, 5, 4
SESSION_SECONDS, LOADING_SECONDS = 60, 10
SETTINGS = {
    "share_coordinator_state_topic_replication_factor": "1",
    "share_coordinator_state_topic_min_isr": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    # The killed broker's member has not left: its instance id is free again after this time.
    "group_consumer_min_session_timeout_ms": "5000",
    "group_consumer_session_timeout_ms": "15000",
}
LOOKS = (
    ("kafka-groups", "--list"),
    *(("kafka-consumer-groups", "--describe", "--group", "g", *more) for more in ((), ("--state",))),
    ("kafka-consumer-groups", "--describe", "--group", "g", "--members", "--verbose"),
    *(("kafka-share-groups", "--describe", "--group", "s", *more) for more in ((), ("--state",), ("--members",))),
    ("kafka-configs", "--describe", "--entity-type", "groups", "--entity-name", "s"),
)


class Life:
    """What clients do with one directory, first at one broker and then at the next."""

    def __init__(self, process: ToolProcess) -> None:
        self._process = process

    def run(self, address: str, tool: str, *arguments: str) -> str:
        """Returns the output of a tool. Raises Failed."""
        printed = self._process.run(tool, "--bootstrap-server", address, *arguments)
        if printed.code:
            raise Failed(f"{tool} {' '.join(arguments)}: {printed.out} {printed.err}")
        return printed.out

    def shown(self, address: str) -> dict[tuple[str, ...], list[str]]:
        """Returns the lines of the tools that describe the groups."""
        found: dict[tuple[str, ...], list[str]] = {}
        for tool, *arguments in LOOKS:
            text = re.sub(r"(127\.0\.0\.1|localhost):\d+", "ADDRESS", self.run(address, tool, *arguments))
            found[tool, *arguments] = sorted(re.sub(r"\s+", " ", line).strip() for line in text.splitlines())
        return found

    def share(self, address: str, count: int) -> list[str]:
        """Accepts records of t in share group s; returns them."""
        arguments = ("--topic", "t", "--group", "s", "--max-messages", str(count), "--timeout-ms", "30000")
        return self.run(address, "kafka-console-share-consumer", *arguments).split()

    async def begin(self, address: str) -> Consumer:
        """Makes both groups. Returns the connected member."""
        async with Admin(address) as admin:
            await admin.create_topics([NewTopic("t", 1)])
        async with Producer(address) as producer:
            for number in range(COUNT):
                await producer.send("t", b"%d" % number)
        first = "share.auto.offset.reset=earliest"
        setting = ("--alter", "--entity-type", "groups", "--entity-name", "s", "--add-config", first)
        await asyncio.to_thread(self.run, address, "kafka-configs", *setting)
        member = member_at(address)
        await member.start()
        for number in range(READ):
            if (await member.getone()).value != b"%d" % number:
                raise Failed("the records are not in order")
        await member.commit()
        accepted = await asyncio.to_thread(self.share, address, SHARED)
        if accepted != [str(number) for number in range(SHARED)]:
            raise Failed(f"the share group has {accepted}")
        return member

    async def go_on(self, address: str) -> None:
        """Reads the remaining records in both groups. Raises Failed."""
        member = await returned(address)
        try:
            found = [(await member.getone()).value for _ in range(READ + 1, COUNT)]
            if found != [b"%d" % number for number in range(READ + 1, COUNT)]:
                raise Failed(f"the member continues with {found}")
            await member.commit()
        finally:
            await member.stop()
        shared = await asyncio.to_thread(self.share, address, COUNT - SHARED)
        if sorted(map(int, shared)) != list(range(SHARED, COUNT)):
            raise Failed(f"the share group continues with {shared}")


def member_at(address: str) -> Consumer:
    options = {"group_instance_id": "first", "offset_reset": "earliest", "enable_auto_commit": False}
    return Consumer(address, topics=["t"], group="g", group_protocol="consumer", **options)


async def returned(address: str) -> Consumer:
    """Returns the member that has taken over the instance id, and has read its first record. Raises Failed."""
    end = time.monotonic() + SESSION_SECONDS
    while True:
        member = member_at(address)
        await member.start()
        try:
            if (await member.getone()).value != b"%d" % READ:
                raise Failed("the member does not continue at its committed offset")
            return member
        except KafkaError as error:
            await member.stop()
            if error.code != ErrorCode.UNRELEASED_INSTANCE_ID or time.monotonic() > end:
                raise
            await asyncio.sleep(0.5)


async def first_half(life: Life, address: str, kill: Callable[[], None]) -> dict[tuple[str, ...], list[str]]:
    """Makes the groups and kills the broker under the member. Returns what the tools showed."""
    member = await life.begin(address)
    before = await asyncio.to_thread(life.shown, address)
    await asyncio.to_thread(kill)
    with contextlib.suppress(ClientError, TimeoutError):
        await asyncio.wait_for(member.stop(), 5)
    return before


def second_half(life: Life, address: str, before: dict[tuple[str, ...], list[str]]) -> str:
    """Compares the groups with those before, and continues with them. Raises Failed."""
    after = life.shown(address)
    end = time.monotonic() + LOADING_SECONDS
    while after != before and time.monotonic() < end:  # Kafka loads its groups after it listens
        after = life.shown(address)
    for look, lines in before.items():
        if after[look] != lines:
            raise Failed(f"{' '.join(look)}: {lines} before, {after[look]} after")
    if (found := asyncio.run(protocols(address))) != [True]:
        raise Failed(f"whether the members of g use the consumer protocol: {found}")
    asyncio.run(life.go_on(address))
    return f"{len(before)} commands show the same; {COUNT - READ} and {COUNT - SHARED} records read on"


async def protocols(address: str) -> list[bool | None]:
    """Returns of each member of the consumer group whether it uses the consumer protocol, or a classic one."""
    async with Admin(address) as admin:
        return [member.upgraded for member in checked(await admin.describe_groups(["g"]))["g"].members]


def run_to_ours() -> str:
    with folder() as place, tools() as process:
        life = Life(process)
        (place / "kafka").mkdir()
        kafka = Kraft(RELEASE, place / "kafka", **SETTINGS)
        try:
            before = asyncio.run(first_half(life, kafka.address, kafka.kill))
        finally:
            kafka.kill()
        (place / "ours").mkdir()
        kafka.logs.rename(place / "ours" / "data")
        broker = RunningBroker(place / "ours", "4.3", **SETTINGS)
        try:
            return second_half(life, broker.address, before)
        finally:
            broker.close()


def run_to_kafka() -> str:
    with folder() as place, tools() as process:
        life = Life(process)
        (place / "ours").mkdir()
        levels = "group.version=1,share.version=1"  # recorded, so that Kafka has them too
        ours = {**SETTINGS, "offsets_topic_num_partitions": "1", "ottla_features": levels}
        broker = RunningBroker(place / "ours", "4.3", **ours)
        try:
            before = asyncio.run(first_half(life, broker.address, broker.kill))
        finally:
            broker.kill()
        moved: Path = place / "kafka"
        moved.mkdir()
        broker.data_dir.rename(moved / "logs")
        kafka = Kraft(RELEASE, moved, **SETTINGS)
        try:
            return second_half(life, kafka.address, before)
        finally:
            kafka.stop()


CHECKS = [
    Check("groups of KIP-848 and KIP-932 from Kafka 4.3.1 to Ottla", run_to_ours),
    Check("groups of KIP-848 and KIP-932 from Ottla to Kafka 4.3.1", run_to_kafka),
]

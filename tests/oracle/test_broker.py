"""A broker of ours as 2.8, then as 3.9 over the same directory: given the requests that real clients sent to Kafka, it
stores what Kafka stored, and answers Fetch v0 to v4 as Kafka did.

Where an answer was converted, Kafka fills or cuts it to a size that it declared before; we send all that was converted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.clock import ManualClock
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.records import formats
from ottla_testing.broker import harness
from ottla_testing.oracle import golden

TOPICS = golden.topics()
# What needs a cleaner or transactions is not written here.
NAMES = [name for name in TOPICS if not name.startswith(("gaps-", "transactions"))]
MIXED = {20: "0.10.2", 40: "2.8"}
CODES = {"UnsupportedForMessageFormatException": 43, "UnknownServerException": -1}


async def write_all(broker: harness.Broker, client: harness.Client, release: str) -> None:
    """Every request that the Kafka of a release got, in its order within each topic."""
    made: set[str] = set()
    for write in golden.writes():
        if write.release != release or write.topic not in NAMES:
            continue
        if write.topic not in made:
            made.add(write.topic)
            configs = dict(TOPICS[write.topic].configs)
            if write.topic == "mixed":
                configs["message.format.version"] = "0.9.0"
            await broker.topic(write.topic, configs=configs)
        if write.topic == "mixed" and write.base_offset in MIXED:
            await set_format(client, write.topic, MIXED[write.base_offset])
        if by_append_time(write):
            broker.clock.advance(append_time(write) - broker.clock.now_ms())
        answer = harness.only(await client.call(harness.produce(write.records, write.topic), write.produce_version))
        wanted = (0, write.base_offset) if not write.error else (CODES[write.error], -1)
        assert (answer.error_code, answer.base_offset) == wanted, write[:6]


async def set_format(client: harness.Client, topic: str, version: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="message.format.version", config_operation=0, value=version)
    asked = resource(resource_type=2, resource_name=topic, configs=[config])
    answer = await client.call(IncrementalAlterConfigsRequest(resources=[asked], validate_only=False), 1)
    assert answer.responses[0].error_code == 0


def by_append_time(write: golden.Write) -> bool:
    return TOPICS[write.topic].configs.get("message.timestamp.type") == "LogAppendTime"


def append_time(write: golden.Write) -> int:
    """When Kafka appended it."""
    (found,) = {h.max_timestamp for _, h in golden.stored_entries(write.topic) if is_of(h, write)}
    return found


def is_of(header: Any, write: golden.Write) -> bool:
    return write.base_offset <= header.last_offset < write.base_offset + 5


@pytest.fixture
def clock() -> ManualClock:
    """From the first time of append on, it is moved to one after the other."""
    return ManualClock(min(map(append_time, filter(by_append_time, golden.writes()))))


@pytest.fixture
async def old(tmp_path: Path, clock: ManualClock) -> AsyncIterator[tuple[harness.Broker, harness.Client]]:
    """A broker as 2.8 with all that 2.8.2 got."""
    async with harness.running(tmp_path, release="2.8", clock=clock) as broker:
        client = await broker.client()
        await write_all(broker, client, "2.8.2")
        yield broker, client


def contents(data: bytes) -> list[tuple[object, ...]]:
    """Entries with their records; sizes and CRCs are left out where something is compressed."""
    found = []
    for position, header in formats.headers(data):
        shown = header._replace(batch_length=0, crc=0) if header.codec else header
        found.append((shown, *formats.records(data, position)))
    return found


async def check_stored(folder: Path, release: str) -> None:
    """The files on the disk against Kafka's: byte for byte, but for what was compressed anew."""
    for name in NAMES:
        if name.startswith("up-") != (release == "3.9.1"):
            continue
        logs = {path.name: path.read_bytes() for path in sorted((folder / f"{name}-0").glob("*.log"))}
        assert list(logs) == list(golden.segments(name)), name
        for file, data in golden.segments(name).items():
            assert contents(logs[file]) == contents(data), (name, file)
            if name.endswith("-none"):
                assert logs[file] == data, (name, file)


def is_converted(answer: golden.Answer) -> bool:
    """2.8 scans what it has read for whole entries that the client's version cannot hold."""
    data = next(iter(golden.segments(answer.topic).values()))[: answer.max_bytes]
    newest = 0 if answer.fetch_version < 2 else 1
    return any(header.magic > newest for _, header in formats.headers(data))


async def check_answers(client: harness.Client, release: str, known: set[str]) -> int:
    """All that the Kafka of a release answered."""
    checked = 0
    for answer in golden.answers():
        if release not in answer.releases or answer.topic not in known:
            continue
        request = harness.fetch((answer.topic, 0, answer.offset), partition_max_bytes=answer.max_bytes)
        found = harness.only(await client.call(request, answer.fetch_version))
        asked = (answer.topic, answer.fetch_version, answer.offset, answer.max_bytes)
        assert (found.error_code, found.high_watermark) == (answer.error_code, answer.high_watermark), asked
        data = bytes(found.records or b"")
        given, ours = contents(answer.records), contents(data)
        assert ours[: len(given)] == given, asked
        whole = answer.max_bytes > 1000
        assert len(ours) == len(given) or (whole and answer.fetch_version < 4), asked
        # From v3 on we send whole entries only. Before, a slice of the file, cut where the client's bound cuts it.
        if release == "2.8.2" and not whole and answer.fetch_version < 3 and not is_converted(answer):
            assert data == answer.records, asked
        assert bool(data) == bool(answer.records), asked
        checked += 1
    return checked


async def test_as_2_8_it_stores_and_answers_what_2_8_2_did(
    old: tuple[harness.Broker, harness.Client], tmp_path: Path
) -> None:
    _, client = old
    await check_stored(tmp_path, "2.8.2")
    assert await check_answers(client, "2.8.2", {name for name in NAMES if not name.startswith("up-")}) > 70


async def test_as_3_9_it_stores_and_answers_what_3_9_1_did_over_the_same_data(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with harness.running(tmp_path, release="2.8", clock=clock) as broker:
        await write_all(broker, await broker.client(), "2.8.2")
    async with harness.running(tmp_path, release="3.9", clock=clock) as broker:
        client = await broker.client()
        await write_all(broker, client, "3.9.1")
        await check_stored(tmp_path, "2.8.2")
        await check_stored(tmp_path, "3.9.1")
        assert await check_answers(client, "3.9.1", set(NAMES)) > 80

"""A broker as 2.8, then as 3.9 over the same directory, with the requests that real clients sent to Kafka: it stores
what Kafka stored, and returns Kafka's responses to Fetch v0 to v4.

Kafka fills or cuts a converted response to a size declared before; Ottla sends the whole converted result.
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
# Topics that need a cleaner or transactions are not written here.
NAMES = [name for name in TOPICS if not name.startswith(("gaps-", "transactions"))]
MIXED = {20: "0.10.2", 40: "2.8"}
CODES = {"UnsupportedForMessageFormatException": 43, "UnknownServerException": -1}


async def write_all(broker: harness.Broker, client: harness.Client, release: str) -> None:
    """Sends every request that the Kafka of a release got, in its order within each topic."""
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
        response = harness.only(await client.call(harness.produce(write.records, write.topic), write.produce_version))
        wanted = (0, write.base_offset) if not write.error else (CODES[write.error], -1)
        assert (response.error_code, response.base_offset) == wanted, write[:6]


async def set_format(client: harness.Client, topic: str, version: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="message.format.version", config_operation=0, value=version)
    requested = resource(resource_type=2, resource_name=topic, configs=[config])
    response = await client.call(IncrementalAlterConfigsRequest(resources=[requested], validate_only=False), 1)
    assert response.responses[0].error_code == 0


def by_append_time(write: golden.Write) -> bool:
    return TOPICS[write.topic].configs.get("message.timestamp.type") == "LogAppendTime"


def append_time(write: golden.Write) -> int:
    """Returns the time at which Kafka appended it."""
    (found,) = {h.max_timestamp for _, h in golden.stored_entries(write.topic) if is_of(h, write)}
    return found


def is_of(header: Any, write: golden.Write) -> bool:
    return write.base_offset <= header.last_offset < write.base_offset + 5


@pytest.fixture
def clock() -> ManualClock:
    """Returns a clock at the first append time, to be moved to each later one."""
    return ManualClock(min(map(append_time, filter(by_append_time, golden.writes()))))


@pytest.fixture
async def old(tmp_path: Path, clock: ManualClock) -> AsyncIterator[tuple[harness.Broker, harness.Client]]:
    """Starts a broker as 2.8 with all requests of 2.8.2."""
    async with harness.running(tmp_path, release="2.8", clock=clock) as broker:
        client = await broker.client()
        await write_all(broker, client, "2.8.2")
        yield broker, client


def contents(data: bytes) -> list[tuple[object, ...]]:
    """Returns entries with their records; sizes and CRCs are left out for compressed entries."""
    found = []
    for position, header in formats.headers(data):
        shown = header._replace(batch_length=0, crc=0) if header.codec else header
        found.append((shown, *formats.records(data, position)))
    return found


async def check_stored(folder: Path, release: str) -> None:
    """Compares the files on the disk with Kafka's: byte for byte, except for recompressed batches."""
    for name in NAMES:
        if name.startswith("up-") != (release == "3.9.1"):
            continue
        logs = {path.name: path.read_bytes() for path in sorted((folder / f"{name}-0").glob("*.log"))}
        assert list(logs) == list(golden.segments(name)), name
        for file, data in golden.segments(name).items():
            assert contents(logs[file]) == contents(data), (name, file)
            if name.endswith("-none"):
                assert logs[file] == data, (name, file)


def is_converted(response: golden.FetchResponse) -> bool:
    """Returns whether the response was converted: 2.8 scans the read bytes for whole entries of a newer format."""
    data = next(iter(golden.segments(response.topic).values()))[: response.max_bytes]
    newest = 0 if response.fetch_version < 2 else 1
    return any(header.magic > newest for _, header in formats.headers(data))


async def check_responses(client: harness.Client, release: str, known: set[str]) -> int:
    """Compares all responses of the Kafka of a release."""
    checked = 0
    for response in golden.fetch_responses():
        if release not in response.releases or response.topic not in known:
            continue
        request = harness.fetch((response.topic, 0, response.offset), partition_max_bytes=response.max_bytes)
        found = harness.only(await client.call(request, response.fetch_version))
        requested = (response.topic, response.fetch_version, response.offset, response.max_bytes)
        assert (found.error_code, found.high_watermark) == (response.error_code, response.high_watermark), requested
        data = bytes(found.records or b"")
        given, ours = contents(response.records), contents(data)
        assert ours[: len(given)] == given, requested
        whole = response.max_bytes > 1000
        assert len(ours) == len(given) or (whole and response.fetch_version < 4), requested
        # From v3 on Ottla sends whole entries only; before, a slice of the file, cut at the client's limit.
        if release == "2.8.2" and not whole and response.fetch_version < 3 and not is_converted(response):
            assert data == response.records, requested
        assert bool(data) == bool(response.records), requested
        checked += 1
    return checked


async def test_profile_2_8_stores_and_returns_what_kafka_2_8_2_did(
    old: tuple[harness.Broker, harness.Client], tmp_path: Path
) -> None:
    _, client = old
    await check_stored(tmp_path, "2.8.2")
    assert await check_responses(client, "2.8.2", {name for name in NAMES if not name.startswith("up-")}) > 70


async def test_profile_3_9_over_data_of_2_8_returns_what_kafka_3_9_1_did(tmp_path: Path, clock: ManualClock) -> None:
    async with harness.running(tmp_path, release="2.8", clock=clock) as broker:
        await write_all(broker, await broker.client(), "2.8.2")
    async with harness.running(tmp_path, release="3.9", clock=clock) as broker:
        client = await broker.client()
        await write_all(broker, client, "3.9.1")
        await check_stored(tmp_path, "2.8.2")
        await check_stored(tmp_path, "3.9.1")
        assert await check_responses(client, "3.9.1", set(NAMES)) > 80

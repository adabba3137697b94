"""Stored v0, v1, v2 and mixed data, in every codec, read by every version of Fetch in every family of releases.

Each record is returned once, in order, at its offset, with the timestamp, key, value and headers that the format and
the release keep; nothing is newer than the version; every CRC matches. kafka-python decodes the responses.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka.record import MemoryRecords

from ottla.broker.releases.profiles import profile
from ottla.protocol.records import batch, legacy
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.compression import Codec
from ottla_testing.broker.harness import Broker, Client, fetch, only, running

T0 = 1_700_000_000_000
FETCH = 1
# One profile of each family that reads differently; those before 0.11 never stored v2.
FAMILIES = {
    "0.9.0": 0,
    "0.10.2": 1,
    "0.11.0": 2,
    "2.8": 2,
    "3.9": 2,
    "4.3": 2,
    "ottla": 2,
}
SETS = 6
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


class Seen(NamedTuple):
    """A record as a client sees it. `timestamp` is None in v0."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def sets(magic: int | None) -> list[tuple[int, list[Record]]]:
    """(magic, records) of each set that is appended; None mixes the formats."""
    made = []
    for number in range(SETS):
        own = number % 3 if magic is None else magic
        rows = [
            Record(
                index,
                T0 + 1000 * number - 7 * index,
                None if index % 3 == 1 else b"key%d" % index,
                None if index % 4 == 3 else b"value %d of %d, " % (index, number) * 9,
                (Header("h", b"1"), Header("n", None)) if own == 2 and index % 2 else (),
            )
            for index in range(number + 2)
        ]
        made.append((own, rows))
    return made


def encoded(magic: int, codec: int, rows: list[Record]) -> bytearray:
    """A set as a producer of that format sends it."""
    if magic == 2:
        return batch.build(rows, codec=codec)
    return legacy.build(rows, magic=magic, codec=codec)


async def store(broker: Broker, name: str, magic: int | None, codec: int, append_time: bool) -> list[tuple[int, Seen]]:
    """Fills a topic; returns (magic, stored record) of each record."""
    await broker.topic(name, 1, {"message.timestamp.type": "LogAppendTime"} if append_time else {})
    log = broker.log(name)
    configured = log.config
    now_ms = broker.clock.now_ms()
    stored = []
    for own, rows in sets(magic):
        log.configure(dataclasses.replace(configured, rules=dataclasses.replace(configured.rules, target_magic=own)))
        data = encoded(own, codec, rows)
        appended = log.append(data, now_ms=now_ms, produce_version=2 if own < 2 else 13)
        for row in rows:
            timestamp = None if own == 0 else now_ms if append_time else row.timestamp
            headers = tuple((header.key, header.value) for header in row.headers)
            stored.append((own, Seen(appended.base_offset + row.offset, timestamp, row.key, row.value, headers)))
    log.configure(configured)
    return stored


Stored = dict[str, list[tuple[int, Seen]]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Stored]]:
    """A data directory with a topic for each cell, and their contents."""
    folder = tmp_path_factory.mktemp("formats") / "data"
    topics: Stored = {}

    async def fill() -> None:
        async with running(folder) as broker:
            for magic, name in ((0, "v0"), (1, "v1"), (2, "v2"), (None, "mixed")):
                for codec in CODECS:
                    if codec == Codec.ZSTD and magic != 2:
                        continue
                    for kind in ("created", "appended"):
                        topic = f"{name}-{codec.name.lower()}-{kind}"
                        topics[topic] = await store(broker, topic, magic, codec, kind == "appended")

    asyncio.run(fill())
    yield folder, topics


def decoded(records: bytes, newest: int) -> list[Seen]:
    """The records that kafka-python decodes; it ignores a cut message at the end."""
    found = []
    memory = MemoryRecords(bytes(records))
    while memory.has_next():
        entry = memory.next_batch()
        assert entry.magic <= newest
        assert entry.validate_crc()
        for record in entry:
            timestamp = None if entry.magic == 0 else record.timestamp
            headers = tuple((key, value) for key, value in record.headers) if entry.magic == 2 else ()
            found.append(Seen(record.offset, timestamp, record.key, record.value, headers))
    return found


async def read_all(client: Client, topic: str, version: int, newest: int, end: int, max_bytes: int) -> list[Seen]:
    """Reads everything from the first offset on like a consumer, which drops records before its position."""
    found: list[Seen] = []
    position = 0
    while position < end:
        response = only(await client.call(fetch((topic, 0, position), partition_max_bytes=max_bytes), version))
        assert response.error_code == 0, (topic, version, position)
        new = [seen for seen in decoded(response.records, newest) if seen.offset >= position]
        assert new, (topic, version, position)
        found += new
        position = new[-1].offset + 1
    return found


def expected(stored: list[tuple[int, Seen]], newest: int) -> list[Seen]:
    """The expected records in a version with formats up to `newest`."""
    left = []
    for magic, seen in stored:
        timestamp = seen.timestamp
        if newest == 0 or magic == 0:
            timestamp = None
        left.append(seen._replace(timestamp=timestamp, headers=seen.headers if newest == 2 else ()))
    return left


@pytest.mark.parametrize("release", FAMILIES)
async def test_every_fetch_version_reads_every_stored_format(
    release: str, data: tuple[Path, Stored], stride: int
) -> None:
    """All at once, and about a set at a time. A small run takes some of the cells."""
    folder, topics = data
    served = profile(release).served[FETCH]
    stored_by_then = [
        topic for topic, stored in topics.items() if max(magic for magic, _ in stored) <= FAMILIES[release]
    ]
    cells = list(itertools.product(stored_by_then, range(served.first, served.last + 1), (1 << 20, 2000)))
    assert len(cells) >= 2 * 2 * 4 * (served.last - served.first + 1 if FAMILIES[release] == 2 else 1)
    async with running(folder, release=release) as broker:
        client = await broker.client()
        ids = {topic: broker.state.topics.named(topic).id for topic in topics}
        for topic, version, max_bytes in random.sample(cells, len(cells) // stride):
            stored = topics[topic]
            newest = 0 if version < 2 else 1 if version < 4 else 2
            if "zstd" in topic and newest < 2:
                response = only(await client.call(fetch((topic, 0, 0)), version))
                assert (response.error_code, response.records) == (76, b"")
                continue
            name: Any = ids[topic] if version >= 13 else topic
            seen = await read_all(client, name, version, newest, len(stored), max_bytes)
            assert [row.offset for row in seen] == list(range(len(stored)))
            assert seen == expected(stored, newest), (topic, version, max_bytes)

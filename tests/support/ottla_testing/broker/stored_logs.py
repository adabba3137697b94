"""Logs of an earlier broker: bytes that are put into a closed data directory, and readers of fetched records."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records import batch, formats, legacy
from ottla.protocol.records.batch import Record
from ottla_testing.broker.harness import Broker, Client, fetch, only, running
from ottla_testing.protocol import message_sets

__all__ = [
    "T0",
    "entries",
    "fetch_partition",
    "is_waiting",
    "marker",
    "message",
    "offsets",
    "place",
    "plain",
    "rows",
    "stored",
    "wrapper",
]

T0 = 1_700_000_000_000

message: Callable[..., bytes] = message_sets.message
wrapper: Callable[..., bytes] = message_sets.wrapper


def rows(count: int, first: int = 0, *, value_bytes: int = 30) -> list[Record]:
    """Records without keys at consecutive offsets, which all formats can hold."""
    return [Record(first + n, T0 + n, None, b"%d " % (first + n) + b"v" * value_bytes) for n in range(count)]


def entries(data: bytes) -> list[bytes]:
    """The whole entries of a log, by their sizes alone; a partial one at the end is left out."""
    found, position = [], 0
    while position + 12 <= len(data):
        end = position + 12 + struct.unpack_from(">i", data, position + 8)[0]
        if end > len(data):
            break
        found.append(bytes(data[position:end]))
        position = end
    return found


def marker(offset: int, *, commit: bool = True) -> bytes:
    """A transaction marker."""
    record = Record(offset, T0, struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 7))
    return bytes(
        batch.build(
            [record],
            batch.BatchFields(control=True, transactional=True, producer_id=9, producer_epoch=0),
            base_offset=offset,
        )
    )


def put_log(folder: Path, data: bytes) -> None:
    """Replaces the files of a partition of a closed broker by one segment."""
    for path in folder.iterdir():
        if path.suffix in (".log", ".index", ".timeindex"):
            path.unlink()
    (folder / f"{0:020d}.log").write_bytes(data)


async def place(folder: Path, logs: Mapping[str, bytes], configs: Mapping[str, str] | None = None) -> None:
    """A closed data directory with topics of one partition each, whose logs have these bytes."""
    async with running(folder) as broker:
        for name in logs:
            await broker.topic(name, configs=configs)
    for name, data in logs.items():
        put_log(folder / f"{name}-0", bytes(data))


async def fetch_partition(client: Client, version: int, topic: str = "t", offset: int = 0, **more: Any) -> Any:
    """Returns the partition's response to one Fetch."""
    return only(await client.call(fetch((topic, 0, offset), **more), version))


def offsets(data: bytes) -> list[int]:
    """The offsets of all records in a response; the CRCs must match."""
    found = []
    for position, header in formats.headers(data):
        assert formats.crc_matches(data, position, header)
        found += [record.offset for record in formats.records(data, position)]
    return found


async def is_waiting(broker: Broker, topic: str = "t") -> bool:
    """Whether a fetch waits at the topic's first partition. Works in the oldest releases too."""
    client = await broker.client()
    for _ in range(3):
        await client.call(MetadataRequest(topics=[]), 0)
    client.close()
    return bool(broker.state.topics.partition(topic, 0).waiters)


def plain(records: list[Record], magic: int) -> bytes:
    """Uncompressed messages, built by code of the tests."""
    return b"".join(message(r.offset, r.key, r.value, magic=magic, timestamp=r.timestamp) for r in records)


def stored(magic: int, records: list[Record], codec: int = 0) -> bytes:
    """A set as a log holds it."""
    if magic == 2:
        return bytes(batch.build(records, base_offset=records[0].offset, codec=codec))
    return bytes(legacy.build(records, magic=magic, codec=codec))

"""Logs of old formats for brokers that upgrade them, and their contents after the upgrade."""

from __future__ import annotations

from pathlib import Path

from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.records import batch, formats, legacy
from ottla_testing.broker.harness import Client

FORCED = {"log.record.version.force.upgrade": "2"}
Row = tuple[int, bytes | None, bytes | None, int]


def old_log() -> tuple[bytes, list[Row]]:
    """A segment in all formats, plain and compressed, with gaps and null values."""
    data = b""
    rows: list[Row] = []
    offset = 0
    for magic, codec in ((0, 0), (0, 1), (0, 3), (1, 0), (1, 2), (1, 1), (2, 0), (1, 0), (2, 4)):
        times = [-1 if magic == 0 else 1_600_000_000_000 + 10 * offset + n for n in (0, 2, 1)]
        made = [
            batch.Record(offset + n + (n == 2), time, b"k%d" % n if n else None, b"v%d" % offset if n < 2 else None)
            for n, time in enumerate(times)
        ]
        if magic == 2:
            data += batch.build(made, base_offset=offset, codec=codec)
        else:
            data += legacy.build(made, magic=magic, codec=codec)
        rows += [(record.offset, record.key, record.value, record.timestamp) for record in made]
        offset += 4
    return data, rows


def put_log(folder: Path, data: bytes) -> None:
    """Replaces the files of a partition of a closed broker by one segment."""
    for path in folder.iterdir():
        if path.suffix in (".log", ".index", ".timeindex"):
            path.unlink()
    (folder / f"{0:020d}.log").write_bytes(data)


def magics(*folders: Path) -> set[int]:
    paths = [path for folder in folders for path in folder.glob("*/*.log")]
    return {header.magic for path in paths for _, header in formats.headers(path.read_bytes())}


def committing_to(name: str) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    requested = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    return OffsetCommitRequest(group_id="g", topics=[topic(name=name, partitions=[requested])])


async def committed(client: Client) -> int:
    requested = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    (topic,) = (await client.call(OffsetFetchRequest(group_id="g", topics=[requested]), 5)).topics
    return topic.partitions[0].committed_offset

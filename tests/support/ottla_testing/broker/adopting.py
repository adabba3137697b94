"""Small data directories of another Kafka, for the tests of adoption, import and start."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker_state import BrokerState
from ottla.broker.clock import ManualClock
from ottla.broker.config.serve_options import StartupError
from ottla.broker.metadata.kraft_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from ottla.broker.network import router
from ottla.protocol.compiler import build
from ottla.protocol.internal_records.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.primitives import varint_bytes
from ottla.protocol.records import batch
from ottla.protocol.schema import spec
from ottla.storage.format.partition_metadata import encode_id
from ottla.storage.io.files import DiskFile, DiskFiles, Files
from ottla_testing import GOLDEN
from ottla_testing.broker.harness import options, running

GOLDEN = GOLDEN / "logs"
NOW_MS = 1_700_000_000_000
ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
OWN = ("__cluster_metadata-0", "__consumer_offsets-")  # of these the records are read: they are the broker's state
V0 = "#\n#Sat Nov 21 08:21:00 UTC 2026\nbroker.id={}\nversion=0\ncluster.id=sNpOuPz4TNa29sw2dnLt_w\n"


def copy_golden(folder: Path, *topics: str, broker_id: int = 7) -> None:
    """Copies a directory that Kafka 2.8 wrote, with some topics."""
    folder.mkdir(parents=True, exist_ok=True)
    for topic in topics:
        shutil.copytree(GOLDEN / f"{topic}-0", folder / f"{topic}-0")
    (folder / "meta.properties").write_text(V0.format(broker_id))


def forget(folder: Path, *, ids: bool = True, broker_id: int = 1) -> None:
    """Makes a closed directory of ours one of an older Kafka: no metadata log, no topic ids, meta.properties of V0."""
    cluster = next(
        line for line in (folder / "meta.properties").read_text().splitlines() if line.startswith("cluster.id")
    )
    shutil.rmtree(folder / "__cluster_metadata-0")
    (folder / "meta.properties").write_text(f"#\nbroker.id={broker_id}\nversion=0\n{cluster}\n")
    for path in folder.glob("*/partition.metadata"):
        if ids:
            path.unlink()


def metadata_value(record: Any, version: int | None = None) -> bytes:
    """Returns the value of any metadata record, by default in its newest version."""
    declared = spec(type(record))
    chosen = declared.versions.last if version is None else version
    return varint_bytes(1) + varint_bytes(declared.api_key) + varint_bytes(chosen) + build(record, chosen)


def metadata_batch(base_offset: int, *values: bytes, control: bool = False) -> bytes:
    """Returns a batch of metadata records as a KRaft quorum writes it; the record of a control batch is arbitrary."""
    key = b"\0\0\0\2" if control else None
    entries = [batch.Record(base_offset + n, NOW_MS, key, value, ()) for n, value in enumerate(values)]
    return bytes(batch.build(entries, batch.BatchFields(control=control), base_offset=base_offset, leader_epoch=3))


def write_file(files: Files, path: str, data: bytes) -> None:
    """Writes a durable file, and makes its folders."""
    files.make_directory(os.path.dirname(path))
    file = files.open(path, create=True)
    file.truncate(0)
    file.write(0, data)
    file.sync()
    file.close()
    files.sync_directory(os.path.dirname(path))


def copy_in(files: Files, source: Path, target: str) -> None:
    """Copies a directory of the real disk to another one."""
    for path in sorted(source.rglob("*")):
        inner = f"{target}/{path.relative_to(source)}"
        if path.is_dir():
            files.make_directory(inner)
            files.sync_directory(inner)
        else:
            write_file(files, inner, path.read_bytes())


def begin(files: Files, *folders: str, overrides: dict[str, str] | None = None) -> BrokerState:
    """Opens the broker's state over directories of any disk; needs a running loop."""
    chosen = options([Path(folder) for folder in folders], overrides)
    apis = router.apis_of(chosen.config.profile)
    return BrokerState.open(chosen, {}, apis, ManualClock(NOW_MS), asyncio.get_running_loop(), files)


def finish(state: BrokerState) -> None:
    """Closes the state."""
    state.begin_stop()
    state.close()


def topic_facts(state: BrokerState) -> dict[str, tuple[bytes, dict[str, str], list[tuple[int, int, int]]]]:
    """Returns of each topic its id and configs, of each partition its first offset, end offset and epoch."""
    return {
        topic.name: (
            topic.id,
            topic.config.overrides,
            [(p.log.log_start_offset, p.log.log_end_offset, p.leader_epoch) for p in topic.partitions],
        )
        for topic in state.topics
    }


class CountedFile(DiskFile):
    """A file that counts the bytes that are read from it."""

    __slots__ = ("counts",)
    counts: Counter[str]

    def read(self, position: int, length: int) -> bytes | memoryview:
        self.counts[self._path] += length
        return super().read(position, length)


class CountingFiles(DiskFiles):
    """The real disk; counts the bytes that are read, by path, and the opened files."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.opened[path] += 1
        file = super().open(path, create=create)
        assert isinstance(file, DiskFile)
        counted = CountedFile(path, file._fd)
        counted.counts = self.read
        return counted

    def read_bytes(self, path: str) -> bytes:
        data = super().read_bytes(path)
        self.read[path] += len(data)
        return data

    def of_segments(self, what: Counter[str]) -> dict[str, int]:
        """Returns the counts of segments and their indexes."""
        suffixes = (".log", ".index", ".timeindex", ".txnindex")
        return {p: n for p, n in what.items() if p.endswith(suffixes) and not any(own in p for own in OWN)}


async def refusal(*folders: Path, **overrides: str) -> str:
    """Returns the one line with which a start is refused."""
    with pytest.raises(StartupError) as refused:
        async with running(*folders, overrides=overrides):
            pass
    assert "\n" not in str(refused.value)
    return str(refused.value)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_topic_id(folder: Path, topic_id: bytes) -> None:
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {encode_id(topic_id)}")


async def next_id(folder: Path) -> int:
    async with running(folder) as broker:
        response = await (await broker.client()).call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 1
        )
        return response.producer_id


# A KRaft broker's directory

TOPIC_RECORDS = (
    TopicRecord(name="old", topic_id=bytes(15) + b"\x09"),
    TopicRecord(name="t", topic_id=ID),
    *(
        PartitionRecord(
            partition_id=index,
            topic_id=ID,
            replicas=[7],
            isr=[7],
            removing_replicas=[],
            adding_replicas=[],
            leader=7,
            leader_epoch=4,
            partition_epoch=2,
            directories=[],
        )
        for index in range(2)
    ),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1000"),
    ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value="2000"),
    ConfigRecord(resource_type=4, resource_name="7", name="log.cleaner.threads", value="3"),
    ConfigRecord(resource_type=4, resource_name="8", name="log.cleaner.threads", value="4"),
    ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="500"),
    ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="46000"),
    ProducerIdsRecord(broker_id=7, broker_epoch=5, next_producer_id=4000),
)


def kraft(folder: Path, *after: bytes, snapshot: bool = True, base_offset: int = 0) -> Path:
    """Makes a directory of a KRaft broker: topic t with two partitions; `after` are batches at the end of the log."""
    copy_golden(folder, "v2-none", "v1-none")
    (folder / "v2-none-0").rename(folder / "t-0")
    (folder / "v1-none-0").rename(folder / "t-1")
    write_topic_id(folder / "t-0", ID)
    write_topic_id(folder / "t-1", ID)
    (folder / "meta.properties").write_text(
        f"#\nversion=1\nnode.id=7\ncluster.id=c\ndirectory.id={encode_id(OTHER_ID)}\n"
    )
    metadata = folder / "__cluster_metadata-0"
    metadata.mkdir()
    write_topic_id(metadata, bytes(15) + b"\x01")
    (metadata / "quorum-state").write_text('{"clusterId":"","leaderId":7,"leaderEpoch":3}')
    batches = [
        metadata_batch(0, b"", control=True),
        metadata_batch(1, *(metadata_value(record) for record in TOPIC_RECORDS)),
        metadata_batch(1 + len(TOPIC_RECORDS), b"", control=True),
    ]
    if snapshot:
        (metadata / f"{100:020}-{3:010}.checkpoint").write_bytes(b"".join(batches))
        (metadata / f"{90:020}-{3:010}.checkpoint").write_bytes(b"older")
        (metadata / f"{120:020}-{3:010}.checkpoint.part").write_bytes(b"half")
        (metadata / f"{base_offset:020}.log").write_bytes(b"".join(after))
    else:
        (metadata / f"{base_offset:020}.log").write_bytes(b"".join([*batches, *after]))
    (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":9}')
    return folder


def values_of(*records: object) -> list[bytes]:
    return [metadata_value(record) for record in records]


CHANGES = (
    metadata_batch(90, *values_of(ConfigRecord(resource_type=2, resource_name="t", name="gone", value="1"))),
    metadata_batch(98, b"", control=True),
    metadata_batch(99, *values_of(NoOpRecord(), PartitionChangeRecord(partition_id=1, topic_id=ID, leader=7))),
    metadata_batch(101, *values_of(ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value=None))),
    metadata_batch(102, *values_of(RemoveTopicRecord(topic_id=bytes(15) + b"\x09"), BeginTransactionRecord())),
    metadata_batch(104, *values_of(TopicRecord(name="never", topic_id=OTHER_ID), AbortTransactionRecord())),
    metadata_batch(106, *values_of(BeginTransactionRecord(name=None))),
    metadata_batch(
        107, *values_of(ProducerIdsRecord(broker_id=7, broker_epoch=5, next_producer_id=5000), EndTransactionRecord())
    ),
)

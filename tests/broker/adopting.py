"""Directories of another Kafka, made small: what `test_adoption.py` and `test_import_dir.py` start from."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from harness import options

from ottla.broker import router
from ottla.broker.clock import ManualClock
from ottla.broker.state import BrokerState
from ottla.protocol.compiler import build
from ottla.protocol.primitives import varint_bytes
from ottla.protocol.records import batch
from ottla.protocol.schema import spec
from ottla.storage.files import DiskFile, DiskFiles, Files

GOLDEN = Path(__file__).parents[1] / "oracle" / "golden" / "logs"
NOW_MS = 1_700_000_000_000
OWN = ("__cluster_metadata-0", "__consumer_offsets-")  # of these the records are read: they are the broker's state
V0 = "#\n#Sat Nov 21 08:21:00 UTC 2026\nbroker.id={}\nversion=0\ncluster.id=sNpOuPz4TNa29sw2dnLt_w\n"


def copy_golden(folder: Path, *topics: str, broker_id: int = 7) -> None:
    """A directory of Kafka 2.8 with some topics that it wrote."""
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
    """The value of any metadata record, in its newest version unless told."""
    declared = spec(type(record))
    chosen = declared.versions.last if version is None else version
    return varint_bytes(1) + varint_bytes(declared.api_key) + varint_bytes(chosen) + build(record, chosen)


def metadata_batch(base_offset: int, *values: bytes, control: bool = False) -> bytes:
    """A batch of metadata records as a KRaft quorum writes it; a control batch has its own, which nobody looks at."""
    key = b"\0\0\0\2" if control else None
    entries = [batch.Record(base_offset + n, NOW_MS, key, value, ()) for n, value in enumerate(values)]
    return bytes(batch.build(entries, base_offset=base_offset, leader_epoch=3, control=control))


def write_file(files: Files, path: str, data: bytes) -> None:
    """A durable file, with the folders that it lies in."""
    files.make_directory(os.path.dirname(path))
    file = files.open(path, create=True)
    file.truncate(0)
    file.write(0, data)
    file.sync()
    file.close()
    files.sync_directory(os.path.dirname(path))


def copy_in(files: Files, source: Path, target: str) -> None:
    """A directory of the real disk, put on another one."""
    for path in sorted(source.rglob("*")):
        inner = f"{target}/{path.relative_to(source)}"
        if path.is_dir():
            files.make_directory(inner)
            files.sync_directory(inner)
        else:
            write_file(files, inner, path.read_bytes())


def begin(files: Files, *folders: str, overrides: dict[str, str] | None = None) -> BrokerState:
    """The broker's state over directories of any disk; needs a running loop."""
    chosen = options([Path(folder) for folder in folders], overrides)
    apis = router.apis_of(chosen.config.profile)
    return BrokerState.open(chosen, {}, apis, ManualClock(NOW_MS), asyncio.get_running_loop(), files)


def finish(state: BrokerState) -> None:
    """Closes it."""
    state.begin_stop()
    state.close()


def told(state: BrokerState) -> dict[str, tuple[bytes, dict[str, str], list[tuple[int, int, int]]]]:
    """What there is: of each topic id and configs, of each partition its first and end offset and its epoch."""
    return {
        topic.name: (
            topic.id,
            topic.config.overrides,
            [(p.log.log_start_offset, p.log.log_end_offset, p.leader_epoch) for p in topic.partitions],
        )
        for topic in state.topics
    }


class CountedFile(DiskFile):
    """A file that tells of what is read of it."""

    __slots__ = ("counts",)
    counts: Counter[str]

    def read(self, position: int, length: int) -> bytes | memoryview:
        self.counts[self._path] += length
        return super().read(position, length)


class CountingFiles(DiskFiles):
    """The real disk; counts the bytes that are read, by path, and the files that are opened."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        self.opened[path] += 1
        file = super().open(path, create=create)
        counted = CountedFile(path, file._fd)
        counted.counts = self.read
        return counted

    def read_bytes(self, path: str) -> bytes:
        data = super().read_bytes(path)
        self.read[path] += len(data)
        return data

    def of_segments(self, what: Counter[str]) -> dict[str, int]:
        """Of the segments and their indexes."""
        suffixes = (".log", ".index", ".timeindex", ".txnindex")
        return {p: n for p, n in what.items() if p.endswith(suffixes) and not any(own in p for own in OWN)}

"""Closed data directories on the real disk with logs in old formats, as of topics older than v2."""

from __future__ import annotations

import random
from pathlib import Path

from ottla.protocol.records import batch, formats, legacy
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import DataDirectory

Row = tuple[int, bytes | None, bytes | None, int]
SHAPES = ((0, 0), (1, 0), (0, 1), (1, 2), (1, 3), (2, 0), (2, 4))


def old_log(chance: random.Random, base: int, count: int, shapes: tuple[tuple[int, int], ...] = SHAPES) -> bytes:
    """Returns about `count` records, in runs of some formats and codecs."""
    data = b""
    offset = base
    while offset < base + count:
        magic, codec = chance.choice(shapes)
        made = [
            batch.Record(
                offset + n,
                1_600_000_000_000 + 7 * (offset + n) - chance.randrange(5) if magic else -1,
                None if chance.random() < 0.2 else b"key %d" % chance.randrange(99),
                None if chance.random() < 0.1 else b"value %d " % (offset + n) * chance.randrange(9),
            )
            for n in range(chance.choice((1, 3, 40)))
        ]
        offset += len(made)
        if magic == 2:
            data += batch.build(made, base_offset=made[0].offset, codec=codec, leader_epoch=0)
        else:
            data += legacy.build(made, magic=magic, codec=codec)
    return data


def old_directory(root: Path, topics: dict[str, int], *, count: int = 200, segments: int = 3) -> Path:
    """Writes as many partitions of each topic as its number; a broker appends to the last segment."""
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    for topic, partitions in topics.items():
        for partition in range(partitions):
            directory.open_partition(topic, partition, config=LogConfig(), now_ms=0)
    directory.close()
    chance = random.Random(1)
    for topic, partitions in topics.items():
        for partition in range(partitions):
            folder = root / f"{topic}-{partition}"
            for path in folder.glob("*.*index"):
                path.unlink()
            base = 0
            for _ in range(segments):
                data = old_log(chance, base, count)
                (folder / f"{base:020d}.log").write_bytes(data)
                base = [header.next_offset for _, header in formats.headers(data)][-1]
    # Opened once like a broker after a kill: creates indexes, snapshots and valid checkpoints.
    (root / ".kafka_cleanshutdown").unlink()
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    for topic, partition in directory.partitions():
        directory.open_partition(topic, partition, config=LogConfig(), now_ms=0)
    directory.close()
    return root


def rows(folder: Path) -> list[Row]:
    """Returns the records of all segments of a partition, and verifies every CRC."""
    found: list[Row] = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        for position, header in formats.headers(data):
            assert formats.crc_matches(data, position, header)
            found += [(r.offset, r.key, r.value, r.timestamp) for r in formats.records(data, position)]
    return found


def magics(root: Path) -> set[int]:
    return {header.magic for path in root.glob("*/*.log") for _, header in formats.headers(path.read_bytes())}


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    """Returns every file's bytes and modification time."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }

"""Shared by the repair tests: a directory with every kind of content, and functions that read it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ottla.storage import inspect
from ottla.storage.check.directory import Finding, Verification
from ottla.storage.check.repair import Options, Repair, Step, backup_place
from ottla.storage.io.copy_on_write import Overlay, ReadOnlyFiles
from ottla.storage.io.files import DiskFile, DiskFiles, Files
from ottla.storage.io.undo_journal import Backup, NoBackup
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import LogConfig
from ottla_testing import GOLDEN
from ottla_testing.storage.batches import make, old, sequenced, storing

DIRECTORIES = GOLDEN / "directories"
RELEASES = ("2.8.2", "3.9.1", "4.3.1")
CONFIG = LogConfig(segment_bytes=1400, index_interval_bytes=200)
TOPIC_ID = bytes(range(16))
HARMLESS = {".lock"}
Tree = dict[str, bytes]


def fill(files: Files, root: str) -> None:
    """Makes a closed directory: two partitions, all formats, producers, several segments, deleted records."""
    directory = DataDirectory.open(files, root, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG, now_ms=0)
    for number in range(24):
        log.append(sequenced(number * 3, 3, timestamp=1000 + number), now_ms=0)
        log.append(make(b"x" * 50, b"%d" % number * 20, timestamp=1000 + number, codec=1), now_ms=0)
    log.delete_records_before(4)
    log = directory.open_partition("orders", 1, topic_id=TOPIC_ID, config=storing(1), now_ms=0)
    for number in range(12):
        log.append(old(1, b"a" * 30, b"%d" % number, timestamp=2000 + number), now_ms=0, produce_version=2)
    directory.close()


def make_sound(root: Path) -> None:
    """Fills a directory, and a partition that Kafka wrote, and closes it."""
    root.mkdir()
    shutil.copytree(GOLDEN / "logs" / "transactions-0", root / "transactions-0")
    fill(DiskFiles(), str(root))
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    directory.open_partition("transactions", 0, config=CONFIG, now_ms=0)
    for number in (0, 1):
        directory.open_partition("orders", number, config=CONFIG, now_ms=0)
    directory.close()


def tree(root: Path) -> Tree:
    found = {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
    return {name: data for name, data in found.items() if Path(name).name not in HARMLESS}


def wrong(root: Path, *, gaps: bool = False) -> list[Finding]:
    verification = Verification(root, may_have_gaps=lambda topic: gaps, topic_ids=lambda: {"orders": TOPIC_ID})
    return [f for f in verification.findings() if f.wrong]


def options(*, skip: bool = False, gaps: bool = False) -> Options:
    return Options(skip, lambda topic: gaps, {"orders": TOPIC_ID}, lambda topic: CONFIG.index_interval_bytes)


def repair(root: Path, *, skip: bool = False, gaps: bool = False, only: str | None = None) -> tuple[list[Step], Path]:
    place = Path(backup_place(str(root)))
    backup = Backup(Unsynced(), str(place), str(root))
    steps = list(Repair(Unsynced(), str(root), backup, options(skip=skip, gaps=gaps), only).run())
    backup.close()
    return steps, place


def dry(root: Path, *, skip: bool = False, gaps: bool = False) -> list[Step]:
    with Overlay(ReadOnlyFiles()) as files:
        backup = NoBackup(files, "/nowhere", str(root))
        return list(Repair(files, str(root), backup, options(skip=skip, gaps=gaps)).run())


def entries(root: Path, folder: str) -> list[tuple[int, bytes]]:
    """Returns offset and bytes of each entry with records, without the fields outside the CRC."""
    found: list[tuple[int, bytes]] = []
    for path in sorted((root / folder).glob("*.log")):
        data = path.read_bytes()
        for one in inspect.segment(path):
            if isinstance(one, inspect.BatchFacts) and one.crc_ok and one.header.record_count:
                end = one.position + one.size_bytes
                found.append((one.header.base_offset, data[one.position + 17 : end]))
    return found


class _UnsyncedFile(DiskFile):
    def sync(self) -> None:
        pass


class Unsynced(DiskFiles):
    """The real disk without syncs, for speed."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return _UnsyncedFile(path, os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644))

    def sync_directory(self, path: str) -> None:
        pass


def log_of(root: Path, number: int = 0, folder: str = "orders-0") -> Path:
    return sorted((root / folder).glob("*.log"))[number]


def facts(path: Path) -> list[inspect.BatchFacts]:
    return [found for found in inspect.segment(path) if isinstance(found, inspect.BatchFacts)]


def change(path: Path, at: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)


def does(steps: list[Step], part: str = "log") -> list[str]:
    return [step.does for step in steps if step.finding.part == part]

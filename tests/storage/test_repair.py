"""Repair: every damage is mended or named, nothing is lost that is not in the backup, and a crash does no harm."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from batches import make, old, sequenced, storing
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage import inspect
from ottla.storage.directory import META_PROPERTIES, DataDirectory
from ottla.storage.files import DiskFile, DiskFiles, Files
from ottla.storage.log import LogConfig
from ottla.storage.overlay import Overlay, ReadOnlyFiles
from ottla.storage.repair import Options, Repair, Step, backup_place
from ottla.storage.saving import Backup, NoBackup, put_back
from ottla.storage.verify import Finding, Verification

GOLDEN = Path(__file__).parents[1] / "oracle" / "golden"
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)
TOPIC_ID = bytes(range(16))
HARMLESS = {".lock"}
Tree = dict[str, bytes]


def fill(files: Files, root: str) -> None:
    """A directory that was closed: two partitions, all formats, producers, several segments, records deleted."""
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


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "data"
    root.mkdir()
    shutil.copytree(GOLDEN / "logs" / "transactions-0", root / "transactions-0")
    fill(DiskFiles(), str(root))
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    directory.open_partition("transactions", 0, config=CONFIG, now_ms=0)
    for number in (0, 1):
        directory.open_partition("orders", number, config=CONFIG, now_ms=0)
    directory.close()
    return root


@pytest.fixture
def copied(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data"))


@pytest.fixture(scope="module")
def again(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """The sound directory anew, at the same place each time."""
    above = tmp_path_factory.mktemp("again")

    def copy() -> Path:
        shutil.rmtree(above)
        return Path(shutil.copytree(sound, above / "data"))

    return copy


def tree(root: Path) -> Tree:
    found = {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
    return {name: data for name, data in found.items() if Path(name).name not in HARMLESS}


def wrong(root: Path, *, gaps: bool = False) -> list[Finding]:
    return [f for f in Verification(root, may_have_gaps=lambda topic: gaps).findings() if f.wrong]


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
    """Offset and bytes behind what lies outside the CRC, of each entry with records."""
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
    """The real disk, quicker."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return _UnsyncedFile(path, os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644))

    def sync_directory(self, path: str) -> None:
        pass


# -- any damage


@given(data=st.data())
def test_any_damage_is_mended_and_can_be_put_back(data: st.DataObject, sound: Path, again: Callable[[], Path]) -> None:
    root = again()
    before = tree(sound)
    name = data.draw(st.sampled_from([name for name in before if before[name] and not name.startswith(".")]))
    was = before[name]
    at = data.draw(st.integers(0, len(was) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "extend", "zeros", "remove"]))
    skip = data.draw(st.booleans())
    byte = data.draw(st.integers(1, 255))
    now = {
        "flip": was[:at] + bytes([was[at] ^ byte]) + was[at + 1 :],
        "cut": was[:at],
        "extend": was + bytes([byte]) * 9,
        "zeros": was[:at] + bytes(min(len(was) - at, 70)) + was[at + 70 :],
        "remove": b"",
    }[how]
    if how == "remove":
        (root / name).unlink()
    else:
        (root / name).write_bytes(now)
    damaged = tree(root)
    told = dry(root, skip=skip)
    assert tree(root) == damaged
    steps, place = repair(root, skip=skip)
    assert [step.does for step in told] == [step.does for step in steps]
    if name == META_PROPERTIES:
        assert [f.file for f in wrong(root)] == [step.finding.file for step in steps if not step.mends]
    else:
        assert all(step.mends for step in steps), steps
        assert wrong(root) == [], (name, how, at, byte)
        assert repair(root)[0] == []
    kept = {folder: entries(root, folder) for folder in ("orders-0", "orders-1", "transactions-0")}
    for folder, found in kept.items():
        true = entries(sound, folder)
        assert set(found) <= set(true) or how in ("flip", "zeros")  # an epoch or a codec bit may be another
        if not name.startswith(folder) or not name.endswith(".log"):
            assert found == true
        elif skip and how == "flip":
            assert len(true) - len(found) <= 2
    if place.exists():
        put_back(Unsynced(), str(root), str(place))
    assert tree(root) == damaged

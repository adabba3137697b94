"""Moves of partitions between the log directories of a broker (KIP-113): during use, and with failures."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.harness import only, produce
from ottla_testing.broker.moving import (
    SMALL,
    begun,
    described,
    faults,
    finished,
    numbered,
    other,
    read,
    request_move,
    running,
    sent,
    slow,
)
from ottla_testing.broker.replica_cases import codes, moving
from ottla_testing.storage.failing_files import CHANGES, FailingFiles


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "one", tmp_path / "two"


def names(folder: Path, topic: str = "t") -> list[str]:
    """The folders of a topic, without the numbers that make names unique."""
    return sorted(
        path.name.split(".")[0] + ("-" + path.name.rpartition("-")[2] if "." in path.name else "")
        for path in folder.glob(f"{topic}-*")
    )


async def test_partition_moves_during_appends_and_reads(folders: tuple[Path, Path]) -> None:
    async with running(*folders) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 60)
        source, target = Path(broker.log("t").directory).parent, other(broker, folders)
        epoch_file = (source / "t-0" / "leader-epoch-checkpoint").read_bytes()
        writing = asyncio.create_task(sent(broker, 60, 60))
        assert await request_move(broker, target) == 0
        await asyncio.gather(writing, finished(broker))
        assert Path(broker.log("t").directory) == target / "t-0"
        assert names(target) == ["t-0"] and names(source) == ["t-0-delete"]
        assert await read(broker) == list(range(120))
        await sent(broker, 120, 20)
        broker.clock.advance(60_000)
        assert names(source) == []
        assert (target / "t-0" / "leader-epoch-checkpoint").read_bytes() == epoch_file
        # The producer's state has moved too: an old batch is a duplicate.
        client = await broker.client()
        again = only(await client.call(produce(numbered(138, b"%050d" % 138), "t"), 9))
        assert (again.error_code, again.base_offset) == (0, 138)
        ahead = only(await client.call(produce(numbered(141, b"x"), "t"), 9))
        assert ahead.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert faults(*folders) == []
    async with running(*folders) as broker:
        assert Path(broker.log("t").directory) == target / "t-0"
        assert await read(broker) == list(range(140))
        await sent(broker, 140, 1)


# Repeated, cancelled, deleted, stopped


async def test_copy_keeps_the_configured_rate(folders: tuple[Path, Path]) -> None:
    async with running(*folders) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 40)
        target = other(broker, folders)
        size_bytes = broker.log("t").size_bytes
        await begun(broker, target)
        assert await described(broker) == {target.name: [(39, True)], folders[target == folders[0]].name: [(0, False)]}
        await slow(broker, 1000)
        seconds = 0
        while broker.state.logs.moving:
            broker.clock.advance(1000)
            seconds += 1
            await broker.state.settle()
        assert abs(seconds - size_bytes / 1000) <= 2
        assert await described(broker) == {target.name: [(0, False)], folders[target == folders[0]].name: []}


async def test_rate_of_0_copies_nothing(folders: tuple[Path, Path]) -> None:
    async with running(*folders) as broker:
        await broker.topic("t")
        await sent(broker, 0, 2)
        target = other(broker, folders)
        await slow(broker, 0)
        assert await request_move(broker, target) == 0
        for _ in range(3):
            await broker.state.settle()
            broker.clock.advance(10_000)
        assert (await described(broker))[target.name] == [(2, True)]
        await slow(broker, 1 << 30)
        broker.clock.advance(1000)
        await finished(broker)
        assert await read(broker) == [0, 1]


async def test_move_back_to_its_directory_cancels_the_move(folders: tuple[Path, Path], tmp_path: Path) -> None:
    third = tmp_path / "three"
    async with running(*folders, third) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 30)
        here = Path(broker.log("t").directory).parent
        second, last = [folder for folder in (*folders, third) if folder != here]
        await begun(broker, second)
        assert await request_move(broker, second) == 0  # again: no effect
        assert names(second) == ["t-0-future"]
        assert await request_move(broker, last) == 0  # another directory
        await broker.state.settle()
        assert (names(second), names(last)) == ([], ["t-0-future"])
        assert await request_move(broker, here) == 0  # back
        await broker.state.settle()
        assert (names(here), names(second), names(last)) == (["t-0"], [], [])
        assert (await described(broker)) == {here.name: [(0, False)], second.name: [], last.name: []}
        assert await read(broker) == list(range(30))


async def test_topic_deleted_during_its_move_leaves_nothing(folders: tuple[Path, Path]) -> None:
    async with running(*folders) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 30)
        target = other(broker, folders)
        await begun(broker, target)
        broker.state.topics.delete(broker.state.topics.named("t"), broker.clock.now_ms())
        await broker.topic("t")  # a new topic of that name
        await broker.state.settle()
        assert "t-0-future" not in names(target) and not broker.state.logs.moving
        await sent(broker, 0, 3)
        assert await read(broker) == [0, 1, 2]
    assert faults(*folders) == []


async def test_move_resumes_after_a_restart(folders: tuple[Path, Path]) -> None:
    async with running(*folders) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 60)
        target = other(broker, folders)
        await begun(broker, target)
    (copy,) = target.glob("t-0.*-future")
    assert sum(path.stat().st_size for path in copy.glob("*.log")) > 0
    async with running(*folders) as broker:
        assert broker.state.logs.moving
        await finished(broker)
        assert Path(broker.log("t").directory) == target / "t-0"
        assert await read(broker) == list(range(60))
        await sent(broker, 60, 2)
    assert faults(*folders) == []


async def test_copy_of_an_unknown_partition_is_put_aside(folders: tuple[Path, Path]) -> None:
    async with running(*folders) as broker:
        await broker.topic("t")
    shutil.copytree(other_of(folders) / "t-0", folders[0] / f"gone-0.{'0' * 32}-future")
    async with running(*folders):
        (left,) = names(folders[0], "gone")
        assert left.endswith("-stray")


def other_of(folders: tuple[Path, Path]) -> Path:
    """The directory with the partition."""
    return next(folder for folder in folders if (folder / "t-0").exists())


# Refusals


async def test_move_of_invalid_partitions_or_directories_is_refused(folders: tuple[Path, Path]) -> None:
    async with running(*folders, brokers=2) as broker:
        broker.state.topics.create("t", 1, {}, 0, [[1]])
        target = other(broker, folders)
        clients = [await broker.client(0), await broker.client(1)]
        requested = moving((str(target), "t", 0))
        assert codes(await clients[1].call(requested, 2)) == {("t", 0): ErrorCode.REPLICA_NOT_AVAILABLE}
        assert await request_move(broker, target.parent) == ErrorCode.LOG_DIR_NOT_FOUND
        assert await request_move(broker, target, "__cluster_metadata") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_new_partition_is_created_in_its_preferred_directory(folders: tuple[Path, Path]) -> None:
    async with running(*folders) as broker:
        for index in range(3):
            assert await request_move(broker, folders[1], "new", index) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await broker.topic("new", 3)
        assert names(folders[1], "new") == ["new-0", "new-1", "new-2"]


# Disks that fail


async def test_move_to_a_failing_directory_ends(folders: tuple[Path, Path]) -> None:
    files = FailingFiles()
    async with running(*folders, files=files) as broker:
        await broker.topic("t", 1, SMALL)
        await broker.topic("u", 1, SMALL)
        metadata = next(folder for folder in folders if (folder / "__cluster_metadata-0").exists())
        topic = next(name for name in ("t", "u") if (metadata / f"{name}-0").exists())
        await sent(broker, 0, 30, topic)
        target = other(broker, folders, topic)
        files.break_down(target, errno.EIO, CHANGES)
        assert await request_move(broker, target, topic) == 0
        await broker.state.settle()
        files.repair()
        assert not broker.state.logs.moving
        assert await request_move(broker, target, topic) == ErrorCode.KAFKA_STORAGE_ERROR
        assert await read(broker, topic) == list(range(30))
        await sent(broker, 30, 2, topic)
    async with running(*folders) as broker:
        await finished(broker)
        assert await read(broker, topic) == list(range(32))


async def test_copy_waits_for_a_full_disk(folders: tuple[Path, Path]) -> None:
    """Each change in the target fails once with ENOSPC; nothing is lost, and the move completes or fails."""
    files = FailingFiles()
    left, target = -1, folders[0]

    def fails(operation: str, path: str) -> int:
        nonlocal left
        if operation not in CHANGES or not path.startswith(str(target)) or "__cluster_metadata" in path:
            return 0
        left -= 1
        return errno.ENOSPC if left == -1 else 0

    async with running(*folders, files=files) as broker:
        await broker.topic("t", 1, {**SMALL, "segment.bytes": "400"})
        await sent(broker, 0, 6)
        moved, is_reached, nth = [], True, 0
        while is_reached:
            target, left = other(broker, folders), nth
            files.fails = fails
            assert await request_move(broker, target) == 0
            for _ in range(3):
                await broker.state.settle()
                broker.clock.advance(1000)
            assert not broker.state.logs.moving
            is_reached, nth = left < 0, nth + 1
            files.repair()
            moved.append(Path(broker.log("t").directory).parent == target)
            assert broker.log("t").log_end_offset == 6
            broker.clock.advance(60_000)
        assert len(moved) > 30 and sum(moved) > len(moved) / 2
        assert await read(broker) == list(range(6))
        await sent(broker, 6, 1)
    async with running(*folders) as broker:
        await finished(broker)
        assert await read(broker) == list(range(7))
    assert faults(*folders) == []


# Kills at any point


class CopyingFiles(FailingFiles):
    """Keeps copies of the files as a process leaves them that is killed before a change or during a write."""

    def __init__(self, folders: tuple[Path, Path], kept: Path) -> None:
        super().__init__()
        self.folders = folders
        self.kept = kept
        self.count = 0
        self.is_on = False
        self._lock = threading.Lock()
        self._last: dict[Path, bytes] = {}

    def step(self, operation: str, path: str, partly: Any = None) -> None:
        if self.is_on and operation in CHANGES:
            self.keep()
            if partly is not None:
                partly()
                self.keep()

    def keep(self) -> None:
        """Keeps a copy unless nothing has changed."""
        with self._lock:
            there = {path: path.read_bytes() for folder in self.folders for path in folder.rglob("*") if path.is_file()}
            if there == self._last:
                return
            self._last = there
            kept = self.kept / str(self.count)
            while True:
                try:
                    for folder in self.folders:
                        shutil.copytree(folder, kept / folder.name, ignore=shutil.ignore_patterns(".lock"))
                except (shutil.Error, FileNotFoundError):  # another thread has removed a file meanwhile
                    shutil.rmtree(kept)
                else:
                    break
            self.count += 1


async def test_kill_at_any_operation_of_a_move_loses_nothing(
    folders: tuple[Path, Path], tmp_path: Path, stride: int
) -> None:
    files = CopyingFiles(folders, tmp_path / "kept")
    async with running(*folders, files=files) as broker:
        await broker.topic("t", 1, {**SMALL, "segment.bytes": "400"})
        await sent(broker, 0, 6)
        target = other(broker, folders)
        files.is_on = True
        assert await request_move(broker, target) == 0
        await finished(broker)
        broker.clock.advance(60_000)  # the old folder is removed
        files.is_on = False
    assert files.count > 20
    wrong = []
    for number in range(random.randrange(stride), files.count, stride):
        kept = tuple(tmp_path / "kept" / str(number) / folder.name for folder in folders)
        assert len(kept) == 2
        async with running(*kept) as broker:
            found = await read(broker)
            await sent(broker, 6, 1)
            await finished(broker)
            found_then = await read(broker)
            lies_in = Path(broker.log("t").directory).parent
            if (
                found != list(range(6))
                or found_then != list(range(7))
                or (kept[0] / "t-0").exists() == (kept[1] / "t-0").exists()
            ):
                wrong.append((number, lies_in.name, len(found), len(found_then), names(kept[0]), names(kept[1])))
        wrong += [(number, fault) for fault in faults(*kept)]
    assert not wrong

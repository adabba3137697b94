"""Disk errors in the process of the log cleaner have the same effect as those in the broker."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.background import cleaner
from ottla.broker.background.cleaner_process import CleanerHere, CleanerProcess, CleaningFailed
from ottla.protocol.records import batch
from ottla.storage.compaction.compaction import Clean, SegmentFacts
from ottla.storage.io.files import DiskFiles
from ottla_testing.broker.harness import Broker, fetch, only, produce, records, running
from ottla_testing.patience import PATIENCE_S

BACKOFF_MS = 15_000


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


async def dirty(broker: Broker, other: Path) -> str:
    """Creates a compacted topic with dirty records in the directory without the metadata; returns its name."""
    for name in ("first", "second"):
        await broker.topic(name, configs={"segment.ms": "1", "cleanup.policy": "compact"})
    (name,) = (path.name.removesuffix("-0") for path in other.glob("*-0"))
    log = broker.log(name)
    for number in range(6):
        broker.clock.advance(2)
        built = batch.build([batch.Record(0, broker.clock.now_ms(), b"key", b"%d" % number)])
        log.append(built, now_ms=broker.clock.now_ms())
    return name


async def test_unreadable_segment_takes_the_directory_offline(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    async with running(*folders) as broker:
        name = await dirty(broker, folders[1])
        oldest = sorted((folders[1] / f"{name}-0").glob("*.log"))[0]
        oldest.rename(tmp_path / "aside")
        oldest.mkdir()  # EISDIR when it is opened
        broker.clock.advance(BACKOFF_MS)
        await until(lambda: broker.state.logs.directories[1].failure is not None)
        await broker.settle()
        client = await broker.client()
        assert only(await client.call(fetch((name, 0, 5)), 11)).error_code == 56
        sound = "second" if name == "first" else "first"
        assert only(await client.call(produce(records(b"v", key=b"k"), sound), 9)).error_code == 0
        broker.clock.advance(10 * BACKOFF_MS)
        assert not broker.state.failed.done()
        oldest.rmdir()
        (tmp_path / "aside").rename(oldest)
    async with running(*folders) as broker:
        client = await broker.client()
        assert only(await client.call(fetch((name, 0, 5)), 11)).error_code == 0


async def test_pass_on_a_full_disk_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(CleanerProcess):
        passes = 0

        def run(self, *given: Any) -> Any:
            Full.passes += 1
            raise CleaningFailed("no room", False, errno.ENOSPC)

    monkeypatch.setattr(cleaner, "CleanerProcess", Full)
    folders = [tmp_path / "one", tmp_path / "two"]
    async with running(*folders) as broker:
        await dirty(broker, folders[1])
        for passes in (1, 2, 3):
            broker.clock.advance(2 * BACKOFF_MS)
            await until(lambda passes=passes: Full.passes >= passes)
            await broker.settle()
        assert broker.state.logs.online == broker.state.logs.directories


@pytest.mark.parametrize("runner", [CleanerProcess, lambda: CleanerHere(DiskFiles())])
def test_cleaning_failure_has_the_errno_of_the_disk_error(
    runner: Callable[[], CleanerProcess | CleanerHere], tmp_path: Path
) -> None:
    task = Clean(
        directory=str(tmp_path / "none"),
        segments=(SegmentFacts(0, 100, 1, 0),),
        first_dirty_offset=0,
        end_offset=1,
        now_ms=0,
        delete_retention_ms=0,
        active_producers={},
    )
    with pytest.raises(CleaningFailed) as raised:
        runner().run(task, 0.0, lambda group: None)
    assert raised.value.errno == errno.ENOENT and not raised.value.is_damage

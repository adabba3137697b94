"""Moves between log directories that a stop or another start interrupts: which ones resume, and which start again."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from ottla.broker.background.log_dir_moves import BEGINNINGS
from ottla.broker.config.values import ConfigSource
from ottla.protocol.records import formats
from ottla.storage.future_log import FutureLog
from ottla_testing.broker.forced_upgrades import FORCED, magics, old_log, put_log
from ottla_testing.broker.moving import (
    RATE,
    SMALL,
    begun,
    faults,
    finished,
    other,
    read,
    request_move,
    running,
    sent,
    slow,
)
from ottla_testing.patience import PATIENCE_S
from ottla_testing.storage.failing_files import FailingFiles


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "one", tmp_path / "two"


async def test_copy_in_old_formats_is_dropped_by_a_forced_upgrade(folders: tuple[Path, Path]) -> None:
    async with running(*folders) as broker:
        await broker.topic("t", 1, SMALL)
        here, target = Path(broker.log("t").directory), other(broker, folders)
    data, rows = old_log()
    put_log(here, data)
    newest = [position + header.size_bytes for position, header in formats.headers(data) if header.magic == 2]
    async with running(*folders) as broker:
        await slow(broker, newest[0])  # up to a batch that stays as it is
        assert await request_move(broker, target) == 0
        await broker.state.settle()
        assert broker.state.logs.moving
    assert len(list(target.glob("t-0.*-future"))) == 1
    async with running(*folders, overrides=FORCED) as broker:
        await finished(broker)
        assert broker.log("t").log_end_offset == rows[-1][0] + 1
    assert magics(*folders) == {2}
    assert faults(*folders) == []


async def test_stop_during_a_move_does_not_wait_for_the_cleaner(folders: tuple[Path, Path]) -> None:
    """A move that waits for a pass of the cleaner ends at once; the pass ends later."""
    async with running(*folders) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 2)
        cleaning = asyncio.get_running_loop().create_future()
        broker.state.moves.cleaning = lambda partition: cleaning
        assert await request_move(broker, other(broker, folders)) == 0
        await asyncio.sleep(0.02)
        async with asyncio.timeout(PATIENCE_S):
            await broker.state.moves.close()
        assert not cleaning.done()
    assert faults(*folders) == []


async def test_move_waiting_for_the_cleaner_is_cancelled_at_once(folders: tuple[Path, Path]) -> None:
    async with running(*folders) as broker:
        await broker.topic("t", 1, SMALL)
        target = other(broker, folders)
        source = next(folder for folder in folders if folder != target)
        cleaning = asyncio.get_running_loop().create_future()
        broker.state.moves.cleaning = lambda partition: cleaning
        assert await request_move(broker, target) == 0
        assert await request_move(broker, source) == 0
        async with asyncio.timeout(PATIENCE_S):
            await broker.state.settle()
        assert not broker.state.logs.moving and not list(target.glob("t-0*"))


async def test_copy_that_failed_to_close_is_not_resumed(folders: tuple[Path, Path]) -> None:
    files = FailingFiles()
    async with running(*folders, files=files) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 20)
        target = other(broker, folders)
        await begun(broker, target)
        files.fails = lambda operation, path: errno.ENOSPC if operation == "sync" and "-future" in path else 0
    assert files.failed and not list(target.glob("*-future"))
    async with running(*folders) as broker:
        assert await read(broker) == list(range(20))
    assert faults(*folders) == []


async def test_stop_during_a_retry_does_not_wait(folders: tuple[Path, Path]) -> None:
    """The copy is lost to a passing error; the stop comes while its files are removed."""
    files = FailingFiles()
    async with running(*folders, files=files) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 20)
        target, loop = other(broker, folders), asyncio.get_running_loop()
        closing: list[asyncio.Task[None]] = []

        def fails(operation: str, path: str) -> int:
            if "-future" not in path:
                return 0
            if operation == "replace" and not closing:
                asyncio.run_coroutine_threadsafe(close(), loop).result(PATIENCE_S)
            return errno.ENOSPC if operation == "sync" and path.endswith(".log") else 0

        async def close() -> None:
            closing.append(asyncio.create_task(broker.state.moves.close()))
            await asyncio.sleep(0)

        files.fails = fails
        broker.state.config.set_dynamic(RATE, str(1 << 30), ConfigSource.DYNAMIC_DEFAULT_BROKER)
        assert await request_move(broker, target) == 0
        async with asyncio.timeout(PATIENCE_S):
            while not closing:
                await asyncio.sleep(0.005)
            await closing[0]
        files.repair()
    async with running(*folders) as broker:
        assert await read(broker) == list(range(20))


async def test_move_completes_when_records_are_deleted_faster_than_copied(folders: tuple[Path, Path]) -> None:
    """The copy starts again at the new log start offset each time."""
    async with running(*folders) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 40)
        target = other(broker, folders)
        await begun(broker, target)
        for number in range(BEGINNINGS + 2):
            broker.log("t").delete_records_before(10 + 4 * number)
            broker.clock.advance(1200)
            await broker.state.settle()
        assert broker.state.logs.moving
        await slow(broker, 1 << 30)
        broker.clock.advance(5000)
        await finished(broker)
        log = broker.log("t")
        assert (Path(log.directory).parent, log.log_start_offset, log.log_end_offset) == (target, 26, 40)
    assert faults(*folders) == []


async def test_failed_move_leaves_no_copy(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FutureLog, "is_part_of", lambda self, source: False)
    async with running(*folders) as broker:
        await broker.topic("t", 1, SMALL)
        await sent(broker, 0, 2)
        target = other(broker, folders)
        assert await request_move(broker, target) == 0
        await broker.state.settle()
        assert not broker.state.logs.moving and not list(target.glob("t-0*"))
        assert not any(log_dir.guests for log_dir in broker.state.logs.directories)

"""A disk with faults: which operations fail, on the real disk and in memory, and how a broker reacts."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.faults.disk import FaultyFiles, place_of
from ottla.broker.faults.rule_set import Faults
from ottla.broker.message_parts import Place
from ottla.broker.testing.faults import FaultsView
from ottla.protocol.records import formats
from ottla.storage.io.files import DiskFiles, Files
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.harness import Client, fetch, only, produce, records, running, values
from ottla_testing.patience import PATIENCE_S

STORAGE_ERROR = 56


@pytest.fixture(params=["disk", "memory"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, FaultsView, str]:
    """(files, their fault rules, a folder for partitions)."""
    inner: Files = DiskFiles() if request.param == "disk" else MemoryFiles(lambda: 0)
    folder = str(tmp_path) if request.param == "disk" else "/data"
    inner.make_directory(f"{folder}/t-0")
    faults = Faults()
    return FaultyFiles(inner, faults), FaultsView(faults), folder


def test_place_of_a_path_is_its_partition() -> None:
    t1 = Place("t", 1)
    assert place_of("/d/t-1/00000000000000000000.log") == place_of("/d/t-1") == t1
    assert place_of("/d/a-b.c-12/x.index") == Place("a-b.c", 12)
    assert place_of(f"/d/t-1.{'0f' * 16}-delete/00000000000000000007.log") == t1
    assert place_of("/d/meta.properties") == place_of("meta.properties") == place_of("/") == Place(None, None)


def failure(action: Callable[[], Any]) -> int:
    """The errno of a failed call; 0 for success."""
    try:
        action()
    except OSError as error:
        assert error.errno and error.filename
        return error.errno
    return 0


def test_reads_and_writes_fail_while_a_rule_is_in_force(made: tuple[Files, FaultsView, str]) -> None:
    files, faults, folder = made
    path = f"{folder}/t-0/a.log"
    file = files.open(path, create=True)
    file.write(0, b"0123456789")
    reads = [lambda: file.read(0, 4), lambda: files.read_bytes(path), lambda: files.size(path)]
    reads += [lambda: files.list(folder + "/t-0"), lambda: files.modified_ns(path), lambda: files.open(path).close()]
    writes = [lambda: file.write(0, b"x"), file.sync, lambda: file.truncate(10), lambda: files.replace(path, path)]
    writes += [lambda: files.sync_directory(folder + "/t-0"), lambda: files.make_directory(folder + "/t-1")]
    writes += [lambda: files.set_modified_ns(path, 10**9), lambda: files.open(path + "b", create=True).close()]
    needs_room = [lambda: file.write(10, b"ab"), lambda: files.open(path + "c", create=True).close()]
    with faults.disk_error("read", topic="t") as fault:
        assert {failure(one) for one in reads} == {errno.EIO}
        assert {failure(one) for one in writes} == {0}
    assert (fault.fired, fault.matched) == (len(reads), len(reads))
    with faults.disk_error("write", path="*.log*"):
        assert {failure(one) for one in reads} == {0}
        assert [failure(one) for one in writes[:4]] == [errno.EIO] * 4
    with faults.disk_error(topic="t", nth=2):
        assert [failure(reads[0]) for _ in range(3)] == [0, errno.EIO, 0]
    with faults.disk_full(topic="t"):
        assert [failure(one) for one in needs_room] == [errno.ENOSPC] * 2
        assert [failure(one) for one in (*reads, file.sync, lambda: file.truncate(10))] == [0] * (len(reads) + 2)
    with faults.disk_error(topic="other"), faults.disk_full(partition=1), faults.disk_error(path="/nowhere*"):
        assert {failure(one) for one in (*reads, *writes, *needs_room)} == {0}
    assert files.exists(path + "c") and not files.exists(path + "d")
    file.close()


def test_full_disk_writes_half_of_the_data(made: tuple[Files, FaultsView, str]) -> None:
    files, faults, folder = made
    file = files.open(f"{folder}/t-0/a.log", create=True)
    with faults.disk_full():
        assert failure(lambda: file.write(0, b"01234567")) == errno.ENOSPC
    assert (file.size(), bytes(file.read(0, 4))) == (4, b"0123")
    file.write(4, b"4567")
    assert bytes(file.read(0, 8)) == b"01234567"
    file.close()


def test_locks_never_fail(made: tuple[Files, FaultsView, str]) -> None:
    files, faults, folder = made
    with faults.disk_error():
        lock = files.lock(f"{folder}/.lock")
        with pytest.raises(BlockingIOError):
            files.lock(f"{folder}/.lock")
        lock.release()


async def codes(client: Client, *partitions: tuple[str, int]) -> list[int]:
    return [only(await client.call(produce(records(b"x"), *one), 9)).error_code for one in partitions]


async def test_full_disk_fails_appends_until_the_rule_is_removed(tmp_path: Path) -> None:
    """Nothing of the failed append is left: the next one follows the last offset."""
    faults = Faults()
    view = FaultsView(faults)
    async with running(tmp_path / "data", faults=faults) as broker:
        for name in ("t", "u"):
            await broker.topic(name)
        client = await broker.client()
        assert await codes(client, ("t", 0)) == [0]
        with view.disk_full(topic="t", path="*.log", times=1) as fault:
            assert await codes(client, ("t", 0), ("u", 0), ("t", 0)) == [STORAGE_ERROR, 0, 0]
        assert fault.fired == 1
        assert values(only(await client.call(fetch(("t", 0, 0)), 11)).records) == [b"x", b"x"]
    async with running(tmp_path / "data") as broker:
        assert broker.log("t").log_end_offset == 2


@pytest.mark.parametrize("on", ["read", "write"])
async def test_disk_error_takes_its_directory_offline(on: str, tmp_path: Path) -> None:
    faults = Faults()
    view = FaultsView(faults)
    async with running(tmp_path / "one", tmp_path / "two", faults=faults) as broker:
        topics = ["t", "u", "v", "w"]
        for name in topics:
            await broker.topic(name)
        client = await broker.client()
        assert await codes(client, *((name, 0) for name in topics)) == [0] * 4
        # The broker cannot run without the metadata directory.
        here = [name for name in topics if not broker.state.logs.metadata_dir.holds(broker.log(name))]
        there = [name for name in topics if name not in here]
        assert here and there
        with view.disk_error(on, topic=here[0], times=1) as fault:
            if on == "write":
                assert await codes(client, (here[0], 0)) == [STORAGE_ERROR]
            else:
                assert only(await client.call(fetch((here[0], 0, 0)), 11)).error_code == STORAGE_ERROR
        assert fault.fired == 1
        await broker.settle()
        assert await codes(client, *((name, 0) for name in here)) == [STORAGE_ERROR] * len(here)
        assert await codes(client, *((name, 0) for name in there)) == [0] * len(there)
        assert not broker.running.failed.done()


async def test_cleaner_fails_by_a_rule_and_retries(tmp_path: Path) -> None:
    faults, clock = Faults(), ManualClock()
    fault = FaultsView(faults).disk_full(topic="t", path="*.cleaned", times=1)
    async with running(tmp_path / "data", faults=faults, clock=clock) as broker:
        await broker.topic("t", 1, {"segment.ms": "1", "cleanup.policy": "compact"})
        log = broker.log("t")
        for key, value in ((b"k", b"1"), (b"k", b"2"), (b"k", b"3"), (b"e", b"x"), (b"e", b"y")):
            clock.advance(2)
            log.append(records(value, key=key, timestamp=clock.now_ms()), now_ms=clock.now_ms())

        def kept() -> list[bytes | None]:
            found, offset = [], log.log_start_offset
            while offset < log.log_end_offset:
                data = log.read(offset, 1 << 20).records
                found += values(data)
                offset = [header.next_offset for _, header in formats.headers(data)][-1]
            return found

        async with asyncio.timeout(PATIENCE_S):
            while len(kept()) > 3:
                clock.advance(15_000)
                await asyncio.sleep(0.005)
        assert fault.fired == 1
        assert kept() == [b"3", b"x", b"y"]  # the active segment is not read


async def test_listener_refuses_connections_while_a_rule_is_in_force(tmp_path: Path) -> None:
    faults = Faults()
    view = FaultsView(faults)
    async with running(tmp_path / "data", faults=faults) as broker:
        await broker.topic("t")
        client = await broker.client()
        with view.refuse():
            with pytest.raises(ConnectionRefusedError):
                await broker.client()
            assert await codes(client, ("t", 0)) == [0]  # open connections stay
        assert await codes(await broker.client(), ("t", 0)) == [0]
        view.refuse()
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(broker.ports[0])
    view.clear()  # after the stop no listener listens again
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(broker.ports[0])

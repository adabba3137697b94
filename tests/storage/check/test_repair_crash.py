"""A repair that is interrupted at any operation, by a kill, a power loss or a disk error, is repeated: it has the same
result, and its backups together still contain every byte."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest

from ottla.protocol.records import batch, formats
from ottla.storage.check.directory import Verification
from ottla.storage.check.repair import Options, Repair, Step, backup_place
from ottla.storage.errors import StorageError
from ottla.storage.format import checkpoint
from ottla.storage.io.undo_journal import Backup, put_back
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import LogConfig
from ottla_testing.storage.batches import make, sequenced
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

ROOT = "/kafka/data"
TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
Tree = dict[str, bytes]


def put(files: SimulatedFiles, name: str, change: Callable[[bytes], bytes]) -> None:
    """Writes a file of the data directory, durably."""
    path = f"{ROOT}/{name}"
    was = bytes(files.contents[path].live) if path in files.contents else b""
    file = files.open(path, create=True)
    file.truncate(0)
    file.write(0, change(was))
    file.sync()
    file.close()


def flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def damaged() -> SimulatedFiles:
    """Returns a directory with every kind of damage."""
    files = SimulatedFiles()
    directory = DataDirectory.open(files, ROOT, node_id=1)
    for partition in (0, 1, 2):
        log = directory.open_partition("orders", partition, topic_id=TOPIC_ID, config=CONFIG, now_ms=0)
        for number in range(9):
            log.append(sequenced(number * 2, 2, timestamp=1000 + number), now_ms=0)
            log.append(make(b"x" * 20, timestamp=1000 + number), now_ms=0)
    directory.close()
    bases = sorted(name for name in files.list(f"{ROOT}/orders-0") if name.endswith(".log"))
    put(files, f"orders-0/{bases[1]}", flipped(200))
    put(files, f"orders-1/{bases[1][:20]}.index", lambda data: data + b"\1" * 5)
    put(files, f"orders-1/{bases[1][:20]}.snapshot", flipped(20))
    put(files, f"orders-1/{bases[2][:20]}.timeindex", flipped(3))
    put(files, f"orders-1/{bases[0][:20]}.log.deleted", lambda _: b"deleted")
    put(files, f"orders-1/{bases[1]}.cleaned", lambda _: b"half cleaned")
    put(files, f"orders-1/{10**6:020d}.index", lambda _: b"of no log")
    put(files, "orders-1/partition.metadata", lambda data: data[:-4])
    put(files, "orders-2/leader-epoch-checkpoint", lambda data: data + b"x")
    put(files, "orders-2/" + bases[2] + ".swap", lambda _: bytes(files.contents[f"{ROOT}/orders-2/{bases[2]}"].live))
    put(files, checkpoint.RECOVERY_POINT, lambda data: data.replace(b"orders 1 27", b"orders 1 28"))
    put(files, checkpoint.REPLICATION_OFFSET, lambda data: data[:-1])
    put(files, "half.tmp", lambda _: b"half")
    files.make_directory(f"{ROOT}/old-0.{'0' * 32}-delete")
    put(files, f"old-0.{'0' * 32}-delete/{bases[0]}", lambda _: b"deleted as well")
    for content in files.contents.values():
        content.sync()
    for path in sorted(files.directories):
        files.sync_directory(path)
    assert b"27" in files.contents[f"{ROOT}/{checkpoint.RECOVERY_POINT}"].live
    return files


@pytest.fixture(scope="module")
def disk() -> SimulatedFiles:
    return damaged()


def tree(files: SimulatedFiles) -> Tree:
    found = {path.removeprefix(ROOT + "/"): bytes(content.live) for path, content in files.contents.items()}
    found |= {path + "/": b"" for path in files.directories if path.startswith(ROOT)}
    return {name: data for name, data in found.items() if not name.startswith("/kafka/o") and name != ".lock"}


def repair(files: SimulatedFiles, skip: bool) -> list[Step]:
    options = Options(skip, lambda topic: False, {}, lambda topic: CONFIG.index_interval_bytes)
    backup = Backup(files, backup_place(ROOT, files), ROOT)
    return list(Repair(files, ROOT, backup, options).run())


def put_all_back(files: SimulatedFiles) -> None:
    places = sorted((name for name in files.list("/kafka") if name != "data"), key=lambda name: int(name[13:]))
    for name in reversed(places):
        with contextlib.suppress(StorageError):  # nothing was changed before the first line of a manifest
            put_back(files, ROOT, f"/kafka/{name}")


def wrong(files: SimulatedFiles) -> list[str]:
    return [f"{f.file}: {f.what}" for f in Verification(ROOT, may_have_gaps=lambda _: False, files=files).findings()]


@pytest.fixture(scope="module", params=[False, True], ids=["cut", "skip"])
def ended(request: pytest.FixtureRequest, disk: SimulatedFiles) -> tuple[bool, Tree, int]:
    """Returns whether damage is left out, the result of an uninterrupted repair, and its number of steps."""
    files = disk.fork()
    steps = repair(files, request.param)
    assert all(step.mends for step in steps)
    assert wrong(files) == []
    assert repair(files, request.param) == []
    result, count = tree(files), files.steps
    put_all_back(files)
    assert tree(files) == tree(disk)
    return request.param, result, count


def stops(count: int, most: int, rng: random.Random) -> list[int]:
    return sorted(rng.sample(range(count), min(most, count)))


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_repair_stopped_anywhere_is_completed_by_the_next(
    disk: SimulatedFiles, ended: tuple[bool, Tree, int], power: bool, scaled: Callable[[int], int]
) -> None:
    skip, result, count = ended
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for at in stops(count, scaled(40), rng):
        files = disk.fork()
        files.fail_at, files.killing, files.portion = at, True, rng.random()
        with pytest.raises(Killed):
            repair(files, skip)
        if power:
            files.crash(rng)
        files.restart()
        if rng.random() < 0.3:  # and once more
            files.fail_at, files.killing = rng.randrange(count), True
            with contextlib.suppress(Killed):
                repair(files, skip)
            if power:
                files.crash(rng)
            files.restart()
        again = files.fork()
        put_all_back(again)
        assert tree(again) == tree(disk), f"stopped at {at}: something is lost"
        assert all(step.mends for step in repair(files, skip))
        assert tree(files) == result, f"stopped at {at}"
        assert wrong(files) == []
        put_all_back(files)
        assert tree(files) == tree(disk), f"stopped at {at}: something is lost"


def test_disk_error_during_repair_loses_nothing(
    disk: SimulatedFiles, ended: tuple[bool, Tree, int], scaled: Callable[[int], int]
) -> None:
    skip, result, count = ended
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for at in stops(count, scaled(25), rng):
        files = disk.fork()
        files.fail_at = at
        try:
            steps = repair(files, skip)
            assert any(not step.mends for step in steps) or tree(files) == result
        except StorageError:
            pass
        files.restart()
        again = files.fork()
        put_all_back(again)
        assert tree(again) == tree(disk), f"failed at {at}: something is lost"
        assert all(step.mends for step in repair(files, skip))
        assert tree(files) == result, f"failed at {at}"


def test_undo_stopped_anywhere_is_completed_by_the_next(disk: SimulatedFiles, scaled: Callable[[int], int]) -> None:
    repaired = disk.fork()
    repair(repaired, False)
    counting = repaired.fork()
    put_all_back(counting)
    rng = random.Random(random.randrange(1 << 32))
    for at in stops(counting.steps, scaled(25), rng):
        files = repaired.fork()
        files.fail_at, files.killing = at, True
        with pytest.raises(Killed):
            put_all_back(files)
        files.restart()
        put_all_back(files)
        assert tree(files) == tree(disk), f"stopped at {at}"


def test_records_above_and_below_the_cut_are_as_expected(disk: SimulatedFiles) -> None:
    whole = [value for n in range(9) for value in (b"%d" % (2 * n), b"%d" % (2 * n + 1), b"x" * 20)]
    for skip in (False, True):
        files = disk.fork()
        repair(files, skip)
        for partition in (1, 2):
            assert read(files, "orders", partition) == list(enumerate(whole))
        found = read(files, "orders", 0)
        missing = [number for number in range(27) if number not in dict(found)]
        assert found == [(number, whole[number]) for number in range(27) if number not in missing]
        assert missing == ([14] if skip else list(range(14, 27)))


def read(files: SimulatedFiles, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
    """Reads offset and value of each record, as a broker reads them, and checks that one append gets the next
    offset."""
    directory = DataDirectory.open(files, ROOT, node_id=1)
    log = directory.open_partition(topic, partition, topic_id=TOPIC_ID, config=CONFIG, now_ms=0)
    found: list[tuple[int, bytes | None]] = []
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        data = bytes(log.read(offset, 1 << 20).records)
        for position, header in formats.headers(data):
            found += [(record.offset, record.value) for record in batch.records(data, position)]
            offset = header.next_offset
    assert log.append(make(b"next"), now_ms=0).base_offset == end
    directory.close()
    return found

"""A save of a directory in use: a copy made then is that of a closed directory."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.storage.errors import DirectoryFailed, OutOfOrderSequence, StorageError
from ottla.storage.io.files import Files
from ottla.storage.io.memory import MemoryFiles
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_BYTES, DataDirectory
from ottla.storage.partition_log import LogConfig, PartitionLog
from ottla_testing.storage.batches import TOPIC_ID, make, sequenced, values
from ottla_testing.storage.simulated_files import SimulatedFiles

DATA = "/data"


def opened(files: Files) -> DataDirectory:
    return DataDirectory.open(files, DATA, node_id=1, make_id=lambda: TOPIC_ID)


def log_of(directory: DataDirectory, topic: str, **config: Any) -> PartitionLog:
    return directory.open_partition(topic, 0, topic_id=TOPIC_ID, config=LogConfig(**config), now_ms=0)


def contents(files: Files, path: str = DATA) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in files.list(path):
        below = f"{path}/{name}"
        try:
            found[below] = files.read_bytes(below)
        except IsADirectoryError:
            found |= contents(files, below)
    return found


def filled(files: Files) -> tuple[DataDirectory, PartitionLog, PartitionLog]:
    directory = opened(files)
    orders, rolled = log_of(directory, "orders"), log_of(directory, "rolled", segment_bytes=2000)
    for number in range(20):
        orders.append(sequenced(number), now_ms=number)
        rolled.append(make(bytes(500)), now_ms=number)
    orders.delete_records_before(3)
    return directory, orders, rolled


def test_copy_after_a_save_equals_a_closed_directory():
    files = MemoryFiles(lambda: 0)
    directory, orders, _ = filled(files)
    assert directory.save()
    copy = files.fork()
    copy.open(f"{DATA}/{CLEAN_SHUTDOWN}", create=True).write(0, CLEAN_SHUTDOWN_BYTES)
    before = contents(copy)
    assert directory.save() and contents(files) | {f"{DATA}/{CLEAN_SHUTDOWN}": CLEAN_SHUTDOWN_BYTES} == before
    assert orders.recovery_point == 20
    directory.close()
    assert contents(files) == before


def test_saves_keep_one_producer_snapshot_in_the_newest_segment():
    files = MemoryFiles(lambda: 0)
    directory = opened(files)
    log = log_of(directory, "orders", segment_bytes=500)
    kept: list[int] = []
    for number in range(30):
        log.append(sequenced(number), now_ms=number)
        directory.save()
        names = [name for name in files.list(f"{DATA}/orders-0") if name.endswith(".snapshot")]
        kept = sorted(int(name.split(".")[0]) for name in names)
        assert kept == sorted({segment.base_offset for segment in log.segments} - {0} | {number + 1})
    assert len(kept) > 3
    directory.close()
    again = opened(files)
    assert log_of(again, "orders").append(sequenced(30), now_ms=0).base_offset == 30
    again.close()


def test_copy_of_a_saved_log_in_use_opens_without_recovery():
    files = MemoryFiles(lambda: 0)
    directory, orders, _ = filled(files)
    directory.save()
    copy = files.fork()
    orders.append(sequenced(20), now_ms=0)
    with pytest.raises(OutOfOrderSequence):
        orders.append(sequenced(30), now_ms=0)
    directory.close()
    copy.open(f"{DATA}/{CLEAN_SHUTDOWN}", create=True).write(0, CLEAN_SHUTDOWN_BYTES)
    for which, end in ((files, 21), (copy, 20)):
        again = opened(which)
        assert again.was_clean
        log = log_of(again, "orders")
        assert values(log) == [b"%d" % number for number in range(3, end)] and log.log_start_offset == 3
        assert log.append(sequenced(end), now_ms=0).base_offset == end  # the producer state is there
        again.close()


def test_crash_after_a_save_loses_no_synced_append():
    files = SimulatedFiles()
    directory, orders, _ = filled(files)
    directory.save()
    orders.append(sequenced(20), now_ms=0)
    orders.flush()
    files.lose_power(lambda path, durable, live: durable)
    again = opened(files)
    assert not again.was_clean
    assert values(log_of(again, "orders")) == [b"%d" % number for number in range(3, 21)]
    again.abandon()


def test_save_with_unopened_partitions_that_need_recovery_is_not_clean():
    files = SimulatedFiles()
    filled(files)
    files.restart()
    again = opened(files)
    log_of(again, "orders")
    assert not again.save()
    log_of(again, "rolled")
    assert again.save()
    again.abandon()


def test_disk_error_during_a_save_fails_the_directory():
    files = SimulatedFiles()
    directory, orders, rolled = filled(files)
    files.failing = lambda operation, path: operation == "sync" and "orders" in path
    with pytest.raises(StorageError):
        directory.save()
    assert directory.failure is not None
    for use in (directory.save, orders.save, rolled.save):
        with pytest.raises(StorageError):
            use()
    directory.close()
    with pytest.raises((DirectoryFailed, StorageError)):
        orders.save()

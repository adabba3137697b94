"""A deleted partition never reappears, under its own name or as the beginning of a new one."""

from __future__ import annotations

import random
from collections.abc import Callable

from ottla.storage.config import LogConfig
from ottla.storage.log_dir.directory import DataDirectory
from ottla_testing.storage.batches import make, values
from ottla_testing.storage.crash_world import DATA, open_directory
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

OLD, NEW = b"\1" * 16, b"\2" * 16


def open_orders(directory: DataDirectory, topic_id: bytes) -> list[bytes | None]:
    log = directory.open_partition("orders", 0, topic_id=topic_id, config=LogConfig(), now_ms=0)
    return values(log)


def again(files: SimulatedFiles) -> list[bytes | None]:
    """Returns the state that a broker finds whose metadata has only the new topic."""
    directory = open_directory(files, random.Random(0))
    for topic, partition in directory.partitions():
        if directory.topic_id(topic, partition) not in (bytes(16), NEW):
            directory.set_aside(topic, partition)
    return open_orders(directory, NEW)


def test_power_loss_gives_a_new_partition_no_records_of_a_deleted_one(scaled: Callable[[int], int]):
    """Nothing of the old partition was synced, so its topic id may be lost and its records there."""
    forks: list[SimulatedFiles] = []
    files = SimulatedFiles()
    directory = open_directory(files, random.Random(0))
    log = directory.open_partition("orders", 0, topic_id=OLD, config=LogConfig(), now_ms=0)
    log.append(make(b"old"), now_ms=0)
    directory.delete_partition("orders", 0)
    files.on_step = lambda step: forks.append(files.fork())
    log = directory.open_partition("orders", 0, topic_id=NEW, config=LogConfig(), now_ms=0)
    log.append(make(b"new"), now_ms=0)
    log.flush()
    directory.close()
    found: set[tuple[bytes | None, ...]] = set()
    for seed in range(max(300, min(1500, scaled(3000)))):
        fork = forks[seed % len(forks)].fork()
        fork.crash(random.Random(seed))
        found.add(tuple(again(fork)))
    assert found == {(), (b"new",)}


def test_deletion_stopped_anywhere_is_finished_at_the_next_open():
    files = SimulatedFiles()
    directory = open_directory(files, random.Random(0))
    log = directory.open_partition("orders", 0, topic_id=OLD, config=LogConfig(), now_ms=0)
    log.append(make(b"old"), now_ms=0)
    log.flush()
    files.sync_directory(DATA)
    forks: list[tuple[Step, SimulatedFiles]] = []
    files.on_step = lambda step: forks.append((step, files.fork()))
    directory.delete_partition("orders", 0)()
    assert len(forks) == 6 and forks[0][0].operation == "rename"
    for number, (_, fork) in enumerate(forks):
        fork.restart()
        opened = open_directory(fork, random.Random(0))
        assert opened.partitions() == ([("orders", 0)] if number == 0 else [])
        assert fork.list(DATA).count("orders-0") == (number == 0)
        assert not [name for name in fork.list(DATA) if name.endswith("-delete")]

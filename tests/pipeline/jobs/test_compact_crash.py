"""A stop at every step of a compaction: all live records are kept, and another run gives the result of an uninterrupted
one."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.compact.configs import Settings
from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.format.checkpoint import read_offsets
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import PartitionLog, TopicIdPartition
from ottla_testing.pipeline.compacting_here import (
    FOLDER,
    ROOT,
    RandomLog,
    SimulatedFiles,
    close,
    compact_directory,
    contents,
    live,
    rows,
)
from ottla_testing.storage.simulated_files import Step

SETTINGS = Settings(segment_bytes=900, index_interval_bytes=100, delete_retention_ms=500)
CHECKPOINT = f"{ROOT}/cleaner-offset-checkpoint"


def closed(rng: random.Random) -> tuple[SimulatedFiles, RandomLog]:
    files, log = SimulatedFiles(), RandomLog(rng)
    for _ in range(4):
        log.segment(6)
    log.segment(2, closing=True)
    log.segment(1)
    log.lay(files)
    close(files)
    return files, log


def opened(files: SimulatedFiles) -> PartitionLog:
    return PartitionLog.open(
        files,
        FOLDER,
        TopicIdPartition("orders", 0),
        config=LogConfig(),
        now_ms=0,
        checkpoints=LogCheckpoints(clean_shutdown=True),
    )


def check(files: SimulatedFiles, wanted: dict[bytes, bytes], whole: SimulatedFiles, end: int) -> None:
    """Checks the state after a stop: a broker opens it, and another run continues."""
    by_broker = files.fork()
    log = opened(by_broker)
    assert log.log_end_offset == end and live(by_broker) == wanted
    log.abandon()
    assert not [name for name in by_broker.list(FOLDER) if name.endswith((".swap", ".cleaned", ".deleted"))]
    compact_directory(files, SETTINGS)
    assert rows(files) == rows(whole) and live(files) == wanted
    assert read_offsets(files, CHECKPOINT) == read_offsets(whole, CHECKPOINT)
    assert not [name for name in files.list(FOLDER) if name.endswith(".compacted")]


@pytest.mark.timeout(900)  # of a soak
def test_compact_stopped_at_any_step_continues(scaled: Callable[[int], int], stride: int) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    for number in range(max(1, scaled(1) // 4)):
        rng = random.Random(seed + number)
        files, _ = closed(rng)
        wanted, end = live(files), opened(files.fork()).log_end_offset
        left: list[SimulatedFiles] = []

        def fork(step: Step, files: SimulatedFiles = files, rng: random.Random = rng, left: list = left) -> None:
            killed = files.fork(step, rng.randrange(10))
            killed.restart()
            without_power = files.fork(step, rng.randrange(10))
            without_power.crash(rng)
            left.extend((killed, without_power))

        files.on_step = fork
        (outcome,) = compact_directory(files, SETTINGS)
        files.on_step = None
        assert outcome.done and live(files) == wanted and len(left) > 150
        for disk in left if scaled(1) > 1 else rng.sample(left, 70 // stride):
            check(disk, wanted, files, end)


@pytest.mark.timeout(900)
def test_compact_disk_error_at_any_step(scaled: Callable[[int], int], stride: int) -> None:
    rng = random.Random()
    before, _ = closed(rng)
    whole = before.fork()
    wanted, end, start = live(before), opened(before.fork()).log_end_offset, before.steps
    compact_directory(whole, SETTINGS)
    steps = range(start, whole.steps)
    for step in steps if scaled(1) > 1 else rng.sample(steps, 40 // stride):
        files = before.fork()
        files.fail_at = step
        with pytest.raises((ReadError, StorageError, OSError)):
            compact_directory(files, SETTINGS)
        files.fail_at = None
        files.locked.clear()
        check(files, wanted, whole, end)


def test_compact_dry_run_changes_nothing_and_second_run_is_empty() -> None:
    files, log = closed(random.Random(3))
    from ottla.pipeline.jobs.compact.steps import plan_partition
    from ottla.pipeline.jobs.in_place.directory_hold import held

    before, steps = contents(files), files.steps
    with held(ROOT, files=files, looking=True) as holding:
        plan = plan_partition(holding, "orders", 0, SETTINGS, now_ms=10_000)
    assert plan.groups and plan.rewritten_bytes and files.steps == steps and contents(files) == before
    compact_directory(files, SETTINGS)
    assert read_offsets(files, CHECKPOINT) == {("orders", 0): log.end_offset}
    after = contents(files)
    (outcome,) = compact_directory(files, SETTINGS, now_ms=1 << 40)
    assert not outcome.done and contents(files) == after

"""Compaction by offsets from a shuffle gives the cleaner's result, byte for byte."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ottla.pipeline.jobs.compact import thinned_batches
from ottla.pipeline.readers.columnar import upgrade
from ottla_testing.pipeline.compacting_here import (
    FOLDER,
    ROOT,
    RandomLog,
    SimulatedFiles,
    compact_here,
    contents,
    plan_of,
    run,
    task,
)


def laid(rng: random.Random) -> tuple[SimulatedFiles, RandomLog]:
    files, log = SimulatedFiles(), RandomLog(rng, rng.choice([2, 8, 40]), old_formats=rng.random() < 0.7)
    for _ in range(rng.randrange(1, 6)):
        log.segment(rng.choice([0, 1, 4, 12]))
    log.segment(2, closing=True)
    log.segment(1)
    log.lay(files)
    return files, log


@pytest.mark.timeout(900)  # of a soak
@pytest.mark.parametrize("least_records", [1, 20])
def test_compact_random_log_equals_cleaner(
    scaled: Callable[[int], int], monkeypatch: pytest.MonkeyPatch, least_records: int
) -> None:
    """Includes second passes, which begin anywhere; batches are handled together, and one by one."""
    monkeypatch.setattr(thinned_batches, "LEAST_RECORDS", least_records)
    monkeypatch.setattr(upgrade, "LEAST_ENTRIES", least_records // 4)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    for number in range(scaled(25)):
        rng = random.Random(seed + number)
        files, log = laid(rng)
        end, now_ms, dirty = log.end_offset, 10_000, rng.choice([0, 0, rng.randrange(log.end_offset + 1)])
        for _ in range(3):
            theirs = files.fork()
            options = {
                "now_ms": now_ms,
                "active_producers": log.producers if rng.random() < 0.7 else {},
                "segment_bytes": rng.choice([1, 400, 1 << 30]),
                "segment_index_bytes": rng.choice([8, 64, 10 << 20]),
                "index_interval_bytes": rng.choice([1, 100, 4096]),
                "keep_empty_at_end": rng.random() < 0.5,
                "delete_horizon": rng.random() < 0.7,
                "keep_old_formats": rng.random() < 0.3,
                "dedupe_buffer_bytes": 1 << 20,
            }
            done = run(theirs, task(theirs, dirty, end, **options))
            assert done.end_offset == end
            plan = plan_of(files, task(files, dirty, end, **options))
            (outcome,) = compact_here(files, [plan], rows=rng.choice([1, 3, 1 << 20]), rng=rng)
            assert contents(files) == contents(theirs), (seed + number, options)
            assert outcome.done or not plan.groups
            now_ms += rng.choice([0, 499, 500, 1000])
            dirty = rng.choice([0, end, rng.randrange(end + 1)])
        assert sorted(files.list(ROOT)) == ["cleaner-offset-checkpoint", FOLDER.rsplit("/", 1)[1]]

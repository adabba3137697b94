"""Segments swapped in while the log is in use: readers of the old ones finish, and a crash leaves the old or the new
ones."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records import batch
from ottla.protocol.records.validate import Rules
from ottla.storage.compaction.rewrite import Limits, Source, Target, Verdict, every, none, rewrite
from ottla.storage.errors import StorageError
from ottla.storage.log.retention import Removed
from ottla.storage.partition_log import LogConfig, PartitionLog, TimestampOffset
from ottla_testing.storage.batches import FOLDER, offsets, open_log, sequenced
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=90)
CLEANED = LogConfig(segment_bytes=300, index_interval_bytes=90, rules=Rules(compacted=True))
BATCHES = 16


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def filled(files: SimulatedFiles) -> PartitionLog:
    log = open_log(files, config=CONFIG)
    for number in range(BATCHES):
        log.append(sequenced(2 * number, 2, timestamp=number), now_ms=0)
    return log


def replaced(files: SimulatedFiles, log: PartitionLog, keep: set[int], count: int, *, headers: bool = False) -> Removed:
    """Replaces the oldest segments by one that has only the batches with these base offsets, and with `headers` the
    headers of the others."""
    old = log.segments[:-1][:count]
    made = rewrite(
        files,
        [Source(segment.path(".log"), segment.size_bytes) for segment in old],
        Target(
            FOLDER, old[0].base_offset, CONFIG.index_interval_bytes, end_offset=old[-1].next_offset, limits=Limits()
        ),
        choose=lambda header, *_: Verdict(every if header.base_offset in keep else none, keep_empty=headers),
    )
    return log.replace_segments(made, [segment.base_offset for segment in old])


def test_log_continues_with_the_new_segments(files: SimulatedFiles) -> None:
    log = filled(files)
    kept, before, end = {2, 8}, offsets(log), log.log_end_offset
    size, known, held = log.size_bytes, dict(log.producers()), bytes(log.read(0, 1 << 20).records)
    bases = [segment.base_offset for segment in log.segments[:-1]]
    closed_end = bases[3]
    slice_of_old = log.read(0, 1 << 20).records
    scan = log.duplicate_scan(batch.read_header(sequenced(0, 2)))
    removed = replaced(files, log, kept, 3)
    assert offsets(log) == [2, 3, 8, 9, *(offset for offset in before if offset >= closed_end)]
    assert log.log_end_offset == end and log.producers() == known and log.log_start_offset == 0
    assert [segment.base_offset for segment in log.segments[:-1]] == [bases[0], *bases[3:]]
    assert size - log.size_bytes == removed.size_bytes - log.segments[:-1][0].size_bytes > 0
    assert bytes(slice_of_old) == held and scan and (copy := scan()) and copy.base_offset == 0
    renamed = [name for name in files.list(FOLDER) if name.endswith(".deleted")]
    assert len([name for name in renamed if name.endswith(".log.deleted")]) == 3
    assert {f"{bases[1]:020d}.snapshot.deleted", f"{bases[2]:020d}.snapshot.deleted"} <= set(renamed)
    removed.remove()
    assert not [name for name in files.list(FOLDER) if name.endswith(".deleted")]
    log.append(sequenced(2 * BATCHES, 2), now_ms=0)
    found, known = offsets(log), dict(log.producers())
    log.close()
    log = open_log(files, config=CONFIG)
    assert offsets(log) == found and set(log.producers()) == set(known)


def test_header_without_records_has_not_the_largest_timestamp(files: SimulatedFiles) -> None:
    """Compaction keeps it for the sequences of its producer, with the timestamp of a record that is gone."""
    log = open_log(files, config=CONFIG)
    for number, timestamp in enumerate((5, 70, 9, 60, 8, 7, 6)):
        log.append(sequenced(2 * number, 2, timestamp=timestamp), now_ms=0)
    assert log.max_timestamp() == TimestampOffset(70, 2, 0)
    assert len(log.segments) > 2
    replaced(files, log, {0}, 2, headers=True)
    offsets_left = offsets(log)
    assert {0, 1} < set(offsets_left) and not {2, 3} & set(offsets_left)
    for _ in range(2):
        expected = max(times(log), key=lambda found: (found.timestamp_ms, -found.offset))
        assert log.max_timestamp() == expected
        log.close()
        log = open_log(files, config=CONFIG)


def times(log: PartitionLog) -> list[TimestampOffset]:
    """The timestamp and the offset of each record."""
    found: list[TimestampOffset] = []
    for offset in offsets(log):
        data = bytes(log.read(offset, 1).records)
        record = next(one for one in batch.records(data) if one.offset == offset)
        found.append(TimestampOffset(record.timestamp, offset, 0))
    return found


@pytest.mark.parametrize("wrong", ["not the first", "with the newest", "with a hole", "none"])
def test_swap_of_other_than_consecutive_closed_segments_is_refused(files: SimulatedFiles, wrong: str) -> None:
    log = filled(files)
    bases = [segment.base_offset for segment in log.segments[:-1]]
    old = {
        "not the first": bases[1:3],
        "with the newest": [*bases, log.segments[-1].base_offset],
        "with a hole": [bases[0], bases[2]],
        "none": [],
    }[wrong]
    made = rewrite(
        files,
        [Source(log.segments[:-1][0].path(".log"), log.segments[:-1][0].size_bytes)],
        Target(FOLDER, bases[0], 90),
    )
    with pytest.raises(StorageError, match="not a run of closed segments"):
        log.replace_segments(made, old)
    assert offsets(log) == list(range(2 * BATCHES))


def until_done(step: Callable[[int], bool]) -> int:
    number = 0
    while step(number):
        number += 1
    return number


def partly(after: list[int], bases: list[int], end: int) -> list[list[int]]:
    """Returns the new contents, alone and with some of the newest old segments after its last record: these may be
    deleted later."""
    staying = [number for number in (1, 2) if bases[number] >= end]
    return [after, *([*after[: after.index(bases[3])], *range(bases[number], 2 * BATCHES)] for number in staying)]


@settings(max_examples=max(1, settings().max_examples // 6))
@given(seed=st.integers(0, 2**32))
def test_crash_at_any_step_leaves_old_or_new_segments(seed: int) -> None:
    rng, kept = random.Random(seed), {0, 4, 10}

    def stopped_at(number: int) -> bool:
        files = SimulatedFiles()
        log = filled(files)
        log.flush()
        before = offsets(log)
        bases = [segment.base_offset for segment in log.segments[:-1]]
        after = [*(o for base in sorted(kept) for o in (base, base + 1)), *range(bases[3], 2 * BATCHES)]
        start = files.steps
        files.fail_at, files.killing = start + number, True
        try:
            replaced(files, log, kept, 3).remove()
            log.abandon()
            done = True
        except Killed:
            done = False
        files.crash(rng) if rng.random() < 0.5 else files.restart()
        log = open_log(files, config=CLEANED, clean=False, recovery_point=rng.choice((0, 2 * BATCHES)))
        found = offsets(log)
        assert found in (before, *partly(after, bases, 12))
        assert not done or found == after
        assert not [name for name in files.list(FOLDER) if name.endswith((".cleaned", ".swap", ".deleted"))]
        log.configure(CONFIG)
        assert log.append(sequenced(2 * BATCHES, 2), now_ms=0).base_offset == 2 * BATCHES
        assert log.append(sequenced(2 * BATCHES - 2, 2), now_ms=0).duplicate
        return not done

    assert until_done(stopped_at) > 20


def test_error_during_a_swap_takes_the_log_offline_until_reopened() -> None:
    states: set[str] = set()

    def failing_at(number: int) -> bool:
        files = SimulatedFiles()
        log = filled(files)
        bases = [segment.base_offset for segment in log.segments[:-1]]
        reported: list[int | None] = []
        log.on_failure = lambda log, error: reported.append(error.errno)
        before = offsets(log)
        start = files.steps
        files.fail_at, files.fail_with = start + number, errno.EIO
        try:
            replaced(files, log, {0}, 3)
        except StorageError:
            if log.failure is None:  # during the rewrite: the log is unchanged
                states.add("as before")
                assert offsets(log) == before
            else:
                states.add("offline")
                with pytest.raises(StorageError, match="a swap of segments was interrupted"):
                    log.read(0, 100)
                log.abandon()
                log = open_log(files, config=CLEANED, clean=False)
                assert offsets(log) in (before, *partly([0, 1, *range(bases[3], 2 * BATCHES)], bases, 2))
            return True
        assert log.failure is None
        return files.steps > start + number  # an error without consequences

    until_done(failing_at)
    assert states == {"as before", "offline"}

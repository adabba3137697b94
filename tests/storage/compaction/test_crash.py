"""A pass interrupted at every step: the reopened log has the same last values, and a later pass finishes."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import Record
from ottla.protocol.records.validate import Rules
from ottla.storage.compaction.compaction import Clean, Cleaned, Group, SegmentFacts, active_producers, clean
from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.partition_log import PartitionLog
from ottla_testing.protocol.batches import batch_of
from ottla_testing.storage.batches import FOLDER, open_log
from ottla_testing.storage.compacting import Row, last_values, rows
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, rules=Rules(compacted=True))
NOW = 50_000


def filled(files: SimulatedFiles, rng: random.Random) -> PartitionLog:
    log = open_log(files, config=CONFIG)
    sequences = {7: 0, 8: 0}
    for number in range(40):
        records = [
            Record(n, 1000 + number, b"k%d" % rng.randrange(8), None if rng.random() < 0.25 else b"%d.%d" % (number, n))
            for n in range(rng.randrange(1, 4))
        ]
        producer = rng.choice([7, 8, -1])
        fields: dict[str, int] = {}
        if producer >= 0:
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            sequences[producer] += len(records)
        log.append(batch_of(records, **fields), now_ms=1000)  # type: ignore[arg-type]
    log.flush()
    return log


def what(log: PartitionLog, files: SimulatedFiles, first_dirty: int, now_ms: int = NOW) -> Clean:
    segments = tuple(
        SegmentFacts(s.base_offset, s.size_bytes, s.next_offset, files.modified_ns(s.path(".log")))
        for s in log.segments[:-1]
    )
    return Clean(
        FOLDER, segments, first_dirty, log.segments[-1].base_offset, now_ms, 100, active_producers(log.producers()),
        segment_bytes=1200, index_interval_bytes=100, dedupe_buffer_bytes=24 * 6,
    )  # fmt: skip


def one_pass(log: PartitionLog, files: SimulatedFiles, first_dirty: int = 0, now_ms: int = NOW) -> int:
    for found in clean(files, what(log, files, first_dirty, now_ms)):
        if isinstance(found, Cleaned):
            return found.end_offset
        log.replace_segments(found.new, found.old).remove()
    raise AssertionError


def all_passes(log: PartitionLog, files: SimulatedFiles, now_ms: int = NOW) -> None:
    dirty = 0
    while dirty < log.segments[-1].base_offset:
        dirty = one_pass(log, files, dirty, now_ms)


def stored(files: SimulatedFiles, log: PartitionLog) -> list[Row]:
    """Returns the contents of the folder, compared with those of the log."""
    found = rows(files)
    seen, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1 << 20).records)
        assert data
        for position, header in formats.headers(data):
            seen += [(record.offset, record.key, record.value) for record in batch.records(data, position)]
            offset = header.next_offset
    assert seen == found
    return found


def check(files: SimulatedFiles, wanted: dict[bytes, bytes], end: int, sequences: dict[int, int]) -> None:
    """Opens the folder after the interruption, and continues to work with it."""
    log = open_log(files, config=CONFIG, clean=False, recovery_point=end)
    names = files.list(FOLDER)
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]
    assert log.log_end_offset == end and last_values(stored(files, log)) == wanted
    assert {key: known.batches[-1].last_sequence for key, known in log.producers().items()} == sequences
    for now_ms in (NOW, NOW + 100):
        all_passes(log, files, now_ms)
        assert last_values(stored(files, log)) == wanted
        closed = [row for row in rows(files) if row[0] < log.segments[-1].base_offset]
        assert len({row[1] for row in closed}) == len(closed)
    # The tombstones have expired: they remain only in the active segment.
    assert all(row[2] is not None for row in closed)
    log.append(
        batch.build(
            [Record(0, 1, b"k", b"v")],
            batch.BatchFields(producer_id=7, producer_epoch=0, base_sequence=sequences[7] + 1),
        ),
        now_ms=2000,
    )
    log.close()


def test_crash_at_any_step_of_a_pass_loses_nothing(scaled: Callable[[int], int], stride: int) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    for number in range(scaled(2)):
        rng = random.Random(seed + number)
        files = SimulatedFiles()
        log = filled(files, rng)
        wanted, end = last_values(stored(files, log)), log.log_end_offset
        sequences = {key: known.batches[-1].last_sequence for key, known in log.producers().items()}
        left: list[SimulatedFiles] = []

        def fork(step: Step, files: SimulatedFiles = files, rng: random.Random = rng, left: list = left) -> None:
            killed = files.fork(step, rng.randrange(10))
            killed.restart()
            without_power = files.fork(step, rng.randrange(10))
            without_power.crash(rng)
            left.extend((killed, without_power))

        files.on_step = fork
        all_passes(log, files, NOW - 200)
        files.on_step = None
        assert len(left) > 200
        for disk in left if scaled(1) > 1 else rng.sample(left, len(left) // (3 * stride)):
            check(disk, wanted, end, sequences)


def test_disk_error_at_any_step_of_a_pass_loses_nothing(scaled: Callable[[int], int]) -> None:
    """Until the swap the log stays unchanged and in use; within it, it is offline until it is opened again. Both raise
    an error."""
    rng = random.Random(5)
    whole = SimulatedFiles()
    filled(whole, rng).close()
    step, outcomes = 0, set[str]()
    while True:
        files = whole.fork()
        log = open_log(files, config=CONFIG)
        wanted, end = last_values(stored(files, log)), log.log_end_offset
        sequences = {key: known.batches[-1].last_sequence for key, known in log.producers().items()}
        files.fail_at, files.fail_with = files.steps + step, rng.choice([errno.EIO, errno.ENOSPC])
        try:
            one_pass(log, files)
        except StorageError:
            outcomes.add("offline" if log.failure else "as before")
            files.fail_at = None
            if not log.failure:
                assert last_values(stored(files, log)) == wanted
                one_pass(log, files)
                log.close()
        else:
            outcomes.add("done")
            if files.fail_at is not None and files.steps <= files.fail_at:
                break
        files.restart()
        check(files, wanted, end, sequences)
        step += 1 if scaled(1) > 1 else 2
    assert outcomes == {"done", "offline", "as before"} and step > 20


def test_groups_not_swapped_in_are_removed_at_the_next_open() -> None:
    files = SimulatedFiles()
    log = filled(files, random.Random(1))
    before = rows(files)
    found = list(clean(files, what(log, files, 0)._replace(segment_bytes=500)))
    assert sum(isinstance(group, Group) for group in found) > 1
    log.close()
    log = open_log(files, config=CONFIG)
    assert rows(files) == before and not [name for name in files.list(FOLDER) if name.endswith(".cleaned")]

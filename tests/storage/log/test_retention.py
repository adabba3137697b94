"""The segments that retention deletes, compared with a model with a clock of its own; and side effects of a
deletion."""

from __future__ import annotations

import dataclasses
import errno
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.protocol.records import batch
from ottla.storage import errors
from ottla.storage.config import LogConfig
from ottla.storage.io.files import MAP_BYTES, DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import PartitionLog, TopicIdPartition
from ottla.storage.producers import snapshot
from ottla.storage.producers.producer_state import ProducerRules
from ottla_testing.patience import PATIENCE_S
from ottla_testing.storage.batches import FOLDER, make, old, open_log, sequenced, storing, values
from ottla_testing.storage.simulated_files import SimulatedFile, SimulatedFiles

EACH = LogConfig(segment_bytes=100, retention_ms=-1)  # so small that each batch of these tests has its own segment


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def fill(log: PartitionLog, *timestamps: int, now_ms: int = 0) -> None:
    for timestamp in timestamps:
        log.append(make(b"%d" % timestamp, timestamp=timestamp), now_ms=now_ms)


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log._segments]


def names(files: SimulatedFiles, suffix: str) -> list[int]:
    return sorted(int(name[:20]) for name in files.list(FOLDER) if name.endswith(suffix) and name[0].isdigit())


# -- the model


@dataclasses.dataclass
class ModelSegment:
    """`batches` are (timestamp, bytes) of one record each; `changed_ms` is when the file was last written."""

    base: int
    created_ms: int
    changed_ms: int
    batches: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    @property
    def end(self) -> int:
        return self.base + len(self.batches)

    @property
    def size(self) -> int:
        return sum(size for _, size in self.batches)

    @property
    def time_ms(self) -> int:
        largest = max((timestamp for timestamp, _ in self.batches), default=-1)
        return largest if largest >= 0 else self.changed_ms


class Model:
    """Kafka's rules over a plain list, implemented a second time."""

    def __init__(self) -> None:
        self.segments = [ModelSegment(0, 0, 0)]
        self.log_start = 0

    @property
    def end(self) -> int:
        return self.segments[-1].end

    def append(self, timestamp: int, size: int, config: LogConfig, now_ms: int) -> None:
        active = self.segments[-1]
        if active.batches:
            first = active.batches[0][0]
            waited = timestamp - first if first >= 0 else now_ms - active.created_ms
            if active.size > config.segment_bytes - size or waited > config.segment_ms:
                self.segments.append(active := ModelSegment(active.end, now_ms, now_ms))
        active.batches.append((timestamp, size))
        active.changed_ms = now_ms

    def retain(self, config: LogConfig, now_ms: int) -> list[int]:
        """Returns the base offsets of the deleted segments."""
        gone: list[int] = []

        def take(goes: Callable[[ModelSegment, int], bool]) -> None:
            while self.segments and goes(self.segments[0], sum(segment.size for segment in self.segments)):
                segment = self.segments[0]
                if len(self.segments) == 1:
                    if not segment.batches:
                        return
                    self.segments.append(ModelSegment(segment.end, now_ms, now_ms))
                gone.append(segment.base)
                del self.segments[0]
                self.log_start = max(self.log_start, self.segments[0].base)

        take(lambda segment, total: len(self.segments) > 1 and self.segments[1].base <= self.log_start)
        if config.deletes and config.retention_bytes >= 0:
            take(lambda segment, total: total - segment.size >= config.retention_bytes)
        if config.deletes and config.retention_ms >= 0:
            take(lambda segment, total: now_ms - segment.time_ms > config.retention_ms)
        return gone


def chosen(rng: random.Random) -> LogConfig:
    return LogConfig(
        segment_bytes=rng.choice((100, 200, 500)),
        segment_ms=rng.choice((20, 10**9)),
        retention_ms=rng.choice((-1, 0, 10, 50, 200)),
        retention_bytes=rng.choice((-1, -1, 0, 150, 400)),
        deletes=rng.random() < 0.8,
        index_interval_bytes=rng.choice((0, 4096)),
    )


def test_any_operations_equal_the_model(scaled: Callable[[int], int]):
    first = random.randrange(1 << 32)
    print("the first seed is", first)
    for seed in range(first, first + scaled(60)):
        compare(random.Random(seed), f"seed {seed}")


def compare(rng: random.Random, seed: str) -> None:
    files, model, config, now_ms = SimulatedFiles(), Model(), chosen(rng), 1000
    files.now_ns = now_ms * 10**6
    log = PartitionLog.open(
        files,
        FOLDER,
        TopicIdPartition("orders", 0),
        config=config,
        now_ms=now_ms,
        checkpoints=LogCheckpoints(clean_shutdown=True),
    )
    model.segments[0].created_ms = model.segments[0].changed_ms = now_ms
    taken = 0
    for _ in range(50):
        now_ms += rng.choice((0, 1, 5, 40))
        files.now_ns = now_ms * 10**6
        work = rng.random()
        if work < 0.55:
            timestamp = rng.choice((-1, now_ms, now_ms, now_ms - rng.randint(0, 60), now_ms + rng.randint(0, 60)))
            data = make(b"x" * rng.randint(1, 20), timestamp=timestamp)
            model.append(timestamp, len(data), config, now_ms)
            log.append(data, now_ms=now_ms)
        elif work < 0.8:
            removed = log.retain(now_ms)
            gone = model.retain(config, now_ms)
            assert [segment.base_offset for segment in removed.segments if removed] == gone if removed else not gone, (
                seed
            )
            assert log.retain(now_ms) is None, seed  # nothing is left to do
            taken += len(gone)
            if removed is not None and rng.random() < 0.7:
                assert names(files, ".log.deleted")
                removed.remove()
        elif work < 0.87:
            model.log_start = rng.randint(model.log_start, model.end)
            log.delete_records_before(model.log_start)
        elif work < 0.93:
            config = dataclasses.replace(chosen(rng), index_interval_bytes=config.index_interval_bytes)
            log.configure(config)
        else:
            clean = rng.random() < 0.5
            if clean:
                log.close()
            else:
                log.abandon()
            log = PartitionLog.open(
                files,
                FOLDER,
                TopicIdPartition("orders", 0),
                config=config,
                now_ms=now_ms,
                checkpoints=LogCheckpoints(clean_shutdown=clean, log_start_offset=model.log_start),
            )
            assert names(files, ".log.deleted") == []
            for segment in model.segments:
                segment.created_ms = now_ms
        sizes = [(segment.base, segment.size) for segment in model.segments]
        assert [(segment.base_offset, segment.size_bytes) for segment in log._segments] == sizes, seed
        found = (log.log_start_offset, log.log_end_offset, log.size_bytes)
        assert found == (model.log_start, model.end, sum(size for _, size in sizes)), seed
        assert len(values(log)) == model.end - model.log_start, seed
        assert names(files, ".log") == [base for base, _ in sizes], seed


# -- details


def test_segments_without_timestamps_expire_by_file_time(files: SimulatedFiles):
    config = storing(0, segment_bytes=100, retention_ms=50)
    log = open_log(files, config=config)
    for now_ms in (1000, 1010, 1020):
        files.now_ns = now_ms * 10**6
        log.append(old(0, b"x" * 40), now_ms=now_ms, produce_version=1)
    files.now_ns = 5000 * 10**6
    assert log.retain(1050) is None  # as old as retention.ms, not older
    assert log.retain(1051) is not None and bases(log) == [1, 2]
    log.close()
    log = open_log(files, config=config, log_start_offset=1)
    assert log.retain(1060) is None and log.retain(1061) is not None and bases(log) == [2]


def test_upgraded_segment_without_timestamps_keeps_its_file_time(files: SimulatedFiles):
    log = open_log(files, config=storing(0, segment_bytes=100, retention_ms=50))
    files.now_ns = 1000 * 10**6
    log.append(old(0, b"x" * 40), now_ms=1000, produce_version=1)
    log.close()
    files.now_ns = 9000 * 10**6
    log = open_log(files, config=LogConfig(retention_ms=50), upgrade=lambda progress: None)
    assert log.retain(1050) is None and log.retain(1051) is not None and log.log_start_offset == 1


@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("reopened", [True, False])
def test_producers_epochs_and_snapshots_of_deleted_segments_are_removed(
    files: SimulatedFiles, drops: bool, reopened: bool
):
    rules = ProducerRules(drop_below_log_start=drops)
    log = open_log(files, config=dataclasses.replace(EACH, producer_rules=rules))
    for number, producer_id in enumerate((1, 2, 1, 3)):
        log.leader_epoch = number
        log.append(sequenced(int(number == 2), producer_id=producer_id), now_ms=0)
    assert bases(log) == [0, 1, 2, 3] == [0, *names(files, ".snapshot")]
    log.delete_records_before(2)
    removed = log.retain(0)
    assert removed is not None and (bases(log), names(files, ".snapshot")) == ([2, 3], [2, 3])
    assert names(files, ".snapshot.deleted") == [1]
    assert files.read_bytes(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n2\n2 2\n3 3\n"
    if reopened:
        log.close()
        log = open_log(files, config=log.config, log_start_offset=2)
        # In releases that keep producers without batches, they are only in a snapshot; the one at 2 is deleted, too.
        assert set(log.producers()) == ({1, 3} if drops else {1, 2, 3})
    else:
        removed.remove()
        assert set(log.producers()) == ({1, 3} if drops else {1, 2, 3})
    assert log.end_offset_for_epoch(1) == (1, 2) and log.end_offset_for_epoch(2) == (2, 3)
    assert not [name for name in files.list(FOLDER) if name.endswith(".deleted")]
    assert log.append(sequenced(1, producer_id=1), now_ms=0).duplicate


@pytest.mark.parametrize("number", range(9))
def test_error_between_renames_is_finished_by_the_next_pass(files: SimulatedFiles, number: int):
    """A log that was renamed is gone, its index or snapshot may stay; one that was not is still a part of the log."""
    log = open_log(files, config=dataclasses.replace(EACH, retention_bytes=0))
    for sequence in range(4):
        log.append(sequenced(sequence), now_ms=0)
    log.flush()
    renames: list[str] = []

    def failing(operation: str, path: str) -> bool:
        if operation != "rename" or path.endswith(".tmp"):
            return False
        renames.append(path)
        return len(renames) - 1 == number

    files.failing = failing
    is_log = False
    try:
        log.retain(0)
    except errors.StorageError:
        is_log = True
    assert len(renames) > number and renames[number].endswith(".log") == is_log
    assert (log.log_start_offset, log.log_end_offset, values(log)) == (4, 4, [])
    assert bases(log) == names(files, ".log") and log.size_bytes == 69 * (len(bases(log)) - 1)
    files.failing = lambda operation, path: False
    removed = log.retain(0)
    assert (removed is not None) == is_log and bases(log) == names(files, ".log") == [4]
    log.append(make(b"new"), now_ms=0)
    if number % 2:
        log.close()
    log = open_log(files, config=EACH, clean=bool(number % 2), log_start_offset=4)
    assert (bases(log), values(log)) == ([4], [b"new"])
    left = [name for name in files.list(FOLDER) if name[0].isdigit() and int(name[:20]) < 4]
    assert left == [], "what could not be renamed goes at the next opening"


def test_log_start_is_durable_before_files_are_deleted(files: SimulatedFiles):
    moved: list[tuple[int, list[int]]] = []
    log = open_log(
        files,
        config=dataclasses.replace(EACH, retention_bytes=100),
        on_log_start=lambda log, offset: moved.append((offset, names(files, ".log"))),
    )
    fill(log, 1, 2, 3)
    log.retain(0)
    assert moved == [(1, [0, 1, 2])] and bases(log) == [1, 2]

    def refused(log: PartitionLog, offset: int) -> None:
        raise errors.StorageError("no checkpoint")

    log._on_log_start = refused
    log.configure(dataclasses.replace(EACH, retention_bytes=0))
    with pytest.raises(errors.StorageError, match="no checkpoint"):
        log.retain(0)
    assert log.log_start_offset == 1 and values(log) == [b"2", b"3"] and names(files, ".log")[:2] == [1, 2]


def test_reader_of_a_deleted_segment_can_continue(tmp_path: Path):
    log = open_log(DiskFiles(), tmp_path / "orders-0", config=LogConfig(segment_bytes=4 * MAP_BYTES, retention_bytes=0))
    payload = bytes(range(256)) * (3 * MAP_BYTES // 256)
    for _ in range(2):
        log.append(make(payload), now_ms=0)
    held = log.read(0, 1 << 30).records
    removed = log.retain(0)
    assert removed is not None and log.log_start_offset == 2 == log.log_end_offset
    assert next(iter(batch.records(held))).value == payload
    removed.remove()
    assert not list((tmp_path / "orders-0").glob("*.deleted"))
    assert next(iter(batch.records(held))).value == payload
    with pytest.raises(errors.OffsetOutOfRange):
        log.read(0, 1)
    log.close()
    assert next(iter(batch.records(held))).value == payload


def test_flush_in_another_thread_ignores_deleted_segments(files: SimulatedFiles, monkeypatch: pytest.MonkeyPatch):
    log = open_log(files, config=dataclasses.replace(EACH, retention_bytes=100))
    fill(log, 1, 2, 3, 4)
    reached, go_on = threading.Event(), threading.Event()
    sync = SimulatedFile.sync

    def slow(file: SimulatedFile) -> None:
        if file._path.endswith(f"{0:020d}.log"):
            reached.set()
            assert go_on.wait(PATIENCE_S)
        sync(file)

    monkeypatch.setattr(SimulatedFile, "sync", slow)
    points: list[int] = []
    flushing = threading.Thread(target=lambda: points.append(log.flush()))
    flushing.start()
    assert reached.wait(PATIENCE_S)
    removed = log.retain(0)
    assert removed is not None
    removed.remove()  # also descriptors, and the files of segments that the flush has not reached yet
    go_on.set()
    flushing.join(PATIENCE_S)
    assert points == [4] and log.failure is None and bases(log) == [2, 3]
    assert log.append(make(b"5"), now_ms=0).base_offset == 4 and log.flush() == 5


def test_duplicate_scan_in_another_thread_survives_retention(files: SimulatedFiles):
    log = open_log(files, config=dataclasses.replace(EACH, retention_bytes=200))
    for sequence in range(12):
        log.append(sequenced(sequence), now_ms=0)
    with pytest.raises(errors.DuplicateSequence) as raised:
        log.append_prepared(prepared(sequenced(1)), now_ms=0)
    scan = log.duplicate_scan(prepared(sequenced(1)).header)
    assert scan is not None
    removed = log.retain(0)
    assert removed is not None and log.log_start_offset > 2
    removed.remove()
    found: list[object] = []
    looking = threading.Thread(target=lambda: found.append(scan()))
    looking.start()
    looking.join(PATIENCE_S)
    with pytest.raises(errors.DuplicateSequence):
        log.resolve_duplicate(found[0], raised.value)  # type: ignore[arg-type]


def prepared(data: bytearray):
    from ottla.protocol.records import validate

    return validate.prepare(data, LogConfig().rules, 0, 13, 0)


def test_full_disk_during_a_roll_of_retention_loses_nothing(files: SimulatedFiles):
    """If all segments are deleted, a new one must come first: without it none is deleted."""
    log = open_log(files, config=dataclasses.replace(EACH, retention_bytes=0))
    fill(log, 1, 2)
    files.fail_with = errno.ENOSPC
    files.fail_at = files.steps
    with pytest.raises(errors.StorageError):
        log.retain(0)
    assert values(log) == [b"1", b"2"] and bases(log) == [0, 1]
    assert log.retain(0) is not None and bases(log) == [2]


def test_damaged_snapshot_does_not_prevent_deletion(files: SimulatedFiles):
    log = open_log(files, config=dataclasses.replace(EACH, retention_bytes=100))
    for sequence in range(4):
        log.append(sequenced(sequence), now_ms=0)
    files.remove(f"{FOLDER}/{snapshot.file_name(1)}")
    removed = log.retain(0)
    assert removed is not None and bases(log) == [2, 3]
    removed.remove()

"""Read_committed reads: the last stable offset and the aborted transactions, compared with a list as model."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch
from ottla.storage.compaction.compaction import Group, clean
from ottla.storage.errors import StorageError
from ottla.storage.follower_log import FollowerLog
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import LogConfig, TopicIdPartition
from ottla.storage.producers import txn_index
from ottla.storage.producers.txn_index import ABORT, COMMIT
from ottla_testing.storage.batches import FOLDER, make
from ottla_testing.storage.committed import consumed
from ottla_testing.storage.compacting import task
from ottla_testing.storage.simulated_files import SimulatedFiles

CONFIG = LogConfig(segment_bytes=420, index_interval_bytes=150, retention_ms=-1)
PRODUCERS = 4


def opened(files: SimulatedFiles, *, clean: bool = True, start: int = 0) -> FollowerLog:
    return FollowerLog.open(
        files,
        FOLDER,
        TopicIdPartition("orders", 0),
        config=CONFIG,
        now_ms=0,
        checkpoints=LogCheckpoints(clean_shutdown=clean, log_start_offset=start),
    )


def marker(producer_id: int, kind: int) -> bytearray:
    record = batch.Record(0, 1000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7))
    return batch.build(
        [record],
        batch.BatchFields(
            producer_id=producer_id, producer_epoch=0, base_sequence=-1, transactional=True, control=True
        ),
    )


def data(producer_id: int, count: int = 1, *, transactional: bool = True) -> bytearray:
    values = [b"x"] * count
    return make(*values, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=transactional)


def add(log: FollowerLog, *batches: bytearray) -> None:
    """Appends the batches of a leader, in one fetch."""
    fetched, offset = bytearray(), log.log_end_offset
    for one in batches:
        batch.assign(one, 0, base_offset=offset, leader_epoch=0)
        offset = batch.read_header(one).next_offset
        fetched += one
    log.append_fetched(fetched, now_ms=0)


@dataclass
class Model:
    """The written records. `records`: offset -> the transaction that it belongs to, None for none."""

    end: int = 0
    start: int = 0
    records: dict[int, int | None] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)  # producer -> transaction, identified by its first offset
    committed: set[int] = field(default_factory=set)

    def data(self, producer_id: int | None, count: int) -> None:
        transaction = None if producer_id is None else self.open.setdefault(producer_id, self.end)
        for _ in range(count):
            self.records[self.end] = transaction
            self.end += 1

    def marker(self, producer_id: int, kind: int) -> None:
        ended = self.open.pop(producer_id, None)
        if ended is not None and kind == COMMIT:
            self.committed.add(ended)
        self.end += 1

    def stable(self) -> tuple[int, int]:
        """Returns the least and the largest possible last stable offset. After a reopening, a log need not know more of
        a transaction that began below the log start than the batches at or above it."""
        least = min([max(first, self.start) for first in self.open.values()], default=self.end)
        left = [offset for offset, of in self.records.items() if of in self.open.values() and offset >= self.start]
        return least, min(left, default=self.end)

    def visible(self, offset: int, stable: int) -> list[int]:
        return [
            at
            for at, transaction in self.records.items()
            if max(offset, self.start) <= at < stable and (transaction is None or transaction in self.committed)
        ]


numbers = st.integers(0, 255)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["data", "data", "abort", "commit", "many"]), st.integers(0, PRODUCERS - 1), numbers),
        st.tuples(st.sampled_from(["plain", "ids", "delete", "clean", "kill", "damage", "read"]), numbers, numbers),
    ),
    min_size=4,
    max_size=60,
)


def compare(log: FollowerLog, model: Model, *numbers: int) -> None:
    least, largest = model.stable()
    stable = log.last_stable_offset
    assert least <= stable <= largest and log.high_watermark == log.log_end_offset == model.end
    result = log.read(model.start, 1 << 20, committed=True)
    assert (result.last_stable_offset, result.high_watermark) == (stable, model.end)
    for number in numbers:
        offset = model.start + number % (model.end - model.start + 1)
        for max_bytes in (1, 300, 1 << 20):
            assert consumed(log, offset, max_bytes) == model.visible(offset, stable)
        available = log.available_bytes(offset, committed=True)
        assert (available > 0) == (offset < stable) and log.growing_from(committed=True) <= stable


@given(steps)
def test_committed_reads_equal_a_model(steps: list[tuple[str, int, int]]) -> None:
    files = SimulatedFiles()
    log, model = opened(files), Model()
    for kind, first, second in steps:
        if kind == "data":
            add(log, data(first, 1 + second % 3))
            model.data(first, 1 + second % 3)
        elif kind in ("abort", "commit"):
            add(log, marker(first, ABORT if kind == "abort" else COMMIT))
            model.marker(first, ABORT if kind == "abort" else COMMIT)
        elif kind == "many":  # a transaction, and one of another producer inside it, in one fetch
            other = PRODUCERS + second % 2
            add(log, data(first), data(other), marker(other, second % 2), data(first), marker(first, ABORT))
            model.data(first, 1)
            model.data(other, 1)
            model.marker(other, second % 2)
            model.data(first, 1)
            model.marker(first, ABORT)
        elif kind == "plain":
            add(log, make(b"plain"))
            model.data(None, 1)
        elif kind == "ids":  # idempotent, without transactions
            add(log, data(100 + first, transactional=False))
            model.data(None, 1)
        elif kind == "delete":
            model.start = log.delete_records_before(model.start + first % (model.end - model.start + 1))
            removed = log.retain(0)
            if removed is not None:
                removed.remove()
        elif kind == "damage":
            names = sorted(name for name in files.list(FOLDER) if name.endswith(txn_index.SUFFIX))
            # a transaction that began below the log start may have another first offset, see `stable`
            if names and model.start == 0:
                log.close()
                path = f"{FOLDER}/{names[first % len(names)]}"
                stored = bytes(files.read_bytes(path))
                file = files.open(path)
                file.write(0, b"\7")
                file.close()
                log = opened(files)
                compare(log, model, 0)
                if not model.open:  # everything was then read
                    assert files.read_bytes(path) == stored
        elif kind in ("clean", "kill"):
            log.close() if kind == "clean" else log.abandon()
            log = opened(files, clean=kind == "clean", start=model.start)
        compare(log, model, second) if kind == "read" else compare(log, model)
    compare(log, model, 0, *(number for _, _, number in steps[:5]))
    log.close()
    log = opened(files, start=model.start)
    compare(log, model, 0, 1, 2, 3)


def test_open_transaction_holds_back_the_offset_of_a_growing_log() -> None:
    files = SimulatedFiles()
    log = opened(files)
    add(log, make(b"before"), data(1), *(make(b"behind") for _ in range(50)))
    assert len(log.segments) > 5
    assert (log.last_stable_offset, log.high_watermark) == (1, 52)
    assert consumed(log, 0, 1 << 20) == [0] and consumed(log, 1, 1 << 20) == []
    assert log.available_bytes(1, committed=True) == 0 < log.available_bytes(1)
    assert log.growing_from(committed=True) == 0 < log.growing_from()
    for is_clean in (True, False):
        log.close() if is_clean else log.abandon()
        log = opened(files, clean=is_clean)
        assert log.last_stable_offset == 1
    add(log, marker(1, COMMIT))
    assert log.last_stable_offset == 53 and consumed(log, 0, 1 << 20) == list(range(52))


def test_restarted_producer_holds_back_from_its_new_transaction() -> None:
    log = opened(SimulatedFiles())
    add(log, data(1), data(2), marker(2, COMMIT), data(2))
    assert log.last_stable_offset == 0
    add(log, marker(1, COMMIT))
    assert log.last_stable_offset == 3
    add(log, marker(2, ABORT), data(1))
    assert log.last_stable_offset == 6


def test_ended_transaction_is_visible_only_with_its_marker() -> None:
    """KIP-98: a marker that may be lost, since it is not durable yet, has ended nothing."""
    log = opened(SimulatedFiles())
    add(log, make(b"0"), data(1), data(2))
    log.hold_back(3)
    add(log, marker(1, ABORT), make(b"4"), marker(2, COMMIT))
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    log.hold_back(4)
    assert (log.high_watermark, log.last_stable_offset) == (4, 2)
    log.hold_back(5)
    assert (log.high_watermark, log.last_stable_offset) == (5, 2)
    log.hold_back(None)
    assert (log.high_watermark, log.last_stable_offset) == (6, 6) and consumed(log, 0, 1 << 20) == [0, 2, 4]


def test_last_stable_offset_is_at_least_the_log_start() -> None:
    log = opened(SimulatedFiles())
    add(log, data(1), make(b"1"), make(b"2"), make(b"3"))
    assert log.delete_records_before(2) == 2 == log.last_stable_offset
    add(log, marker(1, ABORT))
    assert log.last_stable_offset == 5 and consumed(log, 2, 1 << 20) == [2, 3]


def test_indexes_of_deleted_segments_are_not_read() -> None:
    files = SimulatedFiles()
    log = opened(files)
    for _ in range(10):
        add(log, data(1), data(2), marker(1, ABORT), marker(2, COMMIT))
    assert consumed(log, 0, 1 << 20) == list(range(1, 40, 4))
    before = {name for name in files.list(FOLDER) if name.endswith(txn_index.SUFFIX)}
    log.delete_records_before(23)
    removed = log.retain(0)
    assert removed is not None
    removed.remove()
    left = {name for name in files.list(FOLDER) if name.endswith(txn_index.SUFFIX)}
    assert left < before
    assert consumed(log, 23, 1 << 20) == [25, 29, 33, 37]
    add(log, data(1), marker(1, ABORT))
    assert consumed(log, 23, 1) == [25, 29, 33, 37]


def keyed(key: bytes, producer_id: int = -1) -> bytearray:
    record = batch.Record(0, 1000, key, b"v")
    if producer_id < 0:
        return batch.build([record])
    return batch.build(
        [record], batch.BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    )


def test_aborted_transactions_are_reloaded_after_a_compaction() -> None:
    """Segments are merged, so their indexes are, and aborted records disappear from both in the end."""
    files = SimulatedFiles()
    log = opened(files)
    keys, key_of = (b"a", b"b", b"c"), dict[int, bytes]()
    for number in range(8):
        one, other = 2 * number, 2 * number + 1  # producers
        first, second = keys[number % 3], keys[(number + 1) % 3]
        add(log, keyed(first, one), keyed(second, other), keyed(b"%d" % number))
        add(log, marker(one, ABORT), marker(other, COMMIT))
        key_of |= {5 * number + 1: second, 5 * number + 2: b"%d" % number}
    add(log, keyed(b"z", 99), *(keyed(b"n%d" % number) for number in range(6)))
    before = consumed(log, 0, 1 << 20)
    assert log.last_stable_offset == 40 and len(before) == 16
    log.close()
    log = opened(files)
    assert consumed(log, 30, 1) == [one for one in before if one >= 30]  # some of the indexes are loaded now
    end = min(log.last_stable_offset, log.segments[-1].base_offset)
    end = max(segment.base_offset for segment in log.segments if segment.base_offset <= end)
    for group in clean(files, task(files, 0, end)):
        if isinstance(group, Group):
            log.replace_segments(group.new, group.old).remove()
    left = consumed(log, 0, 1 << 20)
    newest = {key_of[offset]: offset for offset in before if offset < end}
    assert left == sorted(newest.values()) + [offset for offset in before if offset >= end]
    assert len(left) < len(before) and end > 30
    for offset in range(0, 40, 3):
        for max_bytes in (1, 1 << 20):
            assert consumed(log, offset, max_bytes) == [one for one in left if one >= offset]
    log.close()
    assert consumed(opened(files), 0, 1) == left


class Counting(SimulatedFiles):
    """Records which files are read, and which folders are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.looked: list[str] = []

    def look(self, operation: str, path: str) -> None:
        self.looked.append(f"{operation} {path.rpartition('/')[2]}")
        super().look(operation, path)


def test_log_without_transactions_is_not_searched_again() -> None:
    """Its producers are loaded once, from the snapshot of the last close; then each read reads the log alone."""
    files = Counting()
    log = opened(files)
    add(log, *(data(1, transactional=False) for _ in range(20)))
    log.close()
    log = opened(files)
    log.read(0, 1, committed=True)
    files.looked.clear()
    for offset in range(20):
        log.read(offset, 1, committed=True)
        assert log.last_stable_offset == 20
    assert not [one for one in files.looked if not one.endswith((".log", ".index", ".timeindex"))]


def test_transaction_index_is_read_once() -> None:
    files = Counting()
    log = opened(files)
    add(log, data(1), marker(1, ABORT), make(b"2"), data(2), marker(2, ABORT))
    files.looked.clear()
    for _ in range(3):
        assert consumed(log, 0, 1 << 20) == [2]
    assert len([one for one in files.looked if txn_index.SUFFIX in one]) == 1
    log.configure(LogConfig(retention_ms=-1))  # so that no other segment begins
    add(log, data(3), marker(3, ABORT))
    files.looked.clear()
    assert consumed(log, 0, 1 << 20) == [2]
    assert not [one for one in files.looked if txn_index.SUFFIX in one], "each abort has it read as a whole"
    read = log.read(5, 1 << 20, committed=True).aborted
    assert read == opened(files).read(5, 1 << 20, committed=True).aborted
    assert [one.producer_id for one in read] == [3]


def test_unreadable_transaction_index_is_a_disk_error() -> None:
    """Nothing is returned then: it could include aborted records."""
    files = SimulatedFiles()
    log = opened(files)
    add(log, data(1), marker(1, ABORT), make(b"2"))
    log.close()
    log = opened(files)
    whole = files.read_bytes

    def failing(path: str) -> bytes:
        if path.endswith(txn_index.SUFFIX):
            raise OSError(5, "no such sector")
        return whole(path)

    files.read_bytes = failing  # type: ignore[method-assign]
    failures: list[OSError] = []
    log.on_failure = lambda _, error: failures.append(error)
    with pytest.raises(StorageError, match="cannot read"):
        log.read(0, 1 << 20, committed=True)
    assert len(failures) == 1
    assert bytes(log.read(0, 1 << 20).records)
    files.read_bytes = whole  # type: ignore[method-assign]
    assert consumed(log, 0, 1 << 20) == [2]


def test_many_open_transactions(scaled: Callable[[int], int]) -> None:
    log, count = opened(SimulatedFiles()), scaled(200)
    for producer_id in range(count):
        add(log, data(producer_id))
    for producer_id in range(count - 1, 0, -1):  # the newest first: the oldest one determines the last stable offset
        add(log, marker(producer_id, producer_id % 2))
        assert log.last_stable_offset == 0
    add(log, marker(0, COMMIT))
    assert log.last_stable_offset == log.log_end_offset == 2 * count
    assert consumed(log, 0, 1 << 20) == [0, *range(1, count, 2)]


def test_invisible_marker_ends_no_transaction_also_after_a_restart() -> None:
    files = SimulatedFiles()
    log = opened(files)
    add(log, make(b"0"), data(1))
    log.close()
    log = opened(files)
    log.hold_back(2)
    add(log, marker(1, COMMIT))
    assert (log.high_watermark, log.last_stable_offset) == (2, 1)
    log.hold_back(None)
    assert log.last_stable_offset == 3


def test_indexed_offset_from_is_that_of_the_next_index_entry() -> None:
    files = SimulatedFiles()
    log = opened(files)
    add(log, *(make(b"x") for _ in range(20)))
    log.close()
    entries = list(struct.iter_unpack(">ii", files.read_bytes(f"{FOLDER}/{0:020d}.index")))
    assert entries
    segment = opened(files).segments[0]
    for position in range(segment.size_bytes + 1):
        expected = next((offset for offset, at in entries if at >= position), None)
        assert segment.indexed_offset_from(position) == expected


def test_fetched_abort_that_cannot_be_indexed_fails_the_log() -> None:
    files = SimulatedFiles()
    log = opened(files)
    add(log, data(1))
    files.failing = lambda operation, path: path.endswith(txn_index.SUFFIX)
    with pytest.raises(StorageError):
        add(log, marker(1, ABORT))
    files.failing = lambda operation, path: False
    with pytest.raises(StorageError, match="offline"):
        log.read(0, 100, committed=True)
    log.abandon()
    log = opened(files, clean=False)
    assert log.log_end_offset == 2 == log.last_stable_offset and consumed(log, 0, 100) == []

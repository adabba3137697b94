"""Transaction markers as Kafka writes them, the checks before one, and batches that coordinators write in
transactions."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.protocol.records import batch, formats
from ottla.protocol.records.errors import UnsupportedForFormat
from ottla.protocol.records.validate import Rules
from ottla.storage.config import LogConfig
from ottla.storage.errors import (
    FencedCoordinator,
    FencedProducer,
    InvalidTransactionState,
    OutOfOrderSequence,
    StorageError,
)
from ottla.storage.io.files import DiskFiles
from ottla.storage.partition_log import PartitionLog
from ottla.storage.producers import snapshot, txn_index
from ottla.storage.producers.producer_state import CachedBatch, Producer
from ottla.storage.producers.txn_index import COMMIT, Marker
from ottla_testing import GOLDEN
from ottla_testing.storage.batches import FOLDER, make, open_log
from ottla_testing.storage.simulated_files import SimulatedFile, SimulatedFiles

KAFKA = GOLDEN / "directories"
ID = 9


def data(sequence: int, count: int = 1, *, producer_id: int = ID, epoch: int = 0, transactional: bool = True):
    values = [b"x"] * count
    return make(
        *values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def put(log: PartitionLog, records: bytearray):
    return log.append(records, now_ms=1000)


def end(log: PartitionLog, *, committed: bool = True, producer_id: int = ID, epoch: int = 0, **more: int):
    settings = {"coordinator_epoch": 0, "now_ms": 2000, **more}
    return log.append_marker(producer_id, epoch, committed=committed, **settings)


def aborted(files: SimulatedFiles) -> list[tuple[int, ...]]:
    return [
        tuple(entry)
        for name in files.list(FOLDER)
        if name.endswith(txn_index.SUFFIX)
        for entry in txn_index.parse(bytes(files.read_bytes(f"{FOLDER}/{name}")))
    ]


# -- as Kafka


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1", "4.3.1"])
def test_same_operations_write_kafkas_bytes(release: str, tmp_path: Path) -> None:
    """Logs, transaction indexes and snapshots of two producers with overlapping transactions."""
    theirs = KAFKA / release / "transactions-0"
    config = LogConfig(segment_ms=2500, segment_bytes=1 << 20, index_interval_bytes=200, retention_ms=-1)
    log = open_log(DiskFiles(), tmp_path / "transactions-0", config=config)
    bases = [int(path.stem) for path in sorted(theirs.glob("*.log"))]
    markers = 0
    for number, base in enumerate(bases):
        stored = (theirs / f"{base:020d}.log").read_bytes()
        # The timestamps of one transaction are of 2023, a marker's of the day of writing: only the first begins a
        # segment.
        log.configure(LogConfig(**{**config_of(config), "segment_ms": 10**15 if number else 2500}))
        for position, header in formats.headers(stored):
            if header.base_offset == base and base:
                log.configure(LogConfig(**{**config_of(config), "segment_ms": 0}))
            marker = txn_index.read_marker(stored, position, header)
            if marker is None:
                sent = bytearray(stored[position : position + header.size_bytes])
                batch.assign(sent, 0, base_offset=0, leader_epoch=-1)
                log.append(sent, now_ms=header.max_timestamp)
            else:
                markers += 1
                log.append_marker(
                    header.producer_id,
                    header.producer_epoch,
                    committed=marker.kind == COMMIT,
                    coordinator_epoch=marker.coordinator_epoch,
                    now_ms=header.max_timestamp,
                )
            log.configure(LogConfig(**{**config_of(config), "segment_ms": 10**15}))
    assert markers == 5
    log.close()
    for kind in ("*.log", "*.txnindex", "*.snapshot"):
        names = sorted(path.name for path in theirs.glob(kind))
        assert names == sorted(path.name for path in (tmp_path / "transactions-0").glob(kind)) != []
        for name in names:
            assert (tmp_path / "transactions-0" / name).read_bytes() == (theirs / name).read_bytes(), name


def config_of(config: LogConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in LogConfig.__dataclass_fields__}


def test_marker_is_a_control_batch_of_one_record() -> None:
    log = open_log(SimulatedFiles())
    put(log, data(0))
    assert end(log, coordinator_epoch=5)[:3] == (1, 1, -1)
    stored = bytes(log.read(1, 1000).records)
    header = batch.read_header(stored)
    assert header.is_control and header.is_transactional and not header.log_append_time
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (ID, 0, -1)
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (2000, 2000, 1)
    [record] = batch.records(stored)
    assert (record.key, record.value) == (b"\0\0\0\1", b"\0\0\0\0\0\5")
    assert txn_index.read_marker(stored, 0, header) == Marker(COMMIT, 5)


def test_marker_in_a_log_append_time_topic_has_append_time() -> None:
    log = open_log(SimulatedFiles(), config=LogConfig(rules=Rules(log_append_time=True)))
    assert end(log, now_ms=3000).log_append_time_ms == 3000
    assert batch.read_header(bytes(log.read(0, 1000).records)).log_append_time


# -- the effect of a marker


def test_marker_ends_only_the_transaction_of_its_producer() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    put(log, make(b"0"))
    put(log, data(0, 2))
    put(log, data(0, producer_id=8))
    assert log.open_transactions() == {ID: 1, 8: 3}
    assert log.in_transaction(ID, 0) and not log.in_transaction(ID, 1) and not log.in_transaction(7, 0)
    assert log.last_stable_offset == 1
    end(log, committed=False)
    assert log.open_transactions() == {8: 3} and not log.in_transaction(ID, 0)
    assert log.last_stable_offset == 3
    assert aborted(files) == [(ID, 1, 4, 3)]
    end(log, producer_id=8)
    assert log.open_transactions() == {} and log.last_stable_offset == 6
    assert aborted(files) == [(ID, 1, 4, 3)]  # no entry for the committed one


def test_marker_without_a_transaction_is_written_and_aborts_nothing() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    for committed in (True, False):
        end(log, committed=committed, epoch=3, coordinator_epoch=2)
    assert (log.log_end_offset, log.last_stable_offset, aborted(files)) == (2, 2, [])
    assert log.producers() == {ID: Producer(3, (), 1, 2000, 2)}


def test_producer_state_after_a_marker() -> None:
    log = open_log(SimulatedFiles())
    put(log, data(0, 3))
    end(log, coordinator_epoch=4)
    batches = (CachedBatch(0, 2, 0, 2, 1000),)
    assert log.producers() == {ID: Producer(0, batches, 2, 2000, 4)}
    again = put(log, data(0, 3))  # a duplicate of a committed batch
    assert again.duplicate and again.base_offset == 0
    put(log, data(3))
    assert log.open_transactions() == {ID: 4}
    end(log, epoch=1, coordinator_epoch=4)
    assert log.producers() == {ID: Producer(1, (), 5, 2000, 4)}


def test_epoch_of_a_marker_is_that_of_the_next_transaction() -> None:
    log = open_log(SimulatedFiles())
    put(log, data(0, 3))
    end(log, epoch=1, transaction_version=2)
    with pytest.raises(FencedProducer):
        put(log, data(3))
    with pytest.raises(FencedProducer):  # also a duplicate of an earlier batch: its epoch is over
        put(log, data(0, 3))
    with pytest.raises(OutOfOrderSequence):
        put(log, data(3, epoch=1))
    assert put(log, data(0, epoch=1)).base_offset == 4
    assert log.open_transactions() == {ID: 4}


# -- allowed epochs


def test_marker_with_an_older_epoch_is_refused() -> None:
    log = open_log(SimulatedFiles())
    put(log, data(0, epoch=5))
    for version in (0, 1, 2):
        with pytest.raises(FencedProducer):
            end(log, epoch=4, transaction_version=version)
    assert log.open_transactions() == {ID: 0} and log.log_end_offset == 1


@pytest.mark.parametrize("version", [0, 1])
def test_marker_with_the_same_epoch_is_accepted_up_to_transaction_version_1(version: int) -> None:
    log = open_log(SimulatedFiles())
    put(log, data(0, epoch=5))
    assert end(log, epoch=5, transaction_version=version).base_offset == 1


def test_marker_with_the_same_epoch_from_transaction_version_2_on_is_only_a_retry() -> None:
    """KIP-1228."""
    log = open_log(SimulatedFiles())
    put(log, data(0, epoch=5))
    with pytest.raises(FencedProducer):
        end(log, epoch=5, transaction_version=2)
    assert end(log, epoch=6, transaction_version=2).base_offset == 1
    assert end(log, epoch=6, transaction_version=2).base_offset == 2  # a retry
    put(log, data(0, producer_id=8, epoch=32767))
    assert end(log, producer_id=8, epoch=32767, transaction_version=2).base_offset == 4
    assert log.open_transactions() == {}


def test_marker_of_an_older_coordinator_epoch_is_refused() -> None:
    log = open_log(SimulatedFiles())
    end(log, coordinator_epoch=7)
    put(log, data(0))
    with pytest.raises(FencedCoordinator):
        end(log, coordinator_epoch=6)
    assert log.open_transactions() == {ID: 1}
    end(log, coordinator_epoch=7)
    end(log, producer_id=8, coordinator_epoch=6)  # of another producer


def test_marker_in_an_old_format_topic_needs_an_open_transaction() -> None:
    log = open_log(SimulatedFiles())
    put(log, data(0))
    log.configure(LogConfig(rules=Rules(target_magic=1)))
    with pytest.raises(UnsupportedForFormat):
        end(log, producer_id=8)
    with pytest.raises(UnsupportedForFormat):
        log.append_records([batch.Record(0, 1, b"k", b"v")], now_ms=1, producer=(8, 0))
    end(log)
    assert log.open_transactions() == {} and log.log_end_offset == 2


# -- batches inside and outside transactions


def test_non_transactional_batch_in_an_open_transaction_is_refused() -> None:
    log = open_log(SimulatedFiles())
    put(log, data(0, transactional=False))
    put(log, data(1, transactional=False))
    put(log, data(2))
    with pytest.raises(InvalidTransactionState):
        put(log, data(3, transactional=False))
    assert put(log, data(1, transactional=False)).duplicate  # a repeated batch is a duplicate
    put(log, data(3))
    end(log)
    put(log, data(4, transactional=False))
    assert log.open_transactions() == {}


def test_coordinator_appends_in_a_transaction_without_sequences() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    commits = [batch.Record(0, 1500, b"a", b"1"), batch.Record(0, 1500, b"b", b"2")]
    assert log.append_records(commits, now_ms=1500, producer=(ID, 3))[:2] == (0, 1)
    header = batch.read_header(bytes(log.read(0, 1000).records))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (
        ID,
        3,
        -1,
        True,
    )
    assert header.last_sequence == -1
    assert log.producers() == {ID: Producer(3, (CachedBatch(-1, -1, 0, 1, 1500),), 1, 1500, -1, 0)}
    with pytest.raises(FencedProducer):
        log.append_records(commits, now_ms=1500, producer=(ID, 2))
    for _ in range(7):  # none is a duplicate of another
        assert not log.append_records(commits, now_ms=1500, producer=(ID, 3)).duplicate
    assert log.open_transactions() == {ID: 0}
    end(log, epoch=3)
    put(log, data(0, epoch=3))  # the first batch of a producer, on the same partition
    assert log.open_transactions() == {ID: 17}


def test_snapshot_of_batches_without_sequences_has_none() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    commits = [batch.Record(0, 1500, b"a", b"1")] * 3
    log.append_records(commits, now_ms=1500, producer=(ID, 3))
    known = log.producers()
    log.close()
    stored = files.read_bytes(f"{FOLDER}/{snapshot.file_name(3)}")
    entry = struct.unpack(">qhiqiqiq", stored[10:])
    assert entry == (ID, 3, -1, 2, 2, 1500, -1, 0)
    assert open_log(files).producers() == known
    files.remove(f"{FOLDER}/{snapshot.file_name(3)}")
    assert open_log(files, clean=False).producers() == known


# -- disk errors


def step_of(files: SimulatedFiles, log: PartitionLog) -> list[str]:
    """Returns the steps of an abort on the disk, in order."""
    seen: list[str] = []
    files.on_step = lambda step: seen.append(f"{step.operation} {step.path.rpartition('.')[2]}")
    end(log, committed=False)
    files.on_step = None
    return seen


def test_transaction_index_is_written_before_the_marker() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    put(log, data(0))
    assert [one for one in step_of(files, log) if one.startswith("write")] == ["write txnindex", "write log"]


@pytest.mark.parametrize("at", range(4))
def test_failed_marker_can_be_retried(at: int) -> None:
    """A full disk at each step: no entry stays without its marker, no marker is written without its entry."""
    files = SimulatedFiles()
    log = open_log(files)
    put(log, data(0))
    end(log, committed=False)
    put(log, data(1))
    files.fail_with, files.fail_at, files.portion = errno.ENOSPC, files.steps + at, 0.5
    failed = False
    try:
        end(log, committed=False)
    except StorageError:
        failed = True
        assert log.log_end_offset == 3 and log.open_transactions() == {ID: 2}
        assert len(aborted(files)) == 1
        end(log, committed=False)
    assert failed or at > 1
    files.fail_at = None
    assert aborted(files) == [(ID, 0, 1, 2), (ID, 2, 3, 4)]
    assert log.open_transactions() == {} and log.last_stable_offset == 4
    found = log.read(0, 1000, committed=True)
    assert [tuple(one) for one in found.aborted] == [(ID, 0, 1, 2), (ID, 2, 3, 4)]
    log.abandon()
    files.restart()
    assert open_log(files, clean=False).log_end_offset == 4
    assert aborted(files) == [(ID, 0, 1, 2), (ID, 2, 3, 4)]


def test_index_entry_that_cannot_be_undone_fails_the_log() -> None:
    """Until a recovery has rebuilt the index: otherwise a later marker at that offset would have two entries."""
    files = SimulatedFiles()
    log = open_log(files)
    put(log, data(0))
    failures: list[OSError] = []
    log.on_failure = lambda _, error: failures.append(error)
    files.failing = lambda operation, path: operation == "truncate" or (operation == "write" and path.endswith(".log"))
    with pytest.raises(StorageError):
        end(log, committed=False)
    files.failing = lambda operation, path: False
    assert len(failures) == 1 and len(aborted(files)) == 1
    for call in (lambda: end(log), lambda: put(log, data(1)), lambda: log.read(0, 100)):
        with pytest.raises(StorageError, match="offline"):
            call()
    log.abandon()
    log = open_log(files, clean=False)
    assert aborted(files) == [] and log.open_transactions() == {ID: 0} and log.log_end_offset == 1


def test_abort_without_a_file_descriptor_can_be_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was written, so there is nothing to undo."""
    files = SimulatedFiles()
    log = open_log(files)
    put(log, data(0))

    def no_descriptor(path: str, *, create: bool = False) -> SimulatedFile:
        raise OSError(errno.EMFILE, "too many open files", path)

    for sequence in range(1, 3):  # without the file, and with one
        with monkeypatch.context() as patch:
            patch.setattr(files, "open", no_descriptor)
            with pytest.raises(StorageError, match="too many"):
                end(log, committed=False)
        before = aborted(files)
        end(log, committed=False)
        assert len(aborted(files)) == len(before) + 1 and log.open_transactions() == {}
        put(log, data(sequence))


def test_abort_checks_only_the_oldest_other_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands may be open, and be aborted one after another."""
    files = SimulatedFiles()
    log = open_log(files, config=LogConfig(retention_ms=-1))
    looked: list[int] = []
    entry_of = txn_index.aborted

    def counting(marker: Marker | None, header: batch.BatchHeader, producers: Mapping[int, Producer]):
        looked.append(len(producers))
        return entry_of(marker, header, producers)

    monkeypatch.setattr(txn_index, "aborted", counting)
    rng = random.Random(5)
    begun: dict[int, int] = {}
    expected = []
    for step in range(400):
        producer_id = rng.randrange(60)
        if producer_id not in begun:
            begun[producer_id] = put(log, data(0, producer_id=producer_id, epoch=step)).base_offset
        elif rng.random() < 0.3:  # a failed one has no effect
            files.failing = lambda operation, path: operation == "write" and path.endswith(".log")
            with pytest.raises(StorageError):
                end(log, committed=False, producer_id=producer_id, epoch=step)
            files.failing = lambda operation, path: False
        elif rng.random() < 0.5:
            first = begun.pop(producer_id)
            marker_at = end(log, committed=False, producer_id=producer_id, epoch=step).base_offset
            stable = min(begun.values(), default=marker_at + 1)
            expected.append((producer_id, first, marker_at, stable))
        else:
            del begun[producer_id]
            end(log, producer_id=producer_id, epoch=step)
        assert log.open_transactions() == begun
        assert log.last_stable_offset == min(begun.values(), default=log.log_end_offset)
    assert aborted(files) == expected and len(expected) > 50
    assert max(looked) <= 2

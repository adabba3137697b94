"""Aborted transactions: the contents of the files, and their recovery from the log."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch
from ottla.storage.errors import StorageError
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import LogConfig, PartitionLog, TopicIdPartition
from ottla.storage.producers import txn_index
from ottla.storage.producers.txn_index import AbortedTransaction
from ottla_testing import GOLDEN
from ottla_testing.storage.batches import FOLDER, open_log
from ottla_testing.storage.simulated_files import SimulatedFiles

KAFKA = GOLDEN
FOLDERS = sorted(path.parent for path in KAFKA.glob("**/transactions-0/*.txnindex"))
OFFSETS = st.integers(0, 2**62)


def data(producer: int, *, sequence: int = 0) -> bytearray:
    return batch.build(
        [batch.Record(0, 1000, None, b"x")],
        batch.BatchFields(producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True),
    )


def marker(producer: int, kind: int, *, epoch: int = 0) -> bytearray:
    record = batch.Record(0, 1000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7))
    return batch.build(
        [record],
        batch.BatchFields(
            producer_id=producer, producer_epoch=epoch, base_sequence=-1, transactional=True, control=True
        ),
    )


def lay_down(files: SimulatedFiles, *segments: list[bytearray], base_offset: int = 0) -> int:
    """Writes segments of batches as a broker stores them; returns the offset after the last."""
    files.make_directory(FOLDER)
    offset = base_offset
    for batches in segments:
        stored = bytearray()
        base = offset
        for one in batches:
            batch.assign(one, 0, base_offset=offset, leader_epoch=0)
            stored += one
            offset = batch.read_header(one).next_offset
        file = files.open(f"{FOLDER}/{base:020d}.log", create=True)
        file.write(0, stored)
        file.close()
    return offset


def stored(files: SimulatedFiles, base_offset: int) -> list[AbortedTransaction] | None:
    path = f"{FOLDER}/{base_offset:020d}.txnindex"
    return txn_index.parse(files.read_bytes(path)) if files.exists(path) else None


@given(st.lists(st.tuples(st.integers(0, 2**60), OFFSETS, OFFSETS, OFFSETS), max_size=5))
def test_dumped_entries_are_parsed(rows: list[tuple[int, int, int, int]]) -> None:
    entries, last = [], -1
    for producer, first, length, stable in rows:
        last = max(last + 1, first) + length // 2**10
        entries.append(AbortedTransaction(producer, min(first, last), last, stable))
    written = txn_index.dump(entries)
    assert len(written) == 34 * len(entries) and txn_index.parse(written) == entries


@pytest.mark.parametrize(
    "wrong",
    [
        b"\0" * 33,
        struct.pack(">hqqqq", 1, 1, 0, 1, 2),
        struct.pack(">hqqqq", 0, 1, 5, 4, 5),
        struct.pack(">hqqqq", 0, 1, 0, 4, 5) * 2,
    ],
    ids=["not whole", "another version", "ends before it begins", "not rising"],
)
def test_damaged_bytes_are_refused(wrong: bytes) -> None:
    with pytest.raises(StorageError):
        txn_index.parse(wrong)


def test_recovery_rebuilds_the_index_from_the_log() -> None:
    files = SimulatedFiles()
    end = lay_down(
        files,
        [data(1), data(2), data(3), marker(2, txn_index.ABORT), marker(3, txn_index.COMMIT)],  # 0..4
        [data(4), marker(1, txn_index.ABORT), marker(1, txn_index.ABORT, epoch=1)],  # 5..7: the last has no transaction
        [marker(4, txn_index.COMMIT), data(5)],  # 8, 9
    )
    log = open_log(files, clean=False)
    assert log.log_end_offset == end == 10
    first, second = [AbortedTransaction(2, 1, 3, 0)], [AbortedTransaction(1, 0, 6, 5)]
    assert [stored(files, base) for base in (0, 5, 8)] == [first, second, None]
    assert log.producers()[5].transaction_first_offset == 9
    log.flush()
    files.lose_power(lambda path, durable, live: durable)
    assert [stored(files, base) for base in (0, 5, 8)] == [first, second, None]
    log.close()


@pytest.mark.parametrize("snapshots", [True, False])
def test_transaction_begun_before_the_recovery_point_is_known(snapshots: bool) -> None:
    files = SimulatedFiles()
    lay_down(files, [data(1), data(2)], [marker(1, txn_index.ABORT)], [data(3), marker(2, txn_index.ABORT)])
    log = open_log(files, clean=False)
    log.close()
    if not snapshots:
        for name in files.list(FOLDER):
            if name.endswith(".snapshot"):
                files.remove(f"{FOLDER}/{name}")
    for base, wrong in ((2, b""), (3, b"\1" * 34)):
        file = files.open(f"{FOLDER}/{base:020d}.txnindex", create=True)
        file.truncate(0)
        file.write(0, wrong)
        file.close()
    open_log(files, clean=False, recovery_point=2).abandon()
    assert stored(files, 2) == [AbortedTransaction(1, 0, 2, 1)]
    assert stored(files, 3) == [AbortedTransaction(2, 1, 4, 3)]


def test_truncated_abort_has_no_entry() -> None:
    files = SimulatedFiles()
    lay_down(files, [data(1), marker(1, txn_index.ABORT), data(2)], [marker(2, txn_index.ABORT)])
    open_log(files, clean=False).close()
    assert stored(files, 3) == [AbortedTransaction(2, 2, 3, 4)]
    path = f"{FOLDER}/{0:020d}.log"
    files.contents[path].live[-1] ^= 1
    log = open_log(files, clean=False)
    assert log.log_end_offset == 2 and stored(files, 0) == [AbortedTransaction(1, 0, 1, 2)]
    assert not files.exists(f"{FOLDER}/{3:020d}.txnindex")
    files.contents[path].live[-1] ^= 1  # now of the marker
    assert open_log(files, clean=False).log_end_offset == 1
    assert stored(files, 0) is None


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: "-".join(path.relative_to(KAFKA).parts[:-1]))
@pytest.mark.parametrize("snapshots", [True, False])
def test_rebuilt_index_equals_kafkas(folder: Path, snapshots: bool, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "transactions-0")
    theirs = {path.name: path.read_bytes() for path in copy.glob("*.txnindex")}
    assert theirs and all(txn_index.parse(written) for written in theirs.values())
    for path in [*copy.glob("*.txnindex"), *(() if snapshots else copy.glob("*.snapshot"))]:
        path.unlink()
    for recovery_point in (0, max(int(path.stem) for path in copy.glob("*.log"))):
        log = PartitionLog.open(
            DiskFiles(),
            copy,
            TopicIdPartition("transactions", 0),
            config=LogConfig(),
            now_ms=1_900_000_000_000,
            checkpoints=LogCheckpoints(clean_shutdown=False, recovery_point=recovery_point),
        )
        log.abandon()
        assert {path.name: path.read_bytes() for path in copy.glob("*.txnindex")} == theirs

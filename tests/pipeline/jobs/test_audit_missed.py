"""Damage that shows only beside other files: foreign topic ids, cut indexes, swapped segments; and whose clock dates an
open transaction. `ottla verify` finds the same."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla.pipeline.jobs.audit.report import AuditReport
from ottla.pipeline.jobs.audit.steps import OpenInPartition, begun_ms
from ottla.protocol.compiler import build
from ottla.protocol.internal_records.metadata_values import topic_ids
from ottla.protocol.internal_records.transaction_records import TransactionLogKey, TransactionLogValue
from ottla.protocol.records.batch import Record
from ottla.storage.check.directory import Verification
from ottla.storage.check.index import IndexTail
from ottla.storage.config import LogConfig
from ottla.storage.follower_log import FollowerLog
from ottla.storage.format.partition_metadata import encode_id, read_topic_id, write_topic_id
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir import metadata_log
from ottla.storage.log_dir.directory import DataDirectory
from ottla.tools.disk.repair import repair as repair_command
from ottla.tools.disk.verify import verify as verify_command
from ottla_testing import GOLDEN
from ottla_testing.pipeline.audit_samples import Segment, Story, audited, segments, shown, verified, write
from ottla_testing.protocol.batches import batch_of
from ottla_testing.storage.repairing import repair

KRAFT = GOLDEN / "directories" / "4.3.1"
OTHER_ID = bytes(range(100, 116))


def story(seed: int, batches: int = 200) -> Story:
    """Returns a story of equal batches with rising times, so that each append's place in the indexes is determined."""
    made = Story(seed, transactions=False)
    for _ in range(batches):
        made.now_ms += 10
        records = [Record(made.offset, made.now_ms, b"key", made.chance.randbytes(40))]
        made.put(records, producer=-1, epoch=-1, sequence=-1)
    return made


# --- topic ids


@pytest.mark.parametrize("topic", ["numbered", "append-time"])
def test_topic_id_other_than_the_metadata_log_found(
    topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(KRAFT, tmp_path / "data")
    folder = str(root / f"{topic}-0")
    right = read_topic_id(DiskFiles(), folder)
    write_topic_id(DiskFiles(), folder, OTHER_ID)
    (found,) = audited(root).findings
    assert (found.file, found.part) == (f"{topic}-0/partition.metadata", "identity")
    assert found.what == f"topic id {encode_id(OTHER_ID)}, by the metadata log {encode_id(right)}"
    assert shown([found]) == shown(verified(root, gaps=True))
    assert verify_command([str(root)]) == 1 and f"! {found.file}: {found.what}" in capsys.readouterr().out
    assert repair_command([str(root), "--apply"]) == 1  # which of both is right is not known
    assert "another topic id than that of the metadata log" in capsys.readouterr().out
    assert read_topic_id(DiskFiles(), folder) == OTHER_ID


def test_topic_created_again_beside_a_running_broker_is_sound(tmp_path: Path) -> None:
    """The check reads the metadata log of a directory in use after the logs, and again after a difference."""
    with Embedded(data_dir=tmp_path / "data") as broker:
        broker.create_topic("orders")
        data = str(tmp_path / "data")
        verification = Verification(data, topic_ids=lambda: topic_ids(metadata_log.values(data)))
        folders = {folder.topic: folder for folder in verification.folders}
        assert list(verification.other_findings()) == []
        walk = verification.walk(folders["orders"])
        assert [one for one in walk.findings() if one.wrong] == []
        assert list(verification.around(walk)) == []
        broker.delete_topic("orders")
        broker.create_topic("orders")
        assert list(verification.identities()) == []


# --- indexes


@pytest.mark.parametrize("records", [True, False])
def test_offset_index_cut_at_an_entry_found(records: bool, tmp_path: Path, scaled: Callable[[int], int]) -> None:
    root = write(tmp_path / "data", [story(1)])
    assert audited(root).sound and not audited(root).notes
    done = 0
    for log in segments(root)[: scaled(3)]:
        path = log.with_suffix(".index")
        data = path.read_bytes()
        for entries in range(1, len(data) // 8 - 1):
            path.write_bytes(data[: -8 * entries])
            report = audited(root, records=records)
            (found,) = report.findings + report.notes
            assert (found.file, found.byte) == (f"orders-0/{path.name}", len(data) - 8 * entries)
            assert found.part == "index" and "no entry after position " in found.what
            # With one entry gone, and no later time entry, it could be a close after an append of several batches.
            assert found.wrong or (entries == 1 and found.what.startswith("may be cut: "))
            assert shown(report.findings) == shown(verified(root, records=records))
            done += found.wrong
        path.write_bytes(data)
    path.write_bytes(data[:-16])
    assert done > 3
    assert [step.finding.part for step in repair(root)[0]] == ["index"]
    repaired = audited(root)
    assert repaired.sound and not repaired.notes


def test_index_tail_without_conclusion() -> None:
    """Appends of several batches have no entry within them, and a close adds a time entry alone."""
    tail = IndexTail()
    for position in range(0, 1000, 100):
        tail.add(position, indexed=position in (500, 700), times=position // 100)
    assert tail.problem() is None  # 500 bytes once had no entry, so 200 may have none
    closed = IndexTail()
    for position in range(0, 1000, 100):
        closed.add(position, indexed=position in (300, 600), times=position // 300 + (position == 800))
    assert closed.problem() is None  # 200 bytes after the last one
    assert IndexTail().problem() is None


def test_emptied_index_is_a_note(tmp_path: Path) -> None:
    large = Story(1, transactions=False)
    for _ in range(60):
        large.now_ms += 10
        large.put(
            [Record(large.offset, large.now_ms, b"k", large.chance.randbytes(900))], producer=-1, epoch=-1, sequence=-1
        )
    root = tmp_path / "data"
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=OTHER_ID, config=LogConfig(), now_ms=0, kind=FollowerLog)
    assert isinstance(log, FollowerLog)
    for data in large.batches:
        log.append_fetched(data, now_ms=0)
    directory.close()
    index = root / "orders-0" / f"{0:020d}.index"
    assert index.stat().st_size > 16 and not audited(root).notes
    index.write_bytes(b"")
    report = audited(root)
    assert report.sound
    assert [one.what.partition(", although")[0] for one in report.notes] == ["may be cut: no entry at all"]


# --- segments


@pytest.mark.parametrize("transactions", [False, True])
def test_swapped_segments_are_one_finding_each(
    transactions: bool, tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    for seed in range(scaled(3)):
        root = write(tmp_path / str(seed), [Story(seed, transactions=transactions).run(170)])
        logs = segments(root)
        first, second = sorted(random.Random(seed).sample(logs, 2))
        facts = {log: Segment(log, random.Random(0)).facts for log in (first, second)}
        data = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(data)
        found = [one for one in audited(root).findings if one.part == "log"]
        assert [one.file for one in found] == [f"orders-0/{log.name}" for log in (first, second)], shown(found)
        for one, other in zip(found, (second, first), strict=True):
            offsets = f"{facts[other][0].header.base_offset}-{facts[other][-1].header.last_offset}"
            assert one.what.startswith(f"all {len(facts[other])} entries have offsets {offsets}, "), one
        assert shown(audited(root).findings) == shown(verified(root))


def test_segment_of_a_later_one_appended_is_one_finding(tmp_path: Path) -> None:
    root = write(tmp_path / "data", [story(2)])
    first, _, third = segments(root)[:3]
    size = first.stat().st_size
    first.write_bytes(first.read_bytes() + third.read_bytes())
    count = len(Segment(third, random.Random(0)).facts)
    found = audited(root).findings
    assert [(one.file, one.byte) for one in found] == [(f"orders-0/{first.name}", size)], shown(found)
    assert f"it and the {count - 1} entries after it have offsets {int(third.stem)}-" in found[0].what


# --- the start of open transactions


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1", "4.3.1"])
def test_open_transaction_dated_by_kafkas_coordinator(release: str) -> None:
    """The records are of 2023, as their producer dated them."""
    root = GOLDEN / "directories" / release
    report = audited(root)
    (one,) = [one for partition in report.partitions for one in partition.open]
    assert one.since_by == "coordinator"
    key = OpenInPartition(one.producer_id, one.epoch, "open-transaction", 0)
    assert begun_ms(str(root)) == {key: one.since_ms}
    assert one.since_ms > 1_790_000_000_000
    assert " by the coordinator's clock\n" in report.to_text()
    (document,) = [
        one for part in report.to_dict()["directories"][0]["partitions"] for one in part["transactions"]["open"]
    ]
    assert (document["since"], document["since_by"]) == (one.since_ms, "coordinator")


def transaction(root: Path, appended_ms: int = 0, **values: int) -> AuditReport:
    """Audits a directory with an open transaction of producer 7, epoch 2, and a record of the coordinator about it."""
    data = bytearray(
        batch_of(
            [Record(0, 5_000, b"k", b"v")],
            base_offset=0,
            producer_id=7,
            producer_epoch=2,
            base_sequence=0,
            transactional=True,
            log_append_time=appended_ms > 0,
            max_timestamp=appended_ms or None,
        )
    )
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=OTHER_ID, config=LogConfig(), now_ms=0, kind=FollowerLog)
    assert isinstance(log, FollowerLog)
    log.append_fetched(bytes(data), now_ms=0)
    fields = {"producer_id": 7, "producer_epoch": 2, "transaction_status": 1, "transaction_timeout_ms": 1, **values}
    fields |= {"transaction_last_update_timestamp_ms": 8_000, "transaction_start_timestamp_ms": 7_000}
    partitions = [TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[0])]
    value = TransactionLogValue(transaction_partitions=partitions, **fields)
    version = struct.pack(">h", 0)
    key = version + build(TransactionLogKey(transactional_id="loader"), 0)
    state = directory.open_partition("__transaction_state", 3, config=LogConfig(), now_ms=0, kind=FollowerLog)
    assert isinstance(state, FollowerLog)
    state.append_fetched(bytes(batch_of([Record(0, 8_000, key, version + build(value, 0))], base_offset=0)), now_ms=0)
    directory.close()
    return audited(root)


@pytest.mark.parametrize(
    ("values", "dated"),
    [
        ({}, (7_000, "coordinator")),
        ({"transaction_status": 2, "producer_epoch": 3}, (7_000, "coordinator")),
        ({"producer_epoch": 3}, (5_000, "producer")),  # another transaction: that of epoch 2 hangs
        ({"transaction_status": 4}, (5_000, "producer")),
        ({"producer_id": 8}, (5_000, "producer")),
        ({"appended_ms": 9_000, "transaction_status": 4}, (9_000, "broker")),
    ],
)
def test_open_transaction_dated_by_the_best_clock(
    values: dict[str, int], dated: tuple[int, str], tmp_path: Path
) -> None:
    report = transaction(tmp_path / "data", **values)
    (one,) = [one for partition in report.partitions for one in partition.open]
    assert (one.since_ms, one.since_by) == dated
    assert f" by the {dated[1]}'s clock" in report.to_text()


def test_damaged_records_of_the_coordinator_are_skipped(tmp_path: Path) -> None:
    transaction(tmp_path / "data")
    log = tmp_path / "data" / "__transaction_state-3" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    assert begun_ms(str(tmp_path / "data")) == {}

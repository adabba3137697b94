"""Transactional offset commits: deletions during a transaction, restarts, and their records in the log."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.broker.groups.loading import stored_entries
from ottla.broker.groups.offsets import CommittedOffset, Offsets
from ottla.broker.groups.records import LogEntry, TransactionalRecord, TransactionEnd, offset_record
from ottla.broker.metadata.log import READ_BYTES
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import batch
from ottla.storage.errors import StorageError
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import LogConfig, PartitionLog, TopicIdPartition

NOW_MS = 1_700_000_000_000
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def in_transaction(h: Any, offset: int, producer_id: int = 9, topic: str = "t", group_id: str = "g") -> None:
    committed = CommittedOffset(offset, commit_timestamp_ms=h.clock.now_ms())
    error = h.coordinator.commit(
        group_id, member_id="", instance_id=None, generation_id=-1, producer=(producer_id, 0),
        commits=[((topic, 0), committed)],
    )  # fmt: skip
    assert error is ErrorCode.NONE


def known(h: Any, group_id: str = "g") -> dict[Any, tuple[Any, bool]]:
    """The offset of each partition, and whether it is unstable."""
    found = {}
    for topic in ("t", "u"):
        for stable in (False, True):
            _, ((_, committed, error),) = h.coordinator.fetch(group_id, [(topic, 0)], require_stable=stable)
            if not stable:
                offset = committed and committed.offset
        found[topic] = (offset, error is UNSTABLE)
    return found


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", ["the group", "the offset", "the topic"])
async def test_deleted_offset_does_not_reappear_at_commit(h: Any, how: str, restarts: bool) -> None:
    h.commit(1)
    in_transaction(h, 5)
    in_transaction(h, 6, topic="u")
    if how == "the group":
        assert h.coordinator.delete("g") is ErrorCode.NONE
    elif how == "the offset":
        assert h.coordinator.delete_offsets("g", [("t", 0)])[0] is ErrorCode.NONE
    else:
        h.coordinator.forget_topic("t")
    left = (None, False) if how == "the group" else (None, True)
    assert known(h) == {"t": (None, False), "u": left}
    if restarts:
        h.restart()
        assert known(h) == {"t": (None, False), "u": left}
    h.end(9, True)
    assert known(h) == {"t": (None, False), "u": (None if how == "the group" else 6, False)}
    h.restart()
    assert known(h) == {"t": (None, False), "u": (None if how == "the group" else 6, False)}


async def test_failed_tombstone_write_keeps_transactional_offsets(h: Any) -> None:
    in_transaction(h, 5)
    h.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    assert h.coordinator.delete_offsets("g", [("t", 0)])[0] is ErrorCode.NOT_COORDINATOR
    h.end(9, True)
    assert known(h)["t"] == (5, False)


@pytest.mark.parametrize("restarts", [False, True])
async def test_transaction_end_only_affects_its_groups(h: Any, monkeypatch: pytest.MonkeyPatch, restarts: bool) -> None:
    """There may be thousands of groups, and thousands of transactions per second."""
    reported: list[int] = []
    end = Offsets.end_transaction

    def counting(table: Offsets, producer_id: int, *, committed: bool) -> None:
        reported.append(producer_id)
        end(table, producer_id, committed=committed)

    monkeypatch.setattr(Offsets, "end_transaction", counting)
    others = [
        name for name in map(str, range(2000)) if h.coordinator.partition_of(name) == h.coordinator.partition_of("g")
    ]
    assert len(others) > 10
    for name in others:
        h.commit(1, group_id=name)
    for offset in range(3):
        in_transaction(h, offset)
        if restarts:
            h.restart()
        reported.clear()
        h.end(9, True)
        assert (reported, known(h)["t"]) == ([9], (offset, False))
    reported.clear()
    h.restart()
    assert (reported, known(h)["t"]) == ([9] * 3, (2, False))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.sampled_from("tu")),
        st.tuples(st.just("pending"), st.sampled_from("tu"), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("delete"), st.sampled_from("tu")),
        st.tuples(st.just("forget"), st.sampled_from("tu")),
        st.tuples(st.just("delete group")),
        st.tuples(st.just("restart")),
    ),
    max_size=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the fixture is a class
@given(STEPS)
async def test_restart_keeps_transactional_offsets(make_harness: Any, steps: list[tuple[Any, ...]]) -> None:
    h = make_harness()
    for number, (step, *of) in enumerate(steps):
        if step == "plain":
            committed = CommittedOffset(number, commit_timestamp_ms=h.clock.now_ms())
            h.coordinator.commit(
                "g", member_id="", instance_id=None, generation_id=-1, commits=[((of[0], 0), committed)]
            )
        elif step == "pending":
            in_transaction(h, number, of[1], of[0])
        elif step == "end":
            h.end(*of)
        elif step == "delete":
            h.coordinator.delete_offsets("g", [(of[0], 0)])
        elif step == "forget":
            h.coordinator.forget_topic(of[0])
        elif step == "delete group":
            h.coordinator.delete("g")
        else:
            h.restart()
    before = known(h)
    h.restart()
    assert known(h) == before


# --- the log ---------------------------------------------------------------------------------------------------------


def opened(folder: Path) -> PartitionLog:
    (folder / "__consumer_offsets-0").mkdir(exist_ok=True)
    return PartitionLog.open(
        DiskFiles(),
        folder / "__consumer_offsets-0",
        TopicIdPartition("__consumer_offsets", 0),
        config=LogConfig(),
        now_ms=NOW_MS,
        checkpoints=LogCheckpoints(clean_shutdown=False),
    )


def entry(offset: int, topic: str = "t") -> tuple[bytes, bytes | None]:
    return offset_record("g", (topic, 0), CommittedOffset(offset, commit_timestamp_ms=NOW_MS))


def append(log: PartitionLog, *entries: tuple[bytes, bytes | None], **more: Any) -> None:
    made = [batch.Record(number, NOW_MS, key, value, ()) for number, (key, value) in enumerate(entries)]
    log.append_records(made, now_ms=NOW_MS, **more)


def mark(log: PartitionLog, producer_id: int, committed: bool) -> None:
    log.append_marker(producer_id, 0, committed=committed, coordinator_epoch=0, now_ms=NOW_MS)


@pytest.mark.parametrize("codec", range(5))
def test_stored_entries_yield_records_and_transaction_ends(tmp_path: Path, codec: int) -> None:
    log = opened(tmp_path)
    tombstone = (entry(1)[0], None)
    append(log, entry(1), entry(2, "u"), codec=codec)
    append(log, entry(3), entry(4, "u"), codec=codec, producer=(7, 0))
    append(log, entry(5), producer=(8, 0))
    mark(log, 8, True)
    append(log, tombstone)
    mark(log, 7, False)
    mark(log, 9, True)  # which has none
    wanted: list[LogEntry] = [
        entry(1),
        entry(2, "u"),
        TransactionalRecord(7, *entry(3)),
        TransactionalRecord(7, *entry(4, "u")),
        TransactionalRecord(8, *entry(5)),
        TransactionEnd(8, True),
        tombstone,
        TransactionEnd(7, False),
        TransactionEnd(9, True),
    ]
    assert list(stored_entries(log)) == wanted
    log.close()
    again = opened(tmp_path)
    assert list(stored_entries(again)) == wanted
    again.delete_records_before(3)
    assert list(stored_entries(again)) == wanted[3:]
    again.close()


def test_stored_entries_of_a_log_larger_than_one_read(tmp_path: Path) -> None:
    log = opened(tmp_path)
    large = (b"\0\1", bytes(READ_BYTES // 3))
    for number in range(7):
        append(log, large, producer=(number % 2, 0))
    mark(log, 0, True)
    wanted = [TransactionalRecord(number % 2, *large) for number in range(7)]
    assert list(stored_entries(log)) == [*wanted, TransactionEnd(0, True)]
    log.close()


def test_stored_entries_of_an_empty_log(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert list(stored_entries(log)) == []
    log.close()


def test_marker_of_an_unknown_kind_is_ignored(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, entry(1), producer=(7, 0))
    record = batch.Record(0, NOW_MS, struct.pack(">hh", 0, 5), struct.pack(">hi", 0, 0))
    control = batch.build(
        [record], batch.BatchFields(producer_id=7, producer_epoch=0, transactional=True, control=True)
    )
    batch.assign(control, 0, base_offset=1, leader_epoch=0)
    log.close()
    (segment,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    segment.write_bytes(segment.read_bytes() + control)
    again = opened(tmp_path)
    assert list(stored_entries(again)) == [TransactionalRecord(7, *entry(1))]
    again.close()


def test_damaged_log_raises_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    append(log, entry(1), codec=1)
    (segment,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    with segment.open("r+b") as file:
        file.seek(70)
        file.write(b"\xff" * 8)
    with pytest.raises(StorageError, match="__consumer_offsets-0"):
        list(stored_entries(log))
    log.close()

"""Small files and indexes without a flush of their own: durable before recovery stops checking them."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from ottla.protocol.records import batch
from ottla.storage.follower_log import FollowerLog
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import LogConfig, PartitionLog, TopicIdPartition
from ottla.storage.producers import snapshot
from ottla_testing.protocol.batches import batch_of
from ottla_testing.storage.batches import FOLDER, TOPIC_ID, make, old, open_log, sequenced, storing, values
from ottla_testing.storage.simulated_files import SimulatedFiles

CONFIG = LogConfig(segment_bytes=69 * 3, index_interval_bytes=0)


def durable(files: SimulatedFiles) -> bool:
    return all(content.live == content.durable for content in files.contents.values())


def test_writes_left_by_a_kill_are_durable_after_the_next_flush_or_close():
    """They were never synced: only their written contents are in the folder."""
    for closes in (True, False):
        files = SimulatedFiles()
        log = open_log(files, config=CONFIG)
        for number in range(7):
            log.append(sequenced(number), now_ms=0)
        log.abandon()
        files.restart()
        log = open_log(files, config=CONFIG, clean=False)
        log.append(sequenced(7), now_ms=0)
        _ = log.close() if closes else log.flush()
        assert durable(files)
        for seed in range(20):
            fork = files.fork()
            fork.crash(random.Random(seed))
            again = open_log(fork, config=CONFIG, clean=closes)
            assert (len(values(again)), again.topic_id, again.log_end_offset) == (8, TOPIC_ID, 8)


def stamped(files: SimulatedFiles) -> PartitionLog:
    """Returns a log that is durable up to its end, with a full segment, and with indexes only in memory."""
    log = open_log(files, config=CONFIG)
    for timestamp in (500, 300, -1):
        log.append(make(b"a", timestamp=timestamp), now_ms=0)
    assert log.flush() == 3 and f"{FOLDER}/{0:020d}.timeindex" not in files.contents
    return log


def test_indexes_of_a_durable_segment_are_durable_once_rolled():
    """A recovery from the recovery point does not read it."""
    files = SimulatedFiles()
    log = stamped(files)
    log.append(make(b"b", timestamp=100), now_ms=0)
    for seed in range(60):
        fork = files.fork()
        fork.crash(random.Random(seed))
        again = open_log(fork, config=CONFIG, clean=False, recovery_point=3)
        found = again.find_timestamp(450)
        assert found is not None and found[:2] == (500, 0)


def test_close_syncs_indexes_of_batches_flushed_before():
    files = SimulatedFiles()
    stamped(files).close()
    assert durable(files) and f"{FOLDER}/{0:020d}.timeindex" in files.contents


def test_failed_index_sync_at_a_roll_fails_the_log():
    files = SimulatedFiles()
    log = stamped(files)
    files.failing = lambda operation, path: operation == "sync" and path.endswith(".timeindex")
    with pytest.raises(Exception, match="cannot begin a segment"):
        log.append(make(b"b"), now_ms=0)
    files.failing = lambda operation, path: False
    assert log.failure is not None and len(values(log)) == 3


def test_appends_to_an_upgraded_segment_keep_its_index_entries():
    files = SimulatedFiles()
    config = storing(1, index_interval_bytes=0)
    log = open_log(files, config=config)
    for timestamp in (500, 100, 200, 300):
        log.append(old(1, b"x", timestamp=timestamp), now_ms=0, produce_version=2)
    log.close()
    log = open_log(files, config=LogConfig(index_interval_bytes=0), upgrade=lambda progress: None)
    log.append(make(b"new", timestamp=250), now_ms=0)
    (segment,) = log._segments
    assert list(segment._offset_index.offsets) == [1, 2, 3, 4]
    log.close()
    log = open_log(files, config=LogConfig(index_interval_bytes=0))
    assert log.max_timestamp() == (500, 0, -1) and log.find_timestamp(400) == (500, 0, -1)


def snapshots(files: SimulatedFiles) -> list[str]:
    return sorted(name for name in files.list(FOLDER) if name.endswith(".snapshot"))


@pytest.mark.parametrize("first_is_torn", [False, True])
def test_recovery_removes_older_snapshots_above_its_start(first_is_torn: bool):
    """A snapshot with a valid checksum may still be of batches that were lost in an earlier crash."""
    files = SimulatedFiles()
    log = open_log(files, config=CONFIG)
    for number in range(8):
        log.append(sequenced(number), now_ms=0)
    log.flush()
    log.abandon()
    files.restart()
    stale = bytes(snapshot.dump({}))
    for offset in (3, 6, 7):
        file = files.open(f"{FOLDER}/{snapshot.file_name(offset)}", create=True)
        if offset > 3 or first_is_torn:
            file.truncate(0)
            file.write(0, stale if offset > 3 else stale[:5])
    log = open_log(files, config=CONFIG, clean=False, recovery_point=4)
    assert snapshots(files) == ([] if first_is_torn else [snapshot.file_name(offset) for offset in (3, 6, 8)])
    assert log.producers()[9].batches[-1].last_sequence == 7
    log.close()
    assert [name for name in snapshots(files) if snapshot.parse(files.read_bytes(f"{FOLDER}/{name}")) is None] == []


def transaction(log: FollowerLog, sequence: int) -> None:
    """Writes a batch, and the marker that aborts it."""
    aborting = batch.Record(0, 1000, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 1))
    fields: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    data = batch_of([batch.Record(0, 1000, None, b"x")], base_sequence=sequence, **fields)
    marker = batch_of([aborting], base_sequence=-1, control=True, **fields)
    for number, one in enumerate((data, marker)):
        batch.assign(one, 0, base_offset=log.log_end_offset + number, leader_epoch=0)
    log.append_fetched(bytes(data) + bytes(marker), now_ms=0)


def follower(files: SimulatedFiles, *, clean: bool = True, recovery_point: int = 0) -> FollowerLog:
    return FollowerLog.open(
        files,
        FOLDER,
        TopicIdPartition("orders", 0),
        config=LogConfig(segment_bytes=400),
        now_ms=0,
        checkpoints=LogCheckpoints(clean, recovery_point),
    )


def test_transaction_index_left_by_a_kill_is_made_durable():
    files = SimulatedFiles()
    log = follower(files)
    transaction(log, 0)
    log.abandon()
    files.restart()
    follower(files, clean=False).close()
    assert durable(files) and f"{FOLDER}/{0:020d}.txnindex" in files.contents


def test_transaction_index_of_lost_batches_is_removed():
    """Also if the producers are unknown, since the snapshot is torn."""
    files = SimulatedFiles()
    log = follower(files)
    for sequence in range(4):
        transaction(log, sequence)
    base = log.segments[-1].base_offset
    assert base and f"{FOLDER}/{base:020d}.txnindex" in files.contents
    log.abandon()
    files.restart()
    for name in (f"{base:020d}.log", snapshot.file_name(base)):
        files.open(f"{FOLDER}/{name}").truncate(5)
    log = follower(files, clean=False, recovery_point=base)
    assert log.log_end_offset == base and f"{FOLDER}/{base:020d}.txnindex" not in files.contents

"""A log written from fetched batches: the same bytes at the same offsets, in any format, for any sizes of fetches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch, formats
from ottla.protocol.records.errors import CorruptRecords
from ottla.protocol.records.validate import Rules
from ottla.storage.errors import StorageError
from ottla.storage.follower_log import FollowerLog
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import LogConfig, TopicIdPartition
from ottla.storage.producers import txn_index
from ottla_testing import GOLDEN
from ottla_testing.each import each
from ottla_testing.storage.batches import FOLDER, GZIP, make, old, open_log, values
from ottla_testing.storage.simulated_files import SimulatedFiles

KAFKA = GOLDEN
FOLDERS = sorted({path.parent for path in KAFKA.glob("**/*.log") if path.stem.isdigit()})


def follower(files: SimulatedFiles, config: LogConfig | None = None, *, clean: bool = True) -> FollowerLog:
    return FollowerLog.open(
        files,
        FOLDER,
        TopicIdPartition("orders", 0),
        config=config or LogConfig(),
        now_ms=0,
        checkpoints=LogCheckpoints(clean_shutdown=clean),
    )


def stored_bytes(files: SimulatedFiles) -> bytes:
    names = sorted(name for name in files.list(FOLDER) if name.endswith(".log"))
    return b"".join(files.read_bytes(f"{FOLDER}/{name}") for name in names)


@each("folder", FOLDERS)
@each("segment_bytes", [1 << 20, 2000])
def test_fetched_logs_of_kafka_are_stored_byte_for_byte(folder: Path, segment_bytes: int) -> None:
    logs = sorted(folder.glob("*.log"))
    theirs = b"".join(path.read_bytes() for path in logs)
    begin = int(logs[0].stem)
    rng = random.Random(len(theirs) + segment_bytes)
    files = SimulatedFiles()
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=200, rules=Rules(compacted=True))
    log = follower(files, config)
    log.begin_at(begin, now_ms=0)
    left = theirs
    while left:  # each fetch has whole batches and a part of one
        size = rng.randint(1, 6000)
        if log.append_fetched(left[:size], now_ms=0) == 0:
            size = formats.read_header(left).size_bytes
            assert log.append_fetched(left[:size], now_ms=0) == 1
        done = sum(header.size_bytes for _, header in formats.headers(left) if header.last_offset < log.log_end_offset)
        left = left[done:]
    headers = [header for _, header in formats.headers(theirs)]
    assert log.log_start_offset == begin and log.log_end_offset == max([begin, *(h.next_offset for h in headers)])
    assert stored_bytes(files) == theirs
    known = dict(log.producers())
    log.flush()
    log.abandon()
    aborted = [entry for path in sorted(folder.glob("*.txnindex")) for entry in txn_index.parse(path.read_bytes())]
    ours = sorted(name for name in files.list(FOLDER) if name.endswith(".txnindex"))
    if "compacted" not in folder.name:  # a compacted log lacks the records of these
        assert [entry for name in ours for entry in txn_index.parse(files.read_bytes(f"{FOLDER}/{name}"))] == aborted
    again = follower(files, config, clean=False)
    assert again.producers() == known and again.log_end_offset == log.log_end_offset
    assert stored_bytes(files) == theirs


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=30),
    gaps=st.lists(st.integers(0, 3), min_size=30, max_size=30),
    cuts=st.randoms(),
)
def test_fetched_batches_with_gaps_are_stored(sizes: list[int], gaps: list[int], cuts: random.Random) -> None:
    fetched, offset, expected = bytearray(), 7, []
    for number, (size, gap) in enumerate(zip(sizes, gaps, strict=False)):
        offset += gap
        value = b"%d" % number + b"x" * size
        if number % 3 == 2:
            fetched += old(1, value, offset=offset, codec=GZIP if number % 2 else 0)
        else:
            one = make(value, timestamp=number)
            batch.assign(one, 0, base_offset=offset, leader_epoch=number // 8)
            fetched += one
        expected.append((offset, value))
        offset += 1
    files = SimulatedFiles()
    config = LogConfig(segment_bytes=700, index_interval_bytes=100, segment_index_bytes=36, rules=Rules(compacted=True))
    log = follower(files, config)
    log.begin_at(7, now_ms=0)
    position = 0
    while position < len(fetched):
        size = formats.read_header(fetched, position).size_bytes + cuts.randint(0, 900)
        log.append_fetched(fetched[position : position + size], now_ms=0)
        position = len(stored_bytes(files))
    assert stored_bytes(files) == fetched and log.log_end_offset == offset
    log.close()
    log = follower(files, config, clean=cuts.random() < 0.5)
    found = [
        (record.offset, record.value)
        for data in (log.read(at, 1).records for at, _ in expected)
        for record in formats.records(data)
    ]
    assert found == expected


def test_fetched_batch_that_is_damaged_or_below_the_end_is_refused() -> None:
    files = SimulatedFiles()
    log = follower(files)
    first, second = make(b"1"), make(b"2")
    batch.assign(second, 0, base_offset=1, leader_epoch=0)
    damaged = second.copy()
    damaged[-1] ^= 1
    for wrong in (bytes(first + damaged), bytes(second + first), bytes(first + first), b"\xff" * 100):
        with pytest.raises(CorruptRecords):
            log.append_fetched(wrong, now_ms=0)
        assert log.log_end_offset == 0 and stored_bytes(files) == b""
    assert log.append_fetched(first + second, now_ms=0) == 2
    with pytest.raises(CorruptRecords, match="the log ends at 2"):
        log.append_fetched(second, now_ms=0)
    assert values(log) == [b"1", b"2"]
    with pytest.raises(StorageError, match="cannot begin at 9"):
        log.begin_at(9, now_ms=0)
    assert batch.read_header(log.last_batch()).base_offset == 1
    log.close()
    assert follower(files).last_batch() == second


def test_leader_epochs_are_those_of_the_batches() -> None:
    files = SimulatedFiles()
    log = follower(files)
    data = bytearray()
    for offset, epoch in enumerate((3, 3, 5, 9)):
        one = make(b"x")
        batch.assign(one, 0, base_offset=offset, leader_epoch=epoch)
        data += one
    log.append_fetched(data, now_ms=0)
    assert [log.end_offset_for_epoch(epoch) for epoch in (3, 5, 9)] == [(3, 2), (5, 3), (9, 4)]
    log.close()
    assert [open_log(files).end_offset_for_epoch(epoch) for epoch in (3, 5, 9)] == [(3, 2), (5, 3), (9, 4)]


@pytest.mark.parametrize("killed_at", range(12))
def test_begin_at_stopped_anywhere_is_done_or_not(killed_at: int) -> None:
    files = SimulatedFiles()
    log = follower(files)
    log.flush()
    files.fail_at, files.killing = files.steps + killed_at, True
    try:
        log.begin_at(500, now_ms=0)
        log.flush()
    except BaseException as error:
        assert type(error).__name__ == "Killed"
    files.crash(random.Random(killed_at))
    log = follower(files, clean=False)
    assert (log.log_start_offset, log.log_end_offset) in ((0, 0), (500, 500))
    log.begin_at(500, now_ms=0)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)

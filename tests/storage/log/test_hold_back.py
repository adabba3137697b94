"""Records held back from consumers until they are durable: no read returns them, and retention does not delete them."""

from __future__ import annotations

import random

import pytest

from ottla.protocol.records import formats
from ottla.protocol.records.validate import Rules
from ottla.storage import errors
from ottla.storage.partition_log import LogConfig, PartitionLog
from ottla_testing.storage.batches import FOLDER, all_batches, make, message, old, open_log
from ottla_testing.storage.simulated_files import SimulatedFiles


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def fill(log: PartitionLog, count: int) -> None:
    for number in range(count):
        log.append(make(b"x" * 10, b"y", timestamp=1000 + number), now_ms=0)


@pytest.mark.parametrize("segment_bytes", [1 << 30, 700])
def test_records_from_the_held_offset_on_are_not_read(files: SimulatedFiles, segment_bytes: int) -> None:
    """For any requested size and offset, also across rolls."""
    log = open_log(files, config=LogConfig(segment_bytes=segment_bytes, index_interval_bytes=200))
    fill(log, 40)
    one = len(make(b"x" * 10, b"y"))
    for held_from in (0, 2, 14, 40, 78, 80):
        log.hold_back(held_from)
        assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (held_from, held_from, 80)
        for offset in range(81):
            for max_bytes in (0, one, 3 * one, 1 << 20):
                for more in ({}, {"hard_limit": True}, {"committed": True}, {"at_least_one_batch": False}):
                    found = log.read(offset, max_bytes, **more)
                    assert found.high_watermark == held_from
                    ends = [header.next_offset for _, header in formats.headers(found.records)]
                    assert all(end <= held_from for end in ends), (held_from, offset, max_bytes, more)
                    whole = (not more and max_bytes >= one) or more.get("committed")
                    assert bool(ends) or not whole or offset >= held_from
        assert log.available_bytes(held_from) == log.available_bytes(80) == 0
        assert log.available_bytes(0) == held_from // 2 * one
    with pytest.raises(errors.OffsetOutOfRange):
        log.read(81, 1)
    log.hold_back(None)
    assert log.high_watermark == 80 and len(list(all_batches(log))) == 40


def test_hold_back_with_old_formats(files: SimulatedFiles) -> None:
    """A wrapper has its last offset; an append is held back from its first offset on."""
    log = open_log(files, config=LogConfig(rules=Rules(target_magic=1)))
    log.append(old(1, b"a", b"b", codec=1), now_ms=0, produce_version=2)
    log.append(old(1, b"c", b"d", b"e", codec=1), now_ms=0, produce_version=2)
    log.append(bytearray(message(1, b"f") + message(1, b"g", offset=1)), now_ms=0, produce_version=2)
    for held_from, ends in ((0, []), (2, [2]), (5, [2, 5]), (None, [2, 5, 6, 7])):
        log.hold_back(held_from)
        found = log.read(0, 1 << 20).records
        assert [header.next_offset for _, header in formats.headers(found)] == ends


def test_deletion_stops_at_the_held_offset(files: SimulatedFiles) -> None:
    """Neither DeleteRecords nor retention goes above the high watermark."""
    log = open_log(files, config=LogConfig(segment_bytes=200, retention_bytes=0))
    fill(log, 6)
    log.hold_back(4)
    with pytest.raises(errors.OffsetOutOfRange):
        log.delete_records_before(5)
    removed = log.retain(now_ms=10**15)
    assert removed is not None and log.log_start_offset <= 4 < log.log_end_offset
    assert log.read(log.log_start_offset, 1 << 20).high_watermark == 4
    log.hold_back(None)
    assert log.retain(now_ms=10**15) is not None
    assert log.log_start_offset == log.log_end_offset == 12


def test_roll_is_reported(files: SimulatedFiles) -> None:
    log = open_log(files, config=LogConfig(segment_bytes=200))
    ends: list[int] = []
    log.on_roll = lambda: ends.append(log.segments[-1].base_offset)
    fill(log, 6)
    bases = sorted(int(name[:20]) for name in files.list(FOLDER) if name.endswith(".log"))
    assert ends == bases[1:] and len(ends) > 1


def test_random_holds_equal_a_model(files: SimulatedFiles) -> None:
    """Compared with a list of batches: exactly the records below the first held append are visible."""
    seed = random.randrange(1 << 32)
    pick = random.Random(seed)
    log = open_log(files, config=LogConfig(segment_bytes=2000, index_interval_bytes=100))
    bases: list[int] = []
    for _ in range(300):
        values = [b"v" * pick.randrange(60) for _ in range(pick.randrange(1, 5))]
        bases.append(log.append(make(*values), now_ms=0).base_offset)
        if pick.random() < 0.3:
            held_from = pick.choice([*bases, None])
            log.hold_back(held_from)
            shown = [base for base in bases if held_from is None or base < held_from]
            found, offset = [], 0
            while records := log.read(offset, pick.randrange(400)).records:
                headers = [header for _, header in formats.headers(records)]
                found += [header.base_offset for header in headers]
                offset = headers[-1].next_offset
            assert found == shown, f"seed {seed}"

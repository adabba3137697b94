"""The scan for a duplicate older than the cached batches: results, range, and independence from other use of the
log."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch
from ottla.storage import errors
from ottla.storage.partition_log import LogConfig, PartitionLog
from ottla.storage.producers import duplicate_scan
from ottla.storage.producers.producer_state import ProducerRules
from ottla_testing.storage.batches import FOLDER, GZIP, make, old, open_log, sequenced
from ottla_testing.storage.simulated_files import SimulatedFile, SimulatedFiles

SMALL = LogConfig(segment_bytes=3000, index_interval_bytes=150)


def reaching(scan_bytes: int, **config: Any) -> LogConfig:
    return dataclasses.replace(SMALL, producer_rules=ProducerRules(scan_bytes=scan_bytes), **config)


def header(sequence: int, count: int = 1, **more: Any) -> batch.BatchHeader:
    return batch.read_header(sequenced(sequence, count, **more))


def looked(log: PartitionLog, sequence: int, count: int = 1, **more: Any) -> int | None:
    """Returns the offset that a scan finds."""
    scan = log.duplicate_scan(header(sequence, count, **more))
    found = scan() if scan else None
    if found is not None:
        assert found.first_sequence == sequence and found.last_sequence == sequence + count - 1
        assert found.last_offset - found.base_offset == count - 1
    return None if found is None else found.base_offset


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def test_scan_finds_every_batch_of_a_log(files: SimulatedFiles):
    log = open_log(files, config=SMALL)
    written, sequence = [], 0
    for number in range(150):
        if number % 3 == 0:
            log.append(make(b"plain" * (number % 7)), now_ms=0)
        count = 1 + number % 4
        offset = log.append(sequenced(sequence, count, timestamp=number), now_ms=0).base_offset
        log.append(sequenced(sequence, count, producer_id=10, timestamp=number), now_ms=0)
        written.append((sequence, count, offset))
        sequence += count
    assert len(log._segments) > 5
    for sequence, count, offset in written:
        assert looked(log, sequence, count) == offset
        assert looked(log, sequence, count, producer_id=10) == offset + count
        # Only as it was written: not in part, not joined to the next one, not of another producer or epoch.
        assert looked(log, sequence, count + 1) is None
        assert count == 1 or looked(log, sequence + 1, count - 1) is None
        assert looked(log, sequence, count, producer_id=11) is None
        assert looked(log, sequence, count, epoch=1) is None
    appended = log.append(sequenced(0, 1, timestamp=77), now_ms=5)
    assert appended == (1, 1, 0, 0, True)  # the timestamp of the first batch, not of this one
    end = log.log_end_offset
    with pytest.raises(errors.DuplicateSequence):
        log.append(sequenced(0, 2), now_ms=0)
    assert log.log_end_offset == end


def test_scan_covers_batches_that_begin_in_the_last_bytes(files: SimulatedFiles):
    log = open_log(files, config=SMALL)
    size = len(sequenced(0))
    for number in range(100):
        log.append(sequenced(0, producer_id=number), now_ms=0)
    assert log.size_bytes == 100 * size and len(log._segments) > 2
    for back in (1, 2, 10, 43, 44, 45, 99, 100):
        number = 100 - back
        log.configure(reaching(back * size))
        assert looked(log, 0, producer_id=number) == number
        log.configure(reaching(back * size - 1))
        assert looked(log, 0, producer_id=number) is None
    log.configure(reaching(0))
    assert log.duplicate_scan(header(0)) is None


def test_scan_ignores_batches_below_the_log_start(files: SimulatedFiles):
    log = open_log(files, config=SMALL)
    for number in range(60):
        log.append(sequenced(2 * number, 2), now_ms=0)
    log.delete_records_before(51)
    assert looked(log, 50, 2) == 50  # one of its records is there
    assert looked(log, 48, 2) is None
    scan = log.duplicate_scan(header(50, 2))
    assert scan
    found = scan()
    log.delete_records_before(52)  # in the meantime
    with pytest.raises(errors.DuplicateSequence):
        log.resolve_duplicate(found, errors.DuplicateSequence())


def test_scan_over_large_batches_old_messages_and_records_like_headers(files: SimulatedFiles):
    """Runs longer than one read; the searched bytes inside records, at any position."""
    log = open_log(files, config=LogConfig(index_interval_bytes=4096))
    wanted = bytes(sequenced(7)[43:57])
    decoy = bytes(sequenced(7))
    places = {}
    for number in range(14):
        data = make(decoy * number, wanted * 3, b"x" * (number * 17_001 % 90_000), timestamp=number)
        log.append(data, now_ms=0)
        log.configure(LogConfig(index_interval_bytes=4096, rules=dataclasses.replace(log.config.rules, target_magic=1)))
        log.append(old(1, decoy, b"y" * 50), now_ms=0, produce_version=2)
        log.append(old(1, decoy, b"y" * 50, codec=GZIP), now_ms=0, produce_version=2)
        log.configure(LogConfig(index_interval_bytes=4096))
        if number > 6:
            places[number - 7] = log.append(sequenced(number - 7), now_ms=0).base_offset
    assert {sequence: looked(log, sequence) for sequence in range(7)} == places
    assert looked(log, 7) is None
    big = b"z" * (3 * duplicate_scan.RUN_BYTES)
    for sequence in range(7, 12):
        places[sequence] = log.append(
            make(big, producer_id=9, producer_epoch=0, base_sequence=sequence), now_ms=0
        ).base_offset
    assert {sequence: looked(log, sequence) for sequence in range(12)} == places


def test_scan_of_a_log_that_ends_with_a_short_old_message(files: SimulatedFiles):
    log = open_log(files, config=SMALL)
    for number in range(8):
        log.append(sequenced(number), now_ms=0)
    log.configure(dataclasses.replace(SMALL, rules=dataclasses.replace(SMALL.rules, target_magic=0)))
    log.append(old(0, b""), now_ms=0, produce_version=1)
    assert [looked(log, number) for number in range(9)] == [*range(8), None]


def test_scan_with_a_damaged_index_finds_every_batch(files: SimulatedFiles):
    log = open_log(files, config=SMALL)
    for number in range(120):
        log.append(sequenced(number), now_ms=0)
    log.close()
    for name in files.list(FOLDER):
        live = files.contents[f"{FOLDER}/{name}"].live
        if name.endswith(".index") and len(live) > 20:
            live[15] ^= 0x20  # a position
    log = open_log(files, config=SMALL)
    assert [looked(log, number) for number in range(120)] == list(range(120))


def test_scan_over_an_invalid_batch_size_raises(files: SimulatedFiles):
    log = open_log(files, config=SMALL)
    for number in range(8):
        log.append(sequenced(number), now_ms=0)
    scan = log.duplicate_scan(header(1))
    assert scan
    files.contents[f"{FOLDER}/{0:020d}.log"].live[8:12] = bytes(4)
    with pytest.raises(errors.StorageError, match="a batch of 0 bytes"):
        scan()


def test_scan_of_a_log_closed_or_deleted_meanwhile(files: SimulatedFiles):
    log = open_log(files, config=SMALL)
    for number in range(8):
        log.append(sequenced(number), now_ms=0)
    scan = log.duplicate_scan(header(0))
    assert scan
    log.close()
    with pytest.raises(errors.StorageError, match="is closed"):
        scan()
    log = open_log(files, config=SMALL)
    scan = log.duplicate_scan(header(0))
    assert scan
    files.replace(FOLDER, FOLDER + "-delete")
    assert scan()  # the files are open
    with pytest.raises(errors.StorageError, match="cannot look for a duplicate"):
        log.duplicate_scan(header(0))


def test_scan_opens_and_closes_its_own_file_descriptors(files: SimulatedFiles, monkeypatch: pytest.MonkeyPatch):
    log = open_log(files, config=SMALL)
    for number in range(120):
        log.append(sequenced(number), now_ms=0)
    assert len(log._segments) > 2
    opened: list[SimulatedFile] = []
    original = files.open

    def opening(path: str, *, create: bool = False) -> SimulatedFile:
        assert path.endswith(".log") and not create
        opened.append(original(path))
        return opened[-1]

    steps = files.steps
    monkeypatch.setattr(files, "open", opening)
    scan = log.duplicate_scan(header(0))
    assert scan and scan() and len(opened) == len(log._segments)
    assert not any(file._open for file in opened) and files.steps == steps


@given(
    batches=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 400), st.integers(0, 3)), min_size=1, max_size=60),
    scan_bytes=st.integers(0, 20_000),
    start=st.floats(0, 1),
    interval=st.sampled_from([0, 100, 1000]),
    run_bytes=st.sampled_from([64, 200, 32 * 1024]),
)
def test_scan_of_any_log_equals_a_model(
    batches: list[tuple[int, int, int]], scan_bytes: int, start: float, interval: int, run_bytes: int
) -> None:
    """Compared with a list: (records, bytes of each, producer), producer 0 for none."""
    config = reaching(scan_bytes, index_interval_bytes=interval)
    log = open_log(SimulatedFiles(), config=config)
    known: list[tuple[int, int, int, int, int]] = []  # producer, sequence, count, offset, bytes of the log before
    sequences = dict.fromkeys(range(4), 0)
    for count, size, producer in batches:
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
        known.append((producer, sequences[producer], count, log.log_end_offset, log.size_bytes))
        log.append(make(*[b"v" * size] * count, **(fields if producer else {})), now_ms=0)
        sequences[producer] += count
    log.delete_records_before(round(start * log.log_end_offset))
    saved, duplicate_scan.RUN_BYTES = duplicate_scan.RUN_BYTES, run_bytes
    try:
        for producer, sequence, count, offset, before in known:
            if producer:
                reached = log.size_bytes - before <= scan_bytes and offset + count > log.log_start_offset
                found = looked(log, sequence, count, producer_id=producer) if scan_bytes else None
                assert found == (offset if reached else None)
    finally:
        duplicate_scan.RUN_BYTES = saved

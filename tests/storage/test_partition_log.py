"""One partition log: appending, reading, rolling, look-ups, producers, the log start."""

from __future__ import annotations

import dataclasses

import pytest

from ottla.protocol.records import batch, formats
from ottla.protocol.records.errors import CorruptRecords, InvalidRecords, MessageTooLarge
from ottla.protocol.records.validate import Prepared, Rules
from ottla.storage import errors
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import Appended, LogConfig, PartitionLog, TimestampOffset, TopicIdPartition
from ottla.storage.producers.producer_state import ProducerRules
from ottla_testing.storage.batches import FOLDER, TOPIC_ID, all_batches, make, open_log, sequenced, values
from ottla_testing.storage.simulated_files import SimulatedFiles

ONE = len(make(b"x" * 10))


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def fill(log: PartitionLog, count: int, size: int = 10, first_timestamp: int = 1000) -> None:
    for number in range(count):
        log.append(make(b"x" * size, timestamp=first_timestamp + number), now_ms=0)


def test_append_assigns_only_offsets_and_epoch(files: SimulatedFiles):
    log = open_log(files)
    first, second = make(b"a", b"b", b"c"), make(b"d")
    sent = bytes(first)
    assert log.append(first, now_ms=77) == Appended(0, 2, -1, 0, False)
    assert log.append(memoryview(second), now_ms=77) == Appended(3, 3, -1, 0, False)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset) == (0, 4, 4, 4)
    stored = bytes(log.read(0, 1 << 20).records)
    assert log.size_bytes == len(stored) == len(first) + len(second)
    assert stored[16 : len(sent)] == sent[16:]  # magic and all that the CRC covers
    assert [header[:3] for _, header in formats.headers(stored)] == [(0, len(first) - 12, 0), (3, len(second) - 12, 0)]
    assert values(log) == [b"a", b"b", b"c", b"d"]


def test_log_append_time_is_returned_and_stored(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(rules=Rules(log_append_time=True)))
    assert log.append(make(b"a", timestamp=5), now_ms=777).log_append_time_ms == 777
    assert log.find_timestamp(777) == log.max_timestamp() == TimestampOffset(777, 0, 0)


def test_read_returns_whole_batches(files: SimulatedFiles):
    log = open_log(files)
    fill(log, 5)
    for limit, batches in [(ONE, 1), (2 * ONE - 1, 1), (2 * ONE, 2), (10 * ONE, 4)]:
        assert len(log.read(1, limit).records) == batches * ONE
    assert len(log.read(1, ONE - 1).records) == ONE
    assert len(log.read(1, 0).records) == ONE
    assert len(log.read(1, -5).records) == ONE
    assert log.read(1, ONE - 1, at_least_one_batch=False).records == b""
    assert len(log.read(1, ONE, at_least_one_batch=False, committed=True).records) == ONE
    assert log.read(5, 100) == (b"", 5, 0, 5, ())
    for offset in (-1, 6):
        with pytest.raises(errors.OffsetOutOfRange) as caught:
            log.read(offset, 100)
        assert (caught.value.offset, caught.value.log_start_offset, caught.value.log_end_offset) == (offset, 0, 5)


def test_read_from_an_offset_inside_a_batch_returns_the_whole_batch(files: SimulatedFiles):
    log = open_log(files)
    log.append(make(b"a", b"b", b"c"), now_ms=0)
    log.append(make(b"d", b"e"), now_ms=0)
    for offset, base in [(0, 0), (1, 0), (2, 0), (3, 3), (4, 3)]:
        assert batch.read_header(log.read(offset, 1).records).base_offset == base


@pytest.mark.parametrize("reopened", [False, True])
def test_every_offset_is_found_in_segments_with_and_without_index_entries(files: SimulatedFiles, reopened: bool):
    config = LogConfig(segment_bytes=9_000, index_interval_bytes=300)
    log = open_log(files, config=config)
    fill(log, 500)
    assert len([name for name in files.list(FOLDER) if name.endswith(".log")]) == 5
    if reopened:
        log.close()
        log = open_log(files, config=config)
    for offset in range(500):
        for limit in (1, 2 * ONE, 700, 10_000):
            data = log.read(offset, limit).records
            assert batch.read_header(data).base_offset == offset
            assert len(data) % ONE == 0 and (len(data) <= limit or len(data) == ONE)
            assert len(data) + ONE > limit or batch.read_header(data, len(data) - ONE).next_offset in (
                500,
                *(segment.base_offset for segment in log._segments),
            )


def test_more_batches_than_the_tail_cache(files: SimulatedFiles):
    log = open_log(files)
    fill(log, 3000)
    for offset in (0, 1, 951, 952, 1975, 1976, 2999):
        assert batch.read_header(log.read(offset, 1).records).base_offset == offset
        assert len(log.read(offset, 5 * ONE).records) == min(5, 3000 - offset) * ONE
    assert len(list(all_batches(log))) == 3000


def test_available_bytes_are_exact_at_the_tail_and_never_too_few(files: SimulatedFiles):
    config = LogConfig(segment_bytes=9_000, index_interval_bytes=300)
    log = open_log(files, config=config)
    fill(log, 300)
    tail = log._segments[-1].base_offset
    for offset in range(tail, 301):
        assert log.available_bytes(offset) == (300 - offset) * ONE
    for offset in range(tail):
        assert 0 <= log.available_bytes(offset) - (300 - offset) * ONE <= 300 + 2 * ONE
    log.close()
    log = open_log(files, config=config)
    steps = files.steps
    for offset in range(301):
        assert (300 - offset) * ONE <= log.available_bytes(offset) <= 300 * ONE
    assert log.available_bytes(300) == 0
    assert files.steps == steps


# -- rolling


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log._segments]


def test_exactly_full_segment_does_not_roll(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_bytes=3 * ONE))
    fill(log, 7)
    assert bases(log) == [0, 3, 6]
    with pytest.raises(errors.RecordListTooLarge):
        log.append(make(b"x" * (3 * ONE)), now_ms=0)
    assert log.log_end_offset == 7


def test_roll_by_time_uses_record_timestamps(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_ms=100))
    log.append(make(b"a", timestamp=1000), now_ms=0)
    log.append(make(b"b", timestamp=1100), now_ms=10**9)
    assert bases(log) == [0]
    log.append(make(b"c", timestamp=1101), now_ms=0)
    assert bases(log) == [0, 2]
    log.append(make(b"d", timestamp=500), now_ms=10**9)
    assert bases(log) == [0, 2]
    log.close()
    log = open_log(files, config=LogConfig(segment_ms=100))
    log.append(make(b"e", timestamp=1202), now_ms=0)  # the first batch of the segment had 1101
    assert bases(log) == [0, 2, 4]


def test_roll_by_time_without_timestamps_uses_the_segment_age(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_ms=100))
    log.append(make(b"a", timestamp=-1), now_ms=0)
    log.append(make(b"b", timestamp=-1), now_ms=100)
    assert bases(log) == [0]
    log.append(make(b"c", timestamp=-1), now_ms=101)
    assert bases(log) == [0, 2]


def test_roll_jitter_is_chosen_for_each_segment(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_ms=100, segment_jitter_ms=100))  # pick gives 99
    log.append(make(b"a", timestamp=1000), now_ms=0)
    log.append(make(b"b", timestamp=1001), now_ms=0)
    assert bases(log) == [0]
    log.append(make(b"c", timestamp=1002), now_ms=0)
    assert bases(log) == [0, 2]


@pytest.mark.parametrize(
    ("index_bytes", "timestamps", "expected"),
    [
        pytest.param(28, [1000] * 8, [0, 2, 4, 6], id="two time entries, the last of which is the roll's"),
        pytest.param(36, range(1000, 1008), [0, 3, 6], id="three time entries"),
        pytest.param(36, [-1] * 8, [0, 5], id="four offset entries, no time entry"),
    ],
)
def test_full_index_rolls(files: SimulatedFiles, index_bytes: int, timestamps: list[int], expected: list[int]):
    log = open_log(files, config=LogConfig(index_interval_bytes=0, segment_index_bytes=index_bytes))
    for timestamp in timestamps:
        log.append(make(b"x", timestamp=timestamp), now_ms=0)
    assert bases(log) == expected
    log.close()
    assert all(files.size(f"{FOLDER}/{base:020d}.index") <= index_bytes for base in expected)
    assert all(files.size(f"{FOLDER}/{base:020d}.timeindex") <= index_bytes for base in expected)


def test_offsets_too_far_from_the_base_roll(files: SimulatedFiles):
    log = open_log(files)
    far = make(b"x", last_offset_delta=2**31 - 2)
    header = batch.read_header(far)
    log.append_prepared(Prepared(far, header, -1, 0, (header,)), now_ms=0)
    assert log.log_end_offset == 2**31 - 1
    fill(log, 2)
    assert bases(log) == [0, 2**31]
    assert batch.read_header(log.read(2**31, 1).records).base_offset == 2**31


# -- timestamps


def test_timestamp_search_equals_a_list(files: SimulatedFiles):
    config = LogConfig(segment_bytes=3_000, index_interval_bytes=200)
    log = open_log(files, config=config)
    stamps: list[int] = []
    for number in range(120):
        start = 1000 + (number * 7919) % 300  # forth and back
        log.append(make(*[b"v"] * 3, timestamp=start, step=2), now_ms=0)
        stamps += [start, start + 2, start + 4]
    for _ in range(2):
        for wanted in range(990, 1310):
            expected = next(((t, o, 0) for o, t in enumerate(stamps) if t >= wanted), None)
            assert log.find_timestamp(wanted) == expected
        top = max(stamps)
        assert log.max_timestamp() == (top, stamps.index(top), 0)
        start = stamps.index(top) + 1
        log.delete_records_before(start)
        rest = stamps[start:]
        assert log.max_timestamp() == (max(rest), start + rest.index(max(rest)), 0)
        assert log.find_timestamp(0) == (stamps[start], start, 0)
        log.close()
        log = open_log(files, config=config)


def test_records_without_timestamp_are_not_found_by_time(files: SimulatedFiles):
    log = open_log(files)
    assert log.max_timestamp() is None and log.find_timestamp(0) is None
    log.append(make(b"a", timestamp=-1), now_ms=0)
    assert log.max_timestamp() is None and log.find_timestamp(0) is None


# -- producers


def test_duplicate_gets_the_result_of_the_first_batch(files: SimulatedFiles):
    log = open_log(files)
    log.append(make(b"other"), now_ms=0)
    for number in range(6):
        log.append(sequenced(2 * number, 2, timestamp=5000 + number), now_ms=0)
    before = (log.log_end_offset, log.size_bytes)
    for _ in range(2):
        for number in range(1, 6):
            again = log.append(sequenced(2 * number, 2, timestamp=5000 + number), now_ms=0)
            assert again == Appended(1 + 2 * number, 2 + 2 * number, 5000 + number, 0, True)
        assert log.append(sequenced(0, 2), now_ms=0).base_offset == 1  # no longer cached, but in the log
        with pytest.raises(errors.DuplicateSequence):
            log.append(sequenced(0, 1), now_ms=0)  # written, in another batch
        with pytest.raises(errors.OutOfOrderSequence):
            log.append(sequenced(13), now_ms=0)
        with pytest.raises(errors.UnknownProducer):
            log.append(sequenced(3, producer_id=10), now_ms=0)
        with pytest.raises(errors.FencedProducer):
            log.append(sequenced(12, epoch=-1), now_ms=0)
        assert (log.log_end_offset, log.size_bytes) == before
        log.close()
        log = open_log(files)  # the second time from the batches on the disk


def test_refused_or_duplicate_batch_does_not_roll(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_bytes=len(sequenced(0)) + 1))
    log.append(sequenced(0), now_ms=0)
    log.append(sequenced(0), now_ms=0)
    with pytest.raises(errors.OutOfOrderSequence):
        log.append(sequenced(7), now_ms=0)
    assert bases(log) == [0]


def test_producers_below_the_log_start_are_removed_also_after_a_reopen(files: SimulatedFiles):
    config = LogConfig(producer_rules=ProducerRules(drop_below_log_start=True))
    log = open_log(files, config=config)
    for number in range(3):
        log.append(sequenced(number), now_ms=0)
    log.append(make(b"other"), now_ms=0)
    assert log.delete_records_before(3) == 3
    with pytest.raises(errors.UnknownProducer):
        log.append(sequenced(3), now_ms=0)
    log.append(sequenced(0), now_ms=0)
    log.close()
    log = open_log(files, log_start_offset=3, config=config)
    # sequence 1 was written once, but before the producer started again: not a duplicate
    assert log.append(sequenced(1), now_ms=0) == Appended(5, 5, -1, 3, False)


# -- refused batches


def test_refused_append_changes_nothing(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(rules=Rules(max_message_bytes=200)))
    good = make(b"a")
    damaged = make(b"a")
    damaged[-1] ^= 1
    steps = files.steps
    for records, error in [
        (damaged, CorruptRecords),
        (bytearray(good + good), InvalidRecords),
        (make(b"x" * 200), MessageTooLarge),
    ]:
        with pytest.raises(error):
            log.append(records, now_ms=0)
    assert log.log_end_offset == 0 and files.steps == steps
    log.configure(dataclasses.replace(log.config, rules=Rules()))
    log.append(make(b"x" * 200), now_ms=0)


def test_closed_log_refuses_appends(files: SimulatedFiles):
    log = open_log(files)
    log.close()
    log.close()
    with pytest.raises(errors.StorageError):
        log.append(make(b"a"), now_ms=0)
    with pytest.raises(errors.StorageError):
        log.delete_records_before(0)
    with pytest.raises(errors.StorageError):
        log.read(0, 1)


def test_own_records_are_appended_without_client_rules(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(rules=Rules(max_message_bytes=10, compacted=True)))
    record = batch.Record(999, 50, None, b"value", (batch.Header("h", b"1"),))
    assert log.append_records([record, record], now_ms=0, codec=1) == Appended(0, 1, -1, 0, False)
    assert log.append_records([record], now_ms=0).base_offset == 2
    stored = [r for data in all_batches(log) for r in batch.records(data)]
    assert stored == [record._replace(offset=offset) for offset in range(3)]


# -- log start, epochs, identity


def test_log_start_only_advances_and_is_durable_first(files: SimulatedFiles):
    moves: list[tuple[int, int]] = []
    log = open_log(files, on_log_start=lambda log, offset: moves.append((log.log_start_offset, offset)))
    fill(log, 10)
    assert [log.delete_records_before(offset) for offset in (4, 2, 4, 10)] == [4, 4, 4, 10]
    assert moves == [(0, 4), (4, 10)]
    for offset in (-1, 11):
        with pytest.raises(errors.OffsetOutOfRange):
            log.delete_records_before(offset)
    with pytest.raises(errors.OffsetOutOfRange):
        log.read(9, 1)
    assert log.read(10, 1).records == b""
    fill(log, 1)
    assert log.append(make(b"a"), now_ms=0).log_start_offset == 10


def test_log_start_that_cannot_be_stored_is_unchanged(files: SimulatedFiles):
    def refuse(log: PartitionLog, offset: int) -> None:
        raise errors.StorageError("no")

    log = open_log(files, on_log_start=refuse)
    fill(log, 3)
    with pytest.raises(errors.StorageError):
        log.delete_records_before(2)
    assert log.log_start_offset == 0 and len(values(log)) == 3


def test_end_offsets_of_leader_epochs(files: SimulatedFiles):
    log = open_log(files)
    assert log.end_offset_for_epoch(0) == (0, 0)
    assert log.end_offset_for_epoch(1) == log.end_offset_for_epoch(-1) == (-1, -1)
    fill(log, 2)
    log.leader_epoch = 3
    fill(log, 1)
    assert files.read_bytes(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n2\n0 0\n3 2\n"
    for clean in (True, False):
        expected = {-1: (-1, -1), 0: (0, 2), 1: (0, 2), 2: (0, 2), 3: (3, 3), 4: (-1, -1)}
        assert {epoch: log.end_offset_for_epoch(epoch) for epoch in expected} == expected
        log.close()
        files.remove(f"{FOLDER}/leader-epoch-checkpoint")
        log = open_log(files, clean=clean)
        assert log.leader_epoch == 3
    log.delete_records_before(3)
    log.close()
    log = open_log(files, log_start_offset=3)
    assert log.end_offset_for_epoch(0) == (0, 3)  # the first known one begins at the log start, as in Kafka


def test_epoch_without_records(files: SimulatedFiles):
    """A log of an adopted directory has a later leader epoch than its newest batch: that one ends at the log end."""
    log = open_log(files)
    fill(log, 3)
    log.leader_epoch = 4
    expected = {-1: (-1, -1), 0: (0, 3), 3: (0, 3), 4: (4, 3), 5: (-1, -1)}
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in expected} == expected
    fill(log, 1)
    expected = {0: (0, 3), 3: (0, 3), 4: (4, 4), 5: (-1, -1)}
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in expected} == expected


def test_epochs_of_an_empty_log_end_at_its_end(files: SimulatedFiles):
    log = open_log(files)
    log.leader_epoch = 2  # recorded there with the first batch, and at its beginning by Apache Kafka
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in (-1, 0, 1, 2, 3)} == {
        -1: (-1, -1),
        0: (0, 0),
        1: (1, 0),
        2: (2, 0),
        3: (-1, -1),
    }


def test_folder_of_another_topic_id_is_not_opened(files: SimulatedFiles):
    open_log(files).close()
    with pytest.raises(errors.StorageError, match="another topic"):
        PartitionLog.open(
            files,
            FOLDER,
            TopicIdPartition("orders", 0, b"y" * 16),
            config=LogConfig(),
            now_ms=0,
            checkpoints=LogCheckpoints(clean_shutdown=True),
        )
    log = PartitionLog.open(
        files,
        FOLDER,
        TopicIdPartition("orders", 0),
        config=LogConfig(),
        now_ms=0,
        checkpoints=LogCheckpoints(clean_shutdown=True),
    )
    assert log.topic_id == TOPIC_ID

"""Segments with messages of formats v0 and v1, alone and mixed with v2 batches."""

from __future__ import annotations

import dataclasses
import random
from itertools import pairwise

import pytest

from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import Record
from ottla.storage import errors
from ottla.storage.partition_log import Appended, LogConfig, PartitionLog, TimestampOffset
from ottla_testing.each import each
from ottla_testing.storage.batches import (
    FOLDER,
    GZIP,
    all_batches,
    make,
    message,
    offsets,
    old,
    open_log,
    storing,
    values,
)
from ottla_testing.storage.simulated_files import SimulatedFiles

LOG, INDEX, TIMES = (f"{FOLDER}/{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))
SMALLEST = 26

# As kafka-python writes them. v0: key null, value "a" / v1: key "k", value "bc" at 1007 ms / v1: key "k", value null
# at 1003 ms
GOLDEN = bytes.fromhex(
    "0000000000000000 0000000f 51df3a32 00 00 ffffffff 00000001 61"
    "0000000000000001 00000019 9cfa436a 01 00 00000000000003ef 00000001 6b 00000002 6263"
    "0000000000000002 00000017 a00f6caa 01 00 00000000000003eb 00000001 6b ffffffff"
)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def put(files: SimulatedFiles, path: str, data: bytes) -> None:
    files.make_directory(FOLDER)
    file = files.open(path, create=True)
    file.truncate(0)
    file.write(0, data)


def append(log: PartitionLog, data: bytes | bytearray, now_ms: int = 0) -> Appended:
    """Appends a set of any format and keeps its format."""
    magic = data[16]
    log.configure(dataclasses.replace(log.config, rules=dataclasses.replace(log.config.rules, target_magic=magic)))
    return log.append(bytearray(data), now_ms=now_ms, produce_version=(1, 2, 13)[magic])


def fill_mixed(log: PartitionLog, rounds: int) -> list[int]:
    """Writes sets of all formats, with and without wrappers; returns the last offset of each entry."""
    ends: list[int] = []
    for number in range(rounds):
        many = [b"%d-%d" % (number, part) * 3 for part in range(1 + number % 4)]
        sets = [
            old(0, *many),
            old(1, *many, codec=GZIP, timestamp=number, step=1),
            make(*many, timestamp=number),
            old(0, *many, codec=GZIP),
            old(1, *many, timestamp=number, step=2),
        ]
        data = sets[number * 3 % 5]
        start = log.log_end_offset
        assert append(log, data) == Appended(start, start + len(many) - 1, -1, log.log_start_offset, False)
        is_one = data[16] == 2 or data[17] & 7
        ends += [start + len(many) - 1] if is_one else range(start, start + len(many))
    return ends


# -- the bytes


def test_golden_bytes_of_old_messages_and_their_indexes(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(index_interval_bytes=0))
    append(log, message(0, b"a", offset=0))
    writes = len([step for step in files.log if step == f"write {LOG}"])
    append(log, message(1, b"bc", key=b"k", timestamp=1007) + message(1, None, key=b"k", offset=1, timestamp=1003))
    assert len([step for step in files.log if step == f"write {LOG}"]) == writes + 1  # one for the whole set
    log.close()
    assert files.read_bytes(LOG) == GOLDEN and len(GOLDEN) == 27 + 37 + 35
    assert files.read_bytes(INDEX) == bytes.fromhex("00000001 0000001b  00000002 00000040")
    assert files.read_bytes(TIMES) == bytes.fromhex("00000000000003ef 00000001")
    assert values(open_log(files)) == values(open_log(files, clean=False)) == [b"a", b"bc", None]


def test_golden_bytes_of_indexes_over_sets_by_the_interval_rule(files: SimulatedFiles):
    """Entries are made message by message, not for each append, and v0 has no timestamps."""
    log = open_log(files, config=LogConfig(index_interval_bytes=69))
    append(log, old(1, *[b"a"] * 5, timestamp=1000, step=1))  # 35 bytes each
    append(log, old(0, *[b"a"] * 5))  # 27 bytes each
    log.close()
    assert files.read_bytes(INDEX) == bytes.fromhex("00000002 00000046  00000004 0000008c  00000007 000000e5")
    assert files.read_bytes(TIMES) == bytes.fromhex("00000000000003ea 00000002  00000000000003ec 00000004")


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_has_the_last_offset_and_messages_keep_relative_offsets(files: SimulatedFiles, magic: int):
    log = open_log(files)
    append(log, make(b"x", b"y"))
    assert append(log, old(magic, b"a", b"b", b"c", codec=GZIP, step=5)) == Appended(2, 4, -1, 0, False)
    stored = bytes(log.read(2, 1).records)
    assert formats.read_header(stored)[:5:3] == (4, magic)
    found = [(record.offset, record.timestamp, record.value) for record in formats.records(stored)]
    times = (1000, 1005, 1010) if magic else (-1, -1, -1)
    assert found == list(zip((2, 3, 4), times, (b"a", b"b", b"c"), strict=True))
    # The bytes of a v1 wrapper except its offset are the producer's; a v0 wrapper was compressed again.
    assert magic == 0 or stored[8:] == bytes(old(magic, b"a", b"b", b"c", codec=GZIP, step=5))[8:]


def test_directory_of_old_messages_is_opened_unchanged(files: SimulatedFiles):
    """As Kafka 0.8 left it: no time index, no leader epochs."""
    data = b"".join(bytes(old(0, b"%d" % n, b"x", codec=n % 2, offset=2 * n)) for n in range(40))
    put(files, LOG, data)
    put(files, INDEX, b"")
    for _ in range(2):
        log = open_log(files)
        assert offsets(log) == list(range(80)) and log.log_end_offset == 80
        assert log.max_timestamp() is None and log.end_offset_for_epoch(0) == (-1, -1)
        log.close()
    assert files.read_bytes(LOG) == data and files.read_bytes(TIMES) == b""


# -- reading


@pytest.mark.parametrize("reopened", ["no", "clean", "unclean"])
@pytest.mark.parametrize("interval", [0, 150, 10**6])
def test_every_offset_is_found_in_mixed_segments(files: SimulatedFiles, reopened: str, interval: int, stride: int):
    log = open_log(files, config=LogConfig(segment_bytes=4000, index_interval_bytes=interval))
    ends = fill_mixed(log, 150)
    assert len(log._segments) > 2
    if reopened != "no":
        log.close()
        log = open_log(files, config=log.config, clean=reopened == "clean")
        assert log.cut_bytes == 0
    assert offsets(log) == list(range(log.log_end_offset))
    segment_ends = [segment.next_offset - 1 for segment in log._segments]
    for offset in range(random.randrange(stride), log.log_end_offset, stride):
        for limit in (1, 300, 10_000):
            data = bytes(log.read(offset, limit).records)
            found = [header.last_offset for _, header in formats.headers(data)]
            # The first entry that ends at or above the offset, and those after it, whole.
            first = next(number for number, end in enumerate(ends) if end >= offset)
            assert found == ends[first : first + len(found)]
            assert sum(header.size_bytes for _, header in formats.headers(data)) == len(data)
            assert len(data) <= limit or len(found) == 1
            assert limit < 10_000 or found[-1] in segment_ends


def test_more_old_messages_than_the_tail_cache(files: SimulatedFiles):
    log = open_log(files)
    for start in range(0, 3000, 60):
        append(log, old(1, *[b"v"] * 60, codec=GZIP if start % 3600 == 0 else 0))
    ends = [record.last_offset for data in all_batches(log) for record in [formats.read_header(data)]]
    assert len(ends) > 2048
    for offset in range(3000):
        assert formats.read_header(log.read(offset, 1).records).last_offset == next(e for e in ends if e >= offset)
    assert log.available_bytes(0) == log.size_bytes and log.available_bytes(3000) == 0


def test_smallest_messages_up_to_the_last_byte_are_found(files: SimulatedFiles):
    """The simulated disk refuses to read after the end of a file."""
    data = b"".join(message(0, None, offset=number) for number in range(400))
    assert len(data) == 400 * SMALLEST
    put(files, LOG, data)
    for clean in (True, False):
        log = open_log(files, config=LogConfig(index_interval_bytes=300), clean=clean)
        for offset in range(400):
            for limit in (1, SMALLEST, 2 * SMALLEST - 1, 300, 20_000):
                count = min(max(limit // SMALLEST, 1), 400 - offset)
                assert log.read(offset, limit).records == data[SMALLEST * offset : SMALLEST * (offset + count)]
        log.close()
    files.contents[INDEX].live[-1] ^= 1  # an entry that points into the last message, or after the end of the file
    log = open_log(files)
    assert [log.read(offset, 1).records[7] for offset in (0, 255, 399)] == [0, 255, 399 - 256]


@pytest.mark.parametrize("length", [-20, 0, 13, 10**6])
def test_index_entry_that_points_into_a_value_is_ignored(files: SimulatedFiles, length: int):
    """The value looks like the message of the entry, except for its length."""
    value = message(0, b"x", offset=2)[:8] + length.to_bytes(4, "big", signed=True) + bytes(30)
    data = message(0, b"a") + message(0, value, offset=1) + message(0, b"c", offset=2) + message(0, b"d", offset=3)
    put(files, LOG, data)
    put(files, TIMES, b"")
    put(files, INDEX, bytes.fromhex("00000002 00000035"))  # 27 + 26: the position of the value
    log = open_log(files)
    assert [log.read(offset, 1).records[7] for offset in range(4)] == [0, 1, 2, 3]
    assert len(log.read(0, 27 + 26 + 30).records) == 27


def test_hard_limit_returns_exactly_that_many_bytes(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_bytes=1500))
    fill_mixed(log, 40)
    assert len(log._segments) > 2
    for segment in log._segments:
        stored = files.read_bytes(segment.path(".log"))
        for offset in range(segment.base_offset, segment.next_offset, 3):
            position = segment.position_of(offset)
            assert position is not None
            for limit in (-1, 0, 1, 11, 25, 26, 60, 100, 700, len(stored) - position, 10**6):
                data = log.read(offset, limit, hard_limit=True).records
                assert bytes(data) == stored[position : position + max(limit, 0)]
    assert log.read(log.log_end_offset, 100, hard_limit=True).records == b""


# -- timestamps


@pytest.mark.parametrize("reopened", [False, True])
def test_timestamp_search_across_formats_equals_a_list(files: SimulatedFiles, reopened: bool):
    log = open_log(files, config=LogConfig(segment_bytes=1200, index_interval_bytes=150))
    rng = random.Random(5)
    stamps: list[int] = []
    for _ in range(90):
        start, count, step = rng.randrange(300), rng.randrange(1, 5), rng.randrange(3)
        magic, codec = rng.randrange(3), rng.choice((0, GZIP))
        many = [b"v"] * count
        append(
            log,
            make(*many, timestamp=start, step=step, codec=codec)
            if magic == 2
            else old(magic, *many, timestamp=start, step=step, codec=codec),
        )
        stamps += [start + step * n if magic else -1 for n in range(count)]
    if reopened:
        log.close()
        log = open_log(files, config=log.config)
    for start in (0, 7, 60, 61, 62, 63, 64, 150, len(stamps)):
        log.delete_records_before(start)
        rest = stamps[start:]
        for wanted in range(0, 310, 3):
            found = log.find_timestamp(wanted)
            expected = next(((t, o) for o, t in enumerate(rest, start) if t >= wanted), None)
            assert (found and found[:2]) == expected
        found, top = log.max_timestamp(), max(rest, default=-1)
        assert (found and found[:2]) == (None if top < 0 else (top, start + rest.index(top)))


def test_messages_without_timestamp_are_not_found_by_time(files: SimulatedFiles):
    log = open_log(files)
    append(log, old(0, b"a", b"b"))
    append(log, old(0, b"c", b"d", codec=GZIP))
    assert log.max_timestamp() is None and log.find_timestamp(0) is None
    append(log, old(1, b"e", timestamp=0))
    assert log.max_timestamp() == log.find_timestamp(0) == TimestampOffset(0, 4, -1)


def test_wrapper_with_log_append_time_has_one_timestamp(files: SimulatedFiles):
    put(files, LOG, b"".join([bytes(old(1, b"a", timestamp=7)), log_append_time_wrapper(1, 2000)]))
    log = open_log(files, clean=False)
    assert log.find_timestamp(8) == log.max_timestamp() == TimestampOffset(2000, 1, -1)
    log.delete_records_before(2)
    assert log.find_timestamp(8) == log.max_timestamp() == TimestampOffset(2000, 2, -1)
    assert log.find_timestamp(2001) is None


def log_append_time_wrapper(first: int, time_ms: int) -> bytes:
    """Returns two messages at 5000 and 5001 ms in a wrapper with log append time."""
    wrapper = old(1, b"b", b"c", codec=GZIP, timestamp=5000, step=1)
    at = 12 + 4 + 2 + 8 + 4 + 4  # the value: after prefix, CRC, magic and attributes, timestamp, null key, its length
    return message(1, bytes(wrapper[at:]), offset=first + 1, timestamp=time_ms, bits=GZIP | 8)


def test_timestamps_below_the_log_start_in_a_wrapper_are_ignored(files: SimulatedFiles):
    log = open_log(files)
    append(log, old(1, b"a", b"b", b"c", codec=GZIP, timestamp=50, step=-10))  # 50, 40, 30
    append(log, old(1, b"d", timestamp=35))
    assert log.max_timestamp() == TimestampOffset(50, 0, -1)
    log.delete_records_before(1)
    assert log.max_timestamp() == TimestampOffset(40, 1, -1)
    log.delete_records_before(2)
    assert log.max_timestamp() == TimestampOffset(35, 3, -1)
    assert log.find_timestamp(20) == TimestampOffset(30, 2, -1)


# -- rolling


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log._segments]


def test_set_is_not_split_over_segments(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_bytes=27 * 5))
    append(log, old(0, b"a", b"b", b"c"))
    append(log, old(0, b"d", b"e"))
    assert bases(log) == [0]
    append(log, old(0, b"f"))
    append(log, old(0, *[b"g"] * 5))
    assert bases(log) == [0, 5, 6]
    with pytest.raises(errors.RecordListTooLarge):
        append(log, old(0, *[b"g"] * 6))
    assert log.log_end_offset == 11 and offsets(log) == list(range(11))


def test_roll_by_the_latest_timestamp_of_a_set_or_by_age_without_timestamps(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_ms=100))
    append(log, old(1, b"a", timestamp=1000))
    append(log, old(1, b"b", b"c", b"d", timestamp=1100, step=-50), now_ms=10**9)
    assert bases(log) == [0]
    append(log, old(1, b"e", b"f", b"g", timestamp=1101, step=-50))
    assert bases(log) == [0, 4]
    append(log, old(1, b"h", b"i", b"j", codec=GZIP, timestamp=1102, step=50))
    assert bases(log) == [0, 4, 7]
    append(log, old(0, b"k"), now_ms=10**9)  # without a timestamp, so not late
    assert bases(log) == [0, 4, 7]

    log = open_log(SimulatedFiles(), config=LogConfig(segment_ms=100))
    append(log, old(0, b"a"), now_ms=0)
    append(log, old(1, b"b", timestamp=10**9), now_ms=100)
    assert bases(log) == [0]
    append(log, old(1, b"c", timestamp=0), now_ms=101)
    assert bases(log) == [0, 2]


def test_set_that_may_overflow_an_index_rolls(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(index_interval_bytes=0, segment_index_bytes=10 * 8))
    append(log, old(0, *[b"a"] * 6))  # five entries
    append(log, old(0, *[b"a"] * 5))
    append(log, old(0, b"a"))
    assert bases(log) == [0, 11]
    append(log, old(0, *[b"a"] * 10))
    assert bases(log) == [0, 11, 12]
    log.close()
    assert all(files.size(f"{FOLDER}/{base:020d}.index") <= 80 for base in (0, 11, 12))


def test_roll_assumes_the_most_index_entries_a_set_can_add(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(index_interval_bytes=99, segment_index_bytes=6 * 8))
    for number in range(2):
        append(log, old(0, *[b"a"] * 10))  # 270 bytes each
        assert bases(log) == [0], number
    append(log, message(0, b"a" * 74))  # 100 bytes, and the fifth entry
    assert len(log._active._offset_index) == 5
    append(log, message(0, b"a" * 74) + message(0, b"b", offset=1))  # an entry for each: one too many
    assert bases(log) == [0, 21]


def test_set_with_offsets_too_far_from_the_base_rolls(files: SimulatedFiles):
    put(files, LOG, bytes(old(0, b"a")) + message(0, b"b", offset=2**31 - 4))
    log = open_log(files, clean=False)
    append(log, old(0, b"c", b"d", b"e"))
    assert bases(log) == [0] and log.log_end_offset == 2**31
    put(files, LOG, bytes(old(0, b"a")) + message(0, b"b", offset=2**31 - 3))
    log = open_log(files, clean=False)
    append(log, old(0, b"c", b"d", b"e"))
    assert bases(log) == [0, 2**31 - 2]
    assert formats.read_header(log.read(2**31, 1).records).last_offset == 2**31


# -- leader epochs


def stored_epochs(files: SimulatedFiles) -> bytes:
    return files.read_bytes(f"{FOLDER}/leader-epoch-checkpoint")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_old_messages_clear_the_leader_epochs(files: SimulatedFiles, clean: bool, keep: bool):
    config = LogConfig(segment_bytes=200)

    def reopened(log: PartitionLog) -> PartitionLog:
        log.close()
        if not keep:
            files.remove(f"{FOLDER}/leader-epoch-checkpoint")
        return open_log(files, config=config, clean=clean, recovery_point=log.recovery_point)

    log = open_log(files, config=config)
    for epoch in (0, 4):
        log.leader_epoch = epoch
        append(log, make(b"x" * 60))
    assert stored_epochs(files) == b"0\n2\n0 0\n4 1\n"
    assert append(log, old(1, b"y" * 60)).base_offset == 2
    for _ in range(2):
        assert stored_epochs(files) == b"0\n0\n"
        assert [log.end_offset_for_epoch(epoch) for epoch in (0, 4, 5)] == [(-1, -1)] * 3
        log = reopened(log)
    log.leader_epoch = 5
    append(log, make(b"z"))
    for _ in range(2):
        assert stored_epochs(files) == b"0\n1\n5 3\n"
        assert [log.end_offset_for_epoch(epoch) for epoch in (4, 5, 6)] == [(4, 3), (5, 4), (-1, -1)]
        log = reopened(log)
    append(log, old(0, b"y"))
    append(log, make(b"z"))
    assert stored_epochs(files) == b"0\n1\n5 5\n"


def test_epoch_file_is_ignored_after_an_old_message(files: SimulatedFiles):
    """As Kafka leaves it: its recovery takes the epochs from the v2 batches and ignores the old messages."""
    put(files, LOG, bytes(make(b"x")))
    put(files, f"{FOLDER}/{1:020d}.log", bytes(old(1, b"y", offset=1)))
    put(files, f"{FOLDER}/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    log = open_log(files, clean=False, recovery_point=1)
    assert log.end_offset_for_epoch(0) == (-1, -1) and stored_epochs(files) == b"0\n0\n"


def test_epochs_are_restored_if_writing_old_messages_fails(files: SimulatedFiles):
    log = open_log(files)
    append(log, make(b"x"))
    files.failing = lambda operation, path: operation == "write" and path == LOG
    with pytest.raises(errors.StorageError):
        append(log, old(1, b"y"))
    files.failing = lambda operation, path: False
    assert stored_epochs(files) == b"0\n1\n0 0\n" and log.end_offset_for_epoch(0) == (0, 1)
    log.close()
    assert open_log(files).end_offset_for_epoch(0) == (0, 1)


def test_empty_epoch_file_is_trusted_only_after_a_clean_shutdown(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_bytes=100))
    for number in range(4):
        append(log, make(b"x" * 20, timestamp=number))
    log.close()
    path = f"{FOLDER}/leader-epoch-checkpoint"
    for text, clean, expected in [(b"0\n0\n", True, []), (b"0\n0\n", False, [(0, 0)]), (b"", True, [(0, 0)])]:
        put(files, path, text)
        log = open_log(files, clean=clean, recovery_point=4)
        assert log._epochs.entries == expected
        log.close()


# -- records of the broker's own


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_brokers_own_records_use_the_topics_format(files: SimulatedFiles, magic: int, codec: int):
    log = open_log(files, config=storing(magic))
    records = [Record(9, 100 + n, b"k%d" % n, None if n == 1 else b"v%d" % n) for n in range(3)]
    for start in (0, 3):
        assert log.append_records(records, now_ms=7, codec=codec) == Appended(start, start + 2, -1, 0, False)
    entries = list(all_batches(log))
    assert [entry[16] for entry in entries] == [magic] * (2 if magic == 2 or codec else 6)
    found = [record for entry in entries for record in formats.records(entry)]
    expected = [r._replace(offset=n, timestamp=r.timestamp if magic else -1) for n, r in enumerate(records * 2)]
    assert found == expected
    if magic < 2 and not codec:
        size = sum(map(len, entries[:3]))
        assert b"".join(entries[:3]) == b"".join(
            message(magic, r.value, key=r.key, offset=n, timestamp=r.timestamp) for n, r in enumerate(records)
        )
        assert log.available_bytes(3) == log.size_bytes - size


# -- recovery


TAILS = {
    "v0": bytes(old(0, b"first", b"second", offset=3)),
    "v0 wrapper": bytes(old(0, b"first", b"second", codec=GZIP, offset=3)),
    "v1": bytes(old(1, b"first", b"second", offset=3)),
    "v1 wrapper": bytes(old(1, b"first", b"second", codec=GZIP, offset=3)),
    "v2": (3).to_bytes(8, "big") + bytes(make(b"first", b"second", leader_epoch=0))[8:],
}
FRONTS = {
    "v0": bytes(old(0, b"a", b"b", b"c")),
    "v1": bytes(old(1, b"a", b"b", b"c", codec=GZIP)),
    "v2": bytes(make(b"a", b"b", b"c", leader_epoch=0)),
}


@each("front", FRONTS)
@each("tail", TAILS)
def test_torn_tail_is_cut_after_the_last_whole_entry(front: str, tail: str, stride: int):
    data = FRONTS[front] + TAILS[tail]
    ends = [0] + [position + header.size_bytes for position, header in formats.headers(data)]
    for cut in range(len(FRONTS[front]) + random.randrange(stride), len(data) + 1, stride):
        for clean in (False, True):
            files = SimulatedFiles()
            put(files, LOG, data[:cut])
            log = open_log(files, clean=clean)
            whole = max(end for end in ends if end <= cut)
            assert (log.cut_bytes, files.read_bytes(LOG)) == (cut - whole, data[:whole])
            count = {len(FRONTS[front]): 3, len(data): 5}.get(whole, 4)
            assert log.log_end_offset == count and offsets(log) == list(range(count))
            log.abandon()


@pytest.mark.parametrize("tail", ["v0", "v0 wrapper", "v1", "v1 wrapper"])
def test_flipped_bit_of_an_old_message_cuts_only_there(files: SimulatedFiles, tail: str, stride: int):
    front = FRONTS["v2"]
    last = TAILS[tail]
    *_, (at, _) = formats.headers(last)
    sound = front + last
    put(files, LOG, sound)
    end = 3 if at == 0 else 4
    for position in range(len(front) + at + random.randrange(stride), len(sound), stride):
        for bit in range(8):
            live = files.contents[LOG].live
            live[:] = sound
            live[position] ^= 1 << bit
            log = open_log(files, clean=False)
            if position < len(front) + at + 8:  # the offset lies outside the CRC: it may only rise
                offset = int.from_bytes(live[len(front) + at :][:8], "big", signed=True)
                assert log.log_end_offset == (offset + 1 if end <= offset < 2**31 else end)
            else:
                assert (log.log_end_offset, bytes(live)) == (end, sound[: len(front) + at])
            log.abandon()


@pytest.mark.parametrize("step", [-2, -1, 0])
def test_falling_offsets_end_the_log(files: SimulatedFiles, step: int):
    front = bytes(old(1, b"a", b"b", codec=GZIP)) + bytes(old(0, b"c", offset=2))
    put(files, LOG, front + bytes(old(1, b"d", offset=2 + step)))
    assert (open_log(files, clean=False).log_end_offset, files.read_bytes(LOG)) == (3, front)


def test_message_too_far_from_the_base_ends_the_log(files: SimulatedFiles):
    front = bytes(old(0, b"a"))
    put(files, LOG, front + message(0, b"b", offset=2**31))
    assert open_log(files, clean=False).log_end_offset == 1
    put(files, LOG, front + message(0, b"b", offset=2**31 - 1))
    assert open_log(files, clean=False).log_end_offset == 2**31


def test_damaged_old_message_ends_the_log_and_later_segments_are_removed(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_bytes=600))
    ends = fill_mixed(log, 30)
    everything = values(log)
    log.close()
    segment = log._segments[1]
    positions = [position for position, _ in segment.batches()]
    files.contents[segment.path(".log")].live[positions[2] + 20] ^= 4
    log = open_log(files, config=log.config, clean=False)
    assert bases(log) == [0, segment.base_offset] and log.log_end_offset - 1 in ends
    assert len(log._segments[1].read(0, log._segments[1].size_bytes)) == positions[2]
    assert values(log) == everything[: log.log_end_offset]


@pytest.mark.parametrize("interval", [0, 100, 1000])
def test_recovered_indexes_equal_written_ones(files: SimulatedFiles, interval: int):
    log = open_log(files, config=LogConfig(segment_bytes=2500, index_interval_bytes=interval))
    fill_mixed(log, 120)
    log.close()
    names = sorted(name for name in files.list(FOLDER) if "index" in name)
    before = {name: files.read_bytes(f"{FOLDER}/{name}") for name in names}
    assert len(names) >= 8 and any(before.values())
    for name in names:
        files.remove(f"{FOLDER}/{name}")
    open_log(files, config=log.config, clean=False).close()
    assert {name: files.read_bytes(f"{FOLDER}/{name}") for name in names} == before
    for name in names:  # and again if only some of them are missing after a clean shutdown
        files.remove(f"{FOLDER}/{name}")
        log = open_log(files, config=log.config)
        for offset in range(log.log_end_offset):
            log.read(offset, 1)
        log.close()
        assert {name: files.read_bytes(f"{FOLDER}/{name}") for name in names} == before


def test_swap_of_old_messages_is_completed(files: SimulatedFiles):
    config = dataclasses.replace(storing(1), segment_bytes=80)
    log = open_log(files, config=config)
    for number in range(6):
        append(log, old(1, b"%d" % number))
    log.close()
    assert bases(log) == [0, 2, 4]
    put(files, LOG + ".swap", bytes(old(1, b"1", offset=1)) + bytes(old(1, b"3", offset=3)))
    compacted = dataclasses.replace(config, rules=dataclasses.replace(config.rules, compacted=True))
    assert offsets(open_log(files, config=compacted, clean=False)) == [1, 3, 4, 5]


def test_segments_have_no_offset_gaps(files: SimulatedFiles):
    log = open_log(files, config=LogConfig(segment_bytes=300))
    fill_mixed(log, 40)
    assert all(older.next_offset == newer.base_offset for older, newer in pairwise(log._segments))
    assert {data[16] for data in all_batches(log)} == {0, 1, batch.MAGIC}

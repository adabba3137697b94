"""Message sets of format v0 and v1 in Produce v0-v2: checked, numbered, and stored in any format."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from ottla.protocol.records import batch, compression, legacy, walk
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.errors import (
    CorruptRecords,
    DecompressedTooLarge,
    InvalidRecords,
    InvalidTimestamps,
    MessageTooLarge,
    Undecodable,
    UnsupportedCodec,
    UnsupportedForFormat,
    Unwritable,
)
from ottla.protocol.records.rules import Rules
from ottla.protocol.records.steps import STEP_BYTES, STEP_RECORDS
from ottla.protocol.records.validate import place, prepare, preparing
from ottla_testing.each import each
from ottla_testing.protocol.batches import batch_of
from ottla_testing.protocol.message_sets import (
    HOUR,
    LOG_APPEND_TIME,
    NOW,
    SAMPLE,
    made,
    message,
    plain,
    read,
    sealed,
    store,
    wrapper,
)

OLD = [(magic, codec) for magic in (0, 1) for codec in range(4)]
ALL = [*OLD, *((2, codec) for codec in range(5))]


def expected(records: list[Record], source: int, target: int, base_offset: int = 0) -> list[Record]:
    """Returns the records as the target format returns them."""
    timed = source and target
    return [
        record._replace(offset=base_offset + index, timestamp=record.timestamp if timed else -1)
        for index, record in enumerate(records)
    ]


def refused(kind: type[Exception], data: bytes, rules: Rules | None = None, version: int = 2) -> Any:
    buffer = bytearray(data)
    with pytest.raises(kind) as caught:
        prepare(buffer, rules or Rules(target_magic=1), NOW, version)
    assert type(caught.value) is kind
    assert bytes(buffer) == data
    return caught.value


# --- any format into any other


@each("target", [0, 1, 2])
@each(("magic", "codec"), ALL)
def test_set_of_any_format_is_converted_to_any_other(magic: int, codec: int, target: int) -> None:
    data = made(magic, codec)
    if codec == 4 and target < 2:
        refused(Unwritable, data, Rules(target_magic=target))
        return
    headers, records = store(data, Rules(target_magic=target), base_offset=70)
    assert records == expected(SAMPLE, magic, target, 70)
    assert {(header.magic, header.codec) for header in headers} == {(target, codec)}
    assert len(headers) == (3 if target < 2 and not codec else 1)


@each("codec", range(5))
@each("target", [0, 1, 2])
@each(("magic", "source"), ALL)
def test_set_is_stored_with_the_topics_codec(magic: int, source: int, target: int, codec: int) -> None:
    rules = Rules(target_magic=target, compression=codec)
    if codec == 4 and target < 2:
        refused(Unwritable, made(magic, source), rules)
        return
    headers, records = store(made(magic, source), rules, base_offset=5)
    assert records == expected(SAMPLE, magic, target, 5)
    assert {header.codec for header in headers} == {codec}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_set_of_another_writer_is_accepted(magic: int, codec: int) -> None:
    """kafka-python writes absolute offsets inside a v0 wrapper and relative ones in v1, as Java does."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for record in SAMPLE:
        builder.append(record.offset, record.timestamp if magic else None, record.key, record.value)
    data = bytes(builder.build())
    for target in (0, 1, 2):
        _, records = store(data, Rules(target_magic=target), base_offset=9)
        assert records == expected(SAMPLE, magic, target, 9)


def test_uncompressed_messages_are_not_copied() -> None:
    for magic in (0, 1):
        data = bytearray(b"".join(message(77, b"k", bytes([index]), magic=magic) for index in range(5)))
        ready = prepare(data, Rules(target_magic=magic), NOW, 2, 1000)
        assert ready.buffer is data
        assert [record.offset for record in read(ready)] == list(range(1000, 1005))


@each("target", [0, 1, 2])
@each(("magic", "codec"), [pair for pair in ALL if pair[1] < 4])
def test_any_kind_of_buffer_is_accepted(magic: int, codec: int, target: int) -> None:
    data = made(magic, codec)
    for log_append_time in (False, True):
        rules = Rules(target_magic=target, log_append_time=log_append_time)
        found = prepare(data, rules, NOW, 2)
        for buffer in (bytearray(data), memoryview(data), memoryview(bytearray(data))):
            ready = prepare(buffer, rules, NOW, 2)
            assert (bytes(ready.buffer), ready.headers) == (bytes(found.buffer), found.headers)
            assert not memoryview(ready.buffer).readonly


def test_wrapper_with_messages_numbered_from_0_is_not_rewritten() -> None:
    inner = plain()
    for offset in (0, 2):  # as old librdkafka versions send it, and as all others do
        data = bytearray(wrapper(inner, 2, offset=offset, timestamp=NOW + 20))
        before = bytes(data)
        ready = prepare(data, Rules(target_magic=1), NOW, 2, 40)
        assert ready.buffer is data
        assert bytes(data) == struct.pack(">q", 42) + before[8:]
        assert [record.offset for record in read(ready)] == [40, 41, 42]


@pytest.mark.parametrize("offsets", [(0, 2, 4), (1, 2, 3), (0, 0, 0), (2, 1, 0)])
@pytest.mark.parametrize("wrapper_offset", [0, 9])
def test_wrapper_with_other_inner_offsets_is_rewritten(offsets: tuple[int, ...], wrapper_offset: int) -> None:
    records = [record._replace(offset=offset) for record, offset in zip(SAMPLE, offsets, strict=True)]
    data = bytearray(wrapper(plain(records), offset=wrapper_offset, timestamp=NOW + 20))
    rules = Rules(target_magic=1, compression_level=1)
    ready = prepare(data, rules, NOW, 2, 8)
    assert ready.buffer is not data
    assert read(ready) == expected(SAMPLE, 1, 1, 8)
    refused(InvalidRecords, bytes(data), Rules(target_magic=1, refuse_unnumbered=True))


def test_v0_wrapper_is_always_rewritten() -> None:
    data = bytearray(made(0, 1))
    ready = prepare(data, Rules(target_magic=0), NOW, 2, 0)
    assert ready.buffer is not data
    assert read(ready) == expected(SAMPLE, 0, 0)


# --- wrappers


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_with_invalid_contents_is_refused(magic: int) -> None:
    rules = Rules(target_magic=magic)
    inner = plain(magic=magic)
    cases: list[tuple[type[Exception], bytes]] = [
        (InvalidRecords, message(0, None, None, magic=magic, attributes=1)),  # null
        (InvalidRecords, wrapper(b"", magic=magic)),  # empty
        (Undecodable, message(0, None, b"", magic=magic, attributes=1)),  # not even a compressed nothing
        (Undecodable, message(0, None, b"rubbish", magic=magic, attributes=1)),
        (InvalidRecords, wrapper(wrapper(inner, magic=magic, offset=2), magic=magic)),  # nested
        (InvalidRecords, wrapper(inner + message(3, magic=magic, attributes=2), magic=magic, offset=3)),
        (InvalidRecords, message(0, None, compression.compress(4, inner), magic=magic, attributes=4)),  # zstd
        (Undecodable, message(0, None, inner, magic=magic, attributes=5)),  # no codec at all
        (Undecodable, message(0, None, inner, magic=magic, attributes=7)),
        (InvalidRecords, wrapper(plain(magic=1 - magic), magic=magic, offset=2)),  # the other format inside
        (CorruptRecords, wrapper(inner[:-1], magic=magic, offset=2)),  # cut inside
        (CorruptRecords, wrapper(inner + bytes(8), magic=magic, offset=2)),
        (CorruptRecords, wrapper(struct.pack(">qi", 0, 13) + bytes(13), magic=magic)),
    ]
    for kind, data in cases:
        refused(kind, data, rules)
        refused(kind, data, Rules())


def test_v1_wrapper_offset_below_its_messages_is_refused() -> None:
    for offset in (-1, 1):
        refused(InvalidRecords, wrapper(plain(), offset=offset))
    refused(InvalidRecords, wrapper(plain(), offset=1), Rules())
    store(wrapper(plain(magic=0), magic=0, offset=1), Rules())  # the offset of a v0 wrapper is not checked


@pytest.mark.parametrize("magic", [0, 1])
def test_wrong_inner_checksum_is_refused_at_once(magic: int) -> None:
    """Code 2 without a list of records, although an earlier record would be refused with a list."""
    keyless = message(0, None, b"v", magic=magic)
    broken = bytearray(message(1, magic=magic))
    broken[13] ^= 1
    data = wrapper(keyless + broken, magic=magic, offset=1)
    refused(CorruptRecords, data, Rules(target_magic=magic, compacted=True))
    refused(CorruptRecords, data, Rules(compacted=True))


def test_decompression_is_bounded_over_the_whole_set() -> None:
    bomb = wrapper(message(0, None, bytes(300_000)))
    refused(DecompressedTooLarge, bomb, Rules(max_decompressed_bytes=300_000))
    merging = Rules(target_magic=1, one_magic=False, max_decompressed_bytes=500_000)
    store(bomb, merging)
    refused(DecompressedTooLarge, bomb + bomb, merging)


def test_rewritten_set_above_the_decompression_bound_is_refused() -> None:
    """The older formats take more room than v2: data within the bound in one format can exceed it in the other."""
    count = 3 * STEP_RECORDS
    records = [Record(index, NOW, None, b"") for index in range(count)]
    bound = 20 * count
    for codec, target in ((1, None), (0, 1), (1, 0)):
        rules = Rules(target_magic=1, compression=target, max_decompressed_bytes=bound)
        refused(MessageTooLarge, made(2, codec, records), rules, 13)
    store(made(2, 0, records), Rules(target_magic=1, max_decompressed_bytes=bound), version=13)
    tight = Rules(compression=1, max_decompressed_bytes=5 * count)
    refused(MessageTooLarge, made(2, 0, records), tight, 13)
    refused(InvalidRecords, made(1, 0, records), tight)


# --- messages


@pytest.mark.parametrize("magic", [0, 1])
def test_message_with_bytes_left_over_is_refused(magic: int) -> None:
    head = struct.pack(">bbq", 1, 0, NOW) if magic else b"\0\0"
    bodies = [(1, -1, b""), (-1, 1, b""), (2**31 - 1, -1, b""), (-1, 2**31 - 1, b""), (-1, -1, b"x"), (3, 0, b"xx")]
    for key_bytes, value_bytes, rest in bodies:
        body = struct.pack(">i", key_bytes) + rest + struct.pack(">i", value_bytes)
        refused(Undecodable, sealed(0, head + body), Rules(target_magic=magic))
        refused(Undecodable, wrapper(sealed(0, head + body), magic=magic), Rules())
    for short in range(14, 14 + 8 * magic):
        refused(CorruptRecords, sealed(0, bytes([magic]) + bytes(short - 5)), Rules(target_magic=magic))


@pytest.mark.parametrize("magic", [0, 1])
def test_sizes_are_checked_before_records(magic: int) -> None:
    small, large = message(magic=magic), message(value=bytes(500), magic=magic)
    exact = Rules(target_magic=magic, max_message_bytes=len(large))
    store(small + large + large, exact)
    tight = Rules(target_magic=magic, max_message_bytes=len(large) - 1)
    refused(MessageTooLarge, small + large, tight)
    damaged = bytearray(large)
    damaged[-1] ^= 1
    refused(MessageTooLarge, small + bytes(damaged), tight)
    refused(CorruptRecords, small + bytes(damaged), exact)
    # As one batch or wrapper they are too large, compressed they are not.
    refused(MessageTooLarge, large * 3, Rules(max_message_bytes=len(large) + 50))
    store(large * 3, Rules(target_magic=magic, max_message_bytes=len(large), compression=1))
    packed = wrapper(b"".join(message(i, value=bytes(500), magic=magic) for i in range(3)), magic=magic, offset=2)
    rules = Rules(target_magic=magic, max_message_bytes=len(packed), compression=0)
    refused(MessageTooLarge, packed, rules)


@pytest.mark.parametrize("magic", [0, 1])
def test_truncated_last_message_is_ignored(magic: int) -> None:
    one = message(0, magic=magic)
    for end in range(len(one)):
        data = bytearray(one + one[:end])
        ready = prepare(data, Rules(target_magic=magic), NOW, 2)
        assert len(read(ready)) == 1 and bytes(ready.buffer) == one
    assert len(store(one + one, Rules(target_magic=magic))[1]) == 2


def test_set_without_a_whole_message_is_accepted_as_empty() -> None:
    for data in (b"", bytes(11), message()[:-1], wrapper(plain())[:-1], made(2, 0)[:-1]):
        ready = prepare(data, Rules(), NOW, 1, 17)
        assert (bytes(ready.buffer), ready.headers, ready.base_offset, ready.next_offset) == (b"", (), 17, 17)
        assert ready.log_append_time_ms == -1
        placed = place(ready, 20, 3)
        assert (placed.headers, placed.base_offset, placed.next_offset) == ((), 20, 20)
        assert placed.header.next_offset == 20


# --- timestamps


def test_create_time_is_kept_and_below_minus_one_is_minus_one() -> None:
    times = [NOW, -1, -5, 0]
    data = plain([Record(index, time, b"k", b"v") for index, time in enumerate(times)])
    _, records = store(data, Rules(target_magic=1))
    assert [record.timestamp for record in records] == [NOW, -1, -1, 0]
    # A timestamp below -1 cannot be written again.
    refused(Unwritable, data, Rules())
    refused(Unwritable, data, Rules(target_magic=0))
    refused(Unwritable, data, Rules(target_magic=1, compression=1))


@pytest.mark.parametrize("offset", [0, 2])
def test_wrapper_timestamp_is_its_messages_highest(offset: int) -> None:
    for claimed in (-1, NOW - 5, 2**60):
        headers, records = store(wrapper(plain(), offset=offset, timestamp=claimed), Rules(target_magic=1))
        assert headers[0].max_timestamp == NOW + 20
        assert [record.timestamp for record in records] == [NOW, NOW + 20, NOW + 10]


def test_log_append_time_replaces_timestamps_of_messages() -> None:
    rules = Rules(target_magic=1, log_append_time=True, timestamp_before_max_ms=0)
    ready = prepare(bytearray(plain()), rules, NOW + 99, 2)
    assert ready.log_append_time_ms == NOW + 99
    assert {record.timestamp for record in read(ready)} == {NOW + 99}
    assert all(header.log_append_time for header in ready.headers)


def test_log_append_time_of_a_wrapper_that_is_not_rewritten() -> None:
    data = bytearray(made(1, 3))
    rules = Rules(target_magic=1, log_append_time=True)
    ready = prepare(data, rules, NOW + 99, 2)
    assert ready.buffer is data
    assert {record.timestamp for record in read(ready)} == {NOW + 99}
    assert legacy.inner(data, 0, ready.header) == plain()  # those inside are not changed


@pytest.mark.parametrize("target", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_log_append_time_of_a_rewritten_wrapper(magic: int, codec: int, target: int) -> None:
    rules = Rules(target_magic=target, log_append_time=True, compression=1 - codec)
    ready = prepare(made(magic, codec), rules, NOW + 99, 2)
    assert ready.log_append_time_ms == NOW + 99
    assert {record.timestamp for record in read(ready)} == {NOW + 99 if target else -1}


def test_set_with_log_append_time_set_by_the_client() -> None:
    marked = plain()[:0] + message(timestamp=NOW - 7, attributes=LOG_APPEND_TIME)
    inside = wrapper(plain(), offset=2, timestamp=NOW - 7, attributes=LOG_APPEND_TIME)
    for data, times in ((marked, [NOW - 7]), (inside, [NOW, NOW + 20, NOW + 10])):
        headers, records = store(data, Rules(target_magic=1))
        assert not headers[0].log_append_time and headers[0].max_timestamp == NOW - 7
        assert [record.timestamp for record in records] == times
        # In another format every record has the log append time of the wrapper.
        assert {record.timestamp for record in store(data, Rules())[1]} == {NOW - 7}
        for rules in (Rules(append_time_bit_allowed=False), Rules(log_append_time=True)):
            refused(InvalidTimestamps, data, rules)
    refused(InvalidTimestamps, message(timestamp=-1, attributes=LOG_APPEND_TIME))
    store(message(magic=0, attributes=LOG_APPEND_TIME), Rules(append_time_bit_allowed=False))  # v0 has no such bit


# --- what is refused


def test_uncompressed_messages_report_only_the_first_bad_record() -> None:
    data = plain([Record(0, NOW, b"k", b""), Record(1, NOW, None, b""), Record(2, NOW + 2 * HOUR, None, b"")])
    error = refused(InvalidRecords, data, Rules(compacted=True, timestamp_after_max_ms=HOUR))
    assert [item.batch_index for item in error.record_errors] == [0]


def test_wrapper_reports_all_bad_records() -> None:
    inner = (
        message(0, None)
        + message(1, magic=0)
        + message(2)
        + message(3, timestamp=NOW + 2 * HOUR)
        + message(4, None, timestamp=NOW + 2 * HOUR)
    )
    data = wrapper(inner, offset=4)
    rules = Rules(compacted=True, timestamp_after_max_ms=HOUR)
    assert [item.batch_index for item in refused(InvalidTimestamps, data, rules).record_errors] == [0, 1, 3, 4]
    assert [item.batch_index for item in refused(InvalidRecords, data).record_errors] == [1]


# --- v2 towards older formats


def test_v2_batch_is_converted_to_an_older_format() -> None:
    for target in (0, 1):
        rules = Rules(target_magic=target)
        _, records = store(made(2, 1), rules, version=13)
        assert records == expected(SAMPLE, 2, target)
        with_headers = batch.build([SAMPLE[0]._replace(headers=(Header("h", None),))])
        refused(Unwritable, bytes(with_headers), rules, 13)
        refused(Unwritable, bytes(batch.build([Record(0, -2, b"k", b"v")])), rules, 13)
        producers: list[dict[str, Any]] = [
            {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0},
            {"transactional": True},
            {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True},
        ]
        for fields in producers:
            refused(UnsupportedForFormat, bytes(batch_of(SAMPLE, **fields)), rules, 13)
        marked = bytes(batch.build(SAMPLE, batch.BatchFields(log_append_time=True, max_timestamp=NOW - 9)))
        times = {record.timestamp for record in store(marked, rules)[1]}
        assert times == {NOW - 9 if target else -1}


# --- the offsets in a log


@each("target", [0, 1, 2])
@each(("magic", "codec"), [pair for pair in ALL if pair[1] < 4])
def test_prepared_set_is_moved_to_another_offset(magic: int, codec: int, target: int) -> None:
    rules = Rules(target_magic=target)
    ready = prepare(bytearray(made(magic, codec)), rules, NOW, 2, 10)
    for base_offset in (10, 3, 2**40, 0):
        ready = place(ready, base_offset, 6)
        assert ready.base_offset == base_offset
        assert read(ready) == expected(SAMPLE, magic, target, base_offset)
        assert {header.partition_leader_epoch for header in ready.headers} == {6 if target == 2 else -1}


def test_moved_v0_wrapper_keeps_its_compression_level() -> None:
    value = bytes(index * index % 251 for index in range(20_000)) * 2
    sizes = []
    for level in (1, 9):
        rules = Rules(target_magic=0, compression=1, compression_level=level)
        ready = place(prepare(message(value=value, magic=0), rules, NOW, 2), 5, 0)
        sizes.append(len(ready.buffer))
    assert sizes[1] < sizes[0]


# --- damage

SETS = {f"v{magic} codec {codec}": made(magic, codec) for magic, codec in ALL}


def damages(data: bytes) -> list[tuple[int, bytes]]:
    """Yields the set with every byte changed in four ways."""
    found = []
    for at in range(len(data)):
        for change in (0x01, 0x02, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= change
            found.append((at, bytes(damaged)))
    return found


@each("name", SETS)
@each("target", [0, 1, 2])
def test_damaged_byte_is_refused(name: str, target: int) -> None:
    """The whole set is refused with a declared error, and nothing is changed. Fields without a checksum are written by
    the log: the offsets, v2's leader epoch. A size that is too large cuts the set, as in Kafka."""
    data = SETS[name]
    magic = data[16]
    rules = Rules(target_magic=target)
    if target < 2 and name.endswith("codec 4"):
        return
    starts = [0]
    if magic < 2 and name.endswith("codec 0"):
        for header in prepare(data, Rules(target_magic=magic), NOW, 2).headers[:-1]:
            starts.append(starts[-1] + header.size_bytes)
    whole = store(data, rules)[1]
    for at, damaged in damages(data):
        place_in_entry = at - max(start for start in starts if start <= at)
        before = bytes(damaged)
        buffer = bytearray(damaged)
        try:
            records = read(prepare(buffer, rules, NOW, 2))
        except (CorruptRecords, InvalidRecords):
            assert bytes(buffer) == before
            continue
        if place_in_entry < 8 or (magic == 2 and 12 <= place_in_entry < 16):
            assert records == whole
        else:
            assert 8 <= place_in_entry < 12
            assert records == whole[: len(records)] and len(records) < len(whole)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("target", [0, 1, 2])
def test_damaged_byte_in_a_wrapper_is_refused(magic: int, target: int) -> None:
    """Even if the wrapper's own checksum is valid. Offsets that are still in order are written again."""
    inner = plain(magic=magic)
    starts = [0, len(message(0, b"a", b"1", magic=magic))]
    starts.append(starts[1] + len(message(1, b"", b"2" * 200, magic=magic)))
    for at, damaged in damages(inner):
        data = wrapper(damaged, magic=magic, offset=2)
        buffer = bytearray(data)
        try:
            records = read(prepare(buffer, Rules(target_magic=target), NOW, 2))
        except (CorruptRecords, InvalidRecords):
            assert bytes(buffer) == data
        else:
            assert at - max(start for start in starts if start <= at) < 8
            assert records == expected(SAMPLE, magic, target)


key = st.none() | st.binary(max_size=4)
times = st.just(-1) | st.integers(NOW - 10, NOW + 10)
records_of = st.lists(st.builds(Record, st.just(0), times, key, key), min_size=1, max_size=6).map(
    lambda found: [record._replace(offset=index) for index, record in enumerate(found)]
)
rule_sets = st.builds(
    Rules,
    target_magic=st.sampled_from([0, 1, 2]),
    compression=st.sampled_from([None, 0, 1, 2, 3, 4]),
    log_append_time=st.booleans(),
    compacted=st.booleans(),
    one_magic=st.booleans(),
    record_errors=st.sampled_from(["none", "first", "all"]),
    timestamp_after_max_ms=st.sampled_from([5, 2**63 - 1]),
    max_message_bytes=st.sampled_from([80, 1048588]),
    zstd_allowed=st.booleans(),
    refuse_unnumbered=st.booleans(),
)


@given(data=st.data(), rules=rule_sets, base_offset=st.integers(0, 2**50))
def test_set_of_any_entries_is_stored_whole_or_refused(data: st.DataObject, rules: Rules, base_offset: int) -> None:
    sent: list[tuple[int, Record]] = []
    parts = []
    for magic, codec in data.draw(st.lists(st.sampled_from(ALL), min_size=1, max_size=4)):
        records = data.draw(records_of)
        parts.append(made(magic, codec, records))
        sent += [(magic, record) for record in records]
    buffer = bytearray(b"".join(parts))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(buffer) - 1))
        buffer[at] ^= data.draw(st.integers(1, 255))
        sent = []
    before = bytes(buffer)
    try:
        ready = prepare(buffer, rules, NOW, 2, base_offset)
    except (CorruptRecords, InvalidRecords, MessageTooLarge, UnsupportedCodec, Unwritable):
        assert bytes(buffer) == before
        return
    stored = read(ready)
    assert {header.magic for header in ready.headers} <= {rules.target_magic}
    assert all(header.size_bytes <= rules.max_message_bytes for header in ready.headers)
    if sent:
        assert [(record.key, record.value) for record in stored] == [(item.key, item.value) for _, item in sent]
        for record, (magic, item) in zip(stored, sent, strict=True):
            kept = item.timestamp if magic and rules.target_magic else -1
            assert record.timestamp == (NOW if rules.log_append_time and rules.target_magic else kept)
    moved = place(ready, base_offset + 7, 1)
    assert read(moved) == [record._replace(offset=base_offset + 7 + at) for at, record in enumerate(stored)]


# --- steps


class Counter:
    """Counts the records and bytes that are processed between two steps."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = self.most = 0
        self._count(patch, walk, "record", lambda *_: 1)
        self._count(patch, legacy, "put_message", lambda *_: 1)
        self._count(patch, legacy, "read_header", lambda *_: 1)

    def _count(self, patch: pytest.MonkeyPatch, module: Any, name: str, worth: Callable[..., int]) -> None:
        original = getattr(module, name)

        def counted(*args: Any, **named: Any) -> Any:
            self.now += worth(*args)
            self.most = max(self.most, self.now)
            return original(*args, **named)

        patch.setattr(module, name, counted)

    def drive(self, steps: Any) -> tuple[Any, int, int]:
        """Returns (outcome, steps, calls for a worker thread)."""
        yields = calls = 0
        result = None
        try:
            while True:
                job = steps.send(result)
                self.now, result, yields = 0, None, yields + 1
                if job is not None:
                    calls += 1
                    result = job()
                    self.now = 0
        except StopIteration as done:
            return done.value, yields, calls


@pytest.mark.parametrize("target", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_large_set_is_prepared_in_steps(magic: int, codec: int, target: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 3 * STEP_RECORDS + 1
    records = [Record(index, NOW, None, b"v" * 40) for index in range(count)]
    data = made(magic, codec, records)
    counter = Counter(monkeypatch)
    rules = Rules(target_magic=target, max_message_bytes=1 << 24)
    ready, yields, calls = counter.drive(preparing(bytearray(data), rules, NOW, 2))
    assert counter.most <= 2 * STEP_RECORDS  # each is read and written
    assert yields >= count // STEP_RECORDS - 1
    assert calls or not codec
    monkeypatch.undo()
    assert read(ready) == expected(records, magic, target)


def test_small_set_is_prepared_without_a_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    for magic, codec in ALL:
        _, yields, _ = Counter(monkeypatch).drive(preparing(bytearray(made(magic, codec)), Rules(), NOW, 2))
        assert not yields


def test_large_checksums_are_computed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    large = message(value=bytes(STEP_BYTES + 1))
    rules = Rules(target_magic=1, log_append_time=True, max_message_bytes=1 << 30)
    ready, _, calls = Counter(monkeypatch).drive(preparing(bytearray(large), rules, NOW, 2))
    assert calls == 2  # checked, and computed again with the broker's timestamp
    assert zlib.crc32(ready.buffer[16:]) == ready.header.crc
    _, _, calls = Counter(monkeypatch).drive(preparing(bytearray(wrapper(large)), rules, NOW, 2))
    assert calls == 2  # decompressed, checked inside

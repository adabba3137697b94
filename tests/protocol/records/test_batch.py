"""Batches of format v2: the bytes, agreement with two other codecs, walks, damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python

from ottla.protocol.records import batch, formats, walk
from ottla.protocol.records.batch import CorruptRecords, Header, InvalidRecords, Record
from ottla_testing.protocol.batches import batch_of

NOW = 1_700_000_000_000

# A record of every kind: nulls, empty fields, headers with and without a value, falling timestamps, three varint
# widths.
SAMPLE = [
    Record(0, NOW, None, None),
    Record(1, NOW - 5, b"", b""),
    Record(2, NOW + 70, b"key", b"v" * 100, (Header("a", b"1"), Header("ü", None), Header("", b""))),
    Record(3, NOW + 70_000_000, b"k" * 63, b"v" * 64),
    Record(4, NOW + 3, b"k", b"v" * 9000),
]

# Base offset 0, two records ("k" -> "v" with header h=x; null key and value 7 ms later), producer 9 epoch 1 sequence 5.
GOLDEN = bytes.fromhex(
    "0000000000000000 00000045 ffffffff 02 b9fc83f8 0010 00000001 0000018bcfe56800 0000018bcfe56807"
    "0000000000000009 0001 00000005 00000002"
    "18 00 00 00 02 6b 02 76 02 02 68 02 78"
    "0c 00 0e 02 01 01 00"
)

int64 = st.integers(0, 2**62)
header = st.builds(Header, st.text(max_size=8), st.none() | st.binary(max_size=20))
blob = st.none() | st.binary(max_size=200) | st.integers(8000, 8300).map(bytes)
record = st.builds(Record, st.just(0), st.integers(-1, 2**50), blob, blob, st.lists(header, max_size=4).map(tuple))
record_lists = st.lists(record, min_size=1, max_size=30).map(
    lambda found: [item._replace(offset=index) for index, item in enumerate(found)]
)


def one(records: list[Record] = SAMPLE, **options: Any) -> tuple[bytearray, batch.BatchHeader, bytes]:
    built = batch_of(records, **options)
    head = batch.read_header(built)
    return built, head, bytes(batch.payload(built, 0, head))


# --- the bytes


def test_golden_bytes() -> None:
    records = [Record(0, NOW, b"k", b"v", (Header("h", b"x"),)), Record(1, NOW + 7, None, None)]
    built = batch.build(
        records, batch.BatchFields(producer_id=9, producer_epoch=1, base_sequence=5, transactional=True)
    )
    assert built.hex() == GOLDEN.hex()
    assert list(batch.records(GOLDEN)) == records
    head = batch.read_header(GOLDEN)
    assert head == (0, 69, -1, 2, 0xB9FC83F8, 0x10, 1, NOW, NOW + 7, 9, 1, 5, 2)
    assert (head.size_bytes, head.codec, head.last_offset, head.next_offset, head.last_sequence) == (81, 0, 1, 2, 6)
    assert head.is_transactional and head.has_producer
    assert not (head.is_control or head.log_append_time or head.has_delete_horizon)
    assert batch.crc_matches(GOLDEN, 0, head)


@given(records=record_lists, codec=st.sampled_from(range(5)), base_offset=int64)
def test_built_batch_is_read_back(records: list[Record], codec: int, base_offset: int) -> None:
    moved = [item._replace(offset=base_offset + item.offset) for item in records]
    built, head, data = one(moved, base_offset=base_offset, codec=codec, leader_epoch=4)
    assert list(batch.records(built)) == moved
    assert list(batch.records(memoryview(b"xy" + built), 2)) == moved
    assert batch.crc_matches(built, 0, head)
    assert head.size_bytes == len(built)
    assert (head.base_offset, head.last_offset, head.record_count) == (base_offset, moved[-1].offset, len(moved))
    assert (head.base_timestamp, head.max_timestamp) == (moved[0].timestamp, max(item.timestamp for item in moved))
    low, high, _ = walked(data, len(moved))
    deltas = [item.timestamp - moved[0].timestamp for item in moved]
    assert (min(low, 0), high) == (min(0, *deltas), max(deltas))


def other_writer(library: Any, records: list[Record], codec: int, producer: tuple[int, int, int]) -> bytes:
    writer = library(2, codec, producer[0] >= 0, *producer, 1 << 30)
    for item in records:
        assert writer.append(item.offset, item.timestamp, item.key, item.value, list(item.headers))
    return bytes(writer.build())


# kafka-python leaves the leader epoch 0, aiokafka -1. Without extra libraries kafka-python knows gzip only.
WRITERS = [(kafka_python.DefaultRecordBatchBuilder, 0), (aiokafka._DefaultRecordBatchBuilderPy, -1)]
READERS: list[tuple[Callable[[bytes], Any], range]] = [
    (lambda data: kafka_python.DefaultRecordBatch(data), range(2)),
    (lambda data: aiokafka._DefaultRecordBatchPy(bytearray(data)), range(5)),
    (lambda data: aiokafka.DefaultRecordBatch(bytearray(data)), range(5)),
]


@pytest.mark.parametrize(("writer", "leader_epoch"), WRITERS, ids=["kafka-python", "aiokafka"])
@given(records=record_lists, producer=st.sampled_from([(-1, -1, -1), (7, 2, 2**31 - 1)]))
def test_uncompressed_batch_equals_other_writers_bytes(
    writer: Any, leader_epoch: int, records: list[Record], producer: tuple[int, int, int]
) -> None:
    ours = batch.build(
        records,
        batch.BatchFields(
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            transactional=producer[0] >= 0,
        ),
        leader_epoch=leader_epoch,
    )
    assert ours.hex() == other_writer(writer, records, 0, producer).hex()


@pytest.mark.parametrize(("writer", "codec"), [(WRITERS[0][0], 1), *((WRITERS[1][0], codec) for codec in range(1, 5))])
def test_compressed_batch_of_other_writer_is_read(writer: Any, codec: int) -> None:
    theirs = other_writer(writer, SAMPLE, codec, (-1, -1, -1))
    head = batch.read_header(theirs)
    assert head.codec == codec
    assert batch.crc_matches(theirs, 0, head)
    assert list(batch.records(theirs)) == SAMPLE


@pytest.mark.parametrize(("reader", "codec"), [(reader, codec) for reader, codecs in READERS for codec in codecs])
def test_built_batch_is_read_by_other_readers(reader: Callable[[bytes], Any], codec: int) -> None:
    ours = reader(
        bytes(batch.build(SAMPLE, batch.BatchFields(producer_id=3, producer_epoch=0, base_sequence=0), codec=codec))
    )
    assert ours.validate_crc()
    found = [
        Record(item.offset, item.timestamp, item.key, item.value, tuple(Header(*pair) for pair in item.headers))
        for item in ours
    ]
    assert found == SAMPLE


# --- building


def test_log_append_time_is_the_time_of_every_record() -> None:
    built = batch.build(SAMPLE, batch.BatchFields(log_append_time=True, max_timestamp=NOW + 9))
    assert batch.read_header(built).log_append_time
    assert {item.timestamp for item in batch.records(built)} == {NOW + 9}


def test_compacted_batches_with_gaps_or_without_records_are_read() -> None:
    kept = [Record(105, NOW, b"a", b"1"), Record(109, NOW + 1, b"b", None)]
    built = batch.build(kept, batch.BatchFields(last_offset_delta=14, delete_horizon_ms=NOW + 50), base_offset=100)
    head = batch.read_header(built)
    assert (head.base_offset, head.last_offset, head.record_count) == (100, 114, 2)
    assert head.has_delete_horizon and head.base_timestamp == NOW + 50
    assert list(batch.records(built)) == kept
    empty = batch.build(
        [], batch.BatchFields(last_offset_delta=3, producer_id=1, producer_epoch=0, base_sequence=2), base_offset=7
    )
    head = batch.read_header(empty)
    assert (head.size_bytes, head.record_count, head.next_offset, head.max_timestamp) == (61, 0, 11, -1)
    assert list(batch.records(empty)) == []


def test_build_of_values_outside_the_format_raises() -> None:
    far = 2**31
    cases: list[tuple[list[Record], dict[str, Any]]] = [
        ([], {}),
        ([Record(far, 0, None, None)], {}),
        ([Record(0, -(2**62), None, None), Record(1, 2**63 - 1, None, None)], {}),
        ([Record(0, 0, None, None)], {"producer_epoch": 40_000}),
        ([Record(0, 2**63, None, None)], {}),
    ]
    for records, options in cases:
        with pytest.raises(InvalidRecords):
            batch_of(records, **options)


def test_sequences_wrap_after_the_largest_int() -> None:
    def last(base: int, delta: int) -> int:
        return batch.read_header(GOLDEN)._replace(base_sequence=base, last_offset_delta=delta).last_sequence

    assert [last(0, 0), last(5, 4), last(-1, 4)] == [0, 9, -1]
    assert [last(2**31 - 1, 0), last(2**31 - 1, 1), last(2**31 - 3, 5)] == [2**31 - 1, 0, 2]


def test_header_keys_that_are_not_utf8_are_written_back_unchanged() -> None:
    built, _, _ = one([Record(0, NOW, None, None, (Header("ab", None),))])
    damaged = bytearray(built)
    damaged[damaged.index(b"ab")] = 0xFF
    batch.reseal(damaged, attributes=0, max_timestamp=NOW)
    again = batch.build(list(batch.records(damaged)), leader_epoch=-1)
    assert again == damaged


# --- patching


@pytest.mark.parametrize("wrap", [bytearray, lambda data: memoryview(bytearray(data))], ids=["bytearray", "memoryview"])
def test_assigned_offsets_do_not_change_the_crc(wrap: Callable[[bytes], Any]) -> None:
    buffer = wrap(b"..." + GOLDEN)
    batch.assign(buffer, 3, base_offset=2**40, leader_epoch=6)
    head = batch.read_header(buffer, 3)
    assert (head.base_offset, head.partition_leader_epoch, head.next_offset) == (2**40, 6, 2**40 + 2)
    assert batch.crc_matches(buffer, 3, head)
    assert bytes(buffer[3 + 16 :]) == GOLDEN[16:]


def test_reseal_changes_only_two_fields_and_the_crc() -> None:
    buffer = bytearray(b"..." + GOLDEN + b"rest")
    head = batch.reseal(buffer, 3, attributes=0x18, max_timestamp=5)
    assert (head.attributes, head.max_timestamp) == (0x18, 5)
    assert head == batch.read_header(buffer, 3)
    assert batch.crc_matches(buffer, 3, head)
    buffer[3 + 80] ^= 1
    assert not batch.crc_matches(buffer, 3, head)
    buffer[3 + 80] ^= 1
    batch.reseal(buffer, 3, attributes=0x10, max_timestamp=NOW + 7)
    assert buffer == b"..." + GOLDEN + b"rest"


# --- sets of batches


def test_headers_lists_whole_batches_only() -> None:
    second = batch.build(SAMPLE, codec=3)
    together = GOLDEN + second + GOLDEN
    whole = [0, len(GOLDEN), len(GOLDEN) + len(second)]
    assert [position for position, _ in formats.headers(memoryview(together))] == whole
    assert [head.record_count for _, head in formats.headers(together)] == [2, 5, 2]
    for end in range(whole[2], len(together)):
        assert [position for position, _ in formats.headers(together[:end])] == whole[:2]
    assert list(formats.headers(b"")) == []


@pytest.mark.parametrize(("at", "patch"), [(16, b"\x03"), (8, b"\x00\x00\x00\x30"), (8, b"\xff\xff\xff\xff")])
def test_header_with_bad_size_or_magic_raises(at: int, patch: bytes) -> None:
    data = bytearray(GOLDEN + GOLDEN)
    data[len(GOLDEN) + at : len(GOLDEN) + at + len(patch)] = patch
    found = formats.headers(data)
    next(found)
    with pytest.raises(CorruptRecords):
        next(found)


def test_header_outside_its_buffer_raises() -> None:
    for end in range(len(GOLDEN)):
        with pytest.raises(CorruptRecords):
            batch.read_header(GOLDEN[:end])
        if end >= batch.HEADER_BYTES:
            assert batch.read_header(GOLDEN[:end], whole=False) == batch.read_header(GOLDEN)
    for position in (-1, 1, len(GOLDEN), 1000):
        with pytest.raises(CorruptRecords):
            batch.read_header(GOLDEN, position)


# --- walks


def walked(data: bytes | bytearray | memoryview, count: int) -> tuple[int, int, bool]:
    """Returns (lowest delta, highest delta, whether the offsets are 0, 1, ...) of a payload, or InvalidRecords."""
    walk.check_count(data, count)
    position, found, low, high, numbered = walk.whole_from(data, 0, count, 0, -(2**63), 2**63 - 1, False)
    if found < count:
        raise InvalidRecords(f"record {found}")
    walk.check_end(position, len(data), count)
    return low, high, numbered


@pytest.mark.parametrize("size", [0, 55, 56, 57, 58, 8180, 8181, 8182, 8183, 1_048_560, 1_048_568, 1_048_580])
def test_walk_accepts_lengths_of_every_width(size: int) -> None:
    records = [Record(index, NOW + index * 50, None, bytes(size)) for index in range(4)]
    _, _, data = one(records)
    for buffer in (data, bytearray(data), memoryview(data)):
        walked(buffer, 4)
    for wrong in (data[:-1], data + b"\x00", data[1:], b""):
        with pytest.raises(InvalidRecords):
            walked(wrong, 4)
    for count in (-1, 0, 3, 5, 2**31 - 1):
        with pytest.raises(InvalidRecords):
            walked(data, count)
    assert walked(data, 4) == (0, 150, True)


@pytest.mark.parametrize(
    "data",
    [
        b"\x01" + bytes(20),
        b"\x0a" + bytes(20),
        b"\xff\xff\xff\xff\xff\x01" + bytes(20),
        b"\xfe\xff\xff\xff\x1f" + bytes(9),
    ],
    ids=["negative", "short", "wide", "large"],
)
def test_walk_refuses_invalid_lengths(data: bytes) -> None:
    with pytest.raises(InvalidRecords):
        walked(data, 1)


@given(deltas=st.lists(st.integers(-(2**40), 2**40) | st.integers(-70, 9000), max_size=20))
def test_walk_finds_the_timestamps_of_the_records(deltas: list[int]) -> None:
    times = [0, *deltas]
    _, _, data = one([Record(index, 2**41 + delta, b"k", b"v") for index, delta in enumerate(times)])
    assert walked(data, len(times)) == (min(times), max(times), True)


@given(count=st.integers(1, 20_000), wrong=st.integers(0, 19_999), by=st.sampled_from([-1, 1, 64, 8192]))
@settings(max_examples=25)
def test_walk_detects_records_not_numbered_from_zero(count: int, wrong: int, by: int) -> None:
    wrong %= count
    offsets = [index + (by if index == wrong else 0) for index in range(count)]
    _, _, data = one([Record(offset, 2**41, None, b"") for offset in offsets])
    assert walked(data, count) == (0, 0, False)
    _, _, data = one([Record(offset, 2**41, None, b"") for offset in range(count)])
    assert walked(data, count) == (0, 0, True)


def test_walk_with_only_negative_deltas_finds_the_highest_timestamp() -> None:
    data = b"".join(bytes([12, 0, zigzag, 0, 1, 1, 0]) for zigzag in (9, 5, 7))
    assert walked(data, 3)[:2] == (-5, -3)


def test_walk_of_an_impossible_record_count_ends_at_once() -> None:
    lying = bytearray(GOLDEN[: batch.HEADER_BYTES])
    struct.pack_into(">i", lying, 8, 49)
    struct.pack_into(">i", lying, 57, 2**31 - 1)
    with pytest.raises(InvalidRecords):
        next(batch.records(lying))


# --- damage


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("00 00 00 02 6b 02 76 00 00", "left over in the record"),
        ("00 00 00 01 01 03", "negative header count"),
        ("00 00 00 01 01 08", "more headers than bytes"),
        ("00 00 00 01 01 02 01 00", "null header key"),
        ("00 00 00 10 6b 01 00", "key beyond the record"),
        ("00 00 00 01 01", "too short"),
        ("00 ff ff ff ff ff ff ff ff ff ff 01 00 01 01 00", "varlong of eleven bytes"),
        ("00 ff ff ff ff ff ff ff ff ff 03 00 01 01 00", "varlong of 65 bits"),
        ("00 00 ff ff ff ff 1f 01 01 00", "varint of 33 bits"),
    ],
)
def test_record_with_invalid_fields_raises(body: str, why: str) -> None:
    inner = bytes.fromhex(body)
    data = bytes([len(inner) * 2]) + inner + b"\x0c\x00\x00\x02\x01\x01\x00"
    with pytest.raises(InvalidRecords):
        list(batch.entries(data, 2))


@given(data=st.data(), codec=st.sampled_from(range(5)))
def test_damaged_batch_raises_declared_errors_only(data: st.DataObject, codec: int) -> None:
    damaged = batch.build(SAMPLE[:4], codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    end = data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)))
    try:
        for item in batch.records(damaged[:end], max_bytes=100_000):
            assert len(item.value or b"") <= 100_000
    except (CorruptRecords, InvalidRecords):
        pass


@given(body=st.binary(max_size=120), count=st.integers(-2, 20))
def test_arbitrary_bytes_are_walked_or_refused(body: bytes, count: int) -> None:
    fine = []
    for look in (walked, lambda *args: list(batch.entries(*args))):
        try:
            look(body, count)
            fine.append(True)
        except InvalidRecords:
            fine.append(False)
    # The walk accepts a payload if and only if the full decoder does.
    assert fine[0] == fine[1]


@given(data=st.data())
def test_flipped_bit_fails_the_crc(data: st.DataObject) -> None:
    damaged = batch.build(SAMPLE[:3])
    damaged[data.draw(st.integers(21, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert not batch.crc_matches(damaged, 0, batch.read_header(damaged))

"""The construct description of the record formats, compared with the bounded readers and writers."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.records import batch, formats, legacy, schemas
from ottla.protocol.records.batch import CorruptRecords, Header, InvalidRecords, Record
from ottla.protocol.records.schemas import (
    BATCH_HEADER,
    BATCH_V2,
    CONTROL_KEY,
    END_TRANSACTION,
    RECORD_V2,
    Bits,
    Zigzag,
    fields,
)
from ottla.protocol.records.walk import varint, varlong
from ottla.protocol.structs import Struct

GOLDEN = bytes.fromhex(
    "0000000000000000 00000045 ffffffff 02 b9fc83f8 0010 00000001 0000018bcfe56800 0000018bcfe56807"
    "0000000000000009 0001 00000005 00000002"
    "18 00 00 00 02 6b 02 76 02 02 68 02 78"
    "0c 00 0e 02 01 01 00"
)

header = st.builds(Header, st.text(max_size=8), st.none() | st.binary(max_size=20))
blob = st.none() | st.binary(max_size=200) | st.integers(8000, 8300).map(bytes)
record = st.builds(Record, st.just(0), st.integers(-1, 2**50), blob, blob, st.lists(header, max_size=4).map(tuple))
record_lists = st.lists(record, min_size=1, max_size=12).map(
    lambda found: [item._replace(offset=index) for index, item in enumerate(found)]
)


def places(layout: Struct, data: bytes) -> dict[str, tuple[int, int, Any]]:
    """Returns (start, end, value) of each field."""
    stream = io.BytesIO(data)
    found = {}
    for name, codec in fields(layout):
        start = stream.tell()
        value = codec.parse_stream(stream)
        found[name] = start, stream.tell(), value
    return found


# --- v2


def test_batch_schema_has_the_readers_fields_in_order() -> None:
    assert [name for name, _ in fields(BATCH_HEADER)] == list(batch.BatchHeader._fields)
    assert [name for name, _ in fields(BATCH_V2)] == [*batch.BatchHeader._fields, "records"]


def test_positions_in_a_golden_batch() -> None:
    found = places(BATCH_V2, GOLDEN)
    # As in the table of the reader's module.
    starts = [0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57, 61]
    assert [start for start, _, _ in found.values()] == starts
    assert [end for _, end, _ in found.values()] == [*starts[1:], len(GOLDEN)]
    assert found["crc"][2] == 0xB9FC83F8 and found["attributes"][2] == 0x10 and found["producer_id"][2] == 9
    first = places(RECORD_V2, GOLDEN[61:])
    assert {name: (start, value) for name, (start, _, value) in first.items()} == {
        "length": (0, 12),
        "attributes": (1, 0),
        "timestamp_delta": (2, 0),
        "offset_delta": (3, 0),
        "key": (4, b"k"),
        "value": (6, b"v"),
        "headers": (8, [{"key": b"h", "value": b"x"}]),
    }


@given(record_lists, st.integers(0, 2**40), st.integers(-1, 2**40), st.booleans(), st.booleans())
def test_batch_schema_reads_as_the_reader_does(
    records: list[Record], base_offset: int, producer_id: int, transactional: bool, append_time: bool
) -> None:
    records = [item._replace(offset=base_offset + item.offset) for item in records]
    built = bytes(
        batch.build(
            records,
            batch.BatchFields(producer_id=producer_id, transactional=transactional, log_append_time=append_time),
            base_offset=base_offset,
        )
    )
    head = batch.read_header(built)
    parsed: Any = BATCH_V2.parse(built)
    assert batch.BatchHeader(**{name: parsed[name] for name in batch.BatchHeader._fields}) == head
    assert parsed.records == bytes(batch.payload(built, 0, head))
    assert BATCH_V2.build(parsed) == built

    data = parsed.records
    position = 0
    for item, entry in zip(records, batch.entries(data, head.record_count), strict=True):
        found = places(RECORD_V2, data[position:])
        delta, offset_delta, key_start, key_end, value_start, value_end, spans = entry
        assert (found["timestamp_delta"][2], found["offset_delta"][2]) == (delta, offset_delta)
        assert (found["key"][2], found["value"][2]) == (item.key, item.value)
        for name, (start, end) in {"key": (key_start, key_end), "value": (value_start, value_end)}.items():
            if start >= 0:  # a blob's position is that of its bytes; its length comes before
                assert position + found[name][1] == end
                assert found[name][1] - found[name][0] > end - start
        assert len(found["headers"][2]) == len(spans)
        for parsed_header, (a, b, c, d) in zip(found["headers"][2], spans, strict=True):
            assert parsed_header.key == data[a:b]
            assert parsed_header.value == (data[c:d] if c >= 0 else None)
        end = position + found["headers"][1]
        assert end == position + found["attributes"][0] + found["length"][2]
        whole = RECORD_V2.parse(data[position:end])
        assert RECORD_V2.build(whole) == data[position:end]
        position = end
    assert position == len(data)


record_bytes = record_lists.map(lambda found: bytes(batch.build(found[:1]))[61:])


@given(record_bytes, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), st.integers(0, 30))
def test_damaged_records_are_refused_by_both_schema_and_reader_or_by_neither(
    data: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    damaged = bytearray(data)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    damaged = damaged[: max(0, len(damaged) - cut)]
    try:
        (expected,) = batch.entries(bytes(damaged), 1)
    except InvalidRecords:
        expected = None
    try:
        length, start = varint(damaged, 0)
        stream = io.BytesIO(bytes(damaged))
        parsed: Any = RECORD_V2.parse_stream(stream)
        # The reader's own rules for a record's length, which the description cannot express.
        if length < 6 or start + length != len(damaged) or stream.tell() != len(damaged):
            parsed = None
    except (MalformedMessage, InvalidRecords, IndexError):
        parsed = None
    assert (parsed is None) == (expected is None)
    if parsed is not None and expected is not None:
        assert (parsed.timestamp_delta, parsed.offset_delta) == expected[:2]


@given(st.binary(max_size=12))
def test_varints_are_read_as_by_the_walk(data: bytes) -> None:
    for bits, read in ((32, varint), (64, varlong)):
        stream = io.BytesIO(data)
        try:
            expected = read(data, 0)
        except (IndexError, InvalidRecords):
            with pytest.raises(MalformedMessage):
                Zigzag(bits)._parse(stream, None, "x")
        else:
            assert (Zigzag(bits)._parse(stream, None, "x"), stream.tell()) == expected


@given(st.integers(-(2**70), 2**70))
def test_varints_outside_their_width_raise(value: int) -> None:
    for bits in (32, 64):
        stream = io.BytesIO()
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            Zigzag(bits)._build(value, stream, None, "x")
            assert Zigzag(bits)._parse(io.BytesIO(stream.getvalue()), None, "x") == value
        else:
            with pytest.raises(MalformedMessage):
                Zigzag(bits)._build(value, stream, None, "x")


def test_attribute_bits_equal_the_readers() -> None:
    codec = dict(fields(BATCH_HEADER))["attributes"]
    assert isinstance(codec, Bits)
    masks = {name: (1 << width) - 1 << first for name, first, width in codec.names}
    assert masks == {
        "codec": batch.CODEC_BITS,
        "log_append_time": batch.LOG_APPEND_TIME_BIT,
        "transactional": batch.TRANSACTIONAL_BIT,
        "control": batch.CONTROL_BIT,
        "delete_horizon": batch.DELETE_HORIZON_BIT,
    }
    assert codec.split(-1)["unnamed"] == 0xFF80
    assert codec.split(0x13) == {
        "codec": 3,
        "log_append_time": 0,
        "transactional": 1,
        "control": 0,
        "delete_horizon": 0,
    }


def test_huge_declared_count_allocates_no_memory() -> None:
    """A header takes at least two bytes: an impossible count is refused before the first one is read."""
    many = io.BytesIO()
    Zigzag(32)._build(2**31 - 1, many, None, "x")
    data = bytes.fromhex("0c 00 00 00 01 01") + many.getvalue()
    with pytest.raises(MalformedMessage, match="2147483647 items announced"):
        RECORD_V2.parse(data)
    with pytest.raises(MalformedMessage, match="announced"):
        schemas.MESSAGE_V0.parse(bytes(18) + b"\x7f\xff\xff\xff")


def test_control_records_are_read() -> None:
    assert CONTROL_KEY.parse(bytes.fromhex("0000 0001")) == {"version": 0, "type": 1}
    assert schemas.CONTROL_TYPES[1] == "commit" and schemas.CONTROL_TYPES[0] == "abort"
    assert END_TRANSACTION.parse(bytes.fromhex("0000 00000007")) == {"version": 0, "coordinator_epoch": 7}


# --- v0 and v1

# Offset 7, key "k", value "v"; v1 with the timestamp 1500000000000.
GOLDEN_V0 = bytes.fromhex("0000000000000007 00000010 1fecd70a 00 00 00000001 6b 00000001 76")
GOLDEN_V1 = bytes.fromhex("0000000000000007 00000018 b6a61199 01 08 0000015d3ef79800 00000001 6b 00000001 76")


@pytest.mark.parametrize(
    ("layout", "data", "starts"),
    [
        (schemas.MESSAGE_V0, GOLDEN_V0, [0, 8, 12, 16, 17, 18, 23]),
        (schemas.MESSAGE_V1, GOLDEN_V1, [0, 8, 12, 16, 17, 18, 26, 31]),
    ],
)
def test_positions_in_golden_messages(layout: Struct, data: bytes, starts: list[int]) -> None:
    found = places(layout, data)
    assert [start for start, _, _ in found.values()] == starts
    assert (found["offset"][2], found["key"][2], found["value"][2]) == (7, b"k", b"v")
    assert found["size"][2] + 12 == len(data) == found["value"][1]
    assert layout.build(layout.parse(data)) == data
    if "timestamp" in found:
        assert found["timestamp"][2] == 1_500_000_000_000
    head = formats.read_header(data)
    assert formats.crc_matches(data, 0, head) and (head.base_offset, head.base_timestamp) == (
        7,
        found["timestamp"][2] if "timestamp" in found else -1,
    )


plain = st.builds(Record, st.integers(0, 2**62), st.integers(-1, 2**60), blob, blob)


@given(plain, st.sampled_from([0, 1]), st.booleans())
def test_message_schema_reads_as_the_reader_does(item: Record, magic: int, append_time: bool) -> None:
    data = bytes(legacy.build([item], magic=magic, log_append_time=append_time))
    head = formats.read_header(data)
    layout = (schemas.MESSAGE_V0, schemas.MESSAGE_V1)[magic]
    parsed: Any = layout.parse(data)
    assert (parsed.offset, parsed.size, parsed.crc, parsed.magic) == (
        head.base_offset,
        head.batch_length,
        head.crc,
        magic,
    )
    assert parsed.attributes == head.attributes
    assert (parsed.key, parsed.value) == (item.key, item.value)
    (read,) = formats.records(data)
    assert (parsed.get("timestamp", -1), parsed.key, parsed.value) == (read.timestamp, read.key, read.value)
    assert layout.build(parsed) == data


@given(
    plain,
    st.sampled_from([0, 1]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    st.integers(0, 30),
)
def test_damaged_messages_are_refused_by_both_schema_and_reader_or_by_neither(
    item: Record, magic: int, changes: list[tuple[int, int]], cut: int
) -> None:
    damaged = legacy.build([item], magic=magic)
    for at, byte in changes:
        # After the attributes: size, magic and codec are checked by rules of the reader.
        damaged[18 + at % (len(damaged) - 18)] = byte
    data = bytes(damaged[: max(18, len(damaged) - cut)])
    try:
        expected = next(formats.records(data))
    except (CorruptRecords, InvalidRecords):
        expected = None
    stream = io.BytesIO(data)
    try:
        parsed: Any = (schemas.MESSAGE_V0, schemas.MESSAGE_V1)[magic].parse_stream(stream)
        parsed = parsed if stream.tell() == len(data) == parsed.size + 12 else None
    except MalformedMessage:
        parsed = None
    assert (parsed is None) == (expected is None)
    if parsed is not None and expected is not None:
        assert (parsed.key, parsed.value, parsed.get("timestamp", -1)) == (
            expected.key,
            expected.value,
            expected.timestamp,
        )


def test_attribute_bits_of_old_formats_equal_the_readers() -> None:
    for layout, known in ((schemas.MESSAGE_V0, 0x07), (schemas.MESSAGE_V1, 0x0F)):
        codec = dict(fields(layout))["attributes"]
        assert isinstance(codec, Bits)
        assert sum((1 << width) - 1 << first for _, first, width in codec.names) == known
    for magic in (0, 1):
        raw = bytearray(GOLDEN_V0 if magic == 0 else GOLDEN_V1)
        raw[17] = 0x78 | 0x08
        assert formats.read_header(raw).attributes == (0 if magic == 0 else 8)

"""Decoding entries to columns: agreement with the plain decoder and with two other libraries, projection, metadata,
chunks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record import default_records as aiokafka
from aiokafka.record import legacy_records as old_aiokafka
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python
from kafka.record import legacy_records as old_kafka_python

from ottla.pipeline.readers.columnar import COLUMNS, Options, batches, decode, schema
from ottla.pipeline.readers.columnar.columns import ALL_COLUMNS, METADATA, SCHEMA, SIZES, record_batch
from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import Header, Record
from ottla_testing.each import each
from ottla_testing.pipeline.columnar_samples import (
    FORMATS,
    NOW,
    entries,
    in_columns,
    plainly,
    shown,
    some_records,
    to_records,
)

# The bytes of tests/protocol/records/test_batch.py: "k" -> "v" with header h=x; null key and value 7 ms later.
GOLDEN = bytes.fromhex(
    "0000000000000000 00000045 ffffffff 02 b9fc83f8 0010 00000001 0000018bcfe56800 0000018bcfe56807"
    "0000000000000009 0001 00000005 00000002"
    "18 00 00 00 02 6b 02 76 02 02 68 02 78"
    "0c 00 0e 02 01 01 00"
)

blob = st.none() | st.binary(max_size=200) | st.integers(8000, 8300).map(bytes)
header = st.builds(Header, st.text(max_size=8), st.none() | st.binary(max_size=20))
record = st.builds(Record, st.just(0), st.integers(-1, 2**62), blob, blob, st.lists(header, max_size=20).map(tuple))
record_lists = st.lists(record, min_size=1, max_size=30).map(
    lambda found: [item._replace(offset=index) for index, item in enumerate(found)]
)


def test_golden_bytes() -> None:
    (rows,) = decode(GOLDEN, Options(columns=ALL_COLUMNS))
    rows.validate(full=True)
    of_batch = {
        "timestamp_type": 0,
        "magic": 2,
        "codec": 0,
        "producer_id": 9,
        "producer_epoch": 1,
        "leader_epoch": -1,
        "batch_offset": 0,
        "transactional": True,
        "control": False,
        "crc_ok": True,
    }
    first = {"key": b"k", "value": b"v", "offset": 0, "timestamp": NOW, "sequence": 5, "key_size": 1, "value_size": 1}
    second = {"key": None, "value": None, "offset": 1, "timestamp": NOW + 7, "sequence": 6}
    second |= {"key_size": None, "value_size": None}
    assert rows.to_pylist() == [
        {**first, "headers": [{"key": "h", "value": b"x"}], **of_batch},
        {**second, "headers": [], **of_batch},
    ]
    assert rows.schema.equals(pa.schema([*SCHEMA, *METADATA, *SIZES]))


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_decode_matches_plain_decoder(magic: int, codec: int, scaled: Callable[[int], int]) -> None:
    for seed in range(scaled(3)):
        records = some_records(90, seed, first=2**40, headers=magic == 2)
        data = b"".join(entries(records[at : at + 30], magic, codec) for at in range(0, 90, 30))
        assert in_columns(data) == plainly(data) == shown(records, magic)
        assert in_columns(memoryview(data), chunk_bytes=1) == shown(records, magic)


@given(records=record_lists, form=st.sampled_from(FORMATS), base=st.integers(0, 2**62), chunk=st.integers(1, 20_000))
def test_decode_random_records_match_plain(records: list[Record], form: tuple[int, int], base: int, chunk: int) -> None:
    moved = [item._replace(offset=item.offset + base) for item in records]
    half = len(moved) // 2
    data = b"".join(entries(part, *form) for part in (moved[:half], moved[half:]) if part)
    assert in_columns(data, chunk_bytes=chunk) == plainly(data) == shown(moved, form[0])


@pytest.mark.parametrize("chunk_bytes", [1, 300, 4 << 20])
def test_decode_run_of_plain_messages_returns_each_message(chunk_bytes: int) -> None:
    data = b""
    for index, magic in enumerate([0, 1, 1, 0, 1, 2, 1]):
        records = [Record(100 * index + number, NOW, b"k", b"v" * number) for number in range(20)]
        data += entries(records, magic, 0, log_append_time=index == 2 and magic == 1)
        data += entries([item._replace(offset=item.offset + 50) for item in records], magic, 1)
    whole, single = (
        [
            row
            for rows in decode(data, Options(ALL_COLUMNS, keep=keep, chunk_bytes=chunk_bytes))
            for row in rows.to_pylist()
        ]
        for keep in (None, lambda position, header: True)
    )
    assert whole == single
    assert in_columns(data) == plainly(data)
    plain = [row for row in whole if row["magic"] < 2 and not row["codec"]]
    assert [row["batch_offset"] for row in plain] == [row["offset"] for row in plain]
    assert len(plain) == 6 * 20


def test_decode_log_of_mixed_formats() -> None:
    data, expected = b"", []
    for index, (magic, codec) in enumerate(FORMATS * 2):
        records = some_records(7, index, first=1000 * index, headers=magic == 2)
        data += entries(records, magic, codec)
        expected += shown(records, magic)
    assert in_columns(data) == plainly(data) == expected
    found = list(decode(data, Options(columns=("magic", "codec", "offset"))))
    assert len(found) == 4  # a chunk is of v2 or of v0/v1
    assert [row["offset"] for rows in found for row in rows.to_pylist()] == [item.offset for item in expected]
    kinds = {(row["magic"], row["codec"]) for rows in found for row in rows.to_pylist()}
    assert kinds == set(FORMATS)


@given(counts=st.lists(st.integers(0, 60), min_size=1, max_size=40), together=st.integers(1, 40))
def test_decode_batches_walked_in_step_or_alone(counts: list[int], together: int) -> None:
    data, expected = b"", []
    for index, count in enumerate(counts):
        records = [Record(1000 * index + number, NOW, None, bytes(number * 3)) for number in range(count)]
        data += bytes(batch.build(records, batch.BatchFields(last_offset_delta=999), base_offset=1000 * index))
        expected += records
    before = batches.TOGETHER
    batches.TOGETHER = together
    try:
        assert in_columns(data) == expected
    finally:
        batches.TOGETHER = before


# --- other writers


RECORDS = some_records(20, 5)
OTHERS_V2 = [
    (kafka_python.DefaultRecordBatchBuilder, range(5)),
    (aiokafka._DefaultRecordBatchBuilderPy, range(5)),
    (aiokafka.DefaultRecordBatchBuilder, range(5)),
]
READERS_V2: list[Callable[[bytes], Any]] = [
    lambda data: kafka_python.DefaultRecordBatch(data),
    lambda data: aiokafka._DefaultRecordBatchPy(bytearray(data)),
    lambda data: aiokafka.DefaultRecordBatch(bytearray(data)),
]
OTHERS_OLD = [
    (old_kafka_python.LegacyRecordBatchBuilder, old_kafka_python.LegacyRecordBatch, True),
    (old_aiokafka._LegacyRecordBatchBuilderPy, old_aiokafka._LegacyRecordBatchPy, False),
    (old_aiokafka.LegacyRecordBatchBuilder, old_aiokafka.LegacyRecordBatch, False),
]


@each("codec", range(5))
@each("library", range(3))
def test_decode_v2_matches_other_libraries(library: int, codec: int) -> None:
    writer = OTHERS_V2[library][0](2, codec, 0, 7, 2, 40, 1 << 30)
    records = [item._replace(offset=index) for index, item in enumerate(RECORDS)]
    for item in records:
        assert writer.append(item.offset, item.timestamp, item.key, item.value, [tuple(pair) for pair in item.headers])
    data = bytes(writer.build())
    assert in_columns(data, check_crc=True) == records
    for reader in READERS_V2:
        theirs = [
            Record(item.offset, item.timestamp, item.key, item.value, tuple(Header(*pair) for pair in item.headers))
            for item in reader(data)
        ]
        assert in_columns(data) == theirs


@each(("magic", "codec"), [form for form in FORMATS if form[0] < 2])
@each("library", range(3))
def test_decode_old_formats_match_other_libraries(library: int, magic: int, codec: int) -> None:
    make, read, lz4_in_v0 = OTHERS_OLD[library]
    if (magic, codec) == (0, 3) and not lz4_in_v0:
        return
    writer = make(magic, codec, 1 << 30)
    records = [item._replace(offset=index) for index, item in enumerate(RECORDS)]
    for item in records:
        assert writer.append(item.offset, item.timestamp, item.key, item.value) is not None
    data = bytearray(writer.build())
    if codec:
        data[0:8] = (len(records) - 1).to_bytes(8, "big")  # the offset that a broker stores
    assert in_columns(bytes(data), check_crc=True) == shown(records, magic)
    theirs = []
    for position, head in formats.headers(data):
        for item in read(bytes(data[position : position + head.size_bytes]), magic):
            time = -1 if item.timestamp is None else item.timestamp
            theirs.append(Record(item.offset, time, item.key, item.value))
    assert in_columns(data) == theirs


# --- timestamps, control records, empty batches


def column(data: bytes, name: str, **options: Any) -> list[Any]:
    options = {"columns": (name,)} | options
    return [value for rows in decode(data, Options(**options)) for value in rows.column(0).to_pylist()]


def test_decode_log_append_time_applies_to_every_record() -> None:
    records = some_records(9, 1)
    data = entries(records, 2, 3, log_append_time=True, max_timestamp=NOW + 9)
    data += entries([Record(5000, NOW, b"a", b"b"), Record(5001, NOW + 1, b"c", b"d")], 2, 0)
    assert column(data, "timestamp") == [NOW + 9] * 9 + [NOW, NOW + 1]
    assert column(data, "timestamp_type") == [1] * 9 + [0, 0]
    assert in_columns(data) == plainly(data)


def test_decode_v1_log_append_time_and_v0_without_timestamp() -> None:
    same = [Record(index, NOW + 1, b"k", None) for index in range(4)]
    wrapped = bytearray(entries(same, 1, 2, log_append_time=True))
    wrapped[18:26] = (NOW + 77).to_bytes(8, "big")  # LogAppendTime, in the wrapper only
    data = bytes(wrapped) + entries(same, 1, 0, log_append_time=True) + entries(same, 0, 1) + entries(same, 1, 1)
    assert column(data, "timestamp", check_crc=False) == [NOW + 77] * 4 + [NOW + 1] * 4 + [-1] * 4 + [NOW + 1] * 4
    assert column(data, "timestamp_type", check_crc=False) == [1] * 8 + [-1] * 4 + [0] * 4
    assert in_columns(data) == plainly(data)


def test_decode_control_records_only_on_request() -> None:
    marker = bytes(
        batch.build(
            [Record(3, NOW, b"\0\0\0\1", b"")], batch.BatchFields(control=True, transactional=True), base_offset=3
        )
    )
    data = entries(some_records(1, 2), 2, 0) + marker
    assert column(data, "control") == [False]
    assert column(data, "control", control=True) == [False, True]


def test_decode_empty_batch_of_compacted_log() -> None:
    empty = bytes(batch.build([], batch.BatchFields(last_offset_delta=4), base_offset=10))
    assert list(decode(empty)) == []
    records = some_records(5, 3, first=20)
    assert in_columns(empty + entries(records, 2, 1) + empty) == records


def test_decode_truncated_last_entry_ends_iteration() -> None:
    records = [Record(index, NOW, b"k", b"v") for index in range(3)]
    first, second = entries(records, 2, 0), entries(records, 1, 1)
    for cut in range(len(second)):
        assert in_columns(first + second[:cut]) == records


def test_decode_sequences_wrap_and_missing_is_minus_one() -> None:
    numbered = [Record(index, NOW, b"", b"") for index in range(3)]
    data = entries(numbered, 2, 0, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    data += entries(numbered, 2, 0) + entries(numbered[:1], 0, 0)
    assert column(data, "sequence") == [2**31 - 2, 2**31 - 1, 0, -1, -1, -1, -1]
    assert column(data, "producer_id") == [1, 1, 1, -1, -1, -1, -1]


def test_decode_header_key_invalid_utf8_replaced() -> None:
    records = [Record(0, NOW, b"", b"", (Header("ok", b"1"), Header("\udcff\udc00", None)))]
    with pytest.raises(UnicodeEncodeError):
        entries(records, 2, 0)  # an escape outside bytes of 128 and more
    records = [Record(0, NOW, b"", b"", (Header("ok", b"1"), Header("a\udcff", None)))]
    (found,) = to_records(next(iter(decode(entries(records, 2, 0)))))
    assert found.headers == (("ok", b"1"), ("a\ufffd", None))


# --- projection, chunks, selection


@each("columns", [(name,) for name in ALL_COLUMNS] + [("value", "offset"), ("headers", "key")])
@each(("magic", "codec"), [(0, 1), (1, 0), (2, 3)])
def test_decode_projection_equals_columns_of_full_decode(columns: tuple[str, ...], magic: int, codec: int) -> None:
    data = entries(some_records(30, 7), magic, codec)
    (whole,) = decode(data, Options(columns=ALL_COLUMNS))
    (part,) = decode(data, Options(columns=columns))
    assert part.equals(whole.select(columns))
    assert part.schema.equals(schema(columns))


def test_decode_without_columns_keeps_row_count() -> None:
    (found,) = decode(entries(some_records(30, 7), 2, 0), Options(columns=()))
    assert (found.num_rows, found.num_columns) == (30, 0)


@pytest.mark.parametrize("columns", [("keys",), ("key", "key"), ("key", "topic")])
def test_decode_unknown_column_refused(columns: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="choose each once from key, value"):
        decode(b"", Options(columns=columns))


def test_decode_chunk_ends_after_entry_that_fills_it() -> None:
    parts = [entries(some_records(10, index, first=5000 * index), 2, 0) for index in range(8)]
    size = len(parts[0]) - batch.HEADER_BYTES
    found = [rows.num_rows for rows in decode(b"".join(parts[:1] * 8), Options(chunk_bytes=3 * size))]
    assert found == [30, 30, 20]
    assert [rows.num_rows for rows in decode(b"".join(parts))] == [80]


def test_decode_keep_called_before_payload_is_read() -> None:
    parts = [entries(some_records(10, index, first=5000 * index), 2, 1) for index in range(3)]
    broken = bytearray(parts[1])
    broken[70:90] = bytes(20)
    data = parts[0] + bytes(broken) + parts[2]
    positions: list[int] = []

    def keep(position: int, head: batch.BatchHeader) -> bool:
        positions.append(position)
        return head.base_offset != 5000

    found = in_columns(data, keep=keep, check_crc=True)
    assert found == some_records(10, 0) + some_records(10, 2, first=10_000)
    assert positions == [0, len(parts[0]), len(parts[0]) + len(parts[1])]


@given(most=st.integers(1, 50), counts=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_decode_large_batch_in_several_items(most: int, counts: list[int]) -> None:
    whole, expected = b"", []
    for index, count in enumerate(counts):
        records = some_records(count, index, first=10**6 * index)
        whole += entries(records, 2, index % 5)
        expected += records
    before = batches.MAX_ROWS
    batches.MAX_ROWS = most
    try:
        found = list(decode(whole, Options(columns=ALL_COLUMNS)))
    finally:
        batches.MAX_ROWS = before
    assert max(rows.num_rows for rows in found) <= most
    assert [record for rows in found for record in to_records(rows)] == expected
    (at_once,) = decode(whole, Options(columns=ALL_COLUMNS))
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([at_once]))


def test_record_batch_default_columns() -> None:
    data = entries(some_records(3, 1), 2, 0)
    head = batch.read_header(data)
    (rows,) = batches.rows([head], [batch.payload(data, 0, head)], [True])
    assert record_batch(rows).schema.names == list(COLUMNS)


def test_broker_does_not_import_columnar() -> None:
    program = (
        "import sys, ottla.broker.network.server, ottla.tools.serve, ottla.client, ottla.storage, ottla.pipeline\n"
        "print([name for name in ('numpy', 'pyarrow', 'pandas', 'pyspark') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"

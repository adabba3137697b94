"""Encoding columns to entries: golden bytes, agreement with the plain encoder, round trips, other readers, splitting,
refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record import default_records as aiokafka
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python

from ottla.pipeline.readers.columnar import EncodeOptions, Options, decode, encode
from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.errors import InvalidRecords, UnsupportedCodec
from ottla_testing.pipeline.columnar_samples import (
    NOW,
    encoded,
    entries,
    in_columns,
    plainly,
    rows_of,
    shown,
    some_records,
)

# The bytes of tests/protocol/records/test_batch.py.
GOLDEN = (
    "000000000000000000000045ffffffff02b9fc83f80010000000010000018bcfe568000000018bcfe56807"
    "00000000000000090001000000050000000218000000026b0276020268027"
    "80c000e02010100"
)
CODECS = range(5)

blob = st.none() | st.binary(max_size=100) | st.integers(8000, 8300).map(bytes)
header = st.builds(Header, st.text(max_size=8), st.none() | st.binary(max_size=20))
record = st.builds(Record, st.integers(1, 1000), st.integers(-1, 2**62), blob, blob, st.lists(header).map(tuple))


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**61))
    found = []
    for item in draw(st.lists(record, min_size=1, max_size=30)):
        offset += item.offset * draw(st.sampled_from([1, 1, 1, 2**24]))
        found.append(item._replace(offset=offset))
    return found


def test_golden_bytes() -> None:
    records = [Record(0, NOW, b"k", b"v", (Header("h", b"x"),)), Record(1, NOW + 7, None, None)]
    producer = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 5, "transactional": True}
    assert encoded(records, **producer).hex() == GOLDEN


@given(records=record_lists(), codec=st.sampled_from(CODECS), batch_bytes=st.integers(1, 20_000))
def test_encode_then_decode_returns_records(records: list[Record], codec: int, batch_bytes: int) -> None:
    data = encoded(records, codec=codec, batch_bytes=batch_bytes)
    assert plainly(data) == shown(records, 2)
    assert in_columns(data, check_crc=True) == shown(records, 2)


@given(records=record_lists(), codec=st.sampled_from(CODECS))
def test_encode_bytes_match_plain_encoder(records: list[Record], codec: int) -> None:
    if records[-1].offset - records[0].offset > 2**31 - 1:
        return
    assert encoded(records, codec=codec, batch_bytes=2**30).hex() == entries(records, 2, codec).hex()


@pytest.mark.parametrize("codec", CODECS)
def test_encode_decoded_chunk_round_trip(codec: int, scaled: Callable[[int], int]) -> None:
    records = some_records(scaled(200), 9, first=2**33)
    data = b"".join(entries(records[at : at + 20], 2, codec) for at in range(0, len(records), 20))
    again = b"".join(
        built
        for rows in decode(data, Options(chunk_bytes=50_000))
        for built in encode(rows, EncodeOptions(codec=codec, batch_bytes=30_000))
    )
    assert plainly(again) == shown(records, 2)


@pytest.mark.parametrize("codec", CODECS)
def test_encode_readable_by_other_libraries(codec: int) -> None:
    records = some_records(40, 3)
    data = encoded(records, codec=codec, batch_bytes=5000)
    readers: list[Callable[[bytes], Any]] = [
        lambda entry: kafka_python.DefaultRecordBatch(entry),
        lambda entry: aiokafka.DefaultRecordBatch(bytearray(entry)),
    ]
    for reader in readers:
        found = []
        for position, head in formats.headers(data):
            other = reader(data[position : position + head.size_bytes])
            assert other.validate_crc()
            for item in other:
                headers = tuple(Header(*pair) for pair in item.headers or ())
                time = -1 if item.timestamp is None else item.timestamp
                found.append(Record(item.offset, time, item.key, item.value, headers))
        assert found == shown(records, 2)


# --- splitting and numbering


def heads(data: bytes) -> list[batch.BatchHeader]:
    return [head for _, head in formats.headers(data)]


def test_encode_batch_ends_by_size_and_by_offset_delta() -> None:
    rows = [Record(index, NOW, None, bytes(1000)) for index in range(10)]
    assert [head.record_count for head in heads(encoded(rows, batch_bytes=3200))] == [3, 3, 3, 1]
    assert [head.record_count for head in heads(encoded(rows, batch_bytes=1))] == [1] * 10
    far = [Record(offset, NOW, b"", b"") for offset in (0, 2**31 - 1, 2**31, 2**33)]
    data = encoded(far)
    assert [(head.base_offset, head.last_offset_delta) for head in heads(data)] == [
        (0, 2**31 - 1),
        (2**31, 0),
        (2**33, 0),
    ]
    assert plainly(data) == far


def test_encode_sequences_continue_across_batches_and_wrap() -> None:
    rows = [Record(offset, NOW, None, bytes(1000)) for offset in (0, 1, 3, 4, 5, 6)]
    producer = {"producer_id": 3, "producer_epoch": 4, "base_sequence": 2**31 - 3, "leader_epoch": 8}
    found = heads(encoded(rows, batch_bytes=3200, **producer))
    assert [(head.base_sequence, head.last_sequence) for head in found] == [(2**31 - 3, 0), (1, 3)]
    assert {(head.producer_id, head.producer_epoch, head.partition_leader_epoch) for head in found} == {(3, 4, 8)}
    assert {head.base_sequence for head in heads(encoded(rows, batch_bytes=1))} == {-1}


def test_encode_large_input_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.pipeline.readers.columnar.encoding._GROUP_BYTES", 10_000)
    records = some_records(60, 4)
    for codec in CODECS:
        assert plainly(encoded(records, codec=codec, batch_bytes=4000)) == shown(records, 2)


# --- columns


def test_encode_missing_columns_are_null() -> None:
    rows = pa.RecordBatch.from_pydict({"offset": pa.array([4, 5], pa.int32()), "other": ["x", "y"]})
    assert plainly(b"".join(encode(rows))) == [Record(4, -1, None, None), Record(5, -1, None, None)]


def test_encode_no_rows_returns_no_batches() -> None:
    assert list(encode(rows_of([]))) == []


def test_encode_slices_strings_and_large_columns() -> None:
    records = some_records(30, 6)
    rows = rows_of(records)
    assert plainly(b"".join(encode(rows.slice(7, 11)))) == records[7:18]
    text = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array([0, 1]),
            "key": pa.array(["ü", None], pa.large_string()),
            "value": pa.array([b"v", None], pa.large_binary()),
            "headers": pa.array([None, [{"key": "h", "value": None}]], rows.schema.field("headers").type),
        }
    )
    expected = [Record(0, -1, "ü".encode(), b"v"), Record(1, -1, None, None, (Header("h", None),))]
    assert plainly(b"".join(encode(text))) == expected


@pytest.mark.parametrize("offsets", [[1, 1], [2, 1], [-1, 0], [None, 1]])
def test_encode_offsets_not_ascending_refused(offsets: list[int | None]) -> None:
    rows = pa.RecordBatch.from_pydict({"offset": pa.array(offsets, pa.int64())})
    with pytest.raises(InvalidRecords):
        encode(rows)


def test_encode_values_beyond_format_refused() -> None:
    far = [Record(0, -(2**62), b"", b""), Record(1, 2**62 + 2**61, b"", b""), Record(2, -(2**63), b"", b"")]
    for records in (far[:2], far[1:]):
        with pytest.raises(InvalidRecords, match="does not fit 64 bits"):
            encoded(records)
    farthest = [Record(0, -1, b"", b""), Record(1, 2**63 - 2, b"", b""), Record(2, -(2**63), b"", b"")]
    assert plainly(encoded(farthest)) == farthest
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    for headers in ([{"key": None, "value": b""}], [None]):
        rows = pa.RecordBatch.from_pydict({"offset": pa.array([0]), "headers": pa.array([headers], kind)})
        with pytest.raises(InvalidRecords, match="a header's key is null"):
            encode(rows)


@pytest.mark.parametrize("codec", [5, 7, -1])
def test_encode_unknown_codec_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCodec):
        encode(rows_of([]), EncodeOptions(codec=codec))


@pytest.mark.parametrize(
    "columns",
    [
        {"key": [b"k"]},
        {"offset": ["x"]},
        {"offset": [1.5]},
        {"offset": [1], "key": [7]},
        {"offset": [1], "headers": [[b"x"]]},
        {"offset": [1], "headers": ["x"]},
        {"offset": [1], "timestamp": [1.5]},
    ],
)
def test_encode_wrong_column_type_refused(columns: dict[str, list[Any]]) -> None:
    with pytest.raises(ValueError):
        encode(pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()}))


def test_encode_batch_without_room_refused() -> None:
    with pytest.raises(ValueError):
        encode(rows_of([]), EncodeOptions(batch_bytes=0))

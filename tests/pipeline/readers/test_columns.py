"""Rows for Spark from decoded records: names, types, constants, timestamps and headers."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.readers.columnar import Options, decode
from ottla.pipeline.readers.columnar.columns import ALL_COLUMNS
from ottla.pipeline.readers.columns import (
    BATCH_COLUMNS,
    BATCH_FIELDS,
    FIELDS,
    METADATA_COLUMNS,
    RECORD_COLUMNS,
    SIZE_COLUMNS,
    assemble,
    codec_names,
    decoder_columns,
    schema,
    timestamps,
)
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.columnar_samples import FORMATS, NOW, entries, shown, some_records

ALL = tuple(FIELDS)


def rows_of(data: bytes, columns: tuple[str, ...] = ALL, cut: slice = slice(None)) -> pa.RecordBatch:
    (found,) = decode(data, Options(columns=decoder_columns(columns)))
    found = found.slice(cut.start or 0, None if cut.stop is None else cut.stop - (cut.start or 0))
    made = assemble(found, "orders", 7, columns, "/logs/orders-7/0.log")
    made.validate(full=True)
    assert made.schema.equals(schema(columns))
    return made


def test_spark_reads_these_columns() -> None:
    assert RECORD_COLUMNS == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (*RECORD_COLUMNS, "headers", *METADATA_COLUMNS, *SIZE_COLUMNS) == ALL
    assert set(decoder_columns(ALL)) == set(ALL_COLUMNS)
    assert decoder_columns(("topic", "offset", "file")) == ("offset",)
    assert set(BATCH_FIELDS) - set(BATCH_COLUMNS) == {"crcOk"}


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_row_of_each_format(magic: int, codec: int) -> None:
    records = some_records(40, 3, first=5, headers=magic == 2)
    if magic < 2 and not codec:
        records = records[:20]
    found = rows_of(entries(records, magic, codec)).to_pylist()
    for row, record in zip(found, shown(records, magic), strict=True):
        assert (row["key"], row["value"], row["offset"]) == (record.key, record.value, record.offset)
        sizes = [None if part is None else len(part) for part in (record.key, record.value)]
        assert [row["keySize"], row["valueSize"]] == sizes
        assert (row["topic"], row["partition"], row["file"]) == ("orders", 7, "/logs/orders-7/0.log")
        since_epoch = row["timestamp"] - datetime(1970, 1, 1, tzinfo=UTC)
        assert since_epoch.total_seconds() * 1000 == pytest.approx(record.timestamp)
        headers = [{"key": header.key, "value": header.value} for header in record.headers]
        assert row["headers"] == (headers or None)
        assert (row["magic"], row["timestampType"]) == (magic, 0 if magic else -1)
        assert row["codec"] == ["none", "gzip", "snappy", "lz4", "zstd"][codec]


def test_rows_any_column_order_and_no_columns() -> None:
    data = entries(some_records(9, 1), 2, 0)
    assert rows_of(data, ("partition", "offset", "topic")).column("partition").to_pylist() == [7] * 9
    assert rows_of(data, ()).num_rows == rows_of(data, ("topic",)).num_rows == 9
    with pytest.raises(KeyError):
        schema(("nothing",))


@given(st.integers(0, 12), st.integers(0, 12))
def test_rows_of_slice_equal_slice_of_rows(first: int, last: int) -> None:
    data = entries(some_records(12, 8), 2, 3)
    assert rows_of(data, cut=slice(first, max(first, last))).to_pylist() == rows_of(data).to_pylist()[first:last]


def test_rows_from_broker_have_null_file() -> None:
    (found,) = decode(entries(some_records(2, 1), 2, 0), Options(columns=()))
    assert assemble(found, "t", 0, ("file",)).column(0).to_pylist() == [None, None]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4))
def test_timestamps_beyond_microseconds_clamped(values: list[int]) -> None:
    found = timestamps(pa.array(values, pa.int64())).view(pa.int64()).to_pylist()
    most = (2**63 - 1) // 1000 * 1000
    assert found == [max(-most, min(most, value * 1000)) for value in values]


def test_unknown_codec_is_null() -> None:
    assert codec_names(pa.array([0, 7, 4, 5], pa.int8())).to_pylist() == ["none", None, "zstd", None]


def test_metadata_columns_from_batch_header() -> None:
    data = bytes(
        batch.build(
            [Record(0, NOW, b"k", None), Record(1, NOW, None, b"v")],
            batch.BatchFields(producer_id=4, producer_epoch=5, base_sequence=2**31 - 1, transactional=True),
            base_offset=0,
        )
    )
    expected = {
        "producerId": 4,
        "producerEpoch": 5,
        "leaderEpoch": -1,
        "batchOffset": 0,
        "transactional": True,
        "control": False,
        "crcOk": True,
    }
    for row, sequence in zip(rows_of(data).to_pylist(), (2**31 - 1, 0), strict=True):
        assert {name: row[name] for name in expected} == expected
        assert row["sequence"] == sequence

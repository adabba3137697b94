"""Rows split into batches: by content alone, within the limit, all of them in order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.readers.columnar.encoding import EncodeOptions
from ottla.pipeline.sink import batches
from ottla.pipeline.sink.batches import HEADER_BYTES, RECORD_BYTES, cut, encoded
from ottla.pipeline.sink.errors import SinkError
from ottla.pipeline.sink.rows import HEADERS
from ottla.protocol.records import batch as v2

HEADER = st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=20))
ROW = st.tuples(
    st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=300), st.none() | st.lists(HEADER, max_size=3)
)
CODECS = st.sampled_from([0, 1, 2, 3, 4])


def record_batch(rows: list[Any]) -> pa.RecordBatch:
    listed = [
        None if headers is None else [{"key": key, "value": value} for key, value in headers] for _, _, headers in rows
    ]
    return pa.record_batch(
        {
            "key": pa.array([key for key, _, _ in rows], pa.binary()),
            "value": pa.array([value for _, value, _ in rows], pa.binary()),
            "headers": pa.array(listed, HEADERS),
        }
    )


def options(first: int, codec: int = 0) -> EncodeOptions:
    return EncodeOptions(
        codec=codec,
        batch_bytes=2**31 - 1,
        producer_id=9,
        producer_epoch=3,
        base_sequence=first,
        transactional=True,
    )


def pieces(whole: pa.RecordBatch, sizes: list[int]) -> list[pa.RecordBatch]:
    found, at = [], 0
    while at < whole.num_rows:
        size = sizes[len(found) % len(sizes)] if sizes else whole.num_rows
        found.append(whole.slice(at, size))
        at += size
    return found


@given(
    st.lists(ROW, min_size=1, max_size=40),
    st.lists(st.integers(0, 7), max_size=5).filter(lambda sizes: not sizes or any(sizes)),
    st.integers(1, 1500),
    CODECS,
)
def test_cut_independent_of_grouping(rows: list[Any], sizes: list[int], limit: int, codec: int) -> None:
    whole = record_batch(rows)
    found = [(one, encoded(one, options(one.first, codec))) for one in cut(iter([whole]), limit)]
    again = [(one, encoded(one, options(one.first, codec))) for one in cut(iter(pieces(whole, sizes)), limit)]
    assert [data for _, data in found] == [data for _, data in again]
    assert [one[1:] for one in map(_facts, found)] == [one[1:] for one in map(_facts, again)]
    read: list[Any] = []
    sequence = 0
    for one, data in found:
        header = v2.read_header(data)
        assert v2.crc_matches(data, 0, header)
        assert (header.producer_id, header.producer_epoch, header.base_offset) == (9, 3, 0)
        assert (header.base_sequence, header.record_count) == (sequence, one.records) == (one.first, one.records)
        assert header.is_transactional
        assert one.records == 1 or one.size_bytes <= limit
        if not codec:
            assert len(data) - v2.HEADER_BYTES <= one.size_bytes
        sequence += one.records
        read += [(r.key, r.value, [(h.key, h.value) for h in r.headers], r.timestamp) for r in v2.records(data)]
    assert read == [(key, value, headers or [], -1) for key, value, headers in rows]
    taken = sum(
        len(key or b"")
        + len(value or b"")
        + sum(len(name.encode()) + len(of or b"") + HEADER_BYTES for name, of in headers or [])
        for key, value, headers in rows
    )
    assert sum(one.content_bytes for one, _ in found) == taken


def _facts(found: Any) -> tuple[Any, ...]:
    one, data = found
    return data, one.first, one.last, one.records, one.content_bytes, one.size_bytes


def test_cut_ends_before_row_that_exceeds_limit() -> None:
    rows = pa.record_batch({"value": pa.array([b"x" * 64] * 7, pa.binary())})
    row = 64 + RECORD_BYTES
    assert [one.records for one in cut(iter([rows]), 3 * row)] == [3, 3, 1]
    assert [one.records for one in cut(iter([rows]), 3 * row - 1)] == [2, 2, 2, 1]
    assert [one.records for one in cut(iter([rows]), 1)] == [1] * 7
    assert [one.records for one in cut(iter([rows]), 7 * row)] == [7]
    assert [one.first for one in cut(iter([rows]), 3 * row)] == [0, 3, 6]
    assert list(cut(iter([rows.slice(0, 0)]), 10)) == []


def test_cut_too_many_rows_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [pa.record_batch({"value": pa.array([b"x"] * 5, pa.binary())})] * 2
    monkeypatch.setattr(batches, "MOST_RECORDS", 10)
    assert sum(one.records for one in cut(iter(rows), 100)) == 10
    monkeypatch.setattr(batches, "MOST_RECORDS", 9)
    with pytest.raises(SinkError, match="a micro-batch has more than 9 rows for one partition"):
        list(cut(iter(rows), 100))


def test_encoded_invalid_rows_refused() -> None:
    keyless = pa.array([[{"key": None, "value": b""}]], HEADERS)
    rows = pa.record_batch({"value": pa.array([b""], pa.binary()), "headers": keyless})
    (one,) = cut(iter([rows]), 100)
    with pytest.raises(SinkError, match="these rows cannot be written: a header's key is null"):
        encoded(one, options(0))

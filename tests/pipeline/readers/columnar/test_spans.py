"""Positions of records without columns: the same records, entries without any, split entries, damaged runs."""

from __future__ import annotations

import struct
import zlib

import pytest

from ottla.pipeline.readers.columnar import Damage, Options, Rows, batches, decode, spans
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.columnar_samples import FORMATS, NOW, entries, some_records


def piece(rows: Rows, start: int, size: int) -> bytes | None:
    return None if size < 0 else rows.payload[start : start + size]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_spans_match_decoded_columns(magic: int, codec: int) -> None:
    records = some_records(60, 3, headers=magic == 2)
    data = b"".join(entries(records[at : at + 20], magic, codec) for at in range(0, 60, 20))
    columns = [row for found in decode(data, Options(("key", "value", "offset"))) for row in found.to_pylist()]
    places = [
        {"key": piece(rows, *key), "value": piece(rows, *value), "offset": offset}
        for rows in spans(data)
        for *key, value, offset in zip(
            rows.keys.starts.tolist(),
            rows.keys.sizes.tolist(),
            zip(rows.values.starts.tolist(), rows.values.sizes.tolist(), strict=True),
            rows.offsets.tolist(),
            strict=True,
        )
    ]
    assert places == columns
    assert len(places) == 60


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_spans_records_cover_payload(magic: int, codec: int) -> None:
    records = some_records(40, 4, headers=magic == 2)
    (rows,) = spans(entries(records, magic, codec))
    assert rows.begins[0] == 0
    assert rows.begins[1:].tolist() == rows.ends[:-1].tolist()
    assert not any(rows.payload[int(rows.ends[-1]) :])


def test_spans_include_entries_without_records() -> None:
    empty = bytes(batch.build([], batch.BatchFields(last_offset_delta=3), base_offset=5))
    full = bytes(batch.build([Record(9, NOW, None, b"v")], base_offset=9))
    (rows,) = spans(empty + full + empty)
    assert rows.counts.tolist() == [0, 1, 0]
    (rows,) = spans(empty)
    assert (rows.counts.tolist(), rows.offsets.size) == ([0], 0)


@pytest.mark.parametrize("most", [3, 10, 11, 25, 1000])
def test_spans_split_entry_marked_continues(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_ROWS", most)
    data = b"".join(entries([Record(10 * at + n, NOW, None, b"v") for n in range(10)], 2, 0) for at in range(3))
    found = list(spans(data))
    assert sum(rows.offsets.size for rows in found) == 30
    assert all(rows.offsets.size <= most for rows in found)
    assert sum(len(rows.entries) - rows.continues for rows in found) == 3
    assert not found[0].continues


def message(offset: int, value: bytes, claimed: int) -> bytes:
    """Returns a v1 message with a valid CRC whose value claims `claimed` bytes."""
    body = struct.pack(">bbqii", 1, 0, NOW, -1, claimed) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_spans_damaged_message_of_run_lost_alone() -> None:
    bad = (17, 18, 40)
    made = [message(n, b"value", 4 if n in bad else 5) for n in range(50)]
    noticed: list[Damage] = []
    options = Options(("offset", "value"), on_damage=noticed.append)
    found = [row for rows in decode(b"".join(made), options) for row in rows.to_pylist()]
    assert [row["offset"] for row in found] == [n for n in range(50) if n not in bad]
    assert [damage.position for damage in noticed] == [len(made[0]) * n for n in bad]
    assert [damage.header.base_offset for damage in noticed if damage.header] == list(bad)

"""Rows of `ottla_batches`: each entry once, equal to the result of `storage.inspect`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import OffsetRange, ReadError
from ottla.pipeline.readers.columns import BATCH_COLUMNS, BATCH_FIELDS, batch_schema
from ottla.pipeline.readers.files import BatchBackend
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla.storage import inspect
from ottla_testing.pipeline.columnar_samples import FORMATS
from ottla_testing.pipeline.logs_samples import KEY, Folder, rows, wanted, written

Row = dict[str, Any]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ALL = tuple(BATCH_FIELDS)


def batches(path: Path | str, *columns: str, start: int = 0, end: int | None = None, **options: Any) -> list[Row]:
    sizes = {name: options.pop(name) for name in ("part_bytes", "window_bytes") if name in options}
    backend = BatchBackend([str(path)], **sizes)
    (key,) = backend._catalog.refresh()
    stop = backend.latest([key], committed=False)[key] if end is None else end
    return rows(backend.pieces([OffsetRange(*key, start, stop)], wanted(*columns or ALL, **options)))


def expected_rows(folder: Folder) -> list[Row]:
    """Returns the rows expected from `storage.inspect`."""
    found: list[Row] = []
    for number in range(len(folder.bases)):
        path = str(folder.log(number))
        for facts in inspect.segment(path):
            assert isinstance(facts, inspect.BatchFacts)
            header, old = facts.header, facts.magic < 2
            found.append(
                {
                    "topic": "orders",
                    "partition": 3,
                    "file": path,
                    "position": facts.position,
                    "sizeBytes": facts.size_bytes,
                    "baseOffset": None if facts.is_wrapper else header.base_offset,
                    "lastOffset": header.last_offset,
                    "recordCount": None if facts.is_wrapper else header.record_count,
                    "magic": facts.magic,
                    "codec": CODECS[facts.codec],
                    "timestampType": (-1 if not facts.magic else int(header.log_append_time)),
                    "baseTimestamp": header.base_timestamp,
                    "maxTimestamp": header.max_timestamp,
                    "deleteHorizon": not old and header.has_delete_horizon,
                    "producerId": header.producer_id,
                    "producerEpoch": header.producer_epoch,
                    "baseSequence": header.base_sequence,
                    "leaderEpoch": header.partition_leader_epoch,
                    "transactional": not old and header.is_transactional,
                    "control": not old and header.is_control,
                    "crc": header.crc,
                    "crcOk": facts.crc_ok,
                }
            )
    return found


def plain(found: list[Row]) -> list[Row]:
    """Converts timestamps to milliseconds."""
    times = ("baseTimestamp", "maxTimestamp")
    return [
        row | {name: round(row[name].timestamp() * 1000) for name in times if row.get(name) is not None}
        for row in found
    ]


@given(
    kinds=st.lists(st.tuples(st.sampled_from(FORMATS), st.integers(1, 9)), min_size=1, max_size=10),
    part_bytes=st.sampled_from([1, 2000, 1 << 20]),
)
def test_batch_rows_match_storage_inspect(kinds: list[tuple[tuple[int, int], int]], part_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = written(Path(root) / "orders-3", [(*form, count) for form, count in kinds], rolls=[4])
        expected = expected_rows(folder)
        assert plain(batches(root, part_bytes=part_bytes)) == expected
        without = [{name: row[name] for name in BATCH_COLUMNS} for row in expected]
        assert plain(batches(root, *BATCH_COLUMNS, part_bytes=part_bytes)) == without


def test_batch_rows_large_entries_read_headers_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    sizes = [10, 300_000, 20, 200_000, 250_000, 5, 7, 100_000]
    data = [bytes(batch.build([Record(at, 5, None, bytes(size))], base_offset=at)) for at, size in enumerate(sizes)]
    (folder / f"{0:020d}.log").write_bytes(b"".join(data))
    from ottla.pipeline.readers.files.windows import LogFile

    bytes_read = 0
    fill, read = LogFile.fill, LogFile.read

    def counted(self: LogFile, buffer: memoryview, position: int) -> int:
        nonlocal bytes_read
        bytes_read += (count := fill(self, buffer, position))
        return count

    def counted_read(self: LogFile, position: int, length: int) -> bytes:
        nonlocal bytes_read
        bytes_read += len(found := read(self, position, length))
        return found

    backend = BatchBackend([str(tmp_path)])
    pieces = backend.pieces([OffsetRange(*KEY, 0, 8)], wanted("sizeBytes", "lastOffset"))
    monkeypatch.setattr(LogFile, "fill", counted)
    monkeypatch.setattr(LogFile, "read", counted_read)
    assert [row["sizeBytes"] for row in rows(pieces)] == [len(one) for one in data]
    assert bytes_read < sum(map(len, data)) / 2


def test_batch_range_contains_entries_that_end_in_it(tmp_path: Path) -> None:
    """Each entry belongs to exactly one range, whatever the bounds of a stream."""
    folder = written(tmp_path / "orders-3", [(2, 0, 10)] * 5)
    headers = [header for _, _, header in folder.placed()]
    for start in (0, 3, headers[1].base_offset, headers[1].last_offset, folder.end - 1):
        for end in (start, start + 1, headers[3].base_offset, headers[3].next_offset, folder.end):
            found = [row["baseOffset"] for row in batches(tmp_path, "baseOffset", start=start, end=end)]
            assert found == [header.base_offset for header in headers if start <= header.last_offset < end]


def test_batch_rows_column_choice_and_time_bounds(tmp_path: Path) -> None:
    folder = written(tmp_path / "orders-3", [(2, 0, 2)] * 6)
    backend = BatchBackend([str(tmp_path)])
    latest = max(header.max_timestamp for _, _, header in folder.placed())
    (piece,) = backend.pieces([OffsetRange(*KEY, 0, folder.end)], wanted("codec", "position", from_ms=latest))
    found = pa.Table.from_batches(piece.read())
    assert found.schema.equals(batch_schema(("codec", "position")))
    hits = [position for _, position, header in folder.placed() if header.max_timestamp >= latest]
    assert found.column("position").to_pylist() == hits


def test_batch_rows_wrong_crc_is_a_row(tmp_path: Path) -> None:
    folder = written(tmp_path / "orders-3", [(2, 0, 5)] * 4)
    data = bytearray(folder.log().read_bytes())
    position = folder.placed()[2][1]
    data[position + 70] ^= 1
    folder.log().write_bytes(data)
    assert [row["crcOk"] for row in batches(tmp_path)] == [True, True, False, True]
    assert len(batches(tmp_path, "position")) == 4


@pytest.mark.parametrize("policy", ["fail", "skip", "emit"])
def test_batch_rows_unrecognisable_entry_is_damage(tmp_path: Path, policy: str) -> None:
    folder = written(tmp_path / "orders-3", [(2, 0, 5)] * 4, rolls=[2], interval_bytes=None)
    end = folder.end
    data = bytearray(folder.log(0).read_bytes())
    position = folder.placed()[1][1]
    data[position + 16] = 7
    folder.log(0).write_bytes(data)
    if policy == "fail":
        with pytest.raises(ReadError, match=rf"at byte {position}, offset \d+: an entry of \d+ bytes of format v7"):
            batches(tmp_path, end=end)
        return
    found = batches(tmp_path, end=end, on_corrupt=policy)
    expected = [0, 2, 3] if policy == "skip" else [0, 1, 2, 3]
    assert [row["position"] for row in found] == [folder.placed()[number][1] for number in expected]
    assert [row["crcOk"] for row in found].count(False) == (policy == "emit")

"""Reading records from folders by pieces: each offset once, for all formats and divisions; timestamps as hints."""

from __future__ import annotations

import pickle
import tempfile
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import OffsetRange, ReadError, Wanted
from ottla.pipeline.readers.columns import FIELDS
from ottla.pipeline.readers.files import FileBackend
from ottla.pipeline.readers.files.pieces import FilePiece
from ottla.protocol.records import formats
from ottla_testing.pipeline.columnar_samples import FORMATS, some_records
from ottla_testing.pipeline.logs_offsets import offsets_of, timed
from ottla_testing.pipeline.logs_samples import (
    KEY,
    Folder,
    as_records,
    indexed,
    read,
    rows,
    split,
    wanted,
    write,
    written,
)

parts = st.lists(
    st.tuples(st.sampled_from(FORMATS), st.integers(1, 12)).map(lambda part: (*part[0], part[1])),
    min_size=1,
    max_size=12,
)
MIXED = [(magic, codec, 5) for magic, codec in FORMATS] * 3


@given(data=st.data(), kinds=parts, first=st.sampled_from([0, 7, 2**40]))
def test_pieces_return_each_offset_once(data: st.DataObject, kinds: list[tuple[int, int, int]], first: int) -> None:
    rolls = data.draw(st.lists(st.integers(1, len(kinds)), max_size=3, unique=True), "rolls")
    interval = data.draw(st.sampled_from([None, 0, 300, 2000]), "index interval")
    with tempfile.TemporaryDirectory() as root:
        folder = written(Path(root) / "orders-3", kinds, first=first, rolls=rolls, interval_bytes=interval)
        start = data.draw(st.integers(folder.start, folder.end), "start")
        end = data.draw(st.integers(start, folder.end), "end")
        found = read(
            folder.path,
            wanted(),
            start,
            end,
            at_least=data.draw(st.sampled_from([None, 1, 3, 20]), "pieces"),
            part_bytes=data.draw(st.sampled_from([1, 500, 5000, 1 << 20]), "bytes of a part"),
            window_bytes=data.draw(st.sampled_from([61, 700, 5000, 1 << 20]), "bytes of a window"),
        )
        assert as_records(found) == [record for record in folder.records if start <= record.offset < end]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_all_columns_of_each_format(magic: int, codec: int, tmp_path: Path) -> None:
    folder = written(tmp_path / "orders-3", [(magic, codec, 20)] * 6, rolls=[3])
    found = read(tmp_path, wanted(*FIELDS), window_bytes=4000)
    assert as_records(found) == folder.records
    assert {row["magic"] for row in found} == {magic}
    assert {row["topic"] for row in found} == {"orders"} and {row["partition"] for row in found} == {3}
    assert {row["timestampType"] for row in found} == {0 if magic else -1}
    assert all(row["crcOk"] for row in found)
    halves = [str(folder.log(0)), str(folder.log(1))]
    assert list(dict.fromkeys(row["file"] for row in found)) == halves


def test_read_without_columns_keeps_row_count(tmp_path: Path) -> None:
    folder = written(tmp_path / "orders-3", MIXED)
    backend = FileBackend([str(tmp_path)])
    (piece,) = backend.pieces([OffsetRange(*KEY, 3, folder.end - 2)], Wanted(()))
    assert sum(part.num_rows for part in piece.read()) == sum(3 <= r.offset < folder.end - 2 for r in folder.records)


def test_pieces_pickle_small_and_large_segment_split(tmp_path: Path) -> None:
    folder = written(tmp_path / "orders-3", [(2, 0, 12)] * 60)
    backend = FileBackend([str(tmp_path)], part_bytes=1 << 19)
    pieces = backend.pieces([OffsetRange(*KEY, 0, folder.end)], wanted())
    size = folder.log().stat().st_size
    assert abs(len(pieces) - size / (1 << 19)) <= 2
    assert max(len(pickle.dumps(piece)) for piece in pieces) < 1000
    again: list[FilePiece] = pickle.loads(pickle.dumps(pieces))
    assert again == pieces and as_records(rows(again)) == folder.records
    assert len(backend.pieces([OffsetRange(*KEY, 0, folder.end)], wanted(), at_least=25)) in range(22, 27)
    estimates = [piece.size_bytes for piece in pieces]
    assert max(estimates) < 2 << 19 and abs(sum(estimates) - size) < len(pieces)


def test_part_of_segment_reads_only_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "orders-3", [(2, 0, 12)] * 60)
    backend = FileBackend([str(tmp_path)], part_bytes=1 << 19, window_bytes=1 << 17)
    pieces = backend.pieces([OffsetRange(*KEY, 0, folder.end)], wanted())
    size = folder.log().stat().st_size
    bytes_read = 0
    from ottla.pipeline.readers.files.windows import LogFile

    fill = LogFile.fill

    def counted(self: LogFile, buffer: memoryview, position: int) -> int:
        nonlocal bytes_read
        bytes_read += (count := fill(self, buffer, position))
        return count

    monkeypatch.setattr(LogFile, "fill", counted)
    rows(pieces)
    assert bytes_read < 2 * size


@pytest.mark.parametrize("window_bytes", [61, 5000, 1 << 20])
def test_read_entry_larger_than_window(window_bytes: int, tmp_path: Path) -> None:
    kinds = [(2, 0, 1), (2, 0, 200), (1, 0, 3), (2, 3, 300), (0, 1, 100), (2, 0, 2)]
    folder = written(tmp_path / "orders-3", kinds)
    assert max(map(len, folder.entries[0])) > 200_000
    assert as_records(read(tmp_path, wanted(), window_bytes=window_bytes)) == folder.records


def test_read_entry_above_size_limit_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "orders-3", [(2, 0, 200), (2, 0, 1)], interval_bytes=None)
    monkeypatch.setattr("ottla.pipeline.readers.files.windows.ENTRY_BYTES_MAX", 10_000)
    with pytest.raises(ReadError, match=r"0.log at byte 0, offset 0: an entry of \d+ bytes, more than the limit"):
        read(tmp_path, wanted(), 0, folder.end, window_bytes=5000)


def test_read_compacted_log_with_gaps(tmp_path: Path) -> None:
    records = some_records(200, 5)
    folder = written(tmp_path / "orders-3", [(2, 0, 1)])
    kept = [record for record in records if record.offset % 7 in (0, 1, 3)]
    folder.records = kept
    folder.bases = [0, 2**20, 2**21]
    moved = [r._replace(offset=r.offset + 2**20) for r in kept]
    folder.entries = [split(kept[:9], 2, 0) + split(kept[9:], 2, 3), split(moved, 1, 1), []]
    write(folder)
    assert as_records(read(tmp_path, wanted(), 0, 2**20 - 5)) == kept
    assert len(read(tmp_path, wanted(), 0, 2**21)) == 2 * len(kept)
    for start in (0, 1, kept[8].offset + 1, kept[20].offset + 1, 2**20 - 1):
        found = [row["offset"] for row in read(tmp_path, wanted(), start, 2**20 + 1, part_bytes=100)]
        assert found == [r.offset for r in [*kept, *moved] if start <= r.offset < 2**20 + 1]


# -- times


@given(data=st.data(), kinds=parts)
def test_time_bounds_keep_all_matching_records(data: st.DataObject, kinds: list[tuple[int, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        rolls = data.draw(st.lists(st.integers(1, len(kinds)), max_size=3, unique=True), "rolls")
        folder = written(
            Path(root) / "orders-3", kinds, rolls=rolls, interval_bytes=data.draw(st.sampled_from([0, 400]))
        )
        times = sorted({record.timestamp + step for record in folder.records for step in (-1, 0, 1)})
        low, high = data.draw(st.none() | st.sampled_from(times)), data.draw(st.none() | st.sampled_from(times))
        found = as_records(read(root, wanted(from_ms=low, before_ms=high), part_bytes=2000))
        offsets = {record.offset for record in found}
        assert set(found) <= set(folder.records)
        for record in folder.records:
            if (low is None or record.timestamp >= low) and (high is None or record.timestamp < high):
                assert record.offset in offsets
        # The first offset by timestamp as well.
        when = data.draw(st.sampled_from(times), "time")
        backend = FileBackend([root])
        expected = next((record.offset for record in folder.records if record.timestamp >= when), None)
        assert backend.at_times({KEY: when}) == {KEY: expected}


def test_time_bounds_skip_segments_by_largest_timestamp(tmp_path: Path) -> None:
    backend = timed(tmp_path, [[5, 90, 10], [40, 50], [100, 20]])
    end = backend.latest([KEY], committed=False)[KEY]
    for from_ms, bases in ((0, [0, 3, 5]), (50, [0, 3, 5]), (51, [0, 5]), (90, [0, 5]), (91, [5]), (101, [])):
        pieces = backend.pieces([OffsetRange(*KEY, 0, end)], wanted(from_ms=from_ms))
        assert [piece.base for piece in pieces] == bases, from_ms
    assert offsets_of(backend, from_ms=90) == [1, 5]
    assert offsets_of(backend, before_ms=10) == list(range(7)), "of the earliest nothing is known"
    assert backend.at_times({KEY: 60}) == {KEY: 1}
    assert backend.at_times({KEY: 91}) == {KEY: 5}
    assert backend.at_times({KEY: 101}) == {KEY: None}


def test_time_bounds_log_append_time_of_batch(tmp_path: Path) -> None:
    backend = timed(tmp_path, [[5, 90, 10]], log_append_time=True)
    assert offsets_of(backend, before_ms=10) == [0]
    assert offsets_of(backend, before_ms=11, from_ms=6) == [2]


@pytest.mark.parametrize("lie", ["none", "short", "early", "nothing", "junk"])
def test_wrong_time_index_detected(lie: str, tmp_path: Path) -> None:
    backend = timed(tmp_path, [[5, 90, 10, 20, 95], [40, 50]])
    path = tmp_path / "orders-3" / f"{0:020d}.timeindex"
    data = path.read_bytes()
    changed = {
        "short": data[:-5],
        "early": data[:-12] + (40).to_bytes(8, "big") + (4).to_bytes(4, "big"),
        "nothing": b"",
        "junk": b"\xff" * 24,
    }
    path.write_bytes(changed.get(lie, data)) if lie != "none" else path.unlink()
    assert offsets_of(backend, from_ms=91) == [4]
    assert backend.at_times({KEY: 91}) == {KEY: 4}


# -- offset indexes are hints


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Returns a log of all formats whose indexes the tests may change."""
    return written(tmp_path_factory.mktemp("mixed") / "orders-3", MIXED, rolls=[11], interval_bytes=None)


@given(data=st.data())
def test_wrong_offset_index_same_records(data: st.DataObject, mixed: Folder) -> None:
    starts = [0, *accumulate(map(len, mixed.entries[0]))]
    for base, of_segment in zip(mixed.bases, mixed.entries, strict=True):
        lie = bytearray(indexed(base, of_segment, 500)[0])
        for bit in data.draw(st.lists(st.integers(0, len(lie) * 8 - 1), max_size=6)):
            lie[bit // 8] ^= 1 << bit % 8
        numbers = data.draw(st.lists(st.sampled_from(starts) | st.integers(0, 2**31 - 1), max_size=4))
        made = b"".join(number.to_bytes(4, "big") for number in numbers)
        (mixed.path / f"{base:020d}.index").write_bytes(data.draw(st.sampled_from([bytes(lie), made, lie[:-3]])))
    start = data.draw(st.integers(0, mixed.end))
    backend = FileBackend([str(mixed.path)], part_bytes=data.draw(st.sampled_from([2000, 40_000])))
    pieces = backend.pieces([OffsetRange(*KEY, start, mixed.end)], wanted("offset", "value"))
    found = [(row["offset"], row["value"]) for row in rows(pieces)]
    assert found == [(record.offset, record.value) for record in mixed.records if record.offset >= start]


def test_offset_index_of_kafka_up_to_3_8(tmp_path: Path) -> None:
    """The last offset of some batches with the position of the first; and zeros at the end while it is in use."""
    folder = written(tmp_path / "orders-3", [(2, 0, 4)] * 40, interval_bytes=None)
    index, position, noted = b"", 0, 0
    for number, data in enumerate(folder.entries[0]):
        if number % 5 == 0:
            noted = position
        if number % 5 == 4 and number > 5:
            index += formats.read_header(data).last_offset.to_bytes(4, "big") + noted.to_bytes(4, "big")
        position += len(data)
    (folder.path / f"{0:020d}.index").write_bytes(index + bytes(800))
    backend = FileBackend([str(tmp_path)], part_bytes=5000)
    pieces = backend.pieces([OffsetRange(*KEY, 9, folder.end)], wanted())
    assert len(pieces) > 5
    assert as_records(rows(pieces)) == [record for record in folder.records if record.offset >= 9]

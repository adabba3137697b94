"""Inspection of segments and directories: facts per entry, damage as values, in all formats and beside a broker."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch, legacy
from ottla.protocol.records.batch import Record
from ottla.storage import inspect
from ottla.storage.errors import StorageError
from ottla.storage.format import schemas
from ottla.storage.format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from ottla.storage.inspect import BatchFacts, BytesSource, Damage, FileSource
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.producers import txn_index
from ottla_testing import GOLDEN

NOW = 1_700_000_000_000


def entry(magic: int, codec: int, offset: int, count: int, size: int = 5) -> bytes:
    """Returns a batch or wrapper of `count` records; without a codec in v0 and v1 only one of them is allowed."""
    records = [Record(offset + n, NOW + n, b"k", b"v" * size) for n in range(count)]
    if magic == 2:
        return bytes(batch.build(records, base_offset=offset, codec=codec))
    return bytes(legacy.build(records, magic=magic, codec=codec))


def facts(data: bytes, **options: bool) -> list[BatchFacts | Damage]:
    return list(inspect.entries(BytesSource(data), **options))


def good(found: Sequence[BatchFacts | Damage]) -> list[BatchFacts]:
    return [one for one in found if isinstance(one, BatchFacts)]


kinds = st.one_of(
    st.tuples(st.just(2), st.sampled_from([0, 1, 2, 3, 4]), st.integers(1, 4)),
    st.tuples(st.sampled_from([0, 1]), st.just(0), st.just(1)),
    st.tuples(st.sampled_from([0, 1]), st.sampled_from([1, 2, 3]), st.integers(1, 4)),
)


@given(st.lists(kinds, max_size=6))
def test_entries_of_every_format_are_described(made: list[tuple[int, int, int]]) -> None:
    data, expected, offset = b"", [], 0
    for magic, codec, count in made:
        one = entry(magic, codec, offset, count)
        expected.append((len(data), len(one), magic, codec, offset, offset + count - 1, count, True, None))
        data += one
        offset += count
    found = [
        (f.position, f.size_bytes, f.magic, f.codec, f.first_offset, f.last_offset, f.record_count, f.crc_ok, f.problem)
        for f in good(facts(data, open_wrappers=True))
    ]
    assert found == expected
    for row, unopened in zip(expected, good(facts(data, check_crc=False)), strict=True):
        assert unopened.crc_ok is None and unopened.is_wrapper == (row[2] < 2 and row[3] != 0)
        assert (unopened.first_offset, unopened.record_count) == ((-1, -1) if unopened.is_wrapper else (row[4], row[6]))


@given(st.lists(kinds, min_size=1, max_size=4), st.data())
def test_truncated_file_has_a_tail_after_the_last_whole_entry(
    made: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    entries = [entry(magic, codec, 10 * n, count) for n, (magic, codec, count) in enumerate(made)]
    whole = b"".join(entries)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, entries[: n + 1])) for n in range(len(entries))]
    kept = [end for end in ends if end <= cut]
    *before, last = [None, *facts(whole[:cut])]
    if cut in (0, *ends):
        assert len(before) == len(kept) and not isinstance(last, Damage)
    else:
        assert isinstance(last, Damage), last
        assert (last.position, last.left_bytes, last.is_tail) == ((kept or [0])[-1], cut - (kept or [0])[-1], True)
        assert len(before) - 1 == len(kept)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_damage_without_exceptions(data: bytes) -> None:
    found = facts(entry(2, 0, 0, 1) + data, open_wrappers=True)
    first = found[0]
    assert isinstance(first, BatchFacts) and first.crc_ok
    assert not data or len(found) > 1


@given(kinds, st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=4))
def test_damage_inside_an_entry_never_raises(kind: tuple[int, int, int], changes: list[tuple[int, int]]) -> None:
    one = bytearray(entry(kind[0], kind[1], 5, kind[2]))
    before = bytes(one)
    for at, byte in changes:
        one[at % len(one)] = byte
    found = facts(bytes(one), open_wrappers=True)
    start = 21 if kind[0] == 2 else 16
    if one[start:] != before[start:] and one[:start] == before[:start]:
        assert isinstance(found[0], Damage) or found[0].crc_ok is False


def test_wrong_crc_or_unreadable_wrapper_does_not_end_the_scan() -> None:
    bad = bytearray(entry(2, 0, 0, 2))
    bad[-1] ^= 1
    wrapper = bytearray(entry(1, 1, 2, 3))
    wrapper[50] ^= 0xFF
    found = good(facts(bytes(bad + wrapper) + entry(0, 0, 5, 1), open_wrappers=True))
    assert [one.crc_ok for one in found] == [False, False, True]
    assert found[1].problem and (found[1].record_count, found[1].first_offset) == (-1, -1)
    assert found[2].position == len(bad) + len(wrapper)


def test_trailing_zeros_are_a_tail_and_other_bytes_damage() -> None:
    one = entry(2, 0, 0, 1)
    assert facts(one + bytes(3 << 20))[1:] == [Damage(len(one), 3 << 20, "3145728 bytes of zeros", True)]
    (found,) = facts(one + bytes(100) + b"x")[1:]
    assert isinstance(found, Damage) and not found.is_tail
    (found,) = facts(one + b"\xff" * 100)[1:]
    assert isinstance(found, Damage) and (found.position, found.is_tail) == (len(one), False)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_entries_larger_than_the_window(magic: int, tmp_path: Path) -> None:
    """Their CRC is computed in pieces."""
    small, large = entry(2, 0, 0, 1), entry(magic, 0, 1, 1, 3 * inspect.WINDOW_BYTES)
    path = tmp_path / "x.log"
    path.write_bytes(small + large + small)
    found = good(list(inspect.segment(path)))
    assert [(one.size_bytes, one.crc_ok) for one in found] == [
        (len(small), True),
        (len(large), True),
        (len(small), True),
    ]
    damaged = bytearray(large)
    damaged[2 * inspect.WINDOW_BYTES] ^= 1
    path.write_bytes(small + damaged + small)
    assert [one.crc_ok for one in good(list(inspect.segment(path)))] == [True, False, True]


def test_window_that_ends_inside_a_header() -> None:
    """Entries of many sizes, so that the edge of the window falls everywhere."""
    parts = [entry(n % 3, 0, n, 1, size=n % 97) for n in range(25_000)]
    data = b"".join(parts)
    assert len(data) > 2 * inspect.WINDOW_BYTES
    found = good(facts(data))
    assert len(found) == len(parts) and all(one.crc_ok for one in found)
    assert found[-1].position + found[-1].size_bytes == len(data)


def test_segments_of_kafka() -> None:
    """Each topic of the directories left by Apache Kafka: offsets in order, and the record count of a consumer."""
    topics = json.loads((GOLDEN / "topics.json").read_text())
    seen = 0
    for folder in inspect.partitions(GOLDEN / "logs"):
        records = 0
        last = -1
        for segment in folder.segments:
            for found in inspect.segment(segment.path, open_wrappers=True):
                assert isinstance(found, BatchFacts) and found.crc_ok and found.problem is None
                assert last < found.first_offset <= found.last_offset
                last = found.last_offset
                records += 0 if found.header.is_control else found.record_count
        if folder.topic in topics and folder.topic != "transactions":  # for topics where a consumer skips records
            assert records == len(topics[folder.topic]["records"]), folder.topic
            seen += 1
    assert seen > 10


# --- directories


def test_inspect_of_a_directory_in_use_changes_nothing(tmp_path: Path) -> None:
    """No lock is taken, and nothing is changed."""
    directory = DataDirectory.open(DiskFiles(), tmp_path / "data", node_id=1)
    folder = tmp_path / "data" / "orders-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(entry(2, 0, 0, 2))
    before = {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "data").rglob("*"))}
    (found,) = inspect.partitions(tmp_path / "data")
    assert len(list(inspect.segment(found.segments[0].path))) == 1
    assert {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "data").rglob("*"))} == before
    directory.abandon()


def test_partitions_and_segments_in_order(tmp_path: Path) -> None:
    for name in (
        "b-10",
        "b-2",
        "a.x-0",
        "b-3.0123456789abcdef0123456789abcdef-delete",
        "b-4-future",
        "b",
        "none-0",
        "c-01",
    ):
        (tmp_path / name).mkdir()
        if name != "none-0":
            (tmp_path / name / "00000000000000000000.log").write_bytes(b"12345")
    (tmp_path / "b-2" / "00000000000000000007.log").write_bytes(b"")
    for name in ("00000000000000000009.log.deleted", "00000000000000000009.log.cleaned", "7.log"):
        (tmp_path / "b-2" / name).write_bytes(b"")
    (tmp_path / "d-0").write_bytes(b"a file")
    found = inspect.partitions(tmp_path)
    assert [(one.topic, one.partition) for one in found] == [("a.x", 0), ("b", 2), ("b", 10)]
    assert [(one.base_offset, one.size_bytes) for one in found[1].segments] == [(0, 5), (7, 0)]
    assert found[1].path == str(tmp_path / "b-2")


def test_empty_data_directory_is_accepted_and_other_folders_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no data directory"):
        inspect.partitions(tmp_path)
    with pytest.raises(StorageError, match="No such file"):
        inspect.partitions(tmp_path / "missing")
    (tmp_path / "meta.properties").write_text("version=1\n")
    assert inspect.partitions(tmp_path) == []
    with pytest.raises(StorageError, match="No such file"):
        list(inspect.segment(tmp_path / "missing.log"))


def test_file_that_grows_is_read_to_its_first_size(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    one = entry(2, 0, 0, 1)
    path.write_bytes(one)
    with FileSource(path) as source:
        with path.open("ab") as file:
            file.write(one)
        assert len(list(inspect.entries(source))) == 1
    for left in (30, 16, 5, 0):  # a broker that cuts the file: a shorter file is damage, never a killed process
        path.write_bytes(one * 2)
        with FileSource(path) as source:
            os.truncate(path, len(one) + left)
            found = list(inspect.entries(source))
            assert found[1:] == [Damage(len(one), len(one), "the file became shorter", True)]


# --- the files beside a segment


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=5))
def test_index_entries_equal_written_ones(pairs: list[tuple[int, int]]) -> None:
    offsets, times = OffsetIndex(), TimeIndex()
    for one, other in pairs:
        offsets.append(one, other)
        times.maybe_append(one, other)
    written = offsets.unsaved()
    size = OFFSET_ENTRY_BYTES
    read = [schemas.OFFSET_ENTRY.parse(written[at : at + size]) for at in range(0, len(written), size)]
    assert [(one.relative_offset, one.position) for one in read if one] == pairs
    written = times.unsaved()
    size = TIME_ENTRY_BYTES
    read = [schemas.TIME_ENTRY.parse(written[at : at + size]) for at in range(0, len(written), size)]
    assert [(one.timestamp, one.relative_offset) for one in read if one] == list(
        zip(times.timestamps, times.offsets, strict=True)
    )
    assert b"".join(schemas.TIME_ENTRY.build(one) for one in read) == written


def test_golden_snapshot_and_transaction_index() -> None:
    """Of Apache Kafka 2.8.2: a snapshot without producers, and with one; the index of an aborted transaction."""
    logs = GOLDEN / "logs"
    checked = 0
    for path in sorted(logs.rglob("*.snapshot")):
        data = path.read_bytes()
        parsed = schemas.PRODUCER_SNAPSHOT.parse(data)
        assert parsed is not None and parsed.version == 1 and parsed.crc == crc32c(data[6:])
        assert len(data) == 10 + 46 * len(parsed.entries)
        assert schemas.PRODUCER_SNAPSHOT.build(parsed) == data
        checked += len(parsed.entries)
    assert checked
    for path in sorted(logs.rglob("*.txnindex")):
        data = path.read_bytes()
        size = txn_index.ENTRY_BYTES
        assert data and len(data) % size == 0
        for at in range(0, len(data), size):
            parsed = schemas.ABORTED_TRANSACTION.parse(data[at : at + size])
            assert parsed is not None and parsed.version == 0
            assert 0 <= parsed.first_offset < parsed.last_offset < parsed.last_stable_offset + 1
            assert struct.pack(">hqqqq", *(parsed[name] for name in parsed if name != "_io")) == data[at : at + size]

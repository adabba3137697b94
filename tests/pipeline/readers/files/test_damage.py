"""Damage in segment files by onCorrupt: reported exactly, skipped alone, or returned as a row."""

from __future__ import annotations

import logging
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import OffsetRange, ReadError
from ottla.pipeline.readers.columns import FIELDS
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla_testing.each import each
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

NOW = 1_700_000_000_000
# Few headers and small values, so that flips hit relevant fields.
COUNTS = (3, 1, 4)


def small(path: Path, *, rolls: tuple[int, ...] = (8,), interval_bytes: int | None = 120) -> Folder:
    """Entries of all formats with small records; `records` and `magics` describe them."""
    folder = Folder(path, [0], [[]])
    path.mkdir(parents=True)
    offset = 0
    kinds = [(2, 0), (2, 3), (1, 0), (0, 0), (1, 1), (0, 2), (2, 4), (2, 0)]
    for number, (magic, codec) in enumerate(kinds * 2):
        if number in rolls:
            folder.bases.append(offset)
            folder.entries.append([])
        count = COUNTS[number % 3]
        made = [
            Record(offset + n, NOW + n if magic else -1, b"k%d" % n, b"value %d" % (offset + n)) for n in range(count)
        ]
        folder.entries[-1] += split(made, magic, codec)
        folder.records += made
        folder.magics += [magic] * count
        offset += count
    write(folder, interval_bytes)
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return small(tmp_path_factory.mktemp("sound") / "orders-3")


def copied(sound: Folder, path: Path) -> Folder:
    shutil.copytree(sound.path, path / "orders-3")
    return Folder(path / "orders-3", sound.bases, sound.entries, sound.records, sound.magics)


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def value_of(position: int, header: Any) -> int:
    """Returns the position of a byte after the header that the CRC covers."""
    return position + header.size_bytes - 2


@pytest.mark.parametrize("window_bytes", [61, 1 << 20])
def test_damage_flipped_bit_in_each_entry_by_policy(
    sound: Folder, tmp_path: Path, window_bytes: int, stride: int
) -> None:
    placed = sound.placed()
    for number in range(random.randrange(stride), len(placed), stride):
        segment, position, header = placed[number]
        folder = copied(sound, tmp_path / str(number))
        flip(folder.log(segment), 8 * value_of(position, header) + 3)
        first = placed[number - 1][2].next_offset if number else 0
        inside = range(first, header.last_offset + 1)
        with pytest.raises(ReadError) as failed:
            read(folder.path, wanted(), window_bytes=window_bytes)
        assert f"{folder.log(segment)} at byte {position}, offset {header.base_offset}: " in str(failed.value)
        left = as_records(read(folder.path, wanted(on_corrupt="skip"), window_bytes=window_bytes))
        assert left == [record for record in sound.records if record.offset not in inside]
        shown = read(folder.path, wanted(*FIELDS, on_corrupt="emit"), window_bytes=window_bytes)
        assert [row["offset"] for row in shown if row["crcOk"]] == [record.offset for record in left]
        bad = [row for row in shown if not row["crcOk"]]
        assert [row["offset"] for row in shown] == sorted(row["offset"] for row in shown)
        assert {row["file"] for row in bad} == {str(folder.log(segment))} and {row["magic"] for row in bad} == {
            header.magic
        }
        if len(bad) == 1 and bad[0]["key"] is None:
            raw = folder.log(segment).read_bytes()[position : position + header.size_bytes]
            assert (bad[0]["value"], bad[0]["offset"]) == (raw, header.base_offset)
        else:
            assert [row["offset"] for row in bad] == list(inside)


def test_damage_skip_logs_one_line(sound: Folder, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = copied(sound, tmp_path)
    for number in (1, 4):
        segment, position, header = sound.placed()[number]
        flip(folder.log(segment), 8 * value_of(position, header))
    with caplog.at_level(logging.WARNING):
        read(folder.path, wanted(on_corrupt="skip"))
    (line,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(
        rf"damaged entries skipped partition=orders-3 count=2 first={folder.log(0)} at byte \d+, offset 3: .*", line
    )


@each("policy", ["fail", "skip", "emit"])
def test_batch_that_a_flipped_bit_makes_a_marker_is_damaged(
    policy: str, sound: Folder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Markers are left out, and their CRC is checked first: otherwise the records would be lost silently."""
    folder = copied(sound, tmp_path_factory.mktemp("flip"))
    segment, position, header = next(entry for entry in sound.placed() if entry[2].magic == 2)
    flip(folder.log(segment), 8 * (position + 22) + 5)  # the control bit of the attributes
    chosen = wanted("offset", "key", "value", "crcOk", on_corrupt=policy)
    if policy == "fail":
        with pytest.raises(ReadError, match="does not match its CRC"):
            read(folder.path, chosen, 0, sound.end)
        return
    found = read(folder.path, chosen, 0, sound.end)
    lost = range(header.base_offset, header.next_offset)
    assert not [row for row in found if row["crcOk"] and row["offset"] in lost]
    assert any(not row["crcOk"] for row in found) == (policy == "emit")


@given(data=st.data())
def test_damage_flip_loses_only_the_hit_entry(
    data: st.DataObject, sound: Folder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After a damaged size, entries are found again by the index; those between two index entries are lost."""
    folder = copied(sound, tmp_path_factory.mktemp("flip"))
    number = data.draw(st.integers(0, 1), "segment")
    size = folder.log(number).stat().st_size
    place = data.draw(st.integers(0, size - 1), "byte")
    flip(folder.log(number), 8 * place + data.draw(st.integers(0, 7), "bit"))
    policy = data.draw(st.sampled_from(["fail", "skip", "emit"]), "onCorrupt")
    options = {
        "at_least": data.draw(st.sampled_from([None, 6])),
        "part_bytes": data.draw(st.sampled_from([200, 1 << 20])),
        "window_bytes": data.draw(st.sampled_from([61, 400, 1 << 20])),
    }
    hit = next(
        entry for entry in sound.placed() if entry[0] == number and entry[1] <= place < entry[1] + entry[2].size_bytes
    )
    # Not covered by the CRC: offset and leader epoch. A wrong size or format hides the following entries.
    within = place - hit[1]
    is_uncovered = within < 8 or (hit[2].magic == 2 and 12 <= within < 16)
    hides = 8 <= within < 12 or within == 16
    try:
        end = sound.end
        found = read(folder.path, wanted("offset", "key", "value", "crcOk", on_corrupt=policy), 0, end, **options)
    except ReadError as error:
        assert policy == "fail" and str(folder.log(number)) in str(error)
        return
    assert policy != "fail" or is_uncovered
    given_ = {row["offset"]: (row["key"], row["value"]) for row in found if row["crcOk"]}
    expected = {record.offset: (record.key, record.value) for record in sound.records}
    if is_uncovered:
        # A wrong offset shows only by contradiction: it may hide a neighbour.
        numbers = [entry[:2] for entry in sound.placed()]
        at = numbers.index(hit[:2])
        near = [h for _, _, h in sound.placed()[max(at - 1, 0) : at + 2]]
        first = sound.placed()[at - 2][2].next_offset if at > 1 else 0
        others = {o: value for o, value in expected.items() if not first <= o <= near[-1].last_offset}
        assert others.items() <= given_.items()
        return
    assert given_.items() <= expected.items()
    index, _ = indexed(sound.bases[number], sound.entries[number], 120)
    known = sorted(int.from_bytes(index[at + 4 : at + 8], "big") for at in range(0, len(index), 8))
    again = hit[1] + hit[2].size_bytes
    if hides:
        data_ = folder.log(number).read_bytes()
        astray = hit[1] + 12 + int.from_bytes(data_[hit[1] + 8 : hit[1] + 12], "big", signed=True)
        again = next((position for position in known if position > hit[1]), size)
        again = max(again, astray) if any(p == astray for s, p, _ in sound.placed() if s == number) else again
    previous = -1
    for segment, position, header in sound.placed():
        if segment != number or position < hit[1] or position >= again:
            lost = [o for o in range(previous + 1, header.next_offset) if o not in given_]
            assert not lost, (segment, position, header)
        previous = header.last_offset


@pytest.mark.parametrize("policy", ["fail", "skip", "emit"])
def test_damage_wrong_size_resumes_at_next_index_entry(sound: Folder, tmp_path: Path, policy: str) -> None:
    folder = copied(sound, tmp_path)
    change(folder.log(0), 8, b"\xff\xff\xff\xff")
    index, _ = indexed(0, sound.entries[0], 120)
    again = int.from_bytes(index[4:8], "big")
    after = next(header for segment, position, header in sound.placed() if not segment and position == again)
    if policy == "fail":
        with pytest.raises(ReadError, match=r"log at byte 0, offset 0: an entry of 11 bytes"):
            read(folder.path, wanted())
        return
    found = read(folder.path, wanted("offset", "value", "crcOk", on_corrupt=policy), 0, sound.end)
    sound_rows = [row["offset"] for row in found if row["crcOk"]]
    assert sound_rows[-1] == sound.end - 1 and 0 < sound_rows[0] <= after.base_offset
    raw = [row for row in found if not row["crcOk"]]
    assert [row["value"] for row in raw] == ([folder.log(0).read_bytes()[:again]] if policy == "emit" else [])


@pytest.mark.parametrize("policy", ["fail", "skip", "emit"])
@pytest.mark.parametrize("window_bytes", [61, 1 << 20])
def test_damage_size_that_leads_into_an_entry_hides_no_indexed_one(
    sound: Folder, tmp_path: Path, policy: str, window_bytes: int
) -> None:
    """The size 159 of offset 7 leads to bytes of offset 11 whose own size leads to the start of offset 12."""
    folder = copied(sound, tmp_path)
    flip(folder.log(0), 8 * 341 + 7)
    columns = wanted("offset", "value", "crcOk", on_corrupt=policy)
    if policy == "fail":
        with pytest.raises(ReadError, match=r"log at byte 330, offset 7: it does not match its CRC"):
            read(folder.path, columns, window_bytes=window_bytes)
        return
    found = read(folder.path, columns, 0, sound.end, window_bytes=window_bytes)
    assert [row["offset"] for row in found if row["crcOk"]] == [*range(7), *range(11, sound.end)]
    raw = [row["value"] for row in found if not row["crcOk"]]
    assert raw == ([folder.log(0).read_bytes()[330:479]] if policy == "emit" else [])


def test_damage_without_index_loses_rest_of_segment_only(sound: Folder, tmp_path: Path) -> None:
    folder = copied(sound, tmp_path)
    for path in folder.path.glob("*.index"):
        path.unlink()
    change(folder.log(0), 8, b"\xff\xff\xff\xff")
    found = read(folder.path, wanted(on_corrupt="skip"), 0, sound.end)
    assert [row["offset"] for row in found] == [r.offset for r in sound.records if r.offset >= sound.bases[1]]


def test_damage_truncation_is_end_of_last_segment_only(sound: Folder, tmp_path: Path) -> None:
    for cut in (1, 30, 70):
        for number in (0, 1):
            folder = copied(sound, tmp_path / f"{number}-{cut}")
            data = folder.log(number).read_bytes()
            folder.log(number).write_bytes(data[:-cut])
            for path in folder.path.glob("*.index"):
                path.unlink()
            kept = [(s, p, h) for s, p, h in sound.placed() if s != number or p + h.size_bytes <= len(data) - cut]
            if number == 1:
                backend = FileBackend([str(folder.path)])
                end = backend.latest([KEY], committed=False)[KEY]
                assert end == kept[-1][2].next_offset
                assert as_records(read(folder.path, wanted())) == [r for r in sound.records if r.offset < end]
                continue
            with pytest.raises(
                ReadError, match=r"0.log at byte \d+, offset \d+: the file ends \d+ bytes after the start of an entry"
            ):
                read(folder.path, wanted())
            found = read(folder.path, wanted(on_corrupt="skip"))
            last = [header for segment, _, header in kept if segment == 0][-1].last_offset
            assert as_records(found) == [r for r in sound.records if not last < r.offset < sound.bases[1]]


def test_trailing_zeros_are_not_part_of_log(sound: Folder, tmp_path: Path) -> None:
    folder = copied(sound, tmp_path)
    with folder.log().open("ab") as file:
        file.write(bytes(100_000))
    assert as_records(read(folder.path, wanted())) == sound.records


def test_damage_after_last_entry_not_truncated_not_zeros(sound: Folder, tmp_path: Path) -> None:
    folder = copied(sound, tmp_path)
    with folder.log().open("ab") as file:
        file.write(b"\x07" * 100)
    with pytest.raises(ReadError, match="an entry of"):
        read(folder.path, wanted())
    assert as_records(read(folder.path, wanted(on_corrupt="skip"))) == sound.records


def test_damage_reported_once_by_its_piece(sound: Folder, tmp_path: Path) -> None:
    folder = copied(sound, tmp_path)
    segment, position, header = sound.placed()[5]
    flip(folder.log(segment), 8 * value_of(position, header))
    backend = FileBackend([str(folder.path)], part_bytes=1)
    for policy in ("skip", "emit"):
        pieces = backend.pieces([OffsetRange(*KEY, 0, sound.end)], wanted(*FIELDS, on_corrupt=policy))
        assert len(pieces) > 5
        offsets = [row["offset"] for row in rows(pieces)]
        assert len(set(offsets)) == len(offsets)


@pytest.mark.parametrize("policy", ["skip", "emit"])
def test_damage_last_offset_delta_not_trusted(tmp_path: Path, policy: str) -> None:
    """The CRC covers the last offset delta: one that is too high must not hide later entries, one too low not its own
    records."""
    for delta in (0, 2**20):
        folder = tmp_path / str(delta) / "orders-3"
        folder.mkdir(parents=True)
        values = [[Record(base + n, NOW, None, b"v%d" % (base + n)) for n in range(10)] for base in (0, 10, 20)]
        data = [bytearray(batch.build(records, base_offset=records[0].offset)) for records in values]
        data[1][23:27] = delta.to_bytes(4, "big")
        (folder / f"{0:020d}.log").write_bytes(b"".join(data))
        for end in (20, 25, 30):
            for start in (0, 12, 15):
                found = read(folder, wanted("offset", "crcOk", on_corrupt=policy), start, end)
                good = [row["offset"] for row in found if row["crcOk"]]
                assert good == [o for o in (*range(10), *range(20, 30)) if start <= o < end], (delta, start, end)
                with pytest.raises(ReadError, match="byte"):
                    read(folder, wanted(), start, end)


def test_damage_offsets_not_ascending(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    data = [bytes(batch.build([Record(at, NOW, None, b"%d" % at)], base_offset=at)) for at in (0, 1, 900, 2, 3, 1, 4)]
    (folder / f"{0:020d}.log").write_bytes(b"".join(data))
    with pytest.raises(ReadError, match="it has the offsets 900 to 900 before 2"):
        read(folder, wanted(), 0, 5)
    found = read(folder, wanted("offset", on_corrupt="skip"), 0, 5)
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 4]


def test_damage_single_message_in_run_found(tmp_path: Path) -> None:
    folder = written(tmp_path / "orders-3", [(1, 0, 3000)])
    segment, position, header = folder.placed()[1234]
    flip(folder.log(segment), 8 * (position + 20))
    with pytest.raises(ReadError, match=f"byte {position}, offset {header.base_offset}: it does not match its CRC"):
        read(folder.path, wanted("offset"))
    found = read(folder.path, wanted("offset", on_corrupt="skip"))
    assert [row["offset"] for row in found] == [r.offset for r in folder.records if r.offset != header.base_offset]


def test_damage_invalid_records_with_valid_crc(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    good = [bytes(batch.build([Record(at, NOW, None, b"%d" % at)], base_offset=at)) for at in range(6)]
    bad = bytearray(batch.build([Record(6, NOW, None, b"x")], base_offset=6))
    bad[61] = 9  # the length of the record
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    last = bytes(batch.build([Record(7, NOW, None, b"7")], base_offset=7))
    (folder / f"{0:020d}.log").write_bytes(b"".join([*good, bytes(bad), last]))
    with pytest.raises(ReadError, match="offset 6"):
        read(folder, wanted(), 0, 8)
    assert [row["offset"] for row in read(folder, wanted(on_corrupt="skip"), 0, 8)] == [0, 1, 2, 3, 4, 5, 7]
    shown = read(folder, wanted("offset", "value", "crcOk", on_corrupt="emit"), 0, 8)
    assert shown[6] == {"offset": 6, "value": bytes(bad), "crcOk": False}


def test_damage_batch_above_max_decompressed_size(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    data = batch.build([Record(0, NOW, None, bytes(1 << 20))], base_offset=0, codec=4)
    (folder / f"{0:020d}.log").write_bytes(data)
    with pytest.raises(ReadError, match="offset 0"):
        read(folder, wanted(max_batch_bytes=1000), 0, 1)
    assert len(read(folder, wanted(), 0, 1)) == 1


def test_sample_covers_all_formats(sound: Folder) -> None:
    """Guards the coverage of the tests above."""
    kinds = {(header.magic, header.codec) for _, _, header in sound.placed()}
    assert {magic for magic, _ in kinds} == {0, 1, 2} and {codec for _, codec in kinds} == {0, 1, 2, 3, 4}

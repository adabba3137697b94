"""Counts of pieces: equal to the plain decoder's, for all formats, windows and divisions; and damage of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.pipeline.jobs.census import tasks
from ottla.pipeline.jobs.census.facts import DAMAGED_MAX, Facts, Sizes, bin_of, bounds_of, merge
from ottla.pipeline.jobs.census.plan import SegmentPiece
from ottla.pipeline.jobs.census.tasks import count
from ottla.pipeline.readers.columnar import batches
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.census_samples import a_log, piece, plain_facts, written
from ottla_testing.pipeline.columnar_samples import FORMATS, NOW, entries, some_records

in_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_count_one_format(magic: int, codec: int, tmp_path: Path) -> None:
    records = some_records(90, 7, first=2**40, headers=magic == 2)
    made = [entries(records[at : at + 30], magic, codec) for at in range(0, 90, 30)]
    path = written(tmp_path / "x.log", made)
    assert count(piece(path)) == plain_facts(b"".join(made))


@in_folder
@given(seed=st.integers(0, 1000), window=st.sampled_from([1, 300, 5000, 8 << 20]), most=st.sampled_from([2, 7, 10**6]))
def test_count_mixed_log(tmp_path: Path, seed: int, window: int, most: int) -> None:
    made = a_log(seed)
    path = written(tmp_path / "x.log", made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "WINDOW_BYTES", window)
        patch.setattr(batches, "MAX_ROWS", most)
        assert count(piece(path)) == plain_facts(b"".join(made))


@in_folder
@given(seed=st.integers(0, 1000), chance=st.randoms(use_true_random=False))
def test_count_independent_of_split(tmp_path: Path, seed: int, chance: random.Random) -> None:
    made = a_log(seed, 20)
    path = written(tmp_path / "x.log", made)
    ends = [sum(map(len, made[:at])) for at in range(1, len(made))]
    bounds = [0, *sorted(chance.sample(ends, chance.randrange(len(ends)))), path.stat().st_size]
    parts = [count(piece(path, start, end)) for start, end in pairwise(bounds)]
    chance.shuffle(parts)
    at = chance.randrange(len(parts) + 1)
    whole = plain_facts(b"".join(made))
    assert merge(parts) == whole
    assert merge([merge(parts[:at]), merge(parts[at:])]) == whole


def test_merge_leaves_parts_unchanged() -> None:
    part = Facts(producers={1}, keys=Sizes(1, 0, 3, 3, 3, {3: 1}))
    part.amount(2, 0).records = 5
    merge([part, part])
    assert (part.producers, part.keys.bins, part.records) == ({1}, {3: 1}, 5)


# --- sizes


@given(st.integers(0, 2**31 - 1))
def test_bin_bounds_contain_size(size: int) -> None:
    low, high = bounds_of(bin_of(size))
    assert low <= size <= high
    assert high - low <= size / 8
    assert bin_of(high + 1) == bin_of(size) + 1


sizes = st.lists(st.one_of(st.integers(-1, 40), st.integers(4000, 5000), st.integers(0, 2**31 - 1)), max_size=60)


@given(sizes)
def test_sizes_of_matches_list(found: list[int]) -> None:
    found_sizes = tasks.sizes_of(tasks.np.array(found, tasks.np.int64))
    there = sorted(size for size in found if size >= 0)
    assert (found_sizes.count, found_sizes.nulls, found_sizes.total) == (len(there), found.count(-1), sum(there))
    assert (found_sizes.least, found_sizes.most) == ((there[0], there[-1]) if there else (None, None))
    assert sum(number for *_, number in found_sizes.octaves()) == len(there)
    for low, high, number in found_sizes.octaves():
        assert number == sum(low <= size <= high for size in there)
    for percent in (0, 50, 99, 100):
        at = found_sizes.percentile(percent)
        if not there:
            assert at is None
        else:
            exact = there[max(-int(-percent * len(there) // 100), 1) - 1]
            assert at is not None and exact <= at <= exact * 9 / 8


# --- damage


def counted(path: Path, **options: bool) -> Facts:
    return count(piece(path, **options))


def test_count_wrong_crc_loses_its_entry(tmp_path: Path) -> None:
    made = a_log(3, 10)
    bad = bytearray(made[4])
    bad[-1] ^= 1
    path = written(tmp_path / "x.log", [*made[:4], bytes(bad), *made[5:]])
    found = counted(path)
    (damaged,) = found.damage
    assert (damaged.file, damaged.position, damaged.bytes) == (str(path), sum(map(len, made[:4])), len(made[4]))
    assert (damaged.kind, found.damaged, found.damaged_bytes) == ("damaged", 1, len(made[4]))
    found.damage, found.damaged, found.damaged_bytes = [], 0, 0
    assert found == plain_facts(b"".join(made[:4] + made[5:]))


@pytest.mark.parametrize(
    ("tail", "what"),
    [
        (b"\x00\x00\x07", "3 bytes where an entry begins"),
        (b"\x00\x00\x00", "3 bytes of zeros"),
        (bytes(200), "200 bytes of zeros"),
        (entries([Record(900, NOW, None, b"v" * 500)], 2, 0)[:300], "an entry of 570 bytes where 300 are left"),
        (b"\xff" * 100, ""),
    ],
)
def test_count_torn_end(tmp_path: Path, tail: bytes, what: str) -> None:
    made = a_log(1, 5)
    path = written(tmp_path / "x.log", [*made, tail])
    for is_newest, kind in ((True, "open end"), (False, "cut")):
        found = counted(path, is_newest=is_newest)
        (damaged,) = found.damage
        assert (damaged.position, damaged.bytes) == (sum(map(len, made)), len(tail))
        assert damaged.kind == (kind if what else "damaged")
        assert what in damaged.what
        assert found.records == plain_facts(b"".join(made)).records


def test_count_unknown_codec(tmp_path: Path) -> None:
    bad = bytearray(entries([Record(0, NOW, b"k", b"v")], 2, 0))
    batch.reseal(bad, attributes=6, max_timestamp=NOW)
    path = written(tmp_path / "x.log", [bytes(bad), *a_log(0, 3)])
    found = counted(path)
    assert (found.damaged, found.damaged_bytes) == (1, len(bad))
    assert found.records == plain_facts(b"".join(a_log(0, 3))).records


def test_count_entry_above_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "WINDOW_BYTES", 100)
    monkeypatch.setattr(tasks.inspect, "ENTRY_BYTES_MAX", 1000)
    large = entries([Record(0, NOW, b"k", bytes(2000))], 2, 0)
    path = written(tmp_path / "x.log", [large, *a_log(0, 1)])
    found = counted(path)
    assert found.damage[0].what == f"an entry of {len(large)} bytes is not opened"
    assert found.damaged == 1


def test_count_unrecognisable_bytes_lost_to_end_of_piece(tmp_path: Path) -> None:
    made = a_log(2, 6)
    bad = made[2][:16] + b"\x09" + made[2][17:]
    path = written(tmp_path / "x.log", [*made[:2], bad, *made[3:]])
    at = sum(map(len, made[:2]))
    (damaged,) = counted(path).damage
    assert (damaged.position, damaged.bytes) == (at, path.stat().st_size - at)
    cut = at + len(bad)
    assert count(piece(path, 0, cut)).damaged_bytes == len(bad)
    assert count(piece(path, cut)).damaged == 0


def test_count_deleted_or_unreadable_file(tmp_path: Path) -> None:
    gone = count(SegmentPiece("t", 0, str(tmp_path / "gone.log"), 0, 100))
    assert (gone.gone, gone.damaged) == (1, 0)
    folder = count(SegmentPiece("t", 0, str(tmp_path), 0, 100))
    assert (folder.gone, folder.damaged, folder.damaged_bytes) == (0, 1, 100)
    made = a_log(1, 5)
    path = written(tmp_path / "x.log", made)
    grown = piece(path)
    path.write_bytes(b"".join(made + a_log(1, 5)))
    assert count(grown) == plain_facts(b"".join(made))
    path.write_bytes(b"")
    assert [one.what for one in count(grown).damage] == ["the file was truncated"]


def test_count_keeps_first_places_of_damage(tmp_path: Path) -> None:
    bad = bytearray(entries([Record(0, NOW, b"k", b"v")], 2, 0))
    bad[-1] ^= 1
    path = written(tmp_path / "x.log", [bytes(bad)] * 1000)
    whole = counted(path)
    assert (whole.damaged, len(whole.damage)) == (1000, DAMAGED_MAX)
    half = 500 * len(bad)
    assert merge([count(piece(path, half)), count(piece(path, 0, half))]) == whole


@in_folder
@given(seed=st.integers(0, 100), chance=st.randoms(use_true_random=False))
def test_count_random_bytes_raise_nothing(
    tmp_path: Path, seed: int, chance: random.Random, scaled: Callable[[int], int]
) -> None:
    made = bytearray(b"".join(a_log(seed, 12)))
    for _ in range(scaled(3)):
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    path = written(tmp_path / "x.log", [bytes(made)])
    found = counted(path)
    assert found.bytes + found.damaged_bytes <= len(made) + found.damaged * (1 << 31)
    assert found.records <= 12 * 5

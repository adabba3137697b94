"""Splitting ranges for tasks: every offset once, with Spark's shares."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import OffsetRange
from ottla.pipeline.readers.wire.backend import split

sizes = st.one_of(st.integers(0, 20), st.integers(0, 10**12))
ranges = st.lists(st.tuples(st.integers(0, 2**40), sizes), max_size=12).map(
    lambda some: [OffsetRange("t", number, start, start + size) for number, (start, size) in enumerate(some)]
)


@given(ranges, st.one_of(st.none(), st.integers(1, 300)))
def test_split_covers_each_offset_once(some: list[OffsetRange], at_least: int | None) -> None:
    found = split(some, at_least)
    joined: dict[int, OffsetRange] = {}
    for part in found:
        assert part.size > 0
        before = joined.get(part.partition)
        assert before is None or before.end == part.start
        joined[part.partition] = part if before is None else before._replace(end=part.end)
    assert list(joined.values()) == [one for one in some if one.size]
    if at_least is None:
        assert len(found) == len(joined)


@given(ranges, st.integers(1, 300))
def test_split_parts_about_equal_and_enough(some: list[OffsetRange], at_least: int) -> None:
    found = split(some, at_least)
    filled = [one for one in some if one.size]
    for one in filled:
        parts = [part.size for part in found if part.partition == one.partition]
        assert max(parts) - min(parts) <= 1
    # Each share is rounded, so a range may have a part too few or too many; and no range has more parts than offsets.
    total = sum(one.size for one in filled)
    if total >= at_least * 4:
        assert len(found) >= min(at_least, total) - len(filled)
    assert len(found) <= at_least + len(filled) * 2


def parts(some: list[tuple[int, int, int]], at_least: int | None) -> list[tuple[int, int, int]]:
    found = split([OffsetRange("t", number, start, end) for number, start, end in some], at_least)
    return [(part.partition, part.start, part.end) for part in found]


def test_split_shares_by_size() -> None:
    assert parts([(0, 1, 5)], 3) == [(0, 1, 2), (0, 2, 3), (0, 3, 5)]
    assert parts([(0, 1, 5)], None) == [(0, 1, 5)]
    assert parts([(0, 1, 5), (1, 7, 7)], 1) == [(0, 1, 5)]
    assert parts([(0, 0, 1), (1, 0, 21)], 4) == [(0, 0, 1), (1, 0, 7), (1, 7, 14), (1, 14, 21)]
    assert parts([(0, 0, 10), (1, 0, 10)], 2) == [(0, 0, 10), (1, 0, 10)]
    # Small ranges keep their single part, without reducing the shares of large ones.
    assert parts([(0, 0, 20), (1, 0, 5), (2, 0, 5)], 6)[-2:] == [(1, 0, 5), (2, 0, 5)]
    assert parts([(0, 0, 2)], 5) == [(0, 0, 1), (0, 1, 2)]

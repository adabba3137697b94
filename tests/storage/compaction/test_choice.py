"""The selection of the log to clean, and of the range: dirty ratio, lags, segments that cannot be cleaned yet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.batch import BatchHeader
from ottla.storage.compaction.compaction import Dirtiness, SegmentFacts, active_producers, dirtiness, most_dirty
from ottla.storage.producers.producer_state import remember

NOW = 1_000_000


def segments(*sizes: int, times: tuple[int, ...] = (), first_times: tuple[int, ...] = ()) -> list[SegmentFacts]:
    """Returns segments of ten offsets each; the last one is active."""
    times = times or (-1,) * len(sizes)
    first_times = first_times or times
    return [
        SegmentFacts(10 * n, size, 10 * n + 10, 5_000_000_000 * n, times[n], first_times[n])
        for n, size in enumerate(sizes)
    ]


def judged(found: list[SegmentFacts], cleaner_offset: int | None = None, **more: int) -> Dirtiness:
    settings = {"log_start_offset": 0, "last_stable_offset": found[-1].next_offset, "now_ms": NOW}
    return dirtiness(found, cleaner_offset=cleaner_offset, **(settings | more))


@pytest.mark.parametrize(
    ("cleaner_offset", "expected"),
    [
        # first dirty, end, clean bytes, cleanable bytes
        (None, (0, 30, 0, 60)),
        (0, (0, 30, 0, 60)),
        (10, (10, 30, 10, 50)),
        (15, (15, 30, 30, 50)),  # a partly clean segment counts on both sides
        (30, (30, 30, 60, 0)),
        (35, (35, 30, 100, 0)),
        (40, (40, 30, 100, 0)),
        (41, (0, 30, 0, 60)),  # above the log end: the checkpoint is void
    ],
)
def test_dirty_range_begins_where_the_last_pass_ended(cleaner_offset: int | None, expected: tuple[int, ...]):
    found = judged(segments(10, 20, 30, 40), cleaner_offset)
    assert found[:4] == expected
    assert found.ratio == pytest.approx(expected[3] / (expected[2] + expected[3]))


def test_checkpoint_below_the_log_start_is_ignored():
    assert judged(segments(10, 20, 30), 5, log_start_offset=12)[:4] == (12, 20, 30, 20)


def test_active_segment_is_never_cleaned():
    assert judged(segments(40))[:4] == (0, 0, 0, 0) and judged(segments(40)).ratio == 0
    assert judged(segments(10, 0)).end_offset == 10


@pytest.mark.parametrize(("stable", "end"), [(0, 0), (9, 0), (10, 10), (19, 10), (25, 20), (30, 20), (99, 20)])
def test_segments_above_the_last_stable_offset_are_not_cleaned(stable: int, end: int):
    found = judged(segments(10, 10, 10), last_stable_offset=stable)
    assert found.end_offset == end and found.cleanable_bytes == end


@pytest.mark.parametrize(("lag_ms", "end"), [(0, 30), (199, 30), (200, 30), (201, 20), (301, 10), (9000, 0)])
def test_segments_younger_than_min_compaction_lag_are_not_cleaned(lag_ms: int, end: int):
    found = segments(1, 1, 1, 1, times=(NOW - 400, NOW - 300, NOW - 200, NOW))
    assert judged(found, min_lag_ms=lag_ms).end_offset == end


def test_segments_after_one_too_young_are_not_cleaned():
    found = segments(1, 1, 1, 1, times=(NOW - 400, NOW - 100, NOW - 400, NOW))
    assert judged(found, min_lag_ms=200).end_offset == 10
    # A clean segment does not count.
    assert judged(found, 20, min_lag_ms=200).end_offset == 30


def test_age_without_timestamps_is_that_of_the_file():
    assert judged(segments(1, 1, 1, 1), min_lag_ms=995_000).end_offset == 20  # changed at 0, 5 and 10 s
    assert judged(segments(1, 1, 1, 1), min_lag_ms=990_000).end_offset == 30


@pytest.mark.parametrize(("lag_ms", "overdue_ms"), [(399, 1), (400, 0), (0, 400), (-5, 400), (2**63 - 1, 0)])
def test_max_compaction_lag_counts_from_the_oldest_dirty_batch(lag_ms: int, overdue_ms: int):
    found = segments(1, 1, 1, 1, first_times=(NOW - 900, NOW - 300, NOW - 400, NOW - 999), times=(NOW,) * 4)
    assert judged(found, 10, max_lag_ms=lag_ms).overdue_ms == overdue_ms


def test_batches_without_timestamps_are_never_overdue():
    assert judged(segments(1, 1, 1, first_times=(-1, 0, -1), times=(-1,) * 3), max_lag_ms=1).overdue_ms == 0
    assert judged(segments(1, 1), 10, max_lag_ms=1).overdue_ms == 0


def test_log_is_due_above_the_dirty_ratio_or_when_overdue():
    def made(clean: int, dirty: int, overdue_ms: int = 0) -> Dirtiness:
        return Dirtiness(0, 0, clean, dirty, overdue_ms)

    assert made(50, 51).is_due(0.5) and not made(50, 50).is_due(0.5)
    assert made(99, 1, 1).is_due(0.5) and not made(99, 0, 1).is_due(0.5) and not made(0, 0).is_due(0)
    logs = {"a": (made(40, 60), 0.5), "b": (made(10, 90), 0.95), "c": (made(30, 70), 0.5), "d": (made(99, 1, 9), 0.5)}
    assert most_dirty(logs) == "c"
    del logs["c"], logs["a"]
    assert most_dirty(logs) == "d"
    del logs["d"]
    assert most_dirty(logs) is None and most_dirty({}) is None


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(0, 70)),
    st.integers(0, 60),
    st.integers(0, 60),
    st.lists(st.integers(-1, 9), min_size=6, max_size=6),
    st.integers(0, 12),
)
def test_pass_never_includes_excluded_segments(
    sizes: list[int], cleaner: int | None, start: int, stable: int, times: list[int], lag_ms: int
):
    found = segments(*sizes, times=tuple(times[: len(sizes)]))
    start = min(start, found[-1].next_offset)
    judged_now = dirtiness(
        found, cleaner_offset=cleaner, log_start_offset=start, last_stable_offset=stable, now_ms=10, min_lag_ms=lag_ms
    )
    end = judged_now.end_offset
    assert end in [segment.base_offset for segment in found] and end <= found[-1].base_offset
    assert start <= judged_now.first_dirty_offset <= found[-1].next_offset
    if judged_now.cleanable_bytes:
        assert judged_now.first_dirty_offset < end <= stable
        passed = [s for s in found if s.next_offset > judged_now.first_dirty_offset and s.base_offset < end]
        assert judged_now.cleanable_bytes == sum(segment.size_bytes for segment in passed)
        assert not lag_ms or all(segment.time_ms <= 10 - lag_ms for segment in passed)
    assert 0 <= judged_now.ratio <= 1


def test_active_producers_have_epoch_and_last_data_offset():
    header = BatchHeader(10, 60, 0, 2, 0, 0, 4, 1000, 1000, 7, 3, 0, 5)
    data = remember(None, header, 10)
    marked = remember(None, header._replace(attributes=0x30, last_offset_delta=0, base_sequence=-1), 20)
    both = remember(data, header._replace(attributes=0x30, last_offset_delta=0, base_sequence=-1), 20)
    assert active_producers({7: data, 8: marked, 9: both}) == {7: (3, 14), 8: (3, -1), 9: (3, 14)}

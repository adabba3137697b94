"""Positions of a stream: first, next, limited, held back, fixed; lost data; and the lag."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import DataLoss, OffsetRange, ReadError, Selection, TopicPartition
from ottla.pipeline.lag import lag
from ottla.pipeline.offsets import EARLIEST, LATEST, AtOffset, AtOffsets
from ottla.pipeline.streams import Limit, offsets_of, share
from ottla_testing.pipeline.stream_fakes import T0, T1, T2, WANTED, Clock, FakeBackend, read, rules, stream

ALL = Limit()
LOSSY = replace(WANTED, fail_on_loss=False)


# --- the first batch


def test_first_batch_from_earliest_to_latest() -> None:
    backend = FakeBackend({T0: (3, 9), T1: (0, 0)})
    one, _ = stream(backend)
    start = one.initial()
    assert start == {"t": {"0": 3, "1": 0}}
    end = one.latest(start, ALL)
    assert end == {"t": {"0": 9, "1": 0}}
    assert read(one.pieces(start, end)) == {T0: [3, 4, 5, 6, 7, 8]}
    assert one.latest(end, ALL) == end
    assert one.pieces(end, end) == []


def test_first_batch_excludes_records_appended_during_start() -> None:
    backend = FakeBackend({T0: (0, 5)})
    one, _ = stream(backend, rules(AtOffset(LATEST)))
    start = one.initial()
    backend.logs[T0] = (0, 8)
    assert one.latest(start, ALL) == start == {"t": {"0": 5}}
    assert one.latest(start, ALL) == {"t": {"0": 8}}


def test_query_restarted_in_first_batch_misses_no_records() -> None:
    backend = FakeBackend({T0: (0, 5)})
    one, _ = stream(backend, rules(AtOffset(LATEST)))
    planned = one.latest(one.initial(), ALL)
    backend.logs |= {T0: (0, 20), T1: (0, 2)}
    # Spark has only the end of the batch: it requests the start again, which is after that end by now.
    again, warned = stream(backend, rules(AtOffset(LATEST)))
    assert again.pieces(again.initial(), planned) == []
    end = again.latest(planned, ALL)
    assert read(again.pieces(planned, end)) == {T0: list(range(5, 20)), T1: [0, 1]}
    assert warned == []


def test_read_committed_batch_ends_at_last_stable_offset() -> None:
    backend = FakeBackend({T0: (0, 9)}, stable={T0: 4})
    one, _ = stream(backend, rules(wanted=replace(WANTED, committed=True)))
    assert one.latest(one.initial(), ALL) == {"t": {"0": 4}}
    backend.stable[T0] = 9
    assert one.latest({"t": {"0": 4}}, ALL) == {"t": {"0": 9}}


def test_position_of_another_source_refused() -> None:
    one, _ = stream(FakeBackend({T0: (0, 9)}))
    for position in ({"logOffset": 3}, {"t": {"zero": 3}}, {"t": [1]}):
        with pytest.raises(ReadError, match="position"):
            one.latest(position, ALL)  # type: ignore[arg-type]


def test_positions_have_stable_order() -> None:
    ten = TopicPartition("t", 10)
    one, _ = stream(FakeBackend({ten: (0, 1), T2: (0, 1), TopicPartition("a", 0): (0, 1)}))
    written = json.dumps(one.latest(one.initial(), ALL))
    assert written == '{"a": {"0": 1}, "t": {"2": 1, "10": 1}}'
    assert json.dumps(one.latest(json.loads(written), ALL)) == written


# --- limits


@given(
    sizes=st.dictionaries(st.integers(0, 30).map(lambda n: TopicPartition("t", n)), st.integers(1, 10**12), min_size=1),
    limit=st.integers(1, 10**13),
    turn=st.integers(0, 10**6),
)
def test_share_uses_whole_limit_and_serves_each_partition(sizes, limit, turn) -> None:
    shares = share(limit, sizes, turn)
    assert sum(shares.values()) == min(limit, sum(sizes.values()))
    assert all(0 < shares[key] <= sizes[key] for key in shares)
    assert len(shares) == min(limit, len(sizes))
    if sum(sizes.values()) > limit >= len(sizes):
        for key, size in sizes.items():
            exact = limit * size / sum(sizes.values())
            # Off by the rounding, and by the offsets that raise small shares to one.
            assert exact - len(sizes) - 1e-3 * exact <= shares[key] <= max(1.0, exact + 1) + 1e-3 * exact


def test_limit_shared_in_proportion_to_backlog() -> None:
    backend = FakeBackend({T0: (0, 1000), T1: (0, 100), T2: (0, 1)})
    one, _ = stream(backend, rules(limit=Limit(110)))
    end = one.latest(one.initial(), one.rules.limit)
    assert end == {"t": {"0": 99, "1": 10, "2": 1}}
    assert one.reported() == {"t": {"0": 1000, "1": 100, "2": 1}}
    assert one.latest(end, ALL) == one.reported()  # Trigger.Once: whatever the options


def test_limit_below_partition_count_rotates() -> None:
    backend = FakeBackend({T0: (0, 10**6), T1: (0, 10**6), T2: (0, 3)})
    one, _ = stream(backend)
    position, counts = one.initial(), []
    for _ in range(3):
        end = one.latest(position, Limit(2))
        counts.append(sum(end["t"].values()) - sum(position["t"].values()))
        position = end
    assert counts == [2, 2, 2]
    assert position == {"t": {"0": 2, "1": 2, "2": 2}}


def test_batch_held_back_until_minimum_or_delay() -> None:
    backend, clock = FakeBackend({T0: (0, 3)}), Clock()
    one, _ = stream(backend, rules(limit=Limit(20, 10), max_delay_ms=60_000), clock)
    limit = one.rules.limit
    first = one.latest(one.initial(), limit)
    assert first == {"t": {"0": 3}}  # the first batch is not held back
    backend.logs[T0] = (0, 12)
    assert one.latest(first, limit) == first
    assert one.reported() == {"t": {"0": 12}}
    backend.logs[T0] = (0, 13)
    second = one.latest(first, limit)
    assert second == {"t": {"0": 13}}
    backend.logs[T0] = (0, 14)
    clock.now_ms += 59_999
    assert one.latest(second, limit) == second
    assert one.latest(second, ALL) == {"t": {"0": 14}}
    clock.now_ms += 1
    assert one.latest(second, limit) == {"t": {"0": 14}}


def test_idle_time_is_no_trigger() -> None:
    backend, clock = FakeBackend({T0: (0, 3)}), Clock()
    one, _ = stream(backend, rules(limit=Limit(None, 10), max_delay_ms=60_000), clock)
    position = one.latest(one.initial(), one.rules.limit)
    clock.now_ms += 60_000
    assert one.latest(position, one.rules.limit) == position
    backend.logs[T0] = (0, 4)
    assert one.latest(position, one.rules.limit) == {"t": {"0": 4}}


# --- Trigger.AvailableNow


def test_available_now_reaches_fixed_ends_under_limit() -> None:
    backend = FakeBackend({T0: (0, 7), T1: (0, 2)})
    one, _ = stream(backend, rules(limit=Limit(4, 3)))
    one.fix_ends()
    position, seen = one.initial(), []
    backend.logs |= {T0: (0, 50), T2: (0, 50)}
    while (end := one.latest(position, one.rules.limit)) != position:
        seen.append(read(one.pieces(position, end)))
        position = end
    assert position == {"t": {"0": 7, "1": 2}}
    assert sum(len(offsets) for batch in seen for offsets in batch.values()) == 9
    assert len(seen) == 3


def test_available_now_from_latest_reads_nothing() -> None:
    backend = FakeBackend({T0: (0, 7)})
    one, warned = stream(backend, rules(AtOffset(LATEST)))
    one.fix_ends()
    backend.logs |= {T0: (0, 9), T1: (0, 1)}  # between fixing the ends and determining the start
    start = one.initial()
    assert one.latest(start, ALL) == start == {"t": {"0": 9, "1": 1}}
    assert one.latest(start, ALL) == start
    assert warned == []


def test_available_now_after_restart_includes_planned_batch() -> None:
    backend = FakeBackend({T0: (0, 7)})
    one, _ = stream(backend)
    planned = one.latest(one.initial(), ALL)
    backend.logs[T0] = (0, 9)
    again, _ = stream(backend)
    again.fix_ends()
    backend.logs[T0] = (0, 11)
    assert again.pieces(planned, planned) == []  # the first request of Spark after a restart
    assert read(again.pieces({"t": {"0": 2}}, planned)) == {T0: [2, 3, 4, 5, 6]}
    assert again.latest(planned, ALL) == {"t": {"0": 9}}
    assert again.latest({"t": {"0": 9}}, ALL) == {"t": {"0": 9}}


# --- partitions that come and go, and what is lost


def test_new_partition_read_from_earliest() -> None:
    backend = FakeBackend({T0: (0, 7)})
    one, warned = stream(backend, rules(AtOffset(LATEST)))
    start = one.latest(one.initial(), ALL)
    backend.logs |= {T0: (0, 8), T1: (0, 3), T2: (0, 0)}
    end = one.latest(start, ALL)
    assert end == {"t": {"0": 8, "1": 3, "2": 0}}
    assert read(one.pieces(start, end)) == {T0: [7], T1: [0, 1, 2]}
    assert warned == []


def test_new_partitions_share_the_limit() -> None:
    backend = FakeBackend({T0: (0, 10)})
    one, _ = stream(backend)
    start = one.latest(one.initial(), ALL)
    backend.logs |= {T0: (0, 20), T1: (0, 30)}
    end = one.latest(start, Limit(4))
    assert end == {"t": {"0": 11, "1": 3}}
    assert read(one.pieces(start, end)) == {T0: [10], T1: [0, 1, 2]}
    # A partition without a share this time is part of the position, with an empty range.
    backend.logs[T2] = (0, 5)
    known = one.latest(end, Limit(1))
    assert known["t"]["2"] in (0, 1)
    assert sum(known["t"].values()) == sum(end["t"].values()) + 1


@pytest.mark.parametrize("fails", [True, False])
def test_records_deleted_unread_are_data_loss(fails: bool) -> None:
    backend = FakeBackend({T0: (0, 4), T1: (0, 4)})
    one, warned = stream(backend, rules(wanted=replace(WANTED, fail_on_loss=fails)))
    start = one.latest(one.initial(), ALL)
    backend.logs[T0] = (6, 10)
    if fails:
        for _ in range(2):  # nothing is planned, so it is reported again
            with pytest.raises(DataLoss, match=r"t-0 begins at offset 6, after 4.*failOnDataLoss=false"):
                one.latest(start, ALL)
        with pytest.raises(DataLoss, match="t-0 begins at offset 6"):
            one.pieces(start, {"t": {"0": 10, "1": 4}})
        return
    end = one.latest(start, ALL)
    assert read(one.pieces(start, end)) == {T0: [6, 7, 8, 9]}
    assert warned == ["records may have been lost: t-0 begins at offset 6, after 4"]


def test_deleted_records_use_no_limit() -> None:
    backend = FakeBackend({T0: (0, 4)})
    one, _ = stream(backend, rules(wanted=LOSSY))
    start = one.latest(one.initial(), ALL)
    backend.logs[T0] = (100, 200)
    end = one.latest(start, Limit(7))
    assert end == {"t": {"0": 107}}
    assert read(one.pieces(start, end)) == {T0: list(range(100, 107))}


@pytest.mark.parametrize("fails", [True, False])
def test_new_partition_not_from_zero_is_data_loss(fails: bool) -> None:
    backend = FakeBackend({T0: (0, 4)})
    one, warned = stream(backend, rules(wanted=replace(WANTED, fail_on_loss=fails)))
    start = one.latest(one.initial(), ALL)
    backend.logs[T1] = (2, 5)
    if fails:
        with pytest.raises(DataLoss, match="t-1, which is new, begins at offset 2"):
            one.latest(start, ALL)
        return
    end = one.latest(start, ALL)
    assert read(one.pieces(start, end)) == {T1: [2, 3, 4]}
    assert len(warned) == 1


@pytest.mark.parametrize("fails", [True, False])
def test_deleted_partition_is_data_loss_and_restarts_from_earliest(fails: bool) -> None:
    backend = FakeBackend({T0: (0, 4), T1: (0, 4)})
    one, warned = stream(backend, rules(wanted=replace(WANTED, fail_on_loss=fails)))
    start = one.latest(one.initial(), ALL)
    del backend.logs[T1]
    if fails:
        with pytest.raises(DataLoss, match="t-1 no longer exists"):
            one.latest(start, ALL)
        with pytest.raises(DataLoss, match="t-1 no longer exists"):
            one.pieces({"t": {"0": 0, "1": 0}}, start)
        return
    end = one.latest(start, ALL)
    assert end == {"t": {"0": 4}}
    assert one.pieces(start, end) == []
    assert set(warned) == {"records may have been lost: t-1 no longer exists"}
    backend.logs[T1] = (0, 2)
    back = one.latest(end, ALL)
    assert read(one.pieces(end, back)) == {T1: [0, 1]}


@pytest.mark.parametrize("selection", [Selection(topics=("t",)), Selection(assigned=(T0,))])
def test_deleted_topic_is_data_loss_but_unreachable_backend_raises(selection) -> None:
    backend = FakeBackend({T0: (0, 4)})
    one, _ = stream(backend, rules(selection=selection, wanted=LOSSY))
    start = one.latest(one.initial(), ALL)
    backend.away = True
    with pytest.raises(ReadError, match="no broker responds"):
        one.latest(start, ALL)
    backend.away = False
    del backend.logs[T0]
    assert one.latest(start, ALL) == {}
    strict, _ = stream(backend, rules(selection=selection))
    with pytest.raises(ReadError):
        strict.latest(start, ALL)


@pytest.mark.parametrize("fails", [True, False])
def test_lowered_end_retried_then_data_loss(fails: bool) -> None:
    backend, clock = FakeBackend({T0: (0, 9), T1: (0, 1)}), Clock()
    these = rules(wanted=replace(WANTED, fail_on_loss=fails), patience_ms=30_000)
    one, warned = stream(backend, these, clock)
    position = one.latest(one.initial(), ALL)
    backend.logs |= {T0: (0, 6), T1: (0, 2)}
    position = one.latest(position, ALL)
    assert position == {"t": {"0": 9, "1": 2}}  # the other partitions continue
    clock.now_ms += 29_000
    assert one.latest(position, ALL) == position
    backend.logs[T0] = (0, 9)  # it was only late
    assert one.latest(position, ALL) == position
    backend.logs[T0] = (0, 6)
    assert one.latest(position, ALL) == position
    clock.now_ms += 30_000
    assert len(warned) == 2
    if fails:
        with pytest.raises(DataLoss, match="t-0 went back from offset 9 to 6"):
            one.latest(position, ALL)
        return
    back = one.latest(position, ALL)
    assert back == {"t": {"0": 6, "1": 2}}
    assert one.pieces(position, back) == []
    backend.logs[T0] = (0, 7)
    assert read(one.pieces(back, one.latest(back, ALL))) == {T0: [6]}


def test_available_now_waits_for_lowered_end() -> None:
    backend, clock = FakeBackend({T0: (0, 6)}), Clock()
    one, _ = stream(backend, None, clock)
    one.fix_ends()
    begun = clock.now_ms
    clock.at_pause = lambda: backend.logs.update({T0: (0, 9 if clock.now_ms > begun + 5_000 else 6)})
    assert one.latest({"t": {"0": 9}}, ALL) == {"t": {"0": 9}}
    assert clock.now_ms == begun + 6_000


def test_available_now_gives_up_after_patience() -> None:
    backend, clock = FakeBackend({T0: (0, 6)}), Clock()
    one, _ = stream(backend, rules(wanted=LOSSY, patience_ms=30_000), clock)
    one.fix_ends()
    begun = clock.now_ms
    assert one.latest({"t": {"0": 9}}, ALL) == {"t": {"0": 6}}
    assert clock.now_ms == begun + 30_000
    assert one.latest({"t": {"0": 6}}, ALL) == {"t": {"0": 6}}
    assert clock.now_ms == begun + 30_000


def test_planned_batch_after_restart_waits_for_its_end() -> None:
    backend, clock = FakeBackend({T0: (0, 6)}), Clock()
    one, _ = stream(backend, None, clock)
    clock.at_pause = lambda: backend.logs.update({T0: (0, 12)})
    assert read(one.pieces({"t": {"0": 4}}, {"t": {"0": 9}})) == {T0: [4, 5, 6, 7, 8]}
    backend.logs[T0] = (0, 6)
    clock.at_pause = lambda: None
    with pytest.raises(DataLoss, match="t-0 ends at offset 6, but the batch was planned up to 9"):
        one.pieces({"t": {"0": 4}}, {"t": {"0": 9}})
    lossy, _ = stream(backend, rules(wanted=LOSSY), clock)
    assert read(lossy.pieces({"t": {"0": 4}}, {"t": {"0": 9}})) == {T0: [4, 5]}


def test_explicit_start_offset_not_checked() -> None:
    backend = FakeBackend({T0: (0, 9), T1: (0, 9)})
    one, _ = stream(backend, rules(AtOffsets({T0: 7, T1: EARLIEST})))
    start = one.initial()
    assert start == {"t": {"0": 7, "1": 0}}
    assert offsets_of(one.latest(start, ALL)) == {T0: 9, T1: 9}
    ahead, _ = stream(backend, rules(AtOffsets({T0: 20, T1: LATEST})))
    start = ahead.initial()
    assert ahead.latest(start, ALL) == start == {"t": {"0": 20, "1": 9}}


def test_pieces_requested_once_with_options() -> None:
    backend = FakeBackend({T0: (0, 9)})
    one, _ = stream(backend, rules(min_pieces=4))
    one.pieces({"t": {"0": 2}}, {"t": {"0": 9}})
    assert backend.requested == [[OffsetRange("t", 0, 2, 9)]]
    small, _ = stream(backend, rules(max_records=4))
    small.pieces({"t": {"0": 2}}, {"t": {"0": 9}})
    assert len(backend.requested[1]) == 2
    assert sum(part.size for part in backend.requested[1]) == 7


# --- lag


def test_lag_counts_backlog_of_each_source() -> None:
    progress = {
        "sources": [
            {"latestOffset": '{"t": {"0": 9, "1": 4}}', "endOffset": '{"t": {"0": 5, "1": 4}}'},
            {"latestOffset": {"u": {"0": 3}, "t": {"0": 9}}, "endOffset": {"t": {"0": 8}}},
            {"latestOffset": None, "endOffset": '{"v": {"0": 5}}'},
            {"latestOffset": "17", "endOffset": "12"},
            {"latestOffset": "not json", "endOffset": "12"},
            {"latestOffset": '{"files": {"seen": "a"}}', "endOffset": None},
        ]
    }
    found = lag(progress)
    assert found == {T0: 4, T1: 0, TopicPartition("u", 0): 3}
    assert {str(key) for key in found} == {"t-0", "t-1", "u-0"}
    assert found.total == 7
    assert lag(json.dumps(progress)) == found
    assert found.metrics == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": str(7 / 3),
    }
    assert lag(None).metrics == {}
    assert lag(None) == {} and lag({}).total == 0

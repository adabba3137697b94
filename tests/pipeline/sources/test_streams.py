"""Positions of a stream: first, next, limited, held back, fixed, and what counts as lost; and how far behind it is."""

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


def test_begins_at_the_earliest_offsets_and_ends_at_the_latest() -> None:
    backend = FakeBackend({T0: (3, 9), T1: (0, 0)})
    one, _ = stream(backend)
    start = one.initial()
    assert start == {"t": {"0": 3, "1": 0}}
    end = one.latest(start, ALL)
    assert end == {"t": {"0": 9, "1": 0}}
    assert read(one.pieces(start, end)) == {T0: [3, 4, 5, 6, 7, 8]}
    assert one.latest(end, ALL) == end
    assert one.pieces(end, end) == []


def test_the_first_batch_has_nothing_of_what_came_while_its_start_was_determined() -> None:
    backend = FakeBackend({T0: (0, 5)})
    one, _ = stream(backend, rules(AtOffset(LATEST)))
    start = one.initial()
    backend.logs[T0] = (0, 8)
    assert one.latest(start, ALL) == start == {"t": {"0": 5}}
    assert one.latest(start, ALL) == {"t": {"0": 8}}


def test_a_query_that_died_in_its_first_batch_misses_nothing_of_what_was_new_then() -> None:
    backend = FakeBackend({T0: (0, 5)})
    one, _ = stream(backend, rules(AtOffset(LATEST)))
    planned = one.latest(one.initial(), ALL)
    backend.logs |= {T0: (0, 20), T1: (0, 2)}
    # Spark has the end of the batch only: it asks anew for the start, which is behind that end by now.
    again, warned = stream(backend, rules(AtOffset(LATEST)))
    assert again.pieces(again.initial(), planned) == []
    end = again.latest(planned, ALL)
    assert read(again.pieces(planned, end)) == {T0: list(range(5, 20)), T1: [0, 1]}
    assert warned == []


def test_ends_at_the_last_stable_offset_where_only_committed_records_are_read() -> None:
    backend = FakeBackend({T0: (0, 9)}, stable={T0: 4})
    one, _ = stream(backend, rules(wanted=replace(WANTED, committed=True)))
    assert one.latest(one.initial(), ALL) == {"t": {"0": 4}}
    backend.stable[T0] = 9
    assert one.latest({"t": {"0": 4}}, ALL) == {"t": {"0": 9}}


def test_a_position_of_another_source_is_refused() -> None:
    one, _ = stream(FakeBackend({T0: (0, 9)}))
    for position in ({"logOffset": 3}, {"t": {"zero": 3}}, {"t": [1]}):
        with pytest.raises(ReadError, match="position"):
            one.latest(position, ALL)  # type: ignore[arg-type]


def test_positions_are_always_written_in_the_same_order() -> None:
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
def test_a_limit_is_shared_out_wholly_and_everybody_gets_something(sizes, limit, turn) -> None:
    shares = share(limit, sizes, turn)
    assert sum(shares.values()) == min(limit, sum(sizes.values()))
    assert all(0 < shares[key] <= sizes[key] for key in shares)
    assert len(shares) == min(limit, len(sizes))
    if sum(sizes.values()) > limit >= len(sizes):
        for key, size in sizes.items():
            exact = limit * size / sum(sizes.values())
            # Off by the rounding, and by what those below one offset were lifted to one.
            assert exact - len(sizes) - 1e-3 * exact <= shares[key] <= max(1.0, exact + 1) + 1e-3 * exact


def test_a_limit_is_shared_out_in_proportion_to_what_is_left() -> None:
    backend = FakeBackend({T0: (0, 1000), T1: (0, 100), T2: (0, 1)})
    one, _ = stream(backend, rules(limit=Limit(110)))
    end = one.latest(one.initial(), one.rules.limit)
    assert end == {"t": {"0": 99, "1": 10, "2": 1}}
    assert one.reported() == {"t": {"0": 1000, "1": 100, "2": 1}}
    assert one.latest(end, ALL) == one.reported()  # Trigger.Once: whatever the options say


def test_partitions_take_turns_where_the_limit_is_smaller_than_their_number() -> None:
    backend = FakeBackend({T0: (0, 10**6), T1: (0, 10**6), T2: (0, 3)})
    one, _ = stream(backend)
    position, counts = one.initial(), []
    for _ in range(3):
        end = one.latest(position, Limit(2))
        counts.append(sum(end["t"].values()) - sum(position["t"].values()))
        position = end
    assert counts == [2, 2, 2]
    assert position == {"t": {"0": 2, "1": 2, "2": 2}}


def test_a_batch_is_held_back_until_there_is_enough_or_it_has_waited_long_enough() -> None:
    backend, clock = FakeBackend({T0: (0, 3)}), Clock()
    one, _ = stream(backend, rules(limit=Limit(20, 10), max_delay_ms=60_000), clock)
    limit = one.rules.limit
    first = one.latest(one.initial(), limit)
    assert first == {"t": {"0": 3}}  # the first is not
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


def test_time_without_anything_new_does_not_count_as_a_batch() -> None:
    backend, clock = FakeBackend({T0: (0, 3)}), Clock()
    one, _ = stream(backend, rules(limit=Limit(None, 10), max_delay_ms=60_000), clock)
    position = one.latest(one.initial(), one.rules.limit)
    clock.now_ms += 60_000
    assert one.latest(position, one.rules.limit) == position
    backend.logs[T0] = (0, 4)
    assert one.latest(position, one.rules.limit) == {"t": {"0": 4}}


# --- Trigger.AvailableNow


def test_fixed_ends_are_reached_under_a_limit_and_never_passed() -> None:
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


def test_a_start_at_the_latest_offsets_with_fixed_ends_reads_nothing() -> None:
    backend = FakeBackend({T0: (0, 7)})
    one, warned = stream(backend, rules(AtOffset(LATEST)))
    one.fix_ends()
    backend.logs |= {T0: (0, 9), T1: (0, 1)}  # between the ends and the start
    start = one.initial()
    assert one.latest(start, ALL) == start == {"t": {"0": 9, "1": 1}}
    assert one.latest(start, ALL) == start
    assert warned == []


def test_fixed_ends_after_a_restart_include_the_batch_that_was_planned() -> None:
    backend = FakeBackend({T0: (0, 7)})
    one, _ = stream(backend)
    planned = one.latest(one.initial(), ALL)
    backend.logs[T0] = (0, 9)
    again, _ = stream(backend)
    again.fix_ends()
    backend.logs[T0] = (0, 11)
    assert again.pieces(planned, planned) == []  # what Spark asks first after a restart
    assert read(again.pieces({"t": {"0": 2}}, planned)) == {T0: [2, 3, 4, 5, 6]}
    assert again.latest(planned, ALL) == {"t": {"0": 9}}
    assert again.latest({"t": {"0": 9}}, ALL) == {"t": {"0": 9}}


# --- partitions that come and go, and what is lost


def test_new_partitions_are_read_from_their_beginning() -> None:
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
    # One that gets nothing this time is known all the same, and its range is empty.
    backend.logs[T2] = (0, 5)
    known = one.latest(end, Limit(1))
    assert known["t"]["2"] in (0, 1)
    assert sum(known["t"].values()) == sum(end["t"].values()) + 1


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_aged_out_unread_are_lost(fails: bool) -> None:
    backend = FakeBackend({T0: (0, 4), T1: (0, 4)})
    one, warned = stream(backend, rules(wanted=replace(WANTED, fail_on_loss=fails)))
    start = one.latest(one.initial(), ALL)
    backend.logs[T0] = (6, 10)
    if fails:
        for _ in range(2):  # and nothing is planned, so that it is told again
            with pytest.raises(DataLoss, match=r"t-0 begins at 6, behind 4.*failOnDataLoss=false"):
                one.latest(start, ALL)
        with pytest.raises(DataLoss, match="t-0 begins at 6"):
            one.pieces(start, {"t": {"0": 10, "1": 4}})
        return
    end = one.latest(start, ALL)
    assert read(one.pieces(start, end)) == {T0: [6, 7, 8, 9]}
    assert warned == ["records may have been lost: t-0 begins at 6, behind 4"]


def test_what_has_aged_out_takes_nothing_of_the_limit() -> None:
    backend = FakeBackend({T0: (0, 4)})
    one, _ = stream(backend, rules(wanted=LOSSY))
    start = one.latest(one.initial(), ALL)
    backend.logs[T0] = (100, 200)
    end = one.latest(start, Limit(7))
    assert end == {"t": {"0": 107}}
    assert read(one.pieces(start, end)) == {T0: list(range(100, 107))}


@pytest.mark.parametrize("fails", [True, False])
def test_a_new_partition_that_does_not_begin_at_nought_has_lost_records(fails: bool) -> None:
    backend = FakeBackend({T0: (0, 4)})
    one, warned = stream(backend, rules(wanted=replace(WANTED, fail_on_loss=fails)))
    start = one.latest(one.initial(), ALL)
    backend.logs[T1] = (2, 5)
    if fails:
        with pytest.raises(DataLoss, match="t-1, which is new, begins at 2"):
            one.latest(start, ALL)
        return
    end = one.latest(start, ALL)
    assert read(one.pieces(start, end)) == {T1: [2, 3, 4]}
    assert len(warned) == 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_partition_that_is_gone_is_lost_and_begins_anew_when_it_comes_back(fails: bool) -> None:
    backend = FakeBackend({T0: (0, 4), T1: (0, 4)})
    one, warned = stream(backend, rules(wanted=replace(WANTED, fail_on_loss=fails)))
    start = one.latest(one.initial(), ALL)
    del backend.logs[T1]
    if fails:
        with pytest.raises(DataLoss, match="t-1 is gone"):
            one.latest(start, ALL)
        with pytest.raises(DataLoss, match="t-1 is gone"):
            one.pieces({"t": {"0": 0, "1": 0}}, start)
        return
    end = one.latest(start, ALL)
    assert end == {"t": {"0": 4}}
    assert one.pieces(start, end) == []
    assert set(warned) == {"records may have been lost: t-1 is gone"}
    backend.logs[T1] = (0, 2)
    back = one.latest(end, ALL)
    assert read(one.pieces(end, back)) == {T1: [0, 1]}


@pytest.mark.parametrize("selection", [Selection(topics=("t",)), Selection(assigned=(T0,))])
def test_a_named_topic_that_vanishes_is_lost_data_but_a_place_that_does_not_answer_is_not(selection) -> None:
    backend = FakeBackend({T0: (0, 4)})
    one, _ = stream(backend, rules(selection=selection, wanted=LOSSY))
    start = one.latest(one.initial(), ALL)
    backend.away = True
    with pytest.raises(ReadError, match="nobody answers"):
        one.latest(start, ALL)
    backend.away = False
    del backend.logs[T0]
    assert one.latest(start, ALL) == {}
    strict, _ = stream(backend, rules(selection=selection))
    with pytest.raises(ReadError):
        strict.latest(start, ALL)


@pytest.mark.parametrize("fails", [True, False])
def test_an_end_that_goes_back_is_waited_for_and_then_lost(fails: bool) -> None:
    backend, clock = FakeBackend({T0: (0, 9), T1: (0, 1)}), Clock()
    these = rules(wanted=replace(WANTED, fail_on_loss=fails), patience_ms=30_000)
    one, warned = stream(backend, these, clock)
    position = one.latest(one.initial(), ALL)
    backend.logs |= {T0: (0, 6), T1: (0, 2)}
    position = one.latest(position, ALL)
    assert position == {"t": {"0": 9, "1": 2}}  # the others go on
    clock.now_ms += 29_000
    assert one.latest(position, ALL) == position
    backend.logs[T0] = (0, 9)  # it was only late
    assert one.latest(position, ALL) == position
    backend.logs[T0] = (0, 6)
    assert one.latest(position, ALL) == position
    clock.now_ms += 30_000
    assert len(warned) == 2
    if fails:
        with pytest.raises(DataLoss, match="t-0 went back from 9 to 6"):
            one.latest(position, ALL)
        return
    back = one.latest(position, ALL)
    assert back == {"t": {"0": 6, "1": 2}}
    assert one.pieces(position, back) == []
    backend.logs[T0] = (0, 7)
    assert read(one.pieces(back, one.latest(back, ALL))) == {T0: [6]}


def test_fixed_ends_wait_for_an_end_that_is_late() -> None:
    backend, clock = FakeBackend({T0: (0, 6)}), Clock()
    one, _ = stream(backend, None, clock)
    one.fix_ends()
    begun = clock.now_ms
    clock.at_pause = lambda: backend.logs.update({T0: (0, 9 if clock.now_ms > begun + 5_000 else 6)})
    assert one.latest({"t": {"0": 9}}, ALL) == {"t": {"0": 9}}
    assert clock.now_ms == begun + 6_000


def test_fixed_ends_wait_so_long_and_no_longer() -> None:
    backend, clock = FakeBackend({T0: (0, 6)}), Clock()
    one, _ = stream(backend, rules(wanted=LOSSY, patience_ms=30_000), clock)
    one.fix_ends()
    begun = clock.now_ms
    assert one.latest({"t": {"0": 9}}, ALL) == {"t": {"0": 6}}
    assert clock.now_ms == begun + 30_000
    assert one.latest({"t": {"0": 6}}, ALL) == {"t": {"0": 6}}
    assert clock.now_ms == begun + 30_000


def test_a_batch_planned_before_a_restart_is_read_to_its_end_when_that_is_there_again() -> None:
    backend, clock = FakeBackend({T0: (0, 6)}), Clock()
    one, _ = stream(backend, None, clock)
    clock.at_pause = lambda: backend.logs.update({T0: (0, 12)})
    assert read(one.pieces({"t": {"0": 4}}, {"t": {"0": 9}})) == {T0: [4, 5, 6, 7, 8]}
    backend.logs[T0] = (0, 6)
    clock.at_pause = lambda: None
    with pytest.raises(DataLoss, match="t-0 ends at 6 where 9 was planned"):
        one.pieces({"t": {"0": 4}}, {"t": {"0": 9}})
    lossy, _ = stream(backend, rules(wanted=LOSSY), clock)
    assert read(lossy.pieces({"t": {"0": 4}}, {"t": {"0": 9}})) == {T0: [4, 5]}


def test_a_start_given_by_number_is_taken_as_it_is() -> None:
    backend = FakeBackend({T0: (0, 9), T1: (0, 9)})
    one, _ = stream(backend, rules(AtOffsets({T0: 7, T1: EARLIEST})))
    start = one.initial()
    assert start == {"t": {"0": 7, "1": 0}}
    assert offsets_of(one.latest(start, ALL)) == {T0: 9, T1: 9}
    ahead, _ = stream(backend, rules(AtOffsets({T0: 20, T1: LATEST})))
    start = ahead.initial()
    assert ahead.latest(start, ALL) == start == {"t": {"0": 20, "1": 9}}


def test_pieces_are_asked_for_once_with_what_the_options_want() -> None:
    backend = FakeBackend({T0: (0, 9)})
    one, _ = stream(backend, rules(min_pieces=4))
    one.pieces({"t": {"0": 2}}, {"t": {"0": 9}})
    assert backend.asked == [[OffsetRange("t", 0, 2, 9)]]
    small, _ = stream(backend, rules(max_records=4))
    small.pieces({"t": {"0": 2}}, {"t": {"0": 9}})
    assert len(backend.asked[1]) == 2
    assert sum(part.size for part in backend.asked[1]) == 7


# --- lag


def test_lag_is_what_is_left_of_each_source() -> None:
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
    behind = lag(progress)
    assert behind == {T0: 4, T1: 0, TopicPartition("u", 0): 3}
    assert {str(key) for key in behind} == {"t-0", "t-1", "u-0"}
    assert behind.total == 7
    assert lag(json.dumps(progress)) == behind
    assert lag(None) == {} and lag({}).total == 0

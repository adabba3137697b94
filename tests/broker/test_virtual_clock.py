"""The clock that obeys: what fires when, in which order, frozen, running and set back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.clock import ManualClock, SystemClock
from ottla.broker.virtual_clock import VirtualClock
from ottla_testing.patience import PATIENCE_S

T0 = 1_795_000_000_000


class Machine:
    """The machine's clock, where a test says what it shows."""

    def __init__(self) -> None:
        self.ms = T0

    def __call__(self) -> int:
        return self.ms


async def frozen(skips: bool = True, at_ms: int = 0) -> VirtualClock:
    """A clock that stands."""
    clock = VirtualClock(asyncio.get_running_loop(), skips=skips)
    clock.freeze()
    await clock.set(at_ms)
    return clock


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# Moved


async def test_timers_fire_in_order_each_at_its_time_and_settled() -> None:
    clock = await frozen()
    told: list[object] = []
    clock.call_at(30, lambda: told.append(("c", clock.now_ms())))
    clock.call_at(10, lambda name: told.append((name, clock.now_ms())), "a")
    clock.call_at(10, lambda: told.append(("b", clock.now_ms())))
    clock.call_at(20, lambda: told.append("never")).cancel()

    async def settle() -> None:
        told.append(f"settled at {clock.now_ms()}")

    await clock.advance(9, settle)
    assert told == ["settled at 0"] and clock.now_ms() == 9
    told.clear()
    await clock.advance(21, settle)
    assert told == [
        *("settled at 9", ("a", 10), "settled at 10", ("b", 10), "settled at 10"),
        *(("c", 30), "settled at 30"),
    ]
    assert clock.now_ms() == 30


async def test_what_an_effect_sets_up_fires_within_the_same_move() -> None:
    clock = await frozen()
    fired: list[int] = []
    work: list[Callable[[], object]] = []

    def later() -> None:
        fired.append(clock.now_ms())
        work.append(lambda: clock.call_at(clock.now_ms() + 10, later))

    async def settle() -> None:  # as when an append in a thread ends
        await turns()
        while work:
            work.pop()()

    clock.call_at(10, later)
    await clock.advance(35, settle)
    assert fired == [10, 20, 30] and clock.now_ms() == 35


async def test_checks_fire_at_their_ticks_after_timers_of_the_same_time() -> None:
    clock = await frozen()
    told: list[tuple[str, int]] = []
    first = clock.call_every(10, lambda: told.append(("first", clock.now_ms())))
    clock.call_every(15, lambda: told.append(("second", clock.now_ms())))
    clock.call_at(30, lambda: told.append(("once", clock.now_ms())))
    await clock.advance(30)
    assert told == [("first", 10), ("second", 15), ("first", 20), ("once", 30), ("first", 30), ("second", 30)]
    first.cancel()
    first.cancel()
    told.clear()
    await clock.advance(20)
    assert told == [("second", 45)]


async def test_ticks_without_anything_to_do_are_skipped() -> None:
    clock = await frozen()
    fired: list[int] = []
    due: list[int] = []

    def check() -> None:
        fired.append(clock.now_ms())
        if due:
            due.pop(0)

    clock.call_every(10, check, lambda: due[0] if due else None)
    await clock.advance(10**12)
    assert fired == []
    now_ms = clock.now_ms()
    due += [now_ms + 25, now_ms - 5, now_ms + 30]  # at the next tick, at the one after it, and again
    await clock.advance(100)
    assert [when - now_ms for when in fired] == [30, 40, 50]


async def test_what_happens_in_a_move_is_seen_by_the_next_tick() -> None:
    clock = await frozen()
    fired: list[int] = []
    due: list[int] = []
    clock.call_every(10, lambda: (fired.append(clock.now_ms()), due.clear()), lambda: due[0] if due else None)
    clock.call_at(1003, lambda: due.append(0))
    await clock.advance(5000)
    assert fired == [1010]


@given(st.data())
def test_skipping_ticks_changes_nothing(data: st.DataObject) -> None:
    """A small world: counters that fall due, checks that work them off and set up others, in both kinds of move."""
    intervals = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=4))
    moves = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=4))
    plans = data.draw(
        st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.integers(-20, 200)), min_size=1, max_size=12)
    )
    follow = data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.integers(-20, 90)), max_size=6))

    async def play(skips: bool) -> list[object]:
        clock = await frozen(skips, 1000)
        told: list[object] = []
        todo: list[list[int]] = [[] for _ in intervals]
        rest = list(follow)

        def put(check: int, delay_ms: int) -> None:
            told.append(("put", clock.now_ms()))
            todo[check % len(todo)].append(clock.now_ms() + delay_ms)

        def tick(number: int) -> None:
            done = [when for when in todo[number] if when <= clock.now_ms()]
            todo[number] = [when for when in todo[number] if when > clock.now_ms()]
            for when in done:
                told.append((number, when, clock.now_ms()))
                if rest:
                    wait_ms, check, delay_ms = rest.pop()
                    clock.call_at(clock.now_ms() + wait_ms, put, check, delay_ms)

        for number, interval_ms in enumerate(intervals):
            clock.call_every(interval_ms, lambda n=number: tick(n), lambda n=number: min(todo[n], default=None))
        for when_ms, check, delay_ms in plans:
            clock.call_at(1000 + when_ms, put, check, delay_ms)
        for ms in moves:
            await clock.advance(ms)
            told.append(("moved to", clock.now_ms()))
            put(0, -5)
        return told

    assert asyncio.run(play(True)) == asyncio.run(play(False))


async def test_an_error_in_a_timer_keeps_no_other_from_firing() -> None:
    clock = await frozen()
    fired: list[int] = []
    errors: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    try:
        clock.call_at(5, lambda: 1 // 0)
        clock.call_every(5, lambda: fired.append(1 // 0))
        clock.call_at(10, lambda: fired.append(clock.now_ms()))
        await clock.advance(12)
    finally:
        loop.set_exception_handler(None)
    assert fired == [10] and [type(error) for error in errors] == [ZeroDivisionError] * 3


async def test_a_check_that_cannot_say_when_it_is_due_is_made() -> None:
    clock = await frozen()
    fired: list[int] = []
    errors: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    try:
        clock.call_every(10, lambda: fired.append(clock.now_ms()), lambda: 1 // 0)
        await clock.advance(25)
    finally:
        loop.set_exception_handler(None)
    assert fired == [10, 20] and errors


async def test_moves_are_made_one_at_a_time() -> None:
    clock = await frozen()
    told: list[object] = []
    clock.call_at(5, told.append, 5)
    clock.call_at(15, told.append, 15)

    async def settle() -> None:
        await turns()

    await asyncio.gather(clock.advance(10, settle), clock.advance(10, settle))
    assert told == [5, 15] and clock.now_ms() == 20


async def test_a_move_that_is_given_up_stops_where_it_is() -> None:
    clock = await frozen()
    reached = asyncio.Event()
    fired: list[int] = []
    clock.call_at(10, reached.set)
    clock.call_at(20, fired.append, 20)

    async def settle() -> None:
        if reached.is_set() and not fired:
            await asyncio.Event().wait()

    move = asyncio.create_task(clock.advance(50, settle))
    await reached.wait()
    move.cancel()
    with pytest.raises(asyncio.CancelledError):
        await move
    assert clock.now_ms() == 10 and fired == []
    fired.append(0)
    await clock.advance(50, settle)
    assert fired == [0, 20] and clock.now_ms() == 60


async def test_no_time_before_the_first() -> None:
    clock = await frozen()
    with pytest.raises(ValueError, match="cannot be moved on by -1"):
        await clock.advance(-1)
    with pytest.raises(ValueError, match="cannot be set to -1"):
        await clock.set(-1)


# Frozen, running, set


async def test_frozen_it_stands_and_fires_only_what_is_past() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    assert clock.now_ms() == T0 and clock.offset_ms == 0 and not clock.is_frozen
    clock.freeze()
    machine.ms += 5000
    fired: list[str] = []
    clock.call_at(T0 + 1, fired.append, "later")
    clock.call_every(1, lambda: fired.append("check"))
    clock.call_at(T0, fired.append, "now")
    await turns()
    assert fired == ["now"] and clock.now_ms() == T0 and clock.is_frozen and clock.offset_ms == -5000
    clock.freeze()
    assert clock.now_ms() == T0


async def test_running_it_goes_with_the_machine() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    clock.freeze()
    await clock.advance(100_000)
    machine.ms += 70_000
    clock.run()
    clock.run()
    assert clock.offset_ms == 30_000 and clock.now_ms() == machine.ms + 30_000 and not clock.is_frozen
    machine.ms += 1
    assert clock.now_ms() == T0 + 100_001
    await clock.advance(9)
    assert clock.offset_ms == 30_009 and not clock.is_frozen


async def test_running_timers_fire_by_themselves() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    fired: list[str] = []
    done = asyncio.Event()
    clock.call_at(clock.now_ms() + 60_000, fired.append, "late")
    clock.call_at(clock.now_ms() + 4, fired.append, "b")
    clock.call_at(clock.now_ms() + 2, fired.append, "a")
    clock.call_at(clock.now_ms() - 5, fired.append, "past")
    clock.call_at(clock.now_ms() + 5, done.set)
    clock.call_at(clock.now_ms() + 1, fired.append, "never").cancel()
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    assert fired == ["past", "a", "b"]
    ticks = asyncio.Event()
    check = clock.call_every(1, lambda: (fired.append("tick"), len(fired) > 6 and ticks.set()), lambda: None)
    await asyncio.wait_for(ticks.wait(), PATIENCE_S)  # each tick is made, whether there is anything to do or not
    check.cancel()
    clock.forget()


async def test_ticks_that_were_missed_are_made_once() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    fired: list[int] = []
    clock.call_every(10, lambda: fired.append(clock.now_ms() - T0))
    machine.ms += 95  # asleep
    clock.call_at(T0, fired.append, -1)
    await turns()
    assert fired == [-1, 95]
    machine.ms += 5
    clock.call_at(T0, fired.append, -1)
    await turns()
    assert fired == [-1, 95, -1, 100]
    clock.forget()


async def test_what_was_missed_is_made_in_its_order() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    told: list[str] = []
    clock.call_every(10, lambda: (told.append("check"), other.cancel()))
    other = clock.call_every(10, lambda: told.append("never"))
    clock.call_at(T0 + 20, told.append, "once")
    clock.call_at(T0 + 10, told.append, "first")
    machine.ms += 50
    clock.call_at(T0, told.append, "past")
    await turns()
    assert told == ["past", "first", "check", "once"]
    clock.forget()


async def test_what_is_past_when_a_move_begins_fires_at_its_beginning() -> None:
    clock = await frozen(at_ms=1000)
    fired: list[int] = []
    clock.call_at(500, lambda: fired.append(clock.now_ms()))
    await clock.advance(10)
    assert fired == [1000]


async def test_after_a_move_timers_fire_by_themselves_again() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    done = asyncio.Event()
    clock.call_at(clock.now_ms() + 60_003, done.set)
    await clock.advance(60_000)
    await asyncio.wait_for(done.wait(), PATIENCE_S)


async def test_a_move_may_end_frozen_or_running() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    clock.call_at(T0 + 10, clock.freeze)
    await clock.advance(20)
    assert clock.is_frozen and clock.now_ms() == T0 + 20
    clock.call_at(T0 + 30, clock.run)
    await clock.advance(20)
    machine.ms += 1
    assert not clock.is_frozen and clock.now_ms() == T0 + 41


async def test_set_forwards_is_a_move_and_backwards_none() -> None:
    clock = await frozen(at_ms=1000)
    fired: list[tuple[str, int]] = []
    clock.call_at(1500, lambda: fired.append(("once", clock.now_ms())))
    clock.call_every(100, lambda: fired.append(("check", clock.now_ms())), lambda: 1350)
    await clock.set(1450)
    assert fired == [("check", 1400)] and clock.now_ms() == 1450
    fired.clear()
    await clock.set(320)
    assert fired == [] and clock.now_ms() == 320
    await clock.advance(1000)
    assert fired == []  # the timer keeps its time, and the check has nothing to do yet
    await clock.advance(180)
    assert fired == [("check", 1400), ("once", 1500), ("check", 1500)]


async def test_set_back_the_ticks_go_on() -> None:
    clock = await frozen(at_ms=1000)
    fired: list[int] = []
    clock.call_every(100, lambda: fired.append(clock.now_ms()))
    await clock.advance(250)
    await clock.set(500)
    await clock.advance(150)
    assert fired == [1100, 1200, 600]


# The rest


async def test_cancelled_timers_of_a_frozen_clock_take_no_room() -> None:
    clock = await frozen()
    fired: list[int] = []
    for number in range(10):
        clock.call_at(500, fired.append, number)
    for number in range(20_000):  # as heartbeats do with a session's timer
        clock.call_at(1000 + number, print).cancel()
    assert len(clock._once._heap) < 1000
    clock.call_at(50_000, fired.append, 10)
    await clock.advance(60_000)
    assert fired == list(range(11))


async def test_a_clock_of_a_next_life_stands_where_the_last_did() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    await clock.advance(500)
    running = clock.note()
    clock.freeze()
    frozen_note = clock.note()
    fired: list[int] = []
    clock.call_at(T0 + 1000, fired.append, 1)
    machine.ms += 100
    again = clock.renewed(running)
    assert not again.is_frozen and again.now_ms() == machine.ms + 500
    still = again.renewed(frozen_note)
    assert still.is_frozen and still.now_ms() == T0 + 500
    assert again.renewed().note() == running
    await still.advance(2000)
    await clock.advance(2000)
    assert fired == []


async def test_the_other_clocks_make_every_tick() -> None:
    manual = ManualClock(0)
    fired: list[int] = []
    check = manual.call_every(10, lambda: fired.append(manual.now_ms()), lambda: None)
    manual.advance(35)
    assert fired == [10, 20, 30]
    check.cancel()
    manual.advance(35)
    assert fired == [10, 20, 30]

    system = SystemClock(asyncio.get_running_loop())
    done = asyncio.Event()
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            again.cancel()
            done.set()

    again = system.call_every(1, tick, lambda: None)
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    await turns()
    assert ticks == [1, 1, 1]


def test_an_error_does_not_end_the_checks() -> None:
    manual = ManualClock(0)
    fired: list[int] = []
    manual.call_every(10, lambda: fired.append(1 // (manual.now_ms() - 10)))
    with pytest.raises(ZeroDivisionError):
        manual.advance(10)
    manual.advance(20)
    assert len(fired) == 2

"""The virtual clock: which timers fire when and in which order, frozen, running and set back."""

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
    """The machine's clock, set by a test."""

    def __init__(self) -> None:
        self.ms = T0

    def __call__(self) -> int:
        return self.ms


async def frozen(skips: bool = True, at_ms: int = 0) -> VirtualClock:
    """A frozen clock."""
    clock = VirtualClock(asyncio.get_running_loop(), skips=skips)
    clock.freeze()
    await clock.set(at_ms)
    return clock


async def iterations(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# Moves


async def test_advance_fires_timers_in_order_and_settles_each() -> None:
    clock = await frozen()
    reported: list[object] = []
    clock.call_at(30, lambda: reported.append(("c", clock.now_ms())))
    clock.call_at(10, lambda name: reported.append((name, clock.now_ms())), "a")
    clock.call_at(10, lambda: reported.append(("b", clock.now_ms())))
    clock.call_at(20, lambda: reported.append("never")).cancel()

    async def settle() -> None:
        reported.append(f"settled at {clock.now_ms()}")

    await clock.advance(9, settle)
    assert reported == ["settled at 0"] and clock.now_ms() == 9
    reported.clear()
    await clock.advance(21, settle)
    assert reported == [
        *("settled at 9", ("a", 10), "settled at 10", ("b", 10), "settled at 10"),
        *(("c", 30), "settled at 30"),
    ]
    assert clock.now_ms() == 30


async def test_timer_added_by_an_effect_fires_in_the_same_move() -> None:
    clock = await frozen()
    fired: list[int] = []
    work: list[Callable[[], object]] = []

    def later() -> None:
        fired.append(clock.now_ms())
        work.append(lambda: clock.call_at(clock.now_ms() + 10, later))

    async def settle() -> None:  # as when an append in a thread ends
        await iterations()
        while work:
            work.pop()()

    clock.call_at(10, later)
    await clock.advance(35, settle)
    assert fired == [10, 20, 30] and clock.now_ms() == 35


async def test_checks_fire_at_their_ticks_after_timers_of_the_same_time() -> None:
    clock = await frozen()
    reported: list[tuple[str, int]] = []
    first = clock.call_every(10, lambda: reported.append(("first", clock.now_ms())))
    clock.call_every(15, lambda: reported.append(("second", clock.now_ms())))
    clock.call_at(30, lambda: reported.append(("once", clock.now_ms())))
    await clock.advance(30)
    assert reported == [("first", 10), ("second", 15), ("first", 20), ("once", 30), ("first", 30), ("second", 30)]
    first.cancel()
    first.cancel()
    reported.clear()
    await clock.advance(20)
    assert reported == [("second", 45)]


async def test_advance_skips_ticks_without_work() -> None:
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


async def test_effects_of_a_move_are_seen_by_the_next_tick() -> None:
    clock = await frozen()
    fired: list[int] = []
    due: list[int] = []
    clock.call_every(10, lambda: (fired.append(clock.now_ms()), due.clear()), lambda: due[0] if due else None)
    clock.call_at(1003, lambda: due.append(0))
    await clock.advance(5000)
    assert fired == [1010]


@given(st.data())
def test_skipped_ticks_have_the_same_effect(data: st.DataObject) -> None:
    """A small world: counters that become due, checks that reset them and add others, in both kinds of move."""
    intervals = data.draw(st.lists(st.integers(1, 50), min_size=1, max_size=4))
    moves = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=4))
    plans = data.draw(
        st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.integers(-20, 200)), min_size=1, max_size=12)
    )
    follow = data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3), st.integers(-20, 90)), max_size=6))

    async def play(skips: bool) -> list[object]:
        clock = await frozen(skips, 1000)
        reported: list[object] = []
        todo: list[list[int]] = [[] for _ in intervals]
        rest = list(follow)

        def put(check: int, delay_ms: int) -> None:
            reported.append(("put", clock.now_ms()))
            todo[check % len(todo)].append(clock.now_ms() + delay_ms)

        def tick(number: int) -> None:
            done = [when for when in todo[number] if when <= clock.now_ms()]
            todo[number] = [when for when in todo[number] if when > clock.now_ms()]
            for when in done:
                reported.append((number, when, clock.now_ms()))
                if rest:
                    wait_ms, check, delay_ms = rest.pop()
                    clock.call_at(clock.now_ms() + wait_ms, put, check, delay_ms)

        for number, interval_ms in enumerate(intervals):
            clock.call_every(interval_ms, lambda n=number: tick(n), lambda n=number: min(todo[n], default=None))
        for when_ms, check, delay_ms in plans:
            clock.call_at(1000 + when_ms, put, check, delay_ms)
        for ms in moves:
            await clock.advance(ms)
            reported.append(("moved to", clock.now_ms()))
            put(0, -5)
        return reported

    assert asyncio.run(play(True)) == asyncio.run(play(False))


async def test_error_of_a_timer_does_not_stop_others() -> None:
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


async def test_check_with_a_failing_due_fires() -> None:
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


async def test_moves_run_one_at_a_time() -> None:
    clock = await frozen()
    reported: list[object] = []
    clock.call_at(5, reported.append, 5)
    clock.call_at(15, reported.append, 15)

    async def settle() -> None:
        await iterations()

    await asyncio.gather(clock.advance(10, settle), clock.advance(10, settle))
    assert reported == [5, 15] and clock.now_ms() == 20


async def test_cancelled_move_stops_at_its_time() -> None:
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


async def test_negative_times_are_refused() -> None:
    clock = await frozen()
    with pytest.raises(ValueError, match="cannot be moved on by -1"):
        await clock.advance(-1)
    with pytest.raises(ValueError, match="cannot be set to -1"):
        await clock.set(-1)


# Frozen, running, set


async def test_frozen_clock_fires_past_timers_only() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    assert clock.now_ms() == T0 and clock.offset_ms == 0 and not clock.is_frozen
    clock.freeze()
    machine.ms += 5000
    fired: list[str] = []
    clock.call_at(T0 + 1, fired.append, "later")
    clock.call_every(1, lambda: fired.append("check"))
    clock.call_at(T0, fired.append, "now")
    await iterations()
    assert fired == ["now"] and clock.now_ms() == T0 and clock.is_frozen and clock.offset_ms == -5000
    clock.freeze()
    assert clock.now_ms() == T0


async def test_running_clock_follows_the_machine() -> None:
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


async def test_running_clock_fires_timers_by_itself() -> None:
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
    await asyncio.wait_for(ticks.wait(), PATIENCE_S)  # each tick fires, with or without work
    check.cancel()
    clock.forget()


async def test_several_passed_ticks_of_a_check_fire_once() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    fired: list[int] = []
    clock.call_every(10, lambda: fired.append(clock.now_ms() - T0))
    machine.ms += 95  # asleep
    clock.call_at(T0, fired.append, -1)
    await iterations()
    assert fired == [-1, 95]
    machine.ms += 5
    clock.call_at(T0, fired.append, -1)
    await iterations()
    assert fired == [-1, 95, -1, 100]
    clock.forget()


async def test_passed_timers_fire_in_order() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    reported: list[str] = []
    clock.call_every(10, lambda: (reported.append("check"), other.cancel()))
    other = clock.call_every(10, lambda: reported.append("never"))
    clock.call_at(T0 + 20, reported.append, "once")
    clock.call_at(T0 + 10, reported.append, "first")
    machine.ms += 50
    clock.call_at(T0, reported.append, "past")
    await iterations()
    assert reported == ["past", "first", "check", "once"]
    clock.forget()


async def test_past_timers_fire_at_the_start_of_a_move() -> None:
    clock = await frozen(at_ms=1000)
    fired: list[int] = []
    clock.call_at(500, lambda: fired.append(clock.now_ms()))
    await clock.advance(10)
    assert fired == [1000]


async def test_timers_fire_by_themselves_after_a_move() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    done = asyncio.Event()
    clock.call_at(clock.now_ms() + 60_003, done.set)
    await clock.advance(60_000)
    await asyncio.wait_for(done.wait(), PATIENCE_S)


async def test_clock_may_be_frozen_or_run_during_a_move() -> None:
    machine = Machine()
    clock = VirtualClock(asyncio.get_running_loop(), wall=machine)
    clock.call_at(T0 + 10, clock.freeze)
    await clock.advance(20)
    assert clock.is_frozen and clock.now_ms() == T0 + 20
    clock.call_at(T0 + 30, clock.run)
    await clock.advance(20)
    machine.ms += 1
    assert not clock.is_frozen and clock.now_ms() == T0 + 41


async def test_set_forwards_fires_timers_and_set_backwards_does_not() -> None:
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
    assert fired == []  # the timer keeps its time, and the check has no work yet
    await clock.advance(180)
    assert fired == [("check", 1400), ("once", 1500), ("check", 1500)]


async def test_ticks_continue_after_the_clock_is_set_back() -> None:
    clock = await frozen(at_ms=1000)
    fired: list[int] = []
    clock.call_every(100, lambda: fired.append(clock.now_ms()))
    await clock.advance(250)
    await clock.set(500)
    await clock.advance(150)
    assert fired == [1100, 1200, 600]


# Other properties


async def test_cancelled_timers_of_a_frozen_clock_are_removed() -> None:
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


async def test_renewed_clock_has_the_time_of_the_last() -> None:
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


async def test_other_clocks_fire_every_tick() -> None:
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
    await iterations()
    assert ticks == [1, 1, 1]


def test_error_of_a_check_does_not_end_it() -> None:
    manual = ManualClock(0)
    fired: list[int] = []
    manual.call_every(10, lambda: fired.append(1 // (manual.now_ms() - 10)))
    with pytest.raises(ZeroDivisionError):
        manual.advance(10)
    manual.advance(20)
    assert len(fired) == 2

"""The manual clock and the system clock."""

from __future__ import annotations

import asyncio
import time

from ottla.broker.clock import ManualClock, SystemClock
from ottla_testing.patience import PATIENCE_S


def test_manual_clock_fires_timers_in_order_each_at_its_time() -> None:
    clock = ManualClock(1000)
    fired: list[tuple[str, int]] = []
    clock.call_at(1030, lambda: fired.append(("c", clock.now_ms())))
    clock.call_at(1010, lambda name: fired.append((name, clock.now_ms())), "a")
    clock.call_at(1010, lambda: fired.append(("b", clock.now_ms())))
    clock.call_at(1020, lambda: fired.append(("never", clock.now_ms()))).cancel()
    clock.advance(9)
    assert fired == []
    clock.advance(1)
    assert fired == [("a", 1010), ("b", 1010)]
    clock.advance(100)
    assert fired[2:] == [("c", 1030)] and clock.now_ms() == 1110


def test_timer_may_add_another_within_the_same_advance() -> None:
    clock = ManualClock(0)
    fired: list[int] = []

    def again() -> None:
        fired.append(clock.now_ms())
        clock.call_at(clock.now_ms() + 10, again)

    clock.call_at(10, again)
    clock.advance(35)
    assert fired == [10, 20, 30] and clock.now_ms() == 35


def test_past_timer_fires_at_the_next_advance() -> None:
    clock = ManualClock(100)
    fired: list[int] = []
    clock.call_at(50, lambda: fired.append(clock.now_ms()))
    clock.advance(0)
    assert fired == [100]


def test_leap_fires_once_at_its_end_what_became_due() -> None:
    clock = ManualClock(0)
    fired: list[tuple[str, int]] = []
    clock.call_at(15, lambda: fired.append(("once", clock.now_ms())))
    clock.call_every(10, lambda: fired.append(("check", clock.now_ms())))
    clock.leap(9)
    assert fired == [] and clock.now_ms() == 9
    clock.leap(91)
    assert fired == [("check", 100), ("once", 100)]
    clock.advance(19)
    assert fired[2:] == [("check", 110)]


async def test_system_clock_fires_timers() -> None:
    loop = asyncio.get_running_loop()
    clock = SystemClock(loop)
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    fired: asyncio.Future[str] = loop.create_future()
    clock.call_at(clock.now_ms() + 60_000, fired.set_result, "late").cancel()
    clock.call_at(clock.now_ms() - 5, fired.set_result, "past")
    assert await asyncio.wait_for(fired, PATIENCE_S) == "past"
    soon: asyncio.Future[int] = loop.create_future()
    due = clock.now_ms() + 5
    clock.call_at(due, lambda: soon.set_result(clock.now_ms()))
    assert await asyncio.wait_for(soon, PATIENCE_S) >= due

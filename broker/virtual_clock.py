"""A clock that obeys: it goes with the machine's until it is frozen, set or moved on, as tests ask for.

Owns the broker's timers and the order in which they fire when time is moved: each at its own time, one after the other,
and the next not before the effects of the last are there. What belongs to real time (a client's max_wait_ms, sockets,
throttles by faults) runs by `BrokerState.waits` and is no business of this clock.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from .clock import OneShot, OneShots, Timer, call_timer, wall_ms

Settle = Callable[[], Awaitable[Any]]


async def nothing_to_settle() -> None:
    """For a clock whose timers have no effects but in their callbacks."""


class ClockNote(NamedTuple):
    """Where a clock stands, to come back to: for a frozen one its time, else how far it is ahead of the machine's."""

    frozen_ms: int | None
    offset_ms: int


class _Check:
    """A check that comes again. Its ticks are all `next_ms` plus or minus whole intervals."""

    __slots__ = ("_checks", "callback", "due", "interval_ms", "next_ms", "order")

    def __init__(
        self,
        checks: dict[int, _Check],
        order: int,
        first_ms: int,
        interval_ms: int,
        callback: Callable[[], Any],
        due: Callable[[], int | None] | None,
    ) -> None:
        self.order = order
        self.interval_ms = interval_ms
        self.next_ms = first_ms
        """The first tick that has not passed."""
        self.callback = callback
        self.due = due
        self._checks = checks
        checks[order] = self

    def cancel(self) -> None:
        self._checks.pop(self.order, None)

    def tick_from(self, when_ms: int) -> int:
        """The first tick at or after a time, be it past or to come."""
        return when_ms + (self.next_ms - when_ms) % self.interval_ms

    def wanted_ms(self) -> int | None:
        """The first tick to come that has something to do."""
        if self.due is None:
            return self.next_ms
        due_ms = self.due()
        return None if due_ms is None else self.next_ms if due_ms <= self.next_ms else self.tick_from(due_ms)


class VirtualClock:
    """A `Clock` on an event loop whose time can be frozen, set and moved on. All of it is used on that loop.

    With equal times what `call_at` was asked for comes first, in the order in which it was asked for; then the checks
    of `call_every`, in theirs. A move by hours skips the ticks at which a check has nothing to do, by its own `due`;
    with `skips` False it makes all of them, for the same effects. While the clock goes by itself each tick is made.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, wall: Callable[[], int] = wall_ms, skips: bool = True
    ) -> None:
        self._loop = loop
        self._wall = wall
        self._skips = skips
        self._offset_ms = 0
        self._frozen_ms: int | None = None
        self._held_ms: int | None = None  # the time at which it stands while it is moved
        self._moving = asyncio.Lock()
        self._once = OneShots()
        self._checks: dict[int, _Check] = {}
        self._order = itertools.count()
        self._armed: tuple[float, asyncio.Handle] | None = None  # for when, and the loop's timer

    # Telling the time

    def now_ms(self) -> int:
        """The time; while it is moved, that of the timer that fires."""
        if self._held_ms is not None:
            return self._held_ms
        return self._wall() + self._offset_ms if self._frozen_ms is None else self._frozen_ms

    @property
    def is_frozen(self) -> bool:
        """Whether it stands still unless it is moved."""
        return self._frozen_ms is not None

    @property
    def offset_ms(self) -> int:
        """How far it is ahead of the machine's clock, now."""
        return self.now_ms() - self._wall()

    # Timers

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """Fires when the time comes, by itself or within a move; what is past fires soon, also on a frozen clock."""
        timer = OneShot(callback, args)
        self._once.add(when_ms, timer)
        self._arm()
        return timer

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """A check at each interval from now on. A clock that was set back goes on with the ticks of before."""
        first_ms = self.now_ms() + interval_ms
        check = _Check(self._checks, next(self._order), first_ms, interval_ms, callback, due)
        self._arm()
        return check

    def _arm(self) -> None:
        """Sees to it that what comes next fires in its time, unless a move does that."""
        if self._held_ms is not None:
            return
        when_ms = self._next_once_ms()
        now_ms = self.now_ms()
        if self._frozen_ms is None:
            for check in self._checks.values():
                if when_ms is None or check.next_ms < when_ms:
                    when_ms = check.next_ms
        elif when_ms is not None and when_ms > now_ms:
            when_ms = None
        if when_ms is None:
            self._disarm()
            return
        delay_s = max(0, when_ms - now_ms) / 1000
        at = self._loop.time() + delay_s
        if self._armed is not None:
            if self._armed[0] <= at:  # it looks then, and arms anew
                return
            self._armed[1].cancel()
        self._armed = at, self._loop.call_later(delay_s, self._wake)

    def _disarm(self) -> None:
        if self._armed is not None:
            self._armed[1].cancel()
            self._armed = None

    def _next_once_ms(self) -> int | None:
        when_ms = self._once.next_at
        return None if when_ms is None else int(when_ms)

    def _wake(self) -> None:
        self._armed = None
        if self._held_ms is None:
            self._fire_passed()
            self._arm()

    def fire_overdue(self) -> None:
        """Fires what is due by now, unless a move does that."""
        if self._held_ms is not None:
            return
        when_ms = self._once.next_at
        if when_ms is not None and when_ms <= self.now_ms():
            self._fire_passed()
            self._arm()

    def _fire_passed(self) -> None:
        """Fires what is due by now. A check whose ticks were missed, as by a machine that slept, is made once."""
        now_ms = self.now_ms()
        due: list[tuple[int, bool, int, OneShot | _Check]] = []
        while (when_ms := self._next_once_ms()) is not None and when_ms <= now_ms:
            due.append((when_ms, False, *self._once.pop()[1:]))
        if self._frozen_ms is None:
            for check in self._checks.values():
                if check.next_ms <= now_ms:
                    due.append((check.next_ms, True, check.order, check))
        for _, _, order, timer in sorted(due, key=lambda one: one[:3]):
            if isinstance(timer, _Check):
                if order not in self._checks:  # cancelled by one before it
                    continue
                timer.next_ms = timer.tick_from(now_ms + 1)
            self._call(timer)

    def _call(self, timer: OneShot | _Check) -> None:
        call_timer(self._loop, OneShot(timer.callback, ()) if isinstance(timer, _Check) else timer)

    # Moving it

    def freeze(self) -> None:
        """Stands still from now on; within a move, from its end on."""
        if self._frozen_ms is None:
            self._frozen_ms = self.now_ms()
        self._disarm()
        self._arm()

    def run(self) -> None:
        """Goes on from where it stands, as fast as the machine's clock."""
        if self._frozen_ms is not None:
            self._offset_ms = self.now_ms() - self._wall()
            self._frozen_ms = None
            self._arm()

    async def advance(
        self, ms: int, settle: Settle = nothing_to_settle, begin: Callable[[int], Any] = lambda to_ms: None
    ) -> None:
        """Moves it on by `ms` (>= 0; else ValueError): what becomes due fires at its own time, also what that sets up.
        `begin` is told first to what time.

        `settle` is awaited after each: it returns when the effects are there. A clock that runs stands meanwhile, and
        goes on from the end of the move. One move is made at a time.
        """
        if ms < 0:
            raise ValueError(f"the clock cannot be moved on by {ms} ms")
        async with self._moving:
            to_ms = self.now_ms() + ms
            begin(to_ms)
            await self._move_to(to_ms, settle)

    async def set(self, to_ms: int, settle: Settle = nothing_to_settle) -> None:
        """Sets it: forwards as `advance`. Backwards nothing fires but what is due before that; timers keep their times,
        and checks their ticks. ValueError for a time before 1970."""
        if to_ms < 0:
            raise ValueError(f"the clock cannot be set to {to_ms}")
        async with self._moving:
            now_ms = self.now_ms()
            await self._move_to(max(now_ms, to_ms), settle)
            if to_ms < now_ms:
                self._stand_at(to_ms)
                for check in self._checks.values():
                    check.next_ms = check.tick_from(to_ms + 1)
                self._disarm()
                self._arm()

    def _stand_at(self, now_ms: int) -> None:
        if self._frozen_ms is None:
            self._offset_ms = now_ms - self._wall()
        else:
            self._frozen_ms = now_ms

    async def _move_to(self, target_ms: int, settle: Settle) -> None:
        self._held_ms = self.now_ms()
        self._disarm()
        try:
            await settle()
            while (event := self._next(target_ms)) is not None:
                when_ms, timer = event
                self._held_ms = max(self._held_ms, when_ms)
                self._call(timer)
                await settle()
            self._passed(target_ms, None)
            self._held_ms = target_ms
        finally:
            reached_ms, self._held_ms = self._held_ms, None
            self._stand_at(reached_ms)
            self._arm()

    def _next(self, target_ms: int) -> tuple[int, OneShot | _Check] | None:
        """Takes what fires next up to the target, with its time: None if nothing does."""
        once_ms = self._next_once_ms()
        last_ms = target_ms if once_ms is None else min(target_ms, once_ms - 1)
        found: tuple[int, _Check] | None = None
        for check in self._checks.values():
            if check.next_ms > last_ms:  # not even asked: that looks at every partition
                continue
            wanted_ms = self._wanted_ms(check)
            if wanted_ms is not None and wanted_ms <= last_ms:
                found, last_ms = (wanted_ms, check), wanted_ms - 1
        if found is not None:
            self._passed(*found)
        elif once_ms is not None and once_ms <= target_ms:
            self._passed(once_ms - 1, None)
            return once_ms, self._once.pop()[2]
        return found

    def _wanted_ms(self, check: _Check) -> int | None:
        if self._skips:
            try:
                return check.wanted_ms()
            except Exception as error:  # then the check itself is to find out
                self._loop.call_exception_handler({"message": "a check cannot say when it is due", "exception": error})
        return check.next_ms

    def _passed(self, when_ms: int, fired: _Check | None) -> None:
        """The ticks up to a time have passed, made or not: at that time those of the checks up to the one that fires,
        with None of all."""
        for check in self._checks.values():
            first_ms = when_ms + 1 if fired is None or check.order <= fired.order else when_ms
            if check.next_ms < first_ms:
                check.next_ms = check.tick_from(first_ms)

    # Coming back

    def note(self) -> ClockNote:
        """Where it stands."""
        return ClockNote(self._frozen_ms, self._offset_ms if self._frozen_ms is None else self.offset_ms)

    def renewed(self, note: ClockNote | None = None) -> VirtualClock:
        """A clock without timers, for a broker's next life, where `note` says or where this one stands; this one's
        timers are forgotten."""
        clock = VirtualClock(self._loop, wall=self._wall, skips=self._skips)
        clock._frozen_ms, clock._offset_ms = note or self.note()
        self.forget()
        return clock

    def forget(self) -> None:
        """Forgets all timers: nothing fires any more but what is set up from here on."""
        self._once.clear()
        self._checks.clear()
        self._disarm()

"""A clock for tests: it follows the machine's clock until a test freezes, sets or advances it.

Owns the broker's timers and the order in which they fire during a move: each at its own time, one after the other, and
the next one after the effects of the last one have settled. Waits in real time (a client's max_wait_ms, sockets,
throttling by faults) use `BrokerState.waits` and not this clock.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from ..protocol.named import NamedTuple
from .clock import OneShot, OneShots, Timer, call_timer, wall_ms

Settle = Callable[[], Awaitable[Any]]


async def nothing_to_settle() -> None:
    """Settles nothing: for clocks whose timers have no effects outside their callbacks."""


class ClockNote(NamedTuple):
    """The state of a clock, to restore it later: the time of a frozen clock, else its offset to the machine's clock."""

    frozen_ms: int | None
    offset_ms: int


class _Check:
    """A repeated check. Its ticks are at `next_ms` plus or minus whole intervals."""

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
        """The first tick at or after a time, in the past or in the future."""
        return when_ms + (self.next_ms - when_ms) % self.interval_ms

    def wanted_ms(self) -> int | None:
        """The first future tick at which the callback has something to do, or None."""
        if self.due is None:
            return self.next_ms
        due_ms = self.due()
        return None if due_ms is None else self.next_ms if due_ms <= self.next_ms else self.tick_from(due_ms)


class VirtualClock:
    """A `Clock` on an event loop that can be frozen, set and advanced. All methods are called on that loop.

    At equal times, calls of `call_at` fire first, in the order in which they were scheduled, and then the checks of
    `call_every`, in theirs. A move by hours skips the ticks at which a check has nothing to do, as its `due` reports;
    with `skips` False every tick fires, to the same effect. While the clock runs by itself, every tick fires.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, wall: Callable[[], int] = wall_ms, skips: bool = True
    ) -> None:
        self._loop = loop
        self._wall = wall
        self._skips = skips
        self._offset_ms = 0
        self._frozen_ms: int | None = None
        self._held_ms: int | None = None  # the time at which it stands during a move
        self._moving = asyncio.Lock()
        self._once = OneShots()
        self._checks: dict[int, _Check] = {}
        self._order = itertools.count()
        self._armed: tuple[float, asyncio.Handle] | None = None  # (deadline, handle) of the loop's timer

    # Reading the time

    def now_ms(self) -> int:
        """The current time; during a move, the time of the timer that fires."""
        if self._held_ms is not None:
            return self._held_ms
        return self._wall() + self._offset_ms if self._frozen_ms is None else self._frozen_ms

    @property
    def is_frozen(self) -> bool:
        """Whether the clock stands still between moves."""
        return self._frozen_ms is not None

    @property
    def offset_ms(self) -> int:
        """Milliseconds by which this clock is ahead of the machine's."""
        return self.now_ms() - self._wall()

    # Timers

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """Schedules a call at `when_ms`, while the clock runs or during a move. A past time fires soon, also on a
        frozen clock.
        """
        timer = OneShot(callback, args)
        self._once.add(when_ms, timer)
        self._arm()
        return timer

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """Schedules a call at each interval from now on. After the clock was set back, ticks keep their phase."""
        first_ms = self.now_ms() + interval_ms
        check = _Check(self._checks, next(self._order), first_ms, interval_ms, callback, due)
        self._arm()
        return check

    def _arm(self) -> None:
        """Arms the loop's timer for the next event, except during a move, which fires timers itself."""
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
            if self._armed[0] <= at:  # that wake-up comes earlier and arms again
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
        """Fires the timers that are due, except during a move, which fires them itself."""
        if self._held_ms is not None:
            return
        when_ms = self._once.next_at
        if when_ms is not None and when_ms <= self.now_ms():
            self._fire_passed()
            self._arm()

    def _fire_passed(self) -> None:
        """Fires the timers that are due. A check with several passed ticks, as after the machine slept, fires once."""
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
                if order not in self._checks:  # cancelled by an earlier timer
                    continue
                timer.next_ms = timer.tick_from(now_ms + 1)
            self._call(timer)

    def _call(self, timer: OneShot | _Check) -> None:
        call_timer(self._loop, OneShot(timer.callback, ()) if isinstance(timer, _Check) else timer)

    # Moving the time

    def freeze(self) -> None:
        """Stops the clock now; during a move, at the end of the move."""
        if self._frozen_ms is None:
            self._frozen_ms = self.now_ms()
        self._disarm()
        self._arm()

    def run(self) -> None:
        """Lets the clock run from its present time, at the speed of the machine's clock."""
        if self._frozen_ms is not None:
            self._offset_ms = self.now_ms() - self._wall()
            self._frozen_ms = None
            self._arm()

    async def advance(
        self, ms: int, settle: Settle = nothing_to_settle, begin: Callable[[int], Any] = lambda to_ms: None
    ) -> None:
        """Advances the time by `ms` (>= 0): timers fire at their own times, including timers that callbacks add.

        `begin` is called first, with the target time. `settle` is awaited after each timer and returns when its effects
        have settled. A running clock stands still during the move and resumes at its end. Moves run one at a time.
        Raises ValueError for a negative `ms`.
        """
        if ms < 0:
            raise ValueError(f"the clock cannot be moved on by {ms} ms: only forwards, by 0 ms or more")
        async with self._moving:
            to_ms = self.now_ms() + ms
            begin(to_ms)
            await self._move_to(to_ms, settle)

    async def set(self, to_ms: int, settle: Settle = nothing_to_settle) -> None:
        """Sets the time. A later time acts like `advance`. An earlier one first fires the timers that are due now;
        after it, timers keep their times and checks their phase. Raises ValueError for a time before 1970.
        """
        if to_ms < 0:
            raise ValueError(f"the clock cannot be set to {to_ms}: a time is in milliseconds since 1970, 0 or more")
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
        """Removes the next event up to the target. Returns it with its time, or None if there is none."""
        once_ms = self._next_once_ms()
        last_ms = target_ms if once_ms is None else min(target_ms, once_ms - 1)
        found: tuple[int, _Check] | None = None
        for check in self._checks.values():
            if check.next_ms > last_ms:  # `due` is not evaluated either: it iterates over all partitions
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
            except Exception as error:  # the check fires then, and the error shows there
                self._loop.call_exception_handler({"message": "due time of a check failed", "exception": error})
        return check.next_ms

    def _passed(self, when_ms: int, fired: _Check | None) -> None:
        """Marks the ticks up to `when_ms` as passed. A tick at `when_ms` itself counts only for `fired` and for checks
        that were added before it, or for all checks if `fired` is None.
        """
        for check in self._checks.values():
            first_ms = when_ms + 1 if fired is None or check.order <= fired.order else when_ms
            if check.next_ms < first_ms:
                check.next_ms = check.tick_from(first_ms)

    # Saving and restoring

    def note(self) -> ClockNote:
        """The state of the clock, for `renewed`."""
        return ClockNote(self._frozen_ms, self._offset_ms if self._frozen_ms is None else self.offset_ms)

    def renewed(self, note: ClockNote | None = None) -> VirtualClock:
        """Returns a clock without timers for the next broker state, at the time of `note` or else of this clock. The
        timers of this clock are dropped.
        """
        clock = VirtualClock(self._loop, wall=self._wall, skips=self._skips)
        clock._frozen_ms, clock._offset_ms = note or self.note()
        self.forget()
        return clock

    def forget(self) -> None:
        """Drops all timers. Timers that are added later fire as usual."""
        self._once.clear()
        self._checks.clear()
        self._disarm()

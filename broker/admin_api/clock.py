"""The broker's clock for tests: frozen, running, set, or advanced with everything that becomes due.

Decides what a move means for the whole broker: the effects that it waits for, and whether members of groups survive it.
The clock itself is in `virtual_clock`. A broker that uses the machine's clock refuses these operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.frozen import frozen
from ..virtual_clock import VirtualClock
from .views import OperationError, Unavailable, whole

if TYPE_CHECKING:
    from ..clock import Clock
    from ..network.server import Running

LATEST_MS = 253_402_300_799_999  # the end of the year 9999


@frozen
class ClockState:
    """The broker's time in ms since 1970, whether the clock is frozen, and how far it is ahead of the machine's
    clock."""

    now_ms: int
    is_frozen: bool
    offset_ms: int


def state_of(clock: Clock) -> ClockState:
    """Returns the state of any clock."""
    is_frozen, offset_ms = (clock.is_frozen, clock.offset_ms) if isinstance(clock, VirtualClock) else (False, 0)
    return ClockState(clock.now_ms(), is_frozen, offset_ms)


class ClockControl:
    """The operations on the clock. Every method is called on the broker's loop, and returns the state of the clock
    after it.

    The virtual clock drives retention, rolls of segments and the deletion of their files, the expiry of offsets,
    producers and transactional ids, the timeouts of sessions, rebalances and transactions, quotas and their throttle
    times, and the timestamps of LogAppendTime. Real time drives the waits of fetches, throttling by faults, sockets,
    syncs and checkpoints.
    """

    def __init__(self, running: Running) -> None:
        self._running = running

    @property
    def _clock(self) -> VirtualClock:
        clock = self._running.state.clock
        if not isinstance(clock, VirtualClock):
            raise Unavailable("this broker uses the machine's clock, which cannot be changed")
        return clock

    async def state(self) -> ClockState:
        """Returns the state of the clock."""
        return state_of(self._clock)

    async def freeze(self) -> ClockState:
        """Freezes the clock until it is moved or runs again. Sessions and transactions do not expire meanwhile; a group
        that waits for more members (`group.initial.rebalance.delay.ms`), or for late ones, waits until then, too."""
        self._clock.freeze()
        return await self.state()

    async def run(self) -> ClockState:
        """Runs the clock from its present time, as fast as the machine's."""
        self._clock.run()
        return await self.state()

    async def set(self, ms: int) -> ClockState:
        """Sets the clock to a time (ms since 1970). Forwards it works like `advance`; backwards nothing becomes due,
        and stored times do not change."""
        await self._clock.set(_time(ms), self._running.state.settle)
        return await self.state()

    async def advance(self, ms: int, keep_members: bool = False) -> ClockState:
        """Advances the clock: everything that becomes due happens in order, each event at its own time, and is done on
        return.

        With `keep_members` the present members of groups survive, as if they had sent heartbeats.
        """
        clock, state = self._clock, self._running.state
        if whole("ms", ms) < 0:
            raise OperationError(f"the clock is advanced by 0 ms or more, not by {ms}; to go back, set it")
        _time(clock.now_ms() + ms)
        if not keep_members:
            await clock.advance(ms, state.settle)
            return await self.state()
        try:
            await clock.advance(ms, state.settle, state.groups.refresh_members)
        finally:
            state.groups.refreshed()
        return await self.state()


def _time(ms: int) -> int:
    if not 0 <= whole("ms", ms) <= LATEST_MS:
        raise OperationError(f"{ms} is not a time between 1970 and 9999, in ms since 1970")
    return ms

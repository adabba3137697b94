"""The broker's clock as tests move it: frozen, going on, set, moved on with all that becomes due.

Owns what a move means for the whole broker: which effects it waits for, and whether members of groups live through it.
The clock itself is `virtual_clock`'s; a broker whose clock is the machine's cannot be told what time it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..virtual_clock import VirtualClock
from .views import OperationError, whole

if TYPE_CHECKING:
    from ..network.server import Running

LATEST_MS = 253_402_300_799_999  # the end of the year 9999


@dataclass(frozen=True, slots=True)
class ClockState:
    """The broker's time in ms since 1970, whether it stands, and how far it is ahead of the machine's clock."""

    now_ms: int
    is_frozen: bool
    offset_ms: int


class ClockControl:
    """See the module. Every method is called on the broker's loop; each returns how the clock stands after it.

    Virtual are retention, rolls of segments and the deletion of their files, the expiry of offsets, producers and
    transactional ids, the time-outs of sessions, rebalances and transactions, quotas and the pauses that they ask for,
    and the timestamps of LogAppendTime. Real are the waits of fetches, throttles by faults, sockets, syncs and
    checkpoints.
    """

    def __init__(self, running: Running) -> None:
        self._running = running

    @property
    def _clock(self) -> VirtualClock:
        clock = self._running.state.clock
        if not isinstance(clock, VirtualClock):
            raise OperationError("this broker goes by the machine's clock")
        return clock

    async def _settle(self) -> None:
        await self._running.state.settle()

    @property
    def now_ms(self) -> int:
        """The broker's time."""
        return self._running.state.clock.now_ms()

    async def state(self) -> ClockState:
        """How the clock stands."""
        clock = self._clock
        return ClockState(clock.now_ms(), clock.is_frozen, clock.offset_ms)

    async def freeze(self) -> ClockState:
        """Has it stand still until it is moved or runs again. Sessions and transactions last until then; a group that
        waits for more members (`group.initial.rebalance.delay.ms`), or for who is late, waits until then, too."""
        self._clock.freeze()
        return await self.state()

    async def run(self) -> ClockState:
        """Has it go on from where it stands, as fast as the machine's."""
        self._clock.run()
        return await self.state()

    async def set(self, ms: int) -> ClockState:
        """Sets it to a time (ms since 1970). Forwards as `advance`; backwards nothing happens, and what has a time
        keeps it."""
        await self._clock.set(_time(ms), self._settle)
        return await self.state()

    async def advance(self, ms: int, keep_members: bool = False) -> ClockState:
        """Moves it on: what becomes due happens in its order, each thing at its own time, and is done on return.

        With `keep_members` the members that groups have now live through it, as if their heartbeats had come.
        """
        clock = self._clock
        if whole("ms", ms) < 0:
            raise OperationError(f"the clock cannot be moved on by {ms} ms; set it to go back")
        _time(clock.now_ms() + ms)
        if not keep_members:
            await clock.advance(ms, self._settle)
            return await self.state()
        groups = self._running.state.groups
        try:
            await clock.advance(ms, self._settle, groups.refresh_members)
        finally:
            groups.refreshed()
        return await self.state()


def _time(ms: int) -> int:
    if not 0 <= whole("ms", ms) <= LATEST_MS:
        raise OperationError(f"{ms} is no time between 1970 and 9999")
    return ms

"""The broker's clock for a test in another thread or on another loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, TypeVar

from ..admin_api.calls import Awaited, Blocking, Caller, operation
from ..admin_api.clock import ClockControl
from ..admin_api.operations import Operations

P = ParamSpec("P")
R = TypeVar("R")


def _moving(method: Callable[Concatenate[ClockControl, P], Awaitable[R]]) -> operation[P, R]:
    """Returns a method of the clock as an operation that excludes other operations on the whole state."""

    async def work(operations: Operations, *args: P.args, **kwargs: P.kwargs) -> R:
        return await operations.moving(lambda clock: method(clock, *args, **kwargs))

    return operation(work, described=method)


class _ClockCalls:
    state = _moving(ClockControl.state)
    """Returns the state of the clock."""
    freeze = _moving(ClockControl.freeze)
    """Freezes the clock until it is moved or runs again."""
    run = _moving(ClockControl.run)
    """Runs the clock from its present time."""
    set = _moving(ClockControl.set)
    """Sets the clock to a time in ms since 1970."""
    advance = _moving(ClockControl.advance)
    """Advances the clock by milliseconds; everything that becomes due happens on the way."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller


class ClockView(_ClockCalls, Blocking):
    """`ClockControl` for another thread: each method returns when it is done."""

    @property
    def now_ms(self) -> int:
        """The broker's time, in ms since 1970."""
        return self.state().now_ms

    @property
    def is_frozen(self) -> bool:
        """Whether the clock is frozen."""
        return self.state().is_frozen

    @property
    def offset_ms(self) -> int:
        """How far the clock is ahead of the machine's."""
        return self.state().offset_ms


class AsyncClockView(_ClockCalls, Awaited):
    """`ClockControl` for coroutines of another loop."""

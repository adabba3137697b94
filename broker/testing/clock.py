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
    """A method of the clock as an operation, done while nothing else is done to the state as a whole."""

    async def work(operations: Operations, *args: P.args, **kwargs: P.kwargs) -> R:
        return await operations.moving(lambda clock: method(clock, *args, **kwargs))

    return operation(work, described=method)


class _ClockCalls:
    state = _moving(ClockControl.state)
    """How the clock stands."""
    freeze = _moving(ClockControl.freeze)
    """Stops the clock until it is moved or runs again."""
    run = _moving(ClockControl.run)
    """Has the clock go on from where it stands."""
    set = _moving(ClockControl.set)
    """Sets the clock to a time in ms since 1970."""
    advance = _moving(ClockControl.advance)
    """Moves the clock on, with all that becomes due on the way."""

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
        """Whether it stands still."""
        return self.state().is_frozen

    @property
    def offset_ms(self) -> int:
        """How far it is ahead of the machine's clock."""
        return self.state().offset_ms


class AsyncClockView(_ClockCalls, Awaited):
    """`ClockControl` for coroutines of another loop."""

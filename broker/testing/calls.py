"""Operations of a broker in another thread, each written once as a coroutine and callable in two ways.

A class lists its operations as `name = operation(coroutine_function)`. In a subclass of `Blocking` the method returns
what the coroutine returns; in a subclass of `Awaited` it is a coroutine of the caller's loop. Parameters and results
keep their types in both.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

if TYPE_CHECKING:
    from ..admin_api.operations import Operations
    from .broker_thread import BrokerThread

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")
X = TypeVar("X")


class _View:
    def __init__(self, caller: BrokerThread) -> None:
        self.caller = caller
        """Runs the operations."""


class Blocking(_View):
    """An object whose operations return when they are done."""


class Awaited(_View):
    """An object whose operations are awaited."""


def _as_is(found: Any) -> Any:
    return found


class operation(Generic[P, R]):
    """A method that runs `work(operations, ...)` on the broker's loop, and then `finish` on its result in the caller's
    thread, so that the traceback of an AssertionError raised by `finish` has no frames of the broker."""

    @overload
    def __init__(
        self: operation[Q, T],
        work: Callable[Concatenate[Operations, Q], Awaitable[T]],
        *,
        described: Callable[..., Any] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: operation[Q, T],
        work: Callable[Concatenate[Operations, Q], Awaitable[X]],
        *,
        finish: Callable[[X], T],
        described: Callable[..., Any] | None = None,
    ) -> None: ...
    def __init__(
        self, work: Any, *, finish: Callable[[Any], Any] = _as_is, described: Callable[..., Any] | None = None
    ) -> None:
        """`described` is the function whose name, parameters and docstring the method gets; by default `work`."""

        @functools.wraps(described or work)
        def blocking(view: Blocking, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return finish(view.caller.call(_bound(work, args, kwargs)))

        @functools.wraps(described or work)
        async def awaited(view: Awaited, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return finish(await view.caller.call_awaited(_bound(work, args, kwargs)))

        self._blocking, self._awaited = blocking, awaited

    @overload
    def __get__(self, view: Blocking, owner: Any) -> Callable[P, R]: ...
    @overload
    def __get__(self, view: Awaited, owner: Any) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __get__(self, view: None, owner: Any) -> Callable[..., Any]: ...
    def __get__(self, view: Any, owner: Any) -> Any:
        function: Any = self._awaited if issubclass(owner, Awaited) else self._blocking
        return function if view is None else function.__get__(view, owner)


def _bound(work: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Operations], Awaitable[Any]]:
    """Returns the work with its arguments. Iterators are exhausted in the caller's thread: they may call the broker."""
    read = [_exhausted(one) for one in args]
    named = {name: _exhausted(one) for name, one in kwargs.items()}
    return lambda operations: work(operations, *read, **named)


def _exhausted(argument: Any) -> Any:
    if isinstance(argument, Iterator):
        return list(cast("Iterator[Any]", argument))
    return argument

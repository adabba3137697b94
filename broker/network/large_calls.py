"""Requests and responses with many entries: read and built in cooperative steps, so that other connections are served.

Owns what stands in the place of a `router.Call` meanwhile. Most requests never come here: the router reads up to
ITEMS_AT_ONCE items in one go, and a response is built in one go unless its handler yielded between entries.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, cast

from ...protocol.compiler import build_steps, step_parser
from ...protocol.errors import MalformedMessage, ProtocolViolation
from ...protocol.primitives import request_items_max
from .router import Call, failure, handling_of

if TYPE_CHECKING:
    from ..context import RequestContext
    from ..testing.faults.injection import FaultedCall
    from .router import Route


class LargeCall:
    """A request that is read in steps, and then handled as the call that it becomes.

    `frame` belongs to the call. A request with more items than `request_items_max` closes the connection.
    """

    def __init__(self, frame: memoryview, position: int, route: Route, context: RequestContext, header: bytes) -> None:
        self._context = context
        self._made: Call | FaultedCall = Call(None, None, header, context.api_version, route, context.client_id)
        self.coroutine = self._run(frame, position)
        faults = context.broker.faults
        self.is_faulted = faults is not None and bool(faults.requests)
        self.connection: Any = None
        """The `ClientConnection`, where rules of fault injection may fire."""
        self.last_bytes = b""
        self.fault = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    async def _run(self, frame: memoryview, position: int) -> Any:
        context, route = self._context, self._made.route
        version, size = context.api_version, len(frame)
        context.begin_steps()
        steps = step_parser(route.request_class, version)(frame, position, request_items_max(size))
        try:
            request = await context.broker.turns.run(steps)
        except MalformedMessage as error:
            raise ProtocolViolation(str(error)) from None
        made = handling_of(request, size, route, context, self._made.header)
        del request, frame, steps
        self._made = made
        if not made.is_faulted:
            return await _driven(made.coroutine)
        faulted = cast("FaultedCall", made)
        faulted.connection = self.connection
        try:
            return await _driven(faulted.coroutine)
        finally:
            self.fault = faulted.fault

    def in_steps(self, response: Any) -> BuildingCall | None:
        """As of `Call`."""
        return None if response is None or self._made.is_faulted else BuildingCall(self, self._context, response)

    def parts(self, response: Any) -> list[Any]:
        """As of `Call`."""
        try:
            return self._made.parts(response)
        finally:
            self.last_bytes = getattr(self._made, "last_bytes", b"")


class BuildingCall:
    """A call whose handler has returned, while the response is built in steps. Its `coroutine` returns the response."""

    def __init__(self, made: Any, context: RequestContext, response: Any) -> None:
        self._made = made
        self._context = context
        self._parts: list[Any] = []
        self.coroutine = self._build(response)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    async def _build(self, response: Any) -> Any:
        context = self._context
        try:
            pieces = await context.turns.run(build_steps(response, context.api_version))
        except MalformedMessage as error:  # the handler's defect, see `Call.parts`
            self._parts = failure(self, RuntimeError(f"{self.route.name} v{context.api_version}: {error}"))
        else:
            self._parts = [self.header, *pieces]
        return response

    def in_steps(self, response: Any) -> None:
        """It is done."""

    def parts(self, response: Any) -> list[Any]:
        """As of `Call`."""
        return self._parts


@types.coroutine
def _driven(coroutine: Coroutine[Any, Any, Any] | None) -> Generator[Any, Any, Any]:
    """Awaits a handler's coroutine, or what stands in its place and is sent to and closed like one."""
    assert coroutine is not None
    try:
        while True:
            yield coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        coroutine.close()

"""Requests and responses with many entries: read and built in cooperative steps, so that other connections are served.

Owns the two runners that add these steps before and after the handler. Few requests need them: the router reads up to
ITEMS_AT_ONCE items in one go, and a response is built in one go unless its handler yielded between entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.compiler import build_steps
from ...protocol.errors import MalformedMessage
from .request_runner import HandlerRunner, Recipient, RequestRunner, WrappingRunner, unwritable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from ..context import RequestContext
    from .route import Route


class LargeRequestRunner(WrappingRunner):
    """Runs the coroutine that reads a request, and then the runner that the coroutine returns."""

    __slots__ = ("_is_read", "_recipient")

    def __init__(
        self, reading: Coroutine[Any, Any, RequestRunner], route: Route, header: bytes, context: RequestContext
    ) -> None:
        super().__init__(HandlerRunner(reading, route, header, context))
        self._is_read = False

    @property
    def response(self) -> Any:
        return self._inner.response if self._is_read else None

    def start(self, recipient: Recipient) -> asyncio.Future[Any] | None:
        self._recipient = recipient
        return self.resume()

    def resume(self) -> asyncio.Future[Any] | None:
        future = self._inner.resume()
        if future is None and not self._is_read:
            self._inner, self._is_read = self._inner.response, True
            future = self._inner.start(self._recipient)
        return future


class LargeResponseRunner(WrappingRunner):
    """Builds the response of a runner whose handler has returned, in cooperative steps."""

    __slots__ = ("_building",)

    def __init__(self, inner: RequestRunner) -> None:
        super().__init__(inner)
        self._building = HandlerRunner(self._build(), inner.route, inner.header, inner.context)

    async def _build(self) -> list[Any]:
        context = self.context
        try:
            pieces = await context.scheduler.run(build_steps(self.response, context.api_version))
        except MalformedMessage as error:
            return unwritable(self, error)
        return [self.header, *pieces]

    @property
    def is_large(self) -> bool:
        return False

    def start(self, recipient: Recipient) -> asyncio.Future[Any] | None:
        return self._building.start(recipient)

    def resume(self) -> asyncio.Future[Any] | None:
        return self._building.resume()

    def close(self) -> None:
        self._building.close()

    def parts(self) -> list[Any]:
        return self._building.response

"""Runs the handler of one request step by step on the event loop, without a task per request.

Owns `RequestRunner`, the interface between a connection and everything that runs a request: the plain handler here,
quotas (metered_runner.py), rules of fault injection and requests with many entries (large_requests.py), which
wrap it.

A task costs more than most handlers: it is scheduled, and its response leaves one iteration of the loop later. Most
handlers never wait, so `start` runs them to their end within the read event that brought the request. A handler that
waits yields the future of its `await`; the connection calls `resume` when that future is done. This is the protocol
between asyncio.Task and its coroutine, of which two parts are private: a future yields itself, and marks that with
`_asyncio_future_blocking`. tests/broker/network/test_request_runner.py pins both, on asyncio's loop and on uvloop's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ...protocol.compiler import builder
from ...protocol.errors import MalformedMessage, ProtocolViolation
from ...protocol.schema import empty_value
from ..errors import Refused, code_of

if TYPE_CHECKING:
    import asyncio

    from ..clock import Timer
    from ..context import RequestContext
    from .route import Route

Mutes: TypeAlias = "Sequence[Callable[[Callable[[], object]], Timer | asyncio.Handle]]"
"""Delays before the next request of a connection is read: each is called with a callback and calls it when the delay is
over."""


class Recipient(Protocol):
    """The connection that a response goes to, for a runner that holds the response up."""

    def is_wanted(self) -> bool:
        """Whether the client may still read the response, and the broker is not stopping."""
        ...

    def abort(self) -> None: ...


class ResponseContext(Protocol):
    """The parts of a request that its response is built with."""

    @property
    def route(self) -> Route: ...

    @property
    def context(self) -> RequestContext: ...

    @property
    def header(self) -> bytes: ...

    @property
    def throttle_ms(self) -> int:
        """The throttle time that quotas put into the response, also into one with an error."""
        ...


class RequestRunner(ResponseContext, Protocol):
    """One request on its way from its handler to its response.

    The caller calls `start` once, then `resume` after each future that is returned, until None is returned: then
    `response` is set and `parts` builds it. `close` ends the handler where it waits, with GeneratorExit.
    """

    @property
    def client_id(self) -> str: ...

    @property
    def response(self) -> Any:
        """The response after the handler has returned; None before, and for a request without one (acks=0)."""
        ...

    @property
    def is_large(self) -> bool:
        """Whether the response is to be built in cooperative steps, by `large_requests.ResponseRunner`."""
        ...

    @property
    def mutes(self) -> Mutes:
        """Delays before the connection's next request, once the handler has returned."""
        ...

    @property
    def fault(self) -> str | None:
        """The rules of fault injection that fired so far, for people; None without any."""
        ...

    @property
    def is_held(self) -> bool:
        """Whether the request waits for nothing but a rule of fault injection."""
        ...

    @property
    def last_bytes(self) -> bytes:
        """The bytes to send before the connection is closed for a ProtocolViolation: the start of a truncated
        response, with its size."""
        ...

    def start(self, recipient: Recipient) -> asyncio.Future[Any] | None:
        """Runs the handler to its first wait. Returns the future that it waits for, None after its return. Raises what
        the handler raises."""
        ...

    def resume(self) -> asyncio.Future[Any] | None:
        """Runs the handler to its next wait, as `start`."""
        ...

    def close(self) -> None:
        """Ends a handler that waits: the connection is gone."""
        ...

    def parts(self) -> list[Any]:
        """The bytes of the response, in pieces; none for None. Raises ProtocolViolation if the connection is to be
        closed instead."""
        ...


class CoroutineRunner:
    """Runs a coroutine that returns the response. Subclasses have the `mutes` and the `fault` of a `RequestRunner`."""

    __slots__ = ("_coroutine", "context", "header", "response", "route")

    throttle_ms = 0
    is_held = False
    last_bytes = b""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], route: Route, header: bytes, context: RequestContext
    ) -> None:
        self._coroutine = coroutine
        self.route = route
        self.header = header
        self.context = context
        self.response: Any = None

    @property
    def client_id(self) -> str:
        return self.context.client_id

    @property
    def is_large(self) -> bool:
        return self.context.is_in_steps and self.response is not None

    def start(self, recipient: Recipient) -> asyncio.Future[Any] | None:
        return self.resume()

    def resume(self) -> asyncio.Future[Any] | None:
        try:
            future = self._coroutine.send(None)
        except StopIteration as stop:
            self.response = stop.value
            return None
        future._asyncio_future_blocking = False  # as a task does when its coroutine yields a future
        return future

    def close(self) -> None:
        self._coroutine.close()

    def parts(self) -> list[Any]:
        """Builds the response, as `RequestRunner.parts`. A value that the version cannot carry is a defect of the
        handler: the client receives UNKNOWN_SERVER_ERROR.
        """
        response = self.response
        if response is None:
            return []
        out = [self.header]
        try:
            builder(response.__class__, self.context.api_version)(response, out.append)
        except MalformedMessage as error:
            return unwritable(self, error)
        return out


class HandlerRunner(CoroutineRunner):
    """Runs the handler of a request, which it keeps."""

    __slots__ = ("request",)

    mutes: Mutes = ()
    fault: str | None = None

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        route: Route,
        header: bytes,
        context: RequestContext,
        request: Any = None,
    ) -> None:
        super().__init__(coroutine, route, header, context)
        self.request = request


class WrappingRunner:
    """Runs a request by another runner, which does all that a subclass does not override."""

    __slots__ = ("_inner", "context", "header", "route")

    def __init__(self, inner: RequestRunner) -> None:
        self._inner = inner
        self.route = inner.route
        self.header = inner.header
        self.context = inner.context

    @property
    def client_id(self) -> str:
        return self.context.client_id

    @property
    def response(self) -> Any:
        return self._inner.response

    @property
    def is_large(self) -> bool:
        return self._inner.is_large

    @property
    def throttle_ms(self) -> int:
        return self._inner.throttle_ms

    @property
    def mutes(self) -> Mutes:
        return self._inner.mutes

    @property
    def fault(self) -> str | None:
        return self._inner.fault

    @property
    def is_held(self) -> bool:
        return self._inner.is_held

    @property
    def last_bytes(self) -> bytes:
        return self._inner.last_bytes

    def start(self, recipient: Recipient) -> asyncio.Future[Any] | None:
        return self._inner.start(recipient)

    def resume(self) -> asyncio.Future[Any] | None:
        return self._inner.resume()

    def close(self) -> None:
        self._inner.close()

    def parts(self) -> list[Any]:
        return self._inner.parts()


def unwritable(runner: ResponseContext, error: MalformedMessage) -> list[Any]:
    """The response with an error in place of one that its version cannot carry. Raises ProtocolViolation."""
    return failure(runner, RuntimeError(f"{runner.route.name} v{runner.context.api_version}: {error}"))


def failure(runner: ResponseContext, error: Exception) -> list[Any]:
    """The response to a request whose handler raised: the error code at the top, the message of a refusal, and no
    other field.

    Raises ProtocolViolation if `error` is one, and for an API whose responses have no error code at the top.
    """
    if isinstance(error, ProtocolViolation):
        raise error
    code = code_of(error)
    route, api_version = runner.route, runner.context.api_version
    response_class = getattr(sys.modules[route.request_class.__module__], f"{route.name}Response")
    response = empty_value(response_class)
    if "error_code" not in response._fields or api_version not in response._fields["error_code"].versions:
        raise ProtocolViolation(f"{route.name} failed, and its response has no field for an error")
    response.error_code = code
    place = response._fields.get("error_message")
    if place is not None and api_version in place.versions and isinstance(error, Refused) and error.message:
        response.error_message = error.message
    if runner.throttle_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = runner.throttle_ms
    out = [runner.header]
    builder(response_class, api_version)(response, out.append)
    return out

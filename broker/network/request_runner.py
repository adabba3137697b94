"""Runs the handler of one request step by step on the event loop, without a task per request.

Owns what a connection uses of everything that runs a request: `HandlerRunner`, of which rules of fault injection have a
subclass, and `WrappingRunner` around one, for quotas (metered_runner.py) and requests with many entries
(large_requests.py).

A task costs more than most handlers: it is scheduled, and its response leaves one iteration of the loop later. Most
handlers never wait, so `start` runs them to their end within the read event that brought the request. A handler that
waits yields the future of its `await`; the connection calls `resume` when that future is done. This is the protocol
between asyncio.Task and its coroutine, of which two parts are private: a future yields itself, and marks that with
`_asyncio_future_blocking`. tests/broker/network/test_request_runner.py pins both, on asyncio's loop and on uvloop's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ...protocol.compiler import builder
from ...protocol.errors import MalformedMessage, ProtocolViolation
from ...protocol.schema import empty_value, response_class
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


class HandlerRunner:
    """One request on its way from its handler, a coroutine that returns the response, to the bytes of that response.

    The caller calls `start` once, then `resume` after each future that is returned, until None is returned: then
    `response` is set and `parts` builds it. `close` ends the handler where it waits, with GeneratorExit.
    """

    __slots__ = ("_coroutine", "context", "header", "request", "response", "route")

    throttle_ms = 0
    """The throttle time that quotas put into the response, also into one with an error."""
    mutes: Mutes = ()
    """Delays before the connection's next request, once the handler has returned."""
    is_held = False
    """Whether the request waits for nothing but a rule of fault injection."""
    last_bytes = b""
    """The bytes to send before the connection is closed for a ProtocolViolation: the start of a truncated response,
    with its size."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        route: Route,
        header: bytes,
        context: RequestContext,
        request: Any = None,
    ) -> None:
        self._coroutine = coroutine
        self.route = route
        self.header = header
        self.context = context
        self.request = request
        self.response: Any = None
        """The response after the handler has returned; None before, and for a request without one (acks=0)."""

    @property
    def client_id(self) -> str:
        return self.context.client_id

    @property
    def is_large(self) -> bool:
        """Whether the response is to be built in cooperative steps, by `large_requests.LargeResponseRunner`."""
        return self.context.is_in_steps and self.response is not None

    @property
    def fault(self) -> str | None:
        """The rules of fault injection that fired so far, for people; None without any."""
        return None

    def start(self, recipient: Recipient) -> asyncio.Future[Any] | None:
        """Runs the handler to its first wait. Returns the future that it waits for, None after its return. Raises what
        the handler raises."""
        return self.resume()

    def resume(self) -> asyncio.Future[Any] | None:
        """Runs the handler to its next wait, as `start`."""
        try:
            future = self._coroutine.send(None)
        except StopIteration as stop:
            self.response = stop.value
            return None
        future._asyncio_future_blocking = False  # as a task does when its coroutine yields a future
        return future

    def close(self) -> None:
        """Ends a handler that waits: the connection is gone."""
        self._coroutine.close()

    def parts(self) -> list[Any]:
        """The bytes of the response, in pieces; none for None. A value that the version cannot carry is a defect of the
        handler: the client receives UNKNOWN_SERVER_ERROR. Raises ProtocolViolation if the connection is to be closed
        instead.
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


class WrappingRunner:
    """Runs a request by another runner, which does and has all that a subclass does not override."""

    __slots__ = ("_inner", "context", "header", "route")

    def __init__(self, inner: RequestRunner) -> None:
        self._inner = inner
        self.route = inner.route
        self.header = inner.header
        self.context = inner.context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def client_id(self) -> str:
        return self.context.client_id


RequestRunner: TypeAlias = HandlerRunner | WrappingRunner


def unwritable(runner: RequestRunner, error: MalformedMessage) -> list[Any]:
    """The response with an error in place of one that its version cannot carry. Raises ProtocolViolation."""
    return failure(runner, RuntimeError(f"{runner.route.name} v{runner.context.api_version}: {error}"))


def error_response(runner: RequestRunner, error: Exception) -> Any:
    """The response to a request whose handler raised: the error code at the top, the message of a refusal, and no
    other field.

    Raises ProtocolViolation if `error` is one, and for an API whose responses have no error code at the top.
    """
    if isinstance(error, ProtocolViolation):
        raise error
    code = code_of(error)
    route, api_version = runner.route, runner.context.api_version
    response = empty_value(response_class(route.request_class))
    if "error_code" not in response._fields or api_version not in response._fields["error_code"].versions:
        raise ProtocolViolation(f"{route.name} failed, and its response has no field for an error")
    response.error_code = code
    place = response._fields.get("error_message")
    if (
        place is not None
        and api_version in place.versions
        and isinstance(error, Refused)
        and error.message
        and not error.wordless
    ):
        response.error_message = error.message
    if runner.throttle_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = runner.throttle_ms
    return response


def failure(runner: RequestRunner, error: Exception) -> list[Any]:
    """The bytes of `error_response`, in pieces."""
    response = error_response(runner, error)
    out = [runner.header]
    builder(response.__class__, runner.context.api_version)(response, out.append)
    return out

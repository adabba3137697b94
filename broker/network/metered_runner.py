"""Runs a request under quotas: measures the steps of its handler and delays its response.

Owns the order for a throttled request: the charge comes after the handler, the throttle time enters the response before
it is built, and the response is delayed last. `quotas/meter.py` computes the charge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.errors import ProtocolViolation
from .request_runner import Mutes, Recipient, RequestRunner, WrappingRunner

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ..clock import Timer
    from ..quotas.meter import Meter


class MeteredRunner(WrappingRunner):
    """Charges a request for the steps of its handler and for building its response.

    The exception of a handler is raised when its response is due.
    """

    __slots__ = ("_error", "_held_back", "_meter")

    def __init__(self, inner: RequestRunner, meter: Meter) -> None:
        super().__init__(inner)
        self._meter = meter
        self._held_back: tuple[asyncio.Future[None], Timer] | None = None
        self._error: Exception | None = None

    @property
    def throttle_ms(self) -> int:
        return self._meter.throttle_ms

    @property
    def mutes(self) -> Mutes:
        return (*self._inner.mutes, *self._meter.mutes)

    def start(self, recipient: Recipient) -> asyncio.Future[Any] | None:
        return self._stepped(lambda: self._inner.start(recipient))

    def resume(self) -> asyncio.Future[Any] | None:
        if self._held_back is None:
            return self._stepped(self._inner.resume)
        if self._error is not None:
            raise self._error
        return None

    def _stepped(self, step: Callable[[], asyncio.Future[Any] | None]) -> asyncio.Future[Any] | None:
        meter = self._meter
        meter.begin_step()
        try:
            future = step()
        except ProtocolViolation:
            raise
        except Exception as error:
            meter.end_step()
            meter.charge()
            self._held_back = meter.hold_back()
            if self._held_back is None:
                raise
            self._error = error
            return self._held_back[0]
        finally:
            meter.end_step()
        return future if future is not None else self._returned()

    def _returned(self) -> asyncio.Future[None] | None:
        """Charges the request. Returns the future that its response waits for, or None."""
        meter, response = self._meter, self.response
        meter.charge()
        if meter.throttle_ms and response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, meter.throttle_ms)
        self._held_back = meter.hold_back()
        return None if self._held_back is None else self._held_back[0]

    def close(self) -> None:
        if self._held_back is not None:
            over, timer = self._held_back
            timer.cancel()
            over.cancel()
        self._inner.close()

    def parts(self) -> list[Any]:
        begun_ns = self._meter.timer()
        try:
            return self._inner.parts()
        finally:
            self._meter.add_time(self._meter.timer() - begun_ns)

"""What machines ask a control plane at its root: `/metrics` for Prometheus, `/health` and `/ready` for whoever starts
and watches processes. GET and HEAD.

Owns that the broker counts for as long as its control plane is served. What is counted is `broker/metrics`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..metrics.counters import RequestMetrics
from ..metrics.loop_lag import LoopLag
from .routes import health

if TYPE_CHECKING:
    from .plane import Plane

METRICS, HEALTH, READY = "/metrics", "/health", "/ready"


def add_to(app: web.Application, plane: Plane) -> None:
    """Adds these to a control plane."""
    observing = _Observing(plane)
    app.cleanup_ctx.append(observing.living)
    for path, handler in ((METRICS, observing.metrics), (HEALTH, observing.health), (READY, observing.ready)):
        app.router.add_get(path, handler)


class _Observing:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._lag: LoopLag | None = None

    async def living(self, app: web.Application) -> AsyncIterator[None]:
        """Counts from the start of the server to its end."""
        connections = self._plane.operations.running.connections
        if connections.metrics is None:
            connections.observe(RequestMetrics())
        self._lag = lag = LoopLag(asyncio.get_running_loop())
        lag.begin()
        yield
        lag.end()

    async def metrics(self, request: web.Request) -> web.Response:
        """All that there is to tell Prometheus."""
        try:
            from ..admin_api.scrape import scrape
        except ImportError:
            return _answer(501, {"error": "metrics need prometheus-client: pip install 'ottla[http]'"})
        running = self._plane.operations.running
        metrics, lag = running.connections.metrics, self._lag
        assert metrics is not None and lag is not None
        headers = request.headers
        told = await scrape(running, metrics, lag, headers.get("Accept", ""), headers.get("Accept-Encoding", ""))
        return web.Response(body=told.body, headers=told.headers)

    async def health(self, request: web.Request) -> web.Response:
        """Whether the broker lives: 503 when its disk has failed, until it is reset or restored."""
        told = await health(self._plane, None)  # type: ignore[arg-type]
        return _answer(200 if told["status"] == "serving" else 503, told)

    async def ready(self, request: web.Request) -> web.Response:
        """Whether clients can connect and are answered."""
        reason = self._plane.operations.running.unready
        return _answer(200 if reason is None else 503, {"ready": reason is None, "reason": reason})


def _answer(status: int, value: dict[str, Any]) -> web.Response:
    return web.json_response(value, status=status, headers={"Cache-Control": "no-store"})

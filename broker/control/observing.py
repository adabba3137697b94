"""Endpoints for machines at the root of the control plane: `/metrics` for Prometheus, `/health` and `/ready` for
process supervisors. GET and HEAD.

Metrics are counted while the control plane is served. The counters are in `broker/metrics/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..admin_api.overview import about
from ..metrics.counters import RequestMetrics
from ..metrics.histogram import LoopLag
from .access import HEALTH, METRICS, READY

if TYPE_CHECKING:
    from .plane import Plane


def add_to(app: web.Application, plane: Plane) -> None:
    """Adds the endpoints to a control plane."""
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
        """Returns all metrics in the format of Prometheus."""
        try:
            from ..admin_api.scrape import scrape
        except ImportError:
            return _respond(501, {"error": "metrics need prometheus-client: pip install 'ottla[http]'"})
        running = self._plane.operations.running
        metrics, lag = running.connections.metrics, self._lag
        assert metrics is not None and lag is not None
        accepted = request.headers.get("Accept", ""), request.headers.get("Accept-Encoding", "")
        body, headers = await scrape(running, metrics, lag, *accepted)
        return web.Response(body=body, headers=headers)

    async def health(self, request: web.Request) -> web.Response:
        """Returns whether the broker serves: 503 after its disk has failed, until a reset or restore."""
        found = about(self._plane.operations.running)
        return _respond(200 if found["status"] == "serving" else 503, found)

    async def ready(self, request: web.Request) -> web.Response:
        """Returns whether clients can connect and get responses."""
        reason = self._plane.operations.running.unready
        return _respond(200 if reason is None else 503, {"ready": reason is None, "reason": reason})


def _respond(status: int, value: dict[str, Any]) -> web.Response:
    return web.json_response(value, status=status, headers={"Cache-Control": "no-store"})

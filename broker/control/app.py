"""The control plane over HTTP: an aiohttp application on the broker's own loop.

The server, its bounds, and the conversion of requests and responses; the routes are in `routes.py`. No request can end
the broker: a body is bounded and checked before it is used, a refusal is one line of JSON, and an unexpected error is
logged and returned with status 500. Requests need a token unless the control plane listens on a loopback address alone,
see `access.py`; those from pages of other sites, in a browser on this machine, are refused, see `browsers.py`. The web
pages are in `web/`.

Needs the extra `http`: importing this module without aiohttp raises ImportError.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from ...protocol.text import visible
from ..admin_api.views import OperationError, status_of
from ..config.serve_options import ControlOptions, format_address
from ..logs import get_logger
from ..network.listener import SocketSettings, bind
from . import access, browsers, observing
from .decoding import convert, decode
from .openapi import PATH_PARAMETERS, document
from .plane import Plane
from .refusal import Refusal
from .route import BASE, PARAMETER, Call, Route
from .routes import ROUTES
from .web import site

if TYPE_CHECKING:
    from ..admin_api.operations import Operations

MAX_BODY_BYTES = 16 * 1024 * 1024
STOP_SECONDS = 1.0  # for requests that are running when the broker stops
BACKLOG = 128

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_PLANE = web.AppKey("plane", Plane)
_SILENT = logging.Logger("aiohttp", logging.CRITICAL + 1)  # malformed requests are no errors of the broker


class ControlServer:
    """A control plane that accepts requests at `url` and runs them with `operations`."""

    def __init__(self, url: str, runner: web.AppRunner, plane: Plane) -> None:
        self.url = url
        self.operations = plane.operations
        self.token = plane.access.token
        """The token that requests need; None if they need none."""
        self.new_token = self.token if plane.access.is_generated else None
        """The token, if it was generated at the start."""
        self._runner = runner
        self._plane = plane

    async def stop(self) -> None:
        """Stops accepting requests; running ones have STOP_SECONDS to end. A restore continues: `operations.stop`,
        which stops the broker, waits for it. Drops the snapshots."""
        await self._runner.cleanup()
        self._plane.close()


async def start_control(
    operations: Operations, options: ControlOptions, sock: socket.socket | None = None
) -> ControlServer:
    """Serves `operations` at the address of the options (port 0: a free port), or on `sock`, a bound socket.

    Runs on the broker's loop. Raises StartupError, one line, if it cannot listen at the address.
    """
    if sock is None:
        sock = bind(options.listener, SocketSettings())
    bound_host, bound_port = sock.getsockname()[:2]
    is_local = ipaddress.ip_address(bound_host.partition("%")[0]).is_loopback
    plane = Plane(operations, options, access.Access(options, is_local=is_local, port=bound_port))
    runner = web.AppRunner(
        application(plane), access_log=None, auto_decompress=False, shutdown_timeout=STOP_SECONDS, logger=_SILENT
    )
    await runner.setup()
    await web.SockSite(runner, sock, backlog=BACKLOG, ssl_context=options.tls).start()
    scheme = "http" if options.tls is None else "https"
    address = format_address(options.listener.host or bound_host, bound_port)
    return ControlServer(f"{scheme}://{address}", runner, plane)


def application(plane: Plane, routes: Iterable[Route] = ROUTES) -> web.Application:
    """Returns the application that serves `routes` and their OpenAPI document."""
    routes = tuple(routes)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_guard])
    app[_PLANE] = plane

    async def openapi(request: web.Request) -> web.Response:
        return web.Response(body=_described(routes), content_type="application/json")

    for route in routes:
        handler = openapi if route.name == "getOpenapi" else partial(_serve, plane, route)
        path = PARAMETER.sub(r"{\1:[^/]+}", route.path)  # aiohttp's own pattern excludes braces, as in a group id
        app.router.add_route(route.method, BASE + path, handler, name=route.name)
    site.add_to(app, plane)
    observing.add_to(app, plane)
    return app


@lru_cache(maxsize=2)
def _described(routes: tuple[Route, ...]) -> bytes:
    """Returns the OpenAPI document, made at the first request and once for all brokers of a process."""
    return msgspec.json.encode(document(routes))


@web.middleware
async def _guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Turns every error of a handler into a response: one line of JSON, or a page for a browser."""
    plane = request.app[_PLANE]
    resource = request.match_info.route.resource
    route = None if resource is None else resource.canonical
    may_write = plane.options.may_write or route in (access.LOGIN, access.LOGOUT)
    why = browsers.refusal(request.method, request.headers, plane.options.listener.host, may_write=may_write)
    if why is not None:  # as JSON: a page shows more of the broker
        return _respond({"error": visible(why)}, 403)
    why = plane.access.refusal(route, request.headers, request.cookies)
    if why is not None:
        return await _unauthorized(request, why)
    try:
        return await handler(request)
    except web.HTTPException as error:
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return _error(request, error.status, _reason(error, request), headers)
    except Refusal as refusal:
        return _error(request, refusal.status, refusal)
    except OperationError as error:
        return _error(request, status_of(error), error)
    except Exception as error:
        if error is request.content.exception():  # raised by a read of the body
            get_logger().info("upload aborted by the client", method=request.method, path=request.path)
            return _respond({"error": "the connection ended before the body"}, 400)
        get_logger().exception("control plane request failed", method=request.method, path=request.path)
        return _error(request, 500, f"{type(error).__name__}: {error}")


async def _unauthorized(request: web.Request, why: str) -> web.Response:
    """Returns a line of JSON, or the form in which a browser sends the token."""
    headers = access.challenge(request.headers)
    if site.is_wanted(request):
        wanted = request.path_qs if request.method in browsers.READING else "/"
        with contextlib.suppress(Refusal):  # raised without Jinja2
            return await site.login_form(wanted, status=401, headers=headers)
    return _respond({"error": why}, 401, headers)


def _reason(error: web.HTTPException, request: web.Request) -> str:
    if error.status == 404:
        return f"there is no {request.path}; {BASE}/openapi.json lists the routes"
    if error.status == 405:
        return f"{request.path} does not allow {request.method}"
    if error.status == 413:
        return f"the body is larger than {MAX_BODY_BYTES} bytes"
    return error.reason


def _error(request: web.Request, status: int, message: object, headers: dict[str, str] | None = None) -> web.Response:
    if site.is_wanted(request):
        with contextlib.suppress(Refusal):  # raised without Jinja2
            return site.refused(request.app[_PLANE], status, visible(message), headers)
    return _respond({"error": visible(message)}, status, headers)


def _respond(value: Any, status: int, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=encoded(value), status=status, content_type="application/json", headers=headers)


def encoded(value: Any) -> bytes:
    """Returns a line of JSON. Surrogates, which UTF-8 cannot encode, become JSON escapes."""
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=0) + b"\n"
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode() + b"\n"


async def _serve(plane: Plane, route: Route, request: web.Request) -> web.Response:
    path = {
        name: convert(text, PATH_PARAMETERS[name], name)
        for name, text in request.match_info.items()
        if name in route.parameters
    }
    call = Call(path, _query(route, request), await _body(route, request))
    return _respond(await route.act(plane, call), route.status)


def _query(route: Route, request: web.Request) -> Any:
    given = request.query
    for name in given:
        if len(given.getall(name)) > 1:
            raise Refusal(400, f"the parameter {name} is given twice")
    if route.query is not None:
        return convert(dict(given), route.query, "the query")
    if given:
        raise Refusal(400, f"{route.method} {request.path} takes no parameters")
    return None


async def _body(route: Route, request: web.Request) -> Any:
    raw = await request.read()
    if route.body is None:
        if raw:
            raise Refusal(400, f"{route.method} {request.path} takes no body")
        return None
    return route.body() if not raw and not route.needs_body else decode(raw, route.body)

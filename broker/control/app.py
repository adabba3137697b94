"""The control plane over HTTP: an aiohttp application on the broker's own loop.

Owns the server: sockets, bounds, the reading of requests, the writing of answers. What a request does is in the table
of `routes.py`. Nothing that a request holds can end the broker: a body is bounded and checked before it is acted on, a
refusal is one line of JSON, and a defect is answered with 500 and logged. There is no authentication. Pages of other
sites that a browser on this machine shows are kept out, see `browsers.py`. Its own page is `page/`'s.

Needs the extra `http`: importing this module without aiohttp raises ImportError.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from ...protocol.text import visible
from ..admin_api.views import OperationError, status_of
from ..config.serve_options import Listener, format_address
from ..logs import get_logger
from ..network.listener import SocketSettings, bind
from . import browsers, observing
from .decoding import convert, decode
from .models.parameters import PATH_PARAMETERS
from .openapi import document
from .plane import Plane
from .refusal import Refusal
from .route import BASE, Call, Route
from .routes import ROUTES
from .web import site

if TYPE_CHECKING:
    from ..admin_api.operations import Operations
    from ..record_schemas.schemas import Schemas

MAX_BODY_BYTES = 16 * 1024 * 1024
STOP_SECONDS = 1.0  # for answers in flight when the broker stops
BACKLOG = 128

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_PLANE = web.AppKey("plane", Plane)
_ANY = re.compile(r"\{([a-z_]+)\}")  # else aiohttp takes no braces for a part of a path, which a group's id may have


class ControlServer:
    """A control plane that accepts requests at `url` and does them with `operations`."""

    def __init__(self, url: str, runner: web.AppRunner, plane: Plane) -> None:
        self.url = url
        self.operations = plane.operations
        self._runner = runner
        self._plane = plane

    async def stop(self) -> None:
        """Stops accepting; what is under way has STOP_SECONDS to end. A restore goes on behind it: `operations.stop`,
        which stops the broker, waits for that. The snapshots it holds are let go."""
        await self._runner.cleanup()
        self._plane.close()


async def start_control(
    operations: Operations,
    host: str = "127.0.0.1",
    port: int = 0,
    sock: socket.socket | None = None,
    may_write: bool = False,
    schemas: Schemas | None = None,
) -> ControlServer:
    """Serves what `operations` can do at `host` and `port` (0: a free one), or on `sock`, bound and ready. With
    `may_write` its page may change something; with `schemas` it decodes keys and values.

    Call it on the broker's loop. Raises StartupError, one line, when it cannot listen there.
    """
    if sock is None:
        sock = bind(Listener("CONTROL", host, port), SocketSettings())
    plane = Plane(operations, host, may_write, schemas)
    plane.look()
    runner = web.AppRunner(
        application(plane), access_log=None, auto_decompress=False, shutdown_timeout=STOP_SECONDS, logger=_Quiet()
    )
    await runner.setup()
    await web.SockSite(runner, sock, backlog=BACKLOG).start()
    bound_host, bound_port = sock.getsockname()[:2]
    return ControlServer(f"http://{format_address(host or bound_host, bound_port)}", runner, plane)


def application(plane: Plane, routes: Iterable[Route] = ROUTES) -> web.Application:
    """The application that serves `routes` and their document."""
    routes = tuple(routes)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_guard])
    app[_PLANE] = plane

    @cache
    def described() -> bytes:  # made when it is first asked for: a start has no need of it
        return msgspec.json.encode(document(routes))

    async def openapi(request: web.Request) -> web.Response:
        return web.Response(body=described(), content_type="application/json")

    for route in routes:
        handler = openapi if route.name == "getOpenapi" else partial(_serve, plane, route)
        path = _ANY.sub(r"{\1:[^/]+}", route.path)
        app.router.add_route(route.method, BASE + path, handler, name=route.name)
    site.add_to(app, plane)
    observing.add_to(app, plane)
    return app


class _Quiet:
    """aiohttp's own log: what it says of broken requests is no news for whoever runs a broker."""

    def _nothing(self, *arguments: object, **more: object) -> None: ...

    debug = info = warning = error = exception = critical = log = _nothing

    def isEnabledFor(self, level: int) -> bool:
        """Whether anything of that level is written: nothing is."""
        return False


@web.middleware
async def _guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answers whatever went wrong: as JSON, in one line; who reads pages gets one."""
    plane = request.app[_PLANE]
    why = browsers.refusal(request.method, request.headers, plane.host, may_write=plane.may_write)
    if why is not None:  # by no page, which says more of the broker
        return _answer({"error": visible(why)}, 403)
    try:
        return await handler(request)
    except web.HTTPException as error:
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return _error(request, error.status, _told(error, request), headers)
    except Refusal as refusal:
        return _error(request, refusal.status, refusal)
    except OperationError as error:
        return _error(request, status_of(error), error)
    except Exception as error:
        if error is request.content.exception():  # raised by a read of the body
            get_logger().info("upload broken off by the client", method=request.method, path=request.path)
            return _answer({"error": "the connection ended before the body"}, 400)
        get_logger().exception("a request to the control plane failed", method=request.method, path=request.path)
        return _error(request, 500, f"{type(error).__name__}: {error}")


def _told(error: web.HTTPException, request: web.Request) -> str:
    if error.status == 404:
        return f"there is no {request.path}; {BASE}/openapi.json lists what there is"
    if error.status == 405:
        return f"{request.path} does not take {request.method}"
    if error.status == 413:
        return f"the body is larger than {MAX_BODY_BYTES} bytes"
    return error.reason


def _error(request: web.Request, status: int, message: object, headers: dict[str, str] | None = None) -> web.Response:
    if site.is_wanted(request):
        with contextlib.suppress(Refusal):  # without what makes pages
            return site.refused(request.app[_PLANE], status, visible(message), headers)
    return _answer({"error": visible(message)}, status, headers)


def _answer(value: Any, status: int, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=encoded(value), status=status, content_type="application/json", headers=headers)


def encoded(value: Any) -> bytes:
    """Returns a line of JSON. Surrogates, for which UTF-8 has no bytes, become JSON's own escapes."""
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
    return _answer(await route.act(plane, call), route.status)


def _query(route: Route, request: web.Request) -> Any:
    given = request.query
    for name in given:
        if len(given.getall(name)) > 1:
            raise Refusal(400, f"the parameter {name} came twice")
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

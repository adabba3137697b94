"""The URLs of the web pages, and the conversion of a view's response into one of HTTP.

Security headers isolate the pages: they load nothing from other sites, have no inline scripts or styles, cannot be
framed, and send no referrer to other sites. (`Referrer-Policy` is same-origin rather than no-referrer, with which
browsers send no Origin with the page's own forms.) The views, and with them Jinja2, are imported at the first request
for a page.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import importlib
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

from aiohttp import web

from ....protocol.named import NamedTuple
from ...admin_api.clock import state_of
from ...admin_api.views import OperationError, status_of
from ...logs import get_logger
from ..access import LOGIN, LOGOUT
from ..refusal import Refusal
from .page import MAX_TEXT, Download, Moved, Page, PageRequest, PageResponse, Query, Stream, unquoted

if TYPE_CHECKING:
    from ..plane import Plane

MAX_FORM_BYTES = 2 * 1024 * 1024
MAX_LOGIN_BYTES = 16 * 1024
MAX_FIELDS = 100
MAX_STREAMS = 16  # that are open at once
STUCK_SECONDS = 60.0  # after which a client that reads nothing of a stream is disconnected
LOGIN_TEMPLATE = "login.html"
STATIC = Path(__file__).parent / "static"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Act = Callable[[PageRequest], Awaitable[PageResponse]]


class View(NamedTuple):
    """A page: its path, and the functions `module:name` that show it and that process its form. `again` shows the page
    of a refused form, if that is another function."""

    path: str
    show: str | None
    act: str | None = None
    again: str | None = None


VIEWS = (
    View("/", "requests_view:overview"),
    View("/topics", "topics_view:topics", "forms:create_topic"),
    View("/topics/{topic}", "topics_view:topic"),
    View("/topics/{topic}/delete", None, "forms:delete_topic"),
    View("/topics/{topic}/configs", "administration_view:topic_configs", "forms:change_topic_config"),
    View("/topics/{topic}/{partition:[0-9]+}", "topics_view:partition"),
    View("/messages", "messages_view:messages"),
    View("/messages/{topic}", "messages_view:messages", "forms:produce"),
    View("/messages/{topic}/records", "downloads:records"),
    View("/messages/{topic}/tail", "tail:tail"),
    View("/messages/{topic}/tail/events", "tail:events"),
    View("/messages/{topic}/{partition:[0-9]+}/{offset:[0-9]+}", "messages_view:message"),
    View("/messages/{topic}/{partition:[0-9]+}/{offset:[0-9]+}/{what}", "messages_view:download"),
    View("/groups", "clients_view:groups"),
    View("/groups/delete", None, "forms:delete_group"),
    View("/groups/reset", None, "forms:reset_offsets", "clients_view:groups"),
    View("/groups/{group:[^/]+}", "clients_view:group"),
    View("/producers", "clients_view:producers"),
    View("/producers/{topic}/{partition:[0-9]+}/{producer:[0-9]+}", "clients_view:producer"),
    View("/transactions", "clients_view:transactions"),
    View("/broker", "administration_view:broker_configs", "forms:change_broker_config"),
    View("/acls", "administration_view:acls", "forms:add_acl"),
    View("/acls/remove", None, "forms:remove_acl", "administration_view:acls"),
    View("/faults", "administration_view:faults", "forms:add_fault"),
    View("/faults/remove", None, "forms:remove_faults"),
    View("/clock", "administration_view:clock", "forms:move_clock"),
    View("/requests", "requests_view:requests"),
    View("/requests/{number:[0-9]+}", "requests_view:exchange"),
    View("/requests/{number:[0-9]+}/{what}", "requests_view:download"),
)


def add_to(app: web.Application, plane: Plane) -> None:
    """Adds the pages of this plane to the application."""
    for view in VIEWS:
        if view.show is not None:
            app.router.add_get(view.path, partial(_shown, plane, view.show))
        if view.act is not None:
            app.router.add_post(view.path, partial(_done, plane, view.act, view.again or view.show))
    app.router.add_get("/static/{name}", _static)
    app.router.add_get(LOGIN, partial(_login, plane))
    app.router.add_post(LOGIN, partial(_log_in, plane))
    app.router.add_post(LOGOUT, partial(_log_out, plane))
    app.on_shutdown.append(partial(_end_streams, plane))
    app.router.add_get("/favicon.ico", _icon)


def is_wanted(request: web.Request) -> bool:
    """Returns whether the client accepts HTML: then errors are pages."""
    return "text/html" in request.headers.get("Accept", "")


def refused(plane: Plane, status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Returns a page with an error. Raises Refusal if no page can be rendered."""
    if getattr(plane, "operations", None) is None:
        raise Refusal(503, "the broker is stopping")
    page = Page("refused.html", "Not done" if status < 500 else "Unexpected error", "", {"message": message}, status)
    return _response(plane, page, headers)


async def login_form(
    wanted: str = "/", problem: str = "", *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Returns the page in which a browser sends the token; it leads to the path `wanted`, and has no facts about the
    broker. Raises Refusal if no page can be rendered."""
    await load(LOGIN_TEMPLATE)
    body = _renderer().page(LOGIN_TEMPLATE, {"wanted": _own_path(wanted), "problem": problem})
    kept = {**HEADERS, "Cache-Control": "no-store", **(headers or {})}
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8", headers=kept)


def _own_path(text: str) -> str:
    """Returns a path of this server, without a host; other text becomes that of the overview."""
    is_plain = text.isascii() and text.isprintable() and len(text) <= MAX_TEXT
    is_own = text.startswith("/") and text[1:2] not in ("/", "\\") and not text.startswith((LOGIN, LOGOUT))
    return text if is_plain and is_own else "/"


async def _login(plane: Plane, request: web.Request) -> web.Response:
    if plane.access.token is None:
        return _response(plane, Moved("/"))
    return await login_form()


async def _log_in(plane: Plane, request: web.Request) -> web.Response:
    """Begins the session of a browser that sends the token."""
    given = await _form(request, MAX_LOGIN_BYTES)
    value = plane.access.begin(given.get("token", ""))
    wanted = _own_path(given.get("wanted", ""))
    if value is None:
        return await login_form(wanted, "The token is not that of this broker.", status=401)
    response = _response(plane, Moved(wanted))
    is_secure = plane.access.is_secure
    response.set_cookie(plane.access.cookie, value, httponly=True, samesite="Strict", secure=is_secure)
    return response


async def _log_out(plane: Plane, request: web.Request) -> web.Response:
    plane.access.end(request.cookies)
    response = _response(plane, Moved(LOGIN))
    response.del_cookie(plane.access.cookie)
    return response


@functools.cache
def _renderer() -> Any:
    try:
        from .render import Renderer
    except ImportError as error:
        raise Refusal(501, "the page needs Jinja2: pip install 'ottla[http]'") from error
    return Renderer()


_loaded: set[str] = set()
"""The compiled templates."""


async def load(template: str) -> None:
    """Compiles a template; the first time in a thread, since it takes long."""
    if template not in _loaded:
        await asyncio.to_thread(lambda: _renderer().load(template))
        _loaded.add(template)


async def _act(name: str) -> Act:
    """Returns the function of that name; its module is imported in a thread."""
    module, _, function = name.partition(":")
    path = f"{__package__}.{module}"
    if path not in sys.modules:
        await asyncio.to_thread(importlib.import_module, path)
    return getattr(importlib.import_module(path), function)


async def _shown(plane: Plane, show: str, request: web.Request) -> web.StreamResponse:
    last_event = request.headers.get("Last-Event-ID", "")[:MAX_TEXT]
    page_request = PageRequest(plane, dict(request.match_info), Query(request.query.items()), last_event=last_event)
    response = await (await _act(show))(page_request)
    if isinstance(response, Stream):
        return await _streamed(plane, response, request)
    if isinstance(response, Page):
        await load(response.template)
    is_ours = request.headers.get("Sec-Fetch-Site") != "cross-site"  # links of other sites cannot show messages here
    return _response(plane, response, done=page_request.query.text("done")[:200] if is_ours else "")


async def _end_streams(plane: Plane, app: web.Application) -> None:
    plane.ended.set()


async def _streamed(plane: Plane, stream: Stream, request: web.Request) -> web.StreamResponse:
    """Sends a stream until it ends, the client disconnects, or the control plane stops."""
    if plane.streams >= MAX_STREAMS:
        raise Refusal(429, f"{MAX_STREAMS} live tails and downloads are open already; close one")
    headers = {**HEADERS, "Cache-Control": "no-store"}
    if stream.file_name is not None:
        headers |= _as_file(stream.file_name)
    response = web.StreamResponse(headers=headers)
    response.content_type = stream.content_type
    response.charset = "utf-8"
    plane.streams += 1
    try:
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        async with contextlib.aclosing(stream.steps) as steps:
            async for step in steps:
                if plane.ended.is_set() or request.transport is None or request.transport.is_closing():
                    break
                if step:
                    async with asyncio.timeout(STUCK_SECONDS):
                        await response.write(step)
        await response.write_eof()
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
    except Exception as error:  # the status is sent: a stream that fails can only be aborted
        log = get_logger().warning if isinstance(error, OperationError) else get_logger().exception
        log("download aborted", path=request.path, reason=str(error))
        if request.transport is not None:
            request.transport.abort()
    finally:
        plane.streams -= 1
    return response


async def _done(plane: Plane, act: str, show: str | None, request: web.Request) -> web.StreamResponse:
    """Processes a form; a refusal shows the form's page again, with its fields."""
    if not plane.options.may_write:
        raise Refusal(403, "these pages only read: start the broker with --control-write to allow changes")
    if request.content_type != "application/x-www-form-urlencoded":
        raise Refusal(400, "the content type of a form is application/x-www-form-urlencoded")
    sent = await _form(request)
    page_request = PageRequest(plane, dict(request.match_info), Query(), sent)
    try:
        response = await (await _act(act))(page_request)
    except (Refusal, OperationError) as error:
        status = error.status if isinstance(error, Refusal) else status_of(error)
        shown = None if show is None else await (await _act(show))(replace(page_request, problem=str(error)))
        if not isinstance(shown, Page):
            return refused(plane, status, str(error))
        more = {"problem": str(error), "given": sent}
        response = replace(shown, status=status, values={**shown.values, **more})
    if isinstance(response, Page):
        await load(response.template)
    return _response(plane, response)


async def _form(request: web.Request, most: int = MAX_FORM_BYTES) -> dict[str, str]:
    """Returns the fields of a form, decoded as UTF-8 whatever its Content-Type: browsers use the page's own
    encoding."""
    raw = bytearray()
    async for part in request.content.iter_any():
        raw += part
        if len(raw) > most:
            raise Refusal(413, f"the form is larger than {most} bytes")
    try:
        pairs = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise Refusal(400, f"the form has more than {MAX_FIELDS} fields") from error
    try:
        return unquoted(dict(pairs))
    except UnicodeDecodeError as error:
        raise Refusal(400, "a hidden field of the form is not UTF-8") from error


def _response(
    plane: Plane, response: PageResponse, headers: Mapping[str, str] | None = None, done: str = ""
) -> web.Response:
    kept = {**HEADERS, "Cache-Control": "no-store", **(headers or {})}
    if isinstance(response, Moved):
        message = f"{'&' if '?' in response.url else '?'}done={quote(response.done)}" if response.done else ""
        return web.Response(status=303, headers={**kept, "Location": response.url + message})
    if isinstance(response, Stream):
        raise Refusal(405, "a stream cannot be the response to a form")
    if isinstance(response, Download):
        kept |= _as_file(response.file_name)
        return web.Response(body=response.data, content_type="application/octet-stream", headers=kept)
    values: dict[str, Any] = {
        "title": response.title,
        "part": response.part,
        "may_write": plane.options.may_write,
        "has_login": plane.access.token is not None,
        "done": done if plane.options.may_write else "",
        "problem": None,
        "given": {},
        **plane_facts(plane),
        **response.values,
    }
    body = _renderer().page(response.template, values)
    return web.Response(body=body, status=response.status, content_type="text/html", charset="utf-8", headers=kept)


def _as_file(name: str) -> dict[str, str]:
    """Returns headers that make a browser save the body as a file."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return {"Content-Disposition": f'attachment; filename="{name}"', "Content-Security-Policy": "sandbox"}


def fragment(template: str, values: Mapping[str, Any]) -> str:
    """Returns a part of a page; its template must be loaded."""
    return _renderer().page(template, values).decode()


def plane_facts(plane: Plane) -> dict[str, Any]:
    """Returns the facts about the broker that every page shows, also after a failure."""
    running = plane.operations.running
    state = running.state
    faults = running.faults
    return {
        "release": state.profile.name,
        "addresses": running.addresses,
        "cluster_id": state.cluster_id,
        **asdict(state_of(state.clock)),
        "fault_count": len(faults.list()) if faults is not None else 0,
        "failed": running.failed.result() if running.failed.done() else None,
    }


@functools.cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Returns the static files by name: bytes, type, tag."""
    return {
        path.name: (data := path.read_bytes(), TYPES[path.suffix], f'"{hashlib.sha256(data).hexdigest()[:16]}"')
        for path in sorted(STATIC.iterdir())
        if path.suffix in TYPES
    }


async def _static(request: web.Request) -> web.Response:
    try:
        data, kind, tag = _files()[request.match_info["name"]]
    except KeyError:
        raise web.HTTPNotFound from None
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=data, content_type=kind, charset="utf-8", headers=headers)


async def _icon(request: web.Request) -> web.Response:
    return web.Response(status=301, headers={**HEADERS, "Location": "/static/icon.svg"})

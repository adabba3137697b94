"""The page's addresses, and how a view's answer becomes one of HTTP.

Owns the headers that keep a page to itself: nothing is fetched from elsewhere, no script or style stands in a page, no
other page may hold it in a frame, none is told where one came from. (`Referrer-Policy` is same-origin and not
no-referrer: with that one, browsers do not name the page as the Origin of its own forms.) The views, and with them
Jinja2, are imported when the first page is asked for.
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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote

from aiohttp import web

from ...admin_api.views import OperationError, status_of
from ...logs import get_logger
from ..refusal import Refusal
from .answer import Answer, Ask, Download, Moved, Page, Stream
from .query import MAX_TEXT, Query, unquoted

if TYPE_CHECKING:
    from ..plane import Plane

MAX_FORM_BYTES = 2 * 1024 * 1024
MAX_FIELDS = 100
MAX_STREAMS = 16  # that are sent at once, to all pages together
STUCK_SECONDS = 60.0  # after which a client that takes nothing of a stream is cut off
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

Act = Callable[[Ask], Awaitable[Answer]]


class View(NamedTuple):
    """A page: its path, and the functions `module:name` that show it and that do what its form asks for. `again` shows
    the page of the form where that is another one."""

    path: str
    show: str | None
    act: str | None = None
    again: str | None = None


VIEWS = (
    View("/", "overview_view:overview"),
    View("/topics", "topics_view:topics", "forms:create_topic"),
    View("/topics/{topic}", "topics_view:topic"),
    View("/topics/{topic}/delete", None, "forms:delete_topic"),
    View("/topics/{topic}/configs", "administration_view:topic_configs", "administration_forms:change_topic_config"),
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
    View("/groups/reset", None, "administration_forms:reset_offsets", "clients_view:groups"),
    View("/groups/{group:[^/]+}", "clients_view:group"),
    View("/producers", "clients_view:producers"),
    View("/producers/{topic}/{partition:[0-9]+}/{producer:[0-9]+}", "clients_view:producer"),
    View("/transactions", "clients_view:transactions"),
    View("/broker", "administration_view:broker_configs", "administration_forms:change_broker_config"),
    View("/acls", "administration_view:acls", "administration_forms:add_acl"),
    View("/acls/remove", None, "administration_forms:remove_acl", "administration_view:acls"),
    View("/faults", "steering_view:faults", "forms:add_fault"),
    View("/faults/remove", None, "forms:remove_faults"),
    View("/clock", "steering_view:clock", "forms:move_clock"),
    View("/requests", "requests_view:requests"),
    View("/requests/{number:[0-9]+}", "requests_view:exchange"),
    View("/requests/{number:[0-9]+}/{what}", "requests_view:download"),
)


def add_to(app: web.Application, plane: Plane) -> None:
    """Has the application serve the page of this plane."""
    for view in VIEWS:
        if view.show is not None:
            app.router.add_get(view.path, partial(_shown, plane, view.show))
        if view.act is not None:
            app.router.add_post(view.path, partial(_done, plane, view.act, view.again or view.show))
    app.router.add_get("/static/{name}", _static)
    app.on_shutdown.append(partial(_end_streams, plane))
    app.router.add_get("/favicon.ico", _icon)


def is_wanted(request: web.Request) -> bool:
    """Whether who asks reads pages: then a refusal is one."""
    return "text/html" in request.headers.get("Accept", "")


def refused(plane: Plane, status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """A page that says why there is none. Raises Refusal where none can be made."""
    if getattr(plane, "operations", None) is None:
        raise Refusal(503, "the broker stops")
    page = Page("refused.html", "Not done" if status < 500 else "A defect", "", {"message": message}, status)
    return _response(plane, page, headers)


@functools.cache
def _renderer() -> Any:
    try:
        from .render import Renderer
    except ImportError as error:
        raise Refusal(501, "the page needs Jinja2: pip install 'ottla[http]'") from error
    return Renderer()


_loaded: set[str] = set()
"""The templates that are compiled."""


async def load(template: str) -> None:
    """Has a template ready; the first time that takes long, and is done beside the loop."""
    if template not in _loaded:
        await asyncio.to_thread(lambda: _renderer().load(template))
        _loaded.add(template)


async def _act(name: str) -> Act:
    """The function of that name; its module is imported likewise."""
    module, _, function = name.partition(":")
    path = f"{__package__}.{module}"
    if path not in sys.modules:
        await asyncio.to_thread(importlib.import_module, path)
    return getattr(importlib.import_module(path), function)


async def _shown(plane: Plane, show: str, request: web.Request) -> web.StreamResponse:
    last_event = request.headers.get("Last-Event-ID", "")[:MAX_TEXT]
    ask = Ask(plane, dict(request.match_info), Query(request.query.items()), last_event=last_event)
    answer = await (await _act(show))(ask)
    if isinstance(answer, Stream):
        return await _streamed(plane, answer, request)
    if isinstance(answer, Page):
        await load(answer.template)
    is_ours = request.headers.get("Sec-Fetch-Site") != "cross-site"  # a link elsewhere tells nobody what was done
    return _response(plane, answer, done=ask.query.text("done")[:200] if is_ours else "")


async def _end_streams(plane: Plane, app: web.Application) -> None:
    plane.ended.set()


async def _streamed(plane: Plane, answer: Stream, request: web.Request) -> web.StreamResponse:
    """Sends a stream until it ends, the client goes, or the control plane stops."""
    if plane.streams >= MAX_STREAMS:
        raise Refusal(429, f"{MAX_STREAMS} live tails and downloads are open already; close one")
    headers = {**HEADERS, "Cache-Control": "no-store"}
    if answer.file_name is not None:
        headers |= _as_file(answer.file_name)
    response = web.StreamResponse(headers=headers)
    response.content_type = answer.content_type
    response.charset = "utf-8"
    plane.streams += 1
    try:
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        async with contextlib.aclosing(answer.steps) as steps:
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
    except Exception as error:  # after the headers a stream that fails can only be broken off
        tell = get_logger().warning if isinstance(error, OperationError) else get_logger().exception
        tell("a download was broken off", path=request.path, reason=str(error))
        if request.transport is not None:
            request.transport.abort()
    finally:
        plane.streams -= 1
    return response


async def _done(plane: Plane, act: str, show: str | None, request: web.Request) -> web.StreamResponse:
    """Does what a form asks for; a refusal shows the form's own page once more, with what was typed."""
    if not plane.may_write:
        raise Refusal(403, "this page only reads; a broker that is started with --control-write may be changed here")
    if request.content_type != "application/x-www-form-urlencoded":
        raise Refusal(400, "a form of a page is sent as application/x-www-form-urlencoded")
    sent = await _form(request)
    ask = Ask(plane, dict(request.match_info), Query(), sent)
    try:
        answer = await (await _act(act))(ask)
    except (Refusal, OperationError) as error:
        status = error.status if isinstance(error, Refusal) else status_of(error)
        shown = None if show is None else await (await _act(show))(replace(ask, problem=str(error)))
        if not isinstance(shown, Page):
            return refused(plane, status, str(error))
        more = {"problem": str(error), "given": sent}
        answer = replace(shown, status=status, values={**shown.values, **more})
    if isinstance(answer, Page):
        await load(answer.template)
    return _response(plane, answer)


async def _form(request: web.Request) -> dict[str, str]:
    """What a form sent, as UTF-8 whatever its Content-Type says: browsers send it in the page's own encoding."""
    raw = bytearray()
    async for part in request.content.iter_any():
        raw += part
        if len(raw) > MAX_FORM_BYTES:
            raise Refusal(413, f"the form is larger than {MAX_FORM_BYTES} bytes")
    try:
        pairs = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise Refusal(400, f"the form has more than {MAX_FIELDS} fields") from error
    try:
        return unquoted(dict(pairs))
    except UnicodeDecodeError as error:
        raise Refusal(400, "a hidden field of the form is no UTF-8") from error


def _response(plane: Plane, answer: Answer, headers: Mapping[str, str] | None = None, done: str = "") -> web.Response:
    kept = {**HEADERS, "Cache-Control": "no-store", **(headers or {})}
    if isinstance(answer, Moved):
        told = f"{'&' if '?' in answer.url else '?'}done={quote(answer.told)}" if answer.told else ""
        return web.Response(status=303, headers={**kept, "Location": answer.url + told})
    if isinstance(answer, Stream):
        raise Refusal(405, "a stream is no answer to a form")
    if isinstance(answer, Download):
        kept |= _as_file(answer.file_name)
        return web.Response(body=answer.data, content_type="application/octet-stream", headers=kept)
    values = {
        "title": answer.title,
        "part": answer.part,
        "may_write": plane.may_write,
        "done": done if plane.may_write else "",
        "problem": None,
        "given": {},
        **plane_facts(plane),
        **answer.values,
    }
    body = _renderer().page(answer.template, values)
    return web.Response(body=body, status=answer.status, content_type="text/html", charset="utf-8", headers=kept)


def _as_file(name: str) -> dict[str, str]:
    """Headers that have a browser keep the body in a file."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return {"Content-Disposition": f'attachment; filename="{name}"', "Content-Security-Policy": "sandbox"}


def fragment(template: str, values: Mapping[str, Any]) -> str:
    """A part of a page; its template is loaded."""
    return _renderer().page(template, values).decode()


def plane_facts(plane: Plane) -> dict[str, Any]:
    """What each page says of the broker, whatever state it is in."""
    running = plane.operations.running
    state = running.state
    faults = running.faults
    clock = state.clock
    return {
        "release": state.profile.name,
        "addresses": running.addresses,
        "cluster_id": state.cluster_id,
        "now_ms": clock.now_ms(),
        "is_frozen": bool(getattr(clock, "is_frozen", False)),
        "offset_ms": getattr(clock, "offset_ms", 0),
        "fault_count": len(faults.list()) if faults is not None else 0,
        "failed": running.failed.result() if running.failed.done() else None,
    }


@functools.cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """The static files by name: bytes, type, tag."""
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

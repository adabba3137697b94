"""The server of the control plane: no request crashes or blocks it, and every response has the documented form."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from typing import Annotated, Any
from unittest.mock import Mock

import aiohttp
import pytest
from msgspec import UNSET, Meta, UnsetType
from structlog.testing import capture_logs

from ottla.broker.config.serve_options import ControlOptions
from ottla.broker.control import app
from ottla.broker.control.app import ControlServer, start_control
from ottla.broker.control.models.parts import Bytes, Model, Nothing, OpenApi
from ottla.broker.control.plane import Plane
from ottla.broker.control.refusal import Refusal
from ottla.broker.control.route import Call, Route
from ottla.broker.logs import get_logger
from ottla_testing.patience import PATIENCE_S, async_until

UNKNOWN_CLIENT: Any = Mock()


class Limited(Model):
    limit: Annotated[int, Meta(le=9)] | UnsetType = UNSET


class Given(Model):
    value: Bytes


async def echo(plane: Plane, call: Call) -> Any:
    return [dict(call.path), call.query, call.body]


async def refuse(plane: Plane, call: Call) -> Any:
    raise Refusal(409, "not\nnow")


async def fail(plane: Plane, call: Call) -> Any:
    raise KeyError("a defect\nof two lines")


async def never(plane: Plane, call: Call) -> Any:
    await asyncio.Event().wait()


ROUTES = (
    Route("GET", "/topics/{topic}", "one", "", OpenApi, echo, query=Limited),
    Route("POST", "/nodes/{node}", "two", "", OpenApi, echo, body=Given, needs_body=True, status=201),
    Route("POST", "/optional", "three", "", OpenApi, echo, body=Nothing),
    Route("GET", "/refusal", "four", "", OpenApi, refuse),
    Route("GET", "/defect", "five", "", OpenApi, fail),
    Route("GET", "/never", "six", "", OpenApi, never),
)


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts the server without metrics, which need a broker."""
    monkeypatch.setattr(app.observing, "add_to", lambda application, plane: None)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControlServer]:
    monkeypatch.setattr(app, "MAX_BODY_BYTES", 5000)
    monkeypatch.setattr(app, "STOP_SECONDS", 0.01)
    given = app.application
    monkeypatch.setattr(app, "application", lambda plane: given(plane, ROUTES))
    running = await start_control(UNKNOWN_CLIENT, ControlOptions())
    yield running
    await running.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE_S)) as session:
        yield session


async def status_and_json(answering: Any) -> tuple[int, Any]:
    """Returns (status, JSON) of a response, which must be JSON."""
    async with answering as response:
        assert response.content_type == "application/json"
        return response.status, json.loads(await response.read())


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "result"),
    [
        ("GET", "/topics/a%2Fb%20%C3%A9?limit=-7", None, 200, [{"topic": "a/b é"}, {"limit": -7}, None]),
        ("GET", "/topics/%ff", None, 200, [{"topic": "%FF"}, {}, None]),
        ("POST", "/nodes/3", b'{"value": {"base64": "YQ=="}}', 201, [{"node": 3}, None, {"value": {"base64": "YQ=="}}]),
        ("POST", "/nodes/3", b'{"value": null}', 201, [{"node": 3}, None, {"value": None}]),
        ("POST", "/optional", b"", 200, [{}, None, {}]),
        ("GET", "/refusal", None, 409, "not\\nnow"),
        ("GET", "/topics/a?limit=10", None, 400, "the query.limit is '10': Expected `int` <= 9"),
        ("GET", "/topics/a?limit=x", None, 400, "the query.limit is 'x': Expected `int`, got `str`"),
        ("GET", "/topics/a?limit=" + "1" * 5000, None, 400, f"the query.limit is '{'1' * 39}...: Integer value out"),
        ("GET", "/topics/a?limit=1&limit=1", None, 400, "the parameter limit is given twice"),
        ("GET", "/topics/a?least=1", None, 400, "the query: Object contains unknown field `least`; accepted are limit"),
        ("GET", "/topics/" + "a" * 250, None, 400, f"topic is '{'a' * 39}...: Expected `str` of length <= 249"),
        ("GET", "/topics/a", b"1", 400, "GET /v1/topics/a takes no body"),
        ("POST", "/nodes/-1", b"null", 400, "node is '-1': Expected `int` >= 0"),
        ("POST", "/nodes/1", b"", 400, "a body of JSON is needed"),
        ("POST", "/nodes/1", b"{", 400, "the body is not JSON: Input data was truncated"),
        ("POST", "/nodes/1", b"\xff\xfe\xfd", 400, "the body is not JSON: JSON is malformed"),
        ("POST", "/nodes/1", b'{"value": "\\ud800"}', 400, "the body is not JSON: "),
        ("POST", "/nodes/1", b'{"value": "\xff"}', 400, "the body is not JSON: "),
        ("POST", "/nodes/1", b"NaN", 400, "the body is not JSON: JSON is malformed: invalid character"),
        ("POST", "/nodes/1", b"9" * 4990, 400, "the body: Number out of range"),
        ("POST", "/nodes/1", b'{"value": ' + b"[" * 4900, 400, "the body.value: Expected `str | object | null`, got"),
        ("POST", "/nodes/1", b'{"value": {"base64": 1}}', 400, "the body.value.base64 is 1: Expected `str`, got `int`"),
        ("POST", "/nodes/1", b" " * 5001, 413, "the body is larger than 5000 bytes"),
        ("POST", "/optional", b"[]", 400, "the body is a list: Expected `object`, got `array`"),
        ("DELETE", "/optional", None, 405, "/v1/optional does not allow DELETE"),
        ("GET", "/nothing", None, 404, "there is no /v1/nothing; /v1/openapi.json lists the routes"),
        ("GET", "/../etc/passwd", None, 404, "there is no /etc/passwd; /v1/openapi.json lists the routes"),
    ],
)  # fmt: skip
async def test_every_response_is_json(
    server: ControlServer,
    http: aiohttp.ClientSession,
    method: str,
    path: str,
    body: bytes | None,
    status: int,
    result: Any,
) -> None:
    found = await status_and_json(http.request(method, server.url + "/v1" + path, data=body))
    if isinstance(result, str):
        assert found[0] == status and list(found[1]) == ["error"]
        assert found[1]["error"].startswith(result) and "\n" not in found[1]["error"]
    else:
        assert found == (status, result)


async def test_unexpected_error_is_one_line_with_status_500_and_logged(
    server: ControlServer, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, Any]] = []

    class Log:
        def exception(self, event: str, **more: Any) -> None:
            logged.append((event, more))

    monkeypatch.setattr(app, "get_logger", Log)
    assert await status_and_json(http.get(server.url + "/v1/defect")) == (
        500,
        {"error": "KeyError: 'a defect\\nof two lines'"},
    )
    assert logged == [("control plane request failed", {"method": "GET", "path": "/v1/defect"})]
    assert await status_and_json(http.post(server.url + "/v1/optional")) == (200, [{}, None, {}])


async def test_requests_from_pages_of_other_sites_are_refused(
    server: ControlServer, http: aiohttp.ClientSession
) -> None:
    for origin in ("https://example.org", "null"):
        answering = http.post(server.url + "/v1/optional", headers={"Origin": origin})
        assert await status_and_json(answering) == (403, {"error": "requests from pages of other sites are refused"})


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\x16\x03\x01 not HTTP at all\r\n\r\n",
        b"GET /v1/refusal HTTP/9.9\r\n\r\n",
        b"GET /v1/refusal\r\n\r\n",
        b"POST /v1/optional HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/optional HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/optional HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    ],
)
async def test_malformed_http_is_refused_or_disconnected_and_not_logged(
    server: ControlServer, http: aiohttp.ClientSession, raw: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    port = int(server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(PATIENCE_S):
        writer.write(raw)
        assert (await reader.readline()).startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 ", b"HTTP/0.9 409 "))
        writer.close()
        await writer.wait_closed()
    assert (await status_and_json(http.post(server.url + "/v1/optional")))[0] == 200
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("ending", ["closed", "reset"])
async def test_aborted_upload_logs_one_line(server: ControlServer, ending: str) -> None:
    port = int(server.url.rpartition(":")[2])
    get_logger()  # configures structlog, which the capture then replaces
    with capture_logs() as lines:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST /v1/optional HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n{"
        writer.write(head)
        assert b" 100 " in await reader.readline()  # the request is running
        if ending == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        await async_until(lambda: lines)
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("upload aborted by the client", "info")
    assert line["path"] == "/v1/optional"
    assert "exc_info" not in line


async def test_control_plane_stops_while_requests_hang(server: ControlServer, http: aiohttp.ClientSession) -> None:
    port = int(server.url.rpartition(":")[2])
    half = await asyncio.open_connection("127.0.0.1", port)
    half[1].write(b"POST /v1/optional HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
    waiting = asyncio.ensure_future(status_and_json(http.get(server.url + "/v1/never")))
    assert (await status_and_json(http.post(server.url + "/v1/optional")))[0] == 200
    async with asyncio.timeout(PATIENCE_S):
        await server.stop()
        with pytest.raises(aiohttp.ClientError):
            await waiting
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert await half[0].read() == b""
        half[1].close()
        await half[1].wait_closed()


async def test_restore_is_completed_when_the_control_plane_stops(
    monkeypatch: pytest.MonkeyPatch, http: aiohttp.ClientSession
) -> None:
    monkeypatch.setattr(app, "STOP_SECONDS", 0.01)
    begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow:
        running: Any = Mock()

        async def reset(self) -> None:
            begun.set()
            await go_on.wait()
            done.set()

    operations: Any = Slow()
    server = await start_control(operations, ControlOptions())
    waiting = asyncio.ensure_future(status_and_json(http.post(server.url + "/v1/state/reset")))
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
        await server.stop()
        with pytest.raises(aiohttp.ClientError):
            await waiting
        go_on.set()
        await done.wait()

"""A broker with a control plane in the test's own loop, and a client that holds each answer against the document."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import yarl

from ottla.broker.admin_api.operations import Operations
from ottla.broker.control.app import start_control
from ottla.broker.faults import Faults
from ottla.broker.recording.ring import Ring
from ottla.broker.virtual_clock import VirtualClock
from ottla_testing.broker import harness
from ottla_testing.patience import PATIENCE_S


class Api:
    """Asks a control plane as any client would, and knows its document."""

    def __init__(self, url: str, http: aiohttp.ClientSession, described: Any) -> None:
        self.url = url
        self.described = described
        self.called: set[tuple[str, str]] = set()
        self._http = http

    def operation(self, method: str, path: str) -> tuple[str, Any]:
        """The path of the document that a path is one of, and what the document says of the method."""
        for template, methods in self.described["paths"].items():
            parts, asked = template.split("/"), path.partition("?")[0].split("/")
            pairs = zip(parts, asked, strict=False)
            if len(parts) == len(asked) and all(part in ("{" + part[1:-1] + "}", one) for part, one in pairs):
                return template, methods[method.lower()]
        raise AssertionError(f"{path} is not in the document")

    def validator(self, content: Any) -> jsonschema.Draft202012Validator:
        """Of a body or an answer, as the document has it."""
        schema = content["content"]["application/json"]["schema"]
        return jsonschema.Draft202012Validator({**schema, "components": self.described["components"]})

    async def raw(self, method: str, path: str, body: bytes | None) -> tuple[int, Any]:
        """Status and JSON of what answers any request."""
        url = yarl.URL(f"{self.url}/v1{path}", encoded=True)
        data = None if body is None else io.BytesIO(body)
        async with self._http.request(method, url, data=data) as answer:
            return answer.status, await answer.json()

    async def ask(self, method: str, path: str, body: Any = None, status: int | None = None) -> Any:
        """The answer's JSON. It has the status (default: that of a success), and both have the documented shape."""
        template, operation = self.operation(method, "/v1" + path)
        answers = operation["responses"]
        if status is None:
            (status,) = (int(text) for text in answers if text < "400")
            if body is not None:
                self.validator(operation["requestBody"]).validate(body)
        assert str(status) in answers, f"{method} {template} does not say that it may answer {status}"
        found, told = await self.raw(method, path, None if body is None else json.dumps(body).encode())
        assert found == status, (found, told)
        self.validator(answers[str(status)]).validate(told)
        self.called.add((method, template))
        return told["error"] if status >= 400 else told


@contextlib.asynccontextmanager
async def controlled(folder: Path, **more: Any) -> AsyncIterator[tuple[harness.Broker, Api]]:
    """A broker in `folder` with a clock that can be moved, with faults and with a ring, and its control plane; both are
    stopped at the end."""
    clock: Any = VirtualClock(asyncio.get_running_loop())
    async with harness.running(folder, clock=clock, faults=Faults(), ring=Ring(), **more) as broker:
        operations = Operations(broker.running)
        await operations.keep_start()
        server = await start_control(operations)
        try:
            timeout = aiohttp.ClientTimeout(PATIENCE_S)
            async with aiohttp.ClientSession(timeout=timeout) as http:
                async with http.get(f"{server.url}/v1/openapi.json") as answer:
                    described = await answer.json()
                yield broker, Api(server.url, http, described)
        finally:
            await server.stop()

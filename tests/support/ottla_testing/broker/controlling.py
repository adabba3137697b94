"""A broker with a control plane in the test's own loop, and a client that checks each response against the document."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import yarl

from ottla.broker.admin_api.operations import Operations
from ottla.broker.config.serve_options import ControlOptions
from ottla.broker.control.app import start_control
from ottla.broker.faults.rule_set import Faults
from ottla.broker.recording.ring import Ring
from ottla.broker.virtual_clock import VirtualClock
from ottla_testing.broker import harness
from ottla_testing.patience import PATIENCE_S


class Api:
    """A client of a control plane that has its OpenAPI document."""

    def __init__(self, url: str, http: aiohttp.ClientSession, described: Any) -> None:
        self.url = url
        self.described = described
        self.called: set[tuple[str, str]] = set()
        self._http = http

    def operation(self, method: str, path: str) -> tuple[str, Any]:
        """Returns the documented path that matches a path, and its operation."""
        for template, methods in self.described["paths"].items():
            parts, requested = template.split("/"), path.partition("?")[0].split("/")
            pairs = zip(parts, requested, strict=False)
            if len(parts) == len(requested) and all(part in ("{" + part[1:-1] + "}", one) for part, one in pairs):
                return template, methods[method.lower()]
        raise AssertionError(f"{path} is not in the document")

    def validator(self, content: Any) -> jsonschema.Draft202012Validator:
        """Returns the validator of a documented body or response."""
        schema = content["content"]["application/json"]["schema"]
        return jsonschema.Draft202012Validator({**schema, "components": self.described["components"]})

    async def raw(self, method: str, path: str, body: bytes | None) -> tuple[int, Any]:
        """Returns status and JSON of the response to any request."""
        url = yarl.URL(f"{self.url}/v1{path}", encoded=True)
        data = None if body is None else io.BytesIO(body)
        async with self._http.request(method, url, data=data) as response:
            return response.status, await response.json()

    async def call(self, method: str, path: str, body: Any = None, status: int | None = None) -> Any:
        """Returns the response's JSON. Checks the status (default: that of a success), and the documented form of
        both."""
        template, operation = self.operation(method, "/v1" + path)
        responses = operation["responses"]
        if status is None:
            (status,) = (int(text) for text in responses if text < "400")
            if body is not None:
                self.validator(operation["requestBody"]).validate(body)
        assert str(status) in responses, f"{method} {template} has no documented response {status}"
        found, result = await self.raw(method, path, None if body is None else json.dumps(body).encode())
        assert found == status, (found, result)
        self.validator(responses[str(status)]).validate(_shortened(result))
        self.called.add((method, template))
        return result["error"] if status >= 400 else result


def _shortened(value: Any) -> Any:
    """Returns a JSON value whose long lists have some of their items: validating hundreds takes a second."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in (value if len(value) <= 12 else random.sample(value, 12))]
    return value


@contextlib.asynccontextmanager
async def controlled(folder: Path, **more: Any) -> AsyncIterator[tuple[harness.Broker, Api]]:
    """Runs a broker in `folder` with a virtual clock, faults and a ring, and its control plane; stops both at the
    end."""
    clock: Any = VirtualClock(asyncio.get_running_loop())
    async with harness.running(folder, clock=clock, faults=Faults(), ring=Ring(), **more) as broker:
        operations = Operations(broker.running)
        await operations.keep_start()
        server = await start_control(operations, ControlOptions())
        try:
            timeout = aiohttp.ClientTimeout(PATIENCE_S)
            async with aiohttp.ClientSession(timeout=timeout) as http:
                async with http.get(f"{server.url}/v1/openapi.json") as response:
                    described = await response.json()
                yield broker, Api(server.url, http, described)
        finally:
            await server.stop()

"""Random requests to every route, valid or not: each response is documented, none is an unexpected error, and none
takes long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.control.openapi import document
from ottla.broker.control.route import BASE, Route
from ottla.broker.control.routes import ROUTES
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.controlling import Api, controlled
from ottla_testing.patience import PATIENCE_S

DOCUMENT = document(ROUTES)
SCHEMAS = DOCUMENT["components"]["schemas"]

# Words that some route accepts, and names and numbers that often exist.
WORDS = st.sampled_from(["a", "*", "Produce", "Fetch", "PLAINTEXT", "retention.ms", "1000", "", "\udfff"])
KNOWN: dict[str, st.SearchStrategy[Any]] = {
    "api": st.sampled_from(["Produce", "Fetch", 3, ["Fetch", "Produce"]]),
    "code": st.sampled_from(["NOT_LEADER_OR_FOLLOWER", 7]),
    "error": st.sampled_from(["NONE", "NOT_LEADER_OR_FOLLOWER"]),
    "fault": st.integers(1, 5),
    "file": st.sampled_from(["/dev/null/a.jsonl", "/dev/null/a.pcapng", "a.txt"]),  # none that can be written
    "name": st.sampled_from(["a", "b"]),
    "node": st.integers(0, 4),
    "partition": st.integers(0, 2),
    "snapshot": st.sampled_from(["a", "b", "snapshot-1"]),
    "topic": st.sampled_from(["a", "b"]),
}
RULES = st.sampled_from(
    [
        {"action": "disk_error", "on": "write", "times": 1},
        {"action": "disk_full", "topic": "a"},
        {"action": "refuse", "node": 1},
        {"action": "stall"},
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


def strategy(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Returns values that match a schema, mostly near its bounds."""
    if "$ref" in schema:
        return strategy(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return st.one_of(*map(strategy, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema["type"]
    if kind == "integer":
        least, most = schema.get("minimum", -(2**70)), schema.get("maximum", 2**70)
        return st.integers(least, min(most, least + 4)) | st.integers(least, most)
    if kind == "number":
        return st.floats(schema["minimum"], schema["maximum"])
    if kind == "string":
        return WORDS
    if kind == "array":
        return st.lists(strategy(schema["items"]), min_size=schema.get("minItems", 0), max_size=3)
    if kind == "object" and "properties" in schema:
        parts = {name: named(name, part) for name, part in schema["properties"].items()}
        needed = {name: part for name, part in parts.items() if name in schema.get("required", ())}
        return st.fixed_dictionaries(needed, optional={n: part for n, part in parts.items() if n not in needed})
    if kind == "object":
        return st.dictionaries(WORDS, strategy(schema["additionalProperties"]), max_size=2)
    return {"boolean": st.booleans(), "null": st.none()}[kind]


def named(name: str, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Returns values for a name: three of four are known names."""
    if name == "within_ms":  # a wait in real time
        return st.integers(0, 3)
    if name not in KNOWN:
        return strategy(schema)
    return st.integers(0, 3).flatmap(lambda number: KNOWN[name] if number else strategy(schema))


@st.composite
def requests(draw: st.DrawFn) -> tuple[Route, str, bytes | None]:
    """Returns a route, the path with its query, and the bytes of the body."""
    route = draw(st.sampled_from(ROUTES))
    path = route.path
    operation = DOCUMENT["paths"][BASE + route.path][route.method.lower()]
    parameters: dict[str, dict[str, Any]] = {"path": {}, "query": {}}
    for one in operation.get("parameters", ()):
        parameters[one["in"]][one["name"]] = one["schema"]
    for name in route.parameters:
        value = draw(
            named(name, parameters["path"][name]) if draw(st.integers(0, 5)) else st.text(min_size=1, max_size=5)
        )
        path = path.replace("{" + name + "}", quote(str(value).encode("utf-8", "replace"), safe="") or "-")
    query: dict[str, Any] = draw(
        st.fixed_dictionaries({}, optional={name: named(name, part) for name, part in parameters["query"].items()})
    )
    if not draw(st.integers(0, 9)):
        query |= draw(
            st.dictionaries(st.sampled_from([*parameters["query"], "none"]), st.integers() | WORDS, max_size=2)
        )
    if query:
        path += "?" + "&".join(f"{name}={quote(str(text).encode('utf-8', 'replace'))}" for name, text in query.items())
    if route.body is None:
        return route, path, draw(st.sampled_from([*[None] * 9, b"{}"]))
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return route, path, draw(st.none() | st.binary(max_size=20))
    body: Any = draw(
        ANYTHING if kind == 1 else strategy(operation["requestBody"]["content"]["application/json"]["schema"])
    )
    if route.name == "addFault" and kind > 5:
        body = draw(RULES)
    if route.name == "createTopic" and isinstance(body, dict) and isinstance(count := body.get("partitions"), int):
        body["partitions"] = min(count, 3)
    return route, path, json.dumps(body).encode()


async def send_request(api: Api, route: Route, path: str, body: bytes | None) -> None:
    """Sends a request and checks that its response is documented and no unexpected error."""
    async with asyncio.timeout(PATIENCE_S):
        status, result = await api.raw(route.method, path, body)
    assert status < 500, (route, path, body, result)
    if status == 405 or (status == 404 and path.partition("?")[0].endswith("/.")):
        return
    responses = api.described["paths"]["/v1" + route.path][route.method.lower()]["responses"]
    assert str(status) in responses, (route.name, status, result)
    api.validator(responses[str(status)]).validate(result)


def test_every_response_to_random_requests_matches_the_document(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        context = controlled(tmp_path, brokers=3, files=MemoryFiles(lambda: 0))
        _, api = runner.run(context.__aenter__())
        try:

            @given(st.lists(requests(), min_size=1, max_size=6))
            def send_all(several: list[tuple[Route, str, bytes | None]]) -> None:
                runner.run(api.raw("POST", "/topics", b'{"name": "a", "partitions": 2}'))
                for one in several:
                    runner.run(send_request(api, *one))

            send_all()
            runner.run(api.call("GET", "/health"))
            runner.run(api.call("DELETE", "/faults"))  # a fault of the disk would also fail the close
        finally:
            runner.run(context.__aexit__(None, None, None))

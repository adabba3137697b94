"""Each route of the control plane over a real broker: what it does, what it answers, and that the document says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from controlling import Api, controlled
from openapi_spec_validator import OpenAPIV31SpecValidator

from ottla.broker.control.app import application
from ottla.broker.control.openapi import document
from ottla.broker.control.plane import Plane
from ottla.broker.control.route import BASE
from ottla.broker.control.routes import ROUTES


def test_the_document_is_one_and_says_what_the_router_has() -> None:
    written = json.loads(json.dumps(document(ROUTES)))
    OpenAPIV31SpecValidator(written).validate()
    documented = {
        (method.upper(), path, operation["operationId"])
        for path, methods in written["paths"].items()
        for method, operation in methods.items()
    }
    routed = {
        (route.method, route.resource.canonical, route.name)
        for route in application(Plane(None)).router.routes()
        if route.resource and route.method != "HEAD"
    }
    assert documented == routed
    assert len(documented) == len(ROUTES) and all(path.startswith(BASE + "/") for _, path, _ in documented)


async def topics_and_records(api: Api) -> None:
    """Every route of topics and records, and how each of them refuses."""
    topic = await api.ask("POST", "/topics", {"name": "orders", "partitions": 2, "configs": {"retention.ms": "1000"}})
    assert (topic["name"], len(topic["partitions"]), topic["configs"]) == ("orders", 2, {"retention.ms": "1000"})
    unnamed = await api.ask("POST", "/topics")
    assert len(unnamed["partitions"]) == 1
    assert "TOPIC_ALREADY_EXISTS" in await api.ask("POST", "/topics", {"name": "orders"}, 409)
    assert "INVALID_TOPIC_EXCEPTION" in await api.ask("POST", "/topics", {"name": "a/b"}, 400)
    assert "INVALID_CONFIG" in await api.ask("POST", "/topics", {"configs": {"retention.ms": "soon"}}, 400)
    assert "partitions is 0" in await api.ask("POST", "/topics", {"partitions": 0}, 400)
    names = [topic["name"] for topic in (await api.ask("GET", "/topics"))["topics"]]
    assert names == sorted(["orders", unnamed["name"]])
    assert await api.ask("DELETE", f"/topics/{unnamed['name']}") == {"removed": 1}
    assert "UNKNOWN_TOPIC" in await api.ask("DELETE", f"/topics/{unnamed['name']}", status=404)
    assert "UNKNOWN_TOPIC" in await api.ask("GET", f"/topics/{unnamed['name']}", status=404)

    records: list[dict[str, Any]] = [
        {"value": "grüße", "partition": 0},
        {"value": {"base64": "/w=="}, "key": "k", "partition": 1, "timestamp_ms": 5},
        {
            "value": None,
            "key": "",
            "partition": 0,
            "headers": [{"name": "h", "value": "1"}, {"name": "h", "value": None}],
        },
    ]
    assert await api.ask("POST", "/topics/orders/records", {"records": records}) == {"offsets": [0, 0, 1]}
    answer = await api.ask("GET", "/topics/orders/records")
    told = [{name: value for name, value in one.items() if name in records[1]} for one in answer["records"]]
    assert [(one["value"], one["key"], one["partition"]) for one in told] == [
        ("grüße", None, 0),
        (None, "", 0),
        ({"base64": "/w=="}, "k", 1),
    ]
    assert answer["records"][1]["headers"] == records[2]["headers"] and answer["records"][2]["timestamp_ms"] == 5
    assert (answer["more"], answer["records"][2]["offset"], answer["records"][1]["offset"]) == (False, 0, 1)
    found = await api.ask("GET", "/topics/orders/records?partition=0&offset=1&limit=1")
    assert ([one["offset"] for one in found["records"]], found["more"]) == ([1], False)
    found = await api.ask("GET", "/topics/orders/records?limit=2")
    assert (len(found["records"]), found["more"]) == (2, True)
    assert (await api.ask("GET", "/topics/orders"))["partitions"][0]["end_offset"] == 2
    for path, refused in (("orders/records?partition=2", 404), ("none/records", 404), ("orders/records?limit=0", 400)):
        await api.ask("GET", f"/topics/{path}", status=refused)
    for record, refused in (
        ({"value": "", "partition": 2}, 404),
        ({"value": {"base64": "?"}}, 400),
        ({"key": ""}, 400),
        ({"value": "\ud800"}, 400),
        ({"value": "", "headers": [{"name": "\udfff", "value": ""}]}, 400),
        ({"value": "x" * 1_100_000}, 400),
        ({"value": "x", "timestamp_ms": 2**63 - 1}, 400),
    ):
        await api.ask("POST", "/topics/orders/records", {"records": [record]}, refused)
    await api.ask("POST", "/topics/orders/records", status=400)
    await api.ask("POST", "/topics/orders/records", {"records": []}, 400)
    assert (await api.ask("GET", "/topics/orders"))["partitions"][0]["end_offset"] == 2


async def test_topics_and_records(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        await topics_and_records(api)


@pytest.mark.parametrize("name", ["a", "a/b", "ä b", "%2F"])
async def test_groups_are_found_by_any_id(name: str, tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        assert await api.ask("GET", "/groups") == {"groups": []}

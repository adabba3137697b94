"""Each route of the control plane over a real broker: what it does, what it answers, and that the document says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from controlling import Api, controlled
from openapi_spec_validator import OpenAPIV31SpecValidator

from ottla.broker.clock import SystemClock
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


async def topology(api: Api) -> None:
    """Every route of the topology, over three nodes."""
    await api.ask("POST", "/topics", {"name": "t"})
    before = await api.ask("GET", "/topology")
    assert [(node["id"], node["running"]) for node in before["nodes"]] == [(1, True), (2, True), (3, True)]
    (partition,) = before["partitions"]
    leader, other = partition["replicas"][:2]
    assert (partition["leader"], sorted(partition["isr"])) == (leader, [1, 2, 3])

    told = await api.ask("POST", "/topology/leaders", {"topic": "t", "partition": 0, "node": other})
    moved = partition | {"leader": other, "leader_epoch": partition["leader_epoch"] + 1}
    assert told["partitions"] == [moved]
    assert (await api.ask("GET", "/topics/t"))["partitions"][0]["leader"] == other
    told = await api.ask("POST", f"/topology/nodes/{other}", {"running": False})
    assert [node["id"] for node in told["nodes"] if not node["running"]] == [other]
    assert told["partitions"][0]["leader"] not in (-1, other) and other not in told["partitions"][0]["isr"]
    refused = await api.ask("POST", "/topology/leaders", {"topic": "t", "partition": 0, "node": other}, 409)
    assert refused == f"node {other} cannot lead t-0: it is stopped"
    await api.ask("POST", f"/topology/nodes/{other}", {"running": True})
    assert (await api.ask("POST", "/topology/spread"))["partitions"][0]["leader"] == leader
    told = await api.ask("POST", "/topology/offline", {"topic": "t", "partition": 0})
    assert told["partitions"][0]["leader"] == -1
    told = await api.ask("POST", "/topology/offline", {"topic": "t", "partition": 0, "offline": False})
    assert told["partitions"][0]["leader"] == leader
    for path, body in (
        ("/topology/leaders", {"topic": "t", "partition": 1, "node": 1}),
        ("/topology/leaders", {"topic": "t", "partition": 0, "node": 4}),
        ("/topology/offline", {"topic": "none", "partition": 0}),
        ("/topology/nodes/4", {"running": True}),
    ):
        assert "there is no" in await api.ask("POST", path, body, 404)


async def test_topology(tmp_path: Path) -> None:
    overrides = {"default.replication.factor": "3"}
    async with controlled(tmp_path, brokers=3, overrides=overrides) as (_, api):
        await topology(api)


async def clock(api: Api) -> None:
    """Every route of the clock."""
    frozen = await api.ask("POST", "/clock/freeze")
    assert frozen["is_frozen"] and await api.ask("GET", "/clock") == await api.ask("GET", "/clock")
    moved = await api.ask("POST", "/clock/advance", {"ms": 7 * 86_400_000, "keep_members": True})
    assert (moved["now_ms"] - frozen["now_ms"], moved["is_frozen"]) == (7 * 86_400_000, True)
    assert (await api.ask("POST", "/clock/set", {"ms": 1_000}))["now_ms"] == 1_000
    assert (await api.ask("POST", "/clock/set", {"ms": moved["now_ms"]}))["now_ms"] == moved["now_ms"]
    assert not (await api.ask("POST", "/clock/run"))["is_frozen"]
    assert "ms is -1, less than 0" in await api.ask("POST", "/clock/advance", {"ms": -1}, 400)
    await api.ask("POST", "/clock/advance", status=400)
    await api.ask("POST", "/clock/set", {"ms": 253_402_300_799_999})
    assert "is no time between 1970 and 9999" in await api.ask("POST", "/clock/advance", {"ms": 86_400_000}, 400)


async def test_records_are_gone_when_the_clock_has_passed_their_retention(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        await api.ask("POST", "/topics", {"name": "t", "configs": {"retention.ms": "604800000"}})
        await api.ask("POST", "/topics/t/records", {"records": [{"value": "a"}]})
        await api.ask("POST", "/clock/advance", {"ms": 86_400_000})
        assert len((await api.ask("GET", "/topics/t/records"))["records"]) == 1
        await api.ask("POST", "/clock/advance", {"ms": 7 * 86_400_000})
        assert (await api.ask("GET", "/topics/t/records"))["records"] == []
        await clock(api)


async def test_a_broker_by_the_machines_clock_says_so(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (broker, api):
        broker.state.clock = SystemClock(broker.state.loop)
        for method, path, body in (
            ("GET", "/clock", None),
            ("POST", "/clock/freeze", None),
            ("POST", "/clock/advance", {"ms": 1}),
        ):
            assert await api.ask(method, path, body, 409) == "this broker goes by the machine's clock"

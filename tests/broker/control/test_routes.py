"""Every route of the control plane with a real broker: its effect, its response, and its entry in the document."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from ottla.broker.clock import SystemClock
from ottla.broker.config.serve_options import ControlOptions
from ottla.broker.control import acts, plane, steering
from ottla.broker.control.access import Access
from ottla.broker.control.app import application
from ottla.broker.control.openapi import document
from ottla.broker.control.plane import Plane
from ottla.broker.control.route import BASE, Call, RouteTable
from ottla.broker.control.routes import ROUTES
from ottla.broker.faults.actions import ACTIONS
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker import administering_broker
from ottla_testing.broker.controlling import Api, controlled
from ottla_testing.broker.harness import Broker, produce, records

UNKNOWN_CLIENT: Any = Mock()


def test_document_is_valid_openapi_and_has_all_routes(stride: int) -> None:
    """A small run validates the document of some routes."""
    written = json.loads(json.dumps(document(ROUTES)))
    some = written if stride == 1 else document(random.sample(ROUTES, len(ROUTES) // stride))
    OpenAPIV31SpecValidator(json.loads(json.dumps(some))).validate()
    documented = {
        (method.upper(), path, operation["operationId"])
        for path, methods in written["paths"].items()
        for method, operation in methods.items()
    }
    routed = {
        (route.method, route.resource.canonical, route.name)
        for route in application(Plane(UNKNOWN_CLIENT, ControlOptions(), Access(ControlOptions()))).router.routes()
        if route.resource and route.method != "HEAD" and route.resource.canonical.startswith(BASE + "/")
    }
    assert documented == routed
    assert len(documented) == len(ROUTES) and all(path.startswith(BASE + "/") for _, path, _ in documented)


def test_route_table_takes_names_summaries_and_refusals_from_functions_and_paths() -> None:
    table = RouteTable()

    @table.add("GET", "/topics/{topic}", None)
    async def get_one_topic(plane: Plane, call: Call) -> Any:
        """One topic.

        More of it.
        """

    table.add("GET", "/topics", None)(get_one_topic)
    found = [(route.name, route.summary, route.refusals) for route in table.routes]
    assert found == [("getOneTopic", "One topic", (404, 409)), ("getOneTopic", "One topic", (409,))]
    assert table.routes[0].act is get_one_topic


async def topics_and_records(api: Api) -> None:
    """Calls every route of topics and records, with their refusals."""
    topic = await api.call("POST", "/topics", {"name": "orders", "partitions": 2, "configs": {"retention.ms": "1000"}})
    assert (topic["name"], len(topic["partitions"]), topic["configs"]) == ("orders", 2, {"retention.ms": "1000"})
    unnamed = await api.call("POST", "/topics")
    assert len(unnamed["partitions"]) == 1
    assert "TOPIC_ALREADY_EXISTS" in await api.call("POST", "/topics", {"name": "orders"}, 409)
    assert "INVALID_TOPIC_EXCEPTION" in await api.call("POST", "/topics", {"name": "a/b"}, 400)
    assert "INVALID_CONFIG" in await api.call("POST", "/topics", {"configs": {"retention.ms": "soon"}}, 400)
    assert "the body.partitions is 0: Expected `int` >= 1" in await api.call("POST", "/topics", {"partitions": 0}, 400)
    names = [topic["name"] for topic in (await api.call("GET", "/topics"))["topics"]]
    assert names == sorted(["orders", unnamed["name"]])
    assert await api.call("DELETE", f"/topics/{unnamed['name']}") == {"removed": 1}
    assert "UNKNOWN_TOPIC" in await api.call("DELETE", f"/topics/{unnamed['name']}", status=404)
    assert "UNKNOWN_TOPIC" in await api.call("GET", f"/topics/{unnamed['name']}", status=404)

    given: list[dict[str, Any]] = [
        {"value": "grüße", "partition": 0},
        {"value": {"base64": "/w=="}, "key": "k", "partition": 1, "timestamp_ms": 5},
        {
            "value": None,
            "key": "",
            "partition": 0,
            "headers": [{"name": "h", "value": "1"}, {"name": "h", "value": None}],
        },
    ]
    assert await api.call("POST", "/topics/orders/records", {"records": given}) == {"offsets": [0, 0, 1]}
    response = await api.call("GET", "/topics/orders/records")
    result = [{name: value for name, value in one.items() if name in given[1]} for one in response["records"]]
    assert [(one["value"], one["key"], one["partition"]) for one in result] == [
        ("grüße", None, 0),
        (None, "", 0),
        ({"base64": "/w=="}, "k", 1),
    ]
    assert response["records"][1]["headers"] == given[2]["headers"] and response["records"][2]["timestamp_ms"] == 5
    assert (response["more"], response["records"][2]["offset"], response["records"][1]["offset"]) == (False, 0, 1)
    found = await api.call("GET", "/topics/orders/records?partition=0&offset=1&limit=1")
    assert ([one["offset"] for one in found["records"]], found["more"]) == ([1], False)
    found = await api.call("GET", "/topics/orders/records?limit=2")
    assert (len(found["records"]), found["more"]) == (2, True)
    assert (await api.call("GET", "/topics/orders"))["partitions"][0]["end_offset"] == 2
    for path, refused in (("orders/records?partition=2", 404), ("none/records", 404), ("orders/records?limit=0", 400)):
        await api.call("GET", f"/topics/{path}", status=refused)
    for record, refused in (
        ({"value": "", "partition": 2}, 404),
        ({"value": {"base64": "?"}}, 400),
        ({"key": ""}, 400),
        ({"value": "\ud800"}, 400),
        ({"value": "", "headers": [{"name": "\udfff", "value": ""}]}, 400),
        ({"value": "x" * 1_100_000}, 400),
        ({"value": "x", "timestamp_ms": 2**63 - 1}, 400),
    ):
        await api.call("POST", "/topics/orders/records", {"records": [record]}, refused)
    await api.call("POST", "/topics/orders/records", status=400)
    await api.call("POST", "/topics/orders/records", {"records": []}, 400)
    assert (await api.call("GET", "/topics/orders"))["partitions"][0]["end_offset"] == 2


async def test_large_records_are_split_over_several_responses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "MAX_RESPONSE_BYTES", 250)
    async with controlled(tmp_path) as (_, api):
        await api.call("POST", "/topics", {"name": "t"})
        given = {"records": [{"value": f"{number:0100}"} for number in range(7)]}
        await api.call("POST", "/topics/t/records", given)
        offset, counts, more = 0, [], True
        while more:
            response = await api.call("GET", f"/topics/t/records?partition=0&offset={offset}")
            found, more = response["records"], response["more"]
            assert [record["offset"] for record in found] == list(range(offset, offset + len(found)))
            counts.append(len(found))
            offset += len(found)
        assert counts == [3, 3, 1]


async def test_topics_and_records(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        await topics_and_records(api)


async def topology(api: Api) -> None:
    """Calls every route of the topology, with three nodes."""
    await api.call("POST", "/topics", {"name": "t"})
    before = await api.call("GET", "/topology")
    assert [(node["id"], node["running"]) for node in before["nodes"]] == [(1, True), (2, True), (3, True)]
    (partition,) = before["partitions"]
    leader, other = partition["replicas"][:2]
    assert (partition["leader"], sorted(partition["isr"])) == (leader, [1, 2, 3])

    result = await api.call("POST", "/topology/leaders", {"topic": "t", "partition": 0, "node": other})
    moved = partition | {"leader": other, "leader_epoch": partition["leader_epoch"] + 1}
    assert result["partitions"] == [moved]
    assert (await api.call("GET", "/topics/t"))["partitions"][0]["leader"] == other
    result = await api.call("POST", f"/topology/nodes/{other}", {"running": False})
    assert [node["id"] for node in result["nodes"] if not node["running"]] == [other]
    assert result["partitions"][0]["leader"] not in (-1, other) and other not in result["partitions"][0]["isr"]
    refused = await api.call("POST", "/topology/leaders", {"topic": "t", "partition": 0, "node": other}, 409)
    assert refused == f"node {other} cannot lead t-0: it is stopped"
    await api.call("POST", f"/topology/nodes/{other}", {"running": True})
    assert (await api.call("POST", "/topology/spread"))["partitions"][0]["leader"] == leader
    result = await api.call("POST", "/topology/offline", {"topic": "t", "partition": 0})
    assert result["partitions"][0]["leader"] == -1
    result = await api.call("POST", "/topology/offline", {"topic": "t", "partition": 0, "offline": False})
    assert result["partitions"][0]["leader"] == leader
    for path, body in (
        ("/topology/leaders", {"topic": "t", "partition": 1, "node": 1}),
        ("/topology/leaders", {"topic": "t", "partition": 0, "node": 4}),
        ("/topology/offline", {"topic": "none", "partition": 0}),
        ("/topology/nodes/4", {"running": True}),
    ):
        assert "there is no" in await api.call("POST", path, body, 404)


async def test_topology(tmp_path: Path) -> None:
    overrides = {"default.replication.factor": "3"}
    async with controlled(tmp_path, brokers=3, overrides=overrides) as (_, api):
        await topology(api)


FULL_RULE = {
    "action": "error", "code": "NOT_LEADER_OR_FOLLOWER", "api": ["Produce", "Fetch"], "topic": "t*", "partition": 0,
    "client_id": "?", "listener": "PLAINTEXT", "node": 1, "nth": 2, "times": 3, "after": 4, "probability": 0.5,
    "seed": -5,
}  # fmt: skip


async def faults(api: Api) -> None:
    """Calls every route of the faults, with each kind of fault."""
    assert await api.call("GET", "/faults") == {"faults": []}
    added = await api.call("POST", "/faults", FULL_RULE)
    first = added["id"]
    assert added == FULL_RULE | {"id": first, "matched": 0, "fired": 0}
    rules: list[dict[str, Any]] = [
        {"action": "error", "code": 6, "api": 0},
        {"action": "error", "code": -1, "api": ["Fetch", 2]},
        {"action": "delay", "ms": 500, "when": "after"},
        {"action": "disconnect", "when": "after", "topic": "u"},
        {"action": "truncate", "bytes": 0, "topic": "u"},
        {"action": "garble", "seed": 1, "topic": "u"},
        {"action": "wrong_crc", "topic": "u"},
        {"action": "throttle", "ms": 100, "client_id": "u"},
        {"action": "stall", "topic": "u"},
        {"action": "refuse", "listener": "PLAINTEXT"},
        {"action": "disk_error", "on": "write", "path": "/nowhere/*"},
        {"action": "disk_full", "path": "/nowhere/*"},
    ]
    assert {rule["action"] for rule in rules} == set(ACTIONS) - {"bad_certificate"}  # refused without TLS, below
    for number, rule in enumerate(rules, first + 1):
        assert (await api.call("POST", "/faults", rule))["id"] == number
    listed = (await api.call("GET", "/faults"))["faults"]
    assert listed[0] == await api.call("GET", f"/faults/{first}") == added
    assert [one["api"] for one in listed[1:3]] == ["Produce", ["Fetch", "ListOffsets"]]
    assert await api.call("DELETE", f"/faults/{first}") == {"removed": 1}
    for method in ("DELETE", "GET"):
        assert await api.call(method, f"/faults/{first}", status=404) == f"no fault with id {first} is in force"
    assert await api.call("DELETE", "/faults") == {"removed": len(rules)}
    for rule, line in (
        ({"action": "error"}, "error needs code"),
        ({"action": "error", "code": "OOPS"}, "no error code is named 'OOPS'"),
        ({"action": "delay", "ms": 0}, "the body.ms is 0: Expected `int` >= 1"),
        ({"action": "stall", "ms": 1}, "stall has no 'ms'"),
        ({"action": "stall", "api": "Prodcue"}, "no API is called 'Prodcue'"),
        ({"action": "stall", "probability": 0}, "probability must be above 0 and at most 1, not 0"),
        ({"action": "refuse", "topic": "t"}, "refuse has no condition 'topic'"),
        ({"action": "refuse", "listener": "OTHER"}, "there is no listener 'OTHER': the listeners are PLAINTEXT"),
        ({"action": "stall", "node": 77}, "there is no node 77: the nodes are 1"),
        ({"action": "bad_certificate", "certificate": "expired"}, "bad_certificate needs a broker with the security"),
        ({"action": "sleep"}, "the body.action is 'sleep': Invalid enum value 'sleep'; accepted are "),
        ({"api": "Produce"}, "the body: Object missing required field `action`"),
    ):
        assert (await api.call("POST", "/faults", rule, 400)).startswith(line)
    assert await api.call("GET", "/faults") == {"faults": []}


async def test_fault_fires_and_is_counted_until_it_is_removed(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (broker, api):
        await faults(api)
        await broker.topic("t")
        client = await broker.client()

        async def code() -> int:
            response = await client.call(produce(records(b"a")), 9)
            return response.responses[0].partition_responses[0].error_code

        rule = {
            "action": "error",
            "code": "NOT_ENOUGH_REPLICAS",
            "api": "Produce",
            "topic": "t",
            "after": 1,
            "times": 1,
        }
        added = await api.call("POST", "/faults", rule)
        assert [await code() for _ in range(3)] == [0, 19, 0]
        counted = await api.call("GET", f"/faults/{added['id']}")
        assert (counted["matched"], counted["fired"]) == (3, 1)
        stalled = await api.call("POST", "/faults", {"action": "stall", "api": "Produce"})
        waiting = asyncio.ensure_future(code())
        while not (await api.call("GET", f"/faults/{stalled['id']}"))["fired"]:
            assert not waiting.done()
        await api.call("DELETE", "/faults")
        assert await waiting == 0


async def test_number_of_faults_is_bounded_and_missing_fault_injection_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controlled(tmp_path) as (broker, api):
        monkeypatch.setattr(steering, "MAX_FAULTS", 1)
        await api.call("POST", "/faults", {"action": "garble"})
        assert (
            await api.call("POST", "/faults", {"action": "garble"}, 409)
            == "there are 1 faults, the maximum; remove one"
        )
        broker.running.faults = None
        for method, path, body in (
            ("GET", "/faults", None),
            ("POST", "/faults", {"action": "garble"}),
            ("DELETE", "/faults", None),
            ("GET", "/faults/1", None),
            ("DELETE", "/faults/1", None),
        ):
            assert await api.call(method, path, body, 409) == "this broker was started without fault injection"


async def clock(api: Api) -> None:
    """Calls every route of the clock."""
    frozen = await api.call("POST", "/clock/freeze")
    later = await api.call("GET", "/clock")
    assert (frozen["is_frozen"], later["now_ms"]) == (True, frozen["now_ms"])
    moved = await api.call("POST", "/clock/advance", {"ms": 7 * 86_400_000, "keep_members": True})
    assert (moved["now_ms"] - frozen["now_ms"], moved["is_frozen"]) == (7 * 86_400_000, True)
    assert (await api.call("POST", "/clock/set", {"ms": 1_000}))["now_ms"] == 1_000
    assert (await api.call("POST", "/clock/set", {"ms": moved["now_ms"]}))["now_ms"] == moved["now_ms"]
    assert not (await api.call("POST", "/clock/run"))["is_frozen"]
    assert "the body.ms is -1: Expected `int` >= 0" in await api.call("POST", "/clock/advance", {"ms": -1}, 400)
    await api.call("POST", "/clock/advance", status=400)
    await api.call("POST", "/clock/set", {"ms": 253_402_300_799_999})
    assert "is not a time between 1970 and 9999" in await api.call("POST", "/clock/advance", {"ms": 86_400_000}, 400)


async def test_advance_past_retention_deletes_records(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        await api.call("POST", "/topics", {"name": "t", "configs": {"retention.ms": "604800000"}})
        await api.call("POST", "/topics/t/records", {"records": [{"value": "a"}]})
        await api.call("POST", "/clock/advance", {"ms": 86_400_000})
        assert len((await api.call("GET", "/topics/t/records"))["records"]) == 1
        await api.call("POST", "/clock/advance", {"ms": 7 * 86_400_000})
        assert (await api.call("GET", "/topics/t/records"))["records"] == []
        await clock(api)


async def test_broker_with_the_machines_clock_refuses_changes(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (broker, api):
        broker.state.clock = SystemClock(broker.state.loop)
        for method, path, body in (
            ("GET", "/clock", None),
            ("POST", "/clock/freeze", None),
            ("POST", "/clock/advance", {"ms": 1}),
        ):
            assert (
                await api.call(method, path, body, 409)
                == "this broker uses the machine's clock, which cannot be changed"
            )


async def values(api: Api, topic: str = "t") -> list[Any]:
    return [record["value"] for record in (await api.call("GET", f"/topics/{topic}/records"))["records"]]


async def snapshots(api: Api) -> None:
    """Calls every route of snapshots and of the state; the broker has its initial state afterwards."""
    assert await api.call("GET", "/snapshots") == {"snapshots": []}
    await api.call("POST", "/topics", {"name": "t"})
    await api.call("POST", "/topics/t/records", {"records": [{"value": "before"}]})
    assert await api.call("POST", "/snapshots", {"name": "a/b"}) == {"name": "a/b"}
    await api.call("POST", "/topics/t/records", {"records": [{"value": "after"}]})
    assert await api.call("POST", "/snapshots") == {"name": "snapshot-2"}
    assert (
        await api.call("POST", "/snapshots", {"name": "a/b"}, 409)
        == "a snapshot a/b exists already; choose another name"
    )
    assert await values(api) == ["before", "after"]
    assert await api.call("POST", "/snapshots/a%2Fb/restore") == {}
    assert await values(api) == ["before"]
    await api.call("POST", "/snapshots/snapshot-2/restore")
    assert await values(api) == ["before", "after"]
    names = [one["name"] for one in (await api.call("GET", "/snapshots"))["snapshots"]]
    assert names == ["a/b", "snapshot-2"]
    await api.call("POST", "/faults", {"action": "garble", "topic": "none"})
    assert await api.call("POST", "/state/reset") == {}
    assert await api.call("GET", "/topics") == {"topics": []} and await api.call("GET", "/faults") == {"faults": []}
    for name in names:
        assert await api.call("DELETE", f"/snapshots/{quote(name, safe='')}") == {"removed": 1}
    assert await api.call("DELETE", "/snapshots/a", status=404) == "there is no snapshot a"
    assert await api.call("POST", "/snapshots/a/restore", status=404) == "there is no snapshot a"


@pytest.mark.parametrize("in_memory", [True, False])
async def test_snapshots(in_memory: bool, tmp_path: Path) -> None:
    files = MemoryFiles(lambda: 0) if in_memory else None
    async with controlled(tmp_path, files=files) as (_, api):
        await snapshots(api)


async def test_number_of_snapshots_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane, "MAX_SNAPSHOTS", 1)
    async with controlled(tmp_path, files=MemoryFiles(lambda: 0)) as (_, api):
        await api.call("POST", "/snapshots")
        assert (
            await api.call("POST", "/snapshots", {"name": "b"}, 409) == "there are 1 snapshots, the maximum; delete one"
        )


async def test_concurrent_snapshots_of_one_name_are_refused_but_one(tmp_path: Path) -> None:
    async with controlled(tmp_path, files=MemoryFiles(lambda: 0)) as (_, api):
        requested = (api.raw("POST", "/snapshots", b'{"name": "one"}') for _ in range(5))
        assert sorted(status for status, _ in await asyncio.gather(*requested)) == [201, 409, 409, 409, 409]
        requested = (api.raw("POST", f"/{what}", None) for what in ["snapshots", "clock/freeze", "state/reset"] * 3)
        assert {status for status, _ in await asyncio.gather(*requested)} == {200, 201}


async def requests(broker: Broker, api: Api) -> None:
    assert (await api.call("GET", "/requests"))["requests"] == []
    client = await broker.client()
    await client.call(MetadataRequest(topics=[]), 12)
    client.close()
    (one,) = (await api.call("GET", "/requests?order=newest&show=fields"))["requests"]
    assert (one["api"], one["version"], one["ending"], one["request"]["topics"]) == ("Metadata", 12, "responded", [])
    whole = await api.call("GET", f"/requests/{one['number']}")
    assert bytes.fromhex(whole["request_hex"])[:4] == struct.pack(">hh", 3, 12)
    assert (await api.call("POST", "/requests/assert", {"api": "Metadata", "max_version": 12}))["passed"]
    assert await api.call("DELETE", "/requests") == {"removed": 1}
    assert (await api.call("GET", "/requests"))["requests"] == []
    await api.call("GET", f"/requests/{one['number']}", status=404)


async def test_every_route_is_called(tmp_path: Path) -> None:
    """Every documented route is implemented."""
    async with controlled(tmp_path, brokers=3, files=MemoryFiles(lambda: 0)) as (broker, api):
        health = await api.call("GET", "/health")
        assert health["bootstrap"] == ",".join(f"127.0.0.1:{port}" for port in broker.ports)
        assert (health["status"], health["release"], health["cluster_id"]) == (
            "serving",
            "ottla",
            broker.state.cluster_id,
        )
        assert await api.call("GET", "/openapi.json") == api.described
        assert (await api.call("GET", "/overview?limit=1&contains=x"))["topics"] == []
        for part in (snapshots, topology, clock, faults):
            await part(api)
            await api.call("POST", "/state/reset")
        await topics_and_records(api)
        await requests(broker, api)
        await administering_broker.resets(api)
        await administering_broker.configs(api)
        await administering_broker.without_authorizer(api)
        recording = {"file": str(tmp_path / "x.jsonl")}
        for method, body, is_running in (("POST", recording, True), ("GET", None, True), ("DELETE", None, False)):
            assert (await api.call(method, "/recording", body))["running"] is is_running
        assert await api.call("GET", "/groups") == {"groups": []}
        assert await api.call("GET", "/producers?topic=orders") == {"producers": []}
        await api.call("GET", "/groups/none", status=404)
        await api.call("GET", "/groups/none/records?topic=orders&partition=0", status=404)
        for level in ("DEBUG", None):
            found = await api.call("PUT", "/log-levels", {"logger": "broker_state", "level": level})
            assert found == await api.call("GET", "/log-levels")
        documented = {(m.upper(), path) for path, methods in api.described["paths"].items() for m in methods}
        assert api.called == documented

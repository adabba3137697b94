"""The requests of clients over HTTP and by `ottla ctl requests`: listed, shown, asserted, cleared."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.control import requests
from ottla.broker.control.models.requests import REQUESTS_MAX
from ottla.broker.faults import actions
from ottla.broker.faults.rules import Rule
from ottla.broker.testing.embedded import Embedded
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records.compression import Codec
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker import harness
from ottla_testing.broker.controlling import Api, controlled
from ottla_testing.broker.ctl_runs import run
from ottla_testing.broker.harness import produce, records


def controlled_in_memory(tmp_path: Path, **more: Any) -> Any:
    return controlled(tmp_path, files=MemoryFiles(lambda: 0), **more)


async def three(broker: harness.Broker) -> harness.Client:
    """Sends requests 1 to 3: a Metadata, a Produce, and a Fetch that waits."""
    await broker.topic("orders")
    client = await broker.client()
    await client.call(MetadataRequest(topics=[]), 12, "reader")
    await client.call(produce(records(b"\xff", b"text", codec=3), "orders"), 9, "orders")
    part = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=100)
    await client.send(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=100,
            isolation_level=0,
            topics=[FetchRequest.FetchTopic(topic="orders", partitions=[part])],
        ),
        11,
        "reader",
    )
    await broker.settle()
    return client


async def numbers(api: Api, query: str) -> list[int]:
    return [one["number"] for one in (await api.call("GET", f"/requests?{query}"))["requests"]]


async def test_requests_are_listed_with_filters(tmp_path: Path) -> None:
    async with controlled_in_memory(tmp_path) as (broker, api):
        await three(broker)
        found = await api.call("GET", "/requests?max_version=12&limit=3")
        assert (found["more"], found["next"], found["forgotten"]) == (True, 7, 0)
        assert [(one["number"], one["api"], one["ending"]) for one in found["requests"]] == [
            (1, "Metadata", "responded"),
            (2, "Produce", "responded"),
            (3, "Fetch", "pending"),
        ]
        assert all("request" not in one for one in found["requests"])
        sent = found["requests"][1]
        assert sent["produced"] == {
            "acks": -1,
            "codecs": ["lz4"],
            "magics": [2],
            "is_idempotent": False,
            "is_transactional": False,
            "producer_ids": [],
            "records": 2,
        }
        assert (sent["topics"], sent["errors"], sent["client_id"]) == (["orders"], [], "orders")
        assert sent["duration_us"] >= 0 and found["requests"][2]["duration_us"] is None
        for query, wanted in [
            ("api=Produce", [2]),
            ("api=Produce,Fetch", [2, 3]),
            ("api=produce,%20fetch&order=newest", [3, 2]),
            ("client_id=reader", [1, 3]),
            ("client_id=read*&since=2", [3]),
            ("topic=orders&limit=1", [2]),
            ("topic=orders&limit=1&order=newest", [3]),
            ("codec=lz4", [2]),
            ("acks=-1", [2]),
            ("magic=2", [2]),
            ("api=Metadata&error=NONE&client_id=reader", [1]),
            ("ending=pending", [3]),
            ("version=11", [3]),
            ("min_version=12", [1]),
            ("node=0&api=Fetch", []),
            ("software=*", []),
            ("principal=User:A*&codec=lz4", [2]),
            ("principal=User:ann", []),
        ]:
            assert await numbers(api, query) == wanted, query


async def test_fields_are_returned_on_request(tmp_path: Path) -> None:
    async with controlled_in_memory(tmp_path) as (broker, api):
        await three(broker)
        (one,) = (await api.call("GET", "/requests?api=Produce&show=contents"))["requests"]
        ctl_lines = one["request"]["topic_data"][0]["partition_data"][0]["records"]
        assert [record["value"] for record in ctl_lines["batches"][0]["records"]] == [{"base64": "/w=="}, "text"]
        assert one["response"]["responses"][0]["partition_responses"][0]["base_offset"] == 0
        (one,) = (await api.call("GET", "/requests?api=Produce&show=fields"))["requests"]
        assert "text" not in json.dumps(one["request"])
        (one,) = (await api.call("GET", "/requests?api=Fetch&show=fields"))["requests"]
        assert one["request"]["max_wait_ms"] == 60_000 and one["response"] is None
        whole = await api.call("GET", "/requests/2")
        assert bytes.fromhex(whole["request_hex"])[:4] == struct.pack(">hh", 0, 9)
        assert bytes.fromhex(whole["response_hex"])[:4] == struct.pack(">i", whole["correlation_id"])
        assert whole["request"] is not None and whole["response"]["throttle_time_ms"] == 0
        assert await api.call("GET", "/requests/99", status=404) == "request 99 is not among the newest that are kept"


async def test_response_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "DECODED_BYTES", 3_000)
    monkeypatch.setattr(requests, "SHOWN_RECORDS", 3)
    async with controlled_in_memory(tmp_path) as (broker, api):
        await broker.topic("orders")
        client = await broker.client()
        for _ in range(4):
            await client.call(produce(records(*[b"x" * 200] * 10), "orders"), 9)
        found = await api.call("GET", "/requests?show=contents")
        assert (len(found["requests"]), found["more"]) == (2, True)
        (batch,) = found["requests"][0]["request"]["topic_data"][0]["partition_data"][0]["records"]["batches"]
        assert (len(batch["records"]), batch["records_left_out"]) == (3, 7)
        assert len((await api.call("GET", "/requests"))["requests"]) == 4
        assert "1000" in await api.call("GET", f"/requests?limit={REQUESTS_MAX + 1}", status=400)


async def test_decompressed_records_are_bounded_in_a_response(tmp_path: Path) -> None:
    async with controlled_in_memory(tmp_path) as (broker, api):
        await broker.topic("orders")
        client = await broker.client()
        for _ in range(4):
            bomb = records(b"first", b"\1" * 3_000_000, b"last", codec=Codec.GZIP)
            await client.call(produce(bomb, "orders"), 9)
        found = await api.call("GET", "/requests?show=contents")
        assert (len(found["requests"]), found["more"]) == (2, True), "what was decompressed counts"
        for one in (found["requests"][0], await api.call("GET", "/requests/1")):
            (batch,) = one["request"]["topic_data"][0]["partition_data"][0]["records"]["batches"]
            assert [record["value"] for record in batch["records"]] == ["first"]
            assert (batch["count"], batch["records_left_out"]) == (3, 2)


INVALID_FILTERS = [
    ("api=Produc", "no API is called 'Produc'; did you mean Produce?"),
    ("api=Fetch&acks=1", "acks applies only to Produce requests"),
    ("error=NOPE", "no error is called 'NOPE'"),
    ("codec=zip", "the query.codec is 'zip': Invalid enum value 'zip'; accepted are gzip, lz4, none, snappy, zstd"),
    ("acks=2", "the query.acks is '2': Expected `int` <= 1"),
    ("order=up", "the query.order is 'up': Invalid enum value 'up'; accepted are newest, oldest"),
    ("count=1", "the query: Object contains unknown field `count`; accepted are client_id, "),
    ("since=0", "the query.since is '0': Expected `int` >= 1"),
]


async def test_invalid_filters_are_refused(tmp_path: Path) -> None:
    async with controlled_in_memory(tmp_path) as (_, api):
        for query, why in INVALID_FILTERS:
            assert (await api.call("GET", f"/requests?{query}", status=400)).startswith(why)


async def test_expectation_over_http_returns_a_verdict(tmp_path: Path) -> None:
    async with controlled_in_memory(tmp_path) as (broker, api):
        client = await three(broker)
        words = {"api": "Produce", "client_id": "orders", "acks": "all", "codec": "lz4", "max_version": 9, "count": 1}
        found = await api.call("POST", "/requests/assert", words)
        assert (found["passed"], found["text"], found["count"]) == (True, "", 1)
        assert [one["number"] for one in found["requests"]] == [2]
        words |= {"idempotent": True, "fields": {"topic_data.name": "other"}}
        found = await api.call("POST", "/requests/assert", words)
        assert not found["passed"]
        assert "#2 Produce v9 of orders: batches have no producer id; topic_data.name is 'orders'" in found["text"]
        assert (await api.call("POST", "/requests/assert", {"api": ["Fetch", "Metadata"], "min_count": 2}))["passed"]
        assert not (await api.call("POST", "/requests/assert", {"api": "Fetch", "error": "NONE", "within_ms": 5}))[
            "passed"
        ]
        waits = asyncio.create_task(
            api.call("POST", "/requests/assert", {"api": "Fetch", "error": "NONE", "within_ms": 15_000})
        )
        other = await broker.client()
        await other.call(produce(records(b"new"), "orders"), 9)
        await client.receive()
        assert (await waits)["passed"]
        why = await api.call("POST", "/requests/assert", {"fields": {"topic": 1}}, 400)
        assert why == "no request has a field topic"
        assert "colour" in await api.call("POST", "/requests/assert", {"colour": "red"}, 400)
        assert await api.call("DELETE", "/requests") == {"removed": 7}
        assert (await api.call("POST", "/requests/assert", {"none": True}))["passed"]


async def test_broker_without_a_ring_refuses_lists_of_requests(tmp_path: Path) -> None:
    async with controlled_in_memory(tmp_path) as (broker, api):
        broker.running.ring = None
        for method, path, body in [
            ("GET", "/requests", None),
            ("GET", "/requests/1", None),
            ("DELETE", "/requests", None),
            ("POST", "/requests/assert", {}),
        ]:
            assert "keeps no requests" in await api.call(method, path, body, 409)


async def test_fired_fault_is_named_in_the_request(tmp_path: Path) -> None:
    async with controlled_in_memory(tmp_path) as (broker, api):
        broker.running.faults.add(Rule(action=actions.disconnect(), api="Metadata"))
        client = await broker.client()
        await client.send(MetadataRequest(topics=[]), 12)
        assert await client.is_closed()
        (one,) = (await api.call("GET", "/requests?ending=closed"))["requests"]
        assert one["fault"] == "fault 1: disconnect" and "disconnected before" in one["reason"]


async def test_ctl_lists_and_shows_requests(tmp_path: Path) -> None:
    async with controlled_in_memory(tmp_path) as (broker, api):

        async def ctl_lines(*arguments: str, code: int = 0) -> list[str]:
            found, out, error = await asyncio.to_thread(run, api.url, "requests", *arguments)
            assert (found, error) == (code, "")
            return [" ".join(line.split()) for line in out.splitlines()]

        assert await ctl_lines() == ["no requests"]
        await three(broker)
        lines = await ctl_lines("list", "--topic", "orders")
        assert lines[0] == "NUMBER REQUEST CLIENT PRINCIPAL SOFTWARE TOPICS MS ENDING"
        assert lines[1].startswith("2 Produce v9 orders User:ANONYMOUS - orders ") and lines[1].endswith("responded")
        assert lines[2] == "3 Fetch v11 reader User:ANONYMOUS - orders - pending"
        assert (await ctl_lines("--json"))[0] == "{"
        assert await ctl_lines("list", "--topic", "orders", "--limit", "1") == [
            lines[0],
            lines[2],
            "older requests exist",
        ]
        shown = await ctl_lines("show", "2")
        assert "topics: orders" in shown and '"value": "text",' in shown
        assert any(line.startswith("00000000 00 00 00 09") for line in shown)
        assert await ctl_lines("assert", "--api", "Produce", "--acks", "-1", "--codec", "lz4", "--no-idempotent") == [
            "as expected: 1 request"
        ]
        lines = await ctl_lines("assert", "--api", "Fetch", "--none", "--field", "max_wait_ms=60000", code=1)
        assert lines[0].startswith("expected no Fetch request with max_wait_ms 60000, saw 1 of")
        assert (await ctl_lines("assert", "--field", "topics.topic=orders", "--api", "Fetch"))[0].startswith(
            "as expected"
        )
        assert (await ctl_lines("clear"))[0].startswith("removed: ")
        code, _, error = await asyncio.to_thread(run, api.url, "requests", "assert", "--field", "x")
        assert (code, error) == (2, "ottla ctl: 'x' is not PATH=VALUE\n")


async def test_an_embedded_broker_with_a_control_plane_shares_its_requests(tmp_path: Path) -> None:
    with Embedded(control="127.0.0.1:0") as broker:
        client = await harness.Client.connect(int(broker.bootstrap.rpartition(":")[2]))
        await client.call(MetadataRequest(topics=[]), 12, "über")
        client.close()
        assert broker.control_url is not None
        _, out, _ = await asyncio.to_thread(run, broker.control_url, "requests", "list", "--client-id", "über")
        assert "Metadata v12" in out
        assert await asyncio.to_thread(run, broker.control_url, "requests", "clear") == (0, "removed: 1\n", "")
        assert broker.requests() == []

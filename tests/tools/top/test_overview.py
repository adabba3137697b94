"""GET /v1/overview compared with what was done, and the statistics of clients, with times set by the test."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.admin_api.activity import CLIENTS_MAX, SLOW_OF_A_SECOND, SLOW_SECONDS, Activity
from ottla.broker.admin_api.overview import Overviews, Selection, _waiting
from ottla.broker.metrics.client_ledger import TEXT_MAX, ClientLibrary
from ottla.broker.recording.exchange import Ending, Exchange, Peer
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.harness import fetch, frame, produce, records

SECOND = 1_000_000_000
METADATA, FETCH, JOIN_GROUP = 3, 1, 11
NUMBERS = itertools.count(1)


def peer(software: str | None = None, host: str = "10.0.0.1") -> Peer:
    return Peer(
        next(NUMBERS),
        1,
        "PLAINTEXT",
        "127.0.0.1",
        9092,
        host,
        50_000,
        0,
        ClientLibrary("PLAINTEXT", software, None, True),
    )


def exchange(of: Peer, begun_ns: int, client_id: str | None = "app", key: int = METADATA, **more: Any) -> Exchange:
    return Exchange(next(NUMBERS), of, 0, begun_ns, key, 4, 1, client_id, more.pop("request", None), 100, **more)


def end(activity: Activity, one: Exchange, duration_ns: int, ending: Ending = Ending.RESPONDED) -> None:
    one.duration_ns, one.ending, one.response_bytes = duration_ns, ending, 40
    activity.ended(one, ())


def done(activity: Activity, one: Exchange, duration_ns: int, ending: Ending = Ending.RESPONDED) -> None:
    activity.begun(one, memoryview(b""))
    end(activity, one, duration_ns, ending)


def test_principals_are_those_of_open_connections_since_their_login() -> None:
    activity = Activity(lambda: 10 * SECOND)
    first, second = peer("java"), peer("java")
    for one in (first, second):
        activity.opened(one)
        done(activity, exchange(one, SECOND), 5)
    (client,) = activity.clients
    assert client.principals == {"User:ANONYMOUS": 2}
    done(activity, exchange(first, SECOND, principal="User:ann"), 5)
    assert client.principals == {"User:ANONYMOUS": 1, "User:ann": 1} and client.connections == 2
    done(activity, exchange(first, SECOND, "other", principal="User:ann"), 5)
    assert client.principals == {"User:ANONYMOUS": 1}
    activity.closed(first)
    activity.closed(second)
    assert [dict(one.principals) for one in activity.clients] == [{}, {}]


def test_clients_are_distinguished_and_counted() -> None:
    activity = Activity(lambda: 10 * SECOND)
    first, second, silent = peer("java"), peer("java", "10.0.0.2"), peer()
    for one in (first, second, silent):
        activity.opened(one)
    for one, client_id in ((first, "a"), (second, "a"), (first, "b"), (first, "b")):
        done(activity, exchange(one, SECOND, client_id), 5)
    result = {client.client_id: client for client in activity.clients}
    assert {name: (client.requests, client.connections, dict(client.hosts)) for name, client in result.items()} == {
        "a": (2, 1, {"10.0.0.2": 1}),
        "b": (2, 1, {"10.0.0.1": 1}),
    }
    assert (activity.connections, result["a"].request_bytes, result["a"].response_bytes) == (3, 200, 80)
    assert activity.client_of(first) is result["b"] and activity.client_of(silent) is None
    first.library = ClientLibrary("PLAINTEXT", "librdkafka", "2", True)  # it sends its software name
    waits = exchange(first, 2 * SECOND, "b")
    activity.begun(waits, memoryview(b""))
    assert list(activity.waiting()) == [waits] and activity.client_of(first) is result["b"]
    end(activity, waits, 7)
    found = activity.client_of(first)
    assert found is not None and (found.software_name, found.requests, result["b"].connections) == ("librdkafka", 1, 0)
    assert list(activity.waiting()) == []
    done(activity, exchange(first, SECOND, "b", key=999), 5, Ending.CLOSED)
    assert found.apis == {METADATA: 4}, "an API that is not there is none that it knows"
    for one in (first, second, silent):
        activity.closed(one)
    assert activity.connections == 0 and all(client.connections == 0 for client in activity.clients)


def test_clients_with_ever_new_names_take_limited_memory() -> None:
    activity = Activity(lambda: 0)
    for number in range(3 * CLIENTS_MAX):
        gone = peer()
        activity.opened(gone)
        done(activity, exchange(gone, number, f"{number}-" + "x" * 1000), 1)
        activity.closed(gone)
    assert len(activity.clients) <= CLIENTS_MAX
    assert all(len(client.client_id or "") <= TEXT_MAX for client in activity.clients)
    assert sum(client.requests for client in (*activity.clients, activity.evicted)) == 3 * CLIENTS_MAX
    newest = [client for client in activity.clients if (client.client_id or "").startswith(f"{3 * CLIENTS_MAX - 1}-")]
    assert len(newest) == 1, "those of long ago are forgotten first"
    there = [peer() for _ in range(CLIENTS_MAX + 5)]
    for number, one in enumerate(there):
        activity.opened(one)
        done(activity, exchange(one, number, f"there-{number}"), 1)
    nameless = [client for client in activity.clients if client.client_id is None]
    assert len(activity.clients) <= CLIENTS_MAX + 1
    assert [client.connections for client in nameless] == [CLIENTS_MAX + 5 - (len(activity.clients) - 1)]


def test_slowest_requests_of_the_last_minute_are_kept() -> None:
    now_ns = 0
    activity, one, dice = Activity(lambda: now_ns), peer(), random.Random(5)
    activity.opened(one)
    durations: list[tuple[int, int]] = []  # (ended, duration)
    for now_ns in range(0, 100 * SECOND, SECOND // 40):
        duration_ns = dice.randrange(SECOND)
        done(activity, exchange(one, now_ns - duration_ns), duration_ns)
        durations.append((now_ns, duration_ns))
    second = now_ns // SECOND
    expected: list[int] = []
    for at in range(second - SLOW_SECONDS + 1, second + 1):
        of_it = sorted((d for ended, d in durations if ended // SECOND == at), reverse=True)
        expected += of_it[:SLOW_OF_A_SECOND]
    assert [slow.duration_ns for slow in activity.slow()] == sorted(expected, reverse=True)
    now_ns += SLOW_SECONDS * SECOND
    assert activity.slow() == []


def test_request_with_a_wait_time_is_not_slow() -> None:
    activity, one = Activity(lambda: SECOND), peer()
    activity.opened(one)
    requested = frame(fetch(("t", 0, 0), max_wait_ms=500), 12, 1)[4:]
    done(activity, exchange(one, 0, key=FETCH, request=requested), 500_900_000)  # v4 in its header is v12 in its bytes
    done(activity, exchange(one, 0, key=JOIN_GROUP), SECOND)
    done(activity, exchange(one, 0, key=FETCH, request=None), SECOND)
    assert activity.slow() == []
    late = exchange(one, 0, key=FETCH, request=requested)
    late.api_version, late.fault = 12, "delay"
    done(activity, late, 502 * 1_000_000)
    assert [(slow.number, slow.fault) for slow in activity.slow()] == [(late.number, "delay")]


async def test_overview_shows_what_was_done(tmp_path: Path) -> None:
    async with controlled(tmp_path, files=MemoryFiles(lambda: 0)) as (broker, api):
        first = await api.call("GET", "/overview")
        assert first["topics"] == first["groups"] == first["producers"] == first["clients"] == first["waiting"] == []
        assert {name for name, number in first["totals"].items() if number} == set()
        for name, partitions in (("orders", 2), ("Quiet", 3)):
            await broker.topic(name, partitions)
        client = await broker.client()
        software = ApiVersionsRequest(client_software_name="py", client_software_version="1")
        await client.call(software, 3, "app")
        sent = records(b"one", b"two", b"three", producer_id=4000, producer_epoch=7, base_sequence=0)
        await client.call(produce(sent, "orders"), 9, "app")
        response = await client.call(fetch(("orders", 0, 0)), 12, "app")
        read = len(response.responses[0].partitions[0].records)
        await client.call(_commit("billing", "orders", 0, 1), 8, "app")
        waiting = await broker.client()
        await waiting.send(fetch(("orders", 1, 0), max_wait_ms=60_000), 12, "reader")
        await broker.settle()
        await api.call("POST", "/faults", {"action": "delay", "ms": 5, "api": "Heartbeat"})
        result = await api.call("GET", "/overview")

        assert [topic["name"] for topic in result["topics"][:1]] == ["orders"], "what is active comes first"
        topics = {topic["name"]: topic for topic in result["topics"]}
        log = broker.log("orders")
        assert topics["orders"] == {
            "name": "orders",
            "is_internal": False,
            "partitions": 2,
            "offline_partitions": 0,
            "size_bytes": log.size_bytes,
            "records": 3,
            "records_in": 3,
            "bytes_in": len(sent),
            "bytes_out": read,
        }
        assert topics["Quiet"]["records_in"] == 0 and topics["__consumer_offsets"]["is_internal"]
        (group,) = result["groups"]
        assert {
            name: group[name] for name in ("id", "state", "members", "topics", "partitions", "committed", "lag")
        } == {
            "id": "billing",
            "state": "Empty",
            "members": 0,
            "topics": ["orders"],
            "partitions": 1,
            "committed": 1,
            "lag": 2,
        }
        (producer,) = result["producers"]
        assert (producer["producer_id"], producer["producer_epoch"], producer["last_sequence"]) == (4000, 7, 2)
        clients = {one["client_id"]: one for one in result["clients"]}
        app = clients["app"]
        assert (app["software_name"], app["software_version"], app["hosts"]) == ("py", "1", ["127.0.0.1"])
        assert (app["connections"], app["waiting"], app["requests"]) == (1, 0, 4)
        assert app["apis"] == {"ApiVersions": 3, "Fetch": 12, "OffsetCommit": 8, "Produce": 9}
        (parked,) = result["waiting"]
        assert (parked["api"], parked["client_id"], parked["waits_for"]) == ("Fetch", "reader", "records")
        assert {one["api"] for one in result["slow"]} >= {"Produce", "OffsetCommit", "ApiVersions"}
        assert result["totals"]["waiting"] == 1 and result["totals"]["faults"] == len(result["faults"]) == 1
        assert result["totals"]["requests"] == first["totals"]["requests"] + sum(
            c["requests"] for c in result["clients"]
        )
        assert result["nodes"] == [
            {**(await api.call("GET", "/topology"))["nodes"][0], "leads": result["totals"]["partitions"]}
        ]
        assert (
            result["broker"]["instance"] == first["broker"]["instance"]
            and result["broker"]["state"] == first["broker"]["state"]
        )

        await waiting.send(produce(sent, "none"), 9, "reader")  # its response waits for the other
        found = await api.call("GET", "/overview?contains=QUI&limit=1")
        assert [topic["name"] for topic in found["topics"]] == ["Quiet"] and found["groups"] == found["clients"] == []
        assert found["totals"]["topics"] == result["totals"]["topics"]
        assert len((await api.call("GET", "/overview?limit=2"))["topics"]) == 2
        assert "the query.limit is '0': Expected `int` >= 1" in await api.call("GET", "/overview?limit=0", status=400)
        await api.call("POST", "/state/reset")
        assert (await api.call("GET", "/overview"))["broker"]["state"] == result["broker"]["state"] + 1


def _commit(group: str, topic: str, partition: int, offset: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
        ],
    )


async def test_overview_of_transactions_and_times(tmp_path: Path) -> None:
    """Waiting requests and their waits, by a clock set by the test; a transactional id without partitions."""
    async with controlled(tmp_path, files=MemoryFiles(lambda: 0)) as (broker, _):
        now_ns = 0
        overviews = Overviews(broker.running, lambda: now_ns)
        await broker.topic("t")
        client = await broker.client()
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        response = await client.call(request, 4)
        result = await overviews.taken()
        (producer,) = result["producers"]
        assert (producer["topic"], producer["partition"], producer["transactional_id"]) == (None, -1, "tx")
        assert (producer["producer_id"], producer["transaction_state"]) == (response.producer_id, "Empty")
        assert (result["totals"]["producers"], result["totals"]["open_transactions"]) == (1, 0)
        waits = exchange(next(iter(overviews.activity._connections.values())).peer, 3 * SECOND, key=FETCH)
        overviews.activity.begun(waits, memoryview(b""))
        now_ns = 5 * SECOND
        result = await overviews.taken(Selection(contains="APP"))
        assert result["broker"]["uptime_ms"] == 5000 and result["producers"] == []
        assert [(one["number"], one["waiting_ms"]) for one in result["waiting"]] == [(waits.number, 2000)]
        assert (await overviews.taken(Selection(contains="x")))["waiting"] == []
        overviews.close()
        await client.call(request, 4)
        assert (await overviews.taken())["totals"]["requests"] == result["totals"]["requests"]


async def test_thousands_of_partitions_do_not_block_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.admin_api.overview.PARTITIONS_AT_ONCE", 10)
    async with controlled(tmp_path, files=MemoryFiles(lambda: 0)) as (broker, _):
        overviews = Overviews(broker.running)
        for number in range(12):
            await broker.topic(f"t{number}", 5)
        looking = overviews.taken(Selection(limit=3))
        steps = 0
        try:
            while True:
                looking.send(None)
                steps += 1
        except StopIteration as stop:
            result = stop.value
        assert steps == 60 // 10 and result["totals"]["partitions"] == 60 and len(result["topics"]) == 3


async def test_thousands_of_producers_do_not_block_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.admin_api.overview.PARTITIONS_AT_ONCE", 10)
    async with controlled(tmp_path, files=MemoryFiles(lambda: 0)) as (broker, _):
        overviews = Overviews(broker.running)
        await broker.topic("t", 1)
        client = await broker.client()
        for number in range(30):
            sent = records(b"v", producer_id=1000 + number, producer_epoch=0, base_sequence=0)
            await client.call(produce(sent, "t"), 9)
        looking = overviews.taken(Selection(limit=3))
        steps = 0
        try:
            while True:
                looking.send(None)
                steps += 1
        except StopIteration as stop:
            result = stop.value
        assert steps >= 3 and result["totals"]["producers"] == 30 and len(result["producers"]) == 3


def test_long_client_id_is_cut_in_waiting_and_slow_requests() -> None:
    one, result = peer(), []
    activity = Activity(lambda: SECOND)
    activity.opened(one)
    waits = exchange(one, 0, "x" * 30_000)
    activity.begun(waits, memoryview(b""))
    result.append(_waiting(waits, {}, SECOND)["client_id"])
    end(activity, waits, 1000)
    result += [slow.client_id for slow in activity.slow()]
    assert [len(text) for text in result] == [TEXT_MAX, TEXT_MAX] and result[0] == result[1]

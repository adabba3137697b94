"""Scrapes and health checks of a control plane; scrapes yield to the event loop; error codes in responses."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from ottla.broker.admin_api import metrics as gathering
from ottla.broker.admin_api.metrics import Buckets, Rows, gather
from ottla.broker.admin_api.views import OperationError
from ottla.broker.handlers import HANDLERS
from ottla.broker.metrics.counters import RequestMetrics, TopicCounters, TopicMetrics
from ottla.broker.metrics.errors import code_of, name_of, noting
from ottla.broker.metrics.families import FAMILIES
from ottla.broker.metrics.histogram import EVERY_SECONDS, Histogram, LoopLag
from ottla.broker.network import router
from ottla.protocol.errors import ErrorCode
from ottla.protocol.schema import Value, empty_value, types_of
from ottla.storage.errors import StorageError
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.harness import fetch, ping, response_class
from ottla_testing.broker.metering import Scrape, scraped
from ottla_testing.broker.routes import ROUTES
from ottla_testing.each import each


async def fetch_url(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    async with aiohttp.ClientSession(auto_decompress=False) as http, http.request(method, url, headers=headers) as got:
        return got.status, dict(got.headers), await got.read()


async def test_scrape_compression_and_head_request(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        url = f"{api.url}/metrics"
        status, headers, body = await fetch_url(url, **{"Accept-Encoding": "deflate, gzip;q=1.0"})
        assert (status, headers["Content-Encoding"]) == (200, "gzip")
        assert Scrape(gzip.decompress(body).decode(), headers["Content-Type"]).families
        status, headers, body = await fetch_url(url, **{"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in headers and body.startswith(b"# HELP ")
        for path in ("/metrics", "/health", "/ready"):
            status, headers, body = await fetch_url(api.url + path, "HEAD")
            assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 0
            assert (await fetch_url(api.url + path, "POST"))[0] == 405


async def test_every_family_is_described_even_without_series(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (_, api):
        body = await scraped(api.url)
        assert {family.name for family in FAMILIES} <= body.families.keys()
        for family in FAMILIES:
            assert body.families[family.name].documentation == family.help
            assert {name for sample in body.families[family.name].samples for name in sample.labels} <= {
                *family.labels,
                "le",
            }


async def test_concurrent_scrapes(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (broker, api):
        await broker.topic("t", partitions=50)
        for body in await asyncio.gather(*(scraped(api.url) for _ in range(4))):
            assert body.problems() == [] and len(body.all("kafka_log_log_size")) == 50


async def test_alive_and_ready(tmp_path: Path) -> None:
    async with controlled(tmp_path) as (broker, api):

        async def both() -> tuple[int, int, Any]:
            health, _, body = await fetch_url(f"{api.url}/health")
            assert json.loads(body)["cluster_id"] == broker.state.cluster_id
            ready, _, body = await fetch_url(f"{api.url}/ready")
            return health, ready, json.loads(body)["reason"]

        running = broker.running
        assert await both() == (200, 200, None)
        running.refuse([(None, None)])
        assert await both() == (200, 503, "no listener accepts connections")
        running.refuse([])
        assert await both() == (200, 200, None)
        running.connections.stopping = True
        assert await both() == (200, 503, "the broker is being stopped, or restored")
        running.connections.stopping = False
        broker.state.failed.set_result("the disk is gone")
        await asyncio.sleep(0)
        assert await both() == (503, 503, "the disk is gone")
        await api.call("POST", "/state/reset")
        assert await both() == (200, 200, None)


async def test_scrape_yields_to_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a timer that advances by a millisecond per reading, the scrape yields after about every third partition."""
    async with controlled(tmp_path) as (broker, api):
        await broker.topic("t", partitions=100)
        await scraped(api.url)
        now = iter(range(1_000_000))
        monkeypatch.setattr(gathering, "time", SimpleNamespace(perf_counter=lambda: next(now) / 1000))
        yields, is_over = 0, False

        async def others() -> None:
            nonlocal yields
            while not is_over:
                yields += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        metrics = broker.running.connections.metrics
        assert metrics is not None
        rows = await gather(broker.running, metrics, LoopLag(broker.state.loop))
        is_over = True
        await beside
        assert len(rows.found["kafka_log_log_size"]) == 100 and yields > 25


async def test_objects_removed_during_a_scrape_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with controlled(tmp_path) as (broker, api):
        for name in "abc":
            await broker.topic(name, partitions=3)
        reader = await broker.client()
        await reader.send(fetch(("a", 0, 0), max_wait_ms=60_000), 11)
        await scraped(api.url)
        monkeypatch.setattr(gathering, "SLICE_SECONDS", -1)  # a yield after each row
        topics, metrics = broker.state.topics, broker.running.connections.metrics
        assert metrics is not None
        scraping = asyncio.ensure_future(gather(broker.running, metrics, LoopLag(broker.state.loop)))
        for name in "bca":
            await asyncio.sleep(0)
            topics.delete(topics.named(name), 0)
        rows = await scraping
        assert len(rows.found["kafka_log_log_size"]) <= 9
        assert (await scraped(api.url)).all("kafka_log_log_size") == {}


def test_series_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "SERIES_MAX", 2)
    rows = Rows()
    for index in range(5):
        rows.add("kafka_log_log_size", 1, "t", str(index))
    assert len(rows.found["kafka_log_log_size"]) == 2 and rows.left_out == {"kafka_log_log_size": 3}


def test_histogram_buckets_are_inclusive() -> None:
    seen = Histogram((0.001, 0.002))
    for ns in (0, 1_000_000, 1_000_001, 2_000_000, 2_000_001):
        seen.add(ns)
    made = Buckets(seen)
    assert made.buckets == [("0.001", 2), ("0.002", 4), ("+Inf", 5)]
    assert (made.count, made.sum) == (5, 0.006000002)


async def test_loop_lag_is_the_delay_of_its_timer() -> None:
    loop = asyncio.get_running_loop()
    now_ns = 0
    lag = LoopLag(loop, lambda: now_ns)
    called: list[Any] = []

    def call_later(seconds: float, callback: Any) -> Any:
        assert seconds == EVERY_SECONDS
        called.append(callback)
        return SimpleNamespace(cancel=lambda: called.clear())

    lag._loop = SimpleNamespace(call_later=call_later)  # type: ignore[assignment]
    lag.begin()
    for late_ns in (0, 3_000_000, 700_000_000):
        now_ns += round(EVERY_SECONDS * 1e9) + late_ns
        called.pop()()
    assert (sum(lag.seen.buckets), lag.seen.sum) == (3, 703_000_000)
    lag.end()
    assert called == []


def test_deleted_topics_stay_in_the_sum() -> None:
    topics = TopicMetrics()
    for number, name in enumerate("ab", 1):
        topics.of(name).messages_in = number
        topics.of(name).bytes_out = 10 * number
    topics.forget(lambda name: name if name == "a" else None)
    assert topics.get("b") is None and topics.gone.messages_in == 2
    found = topics.all()
    assert (found.messages_in, found.bytes_out, found.fetch_requests) == (3, 30, 0)
    assert all(isinstance(getattr(found, one.name), int) for one in fields(TopicCounters))


# --- error codes in responses


def filled(cls: type, code: int) -> Any:
    """A value with two entries in each of its arrays, and this error code in every field for one."""
    value = empty_value(cls)
    for name, hint in types_of(cls).items():
        inner = [arg for arg in (hint, *getattr(hint, "__args__", ())) if isinstance(arg, type)]
        groups = [arg for arg in inner if issubclass(arg, Value)]
        if name == "error_code":
            value.error_code = code
        elif groups and "list" in str(hint):
            setattr(value, name, [filled(groups[0], code) for _ in range(2)])
        elif groups:
            setattr(value, name, filled(groups[0], code))
    return value


def codes_in(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(codes_in, value))
    if not isinstance(value, Value):
        return 0
    return sum(1 if name == "error_code" else codes_in(getattr(value, name)) for name in value._fields)


@each("route", ROUTES.values())
def test_every_error_code_of_a_response_is_counted(route: Any) -> None:
    of = response_class(route.request_class)
    value = filled(of, ErrorCode.NOT_COORDINATOR)
    counts: dict[int, int] = {}
    noting(of)(value, counts)
    assert sum(counts.values()) == codes_in(value) > 0 and set(counts) == {ErrorCode.NOT_COORDINATOR}


def test_each_response_class_has_an_error_counter() -> None:
    assert len(ROUTES) == len(HANDLERS)
    assert noting(response_class(ROUTES[0].request_class)) is noting(response_class(ROUTES[0].request_class))


def test_error_code_names_and_exception_codes() -> None:
    assert (name_of(0), name_of(-1), name_of(3), name_of(4242)) == (
        "NONE",
        "UNKNOWN_SERVER_ERROR",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "4242",
    )
    assert (code_of(StorageError("x")), code_of(OperationError("x"))) == (56, -1)


async def test_handler_exception_is_counted_by_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(request: Any, context: Any) -> Any:
        raise StorageError("no disk")

    async with controlled(tmp_path) as (broker, api):
        route = ROUTES[18]
        changed = ROUTES | {18: route._replace(handler=broken)}
        monkeypatch.setattr(router, "route_of", changed.__getitem__)
        broker.state.readers.clear()
        client = await broker.client()
        assert (await client.call(ping(), 3)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        body = await scraped(api.url)
        errors = body.all("kafka_network_requestmetrics_errors_total")
        assert errors == {("KAFKA_STORAGE_ERROR", "ApiVersions"): 1}
        broker.state.readers.clear()


def test_metrics_are_empty_at_first() -> None:
    metrics = RequestMetrics()
    assert (metrics.apis, metrics.topics.by_name, metrics.violations) == ({}, {}, 0)

"""Log lines have the fields of their request, also after a wait; levels are set at the start and changed later."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from ottla.broker import logs
from ottla.broker.errors import ConfigError
from ottla.broker.logs import LOGGERS, REQUEST_LOGGER, Levels, get_logger, level_of, levels
from ottla.broker.metrics.counters import RequestMetrics
from ottla.broker.network import router
from ottla.broker.releases.loggers import kafka_logger_names, kafka_loggers
from ottla.broker.releases.profiles import profile
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest as Alter
from ottla.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.tools.serve import parse_serve, serve
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.ctl_runs import ctl_lines, refused
from ottla_testing.broker.harness import Broker, ping, process, produce, records, running
from ottla_testing.broker.routes import ROUTES

METADATA = 3

KAFKA = kafka_logger_names(profile("ottla"))


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """The events logged in this thread; at the end the levels are those of the start again."""
    get_logger()
    processors = structlog.get_config()["processors"]
    before, captured = list(processors), structlog.testing.LogCapture()
    processors[:] = [logs._with_request, captured]
    try:
        yield captured.entries
    finally:
        processors[:] = before
        levels().reset()


def of_requests(events: list[Any], event: str) -> list[Any]:
    return [one for one in events if one["event"] == event]


async def test_handler_events_have_the_fields_of_its_request_after_a_wait(
    tmp_path: Path, events: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    gates: list[asyncio.Future[None]] = []

    async def after_it() -> None:
        get_logger().warning("background")

    async def talkative(request: Any, context: Any) -> Any:
        loop = asyncio.get_running_loop()
        get_logger().warning("before", requested=context.client_id)
        context.broker.beside = loop.create_task(after_it())
        gates.append(loop.create_future())
        await gates[-1]
        get_logger().warning("after", requested=context.client_id)
        return MetadataResponse(brokers=[], topics=[])

    changed = ROUTES | {METADATA: ROUTES[METADATA]._replace(handler=talkative)}
    monkeypatch.setattr(router, "route_of", changed.__getitem__)
    async with running(tmp_path) as broker:
        broker.state.readers.clear()
        clients = [await broker.client() for _ in range(2)]
        for name, client in zip("ab", clients, strict=True):
            await client.call(ping(), 0)
            sent = await client.send(MetadataRequest(topics=None), 9, name)
            assert sent == 2
        while len(gates) < 2:
            await asyncio.sleep(0)
        for gate, client in reversed(list(zip(gates, clients, strict=True))):
            gate.set_result(None)
            await client.receive()
        broker.state.readers.clear()
    for event in ("before", "after"):
        found = {one["requested"]: one for one in of_requests(events, event)}
        for number, name in enumerate("ab", 1):
            fields = {key: found[name][key] for key in ("connection", "api", "client_id", "correlation_id")}
            assert fields == {"connection": number, "api": "Metadata", "client_id": name, "correlation_id": 2}
    background = of_requests(events, "background")
    assert len(background) == 2
    assert all(one.keys() == {"event", "log_level"} for one in background)
    assert logs.handling().event_fields() == {}


async def test_closed_connection_line_has_client_id_library_and_version(tmp_path: Path, events: list[Any]) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        requested = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.12.1")
        await client.call(requested, 3)
        await client.send(produce(None, acks=0), 9, "sloppy")
        assert await client.is_closed()
        other = await broker.client()
        await other.send_bytes(b"\0\0\0\x0a" + b"\x7f" * 10)
        assert await other.is_closed()
    first, second = of_requests(events, "connection closed")
    assert (first["connection"], first["api"], first["client_id"], first["correlation_id"]) == (
        1,
        "Produce",
        "sloppy",
        2,
    )
    assert (first["client"], first["listener"]) == ("127.0.0.1", "PLAINTEXT") and first["port"] > 0
    assert (first["library"], first["library_version"]) == ("librdkafka", "2.12.1")
    assert second["connection"] == 2 and second["client"] == "127.0.0.1"
    assert second.keys() & {"correlation_id", "client_id", "library", "library_version"} == set()


async def test_closed_connection_line_names_the_client_of_a_request_that_is_not_served(
    tmp_path: Path, events: list[Any]
) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        data = struct.pack(">hhih", 4, 1, 5, 2) + b"me"
        await client.send_bytes(struct.pack(">i", len(data)) + data)
        assert await client.is_closed()
    (line,) = of_requests(events, "connection closed")
    assert line["client_id"] == "me" and line["reason"].startswith("LeaderAndIsr (API key 4) is not served")


async def test_each_request_is_logged_at_debug(tmp_path: Path, events: list[Any]) -> None:
    now_ns = 0

    def timer() -> int:
        nonlocal now_ns
        now_ns += 2_500_000
        return now_ns

    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        assert not levels().logs_requests
        await client.call(ping(), 0)
        assert of_requests(events, "request") == []
        levels().set(REQUEST_LOGGER, "DEBUG")
        broker.running.connections.observe(RequestMetrics(timer))
        await client.call(ping(), 2, None)
        await client.call(produce(records(b"x"), "none"), 9, "a")
        levels().set(REQUEST_LOGGER, None)
        await client.call(ping(), 0)
    first, second = of_requests(events, "request")
    sizes = [(one.pop("request_bytes"), one.pop("response_bytes")) for one in (first, second)]
    assert min(min(sizes)) >= 10
    common = {"event": "request", "log_level": "debug", "connection": 1, "duration_us": 2500}
    assert first == {**common, "api": "ApiVersions", "client_id": "", "correlation_id": 2, "version": 2}
    assert second == {
        **common,
        "api": "Produce",
        "client_id": "a",
        "correlation_id": 3,
        "version": 9,
        "errors": "UNKNOWN_TOPIC_OR_PARTITION",
    }


async def test_request_that_admits_held_connections_keeps_its_fields(tmp_path: Path, events: list[Any]) -> None:
    change = Alter.AlterConfigsResource.AlterableConfig(name="max.connections", config_operation=0, value="5")
    broker_wide = Alter.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    async with running(tmp_path, overrides={"max.connections": "1"}) as broker:
        client = await broker.client()
        await client.call(ping(), 0)
        held = await broker.client()
        await held.send(ping(), 0, "held")
        while len(broker.running.connections.open) < 2:
            await asyncio.sleep(0)
        levels().set(REQUEST_LOGGER, "DEBUG")
        await client.call(Alter(resources=[broker_wide], validate_only=False), 1, "opens")
        await held.receive()
    logged = [(one.get("connection"), one.get("api"), one.get("client_id")) for one in of_requests(events, "request")]
    assert sorted(logged) == [(1, "IncrementalAlterConfigs", "opens"), (2, "ApiVersions", "held")]


async def test_log_levels_change_over_http(tmp_path: Path, events: list[Any]) -> None:
    async with controlled(tmp_path) as (broker, api):
        assert (await api.call("GET", "/log-levels"))["levels"] == dict.fromkeys(("root", *KAFKA, *LOGGERS), "INFO")
        found = await api.call("PUT", "/log-levels", {"logger": "request_log", "level": "DEBUG"})
        assert found["levels"][REQUEST_LOGGER] == "DEBUG" == levels().of(REQUEST_LOGGER)
        await (await broker.client()).call(ping(), 0)
        assert len(of_requests(events, "request")) == 1
        found = await api.call("PUT", "/log-levels", {"logger": REQUEST_LOGGER, "level": None})
        assert set(found["levels"].values()) == {"INFO"}
        found = await api.call("PUT", "/log-levels", {"logger": "root", "level": "ERROR"})
        assert set(found["levels"].values()) == {"ERROR"}
        get_logger().warning("not logged")
        assert of_requests(events, "not logged") == []
        assert "did you mean cleaner?" in await api.call(
            "PUT", "/log-levels", {"logger": "clener", "level": "INFO"}, 404
        )
        assert "always" in await api.call("PUT", "/log-levels", {"logger": "root", "level": None}, 400)
        assert "level" in await api.call("PUT", "/log-levels", {"logger": "root", "level": "LOUD"}, 400)
        await api.call("POST", "/state/reset")
        assert set((await api.call("GET", "/log-levels"))["levels"].values()) == {"INFO"}


async def test_log_levels_change_from_the_command_line(tmp_path: Path, events: list[Any]) -> None:
    async with controlled(tmp_path) as (_, api):
        lines = await ctl_lines(api, "log-levels")
        assert lines[:2] == ["LOGGER LEVEL", "root INFO"] and len(lines) == 2 + len(KAFKA) + len(LOGGERS)
        lines = await ctl_lines(api, "log-levels", "set", "request_log=debug", "warn")
        assert f"{REQUEST_LOGGER} DEBUG" in lines and "root WARN" in lines
        assert f"{REQUEST_LOGGER} WARN" in await ctl_lines(api, "log-levels", "reset", "request_log")
        assert "there is no logger 'x'" in await refused(api, "log-levels", "set", "x=INFO")
        assert "a level is one of DEBUG" in await refused(api, "log-levels", "set", "root=loud")


@pytest.mark.process
def test_serve_starts_with_the_given_log_levels(tmp_path: Path) -> None:
    with process(
        tmp_path, "--log-format", "json", "--log-level", "request_log=DEBUG", "--log-level", "ERROR"
    ) as broker:
        asyncio.run(fetch_once(broker.ports[0]))
        assert broker.end() == 0
        found = [json.loads(line) for line in broker.error.splitlines()]
    assert {one["level"] for one in found} == {"debug"}
    assert [(one["event"], one["api"], one["connection"]) for one in found] == [("request", "ApiVersions", 1)]


async def fetch_once(port: int) -> None:
    from ottla_testing.broker.harness import Client

    client = await Client.connect(port)
    await client.call(ping(), 3)
    client.close()


def test_unknown_log_levels_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["debug", "broker_state=Warn", "kafka.request.logger=INFO"]
    options, *_ = parse_serve(["--data-dir", "d", *(word for text in texts for word in ("--log-level", text))], {})
    assert options.log_levels == (
        ("root", "DEBUG"),
        ("ottla.broker.broker_state", "WARN"),
        ("kafka.request.logger", "INFO"),
    )
    wrong = (
        ("loud", "a level is one of"),
        ("broker_stat=INFO", "did you mean broker_state?"),
        ("=", "there is no logger"),
        ("kafka.request=INFO", "there is no logger"),
    )
    for text, reason in wrong:
        with pytest.raises(ConfigError, match="--log-level: .*" + reason.replace("?", r"\?")):
            parse_serve(["--data-dir", "d", "--log-level", text], {})
    assert serve(["--data-dir", str(tmp_path), "--log-level", "none=INFO"]) == 2
    assert capsys.readouterr().err == "ottla serve: --log-level: there is no logger 'none'\n"


def test_reset_restores_the_log_levels_of_the_start() -> None:
    found = Levels("INFO")
    assert not found.are_changed and not found.logs_requests
    found.begin(dict(level_of(text, KAFKA) for text in ("request_log=TRACE", "ERROR")))
    assert found.are_changed and found.logs_requests
    assert (found.of("ottla.broker.broker_state"), found.of(REQUEST_LOGGER)) == ("ERROR", "TRACE")
    found.set("root", "DEBUG")
    found.set(REQUEST_LOGGER, "INFO")
    assert found.lets("ottla.broker.broker_state", "debug") and not found.logs_requests
    found.reset()
    assert (found.of("ottla.broker.broker_state"), found.logs_requests) == ("ERROR", True)
    found.begin({})
    assert not found.are_changed


def test_loggers_inherit_from_kafkas_of_the_same_part() -> None:
    found = Levels("INFO")
    found.follow(kafka_loggers(profile("4.3")), KAFKA)
    errors, cleaner, others = (f"ottla.broker.{part}" for part in ("errors", "background.cleaner", "control.app"))
    assert set(found.all().values()) == {"INFO"}
    found.set("kafka", "DEBUG")
    assert found.of(errors) == found.of(others) == found.of("kafka.server.KafkaApis") == "DEBUG"
    assert found.of(cleaner) == "DEBUG" and found.logs_requests  # by kafka.log.LogCleaner, which is above it, too
    assert found.of("org.apache.kafka.storage.internals.log.LogCleaner") == found.of("root") == "INFO"
    found.set("org.apache.kafka", "WARN")
    assert found.of("org.apache.kafka.storage.internals.log.LogCleaner") == found.of(cleaner) == "WARN"
    found.set("kafka.server.KafkaRequestHandler", "TRACE")
    found.set("kafka.log.LogCleaner", "ERROR")
    assert (found.of(errors), found.of(cleaner), found.of(others)) == ("TRACE", "ERROR", "DEBUG")
    found.set("kafka.server.KafkaApis", "WARN")
    assert found.of(errors) == "WARN" and found.lets(errors, "warning") and not found.lets(errors, "info")
    found.set(errors, "FATAL")
    assert (found.of(errors), found.of("kafka.server.KafkaApis")) == ("FATAL", "WARN")
    for name in (errors, "kafka.server.KafkaApis", "kafka"):
        found.set(name, None)
    assert (found.of(errors), found.of(others)) == ("TRACE", "INFO")
    found.reset()
    assert set(found.all().values()) == {"INFO"} and not found.logs_requests


def test_each_part_names_loggers_of_kafka() -> None:
    for release in ("0.8.2", "2.8", "3.9", "4.3", "ottla"):
        parts = kafka_loggers(profile(release))
        assert {f"ottla.broker.{part}" for part in parts} <= set(LOGGERS)
        assert {name for names in parts.values() for name in names} < set(kafka_logger_names(profile(release)))
    # Read from Apache Kafka 2.8.2, 3.9.1 and 4.3.1 (DescribeConfigs of the broker's loggers).
    moved = {
        "kafka.controller.KafkaController": "2.8",
        "kafka.server.KafkaServer": "2.8",
        "kafka.server.KafkaConfig": "2.8 3.9",
        "kafka.coordinator.group.GroupCoordinator": "2.8 3.9",
        "kafka.server.ClientQuotaManager$ThrottledChannelReaper": "2.8 3.9",
        "kafka.log.LogCleaner": "2.8 3.9 4.3",
        "kafka.request.logger": "2.8 3.9 4.3",
        "kafka.server.ControllerServer": "3.9 4.3",
        "org.apache.kafka.server.ClientMetricsManager": "3.9 4.3",
        "org.apache.kafka.server.quota.ClientQuotaManager$ThrottledChannelReaper": "4.3",
        "org.apache.kafka.storage.internals.log.LogCleaner": "4.3",
    }
    for name, releases in moved.items():
        listed = [release for release in ("2.8", "3.9", "4.3") if name in kafka_logger_names(profile(release))]
        assert " ".join(listed) == releases, name


async def test_request_log_level_follows_the_root(tmp_path: Path, events: list[Any]) -> None:
    async with running(tmp_path) as broker:
        assert_quiet(broker)
        levels().set("root", "DEBUG")
        await (await broker.client()).call(ping(), 0)
        assert len(of_requests(events, "request")) == 1


def assert_quiet(broker: Broker) -> None:
    assert broker.running.connections.levels is levels() and not levels().logs_requests


@pytest.mark.parametrize("changed", [False, True])
def test_embedded_broker_logs_errors_with_their_stack(changed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def quiet() -> None:
        logs.quieten_thread()
        if changed:
            levels().set("ottla.broker.metadata.topics", "DEBUG")
        try:
            raise LookupError("no such letter")
        except LookupError:
            get_logger().exception("a defect", path="/x")

    thread = threading.Thread(target=quiet)
    thread.start()
    thread.join()
    text = capsys.readouterr().err
    assert "a defect" in text and "/x" in text and "Traceback" in text and "LookupError: no such letter" in text

"""Configs over the wire: of topics, brokers, loggers, client metrics and groups.

Codes and messages are those of Apache Kafka 2.8, 3.9 and 4.3; `make interop` compares them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.docs import NO_EFFECT
from ottla.broker.handlers.configs.resources import kinds
from ottla.broker.logs import LOGGERS, configure, get_logger, levels
from ottla.protocol.messages.configs.alter_configs import AlterConfigsRequest
from ottla_testing import ROOT
from ottla_testing.broker.configuring import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    change,
    changing,
    describe,
    listed,
    replace,
    shown,
)
from ottla_testing.broker.harness import running
from ottla_testing.each import each

OK = (0, None)
NO_TOPIC, INVALID_TOPIC, UNSUPPORTED, INVALID_CONFIG, INVALID_REQUEST = 3, 17, 35, 40, 42
BAD_NAME = (
    "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
)
LEVELS = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
GENERIC = "This most likely occurs because of a request being malformed by the client library"
NOT_A_NUMBER = "Invalid value x for configuration retention.ms: Not a number of type LONG"

# (type, name, changes) -> result of 4.3
REFUSALS: list[tuple[int, str, list[tuple[str, int, str | None]], tuple[int, str | None]]] = [
    (TOPIC, "nope", [("retention.ms", SET, "5")], (NO_TOPIC, "The topic 'nope' does not exist.")),
    (TOPIC, "nope", [], (NO_TOPIC, "The topic 'nope' does not exist.")),
    (TOPIC, "nope", [("retention.ms", SET, "x")], (INVALID_CONFIG, NOT_A_NUMBER)),
    (TOPIC, "", [("retention.ms", SET, "5")], (INVALID_REQUEST, "Default topic resources are not allowed.")),
    (TOPIC, "a b", [("retention.ms", SET, "5")], (INVALID_TOPIC, BAD_NAME)),
    (TOPIC, "__cluster_metadata", [], (NO_TOPIC, "The topic '__cluster_metadata' does not exist.")),
    (TOPIC, "t", [("", SET, "1")], (INVALID_CONFIG, "Unknown topic config name: ")),
    (
        TOPIC,
        "t",
        [("retention.ms", SET, None), ("segment.ms", SET, None)],
        (INVALID_REQUEST, "Null value not supported for : retention.ms, segment.ms"),
    ),
    (
        TOPIC,
        "t",
        [("retention.ms", SET, None), ("retention.ms", SET, "2")],
        (INVALID_REQUEST, "Error due to duplicate config keys"),
    ),
    (
        TOPIC,
        "t",
        [("retention.ms", APPEND, "1")],
        (INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST."),
    ),
    (
        TOPIC,
        "t",
        [("nope", SUBTRACT, "1")],
        (INVALID_CONFIG, "Can't SUBTRACT to key nope because its type is not LIST."),
    ),
    (
        TOPIC,
        "t",
        [("remote.storage.enable", SET, "true")],
        (
            INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ),
    (
        TOPIC,
        "t",
        [("leader.replication.throttled.replicas", SET, "x")],
        (
            INVALID_CONFIG,
            "Invalid value [x] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ),
    (BROKER, "x", [], (INVALID_REQUEST, "Node id must be an integer, but it is: x")),
    (BROKER, "99999999999", [], (INVALID_REQUEST, "Node id must be an integer, but it is: 99999999999")),
    (BROKER, "2", [], (INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2")),
    (BROKER, "1", [("log.retention.ms", 4, "1")], (INVALID_REQUEST, "Unknown operations type 4")),
    (BROKER, "1", [("nope", APPEND, "1")], (INVALID_CONFIG, "Unknown config name: nope")),
    (
        BROKER,
        "1",
        [("node.id", APPEND, "1")],
        (INVALID_CONFIG, "Config value append is not allowed for config key: node.id"),
    ),
    (
        BROKER,
        "",
        [("log.retention.ms", SET, "x")],
        (INVALID_REQUEST, "Invalid value x for configuration log.retention.ms: Not a number of type LONG"),
    ),
    (LOGGER, "", [("root", SET, "INFO")], (INVALID_REQUEST, "Node id must be an integer, but it is: ")),
    (LOGGER, "2", [("root", SET, "INFO")], (INVALID_REQUEST, "Unexpected node id. Expected 1, but received 2")),
    (
        LOGGER,
        "1",
        [("root", SET, "info")],
        (INVALID_CONFIG, f"Cannot set the log level of root to info as it is not a supported log level. {LEVELS}"),
    ),
    (LOGGER, "1", [("kafka.server", SET, "INFO")], (INVALID_CONFIG, "Logger kafka.server does not exist!")),
    (
        LOGGER,
        "1",
        [("kafka", SET, "OFF")],
        (INVALID_CONFIG, f"Cannot set the log level of kafka to OFF as it is not a supported log level. {LEVELS}"),
    ),
    (LOGGER, "1", [("nope", 4, "INFO")], (-1, None)),
    (LOGGER, "1", [("ROOT", SET, "INFO")], (INVALID_CONFIG, "Logger ROOT does not exist!")),
    (LOGGER, "1", [("nope", DELETE, None)], (INVALID_CONFIG, "Logger nope does not exist!")),
    (
        LOGGER,
        "1",
        [("root", DELETE, None)],
        (INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
    ),
    (
        LOGGER,
        "1",
        [("root", APPEND, "INFO")],
        (INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
    ),
    (CLIENT_METRICS, "", [], (INVALID_REQUEST, "Subscription name can't be empty")),
    (CLIENT_METRICS, "m", [("nope", SET, "1")], (INVALID_REQUEST, "Unknown client metrics configuration: nope")),
    (
        CLIENT_METRICS,
        "m",
        [("interval.ms", SET, "99")],
        (INVALID_REQUEST, "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
    ),
    (
        CLIENT_METRICS,
        "m",
        [("interval.ms", SET, "x")],
        (INVALID_CONFIG, "Invalid value x for configuration interval.ms: Not a number of type INT"),
    ),
    *(
        (CLIENT_METRICS, "m", [("match", SET, text)], (INVALID_CONFIG, f"Illegal client matching pattern: {text}"))
        for text in ("client_id", "client_id=", "client_id=a=b", "nope=a", "client_id=[a", "client_id=(a)\\1")
    ),
    (
        CLIENT_METRICS,
        "m",
        [("metrics", APPEND, "a")],
        (INVALID_CONFIG, "Can't APPEND to key metrics because its type is not LIST."),
    ),
    (GROUP, "", [], (INVALID_REQUEST, "Default group resources are not allowed.")),
    (GROUP, "g", [("nope", SET, "1")], (INVALID_CONFIG, "Unknown group config name: nope")),
    *(
        (GROUP, "g", [(name, SET, text)], (INVALID_CONFIG, f"{name} must be {words} group.{bound}"))
        for name, text, words, bound in (
            ("consumer.session.timeout.ms", "1", "greater than or equal to", "consumer.min.session.timeout.ms"),
            ("consumer.session.timeout.ms", "70000", "less than or equal to", "consumer.max.session.timeout.ms"),
            ("share.delivery.count.limit", "11", "less than or equal to", "share.max.delivery.count.limit"),
            ("streams.num.standby.replicas", "9", "less than or equal to", "streams.max.standby.replicas"),
        )
    ),
    (
        GROUP,
        "g",
        [("share.auto.offset.reset", SET, "x")],
        (
            INVALID_CONFIG,
            "Invalid value x for configuration share.auto.offset.reset: Invalid value `x` for configuration "
            "share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format "
            "'by_duration:<PnDTnHnMn.nS>'.",
        ),
    ),
    (7, "x", [("a", SET, "b")], (INVALID_REQUEST, "Unknown resource type 7")),
]


async def test_invalid_changes_are_refused_like_4_3(tmp_path: Path) -> None:
    async with running(tmp_path / "data", release="4.3") as broker:
        await broker.topic("t")
        client = await broker.client()
        for kind, name, changes, response in REFUSALS:
            for dry in (True, False):
                assert await change(client, kind, name, *changes, dry=dry) == response, (kind, name, changes)
        assert broker.state.topics.named("t").config.overrides == {}
        assert not broker.state.named_configs.of(CLIENT_METRICS) and not broker.state.named_configs.of(GROUP)
        assert not levels().are_changed


async def test_invalid_changes_are_refused_like_zookeeper_releases(tmp_path: Path) -> None:
    async with running(tmp_path / "data", release="2.8", overrides={"broker.id": "1"}) as broker:
        await broker.topic("t")
        client = await broker.client()
        wrapped = "Invalid config value for resource ConfigResource(type={}, name='{}'): {}"
        cases: list[tuple[int, str, list[tuple[str, int, str | None]], tuple[int, str]]] = [
            (TOPIC, "t", [("retention.ms", SET, "x")], (42, wrapped.format("TOPIC", "t", NOT_A_NUMBER))),
            (TOPIC, "t", [("nope", SET, "x")], (40, "Unknown topic config name: nope")),
            (TOPIC, "nope", [("retention.ms", SET, "x")], (3, "The topic 'nope' does not exist.")),
            (TOPIC, "a b", [("retention.ms", SET, "5")], (3, "The topic 'a b' does not exist.")),
            (TOPIC, "t", [("retention.ms", SET, None)], (42, "Null value not supported for : SET:retention.ms")),
            (
                TOPIC,
                "t",
                [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
                (42, "Error due to duplicate config keys : retention.ms"),
            ),
            (
                TOPIC,
                "t",
                [("retention.ms", APPEND, "1")],
                (42, "Config value append is not allowed for config key: retention.ms"),
            ),
            (
                TOPIC,
                "t",
                [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
                (40, "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"),
            ),
            (
                BROKER,
                "",
                [("node.id", SET, "1")],
                (42, wrapped.format("BROKER", "", "Cannot update these configs dynamically: Set(node.id)")),
            ),
            (BROKER, "x", [], (42, "Broker id must be an integer, but it is: x")),
            (CLIENT_METRICS, "m", [], (42, "Unexpected resource type UNKNOWN")),
            (
                LOGGER,
                "",
                [("root", APPEND, "INFO")],
                (42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
            ),
        ]
        for kind, name, changes, response in cases:
            assert await change(client, kind, name, *changes) == response, (kind, name, changes)
        # The last of several changes of a resource applied for all of them.
        twice = changing((TOPIC, "t", [("retention.ms", SET, "1")]), (TOPIC, "t", [("retention.ms", SET, "2")]))
        (response,) = (await client.call(twice, 1)).responses
        assert response.error_code == 0 and (await shown(client, TOPIC, "t", "retention.ms")) == {
            "retention.ms": ("2", 1)
        }
        # An unknown operation refused all changes.
        mixed = changing((TOPIC, "t", [("retention.ms", SET, "3")]), (CLIENT_METRICS, "m", []), (TOPIC, "t", []))
        responses = (await client.call(mixed, 1)).responses
        assert [one.error_code for one in responses] == [42, 42, 42]
        assert {one.error_message for one in responses} == {"Unexpected resource type UNKNOWN"}
        resource = AlterConfigsRequest.AlterConfigsResource
        requested = [
            resource(resource_type=kind, resource_name=name, configs=[]) for kind, name in ((TOPIC, "t"), (8, "1"))
        ]
        responses = (await client.call(AlterConfigsRequest(resources=requested, validate_only=False), 1)).responses
        reported = "AlterConfigs is deprecated and does not support the resource type BROKER_LOGGER"
        assert [(one.error_code, one.error_message) for one in responses] == [(42, reported)] * 2
        assert (await shown(client, TOPIC, "t", "retention.ms")) == {"retention.ms": ("2", 1)}


async def test_null_value_refuses_all_changes_in_zookeeper_releases(tmp_path: Path) -> None:
    async with running(tmp_path / "data", release="2.8") as broker:
        await broker.topic("t")
        client = await broker.client()
        one = AlterConfigsRequest.AlterConfigsResource
        config = one.AlterableConfig
        requested = [
            one(resource_type=TOPIC, resource_name="t", configs=[config(name="retention.ms", value="5")]),
            one(resource_type=BROKER, resource_name="", configs=[config(name="background.threads", value=None)]),
        ]
        responses = (await client.call(AlterConfigsRequest(resources=requested, validate_only=False), 1)).responses
        reported = "Null value not supported for : background.threads"
        assert [(one.error_code, one.error_message) for one in responses] == [(42, reported)] * 2
        assert broker.state.topics.named("t").config.overrides == {}


@pytest.mark.parametrize(("release", "codes"), [("2.8", [0, 0, 42, 42]), ("4.3", [42, 42, 42, 42])])
async def test_unknown_operation_refuses_all_changes_of_a_controller(
    tmp_path: Path, release: str, codes: list[int]
) -> None:
    async with running(tmp_path / "data", release=release, overrides={"broker.id": "1"}) as broker:
        await broker.topic("t")
        await broker.topic("u")
        client = await broker.client()
        requested: list[tuple[int, str, list[Any]]] = [
            (TOPIC, "t", [("retention.ms", SET, "5")]),
            (BROKER, "", [("background.threads", SET, "7")]),
            (TOPIC, "u", [("retention.ms", SET, "5"), ("segment.ms", 4, "5")]),
            (BROKER, "1", [("background.threads", SET, "x")]),
        ]
        responses = (await client.call(changing(*requested), 1)).responses
        assert [one.error_code for one in responses] == codes
        reported = [one.error_message for one in responses]
        assert reported[2] == "Unknown operations type 4" and "x" in reported[3]
        assert broker.state.topics.named("u").config.overrides == {}
        changed = release == "2.8"
        assert broker.state.topics.named("t").config.overrides == ({"retention.ms": "5"} if changed else {})
        assert broker.state.config["background.threads"] == (7 if changed else 10)
        # An equally invalid change of a node is refused only by that node.
        several = [("log.segment.bytes", APPEND, "5"), ("background.threads", -1, "5")]
        requested = [(TOPIC, "t", [("retention.ms", SET, "6")]), (BROKER, "", several)]
        responses = (await client.call(changing(*requested), 1)).responses
        assert [one.error_code for one in responses] == [0, 42]
        assert ("Unknown operations" in responses[1].error_message) != changed  # which is checked first


async def test_duplicate_resource_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        twice = changing((TOPIC, "t", [("retention.ms", SET, "1")]), (TOPIC, "t", []), (TOPIC, "nope", []))
        responses = (await client.call(twice, 1)).responses
        assert [(response.error_code, response.error_message) for response in responses] == [
            (42, "Each resource must appear at most once."),
            (42, "Each resource must appear at most once."),
            (3, "The topic 'nope' does not exist."),
        ]
        assert broker.state.topics.named("t").config.overrides == {}


async def test_append_and_subtract_start_from_the_default_list(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        for operation, text, value in (
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "x", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
            (SUBTRACT, "compact", ""),
        ):
            assert await change(client, TOPIC, "t", ("cleanup.policy", operation, text)) == OK
            assert (await shown(client, TOPIC, "t", "cleanup.policy"))["cleanup.policy"] == (value, 1)
        assert await change(client, TOPIC, "t", ("cleanup.policy", DELETE, "whatever")) == OK
        assert (await shown(client, TOPIC, "t", "cleanup.policy"))["cleanup.policy"] == ("delete", 5)
        empty = "Configuration 'cleanup.policy' values must not be empty."
        assert await change(client, TOPIC, "t", ("cleanup.policy", APPEND, "")) == (INVALID_CONFIG, empty)


async def test_unknown_resource_type_fails_the_whole_description(tmp_path: Path) -> None:
    async with running(tmp_path / "data", release="3.9") as broker:
        client = await broker.client()
        result = await describe(client, GROUP, "g")
        assert result.error_code == INVALID_REQUEST and result.error_message.startswith(GENERIC)
        assert kinds(broker.state.profile.behaviour) == {TOPIC, BROKER, LOGGER, CLIENT_METRICS}
        assert (await change(client, GROUP, "g"))[1] == "Unknown resource type 32"
        # Client metrics had only configs that are set, without types.
        assert (await describe(client, CLIENT_METRICS, "m")).configs == []
        assert await change(client, CLIENT_METRICS, "m", ("metrics", SET, "a,a")) == OK
        (entry,) = (await describe(client, CLIENT_METRICS, "m")).configs
        assert (entry.name, entry.value, entry.config_source, entry.config_type) == ("metrics", "a,a", 7, 0)


@pytest.mark.parametrize(
    ("kind", "name", "response"),
    [
        (TOPIC, "nope", (NO_TOPIC, "")),
        (TOPIC, "__cluster_metadata", (NO_TOPIC, "")),
        (TOPIC, "a b", (INVALID_TOPIC, BAD_NAME)),
        (BROKER, "x", (INVALID_REQUEST, "Broker id must be an integer, but it is: x")),
        (BROKER, "2", (INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 2")),
        (LOGGER, "", (INVALID_REQUEST, "Broker id must not be empty")),
        (LOGGER, "2", (INVALID_REQUEST, "Unexpected broker id, expected 1 but received 2")),
        (CLIENT_METRICS, "", (INVALID_REQUEST, "Client metrics subscription name must not be empty")),
        (GROUP, "", (INVALID_REQUEST, "Group name must not be empty")),
    ],
)
async def test_describe_errors(kind: int, name: str, response: tuple[int, str], tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        result = await describe(await broker.client(), kind, name)
        assert (result.error_code, result.error_message, result.configs) == (*response, [])


async def test_all_configs_are_documented(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        for kind, name in ((BROKER, "1"), (TOPIC, "t")):
            explained = {entry.name: entry.documentation for entry in (await describe(client, kind, name)).configs}
            assert all(0 < len(text) <= 120 for text in explained.values())
        assert (
            explained["retention.ms"] == "The age of its newest record at which a segment is deleted; -1 for no limit."
        )
        assert explained["preallocate"] == NO_EFFECT
        result = await describe(client, TOPIC, "t", "retention.ms", "nope")
        assert [entry.name for entry in result.configs] == ["retention.ms"]


async def test_group_and_client_metrics_configs_are_stored(tmp_path: Path) -> None:
    async def check(client: Any) -> None:
        assert await shown(client, CLIENT_METRICS, "m") == {
            "interval.ms": ("500", 7),
            "match": ("", 5),
            "metrics": ("a,b", 7),
        }
        entry = (await describe(client, GROUP, "g", "consumer.session.timeout.ms")).configs[0]
        assert [(reported.name, reported.value, reported.source) for reported in entry.synonyms] == [
            ("consumer.session.timeout.ms", "46000", 8),
            ("group.consumer.session.timeout.ms", "45000", 5),
        ]
        assert await listed(client, GROUP, CLIENT_METRICS) == (0, [(GROUP, "g"), (CLIENT_METRICS, "m")])
        assert await listed(client, version=0) == (0, [(CLIENT_METRICS, "m")])

    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        metrics, interval = ("metrics", SET, "a,b"), ("interval.ms", SET, "500")
        assert await change(client, CLIENT_METRICS, "m", metrics, interval, dry=True) == OK
        assert await listed(client, CLIENT_METRICS) == (0, [])
        assert await change(client, CLIENT_METRICS, "m", metrics, interval, ("match", SET, "client_id=a.*")) == OK
        assert await change(client, CLIENT_METRICS, "m", ("match", DELETE, None)) == OK
        assert await change(client, GROUP, "g", ("consumer.session.timeout.ms", SET, "46000")) == OK
        await check(client)
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        await check(client)
        assert await replace(client, GROUP, "g") == OK and await replace(client, CLIENT_METRICS, "m") == OK
        assert await listed(client, GROUP, CLIENT_METRICS) == (0, [])
    async with running(tmp_path / "data") as broker:
        assert await listed(await broker.client(), GROUP, CLIENT_METRICS) == (0, [])


@pytest.mark.parametrize("release", ["2.8", "4.3"])
async def test_configs_of_a_broker_name_with_leading_zero_are_stored_but_not_applied(
    release: str, tmp_path: Path
) -> None:
    """KRaft stores the configs of broker 01 under that name, and broker 1 does not read them; with ZooKeeper they are
    those of broker 1. Observed with Apache Kafka 2.8.2 and 3.9.1.
    """
    key, default, changed = "log.segment.bytes", ("1073741824", 5), ("104857600", 2)
    expected = changed if release == "2.8" else default

    async def segment_bytes(client: Any) -> list[tuple[str | None, int]]:
        return [(await shown(client, BROKER, name, key))[key] for name in ("1", "01")]

    for restart in range(2):
        async with running(tmp_path / "data", release=release, overrides={"broker.id": "1"}) as broker:
            client = await broker.client()
            if not restart:
                assert (await replace(client, BROKER, "01", log_segment_bytes="x"))[0] != 0
                assert await replace(client, BROKER, "01", log_segment_bytes="104857600") == OK
            assert await segment_bytes(client) == [expected, expected]
    async with running(tmp_path / "data", release=release, overrides={"broker.id": "1"}) as broker:
        client = await broker.client()
        assert await replace(client, BROKER, "1", log_flush_interval_ms="7") == OK
        assert await segment_bytes(client) == [default, default]
        assert (await shown(client, BROKER, "1", "log.flush.interval.ms"))["log.flush.interval.ms"] == ("7", 2)
        assert await replace(client, BROKER, "01") == OK
        flushed = ("7", 2) if release == "4.3" else (None, 5)
        assert (await shown(client, BROKER, "1", "log.flush.interval.ms"))["log.flush.interval.ms"] == flushed


async def test_resources_with_configs_are_listed_by_type(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        assert await listed(client) == (0, [(LOGGER, "1"), (BROKER, "1"), (TOPIC, "t")])
        assert await listed(client, TOPIC, TOPIC) == (0, [(TOPIC, "t")])
        for kind in (0, 1, 64, -1):
            assert await listed(client, TOPIC, kind) == (UNSUPPORTED, [])


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Returns the log output since the last call."""
    configure("console")  # to the current stderr
    yield lambda: capsys.readouterr().err
    configure("console")


async def test_logger_names() -> None:
    root = ROOT
    logging = {
        "ottla." + ".".join(path.relative_to(root).with_suffix("").parts)
        for folder in ("broker", "tools")
        for path in (root / folder).rglob("*.py")
        if "get_logger(" in path.read_text() and path.name != "logs.py"
    }
    assert set(LOGGERS) == logging


async def test_logger_levels_apply_until_restart(tmp_path: Path, stderr: Callable[[], str]) -> None:
    one, other = "ottla.broker.metadata.topics", "ottla.broker.config.values"

    def is_logged(name: str, method: str) -> bool:
        namespace: dict[str, Any] = {"__name__": name, "get_logger": get_logger}
        exec(f"get_logger().{method}('logged by {name}')", namespace)
        return f"logged by {name}" in stderr()

    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        assert (await shown(client, LOGGER, "1", "root", one)) == {"root": ("INFO", 6), one: ("INFO", 6)}
        assert is_logged(one, "info")
        assert await change(client, LOGGER, "1", (one, SET, "ERROR"), dry=True) == OK and is_logged(one, "info")
        assert await change(client, LOGGER, "1", (one, SET, "ERROR")) == OK
        assert (await shown(client, LOGGER, "1", one)) == {one: ("ERROR", 6)}
        assert not is_logged(one, "warning") and is_logged(one, "error") and is_logged(other, "info")
        assert await change(client, LOGGER, "1", ("root", SET, "FATAL")) == OK
        assert not is_logged(other, "error") and is_logged(one, "error")
        assert await change(client, LOGGER, "1", (one, DELETE, None), ("root", SET, "WARN")) == OK
        assert (await shown(client, LOGGER, "1", one)) == {one: ("WARN", 6)}
        assert is_logged(one, "warning") and not is_logged(one, "info")
    async with running(tmp_path / "data") as broker:
        assert (await shown(await broker.client(), LOGGER, "1", "root")) == {"root": ("INFO", 6)}
        assert is_logged(one, "info")


@each(
    "release, expected",
    [
        ("4.3", (-1, None)),
        ("4.4", (INVALID_REQUEST, "Unknown operation type 4 is not allowed for the BROKER_LOGGER resource")),
    ],
)
async def test_unknown_operation_of_a_logger(release: str, expected: tuple[int, str | None], tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        assert await change(await broker.client(), LOGGER, "1", ("root", 4, "DEBUG")) == expected


async def test_levels_of_kafkas_loggers_apply_to_the_same_part(tmp_path: Path, stderr: Callable[[], str]) -> None:
    """Observed with Apache Kafka 4.3.1: a logger without a level has that of the nearest one above it."""
    apis, replicas, requests = "kafka.server.KafkaApis", "kafka.server.ReplicaManager", "kafka.request.logger"
    async with running(tmp_path / "data", release="4.3") as broker:
        client = await broker.client()

        async def found(*names: str) -> list[str | None]:
            levels_of = await shown(client, LOGGER, "1")
            assert {source for _, source in levels_of.values()} == {6}
            return [levels_of[name][0] for name in names]

        assert await found("root", "kafka", "org.apache.kafka", apis, requests) == ["INFO"] * 5
        assert await change(client, LOGGER, "1", ("kafka", SET, "DEBUG"), (apis, SET, "TRACE")) == OK
        assert await found("root", "kafka", replicas, apis, requests) == ["INFO", "DEBUG", "DEBUG", "TRACE", "DEBUG"]
        assert "request " in stderr()  # the request log is part of it
        assert await change(client, LOGGER, "1", (requests, SET, "INFO"), ("kafka", DELETE, None)) == OK
        assert await found("kafka", replicas, apis, requests) == ["INFO", "INFO", "TRACE", "INFO"]
        stderr()
        assert await found("ottla.broker.network.request_log", "ottla.broker.errors") == ["INFO", "TRACE"]
        assert "request " not in stderr()
        assert await change(client, LOGGER, "1", (requests, SET, "DEBUG")) == OK
        assert await found(requests) == ["DEBUG"] and "request " in stderr()


async def test_eligible_leader_replicas_set_min_insync_replicas_for_all_brokers(tmp_path: Path) -> None:
    name = "min.insync.replicas"
    async with running(tmp_path / "data", release="4.3") as broker:
        client = await broker.client()
        assert await shown(client, BROKER, "") == {name: ("1", 3)}
        refused = (INVALID_CONFIG, f"Broker-level {name} cannot be altered while ELR is enabled.")
        assert await change(client, BROKER, "1", (name, SET, "2")) == refused
        refused = (INVALID_CONFIG, f"Cluster-level {name} cannot be removed while ELR is enabled.")
        assert await change(client, BROKER, "", (name, DELETE, None)) == refused
        assert await replace(client, BROKER, "", log_retention_ms="5") == refused
        assert await change(client, BROKER, "", (name, SET, "2")) == OK
        assert await shown(client, BROKER, "") == {name: ("2", 3)}
    async with running(tmp_path / "data") as broker:
        assert await shown(await broker.client(), BROKER, "") == {name: ("2", 3)}


async def test_long_lists_and_many_changes_do_not_block_the_event_loop(tmp_path: Path) -> None:
    """A linear search for each element would take a minute."""
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        texts = [str(number) for number in range(10_000)]
        begun = time.process_time()
        twice = await change(client, BROKER, "", *((text, SET, "") for text in texts + texts))
        assert twice == (INVALID_REQUEST, "Error due to duplicate config keys")
        suites = ("ssl.cipher.suites", APPEND, ",".join(texts[:6000]))
        assert await change(client, BROKER, "1", suites, dry=True) == OK
        assert time.process_time() - begun < 5


async def test_listener_limits_are_not_logged_as_inert(tmp_path: Path, stderr: Callable[[], str]) -> None:
    limit, idle = "listener.name.plaintext.max.connections", "listener.name.other.connections.max.idle.ms"
    async with running(tmp_path / "data", overrides={limit: "9"}) as broker:
        client = await broker.client()
        assert await change(client, BROKER, "1", (limit, SET, "8"), (idle, SET, "9")) == OK
        err = stderr()
        assert limit not in err and err.count(idle) == 1


async def test_inert_configs_are_logged_once(tmp_path: Path, stderr: Callable[[], str]) -> None:
    async with running(tmp_path / "data", overrides={"num.io.threads": "9"}) as broker:
        assert stderr().count("num.io.threads") == 1
        await broker.topic("t", 1, {"preallocate": "true"})
        assert stderr().count("preallocate") == 1
        client = await broker.client()
        assert await change(client, TOPIC, "t", ("preallocate", SET, "false")) == OK
        assert await change(client, BROKER, "1", ("num.io.threads", SET, "8"), ("background.threads", SET, "9")) == OK
        err = stderr()
        assert "preallocate" not in err and "num.io.threads" not in err and err.count("background.threads") == 1

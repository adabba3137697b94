"""Running brokers of every profile, in one process: ApiVersions, served versions and closed connections.

Also configs by profile: which exist, and their defaults.
"""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.definitions import OWN_FACTS, facts
from ottla.broker.config.log_config import log_config
from ottla.broker.config.values import Config, TopicConfig
from ottla.broker.errors import ConfigError
from ottla.broker.releases.profiles import BEHAVIOUR_NAMES, PROFILE_NAMES, RELEASES, profile
from ottla.protocol.compiler import parse
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.configs.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.schema import Versions, empty_value, spec
from ottla.storage.producers.producer_state import RuleOutcome
from ottla_testing.broker.harness import Broker, Closed, frame, options, ping, read_response, running
from ottla_testing.broker.routes import ROUTES
from ottla_testing.each import each

UNLIMITED = 2**63 - 1
API_VERSIONS = 18


def implemented(name: str) -> dict[int, tuple[Versions, Versions]]:
    """Returns (advertised, served) of a release by API key, limited to APIs with a handler."""
    found = {}
    played = profile(name)
    for key, route in ROUTES.items():
        first, last = played.served.get(key, (0, -1))
        served = Versions(max(first, route.versions.first), min(last, route.versions.last))
        if served.first <= served.last:
            advertised = played.apis[key]
            found[key] = Versions(max(advertised.first, route.versions.first), served.last), served
    return found


async def advertised(broker: Broker, version: int) -> dict[int, tuple[int, int]]:
    client = await broker.client()
    result = await client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)
    assert result.error_code == 0
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in result.api_keys}


async def closes(broker: Broker, key: int, version: int) -> bool:
    """Returns whether a request of this version closes the connection; a complete request if the version exists."""
    if key in ROUTES and version in spec(ROUTES[key].request_class).versions:
        return not await is_served(broker, key, version)
    client = await broker.client()
    await client.send_bytes(struct.pack(">ihhih", 10, key, version, 1, -1))
    closed = await client.is_closed()
    client.close()
    return closed


async def is_served(broker: Broker, key: int, version: int) -> bool:
    """Returns whether an empty request of this version gets a response in that version's layout."""
    request_class = ROUTES[key].request_class
    request: Any = empty_value(request_class)
    if "acks" in request._fields:
        request.acks = -1
    if "client_software_name" in request._fields:
        request.client_software_name = request.client_software_version = "t"
    if "resource_type_filter" in request._fields:  # UNKNOWN closes the connection
        request.resource_type_filter = request.operation = request.permission_type = 1
    client = await broker.client()
    await client.send_bytes(frame(request, version, 7))
    try:
        correlation_id, _ = read_response(await client.receive_bytes(), request_class, version)
    except Closed:
        return False
    client.close()
    return correlation_id == 7


@each("name", [name for name in PROFILE_NAMES if name not in ("0.8.2", "0.9")], strided=True)
async def test_api_versions_lists_the_versions_of_the_release(name: str, tmp_path: Path) -> None:
    expected = {key: tuple(versions) for key, (versions, _) in implemented(name).items()}
    async with running(tmp_path / "data", release=name) as broker:
        for version in broker.state.apis.served[API_VERSIONS].range():
            assert await advertised(broker, version) == expected


@each("name", PROFILE_NAMES, strided=True)
async def test_exactly_the_versions_of_the_release_are_served(name: str, tmp_path: Path) -> None:
    """Both ends of every range are served, versions outside it close the connection, and so do unknown keys."""
    expected = implemented(name)
    async with running(tmp_path / "data", release=name) as broker:
        for key in ROUTES:
            if key not in expected:
                assert await closes(broker, key, 0), (name, key)
                continue
            first, last = expected[key][1]
            for version in {first, last}:
                assert await is_served(broker, key, version), (name, key, version)
            for version in (first - 1, last + 1) if key != API_VERSIONS else ():
                assert await closes(broker, key, version), (name, key, version)


@pytest.mark.parametrize("name", ["0.8.2", "0.9"])
@pytest.mark.parametrize("version", [0, 3, 99])
async def test_before_kip_35_api_versions_closes_the_connection(name: str, version: int, tmp_path: Path) -> None:
    """From this, current clients conclude that the broker is that old."""
    async with running(tmp_path / "data", release=name) as broker:
        assert await closes(broker, API_VERSIONS, version)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        *[(name, []) for name in ("0.10.0", "0.11", "1.0", "2.0", "2.3")],
        *[("2.4", [(18, 0, 3)]), ("2.8", [(18, 0, 3)]), ("3.9", [(18, 0, 4)]), ("4.3", [(18, 0, 4)])],
        *[(name, [(18, 0, 5)]) for name in ("4.4", "ottla")],
    ],
)
async def test_an_unknown_version_of_api_versions(name: str, listed: list[Any], tmp_path: Path) -> None:
    """Error 35 in the layout of v0; from 2.4 on the list lets the client retry (KIP-511)."""
    async with running(tmp_path / "data", release=name) as broker:
        client = await broker.client()
        await client.send_bytes(struct.pack(">ihhih", 10, API_VERSIONS, 99, 77, -1))
        result = await client.receive_bytes()
        assert struct.unpack_from(">i", result) == (77,)
        response = parse(ApiVersionsResponse, 0, result, 4)
        assert response.error_code == 35
        assert [(e.api_key, e.min_version, e.max_version) for e in response.api_keys] == listed
        assert (await client.call(ping(), 0)).error_code == 0


async def test_brokers_in_one_process_have_their_own_release(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "old", release="0.10.0") as old,
        running(tmp_path / "new", release="4.3") as new,
    ):
        for _ in range(2):  # a cached result of one must not be used for the other
            tables = await asyncio.gather(advertised(old, 0), advertised(new, 0))
            assert tables[0][3] == (0, 1) and tables[1][3] == (0, 13)
            assert await is_served(new, 3, 13) and await is_served(old, 3, 1)
            assert await closes(old, 3, 13)
        assert (old.state.profile.name, new.state.profile.name) == ("0.10.0", "4.3")


# ---- single behaviours


def test_single_behaviour_can_be_set() -> None:
    config = Config.load({"ottla.behaviour.wrong_batches": "close"}, profile=profile("3.9"))
    expected = profile("3.9").overridden({"wrong_batches": "close"})
    assert config.profile == expected and config.profile.name == "3.9" and config.profile != profile("3.9")
    assert config.profile.apis == profile("3.9").apis


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("invalid_record_code", "2", 2),
        ("newest_magic", "1", 1),
        ("cached_batches", "7", 7),
        ("one_magic", "FALSE", False),
        ("record_errors", "first", "first"),
        ("unknown_producer", "accept", "accept"),
    ],
)
def test_behaviours_have_types(name: str, text: str, value: Any) -> None:
    found = getattr(Config({f"ottla.behaviour.{name}": text}).profile.behaviour, name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("invalid_record_code", "3", "String must be one of: 2, 87"),
        ("wrong_batches", "reset", "String must be one of: close, corrupt, invalid"),
        ("cached_batches", "0", "Value must be at least 1"),
        ("cached_batches", "1001", "Value must be no more than 1000"),
        ("one_magic", "2", "Expected value to be either true or false"),
    ],
)
def test_behaviour_of_the_wrong_type_is_an_error(name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load({f"ottla.behaviour.{name}": text}, profile=profile("2.8"))
    assert str(caught.value) == f"Invalid value {text} for configuration ottla.behaviour.{name}: {reason}"


def test_behaviours_are_described_only_if_set() -> None:
    config = Config({"ottla.behaviour.one_magic": "false"})
    assert [name for name in config.names() if name.startswith("ottla.behaviour.")] == ["ottla.behaviour.one_magic"]
    assert config.describe("ottla.behaviour.wrong_batches").value == "invalid"
    assert Config(profile=profile("2.0")).describe("ottla.behaviour.wrong_batches").value == "close"
    assert len([name for name in facts("broker") if name.startswith("ottla.behaviour.")]) == len(BEHAVIOUR_NAMES)


async def test_the_rules_of_producers_reach_the_logs(tmp_path: Path) -> None:
    async with running(tmp_path / "data", release="2.4") as broker:
        await broker.topic("t")
        rules = broker.state.topics.partition("t", 0).log.config.producer_rules
        assert (rules.unknown_producer, rules.marker_only) == (RuleOutcome.UNKNOWN, RuleOutcome.UNKNOWN)
        assert (rules.below_cache, rules.cached_batches) == (RuleOutcome.OUT_OF_ORDER, 5)
        assert rules.drop_below_log_start is False


# ---- configs and defaults

FROM_4 = ("4.0.0", "4.0", "4.1", "4.2", "4.3", "4.4")
BEFORE_3_6 = tuple(name for name in RELEASES if name not in FROM_4 and name not in ("3.6", "3.7", "3.8", "3.9"))
BEFORE_2 = ("0.8.2", "0.9", "0.10.0", "0.10.1", "0.10.2", "0.11", "1.0.1", "1.0", "1.1")
BEFORE_2_5 = (*BEFORE_2, "2.0.0", "2.0", "2.1", "2.2", "2.3", "2.4")

# Topic config, the broker's synonym, the releases without them.
ABSENT = [
    ("message.format.version", "log.message.format.version", ("0.8.2", "0.9", *FROM_4)),
    ("message.downconversion.enable", "log.message.downconversion.enable", (*BEFORE_2, *FROM_4)),
    (
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.difference.max.ms",
        ("0.8.2", "0.9", *FROM_4),
    ),
    ("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", BEFORE_3_6),
    ("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", BEFORE_3_6),
    ("message.timestamp.type", "log.message.timestamp.type", ("0.8.2", "0.9")),
    ("compression.zstd.level", "compression.zstd.level", (*BEFORE_3_6, "3.6", "3.7")),
]


@pytest.mark.parametrize(("topic_name", "broker_name", "absent"), ABSENT)
def test_topic_configs_exist_in_their_releases(topic_name: str, broker_name: str, absent: tuple[str, ...]) -> None:
    assert tuple(name for name in PROFILE_NAMES if topic_name not in facts("topic", name)) == absent
    assert tuple(name for name in PROFILE_NAMES if broker_name not in facts("broker", name)) == absent


@pytest.mark.parametrize(
    ("config", "absent"),
    [
        ("inter.broker.protocol.version", ("0.8.2", *FROM_4)),
        ("zookeeper.connect", FROM_4),
        ("producer.id.expiration.ms", tuple(n for n in BEFORE_3_6 if n not in ("3.4", "3.5"))),
        *[(fact.name, ()) for fact in OWN_FACTS],
    ],
)
def test_broker_configs_exist_in_their_releases(config: str, absent: tuple[str, ...]) -> None:
    assert tuple(name for name in PROFILE_NAMES if config not in facts("broker", name)) == absent


def test_defaults_by_release() -> None:
    small = {
        name for name in PROFILE_NAMES if TopicConfig(Config(profile=profile(name)))["max.message.bytes"] == 1000012
    }
    assert small == set(BEFORE_2_5)
    for name in PROFILE_NAMES:
        config = Config(profile=profile(name))
        topic = TopicConfig(config)
        assert topic["max.message.bytes"] in (1000012, 1048588)
        after = topic.get("message.timestamp.after.max.ms")
        assert after == (3600000 if name in (*FROM_4, "ottla") else None if name in BEFORE_3_6 else UNLIMITED), name
        assert topic.get("message.timestamp.before.max.ms", UNLIMITED) == UNLIMITED
        assert config["offsets.retention.minutes"] == (1440 if name in BEFORE_2 else 10080)
        assert facts("topic", name)["segment.bytes"].valid == (
            "[1048576,...]" if name in ("4.1", "4.2", "4.3", "4.4", "ottla") else "[14,...]"
        ), name


@pytest.mark.parametrize(
    ("name", "version"),
    [
        *[("0.8.2", None), ("0.9", "0.9.0"), ("0.10.0", "0.10.0-IV1"), ("0.11", "0.11.0-IV2"), ("1.0.1", "1.0-IV0")],
        *[("2.8", "2.8-IV1"), ("3.0", "3.0-IV1"), ("3.9", "3.9-IV0"), ("4.0.0", None), ("4.3", None)],
        ("ottla", "3.9-IV0"),
    ],
)
def test_default_protocol_version_is_that_of_the_release(name: str, version: str | None) -> None:
    assert Config(profile=profile(name)).get("inter.broker.protocol.version") == version


@each("name", PROFILE_NAMES)
def test_every_profile_can_read_and_describe_all_its_configs(name: str) -> None:
    config = Config(profile=profile(name))
    topic = TopicConfig(config)
    assert {config.describe(key).name for key in config.names()} == set(config.names())
    assert {topic.describe(key).name for key in topic.names()} == set(topic.names())
    for key in facts("broker", name):
        config[key]
    for key in facts("topic", name):
        topic[key]
    assert log_config(topic, config).rules.max_message_bytes == topic["max.message.bytes"]
    assert options([Path("d")], release=name).listeners[0].host == "127.0.0.1"


def test_config_types_by_release() -> None:
    found = [Config(profile=profile(name)).describe("log.dirs").type.name for name in ("2.8", "4.1", "4.3")]
    assert found == ["STRING", "STRING", "LIST"]
    config = Config({"log.dirs": "/a,/b"}, profile=profile("2.8"))
    assert config["log.dirs"] == ["/a", "/b"] and config.describe("log.dirs").value == "/a,/b"


@pytest.mark.parametrize(
    "name",
    """log.message.format.version log.message.downconversion.enable log.message.timestamp.difference.max.ms
    inter.broker.protocol.version""".split(),
)
def test_configs_removed_in_4_0_are_unknown(name: str, tmp_path: Path) -> None:
    value = {"inter.broker.protocol.version": "3.9", "log.message.format.version": "3.0"}.get(name, "1")
    with pytest.raises(ConfigError, match=f"unknown config {name} in --override: Kafka 4.0 does not have it"):
        Config.load({name: value}, profile=profile("4.0"))
    file = tmp_path / "server.properties"
    file.write_text(f"{name}={value}\n")
    config = Config.load(file=file, profile=profile("4.0"))
    assert len(config.warnings) == 1 and name in config.warnings[0] and name not in config.names()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.format.version", "2.8"),
        ("message.downconversion.enable", "false"),
        ("message.timestamp.difference.max.ms", "1"),
    ],
)
async def test_configs_removed_in_4_0_are_refused_over_the_wire(name: str, value: str, tmp_path: Path) -> None:
    resource = AlterConfigsRequest.AlterConfigsResource
    request = AlterConfigsRequest(
        resources=[
            resource(resource_type=2, resource_name="t", configs=[resource.AlterableConfig(name=name, value=value)])
        ],
        validate_only=False,
    )
    for release, code in (("4.0", 40), ("3.9", 0)):
        async with running(tmp_path / release, release=release) as broker:
            await broker.topic("t")
            client = await broker.client()
            (result,) = (await client.call(request, 1)).responses
            assert result.error_code == code, (release, result.error_message)
            assert not code or result.error_message == f"Unknown topic config name: {name}"
            describe = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=2, resource_name="t", configuration_keys=None
                    )
                ]
            )
            (described,) = (await client.call(describe, 1)).results
            assert (name in {entry.name for entry in described.configs}) is (code == 0)


async def test_topic_config_of_another_release_is_kept_but_ignored(tmp_path: Path) -> None:
    async with running(tmp_path / "data", release="2.8") as broker:
        await broker.topic("t", configs={"message.format.version": "0.10.2"})
    async with running(tmp_path / "data", release="4.3") as broker:
        assert broker.state.topics.named("t").config.overrides == {}
    async with running(tmp_path / "data", release="2.8") as broker:
        assert broker.state.topics.named("t").config.overrides == {"message.format.version": "0.10.2"}

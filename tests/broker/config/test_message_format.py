"""inter.broker.protocol.version and message format configs: written formats, warnings and errors, by release."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import structlog

from ottla.broker.config.log_config import log_config
from ottla.broker.config.message_format import (
    down_converts,
    forced_upgrade,
    target_magic,
    timestamp_range_ms,
    v2_only,
    zstd_allowed,
)
from ottla.broker.config.values import Config, TopicConfig
from ottla.broker.errors import ConfigError
from ottla.broker.logs import get_logger
from ottla.broker.releases.profiles import PROFILE_NAMES, profile
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.records import formats
from ottla.protocol.records.validate import Rules
from ottla.tools import serve
from ottla_testing import ROOT
from ottla_testing.broker.harness import Broker, only, running
from ottla_testing.each import each

UNLIMITED = 2**63 - 1
PROTOCOL = "inter.broker.protocol.version"
BROKER_FORMAT = "log.message.format.version"
TOPIC_FORMAT = "message.format.version"
FORCE = "log.record.version.force.upgrade"
DIFFERENCE = "message.timestamp.difference.max.ms"
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"


def configured(release: str, overrides: dict[str, str] | None = None) -> Config:
    return Config.load(overrides, profile=profile(release))


def magic(release: str, topic: dict[str, str] | None = None, **broker: str) -> int:
    names = {"protocol": PROTOCOL, "format": BROKER_FORMAT}
    config = configured(release, {names[key]: value for key, value in broker.items()})
    return target_magic(TopicConfig(config, topic), config)


# ---- written formats

NEWEST_WRITTEN = {
    **dict.fromkeys(("0.8.2", "0.9"), 0),
    **dict.fromkeys(("0.10.0", "0.10.1", "0.10.2"), 1),
}


@each("release", PROFILE_NAMES)
def test_default_format_is_the_newest_of_the_release(release: str) -> None:
    assert magic(release) == NEWEST_WRITTEN.get(release, 2)


@each("release", ["2.8", "3.0", "3.9", "ottla"])
@each(
    ("protocol", "broker", "topic", "expected"),
    [
        # The topic's version, or the broker's, or what the protocol version allows.
        ("0.9.0", None, None, 0),
        ("0.10.2", None, None, 1),
        ("0.11.0", None, None, 2),
        ("2.8", None, None, 2),
        ("2.8", "0.10.2", None, 1),
        ("2.8", "0.9.0", None, 0),
        ("2.8", "0.10.2", "0.9.0", 0),
        ("2.8", "0.9.0", "0.11.0", 2),
        ("2.8-IV1", None, "0.10.0", 1),
        ("0.10.2", None, "0.9.0", 0),
        # A topic's version above the protocol version is ignored.
        ("0.10.2", None, "0.11.0", 1),
        ("0.10.2", "0.9.0", "2.8", 0),
    ],
)
def test_message_format_version_applies_below_protocol_version_3_0(
    release: str, protocol: str, broker: str | None, topic: str | None, expected: int
) -> None:
    formats = {"protocol": protocol} | ({"format": broker} if broker else {})
    assert magic(release, {TOPIC_FORMAT: topic} if topic else None, **formats) == expected


@each("release", ["3.0", "3.9", "ottla"])
@each("protocol", [None, "3.0", "3.0-IV1"])
@each("version", ["0.9.0", "0.10.2", "0.11.0", "2.8"])
def test_protocol_version_3_0_writes_v2(release: str, protocol: str | None, version: str) -> None:
    """Exactly: 3.0-IV0 was before KIP-724."""
    broker = {"protocol": protocol} if protocol else {}
    assert magic(release, {TOPIC_FORMAT: version}, **broker) == 2
    assert magic(release, {TOPIC_FORMAT: "0.9.0"}, protocol="3.0-IV0") == 0
    assert v2_only(configured(release)) and not v2_only(configured(release, {PROTOCOL: "3.0-IV0"}))


def test_releases_from_4_0_on_write_v2_without_a_protocol_version() -> None:
    for release in ("4.0.0", "4.0", "4.1", "4.2", "4.3", "4.4"):
        assert v2_only(configured(release)) and magic(release) == 2


def test_behaviour_disables_kip_724() -> None:
    config = configured("3.9", {"ottla.behaviour.v2_from_ibp_3": "false", BROKER_FORMAT: "0.10.2"})
    assert not v2_only(config) and target_magic(TopicConfig(config), config) == 1
    config = configured("4.3", {"ottla.behaviour.newest_magic": "1"})
    assert target_magic(TopicConfig(config), config) == 1


# ---- errors

INVALID = "Invalid value {1} for configuration {0}: Version {1} is not a valid version"
ABOVE = f"{BROKER_FORMAT} {{}} can only be used when {PROTOCOL} is that or higher; it is {{}}"


@pytest.mark.parametrize(
    ("release", "overrides", "message"),
    [
        ("2.8", {PROTOCOL: "3.0"}, INVALID.format(PROTOCOL, "3.0")),
        ("3.9", {PROTOCOL: "4.0"}, INVALID.format(PROTOCOL, "4.0")),
        ("ottla", {PROTOCOL: "4.0"}, INVALID.format(PROTOCOL, "4.0")),
        ("0.10.1", {PROTOCOL: "0.10.2"}, INVALID.format(PROTOCOL, "0.10.2")),
        ("1.1", {BROKER_FORMAT: "2.0"}, INVALID.format(BROKER_FORMAT, "2.0")),
        ("2.8", {PROTOCOL: "0.10.2", BROKER_FORMAT: "0.11.0"}, ABOVE.format("0.11.0", "0.10.2")),
        ("ottla", {PROTOCOL: "0.9.0", BROKER_FORMAT: "0.10.0"}, ABOVE.format("0.10.0", "0.9.0")),
        ("2.8", {FORCE: "2"}, f"{FORCE} needs {PROTOCOL} 3.0 or later; it is 2.8-IV1"),
        ("ottla", {FORCE: "2", PROTOCOL: "3.0-IV0"}, f"{FORCE} needs {PROTOCOL} 3.0 or later; it is 3.0-IV0"),
        ("0.8.2", {FORCE: "2"}, f"{FORCE} needs {PROTOCOL} 3.0 or later; this release has none"),
        ("ottla", {FORCE: "1"}, f"Invalid value 1 for configuration {FORCE}: Expected 2, or nothing"),
        ("4.0", {FORCE: "3"}, f"Invalid value 3 for configuration {FORCE}: Expected 2, or nothing"),
    ],
)
def test_contradictory_versions_are_refused_at_startup(
    release: str, overrides: dict[str, str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(release, overrides)
    assert str(caught.value) == message
    flags = [word for key, value in overrides.items() for word in ("--override", f"{key}={value}")]
    assert serve.serve(["--data-dir", str(tmp_path / "data"), "--release", release, *flags]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"ottla serve: {message}\n") and not (tmp_path / "data").exists()


def test_equal_format_above_the_protocol_version_is_accepted() -> None:
    assert magic("2.8", protocol="1.0", format="2.0") == 2


def test_forced_upgrade_requires_v2() -> None:
    for release in ("3.0", "3.9", "4.0.0", "4.3", "ottla"):
        assert forced_upgrade(configured(release, {FORCE: "2"}))
        assert not forced_upgrade(configured(release, {FORCE: ""})) and not forced_upgrade(configured(release))
    assert not forced_upgrade(configured("2.8", {FORCE: ""}))


# ---- warnings


@pytest.mark.parametrize(
    ("release", "overrides", "warnings"),
    [
        ("3.9", {BROKER_FORMAT: "0.10.2"}, 1),
        ("3.9", {BROKER_FORMAT: "0.9.0", PROTOCOL: "3.0"}, 1),
        ("ottla", {BROKER_FORMAT: "0.10.0"}, 1),
        ("3.9", {BROKER_FORMAT: "0.11.0"}, 0),
        ("3.9", {BROKER_FORMAT: "2.8"}, 0),
        ("3.9", {BROKER_FORMAT: "0.10.2", PROTOCOL: "2.8"}, 0),
        ("2.8", {BROKER_FORMAT: "0.10.2"}, 0),
    ],
)
def test_ignored_broker_format_is_one_warning(release: str, overrides: dict[str, str], warnings: int) -> None:
    found = configured(release, overrides).warnings
    assert len(found) == warnings and all(BROKER_FORMAT in text for text in found)


@pytest.mark.parametrize(
    ("release", "protocol", "version", "reason"),
    [
        ("3.9", "3.9", "0.10.2", "inter.broker.protocol.version is 3.9"),
        ("3.9", "3.9", "0.11.0", None),
        ("3.9", "2.8", "0.10.2", None),
        ("2.8", "0.10.2", "0.11.0", "above inter.broker.protocol.version 0.10.2"),
        ("2.8", "2.8", "0.9.0", None),
    ],
)
async def test_ignored_topic_format_is_one_warning(
    release: str, protocol: str, version: str, reason: str | None, tmp_path: Path
) -> None:
    """When it is set, and again when the broker starts with it."""
    get_logger()
    overrides = {PROTOCOL: protocol}
    for _ in range(2):
        with structlog.testing.capture_logs() as events:
            async with running(tmp_path / "data", overrides=overrides, release=release) as broker:
                if broker.state.topics.get("t") is None:
                    await broker.topic("t", 3, {TOPIC_FORMAT: version})
        warned = [event["reason"] for event in events if event["log_level"] == "warning"]
        assert warned == ([reason] if reason else [])


# ---- conversion and timestamps


@pytest.mark.parametrize(
    ("release", "overrides", "expected"),
    [
        ("2.8", {}, "scan"),
        ("3.0", {}, "always"),
        ("ottla", {}, "always"),
        ("3.9", {PROTOCOL: "2.8"}, "always"),  # 3.x has no scan: the topic's format decides
        ("ottla", {PROTOCOL: "2.8"}, "scan"),
        ("ottla", {PROTOCOL: "2.8", "ottla.behaviour.down_conversion": "always"}, "always"),
        ("4.0", {}, "none"),
    ],
)
def test_down_conversion_by_protocol_version(release: str, overrides: dict[str, str], expected: str) -> None:
    assert configured(release, overrides).profile.behaviour.down_conversion == expected


def test_down_conversion_can_be_turned_off() -> None:
    for release in ("0.9", "1.1", "2.8", "3.9", "4.3", "ottla"):
        assert down_converts(TopicConfig(configured(release)))
    for release in ("2.0.0", "2.8", "3.9", "ottla"):
        assert not down_converts(TopicConfig(configured(release), {"message.downconversion.enable": "false"}))
        assert not down_converts(TopicConfig(configured(release, {"log.message.downconversion.enable": "false"})))


@pytest.mark.parametrize(
    ("release", "configs", "expected"),
    [
        ("2.8", {}, (UNLIMITED, UNLIMITED)),
        ("2.8", {DIFFERENCE: "5"}, (5, 5)),
        ("3.5", {DIFFERENCE: "5"}, (5, 5)),
        ("3.6", {DIFFERENCE: "5"}, (5, 5)),
        ("3.6", {DIFFERENCE: "5", BEFORE: "7", AFTER: "9"}, (5, 5)),
        ("3.9", {BEFORE: "7"}, (7, UNLIMITED)),
        ("3.9", {BEFORE: "7", AFTER: "9"}, (7, 9)),
        ("3.9", {DIFFERENCE: str(UNLIMITED), AFTER: "9"}, (UNLIMITED, 9)),
        ("4.0", {}, (UNLIMITED, 3600000)),
        ("4.0", {BEFORE: "7", AFTER: "9"}, (7, 9)),
        ("ottla", {}, (UNLIMITED, 3600000)),
        ("ottla", {DIFFERENCE: "5", AFTER: "9"}, (5, 5)),
        ("ottla", {BEFORE: "7", AFTER: "9"}, (7, 9)),
        ("0.9", {}, (UNLIMITED, UNLIMITED)),
    ],
)
def test_timestamp_limits(release: str, configs: dict[str, str], expected: tuple[int, int]) -> None:
    config = configured(release)
    topic = TopicConfig(config, configs)
    assert timestamp_range_ms(topic, config) == expected
    rules = log_config(topic, config).rules
    assert (rules.timestamp_before_max_ms, rules.timestamp_after_max_ms) == expected
    config = configured(release, {f"log.{name}": value for name, value in configs.items()})
    assert timestamp_range_ms(TopicConfig(config), config) == expected


@pytest.mark.parametrize(
    ("release", "overrides", "expected"),
    [
        ("0.10.2", {}, False),
        ("2.0", {}, False),
        ("2.1", {}, True),
        ("2.1", {PROTOCOL: "2.0"}, False),
        ("3.9", {PROTOCOL: "2.0"}, False),
        ("3.9", {PROTOCOL: "2.1"}, True),
        ("4.0", {}, True),
        ("ottla", {}, True),
        ("ottla", {PROTOCOL: "2.0"}, False),
    ],
)
def test_zstd_needs_2_1(release: str, overrides: dict[str, str], expected: bool) -> None:
    assert zstd_allowed(configured(release, overrides)) is expected


OF_RULES = (
    "target_magic",
    "old_formats",
    "one_magic",
    "record_errors",
    "refuse_unnumbered",
    "unnumbered_fail",
    "zstd_allowed",
)


@pytest.mark.parametrize(
    ("release", "append_time_bit_allowed", "others"),
    [
        ("0.9", False, (0, True, False, "none", False, False, False)),
        ("0.10.2", False, (1, True, False, "none", False, False, False)),
        ("2.3", False, (2, True, False, "none", False, False, True)),
        ("2.4", False, (2, True, True, "first", True, False, True)),
        ("3.5", False, (2, True, True, "all", False, True, True)),
        ("3.6", True, (2, True, True, "all", False, True, True)),
        ("4.3", True, (2, False, True, "all", False, True, True)),
        ("ottla", True, (2, True, True, "all", False, True, True)),
    ],
)
def test_the_rules_of_a_release_reach_the_logs(
    release: str, append_time_bit_allowed: bool, others: tuple[Any, ...]
) -> None:
    config = configured(release)
    rules = log_config(TopicConfig(config), config).rules
    assert rules.append_time_bit_allowed is append_time_bit_allowed
    assert tuple(getattr(rules, name) for name in OF_RULES) == others


def test_every_rule_is_set_from_the_configs() -> None:
    """Except rules with a value per call, and rules without a config."""
    tree = ast.parse((ROOT / "broker" / "config" / "log_config.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    (call,) = (node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "Rules")
    fields = {field.name for field in dataclasses.fields(Rules)}
    assert fields - {keyword.arg for keyword in call.keywords} == {"produce_version", "max_decompressed_bytes"}


# ---- rules and internal topics


def commit(offset: int) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    requested = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[requested])])


async def committed(broker: Broker) -> int:
    topic = OffsetFetchRequest.OffsetFetchRequestTopic
    client = await broker.client()
    request = OffsetFetchRequest(group_id="g", topics=[topic(name="t", partition_indexes=[0])])
    return only(await client.call(request, 1)).committed_offset


def stored_magics(broker: Broker) -> list[int]:
    """Returns the formats of the entries in the partition of __consumer_offsets."""
    log = broker.log("__consumer_offsets")
    return [header.magic for _, header in formats.headers(log.read(0, 1 << 20).records)]


async def test_group_offsets_are_written_in_the_release_format_and_read_in_any(tmp_path: Path) -> None:
    """KIP-724's rules apply to __consumer_offsets as well; data of older releases is read as it is."""
    magics: list[int] = []
    for number, (release, magic) in enumerate([("0.9", 0), ("0.10.2", 1), ("2.8", 2), ("3.9", 2), ("ottla", 2)]):
        async with running(
            tmp_path / "data", overrides={"offsets.topic.num.partitions": "1"}, release=release
        ) as broker:
            if number == 0:
                await broker.topic("t")
            else:
                assert await committed(broker) == number - 1
            client = await broker.client()
            assert only(await client.call(commit(number), 2)).error_code == 0
            assert await committed(broker) == number
            magics.append(magic)
            assert stored_magics(broker) == magics

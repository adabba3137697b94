"""The limits of the settings of groups: among each other and for the broker's own, at the start and when changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.group_limits import LIMITS, check_group_limits
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.releases.profiles import PROFILE_NAMES, profile
from ottla.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla_testing.broker.configuring import BROKER, GROUP, SET, change, shown
from ottla_testing.broker.harness import running
from ottla_testing.each import each


def test_defaults_of_all_releases_are_within_their_limits() -> None:
    """A start checks them only if one is set."""
    for name in PROFILE_NAMES:
        check_group_limits(Config(profile=profile(name)).get)


def test_limits_are_configs_of_the_newest_release() -> None:
    config = Config(profile=profile("4.4"))
    assert not [name for name in LIMITS if config.fact(name) is None]


@each(
    ("configs", "problem"),
    [
        ({"group.consumer.session.timeout.ms": "1000"}, "to group.consumer.min.session.timeout.ms (45000)"),
        ({"group.consumer.heartbeat.interval.ms": "20000"}, "group.consumer.max.heartbeat.interval.ms (15000) must"),
        ({"group.share.min.heartbeat.interval.ms": "16000"}, "group.share.max.heartbeat.interval.ms (15000) must"),
        ({"group.share.record.lock.duration.ms": "60001"}, "group.share.max.record.lock.duration.ms (60000) must"),
        ({"group.streams.num.standby.replicas": "9"}, "group.streams.max.standby.replicas (2) must"),
        (
            {
                "group.consumer.min.session.timeout.ms": "1",
                "group.consumer.session.timeout.ms": "5000",
            },
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
    ],
)
def test_settings_beyond_their_limits_are_refused(configs: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(configs, profile=profile("4.3"))
    assert problem in str(refused.value)


async def test_changes_beyond_the_limits_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.4") as broker:
        client = await broker.client()
        name = "group.consumer.assignment.interval.ms"
        code, message = await change(client, BROKER, "1", (name, SET, "99999999"))
        assert code != 0 and "group.consumer.max.assignment.interval.ms" in (message or ""), message


CAPPED = {
    "consumer.heartbeat.interval.ms": ("12000", {"group.consumer.max.heartbeat.interval.ms": "8000"}),
    "share.heartbeat.interval.ms": ("6000", {"group.share.min.heartbeat.interval.ms": "7000"}),
    "share.record.lock.duration.ms": ("60000", {"group.share.max.record.lock.duration.ms": "40000"}),
}


@each(("release", "caps"), [("4.2", False), ("4.3", True), ("4.4", True)])
async def test_configs_of_a_group_keep_to_the_limits_of_a_later_start(release: str, caps: bool, tmp_path: Path) -> None:
    """They were set within other limits. What is stored, and described, does not change."""
    overrides = {
        **{name: value for _, limits in CAPPED.values() for name, value in limits.items()},
        "group.share.heartbeat.interval.ms": "7000",
    }
    async with running(tmp_path / "data", release=release) as broker:
        client = await broker.client()
        for group in ("consumers", "sharers"):
            values = [(name, SET, value) for name, (value, _) in CAPPED.items()]
            assert await change(client, GROUP, group, *values) == (0, None)
    async with running(tmp_path / "data", release=release, overrides=overrides) as broker:
        client = await broker.client()
        assert {
            name: value for name, (value, _) in (await shown(client, GROUP, "sharers")).items() if name in CAPPED
        } == {name: value for name, (value, _) in CAPPED.items()}
        lock_ms = broker.state.share_configs.lock_ms("sharers")
        fields: dict[str, Any] = {"member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["t"]}
        consumer = ConsumerGroupHeartbeatRequest(
            **fields, group_id="consumers", rebalance_timeout_ms=9, topic_partitions=[]
        )
        share = ShareGroupHeartbeatRequest(**fields, group_id="sharers")
        beats = [(await client.call(request, 1)).heartbeat_interval_ms for request in (consumer, share)]
        assert (*beats, lock_ms) == ((8_000, 7_000, 40_000) if caps else (12_000, 6_000, 60_000))

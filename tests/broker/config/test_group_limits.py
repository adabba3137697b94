"""The limits of the settings of groups: among each other and for the broker's own, at the start and when changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.config.group_limits import LIMITS, check_group_limits
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.releases.profiles import PROFILE_NAMES, profile
from ottla_testing.broker.configuring import BROKER, SET, change
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

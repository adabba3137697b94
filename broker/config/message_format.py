"""Message format configs: which format is written, and whether old clients are served.

Implements `inter.broker.protocol.version`, `message.format.version` and related configs with the rules of the profile's
release (KIP-31, KIP-283, KIP-724, KIP-937). Pure functions over a configuration; callers log the warnings.

KIP-724's rules of 3.0 apply if the release has them and `inter.broker.protocol.version` is 3.0 or later (from 4.0 on
there is no such config, and the rules always apply): v2 is written and `message.format.version` is ignored. Otherwise a
topic's format is its `message.format.version`, or the broker's, or the newest one that `inter.broker.protocol.version`
allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.records.rules import UNLIMITED_MS
from ..errors import ConfigError
from ..releases.profiles import (
    BEHAVIOUR_NAMES,
    Profile,
    behaviour_kinds,
    protocol_place,
    record_format,
    supports_zstd,
    writes_v2_only,
)
from .definitions import BEHAVIOUR_PREFIX

if TYPE_CHECKING:
    from .configured import Configured, TopicConfigured

PROTOCOL = "inter.broker.protocol.version"
BROKER_FORMAT = "log.message.format.version"
TOPIC_FORMAT = "message.format.version"


def effective_profile(config: Configured) -> Profile:
    """Returns the profile with the individually configured behaviours.

    In Ottla's own profile an `inter.broker.protocol.version` below 3.0 also sets down-conversion to "scan". The
    releases from 3.0 on never scan: there the topic's format decides.
    """
    changed = behaviours_set(config)
    profile = config.profile.overridden(changed)
    scans = profile.is_own and "down_conversion" not in changed and not v2_only(config, profile)
    return profile.overridden({"down_conversion": "scan"}) if scans else profile


def behaviours_set(config: Configured) -> dict[str, Any]:
    """Returns the individually configured behaviours and their values."""
    changed: dict[str, Any] = {}
    names = config.names_set(BEHAVIOUR_PREFIX)
    for name in BEHAVIOUR_NAMES if names else ():
        if f"{BEHAVIOUR_PREFIX}{name}" in names:
            value: Any = config[f"{BEHAVIOUR_PREFIX}{name}"]
            kind = behaviour_kinds()[name]
            # Choices are parsed as text; some of them are numbers.
            changed[name] = next(c for c in kind if str(c) == value) if isinstance(kind, tuple) else value
    return changed


def v2_only(config: Configured, profile: Profile | None = None) -> bool:
    """Returns whether KIP-724's rules of 3.0 apply, by the profile of `config` or another: all is written as v2."""
    version, profile = config.get(PROTOCOL), profile or config.profile
    return profile.behaviour.v2_from_ibp_3 and (version is None or writes_v2_only(version))


def check_formats(config: Configured) -> list[str]:
    """Returns warnings about the broker's format configs. Raises ConfigError if they contradict each other."""
    version, written = config.get(PROTOCOL), config.get(BROKER_FORMAT)
    if forced_upgrade(config) and version is not None and not writes_v2_only(version):
        raise ConfigError(f"log.record.version.force.upgrade needs {PROTOCOL} 3.0 or later; it is {version}")
    if forced_upgrade(config) and version is None and config.profile.behaviour.newest_magic < 2:
        raise ConfigError(f"log.record.version.force.upgrade needs {PROTOCOL} 3.0 or later; this release has none")
    if version is None or written is None or not config.is_set(BROKER_FORMAT):
        return []
    if writes_v2_only(version):
        return [f"{BROKER_FORMAT}={written}: {PROTOCOL} is {version}"] if record_format(written) < 2 else []
    if record_format(written) > record_format(version):
        raise ConfigError(
            f"{BROKER_FORMAT} {written} can only be used when {PROTOCOL} is that or higher; it is {version}"
        )
    return []


def target_magic(topic: TopicConfigured, config: Configured) -> int:
    """Returns the message format in which a topic is written: 0, 1 or 2."""
    behaviour = config.profile.behaviour
    version = config.get(PROTOCOL)
    if version is None or v2_only(config):
        return behaviour.newest_magic
    found = config[BROKER_FORMAT] if config.is_set(BROKER_FORMAT) else version
    own = topic.overrides.get(TOPIC_FORMAT)
    # Kafka ignores a topic's version above the broker's protocol version.
    if own is not None and protocol_place(own) <= protocol_place(version):
        found = own
    return min(record_format(found), behaviour.newest_magic)


def topic_warning(topic: TopicConfigured, config: Configured) -> str | None:
    """Returns why a topic's `message.format.version` is ignored; None if it is not, or that makes no difference."""
    own, version = topic.overrides.get(TOPIC_FORMAT), config.get(PROTOCOL)
    if own is None or version is None:
        return None
    if v2_only(config):
        return f"{PROTOCOL} is {version}" if record_format(own) < 2 else None
    return f"above {PROTOCOL} {version}" if protocol_place(own) > protocol_place(version) else None


def zstd_allowed(config: Configured) -> bool:
    """Returns whether batches may be written with zstd."""
    version = config.get(PROTOCOL)
    return config.profile.behaviour.newest_magic == 2 and (version is None or supports_zstd(version))


def timestamp_range_ms(topic: TopicConfigured, config: Configured) -> tuple[int, int]:
    """Returns how far in ms a record's timestamp may be (before, after) the broker's time."""
    which = config.profile.behaviour.timestamp_range
    difference = UNLIMITED_MS
    if which != "before_after":
        difference = topic.get("message.timestamp.difference.max.ms", UNLIMITED_MS)
    if which == "difference" or difference != UNLIMITED_MS:  # the default value, which is ignored
        return difference, difference
    before = topic.get("message.timestamp.before.max.ms", UNLIMITED_MS)
    return before, topic.get("message.timestamp.after.max.ms", UNLIMITED_MS)


def down_converts(topic: TopicConfigured) -> bool:
    """Returns whether a topic's records are converted for old consumers, if the release supports that (KIP-283)."""
    return topic.get("message.downconversion.enable", True)


def forced_upgrade(config: Configured) -> bool:
    """Returns whether every segment is to be rewritten as v2 at startup (KIP-724)."""
    return config["log.record.version.force.upgrade"] == "2"

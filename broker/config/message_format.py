"""What the configs of message formats mean together: which format is written, and whether an old client is served.

Owns the rules of `inter.broker.protocol.version`, `message.format.version` and the configs beside them, each as the
profile's release has it (KIP-31, KIP-283, KIP-724, KIP-937). Pure: reads a configuration, warns through its caller.

KIP-724's rules of 3.0 hold if and only if the release has them and `inter.broker.protocol.version` is 3.0 or later
(4.0 and later have no such config, and always follow them): everything is written as v2, and `message.format.version`
means nothing. Otherwise a topic's format is its `message.format.version`, else the broker's, else the newest that
`inter.broker.protocol.version` allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.records.rules import UNLIMITED_MS
from ..errors import ConfigError
from ..releases.profiles import (
    BEHAVIOUR_NAMES,
    Profile,
    behaviour_kinds,
    knows_zstd,
    protocol_place,
    record_format,
    writes_v2_only,
)

if TYPE_CHECKING:
    from .configured import Configured, TopicConfigured

PROTOCOL = "inter.broker.protocol.version"
BROKER_FORMAT = "log.message.format.version"
TOPIC_FORMAT = "message.format.version"


def profile_in_force(config: Configured) -> Profile:
    """The release with the behaviours that are set one by one; the own profile also with what an older protocol version
    takes away: below 3.0 it scans. The releases from 3.0 on do not scan at all: there the topic's format decides."""
    changed = behaviours_set(config)
    profile = config.profile.overridden(changed)
    scans = profile.is_own and "down_conversion" not in changed and not _writes_v2_only(config, profile)
    return profile.overridden({"down_conversion": "scan"}) if scans else profile


def behaviours_set(config: Configured) -> dict[str, Any]:
    """The behaviours that are set one by one, and their values."""
    changed: dict[str, Any] = {}
    for name in BEHAVIOUR_NAMES:
        if config.is_set(f"ottla.behaviour.{name}"):
            value: Any = config[f"ottla.behaviour.{name}"]
            kind = behaviour_kinds()[name]
            # A choice is read as text; some choices are numbers.
            changed[name] = next(c for c in kind if str(c) == value) if isinstance(kind, tuple) else value
    return changed


def _writes_v2_only(config: Configured, profile: Profile) -> bool:
    version = config.get(PROTOCOL)
    return profile.behaviour.v2_from_ibp_3 and (version is None or writes_v2_only(version))


def v2_only(config: Configured) -> bool:
    """Whether KIP-724's rules of 3.0 hold: everything is written as v2."""
    return _writes_v2_only(config, config.profile)


def check_formats(config: Configured) -> list[str]:
    """The warnings about a broker's configs of formats. Raises ConfigError for those that contradict each other."""
    version, written = config.get(PROTOCOL), config.get(BROKER_FORMAT)
    if forced_upgrade(config) and version is not None and not writes_v2_only(version):
        raise ConfigError(f"log.record.version.force.upgrade needs {PROTOCOL} 3.0 or later; it is {version}")
    if forced_upgrade(config) and version is None and config.profile.behaviour.newest_magic < 2:
        raise ConfigError(f"log.record.version.force.upgrade needs {PROTOCOL} 3.0 or later; there is none here")
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
    """The message format in which a topic is written: 0, 1 or 2."""
    behaviour = config.profile.behaviour
    version = config.get(PROTOCOL)
    if version is None or v2_only(config):
        return behaviour.newest_magic
    found = config[BROKER_FORMAT] if config.fact(BROKER_FORMAT) and config.is_set(BROKER_FORMAT) else version
    own = topic.overrides.get(TOPIC_FORMAT)
    # Kafka ignores a topic's that is above the broker's protocol version.
    if own is not None and protocol_place(own) <= protocol_place(version):
        found = own
    return min(record_format(found), behaviour.newest_magic)


def topic_warning(topic: TopicConfigured, config: Configured) -> str | None:
    """Why a topic's `message.format.version` is ignored; None when it is not, or when that changes nothing."""
    own, version = topic.overrides.get(TOPIC_FORMAT), config.get(PROTOCOL)
    if own is None or version is None:
        return None
    if v2_only(config):
        return f"{PROTOCOL} is {version}" if record_format(own) < 2 else None
    return f"above {PROTOCOL} {version}" if protocol_place(own) > protocol_place(version) else None


def zstd_allowed(config: Configured) -> bool:
    """Whether batches may be written with zstd."""
    version = config.get(PROTOCOL)
    return config.profile.behaviour.newest_magic == 2 and (version is None or knows_zstd(version))


def timestamp_range_ms(topic: TopicConfigured, config: Configured) -> tuple[int, int]:
    """How far (before, after) the broker's time a record's timestamp may lie."""
    which = config.profile.behaviour.timestamp_range
    difference = UNLIMITED_MS
    if which != "before_after":
        difference = topic.get("message.timestamp.difference.max.ms", UNLIMITED_MS)
    if which == "difference" or difference != UNLIMITED_MS:  # its default: then it is not looked at
        return difference, difference
    before = topic.get("message.timestamp.before.max.ms", UNLIMITED_MS)
    return before, topic.get("message.timestamp.after.max.ms", UNLIMITED_MS)


def down_converts(topic: TopicConfigured) -> bool:
    """Whether a topic's records are converted for old consumers, where the release does that at all (KIP-283)."""
    return topic.get("message.downconversion.enable", True)


def forced_upgrade(config: Configured) -> bool:
    """Whether every segment is to be rewritten as v2 at the start (KIP-724)."""
    return config["log.record.version.force.upgrade"] == "2"

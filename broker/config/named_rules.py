"""Configs of client metrics and of groups: validation and description.

Implements Kafka's rules for these two resource types (KIP-714, KIP-848, KIP-932), as pure functions.
`broker/metadata/named_configs.py` stores the configs; `definitions.py` has types and defaults by release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocol.config_codes import ConfigSource, ConfigType
from ...protocol.errors import ErrorCode
from ..errors import ConfigError, Refused
from ..patterns import BadPattern, Pattern
from .definitions import Fact, format_value, parse_value
from .group_limits import limits_of
from .resource_types import CLIENT_METRICS
from .values import Config, ConfigEntry, Synonym

INTERVAL_MIN_MS, INTERVAL_MAX_MS = 100, 3_600_000
MATCHED = {
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
}
# The group configs with limits in the order of Kafka's checks, from 4.4 on.
_IN_ORDER = (
    *(f"consumer.{rest}" for rest in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")),
    *(f"share.{rest}" for rest in ("heartbeat.interval.ms", "session.timeout.ms", "record.lock.duration.ms")),
    *(f"share.{rest}" for rest in ("delivery.count.limit", "partition.max.record.locks", "assignment.interval.ms")),
    *(f"streams.{rest}" for rest in ("heartbeat.interval.ms", "session.timeout.ms", "num.standby.replicas")),
    *(f"streams.{rest}" for rest in ("assignment.interval.ms", "task.offset.interval.ms", "num.warmup.replicas")),
)
_TAGS, _ASSIGNOR = "streams.rack.aware.assignment.tags", "streams.assignor.name"
_DEAD_LETTERS = "errors.deadletterqueue.topic.name"


def check_named(kind: int, name: str, configs: Mapping[str, str], broker: Config) -> None:
    """Checks all configs of a resource together. Raises Refused or ConfigError."""
    if kind == CLIENT_METRICS:
        _check_client_metrics(name, configs, broker)
    else:
        _check_group(name, configs, broker)


def facts_of(kind: int, broker: Config) -> Mapping[str, Fact]:
    """Returns the definitions of a resource type's configs in this release, by name."""
    return broker.facts("client-metrics" if kind == CLIENT_METRICS else "group")


def _check_client_metrics(name: str, configs: Mapping[str, str], broker: Config) -> None:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    known = facts_of(CLIENT_METRICS, broker)
    for key in configs:
        if key not in known:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    values = {key: parse_value(known[key], text) for key, text in configs.items()}
    interval_ms = values.get("interval.ms", INTERVAL_MIN_MS)
    if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
        problem = f"Invalid value {interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
    for selector in values.get("match", []):  # attribute=expression
        parts = [part.strip() for part in selector.split("=")]
        try:
            if len(parts) != 2 or not parts[1] or parts[0] not in MATCHED:
                raise BadPattern
            Pattern(parts[1])
        except BadPattern:
            raise ConfigError(f"Illegal client matching pattern: {selector}") from None


def _check_group(name: str, configs: Mapping[str, str], broker: Config) -> None:
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    known = facts_of(0, broker)
    for key in configs:
        if key not in known:
            raise ConfigError(f"Unknown group config name: {key}")
    if broker.profile.behaviour.group_ranges:
        _check_ranges(configs, known, broker)
        return
    values = {key: parse_value(fact, configs.get(key, fact.default or "")) for key, fact in known.items()}
    for key in sorted(known):
        low, high = limits_of(key)
        if broker.fact(low) and values[key] < broker[low]:
            raise ConfigError(f"{key} must be greater than or equal to {low}")
        if broker.fact(high) and values[key] > broker[high]:
            raise ConfigError(f"{key} must be less than or equal to {high}")
    for prefix in ("consumer", "share", "streams"):
        session, heartbeat = f"{prefix}.session.timeout.ms", f"{prefix}.heartbeat.interval.ms"
        if session in known and values[session] <= values[heartbeat]:
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def _check_ranges(configs: Mapping[str, str], known: Mapping[str, Fact], broker: Config) -> None:
    """Checks the configs that are set, as from 4.4 on. Raises ConfigError."""
    tags = [part.strip() for part in configs.get(_TAGS, "").split(",")]
    if len(set(tags)) < len(tags):
        raise ConfigError(f"{_TAGS} must not contain duplicate tag keys.")
    values = {key: parse_value(known[key], text) for key, text in configs.items()}
    for key in _IN_ORDER:
        if key in values:
            _check_range(key, values[key], *(broker[name] if broker.fact(name) else None for name in limits_of(key)))
    assignors: list[str] = broker.get("group.streams.assignors") or []
    if values.get(_ASSIGNOR, assignors[0] if assignors else None) not in (None, *assignors):
        known_ones = f"Registered assignors are: [{', '.join(assignors)}]."
        raise ConfigError(f"{_ASSIGNOR} '{values[_ASSIGNOR]}' is not a registered task assignor. {known_ones}")
    for prefix in ("consumer", "share", "streams"):
        session, heartbeat = f"{prefix}.session.timeout.ms", f"{prefix}.heartbeat.interval.ms"
        both = [values.get(key, broker[f"group.{key}"]) for key in (session, heartbeat)]
        if (session in values or heartbeat in values) and both[0] <= both[1]:
            raise ConfigError(f"{session} must be greater than {heartbeat}")
    if values.get(_DEAD_LETTERS, "").startswith("__"):
        raise ConfigError(f"{_DEAD_LETTERS}: DLQ topic name must not start with '__'")


def _check_range(key: str, value: int, low: int | None, high: int | None) -> None:
    if low is not None and high is not None:
        if not low <= value <= high:
            raise ConfigError(f"{key} must be in the range {low} to {high} inclusive.")
    elif low is not None and value < low:
        raise ConfigError(f"{key} must be greater than or equal to {low}")
    elif high is not None and value > high:
        raise ConfigError(f"{key} must be less than or equal to {high}")


def describe_named(kind: int, configs: Mapping[str, str], broker: Config) -> list[ConfigEntry]:
    """Returns the DescribeConfigs entries of a resource with these `configs`."""
    known = facts_of(kind, broker)
    if kind == CLIENT_METRICS:
        source = ConfigSource.DYNAMIC_CLIENT_METRICS
        if broker.profile.behaviour.client_metrics_configs == "set":
            return [ConfigEntry(k, v, source, False, False, ConfigType.UNKNOWN, ()) for k, v in configs.items()]
        return [_entry(fact, configs, source, []) for fact in known.values()]
    source, has_synonyms = ConfigSource.DYNAMIC_GROUP, broker.profile.behaviour.group_synonyms
    entries: list[ConfigEntry] = []
    for fact in known.values():
        if fact.internal and fact.name not in configs:
            continue
        synonyms: list[Synonym] = []
        if has_synonyms:
            # Kafka reports a config without a broker synonym as its own synonym.
            synonyms = broker.reported_synonyms(fact.synonyms[0]) if fact.synonyms else [_default(fact)]
        elif fact.name not in configs:
            synonyms = [_default(fact)]
        entries.append(_entry(fact, configs, source, synonyms, broker if fact.synonyms else None))
    return entries


def _of_broker(fact: Fact, value: Any) -> str | None:
    """Formats the broker's value of a group config; of a list where the group has one value, the first element."""
    is_of_list = isinstance(value, list) and fact.type != "LIST"
    return format_value(fact, value[0] if is_of_list else value)


def _default(fact: Fact) -> Synonym:
    return Synonym(fact.name, fact.default, ConfigSource.DEFAULT)


def _entry(
    fact: Fact, configs: Mapping[str, str], source: ConfigSource, synonyms: list[Synonym], broker: Config | None = None
) -> ConfigEntry:
    text = configs.get(fact.name)
    if text is not None:
        value = format_value(fact, parse_value(fact, text))
        synonyms = [Synonym(fact.name, value, source), *synonyms]
    else:
        value = fact.default if broker is None else _of_broker(fact, broker[fact.synonyms[0]])
    first = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(fact.name, value, first, False, False, fact.type_code, tuple(synonyms))

"""Configs of client metrics and of groups: validation and description.

Implements Kafka's rules for these two resource types (KIP-714, KIP-848, KIP-932), as pure functions.
`broker/metadata/named_configs.py` stores the configs; `definitions.py` has types and defaults by release.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.errors import ErrorCode
from ..errors import ConfigError, Refused
from ..patterns import BadPattern, Pattern
from .definitions import ConfigType, Fact, format_value, parse_value
from .resource_types import CLIENT_METRICS
from .values import Config, ConfigEntry, ConfigSource, Synonym

INTERVAL_MIN_MS, INTERVAL_MAX_MS = 100, 3_600_000
MATCHED = {
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
}
# Group configs whose limits in the broker configs do not have the names group.<prefix>.min.<rest> and .max.<rest>.
_BOUNDED = {"streams.num.standby.replicas": "streams.{}.standby.replicas"}


def check_named(kind: int, name: str, configs: Mapping[str, str], broker: Config) -> None:
    """Checks all configs of a resource together. Raises Refused or ConfigError."""
    if kind == CLIENT_METRICS:
        _check_client_metrics(name, configs, broker)
    else:
        _check_group(name, configs, broker)


def facts_of(kind: int, broker: Config) -> dict[str, Fact]:
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
    _check_selectors(values.get("match", []))


def _check_selectors(selectors: list[str]) -> None:
    """Raises ConfigError for a selector that is not `attribute=expression` with an attribute in MATCHED."""
    for selector in selectors:
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
    values = {key: parse_value(fact, configs.get(key, fact.default or "")) for key, fact in known.items()}
    for key in sorted(known):
        prefix, _, rest = key.partition(".")
        pattern = "group." + _BOUNDED.get(key, f"{prefix}.{{}}.{rest}")
        low, high = pattern.format("min"), pattern.format("max")
        if broker.fact(low) and values[key] < broker[low]:
            raise ConfigError(f"{key} must be greater than or equal to {low}")
        if broker.fact(high) and values[key] > broker[high]:
            raise ConfigError(f"{key} must be less than or equal to {high}")
    for prefix in ("consumer", "share", "streams"):
        session, heartbeat = f"{prefix}.session.timeout.ms", f"{prefix}.heartbeat.interval.ms"
        if session in known and values[session] <= values[heartbeat]:
            raise ConfigError(f"{session} must be greater than {heartbeat}")


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
        synonyms: list[Synonym] = []
        if has_synonyms:
            # Kafka reports a config without a broker synonym as its own synonym.
            synonyms = broker.reported_synonyms(fact.synonyms[0]) if fact.synonyms else [_default(fact)]
        elif fact.name not in configs:
            synonyms = [_default(fact)]
        entries.append(_entry(fact, configs, source, synonyms, broker if fact.synonyms else None))
    return entries


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
        value = fact.default if broker is None else format_value(fact, broker[fact.synonyms[0]])
    first = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(fact.name, value, first, False, False, fact.type_code, tuple(synonyms))

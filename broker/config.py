"""The broker's configuration and each topic's: Kafka's names, typed values, and which source a value came from.

Owns precedence (`--override`, flags, `KAFKA_*` variables, server.properties, defaults), Kafka's chains of synonyms
(`retention.ms` <- `log.retention.ms` <- `log.retention.minutes` <- `log.retention.hours`) and what DescribeConfigs
shows. Facts about single configs are `config_facts.py`'s, notations `config_sources.py`'s. Must not know sockets or
topics' logs. Sources: ConfigDef's rules, KIP-226 (dynamic broker configs), KIP-569 (types in DescribeConfigs).

The entries of a synonym list stand in the order in which they win, the one in force first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from .config_facts import ConfigError, ConfigType, Fact, facts, format_value, nearest, parse_value
from .config_sources import from_environment, read_properties_file
from .releases import Profile, own_profile

__all__ = [
    "ACTED_ON",
    "Config",
    "ConfigEntry",
    "ConfigError",
    "ConfigSource",
    "ConfigType",
    "Synonym",
    "TopicConfig",
    "validate_topic_configs",
]

# The configs that Ottla acts on. Every other known one is taken, shown and checked; set explicitly, it is logged once
# as accepted but not acted on. `README.md` lists both kinds; `tests/broker/test_readme.py` holds this list to what the
# modules read.
ACTED_ON = frozenset(
    """
    advertised.listeners auto.create.topics.enable broker.id cleanup.policy compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level controller.listener.names delete.topic.enable
    fetch.max.bytes group.initial.rebalance.delay.ms group.max.session.timeout.ms group.max.size
    group.min.session.timeout.ms
    index.interval.bytes listener.security.protocol.map listeners log.cleanup.policy log.dir log.dirs
    log.index.interval.bytes log.index.size.max.bytes log.message.timestamp.after.max.ms
    log.message.timestamp.before.max.ms log.message.timestamp.type log.roll.hours log.roll.jitter.hours
    log.roll.jitter.ms log.roll.ms log.segment.bytes max.incremental.fetch.session.cache.slots max.message.bytes
    max.request.partition.size.limit message.max.bytes message.timestamp.after.max.ms
    message.timestamp.before.max.ms message.timestamp.type node.id num.partitions offset.metadata.max.bytes
    offsets.retention.check.interval.ms offsets.retention.minutes offsets.topic.num.partitions
    offsets.topic.segment.bytes ottla.validate.records segment.bytes segment.index.bytes segment.jitter.ms segment.ms
    socket.request.max.bytes transaction.state.log.num.partitions transaction.state.log.segment.bytes
    """.split()
)

# Names kept for what is not built yet: taking them silently would promise something.
RESERVED = ("ottla.behaviour.",)

# The units of the older names, in milliseconds.
_IN_MS = {
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
    "log.roll.hours": 3_600_000,
    "log.roll.jitter.hours": 3_600_000,
}

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.(.+)")


class ConfigSource(IntEnum):
    """Where a value came from, as DescribeConfigs codes it."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place that gives a value, in the order in which they win."""

    name: str
    value: str | None  # None for a secret
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """What DescribeConfigs answers for one config."""

    name: str
    value: str | None  # None for a secret or no value
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    synonyms: tuple[Synonym, ...]


def _broker_fact(name: str) -> Fact | None:
    """The fact for a broker config, `listener.name.<listener>.[<mechanism>.]` prefixes taken off."""
    known = facts("broker")
    if fact := known.get(name):
        return fact
    if match := _LISTENER_PREFIX.fullmatch(name):
        return known.get(match[1]) or known.get(match[1].partition(".")[2])
    return None


def _unknown(name: str, where: str) -> str:
    if name.startswith(RESERVED):
        return f"{name} {where} is reserved: it cannot be set yet"
    topic = facts("topic").get(name)
    if topic and topic.synonyms:
        return f"{name} {where} is a topic config; the broker's name for it is {topic.synonyms[0]}"
    close = nearest(name, facts("broker"))
    return f"unknown config {name} {where}" + (f"; did you mean {close}?" if close else "")


class Config:
    """The broker's configuration: `config["num.partitions"]` is the typed value in force.

    `warnings` holds one line for each unknown name in a file or the environment, for the log. `revision` grows whenever
    a dynamic value changes, so that what was derived from this object knows when to derive it again.
    """

    def __init__(
        self, static: Mapping[str, str] | None = None, warnings: Sequence[str] = (), *, profile: Profile | None = None
    ) -> None:
        """A configuration from texts by name, as `load` collects them; `profile` is Ottla's own unless given.

        Raises ConfigError.
        """
        self.profile: Profile = profile or own_profile()
        self._static: dict[str, str] = {}
        self._dynamic: dict[ConfigSource, dict[str, str]] = {
            ConfigSource.DYNAMIC_BROKER: {},
            ConfigSource.DYNAMIC_DEFAULT_BROKER: {},
        }
        self._values: dict[str, Any] = {}
        self.warnings: tuple[str, ...] = tuple(warnings)
        self.revision = 0
        for name, text in (static or {}).items():
            fact = _broker_fact(name)
            if fact is None:
                raise ConfigError(_unknown(name, "in the configuration"))
            parse_value(fact, text, name)
            if name == "broker.id" and text.strip() == "-1":
                continue  # Kafka's "choose one for me", which is what its absence says
            self._static[name] = text
        self._check_together()

    @classmethod
    def load(
        cls,
        overrides: Mapping[str, str] | None = None,
        flags: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> Config:
        """Collects the sources, strongest first: `--override`, flags, `KAFKA_*` variables, properties file, defaults.

        Raises ConfigError with one line for the user: an unknown name among the overrides, a file that cannot be read,
        a malformed value of a known name in any source, also in one that a stronger source hides.
        """
        static: dict[str, str] = {}
        warnings: list[str] = []
        layers: list[tuple[str, dict[str, tuple[str, str]]]] = []
        if file is not None:
            layers.append(("file", {name: (text, f"in {file}") for name, text in read_properties_file(file).items()}))
        variables = from_environment(environ or {}, facts("broker"))
        layers.append(("environment", {name: (text, f"(from {which})") for name, (text, which) in variables.items()}))
        layers.append(("flags", {name: (text, "from the flags") for name, text in (flags or {}).items()}))
        layers.append(("overrides", {name: (text, "in --override") for name, text in (overrides or {}).items()}))
        for kind, layer in layers:
            for name, (text, where) in layer.items():
                fact = _broker_fact(name)
                if fact is not None:
                    parse_value(fact, text, name)
                    static[name] = text
                elif kind in ("file", "environment"):
                    warnings.append(_unknown(name, where))
                else:
                    raise ConfigError(_unknown(name, where))
        return cls(static, warnings)

    def _check_together(self) -> None:
        """What Kafka checks between configs and what the range of a single one cannot say."""
        if self["log.retention.ms"] == 0:
            raise ConfigError("log.retention.ms must be unlimited (-1) or, equal or greater than 1")
        ids = [self._static[name].strip() for name in ("node.id", "broker.id") if name in self._static]
        if len({int(text) for text in ids}) > 1:
            raise ConfigError(f"node.id is {ids[0]} but broker.id is {ids[1]}: they name one thing")

    def __getitem__(self, name: str) -> Any:
        """The typed value in force: int, bool, float, str, list of str, None for no value. KeyError if unknown."""
        try:
            return self._values[name]
        except KeyError:
            fact = _broker_fact(name)
            if fact is None:
                raise
            value = self._values[name] = self.resolve(_chain(fact, name))
            return value

    def resolve(self, chain: Sequence[str]) -> Any:
        """The typed value of the first name in `chain` that is set, else the first default, hours turned into ms."""
        for name in chain:
            for layer in (*self._dynamic.values(), self._static):
                if name in layer:
                    return _converted(name, layer[name], chain)
        known = facts("broker")
        for name in chain:
            fact = known.get(name)
            if fact is not None and fact.default is not None:
                return _converted(name, fact.default, chain, trusted=True)
        # A prefixed name that is not set reads as the plain one.
        plain = _broker_fact(chain[0]) if chain[0] not in known else None
        return self[plain.name] if plain else None

    def is_set(self, name: str) -> bool:
        """Whether any source other than the defaults gives the config, under this name or a synonym."""
        return self.source(name) is not ConfigSource.DEFAULT

    def source(self, name: str) -> ConfigSource:
        """Which kind of source the value in force came from. KeyError if unknown."""
        fact = _broker_fact(name)
        if fact is None:
            raise KeyError(name)
        found = self.synonyms(_chain(fact, name))
        return found[0].source if found else ConfigSource.DEFAULT

    def synonyms(self, chain: Sequence[str]) -> list[Synonym]:
        """Every place that gives a value for the names of `chain`, the one in force first."""
        found: list[Synonym] = []
        for source, layer in (*self._dynamic.items(), (ConfigSource.STATIC_BROKER, self._static)):
            found.extend(_synonym(name, layer[name], source) for name in chain if name in layer)
        for name in chain:
            fact = facts("broker").get(name)
            if fact is not None and fact.default is not None:
                found.append(_synonym(name, fact.default, ConfigSource.DEFAULT))
        return found

    def names(self) -> list[str]:
        """The names DescribeConfigs lists when asked for all: the newest release's, and older ones that are set."""
        listed = [
            name
            for name, fact in facts("broker").items()
            if (fact.last is None and not fact.internal) or name in self._static
        ]
        return listed + sorted(name for name in self._static if name not in facts("broker"))

    def describe(self, name: str) -> ConfigEntry:
        """What DescribeConfigs shows of a broker config. KeyError if unknown."""
        fact = _broker_fact(name)
        if fact is None:
            raise KeyError(name)
        synonyms = self.synonyms(_chain(fact, name))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        return _entry(fact, name, self[name], source, synonyms)

    def set_dynamic(
        self, name: str, text: str | None, source: ConfigSource = ConfigSource.DYNAMIC_BROKER, *, dry_run: bool = False
    ) -> None:
        """Sets a dynamic value, or removes it when `text` is None; `dry_run` only checks.

        `source` is DYNAMIC_BROKER (this broker) or DYNAMIC_DEFAULT_BROKER (all brokers). Raises ConfigError for a name
        that is unknown or read only, a value that is malformed, a config of one broker set for all.
        """
        fact = _broker_fact(name)
        if fact is None:
            raise ConfigError(_unknown(name, "in the request"))
        if fact.read_only:
            raise ConfigError(f"Cannot update these configs dynamically: Set({name})")
        if source is ConfigSource.DYNAMIC_DEFAULT_BROKER and fact.dynamic == "per-broker":
            raise ConfigError(f"Cannot update these configs at default cluster level: Set({name})")
        layer = self._dynamic[source]
        if text is not None:
            value = parse_value(fact, text, name)
            if name == "log.retention.ms" and value == 0:
                raise ConfigError("log.retention.ms must be unlimited (-1) or, equal or greater than 1")
        if dry_run:
            return
        if text is None:
            layer.pop(name, None)
        else:
            layer[name] = text
        self._values.clear()
        self.revision += 1

    def dynamic(self, source: ConfigSource) -> dict[str, str]:
        """A copy of the dynamic texts set at one level, for AlterConfigs, which replaces them all."""
        return dict(self._dynamic[source])

    def not_acted_on(self) -> list[str]:
        """The explicitly set names that are accepted but change nothing here, for one line in the log."""
        names = {name for layer in (*self._dynamic.values(), self._static) for name in layer}
        return sorted(name for name in names if name not in ACTED_ON)


class TopicConfig:
    """One topic's configuration: its own overrides, else the broker's value for the synonym, else the default.

    `config["retention.ms"]` is the typed value in force and follows dynamic changes of the broker's configuration.
    """

    def __init__(self, broker_config: Config, overrides: Mapping[str, str] | None = None) -> None:
        """Raises ConfigError when an override is unknown or malformed, as `validate_topic_configs` does."""
        self._broker = broker_config
        self._overrides = dict(overrides or {})
        validate_topic_configs(self._overrides)
        self._values: dict[str, Any] = {}
        self._revision = broker_config.revision

    @property
    def overrides(self) -> dict[str, str]:
        """The texts set on the topic itself; a copy."""
        return dict(self._overrides)

    def __getitem__(self, name: str) -> Any:
        """The typed value in force. KeyError if there is no such topic config."""
        if self._revision != self._broker.revision:
            self._values.clear()
            self._revision = self._broker.revision
        try:
            return self._values[name]
        except KeyError:
            value = self._values[name] = self._value(facts("topic")[name])
            return value

    def _value(self, fact: Fact) -> Any:
        if fact.name in self._overrides:
            return parse_value(fact, self._overrides[fact.name])
        if fact.synonyms:
            return self._broker.resolve(fact.synonyms)
        return None if fact.default is None else parse_value(fact, fact.default)

    def names(self) -> list[str]:
        """The names DescribeConfigs lists when asked for all: the newest release's, and older ones that are set."""
        return [
            name
            for name, fact in facts("topic").items()
            if (fact.last is None and not fact.internal) or name in self._overrides
        ]

    def describe(self, name: str) -> ConfigEntry:
        """What DescribeConfigs shows of a topic config. KeyError if unknown."""
        fact = facts("topic")[name]
        synonyms = self._broker.synonyms(fact.synonyms)
        if name in self._overrides:
            synonyms.insert(0, _synonym(name, self._overrides[name], ConfigSource.DYNAMIC_TOPIC))
        elif not fact.synonyms and fact.default is not None:
            synonyms.append(_synonym(name, fact.default, ConfigSource.DEFAULT))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        return _entry(fact, name, self[name], source, synonyms)


def validate_topic_configs(configs: Mapping[str, str | None]) -> None:
    """Checks the configs of CreateTopics and AlterConfigs. Raises ConfigError, whose text goes with INVALID_CONFIG."""
    known = facts("topic")
    values: dict[str, Any] = {}
    for name, text in configs.items():
        if (fact := known.get(name)) is None:
            raise ConfigError(f"Unknown topic config name: {name}")
        if text is None:
            raise ConfigError(f"Null value not supported for topic configs: {name}")
        values[name] = parse_value(fact, text)
    low, high = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms", 2**63 - 1)
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )


def _chain(fact: Fact, name: str) -> tuple[str, ...]:
    """The names to look up for `name`: the first of a chain falls back on the others, which stand for themselves."""
    return fact.synonyms if fact.synonyms and fact.synonyms[0] == name else (name,)


def _converted(name: str, text: str, chain: Sequence[str], *, trusted: bool = False) -> Any:
    """The value of `text` in the unit of the first name. A default is trusted: Kafka has some that break its rules."""
    fact = _broker_fact(name)
    assert fact is not None, name
    value = parse_value(fact._replace(valid=None, flags="") if trusted else fact, text, name)
    return value * _IN_MS[name] if name in _IN_MS and name != chain[0] and value != -1 else value


def _synonym(name: str, text: str, source: ConfigSource) -> Synonym:
    fact = facts("topic")[name] if source is ConfigSource.DYNAMIC_TOPIC else _broker_fact(name) or facts("topic")[name]
    value = None if fact.sensitive else format_value(fact, parse_value(fact._replace(valid=None, flags=""), text))
    return Synonym(name, value, source)


def _entry(fact: Fact, name: str, value: Any, source: ConfigSource, synonyms: Sequence[Synonym]) -> ConfigEntry:
    shown = None if fact.sensitive else format_value(fact, value)
    return ConfigEntry(name, shown, source, fact.read_only, fact.sensitive, fact.type_code, tuple(synonyms))

"""The broker's configuration and each topic's: typed values by Kafka's names, and the source of each value.

Owns precedence (`--override`, flags, `KAFKA_*` variables, server.properties, defaults), Kafka's chains of synonyms
(`retention.ms` <- `log.retention.ms` <- `log.retention.minutes` <- `log.retention.hours`), and the entries of
DescribeConfigs. `definitions.py` has the definitions by release, `message_format.py` interprets message format configs,
`sources.py` parses files and variables. Uses neither sockets nor logs of topics. Sources: Kafka's ConfigDef, KIP-226
(dynamic broker configs), KIP-569 (types in DescribeConfigs).

Synonym lists are in order of precedence, the effective entry first.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...protocol.config_codes import ConfigSource, ConfigType
from ...protocol.frozen import frozen
from ...protocol.limits import INT64_MAX
from ..errors import ConfigError
from ..logs import get_logger
from ..releases.profiles import BEHAVIOUR_NAMES, Profile, own_profile
from .definitions import (
    BEHAVIOUR_PREFIX,
    ONLY_IF_SET,
    OWN_SYNONYMS,
    Fact,
    broker_fact,
    facts,
    format_value,
    parse_value,
    read_value,
    unknown_config,
)
from .docs import DOCS
from .group_limits import KINDS, check_group_limits
from .host_limits import NAME as OVERRIDES
from .host_limits import PER_IP, check_limits
from .java_classes import ASSIGNORS, assignor_name, authorizer_settings, selects_by_rack
from .message_format import check_formats, effective_profile
from .node_configs import NodeConfig, check_differs, of_node
from .sources import from_environment, read_properties_file

# The configs that Ottla acts on: those with a text of their own in `docs.py`. All others are accepted, validated and
# described; setting one explicitly is logged once, as accepted but not acted on. `docs/reference/configs.md` lists both
# kinds; `tests/docs/test_pages.py` compares this list with the configs that modules read.
ACTED_ON = frozenset(DOCS).union(BEHAVIOUR_PREFIX + name for name in BEHAVIOUR_NAMES)

# Configs that a listener can override with its prefix; for all others it has the broker's value.
OF_A_LISTENER = frozenset(name for name in ACTED_ON if name.startswith(("sasl.", "ssl."))).union(
    ("max.connections", "max.connection.creation.rate", "connections.max.reauth.ms")
)

IN_SYNC = "min.insync.replicas"

EVERY_DIRECTORY = "*"
"""The value of `cordoned.log.dirs` for all directories."""

# Units of the older configs, in milliseconds.
_IN_MS = {
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
    "log.roll.hours": 3_600_000,
    "log.roll.jitter.hours": 3_600_000,
}


@frozen
class Synonym:
    """A value of a config from one source; lists are in order of precedence."""

    name: str
    value: str | None  # None for a secret
    source: ConfigSource


@frozen
class ConfigEntry:
    """A config in the response to DescribeConfigs."""

    name: str
    value: str | None  # None for a secret or no value
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    synonyms: tuple[Synonym, ...]


class Config:
    """The broker's configuration: `config["num.partitions"]` is the effective value, with its type.

    `warnings` has a line for each unknown config in a file or the environment, for the log. `revision` increases with
    every change of a dynamic value; caches derived from this object compare it.

    A config `node.<id>.<name>` is the value of `<name>` for one node, whatever the source of the value for all nodes;
    `of(node_id)` is the configuration of a node. Dynamic values are those of all nodes, except replication throttles.
    """

    def __init__(
        self, static: Mapping[str, str] | None = None, warnings: Sequence[str] = (), *, profile: Profile | None = None
    ) -> None:
        """Creates a configuration from texts by name, as collected by `load`; the default `profile` is Ottla's own.

        Raises ConfigError.
        """
        # First the original profile, which defines the existing configs; below, the profile changed by the configs.
        self.profile: Profile = profile or own_profile()
        self._static: dict[str, str] = {}
        self._dynamic: dict[ConfigSource, dict[str, str]] = {
            ConfigSource.DYNAMIC_BROKER: {},
            ConfigSource.DYNAMIC_DEFAULT_BROKER: {},
        }
        """By level, in order of precedence. May include configs that the release does not have, as in Kafka."""
        self._dynamic_of_nodes: dict[int, dict[str, str]] = {}  # configs of ONLY_IF_SET, at the level DYNAMIC_BROKER
        self._values: dict[str, Any] = {}
        self._resolved: dict[tuple[str, ...], Any] = {}
        self._logged_inert: set[str] = set()
        self.warnings: tuple[str, ...] = tuple(warnings)
        self.revision = 0
        self._nodes: dict[int, Config] = {}
        self.of_nodes: dict[int, dict[str, str]] = {}
        """The texts that are set for single nodes, by node id."""
        for name, text in (static or {}).items():
            named = of_node(name)
            own_name = named.name if named else name
            fact = self.fact(own_name)
            if fact is None:
                raise ConfigError(unknown_config(own_name, _where(named, "in the configuration"), self.profile))
            parse_value(fact, text, name)
            if named:
                check_differs(name, fact.name, ACTED_ON)
                self.of_nodes.setdefault(named.node_id, {})[named.name] = text
            elif name == "broker.id" and text.strip() == "-1":
                continue  # in Kafka -1 means to generate an id, like the absence of the config
            else:
                self._static[name] = text
        self._check_together()
        self.warnings += tuple(check_formats(self))
        self.profile = effective_profile(self)
        self.eligible_leaders = self.profile.behaviour.eligible_leaders
        """Whether partitions have eligible leader replicas (KIP-966); set by the owner of the features."""
        self.forget_dynamic()
        self.revision = 0
        self._nodes = {node_id: self._with(texts) for node_id, texts in self.of_nodes.items()}

    def _with(self, texts: Mapping[str, str]) -> Config:
        """Returns this configuration with other static values. The dynamic values change with this one."""
        made = copy.copy(self)
        made._static = {**self._static, **texts}
        made._values, made._resolved, made._nodes = {}, {}, {}
        made._check_together()
        return made

    def of(self, node_id: int) -> Config:
        """Returns the configuration of a node."""
        return self._nodes.get(node_id, self)

    @classmethod
    def load(
        cls,
        overrides: Mapping[str, str] | None = None,
        flags: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        file: Path | None = None,
        profile: Profile | None = None,
    ) -> Config:
        """Collects the sources, by precedence: `--override`, flags, `KAFKA_*` variables, properties file, defaults.

        The default `profile` is Ottla's own. Raises ConfigError, with one line for the user, for an unknown config in
        an override, an unreadable file, or a malformed value of a known config in any source, even one that is
        overridden.
        """
        profile = profile or own_profile()
        static: dict[str, str] = {}
        warnings: list[str] = []
        of_file = {} if file is None else read_properties_file(file)
        variables = from_environment(environ or {}, facts("broker", profile.name))
        for name, text, where, may_be_unknown in (
            *((name, text, f"in {file}", True) for name, text in of_file.items()),
            *((name, text, f"(from {which})", True) for name, (text, which) in variables.items()),
            *((name, text, "from the flags", False) for name, text in (flags or {}).items()),
            *((name, text, "in --override", False) for name, text in (overrides or {}).items()),
        ):
            named = of_node(name)
            own_name = named.name if named else name
            fact = broker_fact(own_name, profile)
            if fact is not None:
                parse_value(fact, text, name)
                static[name] = text
                continue
            problem = unknown_config(own_name, _where(named, where), profile)
            if not may_be_unknown:
                raise ConfigError(problem)
            warnings.append(problem)
        return cls(static, warnings, profile=profile)

    def facts(self, scope: str) -> Mapping[str, Fact]:
        """Returns the definitions of a scope's configs in this release, by name."""
        return facts(scope, self.profile.name)

    def fact(self, name: str) -> Fact | None:
        """Returns the definition of a broker config, without a `listener.name.<listener>.[<mechanism>.]` prefix."""
        return broker_fact(name, self.profile)

    def _check_together(self) -> None:
        """Runs Kafka's checks that involve several configs."""
        if self["log.retention.ms"] == 0:
            raise ConfigError("log.retention.ms must be unlimited (-1) or, equal or greater than 1")
        check_codec(self["compression.type"], self.profile)
        check_cordoned(self, self.get("cordoned.log.dirs") or [])
        check_limits(self[PER_IP], self[OVERRIDES])
        delay, idle = "connection.failed.authentication.delay.ms", "connections.max.idle.ms"
        if 0 <= self[idle] <= self.get(delay, -1):
            raise ConfigError(
                f"requirement failed: {delay}={self[delay]} should always be less than {idle}={self[idle]} to prevent "
                "failed authentication responses from timing out"
            )
        ids = [self._static[name].strip() for name in ("node.id", "broker.id") if name in self._static]
        if len({int(text) for text in ids}) > 1:
            raise ConfigError(f"node.id is {ids[0]} but broker.id is {ids[1]}: both are the id of this broker")
        authorizer_settings(self)
        selects_by_rack(self)
        for text in self.get(ASSIGNORS) or ():
            assignor_name(text)
        # Without one the settings of groups are the defaults, which are in order in every release.
        if any(self.names_set(f"group.{kind}.") for kind in KINDS):
            check_group_limits(self.get)

    def __getitem__(self, name: str) -> Any:
        """Returns the effective value: int, bool, float, str, list of str, or None for no value. Raises KeyError."""
        try:
            return self._values[name]
        except KeyError:
            fact = self.fact(name)
            if fact is None:
                raise
            value = self._values[name] = self.resolve(_chain(fact, name))
            return value

    def resolve(self, chain: tuple[str, ...]) -> Any:
        """Returns the value of the first config in `chain` that is set, else the first default; hours become ms."""
        try:
            return self._resolved[chain]  # cached: every topic resolves the same chains
        except KeyError:
            value = self._resolved[chain] = self._resolve(chain, (*self._dynamic.values(), self._static))
            return value

    def without(self, name: str, source: ConfigSource) -> Any:
        """Returns the value that would be effective if the level DYNAMIC_BROKER or DYNAMIC_DEFAULT_BROKER did not set
        it. Raises KeyError if unknown.
        """
        fact = self.fact(name)
        if fact is None:
            raise KeyError(name)
        layers = [layer for level, layer in self._dynamic.items() if level is not source]
        return self._resolve(_chain(fact, name), (*layers, self._static))

    def _resolve(self, chain: tuple[str, ...], layers: Sequence[Mapping[str, str]]) -> Any:
        for name in chain:
            for layer in layers:
                if name in layer:
                    fact = self.fact(name)
                    assert fact is not None, name
                    return _in_unit(parse_value(fact, layer[name], name), name, chain[0])
        known = self.facts("broker")
        for name in chain:
            fact = known.get(name)
            if fact is not None and fact.default is not None:
                default = _default(fact, chain[0])
                return default.copy() if default.__class__ is list else default
        # A prefixed config that is not set has the value of the unprefixed one.
        plain = self.fact(chain[0]) if chain[0] not in known else None
        return self[plain.name] if plain else None

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the effective value, or `default` if the release does not have the config."""
        return default if self.fact(name) is None else self[name]

    def lowest(self, name: str) -> Any:
        """Returns the lowest of the values for all nodes and for single ones."""
        return min([self[name], *(node[name] for node in self._nodes.values())])

    def is_set(self, name: str) -> bool:
        """Returns whether any source except the defaults sets the config, under this name or a synonym; False for one
        that the release does not have."""
        fact = self.fact(name)
        layers = (*self._dynamic.values(), self._static)
        return fact is not None and any(
            key in layer and self.fact(key) for key in _chain(fact, name) for layer in layers
        )

    def names_set(self, prefix: str) -> set[str]:
        """Returns the names that begin with `prefix` of the configs that any source except the defaults sets."""
        return {name for layer in (*self._dynamic.values(), self._static) for name in layer if name.startswith(prefix)}

    def reported_synonyms(self, name: str) -> list[Synonym]:
        """Returns the synonyms of `name` for DescribeConfigs, in order of precedence.

        As in Kafka this starts with the config itself, and includes only Kafka's own synonyms.
        """
        fact = self.fact(name)
        chain: Sequence[str] = (name,)
        if fact is not None and fact.name != name:
            chain = (name, fact.name)  # with and without the listener prefix
        elif fact is not None and name not in OWN_SYNONYMS and name in fact.synonyms:
            chain = fact.synonyms
        found: list[Synonym] = []
        for source, layer in (*self._dynamic.items(), (ConfigSource.STATIC_BROKER, self._static)):
            found += [self._synonym(key, layer[key], source) for key in chain if key in layer]
        known = self.facts("broker")
        for key in chain:
            default = known[key].default if key in known and key not in ONLY_IF_SET else None
            if default is not None:
                found.append(self._synonym(key, default, ConfigSource.DEFAULT))
        return list(itertools.dropwhile(lambda synonym: synonym.name != name, found))

    def _synonym(self, name: str, text: str, source: ConfigSource) -> Synonym:
        fact = self.fact(name)
        return Synonym(name, None if fact is None or fact.sensitive else text, source)

    def names(self) -> list[str]:
        """Returns the configs that DescribeConfigs lists by default: those of the release, and internal or unknown ones
        that are set. Levels of features are not listed: in Kafka they are given when a directory is formatted.
        """
        known = self.facts("broker")
        layers = (*self._dynamic.values(), self._static)
        listed = [name for name, fact in known.items() if not fact.internal or any(name in layer for layer in layers)]
        listed = [name for name in listed if name != "ottla.features"]
        return listed + sorted({name for layer in layers for name in layer if name not in known})

    def describe(self, name: str) -> ConfigEntry:
        """Returns the DescribeConfigs entry of a broker config, with the value under exactly this name, which a synonym
        may override.

        Values of unknown configs are hidden. Raises KeyError for an unknown config that is not set.
        """
        fact = self.fact(name)
        synonyms = self.reported_synonyms(name)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        if fact is None:
            if not synonyms:
                raise KeyError(name)
            return ConfigEntry(name, None, source, True, True, ConfigType.UNKNOWN, tuple(synonyms))
        text = self._stored_text(name, fact)
        value = None if text is None or fact.sensitive else format_value(fact, read_value(fact, text))
        read_only = fact.read_only or fact.name != name
        return ConfigEntry(name, value, source, read_only, fact.sensitive, fact.type_code, tuple(synonyms))

    def _stored_text(self, name: str, fact: Fact) -> str | None:
        """Returns a config's text as Kafka stores it: a level that sets a synonym hides the values of weaker levels."""
        for layer in (*self._dynamic.values(), self._static):
            if name in layer:
                return layer[name]
            if layer is not self._static and any(other in layer for other in fact.synonyms):
                return fact.default
        return fact.default

    def described_for_all(self) -> list[ConfigEntry]:
        """Returns the entries of configs that are set for all brokers, even if this broker overrides them."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        entries: list[ConfigEntry] = []
        for name, text in self._dynamic[source].items():
            entry = self.describe(name)
            synonyms = tuple(synonym for synonym in entry.synonyms if synonym.source is source)
            entries.append(
                dataclasses.replace(entry, value=None if entry.sensitive else text, source=source, synonyms=synonyms)
            )
        return entries

    def set_dynamic(
        self,
        name: str,
        text: str | None,
        source: ConfigSource = ConfigSource.DYNAMIC_BROKER,
        node_id: int | None = None,
    ) -> None:
        """Sets a dynamic value, or removes it if `text` is None, at the level DYNAMIC_BROKER (this broker) or
        DYNAMIC_DEFAULT_BROKER (all brokers). With `node_id` a config of ONLY_IF_SET is one of that node.

        The caller checks the change with `dynamic.py`. Raises ConfigError for a value of the wrong type.
        """
        layer = self._dynamic[source]
        if source is ConfigSource.DYNAMIC_BROKER and name in ONLY_IF_SET and node_id is not None:
            layer = self._dynamic_of_nodes.setdefault(node_id, {})
            if node_id not in self._nodes:
                self._nodes[node_id] = self._with({})
        fact = self.fact(name)
        if text is not None and fact is not None:
            parse_value(fact, text, name)
        if text is None:
            layer.pop(name, None)
            self._dynamic[source] |= self._always_dynamic().get(source, {})
        else:
            layer[name] = text
        self._changed()

    def _always_dynamic(self) -> dict[ConfigSource, dict[str, str]]:
        """Returns the configs of a new cluster: with eligible leader replicas (KIP-966), min.insync.replicas."""
        if not self.eligible_leaders:
            return {}
        return {ConfigSource.DYNAMIC_DEFAULT_BROKER: {IN_SYNC: self.in_sync_of_all}}

    @property
    def in_sync_of_all(self) -> str:
        """The text of min.insync.replicas for all brokers: the dynamic one, or that of the file, or the default."""
        stored = self._dynamic[ConfigSource.DYNAMIC_DEFAULT_BROKER].get(IN_SYNC)
        return stored or self._static.get(IN_SYNC) or self.facts("broker")[IN_SYNC].default or "1"

    def _changed(self) -> None:
        self._values.clear()
        self._resolved.clear()
        self.revision += 1
        level = ConfigSource.DYNAMIC_BROKER
        for node_id, node in self._nodes.items():
            own = self._dynamic_of_nodes.get(node_id, {})
            node._dynamic = {**self._dynamic, level: self._dynamic[level] | own} if own else self._dynamic
            node._changed()

    def forget_dynamic(self) -> None:
        """Removes all dynamic values, like a broker that restarts and reads them from the metadata."""
        self._dynamic_of_nodes.clear()
        for source, layer in self._dynamic.items():
            layer.clear()
            layer.update(self._always_dynamic().get(source, {}))
        self._changed()

    def dynamic(self, source: ConfigSource) -> dict[str, str]:
        """Returns a copy of the dynamic texts of one level, for AlterConfigs, which replaces them all."""
        return dict(self._dynamic[source])

    def log_inert(self, names: Iterable[str]) -> None:
        """Logs the configs among `names` that have no effect in Ottla, each once."""
        inert = sorted({name for name in names if not self._is_acted_on(name)} - self._logged_inert)
        if inert:
            self._logged_inert.update(inert)
            get_logger().info("configs accepted but not acted on", names=inert)

    def not_acted_on(self) -> list[str]:
        """Returns the explicitly set configs that have no effect in Ottla, for the log."""
        names = {name for layer in (*self._dynamic.values(), self._static) for name in layer}
        names |= {f"node.{node_id}.{name}" for node_id, texts in self.of_nodes.items() for name in texts}
        return sorted(name for name in names if not self._is_acted_on(name))

    def _is_acted_on(self, name: str) -> bool:
        name = named.name if (named := of_node(name)) else name
        if name in ACTED_ON:
            return True
        fact = self.fact(name)
        return fact is not None and fact.name != name and fact.name in OF_A_LISTENER


class TopicConfig:
    """A topic's configuration: its own value, or the broker's value of the synonym, or the default.

    `config["retention.ms"]` is the effective value and follows dynamic changes of the broker's configuration.
    """

    def __init__(self, broker_config: Config, overrides: Mapping[str, str] | None = None) -> None:
        """Raises ConfigError for an unknown or malformed override, like `validate_topic_configs`."""
        self.broker = broker_config
        """The broker's configuration."""
        self._overrides = dict(overrides or {})
        self._facts = broker_config.facts("topic")
        validate_topic_configs(self._overrides, self._facts)
        self._values: dict[str, Any] = {}
        self._revision = broker_config.revision

    def check_tiered(self) -> None:
        """Raises ConfigError if the topic enables tiered storage and the broker does not support it (KIP-405)."""
        if self.get("remote.storage.enable") and not self.broker.get("remote.log.storage.system.enable"):
            raise ConfigError(
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )

    @property
    def overrides(self) -> dict[str, str]:
        """A copy of the texts set on the topic itself."""
        return dict(self._overrides)

    def __getitem__(self, name: str) -> Any:
        """Returns the effective value. Raises KeyError for an unknown topic config."""
        if self._revision != self.broker.revision:
            self._values.clear()
            self._revision = self.broker.revision
        try:
            return self._values[name]
        except KeyError:
            value = self._values[name] = self._value(self._facts[name])
            return value

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the effective value, or `default` if the release does not have the config."""
        return self[name] if name in self._facts else default

    def _value(self, fact: Fact) -> Any:
        if fact.name in self._overrides:
            return parse_value(fact, self._overrides[fact.name])
        if fact.synonyms:
            return self.broker.resolve(fact.synonyms)
        return None if fact.default is None else parse_value(fact, fact.default)

    def names(self) -> list[str]:
        """Returns the configs that DescribeConfigs lists by default: the release's, and internal ones that are set."""
        return [name for name, fact in self._facts.items() if not fact.internal or name in self._overrides]

    def describe(self, name: str) -> ConfigEntry:
        """Returns the DescribeConfigs entry of a topic config. Raises KeyError if unknown."""
        fact = self._facts[name]
        value = format_value(fact, self[name])
        synonyms = self.broker.reported_synonyms(fact.synonyms[0]) if fact.synonyms else []
        if name in self._overrides:
            synonyms.insert(0, Synonym(name, value, ConfigSource.DYNAMIC_TOPIC))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        return ConfigEntry(name, value, source, fact.read_only, fact.sensitive, fact.type_code, tuple(synonyms))


def without_nulls(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the configs if all have a value. Raises ConfigError."""
    if nulls := [name for name, text in configs.items() if text is None]:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(nulls)}")
    return {name: text for name, text in configs.items() if text is not None}


def validate_topic_configs(configs: Mapping[str, str], known: Mapping[str, Fact] | None = None) -> None:
    """Validates the configs of CreateTopics and AlterConfigs; `known` are the release's definitions.

    Raises ConfigError, whose message is the text of INVALID_CONFIG.
    """
    known = facts("topic") if known is None else known
    values: dict[str, Any] = {}
    for name, text in configs.items():
        if (fact := known.get(name)) is None:
            raise ConfigError(f"Unknown topic config name: {name}")
        values[name] = parse_value(fact, text)
    low, high = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms", INT64_MAX)
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )


def _where(named: NodeConfig | None, where: str) -> str:
    """Returns where a config is set, for a message."""
    return where if named is None else f"for node {named.node_id} {where}"


@functools.cache
def _default(fact: Fact, first: str) -> Any:
    """Returns the default of a config in the unit of `first`, not validated: some violate Kafka's own rules."""
    assert fact.default is not None
    return _in_unit(read_value(fact, fact.default), fact.name, first)


def _in_unit(value: Any, name: str, first: str) -> Any:
    """Converts a value of the config `name` to the unit of the config `first`."""
    return value * _IN_MS[name] if name in _IN_MS and name != first and value != -1 else value


def _chain(fact: Fact, name: str) -> tuple[str, ...]:
    """Returns the names to look up for `name`: the first of a chain falls back to the others, which have none."""
    return fact.synonyms if fact.synonyms and fact.synonyms[0] == name else (name,)


def check_codec(name: str, release_profile: Profile) -> None:
    """Raises ConfigError if the release does not have this compression.type of a broker: its type allows any text."""
    if name not in release_profile.codecs:
        raise ConfigError(
            f"requirement failed: compression.type : {name} is not valid. "
            f"Valid options are {','.join(release_profile.codecs)}"
        )


def check_cordoned(config: Config, cordoned: Sequence[str]) -> None:
    """Checks that `cordoned.log.dirs` has only this broker's directories, or `*` alone (KIP-1066). Raises
    ConfigError.
    """
    if EVERY_DIRECTORY in cordoned:
        if any(path != EVERY_DIRECTORY for path in cordoned):
            problem = "When cordoned.log.dirs is set to *, it must not contain other values"
            raise ConfigError(f"requirement failed: {problem}")
        return
    known: list[str] = config["log.dirs"] or config["log.dir"] or []
    if missing := [path for path in dict.fromkeys(cordoned) if path not in known]:
        problem = "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries :"
        raise ConfigError(f"requirement failed: {problem} {', '.join(missing)}")

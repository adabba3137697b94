"""Definitions of configs (type, default, valid values, dynamic or not), and the parsing of their values.

Owns the table of definitions (`configs.json`, made by `tests/broker/releases/add_release.py` from Apache Kafka's own
definitions in some releases), the selection for a profile, and the rules of Kafka's `ConfigDef` for parsing values.
Independent of the source of a value: `values.py` handles files, environment and precedence.

A profile whose release is not among these uses the nearest later one, with the corrections in
`broker/releases/profiles.py`. Ottla's own profile has every config of 3.9 and later, as the newest release with that
config defines it.

The table is read on first use, once per process; a definition's valid values are parsed on first use.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

from ...protocol.config_codes import ConfigType
from ...protocol.named import NamedTuple
from ...protocol.names import did_you_mean
from ..errors import ConfigError
from ..releases.profiles import (
    BEHAVIOUR_NAMES,
    OWN,
    OWN_CONFIG_TABLES_FROM,
    STRICT_LISTS_FROM,
    Profile,
    behaviour_kinds,
    profile,
    protocol_place,
)

T = TypeVar("T")
INT_BOUNDS = {"SHORT": 1 << 15, "INT": 1 << 31, "LONG": 1 << 63}
# Longer texts are not valid for any config; they are refused before anything is split or converted.
MAX_VALUE_CHARS = 1 << 20


class Fact(NamedTuple):
    """The definition of a config in a profile."""

    name: str
    scope: str  # broker, topic, group or client-metrics
    type: str
    default: str | None
    valid: str | None  # in the notation of Kafka's documentation, parsed by `check_of`
    synonyms: tuple[str, ...]  # broker configs to look up, in order of precedence
    # s: sensitive, r: read only, i: internal, n: a list that must not be empty, e: a list without empty elements, in
    # which duplicates are removed (KIP-1161)
    flags: str
    dynamic: str | None  # None, "cluster" or "per-broker"
    shown: str | None = None  # the type in DescribeConfigs, if the release has another one

    @property
    def sensitive(self) -> bool:
        return "s" in self.flags

    @property
    def read_only(self) -> bool:
        return "r" in self.flags

    @property
    def internal(self) -> bool:
        return "i" in self.flags

    @property
    def type_code(self) -> ConfigType:
        return ConfigType[self.shown or self.type]


UNCHECKED = (None, "non-null string", "non-empty list")  # notations without a check of a value or an element
THROTTLED = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
CACHED_BATCHES_MAX = 1000  # per producer; each takes some 100 bytes

# Ottla's own configs, which no Kafka release has. A new one also needs its text in `docs.py` and, if partition logs
# depend on it, a field in `log_config.py`; `tests/broker/config/test_in_force.py` lists it. The last one is from
# KIP-724, which no release implemented.
OWN_FACTS = (
    Fact("producer.duplicate.scan.bytes", "broker", "LONG", "16777216", "[0,...,1073741824]", (), "r", None),
    Fact("ottla.validate.records", "broker", "BOOLEAN", "true", None, (), "r", None),
    Fact("ottla.client.telemetry", "broker", "BOOLEAN", "false", None, (), "r", None),
    Fact("ottla.features", "broker", "LIST", None, None, (), "r", None),
    Fact("log.record.version.force.upgrade", "broker", "STRING", None, "nothing or 2", (), "r", None),
)
# Configs of the authorizer: Kafka passes them on uninterpreted, so it describes them only if set, and without a value.
AUTHORIZER_FACTS = (
    Fact("super.users", "broker", "STRING", None, None, (), "sri", None, "UNKNOWN"),
    Fact("allow.everyone.if.no.acl.found", "broker", "BOOLEAN", "false", None, (), "sri", None, "UNKNOWN"),
)
BEHAVIOUR_PREFIX = "ottla.behaviour."

# Kafka defines these apart from its other broker configs, and describes them only if set.
ONLY_IF_SET = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}

# Kafka has no default node id, and three replicas for internal topics; Ottla is one node. Kafka listens on all
# interfaces, which is unsafe for a broker without authentication.
OWN_DEFAULTS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

# Configs that Kafka resolves in code rather than with its table of synonyms.
OWN_SYNONYMS = {"node.id": ("node.id", "broker.id"), "log.dirs": ("log.dirs", "log.dir")}


@functools.cache
def _table() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("configs.json").read_bytes())


class Facts(Mapping[str, Fact]):
    """The configs of a scope in a profile, by name, each defined when it is first looked up: a start needs a fifth."""

    def __init__(self, scope: str, played: Profile) -> None:
        self._rows = _rows(scope)
        self._profile = played
        # A broker with the profile of a Kafka release describes configs that this release lacks only if they are set.
        flag = "" if played.is_own else "i"
        own = [fact._replace(flags=fact.flags + flag) for fact in OWN_FACTS]
        self._own = {fact.name: fact for fact in (*own, *AUTHORIZER_FACTS) if fact.scope == scope}
        self._behaviours = BEHAVIOUR_NAMES if scope == "broker" else ()
        self._found: dict[str, Fact | None] = {}

    def __getitem__(self, name: str) -> Fact:
        if (fact := self.get(name)) is None:
            raise KeyError(name)
        return fact

    @overload
    def get(self, key: str, /) -> Fact | None: ...
    @overload
    def get(self, key: str, default: Fact | T, /) -> Fact | T: ...
    def get(self, key: str, default: Any = None, /) -> Any:
        """Returns a config, or `default`: as that of `Mapping` without its exception for those that are lacking."""
        if key not in self._found:
            self._found[key] = self._define(key)
        return self._found[key] or default

    def _define(self, name: str) -> Fact | None:
        if name.startswith(BEHAVIOUR_PREFIX):
            behaviour = name.removeprefix(BEHAVIOUR_PREFIX)
            return _behaviour_fact(behaviour, self._profile) if behaviour in self._behaviours else None
        row = self._rows.get(name)
        return self._own.get(name) if row is None else _fact(row, self._profile)

    def __iter__(self) -> Iterator[str]:
        behaviours = (f"{BEHAVIOUR_PREFIX}{name}" for name in self._behaviours)
        return (name for name in (*self._rows, *self._own, *behaviours) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@functools.cache
def facts(scope: str, release: str = OWN) -> Facts:
    """Returns all configs of a scope (broker, topic, group, client-metrics) in a profile, by name."""
    return Facts(scope, profile(release))


@functools.cache
def _rows(scope: str) -> dict[str, list[Any]]:
    return {row[0]: row for row in _table()["rows"] if row[1] == scope}


@functools.cache
def harmless(scope: str) -> frozenset[str]:
    """Returns the configs of a scope that no release treats as sensitive: their values may be shown."""
    rows = [(name, flags) for name, kind, *_, flags, _, _, _ in _table()["rows"] if kind == scope]
    own = facts(scope)
    rows += [(name, own[name].flags) for name in own if name not in _rows(scope)]
    return frozenset(name for name, flags in rows if "s" not in flags)


def _fact(row: list[Any], release_profile: Profile) -> Fact | None:
    """Returns the definition in a row of the table for a profile, or None if the profile lacks the config."""
    name, scope, kind, default, valid, synonyms, flags, dynamic, places, moved = row
    tables: list[str] = _table()["tables"]
    if release_profile.config_table is None:
        place = max(map(int, places))
        if place < tables.index(OWN_CONFIG_TABLES_FROM):
            return None
    else:
        place = tables.index(release_profile.config_table)
        if str(place) not in places or release_profile.lacks_config(name):
            return None
    there = moved.get(str(place), {})
    dynamic = there.get("dynamic", dynamic)
    if "dynamic" in there:
        flags = flags.replace("r", "") + ("r" if dynamic is None else "")
    if "internal" in there:
        flags = flags.replace("i", "") + ("i" if there["internal"] else "")
    if scope == "broker" and name in ONLY_IF_SET:
        flags += "i"
    valid = there.get("valid", valid)
    if name == "compression.type" and valid is not None:
        valid = f"[{', '.join(release_profile.codecs)}]"
    if valid == "releases":
        valid = f"releases to {release_profile.protocol_version}"
    if kind == "LIST" and valid not in ("non-empty list", THROTTLED) and place >= tables.index(STRICT_LISTS_FROM):
        flags += "e"
    default = release_profile.config_default(name) or there.get("default", default)
    synonyms = tuple(there.get("synonyms", synonyms))
    if scope == "broker":
        default = OWN_DEFAULTS.get(name, default)
        synonyms = OWN_SYNONYMS.get(name, synonyms)
    # Values are always parsed as the newest type, which the broker's modules expect.
    return Fact(name, scope, kind, default, valid, synonyms, flags, dynamic, there.get("type"))


def _behaviour_fact(name: str, release_profile: Profile) -> Fact:
    """Returns a behaviour as a config, which is described only if set."""
    default = str(getattr(release_profile.behaviour, name)).lower()
    kind = behaviour_kinds()[name]
    if isinstance(kind, tuple):
        type_name, valid = "STRING", f"[{', '.join(map(str, kind))}]"
    else:
        type_name, valid = ("BOOLEAN", None) if kind is bool else ("INT", f"[1,...,{CACHED_BATCHES_MAX}]")
    return Fact(f"{BEHAVIOUR_PREFIX}{name}", "broker", type_name, default, valid, (), "ri", None)


_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.(.+)")


def broker_fact(name: str, release_profile: Profile) -> Fact | None:
    """Returns the definition of a broker config, without a `listener.name.<listener>.[<mechanism>.]` prefix."""
    known = facts("broker", release_profile.name)
    if fact := known.get(name):
        return fact
    if match := _LISTENER_PREFIX.fullmatch(name):
        return known.get(match[1]) or known.get(match[1].partition(".")[2])
    return None


def unknown_config(name: str, where: str, release_profile: Profile) -> str:
    """Returns the error message for a broker config that the profile does not have."""
    topic = facts("topic", release_profile.name).get(name)
    if topic and topic.synonyms:
        return f"{name} {where} is a topic config; the broker's name for it is {topic.synonyms[0]}"
    if name in facts("broker") and not release_profile.is_own:
        return f"unknown config {name} {where}: Kafka {release_profile.name} does not have it"
    kind, known = "config", list(facts("broker", release_profile.name))
    if name.startswith(BEHAVIOUR_PREFIX):
        kind, known = "behaviour", [known_name for known_name in known if known_name.startswith(BEHAVIOUR_PREFIX)]
    return f"unknown {kind} {name} {where}{did_you_mean(name, known)}"


def invalid(fact: Fact, name: str, text: str, reason: str) -> ConfigError:
    """Returns Kafka's error for an invalid value; hides a sensitive value."""
    shown = "[hidden]" if fact.sensitive else text if len(text) <= 200 else text[:200] + "..."
    return ConfigError(f"Invalid value {shown} for configuration {name}: {reason}")


def parse_value(fact: Fact, text: str, name: str | None = None) -> Any:
    """Converts `text` to the config's type: int, bool, float, str or list of str.

    `name` is the name in the user's source if it differs (`listener.name.x.` prefixes). Raises ConfigError if the text
    is not of the type or not valid.
    """
    name = name or fact.name
    if len(text) > MAX_VALUE_CHARS:
        raise invalid(fact, name, text, "Value is too long")
    value = _convert(fact, name, text)
    if fact.type != "LIST":
        if reason := check_of(fact.valid)(value):
            raise invalid(fact, name, format_value(fact, value) or "", reason.replace(_NAME, name))
        return value
    if not value:
        if fact.valid == "non-empty list" or "n" in fact.flags:
            raise invalid(fact, name, text, "List must not be empty")
        return value
    if "" in value and ("e" in fact.flags or fact.valid == "non-empty list"):
        raise ConfigError(f"Configuration '{name}' values must not be empty.")
    value = _once(fact, value)
    if fact.valid == THROTTLED and "".join(value) == "*":
        return value
    check = check_of(fact.valid)
    for element in value:
        if reason := check(element):
            shown = f"[{', '.join(value)}]" if _NAME in reason else element
            raise invalid(fact, name, shown, reason.replace(_NAME, name))
    return value


def read_value(fact: Fact, text: str) -> Any:
    """Converts a text that was validated before, or a default: some defaults violate Kafka's own rules."""
    value = _convert(fact, fact.name, text)
    return _once(fact, value) if fact.type == "LIST" else value


def _once(fact: Fact, value: list[str]) -> list[str]:
    return list(dict.fromkeys(value)) if "e" in fact.flags or fact.valid in UNCHECKED else value


def _convert(fact: Fact, name: str, text: str) -> Any:
    trimmed = text.strip()
    if (bound := INT_BOUNDS.get(fact.type)) is not None:
        # Java's parser accepts ASCII digits and one sign; Python's also accepts underscores and other scripts.
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", trimmed) or not -bound <= int(trimmed) < bound:
            raise invalid(fact, name, text, f"Not a number of type {fact.type}")
        return int(trimmed)
    if fact.type == "BOOLEAN":
        if trimmed.lower() not in ("true", "false"):
            raise invalid(fact, name, text, "Expected value to be either true or false")
        return trimmed.lower() == "true"
    if fact.type == "DOUBLE":
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", trimmed):
            raise invalid(fact, name, text, "Not a number of type DOUBLE")
        return float(trimmed)
    if fact.type == "LIST":
        return [part.strip() for part in trimmed.split(",")] if trimmed else []
    return trimmed


def format_value(fact: Fact, value: Any) -> str | None:
    """Formats a value like DescribeConfigs: Kafka's spelling of booleans and lists, None for no value."""
    if value is None:
        return None
    if fact.type == "BOOLEAN":
        return "true" if value else "false"
    if fact.type == "DOUBLE":
        from ...protocol.text import java_double  # takes 5 ms to import, and hardly any value needs it

        return java_double(value)
    return ",".join(value) if fact.type == "LIST" else str(value)


Check = Callable[[Any], str | None]  # returns the error for a typed value, or None

_DURATION = re.compile(
    r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,9})?S)?)?", re.IGNORECASE
)
_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")
_RANGE = re.compile(r"\[(-?[0-9.]+),\.\.\.(?:,(-?[0-9.]+))?\]( or -1)?")


_NAME = "{name}"  # placeholder for the config name in a reason


@functools.cache
def check_of(valid: str | None) -> Check:
    """Returns the check of a definition (for a list, of an element), parsed once from its `valid` notation. Raises
    ValueError for an unknown notation: a new one in the table must not be treated as "no check".
    """
    if valid in UNCHECKED:
        return lambda value: None
    assert valid is not None
    if valid == "non-empty string":
        return lambda value: None if value else "String must be non-empty"
    if valid == "nothing or 2":
        return lambda value: None if value in ("", "2") else "Expected 2, or nothing"
    if valid.startswith("releases to "):
        return functools.partial(_release, valid.removeprefix("releases to "))
    if match := _RANGE.fullmatch(valid):
        return _range(match)
    if valid == THROTTLED:
        form = f"{_NAME} must be the literal '*' or a list of replicas in the following format: {THROTTLED}"
        return lambda value: None if _THROTTLED.fullmatch(value) else form
    if match := re.fullmatch(r"(\(case insensitive\) )?\[([^\[\]]+)\]", valid):
        return _choice(match[2].split(", "), ignore_case=match[1] is not None)
    raise ValueError(f"unknown notation of valid values: {valid}")


def _range(match: re.Match[str]) -> Check:
    low = float(match[1]) if "." in match[1] else int(match[1])
    high = None if match[2] is None else float(match[2]) if "." in match[2] else int(match[2])
    or_minus_one = match[3] is not None

    def check(value: int | float) -> str | None:
        if or_minus_one:
            is_valid = value == -1 or low <= value <= (high or 0)
            return None if is_valid else f"Value must be between {low} and {high} or equal to -1"
        if value < low:
            return f"Value must be at least {low}"
        return f"Value must be no more than {high}" if high is not None and value > high else None

    return check


def _choice(choices: list[str], *, ignore_case: bool) -> Check:
    durations = any(choice.startswith("by_duration") for choice in choices)
    accepted = {choice.lower() if ignore_case else choice for choice in choices}

    def check(value: str) -> str | None:
        if (value.lower() if ignore_case else value) in accepted or (durations and _DURATION.fullmatch(value)):
            return None
        if durations:
            return (
                f"Invalid value `{value}` for configuration {_NAME}. The value must be either 'earliest', 'latest' or "
                "of the format 'by_duration:<PnDTnHnMn.nS>'."
            )
        words = "String must be one of (case insensitive)" if ignore_case else "String must be one of"
        return f"{words}: {', '.join(choices)}"

    return check


def _release(newest: str, value: str) -> str | None:
    """Returns an error for a version name that is unknown or newer than `newest`."""
    try:
        known = protocol_place(value) <= protocol_place(newest)
    except ValueError:
        known = False
    return None if known else f"Version {value} is not a valid version"

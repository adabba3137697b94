"""How Kafka's releases differ, as data: the one module that compares releases. Everything else asks by name.

Owns the profiles (`--release 0.8.2` to `4.3`, and Ottla's own): which versions of which API each one advertises and
serves, and its `Behaviour`, whose switches and moves are declared in `behaviour.py`. Owns also the order of
`inter.broker.protocol.version` and `message.format.version`, and which row of the table of configs a release reads,
with what that table does not know. Must not know sockets, configuration or logs: it is read before any of them exists.

A profile stands for the last patch of its release. Where patches of one release differ, the earlier behaviour has a
name of three parts: `1.0.1` (like 1.0.0), `2.0.0`, `4.0.0`.

`releases.json` holds the advertised versions, made by `tests/broker/releases/make_releases.py`. Sources of the
behaviours: the brokers' source of each release; KIP-98, 192, 360 (producers), KIP-467 (record errors), KIP-511 (unknown
versions), KIP-724 (formats), KIP-890 (transactions), KIP-896 (what 4.0 dropped), KIP-937 (timestamps), KAFKA-18659
(Produce's advertised minimum), KAFKA-19444 (JoinGroup in 4.0.0).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...protocol.api_key import ApiKey
from ...protocol.names import meant, near
from .behaviour import BEHAVIOUR_MOVES, BEHAVIOUR_NAMES, Behaviour, Moves

if TYPE_CHECKING:  # what these import costs more than the whole command line; only what is asked for is imported
    from ...protocol.schema import Versions

__all__ = ["BEHAVIOUR_NAMES", "Behaviour"]

OWN = "ottla"
RELEASES = tuple(
    """0.8.2 0.9 0.10.0 0.10.1 0.10.2 0.11 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8
    3.0 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.0.0 4.0 4.1 4.2 4.3""".split()
)
PROFILE_NAMES = (*RELEASES, OWN)
NEWEST = RELEASES[-1]

# Other ways to say the same: a first or only patch, and 0.10 for the last of its three.
_ALIASES = {"0.8": "0.8.2", "0.9.0": "0.9", "0.10": "0.10.2", "0.11.0": "0.11", "1.0.0": "1.0.1"}

# Every `inter.broker.protocol.version` that 3.9 takes, oldest first.
PROTOCOL_VERSIONS = tuple(
    """0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 0.11.0-IV0 0.11.0-IV1
    0.11.0-IV2 1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 2.2-IV0 2.2-IV1 2.3-IV0 2.3-IV1 2.4-IV0 2.4-IV1
    2.5-IV0 2.6-IV0 2.7-IV0 2.7-IV1 2.7-IV2 2.8-IV0 2.8-IV1 3.0-IV0 3.0-IV1 3.1-IV0 3.2-IV0 3.3-IV0 3.3-IV1 3.3-IV2
    3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0
    3.9-IV0""".split()
)
FIRST_V2_ONLY = "3.0-IV1"  # KIP-724: from here on everything is written as v2
FIRST_ZSTD = "2.1-IV0"  # KIP-110
_FORMATS_FROM = ("0.10.0-IV0", "0.11.0-IV0")  # the first versions of formats v1 and v2: KIP-32, KIP-98
_VERSION_CONFIGS = ("inter.broker.protocol.version", "log.message.format.version", "message.format.version")
_FORMAT_DEFAULT = "3.0-IV1"  # of the format's version, since it is ignored

# Which release of the table of configs stands for which.
_CONFIG_TABLES: Moves = (
    ("0.8.2", "2.8.2"),
    ("3.0", "3.0.2"),
    ("3.1", "3.9.1"),
    ("4.0.0", "4.0.0"),
    ("4.1", "4.1.1"),
    ("4.2", "4.3.1"),
)
# The own profile has every config of this table and later ones.
OWN_CONFIG_TABLES_FROM = "3.9.1"
# Configs that a release before the one in the table did not have, as far as they act here.
_CONFIGS_SINCE = {
    "authorizer.class.name": "0.9",
    "inter.broker.protocol.version": "0.9",
    "quota.producer.default": "0.9",  # KIP-13, with the next three
    "quota.consumer.default": "0.9",
    "quota.window.num": "0.9",
    "quota.window.size.seconds": "0.9",
    "broker.rack": "0.10.0",  # KIP-36
    "max.connections": "2.3",  # KIP-402
    "max.connection.creation.rate": "2.7",  # KIP-612
    "controller.quota.window.num": "2.7",  # KIP-599, with the next
    "controller.quota.window.size.seconds": "2.7",
    "message.format.version": "0.10.0",  # KIP-31, KIP-32, with the next two
    "message.timestamp.type": "0.10.0",
    "message.timestamp.difference.max.ms": "0.10.0",
    "message.downconversion.enable": "2.0.0",  # KIP-283
    "message.timestamp.before.max.ms": "3.6",  # KIP-937
    "message.timestamp.after.max.ms": "3.6",
    "producer.id.expiration.ms": "3.4",  # KIP-854
    "compression.gzip.level": "3.8",  # KIP-390
    "compression.lz4.level": "3.8",
    "compression.zstd.level": "3.8",
}
_CONFIGS_SINCE.update({f"log.{name}": since for name, since in _CONFIGS_SINCE.items() if name.startswith("message.")})
# Defaults that moved before 2.8, the oldest in the table.
_CONFIG_DEFAULTS: dict[str, Moves] = {
    "max.message.bytes": (("0.8.2", "1000012"), ("2.5", None)),
    "message.max.bytes": (("0.8.2", "1000012"), ("2.5", None)),
    "offsets.retention.minutes": (("0.8.2", "1440"), ("2.0.0", None)),  # KIP-186
}

# What `compression.type` may be, in the order in which a broker lists it; zstd is KIP-110's.
_CODECS: Moves = (
    ("0.8.2", ("uncompressed", "snappy", "lz4", "gzip", "producer")),
    ("2.1", ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
)

# The classes that `authorizer.class.name` may name, and in which releases there are those.
_AUTHORIZERS: dict[str, Moves] = {
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer": (("3.2", True),),
    "kafka.security.authorizer.AclAuthorizer": (("2.4", True), ("4.0.0", False)),
    "kafka.security.auth.SimpleAclAuthorizer": (("0.9", True), ("3.0", False)),
}

# Only brokers and controllers call these. GetTelemetrySubscriptions and PushTelemetry (71, 72) are advertised by a
# broker with a receiver for telemetry; here that is one with `ottla.client.telemetry`.
INTER_BROKER_KEYS = frozenset({*range(4, 8), *range(52, 55), 56, 58, 59, 62, 63, 67, 70, 73, *range(82, 88)})
TELEMETRY_KEYS = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
_END_TXN_OWN_EPOCH = 5  # KIP-890
# Produce is advertised from 0 everywhere: librdkafka before 2.12 sends uncompressed otherwise.
_PRODUCE_SERVED_FROM: Moves = (("0.8.2", 0), ("4.0.0", 3))
# The table's 4.0 is 4.0.0, the only release that took JoinGroup v0 and v1 away.
_JOIN_GROUP_FROM: Moves = (("0.8.2", 0), ("4.0.0", 2), ("4.0", 0))


class UnknownRelease(ValueError):
    """No release of that name. The text is for the user and names the nearest."""


def at(moves: Moves, release: str) -> Any:
    """What holds in a release, of `moves` that begin at the oldest or later; None before the first."""
    here = RELEASES.index(release)
    found = None
    for first, value in moves:
        if RELEASES.index(first) <= here:
            found = value
    return found


@dataclass(frozen=True)
class Profile:
    """One release as the broker plays it, or Ottla's own ways."""

    name: str
    behaviour: Behaviour

    @property
    def is_own(self) -> bool:
        """Whether this is Ottla's own profile."""
        return self.name == OWN

    @functools.cached_property
    def apis(self) -> dict[int, Versions]:
        """API key -> the versions that ApiVersions of this release lists, in order, where Ottla has the API or not.

        Left out are the APIs between brokers and those of telemetry.
        """
        if self.is_own:
            return self._ended({key: versions for key, versions in _declared().items() if key not in TELEMETRY_KEYS})
        left_out = INTER_BROKER_KEYS | TELEMETRY_KEYS
        return self._ended({key: versions for key, versions in self.apis_of_kafka.items() if key not in left_out})

    @property
    def telemetry_apis(self) -> dict[int, Versions]:
        """API key -> the versions in which this release takes clients' metrics, where that is switched on."""
        known = _declared() if self.is_own else self.apis_of_kafka
        return {key: versions for key, versions in known.items() if key in TELEMETRY_KEYS}

    @functools.cached_property
    def apis_of_kafka(self) -> dict[int, Versions]:
        """API key -> the versions that brokers of this release of Kafka advertise, those for other brokers as well."""
        from ...protocol.schema import Versions

        # The table is one of minor releases; 4.0.0 and 4.0 share a row, and what differs between patches is below.
        rows = _table()["releases"]
        row = rows[next(name for name in (self.name, self.name.rpartition(".")[0]) if name in rows)]
        found = {int(key): Versions(*ends) for key, ends in row.items()}
        if ApiKey.JOIN_GROUP in found:
            found[ApiKey.JOIN_GROUP] = found[ApiKey.JOIN_GROUP]._replace(first=at(_JOIN_GROUP_FROM, self.name))
        return found

    def _ended(self, apis: dict[int, Versions]) -> dict[int, Versions]:
        """Without the version of EndTxn that ends transactions of their own epochs, where there are none."""
        if ApiKey.END_TXN in apis and self.behaviour.transaction_version < 2:
            last = min(apis[ApiKey.END_TXN].last, _END_TXN_OWN_EPOCH - 1)
            apis[ApiKey.END_TXN] = apis[ApiKey.END_TXN]._replace(last=last)
        return apis

    @functools.cached_property
    def served(self) -> dict[int, Versions]:
        """API key -> the versions that this release answers; a request in another closes its connection."""
        found = dict(self.apis)
        if not self.is_own:
            found[ApiKey.PRODUCE] = found[ApiKey.PRODUCE]._replace(first=at(_PRODUCE_SERVED_FROM, self.name))
        return found

    @property
    def config_table(self) -> str | None:
        """The release in the table of configs that stands for this one; None for the own profile, which has them all.

        Where the table lacks a release, it is the nearest later one.
        """
        return None if self.is_own else at(_CONFIG_TABLES, self.name)

    def lacks_config(self, name: str) -> bool:
        """Whether a config of that table is younger than this release."""
        since = _CONFIGS_SINCE.get(name)
        return since is not None and not self.is_own and RELEASES.index(self.name) < RELEASES.index(since)

    @property
    def codecs(self) -> tuple[str, ...]:
        """What `compression.type` may be."""
        return at(_CODECS, NEWEST if self.is_own else self.name)

    def config_default(self, name: str) -> str | None:
        """The default of a config where the table does not know it; None where it does."""
        if name in _VERSION_CONFIGS:
            newest = self.protocol_version
            is_format = name != _VERSION_CONFIGS[0]
            return _FORMAT_DEFAULT if newest and is_format and writes_v2_only(newest) else newest
        return None if self.is_own else at(_CONFIG_DEFAULTS.get(name, ()), self.name)

    @property
    def authorizers(self) -> tuple[str, ...]:
        """The names of the authorizers that this release brings along, the newest first; all for the own profile."""
        return tuple(name for name, moves in _AUTHORIZERS.items() if self.is_own or at(moves, self.name))

    @property
    def protocol_version(self) -> str | None:
        """The newest `inter.broker.protocol.version` that this release takes, its default; None where there is none."""
        if self.is_own:
            return "3.9-IV0"
        parts = self.name.split(".")
        short = ".".join(parts[: 3 if self.name.startswith("0.") else 2])
        found = [name for name in PROTOCOL_VERSIONS if name.startswith(short)]
        return found[-1] if found and not self.lacks_config(_VERSION_CONFIGS[0]) else None

    def overridden(self, values: Mapping[str, Any]) -> Profile:
        """This profile with single behaviours changed. The values are of their types."""
        return dataclasses.replace(self, behaviour=dataclasses.replace(self.behaviour, **values))


def profile(name: str) -> Profile:
    """The profile of that name. Raises UnknownRelease."""
    return _profile(_ALIASES.get(name, name))


@functools.cache
def _profile(name: str) -> Profile:
    if name == OWN:
        return Profile(OWN, Behaviour())
    if name not in RELEASES:
        raise UnknownRelease(f"unknown release {name}{meant(nearest_releases(name))}")
    return Profile(name, Behaviour(**{field: at(moves, name) for field, moves in BEHAVIOUR_MOVES.items()}))


def own_profile() -> Profile:
    """Ottla's own profile."""
    return profile(OWN)


def nearest_releases(name: str) -> list[str]:
    """The releases that a wrong name lies between, or those that look like it."""
    number = _number(name)
    if number is None:
        return near(name, PROFILE_NAMES, 3, 0.5) or [RELEASES[0], NEWEST, OWN]
    minors = [release for release in RELEASES if release.rpartition(".")[0] not in RELEASES]
    below = [release for release in minors if (_number(release) or ()) <= number]
    above = [release for release in minors if (_number(release) or ()) > number]
    return below[-1:] + above[:1]


def _number(name: str) -> tuple[int, ...] | None:
    parts = name.split(".")
    are_numbers = all(part.isascii() and part.isdigit() and len(part) < 5 for part in parts)
    return tuple(map(int, parts)) if are_numbers else None


@functools.cache
def behaviour_kinds() -> dict[str, type | tuple[Any, ...]]:
    """Behaviour -> its type: bool, int or a tuple of the values that it may have."""
    hints = typing.get_type_hints(Behaviour)
    return {name: typing.get_args(kind) or kind for name, kind in hints.items()}


def writes_v2_only(version: str) -> bool:
    """Whether KIP-724's rules of 3.0 hold under this `inter.broker.protocol.version`. Raises ValueError."""
    return protocol_place(version) >= protocol_place(FIRST_V2_ONLY)


def knows_zstd(version: str) -> bool:
    """Whether zstd may be written under this `inter.broker.protocol.version`. Raises ValueError."""
    return protocol_place(version) >= protocol_place(FIRST_ZSTD)


def record_format(version: str) -> int:
    """The message format (magic) of a value of `message.format.version` or `inter.broker.protocol.version`.

    Raises ValueError for a version that does not exist.
    """
    place = protocol_place(version)
    return sum(place >= protocol_place(first) for first in _FORMATS_FROM)


def protocol_place(version: str) -> int:
    """Where a version stands among all of them, oldest first. Raises ValueError for one that does not exist.

    As Kafka reads them: "2.8-IV1" as listed, and "2.8" or "2.8.1" for the last of 2.8. Below 1.0 three parts count.
    """
    if version in PROTOCOL_VERSIONS:
        return PROTOCOL_VERSIONS.index(version)
    short = ".".join(version.split(".")[: 3 if version.startswith("0.") else 2])
    places = [n for n, name in enumerate(PROTOCOL_VERSIONS) if name == short or name.startswith(short + "-")]
    if not places or "-" in version:
        raise ValueError(f"Version {version} is not a valid version")
    return places[-1]


def api_names() -> dict[int, str]:
    """API key -> name, of every API that any release has."""
    return {int(key): name for key, name in _table()["names"].items()}


def advertised_by_releases(api_key: int) -> list[tuple[str, Versions | None]]:
    """What brokers of Kafka itself advertise of an API: (the first release that does, versions), oldest first; None
    where it was taken away."""
    runs: list[tuple[str, Versions | None]] = []
    for name in RELEASES:
        versions = profile(name).apis_of_kafka.get(api_key)
        if (runs[-1][1] if runs else None) != versions:
            runs.append((name, versions))
    return runs


@functools.cache
def _table() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("releases.json").read_bytes())


@functools.cache
def _declared() -> dict[int, Versions]:
    """Every version of every API that is declared."""
    import importlib
    import pkgutil

    from ...protocol import messages
    from ...protocol.schema import spec

    found: dict[int, Versions] = {}
    for module in pkgutil.walk_packages(messages.__path__, f"{messages.__name__}."):
        declared = importlib.import_module(module.name)
        for name, value in vars(declared).items():
            if name.endswith("Request") and isinstance(value, type) and value.__module__ == declared.__name__:
                found[spec(value).api_key] = spec(value).versions
    return dict(sorted(found.items()))

"""Release profiles: the only module that compares releases. All other modules use a profile's attributes.

Owns the profiles (`--release 0.8.2` to `4.4`, and Ottla's own): the API versions that each one advertises and serves,
and its `Behaviour`, declared in `behaviour.py`. Also owns the order of `inter.broker.protocol.version` and
`message.format.version`, and the selection of a release's row in the table of configs, with corrections of that table.
Uses no sockets, configuration or logs: it is imported before any of them exists.

A profile represents the last patch of its release. If patches of a release differ, the earlier behaviour has a name
with three parts: `1.0.1` (like 1.0.0), `2.0.0`, `4.0.0`.

`releases.json` has the advertised versions, made by `tests/broker/releases/add_release.py`. Sources of the
behaviours: the brokers' source of each release; KIP-98, 192, 360 (producers), KIP-467 (record errors), KIP-511 (unknown
versions), KIP-724 (formats), KIP-890 (transactions), KIP-896 (removed in 4.0), KIP-937 (timestamps), KAFKA-18659
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
from ...protocol.frozen import declarations
from ...protocol.named import NamedTuple
from ...protocol.names import meant, near
from .behaviour import BEHAVIOUR_NAMES, Behaviour, Moves

if TYPE_CHECKING:  # these imports cost more than the whole command line
    from ...protocol.schema import Versions

__all__ = ["BEHAVIOUR_NAMES", "Behaviour"]

OWN = "ottla"
RELEASES = tuple(
    """0.8.2 0.9 0.10.0 0.10.1 0.10.2 0.11 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8
    3.0 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.0.0 4.0 4.1 4.2 4.3 4.4""".split()
)
PROFILE_NAMES = (*RELEASES, OWN)
NEWEST = RELEASES[-1]

# Other names of releases: a first or only patch, and 0.10 for the last of its three.
_ALIASES = {"0.8": "0.8.2", "0.9.0": "0.9", "0.10": "0.10.2", "0.11.0": "0.11", "1.0.0": "1.0.1"}

# All values of `inter.broker.protocol.version` that 3.9 accepts, oldest first.
PROTOCOL_VERSIONS = tuple(
    """0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 0.11.0-IV0 0.11.0-IV1
    0.11.0-IV2 1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 2.2-IV0 2.2-IV1 2.3-IV0 2.3-IV1 2.4-IV0 2.4-IV1
    2.5-IV0 2.6-IV0 2.7-IV0 2.7-IV1 2.7-IV2 2.8-IV0 2.8-IV1 3.0-IV0 3.0-IV1 3.1-IV0 3.2-IV0 3.3-IV0 3.3-IV1 3.3-IV2
    3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0
    3.9-IV0""".split()
)
FIRST_V2_ONLY = "3.0-IV1"  # KIP-724: from here on everything is written as v2
FIRST_ZSTD = "2.1-IV0"  # KIP-110
_FORMATS_FROM = ("0.10.0-IV0", "0.11.0-IV0")  # first versions with formats v1 and v2: KIP-32, KIP-98
_VERSION_CONFIGS = ("inter.broker.protocol.version", "log.message.format.version", "message.format.version")
_FORMAT_DEFAULT = "3.0-IV1"  # default of the message format version, which is ignored

# The release of the table of configs to use for each release.
_CONFIG_TABLES: Moves = (
    ("0.8.2", "2.8.2"),
    ("3.0", "3.0.2"),
    ("3.1", "3.9.1"),
    ("4.0.0", "4.0.0"),
    ("4.1", "4.1.1"),
    ("4.2", "4.3.1"),
    ("4.4", "4.4.0"),
)
# The oldest table whose configs Ottla's own profile has.
OWN_CONFIG_TABLES_FROM = "3.9.1"
# The first table whose lists have no empty elements and no duplicates (KIP-1161).
STRICT_LISTS_FROM = "4.3.1"
# The first release of each config that the table attributes to an earlier one; only configs that Ottla acts on.
_CONFIGS_SINCE = {
    "authorizer.class.name": "0.9",
    "inter.broker.protocol.version": "0.9",
    "quota.producer.default": "0.9",  # KIP-13, with the next three
    "quota.consumer.default": "0.9",
    "quota.window.num": "0.9",
    "quota.window.size.seconds": "0.9",
    "broker.rack": "0.10.0",  # KIP-36
    "max.connections": "2.3",  # KIP-402
    "sasl.enabled.mechanisms": "0.10.0",  # KIP-43
    "connection.failed.authentication.delay.ms": "2.1",  # KIP-306
    "connections.max.reauth.ms": "2.2",  # KIP-368
    "replica.selector.class": "2.4",  # KIP-392
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
# Defaults that changed before 2.8, the oldest release in the table.
_CONFIG_DEFAULTS: dict[str, Moves] = {
    "max.message.bytes": (("0.8.2", "1000012"), ("2.5", None)),
    "message.max.bytes": (("0.8.2", "1000012"), ("2.5", None)),
    "offsets.retention.minutes": (("0.8.2", "1440"), ("2.0.0", None)),  # KIP-186
}

# Values of `compression.type`, in a broker's order; zstd is from KIP-110.
_CODECS: Moves = (
    ("0.8.2", ("uncompressed", "snappy", "lz4", "gzip", "producer")),
    ("2.1", ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
)

# Class names for `authorizer.class.name`, and the releases that have them.
_AUTHORIZERS: dict[str, Moves] = {
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer": (("3.2", True),),
    "kafka.security.authorizer.AclAuthorizer": (("2.4", True), ("4.0.0", False)),
    "kafka.security.auth.SimpleAclAuthorizer": (("0.9", True), ("3.0", False)),
}

# Used between brokers and controllers only. GetTelemetrySubscriptions and PushTelemetry (71, 72) are advertised by a
# Kafka broker with a telemetry plugin; by Ottla with `ottla.client.telemetry`.
INTER_BROKER_KEYS = frozenset({*range(4, 8), *range(52, 55), 56, 58, 59, 62, 63, 67, 70, 73, 82})
TELEMETRY_KEYS = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
_END_TXN_OWN_EPOCH = 5  # KIP-890
# All releases advertise Produce from v0 on: otherwise librdkafka before 2.12 sends uncompressed batches.
_PRODUCE_SERVED_FROM: Moves = (("0.8.2", 0), ("4.0.0", 3))
# The table's 4.0 is 4.0.0, the only release without JoinGroup v0 and v1.
_JOIN_GROUP_FROM: Moves = (("0.8.2", 0), ("4.0.0", 2), ("4.0", 0))
# Versions above the table's, or of APIs that the table lacks, that a release has not declared stable; None where the
# table has them.
_UNSTABLE: dict[int, Moves] = {
    ApiKey.OFFSET_COMMIT: (("4.1", 10), ("4.2", None)),  # KIP-848, topic ids
    ApiKey.OFFSET_FETCH: (("4.1", 10), ("4.2", None)),
    ApiKey.INIT_PRODUCER_ID: (("4.1", 6),),  # KIP-939
    ApiKey.STREAMS_GROUP_HEARTBEAT: (("4.1", 0), ("4.2", None)),  # KIP-1071
    ApiKey.STREAMS_GROUP_DESCRIBE: (("4.1", 0), ("4.2", None)),
}

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
ELIGIBLE_LEADERS = "eligible.leader.replicas.version"


class FeatureLevels(NamedTuple):
    """Levels of a feature in a release: the supported range, the newest one including the unstable, and the one of a
    new cluster.
    """

    first: int
    last: int
    newest: int
    default: int


# From the enumerations of each release's kafka-server-common.
_FEATURES: dict[str, Moves] = {
    METADATA_VERSION: (
        ("3.3", FeatureLevels(1, 7, 7, 7)),
        ("3.4", FeatureLevels(1, 8, 8, 8)),
        ("3.5", FeatureLevels(1, 11, 11, 11)),
        ("3.6", FeatureLevels(1, 14, 14, 14)),
        ("3.7", FeatureLevels(1, 19, 20, 19)),
        ("3.8", FeatureLevels(1, 20, 21, 20)),
        ("3.9", FeatureLevels(1, 21, 23, 21)),
        ("4.0.0", FeatureLevels(7, 25, 26, 25)),
        ("4.1", FeatureLevels(7, 27, 29, 27)),
        ("4.2", FeatureLevels(7, 29, 30, 29)),
        ("4.3", FeatureLevels(7, 30, 31, 30)),
        ("4.4", FeatureLevels(7, 33, 34, 33)),
    ),
    KRAFT_VERSION: (("3.9", FeatureLevels(0, 1, 1, 0)),),
    TRANSACTION_VERSION: (("4.0.0", FeatureLevels(0, 2, 2, 2)),),
    GROUP_VERSION: (("4.0.0", FeatureLevels(0, 1, 1, 1)),),
    ELIGIBLE_LEADERS: (("4.0.0", FeatureLevels(0, 1, 1, 0)), ("4.1", FeatureLevels(0, 1, 1, 1))),
    SHARE_VERSION: (
        ("4.1", FeatureLevels(0, 1, 1, 0)),
        ("4.2", FeatureLevels(0, 1, 1, 1)),
        ("4.4", FeatureLevels(0, 2, 2, 2)),
    ),
    STREAMS_VERSION: (("4.1", FeatureLevels(0, 0, 1, 0)), ("4.2", FeatureLevels(0, 1, 1, 1))),
}
# Ottla's own profile has only those that have an effect.
_OWN_FEATURES = (
    METADATA_VERSION,
    TRANSACTION_VERSION,
    GROUP_VERSION,
    ELIGIBLE_LEADERS,
    SHARE_VERSION,
    STREAMS_VERSION,
)


class UnknownRelease(ValueError):
    """No release has this name. The message is for the user and suggests the nearest ones."""


def at(moves: Moves, release: str) -> Any:
    """Returns the value for a release from `moves`, pairs of (first release, value), oldest first; None before the
    first.
    """
    here = RELEASES.index(release)
    found = None
    for first, value in moves:
        if RELEASES.index(first) <= here:
            found = value
    return found


class Apis(NamedTuple):
    """The APIs of a broker by key: the versions that ApiVersions lists, and those that are served.

    `readers` is for the router: by (key, version), the code for such a request.
    """

    advertised: dict[int, Versions]
    served: dict[int, Versions]
    readers: dict[tuple[int, int], Any]


@dataclass(frozen=True)
class Profile:
    """A Kafka release for the broker to imitate, or Ottla's own profile."""

    name: str
    behaviour: Behaviour

    @property
    def is_own(self) -> bool:
        return self.name == OWN

    @functools.cached_property
    def apis(self) -> dict[int, Versions]:
        """Versions by API key that ApiVersions lists in this release, in order, including APIs that Ottla does not
        implement.

        Excludes APIs between brokers, and those of telemetry.
        """
        if self.is_own:
            return self._ended({key: versions for key, versions in self._stable().items() if key not in TELEMETRY_KEYS})
        left_out = INTER_BROKER_KEYS | TELEMETRY_KEYS
        return self._ended({key: versions for key, versions in self.apis_of_kafka.items() if key not in left_out})

    @functools.cached_property
    def unstable(self) -> dict[int, int]:
        """The unstable version by API key, of the APIs whose newest version is not stable in this release; it is served
        and listed with `unstable.api.versions.enable` only.
        """
        found = {key: at(moves, NEWEST if self.is_own else self.name) for key, moves in _UNSTABLE.items()}
        return {key: version for key, version in found.items() if version is not None}

    @functools.cached_property
    def features(self) -> dict[str, FeatureLevels]:
        """The features of this release by name (KIP-584), including those that only have unstable levels."""
        name = NEWEST if self.is_own else self.name
        found = {feature: at(moves, name) for feature, moves in _FEATURES.items()}
        kept = _OWN_FEATURES if self.is_own else found
        return {feature: found[feature] for feature in kept if found[feature] is not None}

    def feature_ranges(self, *, unstable: bool) -> dict[str, tuple[int, int]]:
        """Returns the first and last supported level of each feature, with `unstable` including unstable levels."""
        found = {name: (one.first, one.newest if unstable else one.last) for name, one in self.features.items()}
        return {name: levels for name, levels in found.items() if levels[1] > 0}

    def _stable(self) -> dict[int, Versions]:
        """Returns the declared versions of all APIs without the unstable ones."""
        return {
            key: versions._replace(last=min(versions.last, self.unstable.get(key, versions.last + 1) - 1))
            for key, versions in declared_versions().items()
        }

    @property
    def telemetry_apis(self) -> dict[int, Versions]:
        """Versions by API key of client telemetry, which are served if that is enabled."""
        known = declared_versions() if self.is_own else self.apis_of_kafka
        return {key: versions for key, versions in known.items() if key in TELEMETRY_KEYS}

    @functools.cached_property
    def apis_of_kafka(self) -> dict[int, Versions]:
        """Versions by API key that brokers of this Kafka release advertise, including APIs between brokers."""
        from ...protocol.schema import Versions

        # The table has minor releases; 4.0.0 and 4.0 share a row, and the code below has the differences between
        # patches.
        rows = _table()["releases"]
        row = rows[next(name for name in (self.name, self.name.rpartition(".")[0]) if name in rows)]
        found = {int(key): Versions(*ends) for key, ends in row.items()}
        if ApiKey.JOIN_GROUP in found:
            found[ApiKey.JOIN_GROUP] = found[ApiKey.JOIN_GROUP]._replace(first=at(_JOIN_GROUP_FROM, self.name))
        return found

    def _ended(self, apis: dict[int, Versions]) -> dict[int, Versions]:
        """Returns `apis` without the EndTxn version that needs an epoch per transaction, if the release lacks that."""
        if ApiKey.END_TXN in apis and self.behaviour.transaction_version < 2:
            last = min(apis[ApiKey.END_TXN].last, _END_TXN_OWN_EPOCH - 1)
            apis[ApiKey.END_TXN] = apis[ApiKey.END_TXN]._replace(last=last)
        return apis

    @functools.cached_property
    def served(self) -> dict[int, Versions]:
        """Versions by API key that this release serves; a request in another version closes its connection."""
        found = dict(self.apis)
        if not self.is_own:
            found[ApiKey.PRODUCE] = found[ApiKey.PRODUCE]._replace(first=at(_PRODUCE_SERVED_FROM, self.name))
        return found

    @property
    def config_table(self) -> str | None:
        """The release in the table of configs for this one: the nearest later one if the table lacks it. None for
        Ottla's own profile, which uses several.
        """
        return None if self.is_own else at(_CONFIG_TABLES, self.name)

    def lacks_config(self, name: str) -> bool:
        """Returns whether a config in that table is newer than this release."""
        since = _CONFIGS_SINCE.get(name)
        return since is not None and not self.is_own and RELEASES.index(self.name) < RELEASES.index(since)

    @property
    def codecs(self) -> tuple[str, ...]:
        """Values of `compression.type`."""
        return at(_CODECS, NEWEST if self.is_own else self.name)

    def config_default(self, name: str) -> str | None:
        """Returns the default of a config if it differs from the table, otherwise None."""
        if name in _VERSION_CONFIGS:
            newest = self.protocol_version
            is_format = name != _VERSION_CONFIGS[0]
            return _FORMAT_DEFAULT if newest and is_format and writes_v2_only(newest) else newest
        return None if self.is_own else at(_CONFIG_DEFAULTS.get(name, ()), self.name)

    @property
    def authorizers(self) -> tuple[str, ...]:
        """The class names of this release's authorizers, newest first; all of them for Ottla's own profile."""
        return tuple(name for name, moves in _AUTHORIZERS.items() if self.is_own or at(moves, self.name))

    @property
    def protocol_version(self) -> str | None:
        """The newest `inter.broker.protocol.version` of this release, which is its default; None if it has no such
        config.
        """
        if self.is_own:
            return "3.9-IV0"
        parts = self.name.split(".")
        short = ".".join(parts[: 3 if self.name.startswith("0.") else 2])
        found = [name for name in PROTOCOL_VERSIONS if name.startswith(short)]
        return found[-1] if found and not self.lacks_config(_VERSION_CONFIGS[0]) else None

    def overridden(self, values: Mapping[str, Any]) -> Profile:
        """Returns this profile with single behaviours changed; itself without any, with all that it has computed. The
        values must have the right types.
        """
        return _overridden(self, tuple(values.items())) if values else self


def profile(name: str) -> Profile:
    """Returns the profile of a release. Raises UnknownRelease."""
    return _profile(_ALIASES.get(name, name))


@functools.cache
def _profile(name: str) -> Profile:
    if name == OWN:
        return Profile(OWN, Behaviour())
    if name not in RELEASES:
        raise UnknownRelease(f"unknown release {name}{meant(nearest_releases(name))}")
    moves = {field: one.metadata["moves"] for field, one in declarations(Behaviour).items()}
    return Profile(name, Behaviour(**{field: at(of, name) for field, of in moves.items()}))


def own_profile() -> Profile:
    return profile(OWN)


def nearest_releases(name: str) -> list[str]:
    """Returns the releases around an unknown release number, or those with a similar name."""
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


@functools.lru_cache(maxsize=64)
def _overridden(played: Profile, values: tuple[tuple[str, Any], ...]) -> Profile:
    return dataclasses.replace(played, behaviour=dataclasses.replace(played.behaviour, **dict(values)))


@functools.cache
def behaviour_kinds() -> dict[str, type | tuple[Any, ...]]:
    """Returns the type of each behaviour: bool, int, or a tuple of the possible values."""
    hints = typing.get_type_hints(Behaviour)
    return {name: typing.get_args(kind) or kind for name, kind in hints.items()}


def writes_v2_only(version: str) -> bool:
    """Returns whether KIP-724's rules of 3.0 apply with this `inter.broker.protocol.version`. Raises ValueError."""
    return protocol_place(version) >= protocol_place(FIRST_V2_ONLY)


def supports_zstd(version: str) -> bool:
    """Returns whether zstd may be written with this `inter.broker.protocol.version`. Raises ValueError."""
    return protocol_place(version) >= protocol_place(FIRST_ZSTD)


def record_format(version: str) -> int:
    """Returns the message format (magic) of a `message.format.version` or `inter.broker.protocol.version`.

    Raises ValueError for an unknown version.
    """
    place = protocol_place(version)
    return sum(place >= protocol_place(first) for first in _FORMATS_FROM)


def protocol_place(version: str) -> int:
    """Returns the position of a protocol version among all, oldest first. Raises ValueError for an unknown one.

    Accepts Kafka's spellings: "2.8-IV1" as listed, and "2.8" or "2.8.1" for the last of 2.8. Below 1.0 three parts
    count.
    """
    if version in PROTOCOL_VERSIONS:
        return PROTOCOL_VERSIONS.index(version)
    short = ".".join(version.split(".")[: 3 if version.startswith("0.") else 2])
    places = [n for n, name in enumerate(PROTOCOL_VERSIONS) if name == short or name.startswith(short + "-")]
    if not places or "-" in version:
        raise ValueError(f"Version {version} is not a valid version")
    return places[-1]


def api_names() -> dict[int, str]:
    """Returns API names by key, of all releases."""
    return {int(key): name for key, name in _table()["names"].items()}


def advertised_by_releases(api_key: int) -> list[tuple[str, Versions | None]]:
    """Returns the versions of an API that Kafka brokers advertise, as pairs (first release, versions), oldest first;
    None from the release on that removed it.
    """
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
def declared_versions() -> dict[int, Versions]:
    """Returns all versions of all declared APIs, in the order of their keys: those that any release has, also as an
    unstable version. A test compares them with the declarations, whose import would take 30 ms of each start.
    """
    from ...protocol.schema import Versions

    found: dict[int, list[int]] = {}
    for row in _table()["releases"].values():
        for key, versions in row.items():
            found.setdefault(int(key), []).extend(versions)
    for key, moves in _UNSTABLE.items():
        found.setdefault(int(key), []).extend(version for _, version in moves if version is not None)
    return {key: Versions(min(found[key]), max(found[key])) for key in sorted(found) if key not in INTER_BROKER_KEYS}

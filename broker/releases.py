"""How Kafka's releases differ, as data: the one module that compares releases. Everything else asks by name.

Owns the profiles (`--release 0.8.2` to `4.3`, and Ottla's own): which versions of which API each one advertises and
serves, and its `Behaviour`, each field of which can be set alone by `--override ottla.behaviour.<name>=<value>`. Owns
also the order of `inter.broker.protocol.version` and `message.format.version`, and which configs are older or younger
than the table of configs shows. Must not know sockets, configuration or logs: it is read before any of them exists.

A profile stands for the last patch of its release. Where patches of one release differ, the earlier behaviour has a
name of three parts: `1.0.1` (like 1.0.0), `2.0.0`, `4.0.0`.

`releases.json` holds the advertised versions, made by `tests/broker/make_releases.py`. Sources of the behaviours: the
brokers' source of each release; KIP-98, 192, 360 (producers), KIP-467 (record errors), KIP-511 (unknown versions),
KIP-724 (formats), KIP-896 (what 4.0 dropped), KIP-937 (timestamps), KAFKA-18659 (Produce's advertised minimum),
KAFKA-19444 (JoinGroup in 4.0.0).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # what these import costs more than the whole command line; only what is asked for is imported
    from ..protocol.schema import Versions

OWN = "ottla"
RELEASES = tuple(
    """0.8.2 0.9 0.10.0 0.10.1 0.10.2 0.11 1.0.1 1.0 1.1 2.0.0 2.0 2.1 2.2 2.3 2.4 2.5 2.6 2.7 2.8
    3.0 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 4.0.0 4.0 4.1 4.2 4.3""".split()
)
PROFILE_NAMES = (*RELEASES, OWN)
NEWEST = RELEASES[-1]

# Other ways to say the same: a first or only patch, and 0.10 for the last of its three.
_ALIASES = {"0.8": "0.8.2", "0.9.0": "0.9", "0.10": "0.10.2", "0.11.0": "0.11", "1.0.0": "1.0.1"}

# What a producer's batch may be answered where releases differ; the names of storage's `Answer`.
AnswerName = Literal["accept", "unknown", "out_of_order", "duplicate_sequence"]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What moved between releases beside versions and configs. The defaults are Ottla's own profile."""

    unknown_producer: AnswerName = "unknown"
    """Nothing is known of a producer and its batch does not begin with sequence 0."""
    marker_only: AnswerName = "out_of_order"
    """The producer's epoch is known, none of its batches is, and the batch does not begin with sequence 0."""
    below_cache: AnswerName = "duplicate_sequence"
    """All of the batch was written before, and it is no copy of a remembered batch."""
    cached_batches: int = 5
    """How many batches of a producer are remembered."""
    drop_below_log_start: bool = True
    """A producer is forgotten when its last offset falls below the log start offset."""

    invalid_record_code: Literal[2, 87] = 87
    """A malformed batch: CORRUPT_MESSAGE, which clients retry, or INVALID_RECORD, which they do not."""
    wrong_batches: Literal["close", "corrupt", "invalid"] = "invalid"
    """Produce v3 and later with anything but one v2 batch: the connection closes, or error 2, or 87."""
    record_errors: Literal["none", "first", "all"] = "all"
    """Which refused records a refusal names."""
    refuse_unnumbered: bool = False
    """A compressed batch whose offsets are not 0, 1, 2, ... is refused rather than rebuilt."""
    one_magic: bool = True
    """A set of several compressed wrappers, or of several formats, is refused rather than merged."""
    append_time_bit_allowed: bool = True
    """A batch that a client marked as log append time enters a create-time topic."""
    timestamp_range: Literal["difference", "both", "before_after"] = "both"
    """Which of message.timestamp.difference.max.ms and .before/.after.max.ms bound a record's timestamp."""
    old_formats: bool = True
    """Sets of v0 and v1 are taken from producers at all."""
    newest_magic: Literal[0, 1, 2] = 2
    """The newest message format that the release knows."""

    down_conversion: Literal["scan", "always", "none"] = "always"
    """For Fetch v0-v3: only if what was read holds a newer format, always, or never."""
    nothing_left: Literal["original", "overflow"] = "overflow"
    """Down-conversion left no record: the unconverted bytes are sent, or the header of a message that is too large."""
    zstd_topic_needs_fetch_10: bool = False
    """Fetch before v10 of a topic with compression.type=zstd answers UNSUPPORTED_COMPRESSION_TYPE."""
    v2_from_ibp_3: bool = True
    """With inter.broker.protocol.version 3.0 or later everything is written as v2, whatever the topic says."""

    unknown_version_lists_range: bool = True
    """ApiVersions in a version that is not served answers error 35 with its own range, rather than with nothing."""


BEHAVIOUR_NAMES = tuple(declared.name for declared in dataclasses.fields(Behaviour))
CACHED_BATCHES_MAX = 1000  # per producer; each costs some 100 bytes

Moves = Sequence[tuple[str, Any]]  # (from this release on, this), oldest release first

# What each release does. The first row reaches back to the oldest, where the question may not arise.
_BEHAVIOUR_MOVES: dict[str, Moves] = {
    "unknown_producer": (("0.8.2", "out_of_order"), ("1.0.1", "unknown"), ("2.5", "accept")),
    "marker_only": (("0.8.2", "out_of_order"), ("2.0", "unknown"), ("2.5", "out_of_order")),
    "below_cache": (("0.8.2", "out_of_order"), ("1.0.1", "duplicate_sequence"), ("1.0", "out_of_order")),
    "cached_batches": (("0.8.2", 1), ("1.0.1", 5)),
    "drop_below_log_start": (("0.8.2", True), ("2.4", False)),
    "invalid_record_code": (("0.8.2", 2), ("2.4", 87)),
    "wrong_batches": (("0.8.2", "close"), ("2.2", "corrupt"), ("2.4", "invalid")),
    "record_errors": (("0.8.2", "none"), ("2.4", "first"), ("2.5", "all")),
    "refuse_unnumbered": (("0.8.2", False), ("2.4", True), ("2.5", False)),
    "one_magic": (("0.8.2", False), ("2.4", True)),
    "append_time_bit_allowed": (("0.8.2", False), ("3.6", True)),
    "timestamp_range": (("0.8.2", "difference"), ("3.6", "both"), ("4.0.0", "before_after")),
    "old_formats": (("0.8.2", True), ("4.0.0", False)),
    "newest_magic": (("0.8.2", 0), ("0.10.0", 1), ("0.11", 2)),
    "down_conversion": (("0.8.2", "scan"), ("3.0", "always"), ("4.0.0", "none")),
    "nothing_left": (("0.8.2", "original"), ("2.0.0", "overflow")),
    "zstd_topic_needs_fetch_10": (("0.8.2", False), ("2.1", True), ("4.0.0", False)),
    "v2_from_ibp_3": (("0.8.2", False), ("3.0", True)),
    "unknown_version_lists_range": (("0.8.2", False), ("2.4", True)),
}

# Only brokers and controllers call these. GetTelemetrySubscriptions and PushTelemetry (71, 72) are advertised by a
# broker with a receiver for telemetry, which there is none of here.
INTER_BROKER_KEYS = frozenset({*range(4, 8), 27, *range(52, 55), 56, 58, 59, 62, 63, 67, 70, 73, *range(82, 88)})
_TELEMETRY_KEYS = frozenset({71, 72})
_PRODUCE = 0
_JOIN_GROUP = 11
# Produce is advertised from 0 everywhere: librdkafka before 2.12 sends uncompressed otherwise.
_PRODUCE_SERVED_FROM: Moves = (("0.8.2", 0), ("4.0.0", 3))
# The table's 4.0 is 4.0.0, the only release that took JoinGroup v0 and v1 away.
_JOIN_GROUP_FROM: Moves = (("0.8.2", 0), ("4.0.0", 2), ("4.0", 0))


class UnknownRelease(ValueError):
    """No release of that name. The text is for the user and names the nearest."""


class UnknownBehaviour(ValueError):
    """No behaviour of that name, or no value of it. The text is for the user."""


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
        from ..protocol.schema import Versions

        if self.is_own:
            return _declared()
        # The table is one of minor releases; 4.0.0 and 4.0 share a row, and what differs between patches is below.
        row = _table()[next(name for name in (self.name, self.name.rpartition(".")[0]) if name in _table())]
        left_out = INTER_BROKER_KEYS | _TELEMETRY_KEYS
        found = {int(key): Versions(*ends) for key, ends in row.items() if int(key) not in left_out}
        if _JOIN_GROUP in found:
            found[_JOIN_GROUP] = found[_JOIN_GROUP]._replace(first=at(_JOIN_GROUP_FROM, self.name))
        return found

    @functools.cached_property
    def served(self) -> dict[int, Versions]:
        """API key -> the versions that this release answers; a request in another closes its connection."""
        found = dict(self.apis)
        if not self.is_own:
            found[_PRODUCE] = found[_PRODUCE]._replace(first=at(_PRODUCE_SERVED_FROM, self.name))
        return found

    def with_behaviour(self, settings: dict[str, str]) -> Profile:
        """This profile with single behaviours set from text. Raises UnknownBehaviour."""
        values = {name: behaviour_value(name, text) for name, text in settings.items()}
        return dataclasses.replace(self, behaviour=dataclasses.replace(self.behaviour, **values))


@functools.cache
def profile(name: str) -> Profile:
    """The profile of that name. Raises UnknownRelease."""
    name = _ALIASES.get(name, name)
    if name == OWN:
        return Profile(OWN, Behaviour())
    if name not in RELEASES:
        raise UnknownRelease(f"unknown release {name}; nearest: {', '.join(nearest_releases(name))}")
    return Profile(name, Behaviour(**{field: at(moves, name) for field, moves in _BEHAVIOUR_MOVES.items()}))


def own_profile() -> Profile:
    """Ottla's own profile."""
    return profile(OWN)


def nearest_releases(name: str) -> list[str]:
    """The releases that a wrong name lies between, or those that look like it."""
    number = _number(name)
    if number is None:
        import difflib  # 4 ms; only a mistake needs it

        return difflib.get_close_matches(name, PROFILE_NAMES, n=3, cutoff=0.5) or [RELEASES[0], NEWEST, OWN]
    minors = [release for release in RELEASES if release.rpartition(".")[0] not in RELEASES]
    below = [release for release in minors if (_number(release) or ()) <= number]
    above = [release for release in minors if (_number(release) or ()) > number]
    return below[-1:] + above[:1]


def _number(name: str) -> tuple[int, ...] | None:
    parts = name.split(".")
    return (
        tuple(map(int, parts)) if all(part.isascii() and part.isdigit() and len(part) < 5 for part in parts) else None
    )


@functools.cache
def _kinds() -> dict[str, Any]:
    return typing.get_type_hints(Behaviour)


def behaviour_value(name: str, text: str) -> Any:
    """The value of a behaviour out of text, as its type asks. Raises UnknownBehaviour."""
    if name not in BEHAVIOUR_NAMES:
        import difflib

        close = difflib.get_close_matches(name, BEHAVIOUR_NAMES, n=1, cutoff=0.4)
        raise UnknownBehaviour(f"unknown behaviour {name}" + (f"; did you mean {close[0]}?" if close else ""))
    kind = _kinds()[name]
    text = text.strip().lower()
    if kind is bool:
        choices: tuple[Any, ...] = (True, False)
    elif kind is int:
        if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= CACHED_BATCHES_MAX:
            return int(text)
        raise UnknownBehaviour(f"behaviour {name} is a number from 1 to {CACHED_BATCHES_MAX}, not {text!r}")
    else:
        choices = typing.get_args(kind)
    texts = {str(choice).lower(): choice for choice in choices}
    if text not in texts:
        raise UnknownBehaviour(f"behaviour {name} is one of {', '.join(texts)}, not {text!r}")
    return texts[text]


@functools.cache
def _table() -> dict[str, dict[str, list[int]]]:
    return json.loads(Path(__file__).with_name("releases.json").read_bytes())


@functools.cache
def _declared() -> dict[int, Versions]:
    """Every version of every API that is declared."""
    import importlib
    import pkgutil

    from ..protocol import messages
    from ..protocol.schema import spec

    found: dict[int, Versions] = {}
    for module in pkgutil.iter_modules(messages.__path__):
        declared = importlib.import_module(f"{messages.__name__}.{module.name}")
        for name, value in vars(declared).items():
            if name.endswith("Request") and isinstance(value, type) and value.__module__ == declared.__name__:
                found[spec(value).api_key] = spec(value).versions
    return dict(sorted(found.items()))

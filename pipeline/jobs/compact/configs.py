"""The settings of a compaction, its topics, and theirs: from the metadata of a data directory, and from the caller.

Owns the defaults, which are Apache Kafka's, and the choice of topics. A topic is compacted if `__cluster_metadata-0`
has a cleanup.policy with compact for it; without that log in the directory, as before KRaft, if the cleaner's
checkpoint has it. The internal topics of offsets and transactions always are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from ....protocol.internal_records import metadata_values
from ....protocol.internal_records.metadata_values import Configs
from ....protocol.limits import INT64_MAX
from ...backend import ReadError

INTERNAL = {"__consumer_offsets", "__transaction_state"}
NEVER = {metadata_values.TOPIC}
"""The metadata log, which has snapshots instead of compaction."""

_POLICY = "cleanup.policy"
_INTERNAL = "internal.segment.bytes"  # replaces segment.bytes, which has a minimum
_INTERNAL_SEGMENT_BYTES = str(100 << 20)  # offsets.topic.segment.bytes, transaction.state.log.segment.bytes
_LEAST = {"segment.bytes": 14, "segment.index.bytes": 4}


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of a topic's configs of these names, with dots for `_`."""

    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0


_DEFAULTS = {name.replace("_", "."): number for name, number in asdict(Settings()).items()}
NAMES = tuple(_DEFAULTS)
"""The configs that affect a compaction, besides cleanup.policy."""


@dataclass(frozen=True, slots=True)
class Release:
    """The differences between the cleaners of releases; the defaults are Ottla's, and those of 4.0."""

    keep_old_formats: bool = False
    delete_horizon: bool = True
    keep_empty_at_end: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """The topics that a compaction of data directories cleans, and its rules.

    It cleans the topics with the policy compact; `topics` and `like` (a regular expression for full names) restrict
    them. With `force` the selected topics are compacted whatever their policy. `configs` are values of `NAMES`
    for topics without an own value. Logs with a dirty ratio up to `min_dirty_ratio`, from 0 to 1, are skipped.
    `release` has the differences between the cleaners of releases. `now_ms` is the time for the deletion of tombstones,
    the clock's if None.
    """

    topics: Sequence[str] | None = None
    like: str | re.Pattern[str] | None = None
    force: bool = False
    configs: Mapping[str, str] | None = None
    min_dirty_ratio: float = 0.0
    release: Release | None = None
    now_ms: int | None = None


def settings_of(topic: str, configs: Configs | None, defaults: Mapping[str, str]) -> Settings:
    """Returns the settings of a topic: its own configs, then `defaults` (a broker's configuration), then Kafka's.
    Raises ReadError for a value that is not a number, or too small."""
    own = dict((configs or {}).get(topic, {}))
    if _INTERNAL in own:
        own["segment.bytes"] = own[_INTERNAL]
    given = {"segment.bytes": _INTERNAL_SEGMENT_BYTES, **defaults} if topic in INTERNAL else defaults
    found: dict[str, int] = {}
    for name, default in _DEFAULTS.items():
        text = own.get(name, given.get(name, str(default)))
        if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) < _LEAST.get(name, 0):
            where = f"topic {topic}: " if topic else ""
            raise ReadError(f"{where}{name}={text} is invalid: it must be a number >= {_LEAST.get(name, 0)}")
        found[name.replace(".", "_")] = min(int(text), INT64_MAX)
    return Settings(**found)


def compacted_topics(
    there: Collection[str],
    configs: Configs | None,
    cleaned: Collection[str],
    settings: CompactSettings,
) -> dict[str, Settings]:
    """Returns the topics to compact, out of `there`, with their settings. `cleaned` are the topics in the cleaner's
    checkpoint. Raises ReadError for a named topic that does not exist, or is not compacted and not forced."""
    defaults, named = settings.configs or {}, set(settings.topics or ())
    if unknown := sorted(defaults.keys() - set(NAMES)):
        raise ReadError(f"{', '.join(unknown)} has no effect on a compaction: use {', '.join(NAMES)}")
    settings_of("", None, defaults)
    if missing := sorted(named - set(there)):
        raise ReadError(f"there is no topic {', '.join(missing)}")
    if never := sorted(named & NEVER):
        raise ReadError(f"{never[0]} is not compacted: it has snapshots instead")

    def is_compacted(topic: str) -> bool:
        if topic in INTERNAL:
            return True
        return topic in cleaned if configs is None else "compact" in configs.get(topic, {}).get(_POLICY, "")

    if not settings.force and (refused := sorted(topic for topic in named if not is_compacted(topic))):
        why = "according to the cleaner's checkpoint" if configs is None else "by its cleanup.policy"
        raise ReadError(
            f"topic {', '.join(refused)} is not compacted, {why}: force drops all but the last record of each key, "
            "and records without a key"
        )
    pattern = re.compile(settings.like) if settings.like is not None else None
    chosen = named if settings.topics is not None else {topic for topic in there if is_compacted(topic)} - NEVER
    return {
        topic: settings_of(topic, configs, defaults)
        for topic in sorted(chosen)
        if pattern is None or pattern.fullmatch(topic)
    }

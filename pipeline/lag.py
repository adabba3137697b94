"""How far a streaming query is behind, from what Spark reports of its progress. Pure: no Spark, no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .backend import Offsets, TopicPartition
from .offsets import flat

__all__ = ["Lag", "lag"]


class Lag(dict[TopicPartition, int]):
    """Offsets that wait to be read, by partition (`str()` of one is `topic-0`), and in all."""

    @property
    def total(self) -> int:
        return sum(self.values())


def lag(progress: Any) -> Lag:
    """How far the query was behind when it reported this: `query.lastProgress`, its dict, or its JSON.

    Counts, for each partition of each source over logs (Spark's own Kafka source, too), the offsets between the end of
    the batch and the end of the log as it was then: an upper bound of records, since compaction and markers of
    transactions leave offsets without one. A partition that several sources read counts as the one that is farthest
    behind. Empty before the first progress, and of sources that tell no latest offset.
    """
    if isinstance(progress, str):
        progress = json.loads(progress)
    behind = Lag()
    for source in _get(progress, "sources") or ():
        latest, end = _offsets(_get(source, "latestOffset")), _offsets(_get(source, "endOffset"))
        for key, at in (latest or {}).items():
            behind[key] = max(behind.get(key, 0), at - (end or {}).get(key, 0))
    return behind


def _get(value: Any, name: str) -> Any:
    """A field of what is a mapping, or an object of pyspark."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _offsets(value: Any) -> Offsets | None:
    """The offsets that Spark gives as JSON or as what that means; None of a source that is not one over logs."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, Mapping) or not all(isinstance(parts, Mapping) for parts in value.values()):
        return None
    try:
        found = flat(value)
    except (TypeError, ValueError):
        return None
    return found if all(isinstance(offset, int) for offset in found.values()) else None

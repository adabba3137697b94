"""The lag of a streaming query, from the progress that Spark reports. Pure: no Spark, no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .backend import Offsets, TopicPartition
from .offsets import flat


class Lag(dict[TopicPartition, int]):
    """Offsets that are not read yet, by partition (`str()` of a partition is `topic-0`), and in total."""

    @property
    def total(self) -> int:
        return sum(self.values())

    @property
    def metrics(self) -> dict[str, str]:
        """The metrics that Spark's Kafka source has in the progress, computed from these; none without partitions. A
        source in Python cannot add them to the progress."""
        if not self:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(self.values())),
            "maxOffsetsBehindLatest": str(max(self.values())),
            "avgOffsetsBehindLatest": str(self.total / len(self)),
        }


def lag(progress: Any) -> Lag:
    """Returns the lag of a query at one progress report: `query.lastProgress`, its dict, or its JSON.

    Counts, for each partition of each source over logs (Spark's own Kafka source included), the offsets from the end of
    the batch to the end of the log at that time. This is an upper bound of the records, since compaction and
    transaction markers leave offsets without one. A partition that several sources read counts with its largest lag.
    Empty before the first progress and for sources that report no latest offset.
    """
    if isinstance(progress, str):
        progress = json.loads(progress)
    found = Lag()
    for source in _get(progress, "sources") or ():
        latest, end = _offsets(_get(source, "latestOffset")), _offsets(_get(source, "endOffset"))
        for key, at in (latest or {}).items():
            found[key] = max(found.get(key, 0), at - (end or {}).get(key, 0))
    return found


def _get(value: Any, name: str) -> Any:
    """Returns a field of a mapping, or of an object of pyspark."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _offsets(value: Any) -> Offsets | None:
    """Returns the offsets that Spark reports as JSON or as a mapping, or None if the source does not read logs."""
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

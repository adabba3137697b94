"""Splits ranges of offsets for tasks, as Spark's Kafka source does.

Owns `minPartitions` for backends that know only offsets. Pure. Source: Spark's guide on that option, and its
KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ...backend import OffsetRange


def split(ranges: Sequence[OffsetRange], at_least: int | None) -> list[OffsetRange]:
    """Returns the same offsets, each once and in order, in about `at_least` parts if there are enough offsets: each
    range gets a share by its size, at least one. Empty ranges are left out."""
    found = [one for one in ranges if one.size]
    if at_least is None or len(found) >= at_least:
        return found
    total = sum(one.size for one in found)
    # Ranges that stay whole get one part each first; the others share the rest.
    whole = [_share(one.size, total, at_least) == 1 for one in found]
    to_split = sum(one.size for one, is_whole in zip(found, whole, strict=True) if not is_whole)
    parts = max(1, at_least - sum(whole))
    return [
        part
        for one, is_whole in zip(found, whole, strict=True)
        for part in _parts(one, 1 if is_whole else _share(one.size, to_split, parts))
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Returns Java's Math.round of the proportion, at least one."""
    return max(1, math.floor(size / total * parts + 0.5))


def _parts(one: OffsetRange, count: int) -> list[OffsetRange]:
    """Returns about equal parts, none empty."""
    count = min(count, one.size)
    edges = [one.start]
    for left in range(count, 0, -1):
        edges.append(edges[-1] + (one.end - edges[-1]) // left)
    return [one._replace(start=start, end=end) for start, end in itertools.pairwise(edges)]

"""Ranges of offsets cut into those that tasks read, as Spark's Kafka source cuts them.

Owns `minPartitions` where offsets are all that is known. Pure. Source: what Spark's guide says of the option, and its
KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ...backend import OffsetRange


def split(ranges: Sequence[OffsetRange], at_least: int | None) -> list[OffsetRange]:
    """The same offsets, each once and in the order of the ranges, in that many parts or about as many, if there are
    offsets enough: each range gets its share by its size, one at least. Ranges that are empty are left out."""
    found = [one for one in ranges if one.size]
    if at_least is None or len(found) >= at_least:
        return found
    total = sum(one.size for one in found)
    # What stays whole takes its one part first; the others share what is left.
    whole = [_share(one.size, total, at_least) == 1 for one in found]
    to_split = sum(one.size for one, is_whole in zip(found, whole, strict=True) if not is_whole)
    parts = max(1, at_least - sum(whole))
    return [
        part
        for one, is_whole in zip(found, whole, strict=True)
        for part in _parts(one, 1 if is_whole else _share(one.size, to_split, parts))
    ]


def _share(size: int, total: int, parts: int) -> int:
    """Java's Math.round of the proportion, and one at least."""
    return max(1, math.floor(size / total * parts + 0.5))


def _parts(one: OffsetRange, count: int) -> list[OffsetRange]:
    """About equal parts; none is empty."""
    count = min(count, one.size)
    edges = [one.start]
    for left in range(count, 0, -1):
        edges.append(edges[-1] + (one.end - edges[-1]) // left)
    return [one._replace(start=start, end=end) for start, end in itertools.pairwise(edges)]

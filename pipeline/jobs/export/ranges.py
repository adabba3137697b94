"""Ranges of offsets: union and difference. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Range(NamedTuple):
    """Offsets from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.start} to {self.end - 1}"


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Returns the same offsets in as few ranges as possible, ascending."""
    found: list[Range] = []
    for one in sorted(one for one in ranges if one.size):
        if found and one.start <= found[-1].end:
            found[-1] = Range(found[-1].start, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


def without(of: Range, covered: Sequence[Range]) -> list[Range]:
    """Returns the parts of a range outside the others, which are in the form of `merged`."""
    found: list[Range] = []
    start = of.start
    for one in covered:
        if one.end <= start:
            continue
        if one.start >= of.end:
            break
        if one.start > start:
            found.append(Range(start, one.start))
        start = one.end
    if start < of.end:
        found.append(Range(start, of.end))
    return found


def total(ranges: Iterable[Range]) -> int:
    """Returns the number of offsets."""
    return sum(one.size for one in ranges)

"""The counts of a piece of a log, and their sums.

Owns the numbers and their addition: a value of a few hundred bytes, whatever the size of the piece, plus the producer
ids. The sum does not depend on how a log is split or in which order the pieces arrive. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..report import add_up, total

EXACT_SIZES = 16  # sizes with a bin of their own
OCTAVE_BINS = 8
_EXACT_BITS = EXACT_SIZES.bit_length()  # bits of the first size that shares a bin: 5
_STEP_BITS = OCTAVE_BINS.bit_length()  # the width of a bin is that of the bits below these: 4

_AMOUNTS = ("records", "entries", "bytes", "raw_bytes")
_COUNTS = "with_headers headers header_bytes untimed commits aborts other_markers damaged damaged_bytes gone".split()

DAMAGED_MAX = 100
"""The first places of damage that are kept; further ones are only counted."""


@dataclass(slots=True)
class Amount:
    """The amount of one format and codec. `bytes` is the stored size, `raw_bytes` the uncompressed size in the same
    format. An entry is a v2 batch, or a v0/v1 message, plain or compressed. Transaction markers count as entries and
    bytes, but not as records."""

    entries: int = 0
    records: int = 0
    bytes: int = 0
    raw_bytes: int = 0

    def add(self, other: Amount) -> None:
        add_up(self, other, _AMOUNTS)


@dataclass(slots=True)
class Sizes:
    """The sizes of many keys or values: number, nulls, and a histogram.

    `bins` counts by `bin_of`: sizes below 16 bytes are exact, above that each octave has eight bins, so that a
    percentile is at most an eighth too large.
    """

    count: int = 0
    nulls: int = 0
    total: int = 0
    least: int | None = None
    most: int | None = None
    bins: dict[int, int] = field(default_factory=dict)

    def add(self, other: Sizes) -> None:
        add_up(self, other, ("count", "nulls", "total"))
        self.least = _least(self.least, other.least)
        self.most = _most(self.most, other.most)
        for index, number in other.bins.items():
            self.bins[index] = self.bins.get(index, 0) + number

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def percentile(self, percent: float) -> int | None:
        """Returns the size that `percent` of the sizes do not exceed, or None without sizes."""
        if self.most is None:
            return None
        rank = max(percent / 100 * self.count, 1)
        seen = 0
        for index in sorted(self.bins):
            seen += self.bins[index]
            if seen >= rank:
                return min(bounds_of(index)[1], self.most)
        return self.most

    def octaves(self) -> list[tuple[int, int, int]]:
        """Returns (from, to, count) by powers of two, both ends inclusive: 0, 1, 2-3, 4-7, ..."""
        found: dict[int, int] = {}
        for index, number in self.bins.items():
            bits = bounds_of(index)[0].bit_length()
            found[bits] = found.get(bits, 0) + number
        return [(1 << bits >> 1, (1 << bits) - 1, number) for bits, number in sorted(found.items())]


def bin_of(size: int) -> int:
    """Returns the bin of a size in the histogram."""
    if size < EXACT_SIZES:
        return size
    bits = size.bit_length()
    return EXACT_SIZES + (bits - _EXACT_BITS) * OCTAVE_BINS + (size >> (bits - _STEP_BITS)) % OCTAVE_BINS


def bounds_of(index: int) -> tuple[int, int]:
    """Returns the smallest and the largest size of a bin."""
    if index < EXACT_SIZES:
        return index, index
    octave, step = divmod(index - EXACT_SIZES, OCTAVE_BINS)
    low = (OCTAVE_BINS + step) << (octave + 1)
    return low, low + (1 << (octave + 1)) - 1


@dataclass(slots=True)
class Times:
    """Timestamps of one kind: number of records, the earliest and the latest (epoch milliseconds)."""

    records: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, other: Times) -> None:
        self.records += other.records
        self.first_ms = _least(self.first_ms, other.first_ms)
        self.last_ms = _most(self.last_ms, other.last_ms)


class Damaged(NamedTuple):
    """Bytes that were not counted: an entry, or the rest of the file if no further entry is recognisable.

    `kind` is "damaged"; "cut" if the file ends inside an entry or in zeros; or "open end" if that is the newest
    segment, where a write in progress looks the same. `what` is a sentence.
    """

    file: str
    position: int
    bytes: int
    kind: str
    what: str


@dataclass(slots=True)
class Facts:
    """All counts of a piece; `merge` adds up pieces.

    `formats` is by (magic, codec), and `records`, `entries`, `bytes` and `raw_bytes` are their sums. `create` and
    `append` are timestamps of the types CreateTime and LogAppendTime; `untimed` records have none: all of v0, and -1.
    `first_offset` is that of the first entry, `end_offset` the one after the last. `producers` are the producer ids,
    `numbered` the amount with sequences, `transactional` the amount in transactions. `damage` has the first places,
    `damaged` counts all; the bytes of these are in no amount.
    """

    formats: dict[tuple[int, int], Amount] = field(default_factory=dict)
    keys: Sizes = field(default_factory=Sizes)
    values: Sizes = field(default_factory=Sizes)
    with_headers: int = 0
    headers: int = 0
    header_bytes: int = 0
    create: Times = field(default_factory=Times)
    append: Times = field(default_factory=Times)
    untimed: int = 0
    first_offset: int | None = None
    end_offset: int | None = None
    largest_entry_bytes: int = 0
    producers: set[int] = field(default_factory=set)
    numbered: Amount = field(default_factory=Amount)
    transactional: Amount = field(default_factory=Amount)
    commits: int = 0
    aborts: int = 0
    other_markers: int = 0
    damage: list[Damaged] = field(default_factory=list)
    damaged: int = 0
    damaged_bytes: int = 0
    gone: int = 0

    records, entries, bytes, raw_bytes = (total("formats", name) for name in _AMOUNTS)

    def amount(self, magic: int, codec: int) -> Amount:
        return self.formats.setdefault((magic, codec), Amount())

    def add(self, other: Facts) -> None:
        """Adds the counts of another piece."""
        for key, amount in other.formats.items():
            self.amount(*key).add(amount)
        for name in ("keys", "values", "create", "append", "numbered", "transactional"):
            getattr(self, name).add(getattr(other, name))
        add_up(self, other, _COUNTS)
        self.add_range(other.first_offset, other.end_offset)
        self.largest_entry_bytes = max(self.largest_entry_bytes, other.largest_entry_bytes)
        self.producers |= other.producers
        self.damage = sorted(self.damage + other.damage)[:DAMAGED_MAX]

    def add_damage(self, damaged: Damaged) -> None:
        self.damaged += 1
        self.damaged_bytes += damaged.bytes
        self.damage.append(damaged)
        if len(self.damage) > 2 * DAMAGED_MAX:
            self.damage = sorted(self.damage)[:DAMAGED_MAX]

    def add_range(self, first: int | None, end: int | None) -> None:
        """Adds entries with offsets from `first` (inclusive) to `end` (exclusive)."""
        self.first_offset = _least(self.first_offset, first)
        self.end_offset = _most(self.end_offset, end)


def merge(parts: Iterable[Facts]) -> Facts:
    """Returns the sum of these, which stay unchanged."""
    total = Facts()
    for part in parts:
        total.add(part)
    return total


def _least(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else min(left, right)


def _most(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)

"""What is counted of a piece of a log, and how that is added up.

Owns the numbers and their sums: a value of a few hundred bytes whatever it was counted of, but for the ids of
producers. However a log is cut into pieces, in whatever order they come, their sum is the same. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

EXACT_SIZES = 16  # these have a bin each
OCTAVE_BINS = 8
_EXACT_BITS = EXACT_SIZES.bit_length()  # of the first size that shares a bin: 5
_STEP_BITS = OCTAVE_BINS.bit_length()  # a bin is as wide as the bits below these: 4

DAMAGED_MAX = 100
"""So many places of damage are kept, the first ones; the others are only counted."""


@dataclass(slots=True)
class Amount:
    """What there is of one format and codec. `bytes` are stored; `raw_bytes` are what they would be uncompressed, in
    the same format. An entry is a v2 batch, or a v0/v1 message, plain or compressed. Markers of transactions are in
    entries and bytes, but are no records."""

    entries: int = 0
    records: int = 0
    bytes: int = 0
    raw_bytes: int = 0

    def add(self, other: Amount) -> None:
        self.entries += other.entries
        self.records += other.records
        self.bytes += other.bytes
        self.raw_bytes += other.raw_bytes


@dataclass(slots=True)
class Sizes:
    """The sizes of many keys or values: how many, how many are null, and a histogram.

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
        self.count += other.count
        self.nulls += other.nulls
        self.total += other.total
        self.least = _least(self.least, other.least)
        self.most = _most(self.most, other.most)
        for index, number in other.bins.items():
            self.bins[index] = self.bins.get(index, 0) + number

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def percentile(self, percent: float) -> int | None:
        """A size that so many percent do not exceed; None if there is none."""
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
        """(from, to, how many) by powers of two, both ends included: 0, 1, 2-3, 4-7, ..."""
        found: dict[int, int] = {}
        for index, number in self.bins.items():
            bits = bounds_of(index)[0].bit_length()
            found[bits] = found.get(bits, 0) + number
        return [(1 << bits >> 1, (1 << bits) - 1, number) for bits, number in sorted(found.items())]


def bin_of(size: int) -> int:
    """The bin of the histogram that a size belongs to."""
    if size < EXACT_SIZES:
        return size
    bits = size.bit_length()
    return EXACT_SIZES + (bits - _EXACT_BITS) * OCTAVE_BINS + (size >> (bits - _STEP_BITS)) % OCTAVE_BINS


def bounds_of(index: int) -> tuple[int, int]:
    """The least and the largest size of a bin."""
    if index < EXACT_SIZES:
        return index, index
    octave, step = divmod(index - EXACT_SIZES, OCTAVE_BINS)
    low = (OCTAVE_BINS + step) << (octave + 1)
    return low, low + (1 << (octave + 1)) - 1


@dataclass(slots=True)
class Times:
    """Timestamps of one kind: how many records, the earliest and the latest (epoch milliseconds)."""

    records: int = 0
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, other: Times) -> None:
        self.records += other.records
        self.first_ms = _least(self.first_ms, other.first_ms)
        self.last_ms = _most(self.last_ms, other.last_ms)


class Damaged(NamedTuple):
    """Bytes that were not counted: an entry, or all that follows where no entry can be told from the next.

    `kind` is "damaged", "cut" where the file ends inside an entry or in zeros, and "open end" where that is the newest
    segment's, for a write under way looks the same. `what` is a sentence.
    """

    file: str
    position: int
    bytes: int
    kind: str
    what: str


@dataclass(slots=True)
class Facts:
    """Everything that is counted. Sums of pieces are `merge`'s.

    `formats` is by (magic, codec). `create`, `append`: timestamps that the producers, or the broker, gave;
    `untimed` records have none: all of v0, and -1. `first_offset` is the first one that an entry begins with,
    `end_offset` the one behind the last. `producers` are the ids of those that number their batches, `numbered` what
    they wrote, `transactional` what is in transactions. `damage` has the first places, `damaged` counts all.
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

    @property
    def records(self) -> int:
        return sum(amount.records for amount in self.formats.values())

    @property
    def entries(self) -> int:
        return sum(amount.entries for amount in self.formats.values())

    @property
    def bytes(self) -> int:
        """Of what was counted; damage is not in it."""
        return sum(amount.bytes for amount in self.formats.values())

    @property
    def raw_bytes(self) -> int:
        return sum(amount.raw_bytes for amount in self.formats.values())

    def amount(self, magic: int, codec: int) -> Amount:
        return self.formats.setdefault((magic, codec), Amount())

    def add(self, other: Facts) -> None:
        """Adds what was counted elsewhere."""
        for key, amount in other.formats.items():
            self.amount(*key).add(amount)
        self.keys.add(other.keys)
        self.values.add(other.values)
        self.with_headers += other.with_headers
        self.headers += other.headers
        self.header_bytes += other.header_bytes
        self.create.add(other.create)
        self.append.add(other.append)
        self.untimed += other.untimed
        self.first_offset = _least(self.first_offset, other.first_offset)
        self.end_offset = _most(self.end_offset, other.end_offset)
        self.largest_entry_bytes = max(self.largest_entry_bytes, other.largest_entry_bytes)
        self.producers |= other.producers
        self.numbered.add(other.numbered)
        self.transactional.add(other.transactional)
        self.commits += other.commits
        self.aborts += other.aborts
        self.other_markers += other.other_markers
        self.damage = sorted(self.damage + other.damage)[:DAMAGED_MAX]
        self.damaged += other.damaged
        self.damaged_bytes += other.damaged_bytes
        self.gone += other.gone

    def add_damage(self, damaged: Damaged) -> None:
        self.damaged += 1
        self.damaged_bytes += damaged.bytes
        self.damage.append(damaged)
        if len(self.damage) > 2 * DAMAGED_MAX:
            self.damage = sorted(self.damage)[:DAMAGED_MAX]

    def add_range(self, first: int, end: int) -> None:
        """Entries with offsets from `first` on, up to but without `end`."""
        self.first_offset = _least(self.first_offset, first)
        self.end_offset = _most(self.end_offset, end)


def merge(parts: Iterable[Facts]) -> Facts:
    """The sum of these, which stay as they are."""
    total = Facts()
    for part in parts:
        total.add(part)
    return total


def _least(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else min(left, right)


def _most(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)

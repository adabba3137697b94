"""What Spark's filters say of where to look: which partitions, which offsets, which times.

Owns the meaning of a filter that is pushed down to a source, with nulls as in SQL. Sound: what a filter that was taken
over leaves out, Spark would have left out too. Pure, but for the classes that Spark writes filters in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from .backend import OffsetRange, TopicPartition

Spans = tuple[tuple[int, int], ...]
"""Offsets, from the first of each pair up to but without the second; apart from each other, in order."""

MAX_SPANS = 64
"""So many pieces of an offset range at most; of more, what is between them is read too, and Spark filters again."""

_END = 2**63
_ALL: Spans = ((0, _END),)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_TESTS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda own, value: own == value,
    GreaterThan: lambda own, value: own > value,
    GreaterThanOrEqual: lambda own, value: own >= value,
    LessThan: lambda own, value: own < value,
    LessThanOrEqual: lambda own, value: own <= value,
    StringStartsWith: lambda own, value: own.startswith(value),
    StringEndsWith: lambda own, value: own.endswith(value),
    StringContains: lambda own, value: value in own,
}


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Where a query needs to look, by the filters that it has.

    `keys` are filters on topic and partition. `spans` are the offsets that can hold a row. `from_ms` and `before_ms`
    bound the times, epoch milliseconds.
    """

    keys: tuple[Filter, ...] = ()
    spans: Spans = _ALL
    from_ms: int | None = None
    before_ms: int | None = None

    @property
    def nothing(self) -> bool:
        """No row can be wanted."""
        return not self.spans or (
            self.from_ms is not None and self.before_ms is not None and self.from_ms >= self.before_ms
        )

    def partitions(self, known: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that can hold a row that is wanted."""
        if self.nothing:
            return []
        return [key for key in known if all(holds(test, getattr(key, column_of(test) or "")) for test in self.keys)]

    def ranges(self, whole: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What is left to be read of these, in their order."""
        cut = [
            OffsetRange(of.topic, of.partition, max(of.start, first), min(of.end, end))
            for of in whole
            for first, end in self.spans
        ]
        return [range_ for range_ in cut if range_.size]


def narrow(filters: Sequence[Filter], *, exact: bool = True, times: bool = True) -> tuple[Narrowed, list[Filter]]:
    """Where to look, and the filters that Spark must evaluate again: those by identity, as Spark asks.

    `exact`: all rows have an offset within the range that is read, and parts of a range can be read alone; else one
    range is left, and filters on offsets are evaluated again. Those on times always are; without `times` they say
    nothing of where to look.
    """
    keys: list[Filter] = []
    spans = _ALL
    bounds: list[tuple[int | None, int | None]] = []
    again: list[Filter] = []
    for test in filters:
        column = column_of(test)
        if column in ("topic", "partition") and _comparable(test, str if column == "topic" else int):
            keys.append(test)
        elif column == "offset" and _comparable(test, int):
            spans = _both(spans, _spans(test))
            if not exact:
                again.append(test)
        else:
            if column == "timestamp" and times:
                bounds.append(_times(test))
            again.append(test)
    if len(spans) > (MAX_SPANS if exact else 1):
        spans = ((spans[0][0], spans[-1][1]),)
        again += [test for test in filters if column_of(test) == "offset" and all(test is not other for other in again)]
    from_ms = max((first for first, _ in bounds if first is not None), default=None)
    before_ms = min((end for _, end in bounds if end is not None), default=None)
    return Narrowed(tuple(keys), spans, from_ms, before_ms), again


def narrow_batches(filters: Sequence[Filter]) -> tuple[Narrowed, list[Filter]]:
    """The same for rows that are batches, which are looked for by their last offsets: only filters on topic and
    partition are taken over, and those on base and last offset say which range to look at."""
    keys, again = narrow([test for test in filters if column_of(test) in ("topic", "partition")])
    others = [test for test in filters if column_of(test) not in ("topic", "partition")]
    first, end = 0, _END
    for test in others:
        column = column_of(test)
        if column in ("baseOffset", "lastOffset") and _comparable(test, int) and not _may_hold_of_null(test):
            spans = _spans(test)
            # The last offset is not below the base offset: what bounds one from below, bounds the other.
            first = max(first, spans[0][0] if spans else _END)
            end = min(end, spans[-1][1]) if spans and column == "lastOffset" else end
    return Narrowed(keys.keys, ((first, end),) if first < end else ()), again + others


def column_of(test: Filter) -> str | None:
    """The column that a filter is on; None for a field within a column, or a filter of an unknown kind."""
    while isinstance(test, Not):
        test = test.child
    path: tuple[str, ...] = getattr(test, "attribute", ())
    return path[0] if len(path) == 1 else None


def holds(test: Filter, own: Any) -> bool | None:
    """Whether a filter holds of a value that is not null; None is SQL's unknown. Raises TypeError for a filter of an
    unknown kind, or one with a value that this one cannot be compared with."""
    match test:
        case Not(child):
            inner = holds(child, own)
            return None if inner is None else not inner
        case IsNull():
            return False
        case IsNotNull():
            return True
        case EqualNullSafe(_, value):
            return own == value
        case In(_, values):
            if own in values:
                return True
            return None if None in values else False
    value: Any = getattr(test, "value", None)
    compare = _TESTS.get(type(test))
    if compare is None:
        raise TypeError(f"{type(test).__name__} is no known filter")
    return None if value is None else compare(own, value)


def _may_hold_of_null(test: Filter) -> bool:
    """As the base offset of an old wrapper is."""
    while isinstance(test, Not):
        test = test.child
    return isinstance(test, IsNull | IsNotNull | EqualNullSafe)


def _comparable(test: Filter, kind: type) -> bool:
    """Whether a filter is of a kind and with values that `holds` can tell of."""
    while isinstance(test, Not):
        test = test.child
    if isinstance(test, IsNull | IsNotNull):
        return True
    if isinstance(test, In):
        return all(value is None or type(value) is kind for value in test.value)
    if not isinstance(test, EqualNullSafe) and type(test) not in _TESTS:
        return False
    if kind is not str and isinstance(test, StringStartsWith | StringEndsWith | StringContains):
        return False
    value: Any = getattr(test, "value", None)
    return value is None or type(value) is kind


def _spans(test: Filter) -> Spans:
    """The offsets of which a filter holds. Where it changes its mind it does so at its own value: it is tried before,
    at and behind that."""
    inner, negated = test, False
    while isinstance(inner, Not):
        inner, negated = inner.child, not negated
    if isinstance(inner, In):
        if negated and None in inner.value:
            return ()
        numbers = sorted({number for number in inner.value if number is not None and 0 <= number < _END})
        found = _joined((number, number + 1) for number in numbers)
        return _others(found) if negated else found
    value: int | None = getattr(inner, "value", None)
    known = {value, value + 1} if value is not None and 0 <= value < _END else set()
    edges = sorted({0, _END} | known)
    return _joined((first, end) for first, end in pairwise(edges) if holds(test, first) is True)


def _others(spans: Spans) -> Spans:
    """All offsets that are not in these."""
    edges = [0, *(edge for span in spans for edge in span), _END]
    return tuple((first, end) for first, end in zip(edges[::2], edges[1::2], strict=True) if first < end)


def _joined(pieces: Iterable[tuple[int, int]]) -> Spans:
    found: list[tuple[int, int]] = []
    for first, end in pieces:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return tuple(found)


def _both(one: Spans, other: Spans) -> Spans:
    """What is in both, in one pass."""
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(one) and j < len(other):
        first, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if first < end:
            found.append((first, end))
        if one[i][1] <= other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def _times(test: Filter) -> tuple[int | None, int | None]:
    """The milliseconds, from and before, in which a timestamp can be that this filter holds of."""
    match test:
        case EqualTo(_, value) | EqualNullSafe(_, value) if (us := _microseconds(value)) is not None:
            return -(-us // 1000), us // 1000 + 1
        case In(_, values) if values and all(value is None or _microseconds(value) is not None for value in values):
            known = [us for value in values if (us := _microseconds(value)) is not None]
            return (-(-min(known) // 1000), max(known) // 1000 + 1) if known else (0, 0)
        case GreaterThan(_, value) | Not(LessThanOrEqual(_, value)) if (us := _microseconds(value)) is not None:
            return us // 1000 + 1, None
        case GreaterThanOrEqual(_, value) | Not(LessThan(_, value)) if (us := _microseconds(value)) is not None:
            return -(-us // 1000), None
        case LessThan(_, value) | Not(GreaterThanOrEqual(_, value)) if (us := _microseconds(value)) is not None:
            return None, -(-us // 1000)
        case LessThanOrEqual(_, value) | Not(GreaterThan(_, value)) if (us := _microseconds(value)) is not None:
            return None, us // 1000 + 1
    return None, None


def _microseconds(value: object) -> int | None:
    """Since the epoch. A time without a zone is of another type than the column and says nothing here."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value.astimezone(UTC) - _EPOCH) // _MICROSECOND

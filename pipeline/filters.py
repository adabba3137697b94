"""Narrows a query by Spark's filters: to partitions, offsets and timestamps.

Owns the meaning of a filter that is pushed down to a source, with nulls as in SQL. Sound: Spark's own evaluation would
drop every row that a narrowed query leaves out. Pure, apart from Spark's filter classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from .backend import OffsetRange, TopicPartition
from .spark_api import (
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

Spans = tuple[tuple[int, int], ...]
"""Offset ranges: pairs of first offset (inclusive) and end (exclusive), disjoint and ascending."""

MAX_SPANS = 64
"""The highest number of ranges. With more, the gaps between them are read too, and Spark filters again."""

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
    """The partitions, offsets and times that the filters of a query leave.

    `keys` are filters on topic and partition. `spans` are the offsets that can have a matching row. `from_ms`
    (inclusive) and `before_ms` (exclusive) bound the timestamps, in epoch milliseconds.
    """

    keys: tuple[Filter, ...] = ()
    spans: Spans = _ALL
    from_ms: int | None = None
    before_ms: int | None = None

    @property
    def nothing(self) -> bool:
        """True if no row can match."""
        return not self.spans or (
            self.from_ms is not None and self.before_ms is not None and self.from_ms >= self.before_ms
        )

    def partitions(self, known: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns the partitions that can have a matching row."""
        if self.nothing:
            return []
        return [key for key in known if all(holds(test, getattr(key, column_of(test) or "")) for test in self.keys)]

    def ranges(self, whole: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Returns the parts of these ranges that can have a matching row, in their order."""
        cut = [
            OffsetRange(of.topic, of.partition, max(of.start, first), min(of.end, end))
            for of in whole
            for first, end in self.spans
        ]
        return [range_ for range_ in cut if range_.size]


def narrow(filters: Sequence[Filter], *, exact: bool = True, times: bool = True) -> tuple[Narrowed, list[Filter]]:
    """Returns what the filters leave to read, and the filters that Spark must evaluate again (the same objects, as
    Spark requires).

    `exact`: every row has an offset within the range that is read, so a range can be read in parts; without it one
    range remains, and Spark evaluates filters on offsets again. Filters on timestamps are always evaluated again;
    without `times` they do not narrow the query.
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
    """Returns the same for the source of batches. Filters on topic and partition are fully applied; those on base and
    last offset only bound the range."""
    keys, again = narrow([test for test in filters if column_of(test) in ("topic", "partition")])
    others = [test for test in filters if column_of(test) not in ("topic", "partition")]
    first, end = 0, _END
    for test in others:
        column = column_of(test)
        if column in ("baseOffset", "lastOffset") and _comparable(test, int) and not _may_hold_of_null(test):
            spans = _spans(test)
            # The last offset is never below the base offset, so a lower bound of the base offset holds for both.
            first = max(first, spans[0][0] if spans else _END)
            end = min(end, spans[-1][1]) if spans and column == "lastOffset" else end
    return Narrowed(keys.keys, ((first, end),) if first < end else ()), again + others


def column_of(test: Filter) -> str | None:
    """Returns the column of a filter, or None for a nested field or a filter of an unknown kind."""
    while isinstance(test, Not):
        test = test.child
    path: tuple[str, ...] = getattr(test, "attribute", ())
    return path[0] if len(path) == 1 else None


def holds(test: Filter, own: Any) -> bool | None:
    """Returns whether a filter matches a value that is not null; None is SQL's unknown. Raises TypeError for a filter
    of an unknown kind, and for a filter whose value cannot be compared."""
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
    """Returns whether the filter can match a null, such as the base offset of an old message set."""
    while isinstance(test, Not):
        test = test.child
    return isinstance(test, IsNull | IsNotNull | EqualNullSafe)


def _comparable(test: Filter, kind: type) -> bool:
    """Returns whether `holds` can evaluate a filter for values of the type `kind`."""
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
    """Returns the offsets that match a filter. A comparison changes its result only at its own value, so one test
    below, one at and one above that value suffice."""
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
    """Returns the complement of these ranges."""
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
    """Returns the intersection, in one pass."""
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
    """Returns the bounds (from, before; milliseconds) of the timestamps that can match this filter."""
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
    """Returns microseconds since the epoch, or None for a time without a zone, whose type is not the column's."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value.astimezone(UTC) - _EPOCH) // _MICROSECOND

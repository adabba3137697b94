"""Filter pushdown: a row that matches is never skipped, and handled filters are exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import OffsetRange, TopicPartition
from ottla.pipeline.filters import MAX_SPANS, Narrowed, column_of, narrow, narrow_batches
from ottla.pipeline.spark_api import (
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

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = (UTC, timezone(timedelta(hours=-7)), ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata"))
TOPICS = ("a", "ab", "b", "é", "")
KINDS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def sql(test: Filter, row: dict[str, Any]) -> bool | None:
    """Evaluates a filter with SQL's rules, written independently: None is unknown."""
    if isinstance(test, Not):
        inner = sql(test.child, row)
        return None if inner is None else not inner
    own = row[test.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(test, IsNull):
        return own is None
    if isinstance(test, IsNotNull):
        return own is not None
    value = test.value  # type: ignore[attr-defined]
    if isinstance(test, EqualNullSafe):
        return own == value
    if own is None:
        return None
    if isinstance(test, In):
        return True if any(own == one for one in value if one is not None) else None if None in value else False
    if value is None:
        return None
    order = (own > value) - (own < value)
    results = {
        EqualTo: order == 0,
        GreaterThan: order > 0,
        GreaterThanOrEqual: order >= 0,
        LessThan: order < 0,
        LessThanOrEqual: order <= 0,
    }
    if type(test) in results:
        return results[type(test)]
    return {
        StringStartsWith: own[: len(value)] == value,
        StringEndsWith: own[len(own) - len(value) :] == value,
        StringContains: own.find(value) >= 0,
    }[type(test)]


def moment(ms: int, us: int, zone: Any) -> datetime:
    return (EPOCH + timedelta(milliseconds=ms, microseconds=us)).astimezone(zone)


offsets = st.integers(-3, 12) | st.just(2**63 - 1)
numbers = st.none() | offsets
partitions = st.none() | st.integers(-1, 3)
texts = st.none() | st.sampled_from(TOPICS)
moments = st.builds(moment, st.integers(-3, 12), st.sampled_from((0, 0, 1, 999)), st.sampled_from(ZONES))
times = st.none() | moments


def of_column(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    path = st.just((column,))
    one = st.sampled_from(KINDS).flatmap(lambda kind: st.builds(kind, path, values))
    plain = one | st.builds(In, path, st.lists(values, max_size=4).map(tuple)) | st.builds(IsNull, path)
    plain = plain | st.builds(IsNotNull, path)
    if column == "topic":
        known = st.sampled_from(TOPICS)
        plain |= st.sampled_from((StringStartsWith, StringEndsWith, StringContains)).flatmap(
            lambda kind: st.builds(kind, path, known)
        )
    return plain | st.builds(Not, plain)


filters = st.lists(
    st.one_of(
        of_column("topic", texts),
        of_column("partition", partitions),
        of_column("offset", numbers),
        of_column("timestamp", times),
        of_column("value", texts),
    ),
    max_size=5,
)
rows = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(TOPICS),
        "partition": st.integers(0, 3),
        "offset": st.integers(0, 12),
        "timestamp": st.integers(-3, 12),
        "value": texts,
    }
)


def looked_at(found: Narrowed, row: dict[str, Any]) -> bool:
    """Returns whether a narrowed query reads this row."""
    key = TopicPartition(row["topic"], row["partition"])
    if found.partitions([key]) != [key]:
        return False
    if not any(one.start <= row["offset"] < one.end for one in found.ranges([OffsetRange(*key, 0, 13)])):
        return False
    early = found.from_ms is not None and row["timestamp"] < found.from_ms
    return not early and not (found.before_ms is not None and row["timestamp"] >= found.before_ms)


@given(filters, rows, st.booleans())
def test_narrow_keeps_all_matching_rows_and_handled_filters_exact(
    pushed: list[Filter], row: dict[str, Any], exact: bool
) -> None:
    found, again = narrow(pushed, exact=exact)
    seen = row | {"timestamp": moment(row["timestamp"], 0, UTC)}
    wanted = all(sql(test, seen) is True for test in pushed)
    came = looked_at(found, row) and all(sql(test, seen) is True for test in again)
    assert came == wanted
    assert all(any(test is one for one in pushed) for test in again)
    assert exact or len(found.spans) <= 1


@given(filters)
def test_narrow_handled_filters(pushed: list[Filter]) -> None:
    _, again = narrow(pushed)
    for test in pushed:
        handled = column_of(test) in ("topic", "partition", "offset")
        assert any(test is one for one in again) != handled


def one(test: Filter) -> tuple[int | None, int | None]:
    found, again = narrow([test])
    assert again == [test]
    return found.from_ms, found.before_ms


def test_narrow_times_between_milliseconds() -> None:
    whole, between = moment(5, 0, ZONES[1]), moment(5, 1, ZONES[3])
    path = ("timestamp",)
    assert one(EqualTo(path, whole)) == (5, 6)
    assert one(EqualTo(path, between)) == (6, 6)
    assert narrow([EqualTo(path, between)])[0].nothing
    assert one(GreaterThan(path, whole)) == (6, None) == one(Not(LessThanOrEqual(path, whole)))
    assert one(GreaterThan(path, between)) == (6, None)
    assert one(GreaterThanOrEqual(path, whole)) == (5, None) == one(Not(LessThan(path, whole)))
    assert one(GreaterThanOrEqual(path, between)) == (6, None)
    assert one(LessThan(path, whole)) == (None, 5) == one(Not(GreaterThanOrEqual(path, whole)))
    assert one(LessThan(path, between)) == (None, 6) == one(LessThanOrEqual(path, between))
    assert one(LessThanOrEqual(path, whole)) == (None, 6) == one(Not(GreaterThan(path, whole)))
    assert one(In(path, (whole, moment(9, 0, UTC), None))) == (5, 10)
    found, _ = narrow([GreaterThan(path, whole), LessThan(path, moment(9, 0, UTC)), GreaterThan(path, between)])
    assert (found.from_ms, found.before_ms, found.nothing) == (6, 9, False)


def test_narrow_time_in_repeated_hour() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    assert one(EqualTo(("timestamp",), first))[0] == 1792888200000
    assert one(EqualTo(("timestamp",), first.replace(fold=1)))[0] == 1792888200000 + 3_600_000


@pytest.mark.parametrize(
    "test",
    [
        EqualTo(("timestamp",), datetime(2026, 1, 1)),
        GreaterThan(("timestamp",), None),
        In(("timestamp",), (moment(1, 0, UTC), "2026")),
        EqualTo(("offset",), 1.5),
        EqualTo(("offset",), True),
        In(("partition",), (0, "1")),
        EqualTo(("topic",), b"a"),
        StringContains(("partition",), "1"),
        EqualTo(("topic", "part"), "a"),
        IsNotNull(("key",)),
    ],
)
def test_narrow_unknown_filter_left_to_spark(test: Filter) -> None:
    found, again = narrow([test])
    assert again == [test] and again[0] is test
    assert found == Narrowed()


def test_narrow_many_offsets_become_one_range() -> None:
    some = In(("offset",), tuple(range(0, 2 * MAX_SPANS, 2)))
    found, again = narrow([some])
    assert len(found.spans) == MAX_SPANS and not again
    many = In(("offset",), tuple(range(0, 100_000, 2)))
    found, again = narrow([many, Not(EqualTo(("offset",), 4))])
    assert found.spans == ((0, 99_999),) and len(again) == 2
    whole = OffsetRange("a", 0, 50, 200_000)
    assert found.ranges([whole]) == [OffsetRange("a", 0, 50, 99_999)]


batches = st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()).map(
    lambda found: {"base": min(found[:2]), "last": max(found[:2]), "wrapper": found[2]}
)


@given(
    st.lists(
        st.sampled_from(("topic", "baseOffset", "lastOffset", "crc")).flatmap(
            lambda name: of_column(name, texts if name == "topic" else numbers)
        ),
        max_size=4,
    ),
    batches,
)
def test_narrow_batches_keeps_all_matching_batches(pushed: list[Filter], batch: dict[str, Any]) -> None:
    found, again = narrow_batches(pushed)
    row = {
        "topic": "a",
        "baseOffset": None if batch["wrapper"] else batch["base"],
        "lastOffset": batch["last"],
        "crc": 1,
    }
    wanted = all(sql(test, row) is True for test in pushed)
    ranges = found.ranges([OffsetRange("a", 0, 0, 13)])
    seen = any(one.start <= batch["last"] < one.end for one in ranges)
    seen = seen and bool(found.partitions([TopicPartition("a", 0)]))
    assert (seen and all(sql(test, row) is True for test in again)) == wanted
    assert len(ranges) <= 1
    assert all((column_of(test) == "topic") != any(test is one for one in again) for test in pushed)

"""`assert_produced`: the comparison of records, and the text of a difference."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.admin_api.views import NewRecord, Record
from ottla.broker.testing import record_comparison
from ottla.broker.testing.record_comparison import SHOWN_LINES, expectations


def record(value: bytes | None, key: bytes | None = None, offset: int = 0, **more: Any) -> Record:
    return Record(
        **{"topic": "t", "partition": 0, "offset": offset, "timestamp_ms": 7, "key": key, "value": value, **more}
    )


def of(*values: bytes) -> list[Record]:
    return [record(value, offset=offset) for offset, value in enumerate(values)]


def difference(topic: str, found: list[Record], expected: Any, ordered: bool = True) -> str | None:
    return record_comparison.difference(topic, found, expectations(expected), ordered)


def test_matching_records_have_no_difference():
    found = [record(b"1", b"k", 0), record(None, b"k", 1, headers=(("h", b"x"),)), record("3é".encode(), None, 2)]
    assert difference("t", found, [b"1", None, "3é"]) is None
    assert difference("t", found, [("k", "1"), (b"k", None), "3é"]) is None
    assert difference("t", found, found) is None
    assert difference("t", found, [b"1", NewRecord(None, "k", (("h", "x"),), partition=0), NewRecord("3é")]) is None
    assert difference("t", found, reversed([b"1", None, "3é"]), ordered=False) is None
    assert difference("t", [], []) is None
    assert difference("t", found, (one for one in [b"1", None, "3é"])) is None


def test_difference_lists_missing_and_unexpected_records():
    found = of(*(b"%d" % number for number in range(9)))
    assert difference("orders", found, [b"%d" % number for number in range(9) if number != 4]) == (
        "topic orders: expected 8 (-), found 9 (+)\n    b'2'\n    b'3'\n  + b'4'\n    b'5'\n    b'6'"
    )
    assert difference("orders", of(b"a", b"b"), [b"a", b"x"]) == (
        "topic orders: expected 2 (-), found 2 (+)\n    b'a'\n  - b'x'\n  + b'b'"
    )
    assert difference("orders", of(b"b", b"a"), [("k", "a"), "b"], ordered=False) == (
        "topic orders: expected 2 (-), found 2 (+), in any order\n  - key=b'k' value=b'a'\n  + key=None value=b'a'"
    )
    assert difference("orders", [], [Record("orders", 0, 0, 7, None, b"a")]) == (
        "topic orders: expected 1 (-), found 0 (+)\n"
        "  - partition=0 offset=0 timestamp_ms=7 key=None value=b'a' headers=()"
    )


def test_unnamed_fields_match_any_value():
    assert difference("t", of(b"a"), [("k", "a"), "b"]) == (
        "topic t: expected 2 (-), found 1 (+)\n  - key=b'k' value=b'a'\n  - key=any value=b'b'\n  + key=None value=b'a'"
    )


def test_difference_in_fields_shown_for_other_records_is_visible():
    found = [record(b"a", b"k")]
    result = difference("t", found, [record(b"a", b"k", timestamp_ms=8)])
    assert result is not None and "timestamp_ms=8" in result and "timestamp_ms=7" in result


def test_long_values_and_differences_are_cut():
    result = difference("t", of(bytes(100_000)), [bytes(99_999) + b"x"])
    assert result is not None and len(result) < 2000 and result.count("(100000 bytes, CRC-32 ") == 2
    many = difference("t", of(*[b"a"] * 5000), [b"b"] * 5000)
    assert many is not None and many.count("\n") == SHOWN_LINES + 1 and many.endswith("9940 more lines")
    none_of_many = difference("t", [], [b"b"] * 5000, ordered=False)
    assert none_of_many is not None and none_of_many.endswith("4940 more lines")


@pytest.mark.parametrize("wrong", [5, ["a"], ("a", "b", "c"), ("a", 1)])
def test_invalid_expectations_are_refused(wrong: Any):
    with pytest.raises(TypeError):
        difference("t", of(b"a"), [wrong])


VALUES = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=12)


@given(VALUES, VALUES)
def test_difference_exists_exactly_if_the_lists_differ(found: list[bytes], wanted: list[bytes]):
    assert (difference("t", of(*found), wanted) is None) == (found == wanted)
    assert (difference("t", of(*found), wanted, ordered=False) is None) == (sorted(found) == sorted(wanted))


@given(VALUES, st.randoms())
def test_unordered_comparison_ignores_order(found: list[bytes], rng: random.Random):
    mixed: list[Any] = [(None, value) if rng.random() < 0.5 else value for value in found]
    rng.shuffle(mixed)
    assert difference("t", of(*found), mixed, ordered=False) is None

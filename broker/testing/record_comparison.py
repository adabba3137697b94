"""Compares the records of a topic with a test's expectations, and formats the difference.

Pure: records are passed in as values. Defines the forms of an expectation (a value, a (key, value) pair or a whole
record) and the text of the difference, which is bounded.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import SequenceMatcher
from itertools import zip_longest
from pprint import saferepr
from typing import Any, cast

from ...protocol.narrowing import is_tuple
from ..admin_api.views import NewRecord, Record, to_bytes

SHOWN_LINES = 60  # of a difference
SHOWN_BYTES = 200  # of one key or value
SHOWN_DECODED = 500  # characters of a decoded key or value
CONTEXT_LINES = 2
ALIGNED_LINES = 2_000  # more lines are compared position by position, in linear time

Wanted = dict[str, Any]
"""The expected fields of one record, by the names of Record's fields; fields without a name here match any value."""
_FIELDS = tuple(field.name for field in fields(Record))
_SHOWN = ("partition", "offset", "timestamp_ms", "key", "value", "headers")


def wanted_of(expected: Any, decoded: bool = False, key_decoded: bool = False) -> Wanted:
    """Returns an expectation by fields. Expectations of decoded values or keys are compared unchanged; others are
    bytes, or text that is encoded as UTF-8. Raises TypeError."""
    value_of, key_of = (_as_is if is_decoded else to_bytes for is_decoded in (decoded, key_decoded))
    if isinstance(expected, Record):
        return _all(expected)
    if isinstance(expected, NewRecord):
        found: Wanted = {"value": value_of(expected.value), "key": key_of(expected.key)}
        found["headers"] = tuple((name, to_bytes(value)) for name, value in expected.headers)
        optional = {"partition": expected.partition, "timestamp_ms": expected.timestamp_ms}
        return found | {name: value for name, value in optional.items() if value is not None}
    if is_tuple(expected):
        if len(expected) != 2:
            raise TypeError(f"an expected record is a value, a (key, value) pair or a Record, not {expected!r}")
        return {"key": key_of(expected[0]), "value": value_of(expected[1])}
    return {"value": value_of(expected)}


def _as_is(value: Any) -> Any:
    return value


def expectations(expected: Any, decoded: bool = False, key_decoded: bool = False) -> list[Wanted]:
    """Returns all expectations by fields. Raises TypeError unless it is a list of them."""
    if isinstance(expected, str | bytes | Mapping | Record | NewRecord) or not isinstance(expected, Iterable):
        raise TypeError(f"expected is a list of values, (key, value) pairs or Records, not {expected!r}")
    return [wanted_of(one, decoded, key_decoded) for one in cast("Iterable[Any]", expected)]


def difference(topic: str, found: Sequence[Record], wanted: Sequence[Wanted], ordered: bool = True) -> str | None:
    """Returns the difference between the records and those expected, in a few lines; None if there is none.

    Only fields that an expectation names are compared: not the key of a plain value, nor the offset of a pair. In an
    `ordered` comparison the records are ordered by partition and offset.
    """
    if len(found) == len(wanted) and all(_fits(f, w) for f, w in zip(found, wanted, strict=True)):
        return None
    named = {name for one in wanted for name in one} or {"key", "value"}
    shown = [name for name in _SHOWN if name in named]
    if ordered:
        lines = list(_aligned([_line(one, shown) for one in wanted], [_line(_all(one), shown) for one in found]))
    else:
        missing, surplus = _unmatched(found, wanted)
        if not missing and not surplus:
            return None
        lines = [f"- {_line(one, shown)}" for one in missing] + [f"+ {_line(_all(one), shown)}" for one in surplus]
    if len(lines) > SHOWN_LINES:
        lines = [*lines[:SHOWN_LINES], f"  ... {len(lines) - SHOWN_LINES} more lines"]
    order = "" if ordered else ", in any order"
    head = f"topic {topic}: expected {len(wanted)} (-), found {len(found)} (+){order}"
    return "\n".join([head, *(f"  {line}" for line in lines)])


def _all(record: Record) -> Wanted:
    return {name: getattr(record, name) for name in _FIELDS}


def _fits(record: Record, wanted: Wanted) -> bool:
    return all(getattr(record, name) == value for name, value in wanted.items())


def _unmatched(found: Sequence[Record], wanted: Sequence[Wanted]) -> tuple[list[Wanted], list[Record]]:
    """Returns expectations without a record, and records without an expectation. Expectations with most fields are
    matched first."""
    left = list(found)
    missing: list[Wanted] = []
    for names in sorted({tuple(sorted(one)) for one in wanted}, key=len, reverse=True):
        group = [one for one in wanted if tuple(sorted(one)) == names]
        try:
            lacking, left = _counted(group, left, names)
        except TypeError:  # a decoded value is not hashable
            lacking, left = _searched(group, left)
        missing += lacking
    return missing, left


def _counted(
    group: Sequence[Wanted], left: Sequence[Record], names: Sequence[str]
) -> tuple[list[Wanted], list[Record]]:
    needed = Counter(tuple(one[name] for name in names) for one in group)

    def take(key: tuple[Any, ...]) -> bool:
        is_needed = needed[key] > 0
        needed[key] -= is_needed
        return is_needed

    rest = [record for record in left if not take(tuple(getattr(record, name) for name in names))]
    return [one for one in group if take(tuple(one[name] for name in names))], rest


def _searched(group: Sequence[Wanted], left: Sequence[Record]) -> tuple[list[Wanted], list[Record]]:
    rest = list(left)
    missing: list[Wanted] = []
    for one in group:
        place = next((number for number, record in enumerate(rest) if _fits(record, one)), None)
        if place is None:
            missing.append(one)
        else:
            del rest[place]
    return missing, rest


def _line(wanted: Wanted, shown: Sequence[str]) -> str:
    if list(shown) == ["value"]:
        return _text(wanted.get("value"))
    return " ".join(f"{name}={_text(wanted[name]) if name in wanted else 'any'}" for name in shown)


def _text(value: Any) -> str:
    # The checksum distinguishes values that differ only in the part that is cut off.
    if isinstance(value, bytes):
        if len(value) <= SHOWN_BYTES:
            return repr(value)
        return f"{value[:SHOWN_BYTES]!r}... ({len(value)} bytes, CRC-32 {zlib.crc32(value):08x})"
    text = saferepr(value)  # the keys of dicts in order, so that equal ones look equal
    if len(text) <= SHOWN_DECODED or isinstance(value, tuple):
        return text
    return f"{text[:SHOWN_DECODED]}... ({len(text)} characters, CRC-32 {zlib.crc32(text.encode(errors='replace')):08x})"


def _aligned(wanted: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    """Yields the lines of both sides aligned: "-" marks missing records, "+" unexpected ones."""
    if max(len(wanted), len(found)) > ALIGNED_LINES:
        yield from _by_place(wanted, found)
        return
    groups = SequenceMatcher(None, wanted, found, autojunk=False).get_grouped_opcodes(CONTEXT_LINES)
    for number, group in enumerate(groups):
        if number:
            yield "  ..."
        for kind, first, last, low, high in group:
            if kind == "equal":
                yield from (f"  {line}" for line in wanted[first:last])
                continue
            yield from (f"- {line}" for line in wanted[first:last])
            yield from (f"+ {line}" for line in found[low:high])


def _by_place(wanted: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    for place, (one, other) in enumerate(zip_longest(wanted, found)):
        if one == other:
            continue
        if one is not None:
            yield f"- [{place}] {one}"
        if other is not None:
            yield f"+ [{place}] {other}"

"""Compares the records of a topic with those a test expects, and tells the difference so that a person sees it.

Pure: records come in as values. Owns what an expectation may be: a value, a (key, value) pair, or a whole record; and
the text of the difference, which is bounded.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import SequenceMatcher
from typing import Any

from .control.views import NewRecord, Record, to_bytes

SHOWN_LINES = 60  # of a difference
SHOWN_BYTES = 200  # of one key or value
CONTEXT_LINES = 2
ALIGNED_LINES = 2_000  # beyond that many the lines are compared place by place, which costs no more than they are

Wanted = dict[str, Any]
"""What is expected of one record, by the names of Record's fields; what is not named may be anything."""
_FIELDS = tuple(field.name for field in fields(Record))
_SHOWN = ("partition", "offset", "timestamp_ms", "key", "value", "headers")


def wanted_of(expected: Any) -> Wanted:
    """An expectation by fields. Raises TypeError for what is none."""
    if isinstance(expected, Record):
        return {name: getattr(expected, name) for name in _FIELDS}
    if isinstance(expected, NewRecord):
        found: Wanted = {"value": to_bytes(expected.value), "key": to_bytes(expected.key)}
        found["headers"] = tuple((name, to_bytes(value)) for name, value in expected.headers)
        optional = {"partition": expected.partition, "timestamp_ms": expected.timestamp_ms}
        return found | {name: value for name, value in optional.items() if value is not None}
    if isinstance(expected, tuple):
        if len(expected) != 2:
            raise TypeError(f"an expected record is a value, a (key, value) pair or a Record, not {expected!r}")
        return {"key": to_bytes(expected[0]), "value": to_bytes(expected[1])}
    return {"value": to_bytes(expected)}


def difference(topic: str, found: Sequence[Record], expected: Iterable[Any], ordered: bool = True) -> str | None:
    """Why the records are not those expected, in a few lines; None if they are.

    What an expectation does not name (the key of a plain value, the offset of a pair) is not compared. In an `ordered`
    comparison the records stand by partition and offset.
    """
    if isinstance(expected, str | bytes | Mapping | Record | NewRecord) or not isinstance(expected, Iterable):
        raise TypeError(f"what is expected is a list of values, (key, value) pairs or Records, not {expected!r}")
    wanted = [wanted_of(one) for one in expected]
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
    """Expectations without a record, and records without one. Those that name most choose first."""
    left = list(found)
    missing: list[Wanted] = []
    for names in sorted({tuple(sorted(one)) for one in wanted}, key=len, reverse=True):
        asked = [one for one in wanted if tuple(sorted(one)) == names]
        needed = Counter(tuple(one[name] for name in names) for one in asked)
        rest: list[Record] = []
        for record in left:
            key = tuple(getattr(record, name) for name in names)
            if needed[key] > 0:
                needed[key] -= 1
            else:
                rest.append(record)
        left = rest
        for one in asked:
            key = tuple(one[name] for name in names)
            if needed[key] > 0:
                needed[key] -= 1
                missing.append(one)
    return missing, left


def _line(wanted: Wanted, shown: Sequence[str]) -> str:
    if list(shown) == ["value"]:
        return _text(wanted.get("value"))
    return " ".join(f"{name}={_text(wanted[name]) if name in wanted else 'any'}" for name in shown)


def _text(value: Any) -> str:
    if isinstance(value, bytes) and len(value) > SHOWN_BYTES:
        # The checksum tells those apart that differ only in what is not shown.
        return f"{value[:SHOWN_BYTES]!r}... ({len(value)} bytes, CRC-32 {zlib.crc32(value):08x})"
    return repr(value)


def _aligned(wanted: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    """The lines of both with what is expected and missing, and what is there and not expected."""
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
    for place in range(max(len(wanted), len(found))):
        one = wanted[place] if place < len(wanted) else None
        other = found[place] if place < len(found) else None
        if one == other:
            continue
        if one is not None:
            yield f"- [{place}] {one}"
        if other is not None:
            yield f"+ [{place}] {other}"

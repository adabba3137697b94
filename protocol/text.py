"""Times, durations and aligned columns as text, and text that people write for times and durations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(?:[0-9]{1,15}(?:ms|min|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|min|[smhdw])")
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def lines(rows: Sequence[Sequence[str]], widths: Sequence[int] = ()) -> Iterator[str]:
    """Each row as one line; every column as wide as its widest cell, or as `widths` says for rows that come later."""
    if not widths:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"


def time_text(milliseconds: int) -> str:
    """Epoch milliseconds as a date; empty for what is none."""
    if milliseconds < 0:
        return ""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def moment(milliseconds: int) -> str:
    """Epoch milliseconds as `2026-11-21 09:12:40.123`; the number itself where it is no date, "-" for none."""
    if milliseconds == -1:
        return "-"
    text = time_text(milliseconds)
    return text.rstrip("Z").replace("T", " ") if text else str(milliseconds)


def known(number: int) -> str:
    """A number, or "-" for -1."""
    return "-" if number == -1 else str(number)


def duration(milliseconds: int) -> str:
    """Milliseconds in the largest unit of which they are a whole number."""
    for size, unit in _UNITS:
        if milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


def duration_ms(text: str) -> int:
    """`7d`, `45s`, `500ms`, `1h30m` as milliseconds. Raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration, such as 7d, 45s, 500ms or 1h30m")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))


def time_ms(text: str) -> int:
    """`2026-01-31`, `2026-01-31T12:00:00Z` or milliseconds since 1970, as these; UTC where no zone is said.

    Raises ValueError.
    """
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no time, such as 2026-01-31T12:00:00Z or milliseconds since 1970"
        raise ValueError(message) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def places(text: str) -> list[dict[str, Any]]:
    """The partitions of TOPIC or TOPIC:0,1. Raises ValueError."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return [{"topic": topic}]
    found = numbers.split(",")
    if not all(number.isascii() and number.isdigit() and len(number) < 11 for number in found):
        raise ValueError(f"{text!r} is not TOPIC or TOPIC:0,1")
    return [{"topic": topic, "partition": int(number)} for number in found]

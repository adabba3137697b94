"""Text for people: formats names, numbers, sizes, times, durations and tables, and parses times and durations.

Independent of Kafka; it is in this package because every other package may import this one. One unit system: binary
units for bytes (KiB, MiB), decimal ones for counts (k, M), "ms", "s", "m", "h" and "d" for times. The clones of Kafka's
own tools print in Kafka's format instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

NONE = "-"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(?:[0-9]{1,15}(?:ms|min|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|min|[smhdw])")
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_BYTES = (" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB")
_COUNTS = ("", "k", "M", "G", "T", "P", "E")
_LONG = (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1))


# Names


def visible(value: object) -> str:
    """Returns the value as one line of printable characters; others, such as terminal escapes, are written as Python
    escapes."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def plural(number: int, word: str) -> str:
    """Formats a count with its noun: `1 topic`, `12 topics`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


# Numbers


def known(number: int) -> str:
    """Formats a number; "-" for -1."""
    return NONE if number == -1 else str(number)


def count(number: float | None) -> str:
    """Formats a count: `12,345`, `1.23M`; "-" for None."""
    if number is None:
        return NONE
    return f"{number:,.0f}" if abs(number) < 100_000 else _scaled(number, 1000, _COUNTS)


def rate(number: float | None) -> str:
    """Formats events per second, with a decimal below 10; "-" for None."""
    if number is None or number == 0 or abs(number) >= 9.95:
        return count(number)
    return f"{number:.1f}" if abs(number) >= 0.05 else "<0.1"


def size(number: float | None) -> str:
    """Formats bytes: `512 B`, `1.5 MiB`; "-" for None."""
    if number is None:
        return NONE
    return f"{number:.0f} B" if abs(number) < 1024 else _scaled(number, 1024, _BYTES)


def speed(size_bytes: float, seconds: float) -> str:
    """Formats bytes per second: `1.5 MiB/s`."""
    return f"{size(size_bytes / max(seconds, 1e-6))}/s"


def _scaled(number: float, base: int, units: Sequence[str]) -> str:
    """Formats a number with three significant digits, or four below 1024, and a unit."""
    power = 0
    while abs(number) >= base - 0.5 and power < len(units) - 1:
        number /= base
        power += 1
    return _short(number) + units[power]


def _short(number: float) -> str:
    """Formats three significant digits, without zeros at the end of a fraction."""
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def java_double(value: float) -> str:
    """Formats a double like Java: always with a point, with an exponent below 0.001 and from 10,000,000 on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    if not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), "NaN")
    from decimal import Decimal  # takes 3 ms to import, and hardly any number needs it

    sign, figures, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    digits = "".join(map(str, figures))
    return f"{'-' * sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent) + len(digits) - 1}"


# Tables


def lines(rows: Sequence[Sequence[str]], widths: Sequence[int] = ()) -> Iterator[str]:
    """Yields each row as one line. A column is as wide as its widest cell, or as given in `widths` if more rows
    follow."""
    if not widths:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"


def cell(value: object) -> str:
    """Formats a table cell: "-" for None, yes and no for booleans, everything else as printable text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NONE if value is None else visible(value)


def table(
    rows: Iterable[Sequence[Any]],
    head: Sequence[str] | None = None,
    *,
    numbers: Collection[int] | None = None,
    most: int | None = None,
) -> list[str]:
    """Returns the lines of a table: `head`, if given, and the rows, with cells of any type.

    A column is as wide as its widest cell, at most `most`; a longer cell pushes the rest of its line to the right. The
    columns in `numbers` are aligned to the right; by default those that hold only numbers and None.
    """
    values = [list(row) for row in rows]
    if numbers is None:
        numbers = [place for place, column in enumerate(zip(*values, strict=True)) if _are_numbers(column)]
    cells = [[cell(value) for value in row] for row in values]
    if head is not None:
        cells.insert(0, list(head))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths = widths if most is None else [min(width, most) for width in widths]
    aligned = [
        [
            text.rjust(width) if place in numbers else text
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in cells
    ]
    return list(lines(aligned, widths))


def _are_numbers(column: Iterable[object]) -> bool:
    found = [value for value in column if value is not None]
    return bool(found) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in found)


# Times


def time_text(milliseconds: int) -> str:
    """Formats epoch milliseconds as a UTC date; "" for negative or unrepresentable times."""
    if milliseconds < 0:
        return ""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def moment(milliseconds: int | None) -> str:
    """Formats epoch milliseconds as `2026-11-21 09:12:40.123`; the number itself if it is not a date, "-" for -1 and
    None."""
    if milliseconds is None or milliseconds == -1:
        return NONE
    text = time_text(milliseconds)
    return text.rstrip("Z").replace("T", " ") if text else str(milliseconds)


def elapsed(milliseconds: float | None) -> str:
    """Formats how long something took, or how long ago it was: `420 µs`, `35 ms`, `1.5 s`, `3m 12s`, `2d 4h`; "-" for
    None."""
    if milliseconds is None:
        return NONE
    if milliseconds < 0:
        return f"-{elapsed(-milliseconds)}"
    if milliseconds < 999.5:
        return f"{milliseconds * 1000:.0f} µs" if 0 < milliseconds < 0.9995 else f"{_short(milliseconds)} ms"
    seconds = milliseconds / 1000
    if seconds < 59.95:
        return f"{_short(seconds)} s"
    whole = round(seconds)
    unit, length, lower, part = next(step for step in _LONG if whole >= step[1])
    return f"{whole // length}{unit} {whole % length // part}{lower}"


def duration(milliseconds: int) -> str:
    """Formats a configured duration: milliseconds in the largest unit that divides them."""
    for size, unit in _UNITS:
        if milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


def duration_ms(text: str) -> int:
    """Parses `7d`, `45s`, `500ms` or `1h30m` to milliseconds. Raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration, such as 7d, 45s, 500ms or 1h30m")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))


def time_ms(text: str) -> int:
    """Parses `2026-01-31`, `2026-01-31T12:00:00Z` or epoch milliseconds to epoch milliseconds. UTC is the default zone.

    Raises ValueError.
    """
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is not a time, such as 2026-01-31T12:00:00Z or milliseconds since 1970"
        raise ValueError(message) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def places(text: str) -> list[dict[str, Any]]:
    """Parses TOPIC or TOPIC:0,1 to a list of topics or partitions. Raises ValueError."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return [{"topic": topic}]
    found = numbers.split(",")
    if not all(number.isascii() and number.isdigit() and len(number) < 11 for number in found):
        raise ValueError(f"{text!r} is not TOPIC or TOPIC:0,1")
    return [{"topic": topic, "partition": int(number)} for number in found]

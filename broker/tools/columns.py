"""Rows of cells as lines of aligned columns, and how times are shown in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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

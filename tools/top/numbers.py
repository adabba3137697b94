"""Numbers and durations as they are shown: short, and the same width for about the same size."""

from __future__ import annotations

UNKNOWN = "-"
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")


def count(number: float | None) -> str:
    """`12,345`, `1.23M`."""
    if number is None:
        return UNKNOWN
    if abs(number) < 100_000:
        return f"{number:,.0f}"
    return _scaled(number, 1000, _DECIMAL)


def rate(number: float | None) -> str:
    """How many a second: as `count`, with a decimal where there are few."""
    if number is None or number == 0 or abs(number) >= 9.95:
        return count(number)
    return f"{number:.1f}" if abs(number) >= 0.05 else "<0.1"


def size(number: float | None) -> str:
    """`512 B`, `1.5 MiB`."""
    if number is None:
        return UNKNOWN
    return f"{number:.0f} B" if abs(number) < 1024 else _scaled(number, 1024, _BINARY, " ")


def _scaled(number: float, base: int, units: tuple[str, ...], blank: str = "") -> str:
    """Three digits, or four below 1024, and a unit."""
    power = 0
    while abs(number) >= base - 0.5 and power < len(units) - 1:
        number /= base
        power += 1
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{digits}f}{blank}{units[power]}"


def duration(milliseconds: float | None) -> str:
    """`0.42 ms`, `35 ms`, `1.25 s`, `3m 12s`, `2d 4h`."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 1000:
        is_exact = milliseconds >= 10 or milliseconds == int(milliseconds)
        return f"{milliseconds:.0f} ms" if is_exact else f"{milliseconds:.2f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{int(seconds)} s"
    whole = int(seconds)
    for unit, length, lower, part in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length}{unit} {whole % length // part}{lower}"
    return UNKNOWN


def trend(per_second: float | None) -> str:
    """Where something goes: `+120/s`, `-3.5/s`, `steady`."""
    if per_second is None:
        return UNKNOWN
    if abs(per_second) < 0.05:
        return "steady"
    return f"{'+' if per_second > 0 else '-'}{rate(abs(per_second))}/s"

"""Suggestions for misspelled names.

Independent of Kafka; it is in this package because every other package may import this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PREFIX_LETTERS = 3


def near(name: str, names: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Returns the names most similar to `name`, ignoring case, those that start with it first; none if no name is
    close."""
    import difflib  # 4 ms; only a mistake needs it

    by_lower: dict[str, str] = {}
    for one in names:
        by_lower.setdefault(one.lower(), one)
    begun = [one for one in by_lower if one.startswith(name.lower())] if len(name) >= PREFIX_LETTERS else []
    close = difflib.get_close_matches(name.lower(), by_lower, count, cutoff)
    return [by_lower[one] for one in dict.fromkeys([*begun, *close])][:count]


def meant(found: Sequence[str]) -> str:
    """Returns `; did you mean A or B?`, or nothing without suggestions."""
    return f"; did you mean {' or '.join(found)}?" if found else ""


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns the end of a message about an unknown name: `; did you mean X?`, or nothing."""
    return meant(near(name, names, cutoff=cutoff))

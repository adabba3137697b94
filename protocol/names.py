"""Names that a person typed wrong: the nearest of those that exist, and the words that suggest it.

Knows nothing of Kafka; it stands here since every package may import this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PREFIX_LETTERS = 3


def near(name: str, names: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """The names that look most like `name`, whatever their case, those that it begins first; none where nothing is
    close."""
    import difflib  # 4 ms; only a mistake needs it

    by_lower: dict[str, str] = {}
    for one in names:
        by_lower.setdefault(one.lower(), one)
    begun = [one for one in by_lower if one.startswith(name.lower())] if len(name) >= PREFIX_LETTERS else []
    close = difflib.get_close_matches(name.lower(), by_lower, count, cutoff)
    return [by_lower[one] for one in dict.fromkeys([*begun, *close])][:count]


def meant(found: Sequence[str]) -> str:
    """`; did you mean A or B?`; nothing where there are none."""
    return f"; did you mean {' or '.join(found)}?" if found else ""


def did_you_mean(name: str, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a message about a name that does not exist: `; did you mean X?`, or nothing."""
    return meant(near(name, names, cutoff=cutoff))

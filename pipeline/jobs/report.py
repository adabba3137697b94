"""The base of the reports of jobs, and their sums."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any


def add_up(total: object, more: object, names: Iterable[str]) -> None:
    """Adds the numbers of these names of `more` to those of `total`."""
    for name in names:
        setattr(total, name, getattr(total, name) + getattr(more, name))


def total(parts: str, name: str) -> property:
    """Returns a property with the sum of the numbers `name` of all `parts`, which are in a sequence or by key."""

    def summed(whole: object) -> int:
        found = getattr(whole, parts)
        return sum(getattr(one, name) for one in (found.values() if isinstance(found, dict) else found))

    return property(summed)


class Report(ABC):
    """The result of a job; in a dry run, its plan."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Returns the document for JSON; the docstring of its module describes it."""

    @abstractmethod
    def lines(self) -> Iterable[str]:
        """Returns the lines for people, without their ends."""

    def to_json(self) -> str:
        """Returns one JSON document."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_text(self) -> str:
        """Returns the lines for people, each with its end."""
        return "".join(f"{line}\n" for line in self.lines())

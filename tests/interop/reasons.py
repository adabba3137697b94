"""What differs between Apache Kafka's answers and ours for a reason: one table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple


class Reason(NamedTuple):
    """A difference that is as it should be: of these APIs, at paths that match, where `holds(theirs, ours)`."""

    apis: str
    path: str
    text: str
    holds: Callable[[Any, Any], bool] = lambda theirs, ours: True
    releases: tuple[str, ...] = ()


class Reasons:
    """The table, asked."""

    def __init__(self, reasons: list[Reason]) -> None:
        self._reasons = reasons

    def of(self, release: str, call: Any, path: str, theirs: Any, ours: Any) -> str | None:
        """The text of the first that explains a difference."""
        for reason in self._reasons:
            if reason.releases and release not in reason.releases:
                continue
            if call.api in reason.apis.split() and re.search(reason.path, path) and reason.holds(theirs, ours):
                return reason.text
        return None


REASONS = Reasons([])

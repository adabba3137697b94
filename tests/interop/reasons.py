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

    def of(self, release: str, api: str, path: str, theirs: Any, ours: Any) -> str | None:
        """The text of the first that explains a difference."""
        for reason in self._reasons:
            if reason.releases and release not in reason.releases:
                continue
            if api in reason.apis.split() and re.search(reason.path, path) and reason.holds(theirs, ours):
                return reason.text
        return None


def _name_in(message: Any) -> str:
    """The config that a refusal is about."""
    found = re.search(r"(?:name: |configuration )(\S+?)[:.]?(?: |$)", str(message))
    return found[1] if found else ""


def _without_partitions(theirs: Any, ours: Any) -> bool:
    return (
        theirs == "<absent>"
        and isinstance(ours, dict)
        and [] in (ours.get("partitions"), ours.get("partition_responses"))
    )


REASONS = Reasons(
    [
        Reason(
            "CreateTopics",
            r"\.topic_id$",
            "a topic that is only validated has no id with us, and one that nobody will ever have with KRaft",
            lambda theirs, ours: ours == bytes(16),
        ),
        Reason(
            "CreateTopics AlterConfigs IncrementalAlterConfigs",
            r"\.error_message$",
            "of several configs that are wrong another is told first: Kafka takes them out of a hash table",
            lambda theirs, ours: "onfig" in str(theirs) and "onfig" in str(ours) and _name_in(theirs) != _name_in(ours),
        ),
        Reason(
            "Produce ListOffsets OffsetCommit OffsetDelete DeleteRecords OffsetFetch OffsetForLeaderEpoch",
            r"\[\]$",
            "topics that are named without partitions are left out by Kafka",
            _without_partitions,
        ),
    ]
)
CLIENT_REASONS = Reasons([])

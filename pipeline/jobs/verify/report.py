"""The report of a verification: what the logs and the export have in common, and the first differences. Pure.

The document of `to_json`:

    folder, format, seconds, differences (their number), problems [sentences], absent [topics that the logs lack]
    partitions         one each: topic, partition, records (of the log), rows (of the export), missing, extra, repeated,
                       changed, deleted (rows whose records the log no longer has), unreadable, and its first
                       differences: offset, text
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...backend import TopicPartition
from ..report import Report, add_up
from .compare import Check, Outcome
from .plan import VerifyPlan

SHOWN = 10
"""The differences of a partition in the report, and of all in the text."""

_COUNTS = ("records", "rows", "missing", "extra", "repeated", "changed", "deleted", "unreadable")


@dataclass(slots=True)
class PartitionVerified:
    """The result for a partition; counts as in `Outcome`."""

    counts: Outcome = field(default_factory=Outcome)
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        add_up(self.counts, outcome, _COUNTS)
        self.first = sorted([*self.first, *outcome.described])[:SHOWN]


class VerifyReport(Report):
    """The result of a verification. `seconds` is its duration."""

    def __init__(self, plan: VerifyPlan) -> None:
        self.folder = plan.root
        self.format = plan.settings.format
        self.seconds = 0.0
        self.problems = plan.problems
        self.absent = plan.absent
        self.partitions: dict[TopicPartition, PartitionVerified] = {}

    def add(self, check: Check, outcome: Outcome) -> None:
        """Adds the result of a task."""
        self.partitions.setdefault(check.key, PartitionVerified()).add(outcome)

    @property
    def differences(self) -> int:
        """The number of rows and files that differ."""
        return len(self.problems) + sum(one.counts.differences for one in self.partitions.values())

    def _total(self, name: str) -> int:
        return sum(getattr(one.counts, name) for one in self.partitions.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "format": self.format,
            "seconds": round(self.seconds, 3),
            "differences": self.differences,
            "problems": self.problems,
            "absent": self.absent,
            "partitions": [
                {
                    "topic": key.topic,
                    "partition": key.partition,
                    **{name: getattr(one.counts, name) for name in _COUNTS},
                    "first": [{"offset": offset, "text": text} for offset, text in one.first],
                }
                for key, one in sorted(self.partitions.items())
            ],
        }

    def lines(self) -> Iterator[str]:
        """Returns a line for each partition, the first differences, and the total."""
        left = SHOWN
        for key, one in sorted(self.partitions.items()):
            of = one.counts
            more = [f"{getattr(of, name):,} {name}" for name in _COUNTS[2:] if getattr(of, name)]
            yield f"{key}: {of.records:,} records in the log, {of.rows:,} rows{''.join(f', {n}' for n in more)}"
            yield from (f"  ! offset {offset}: {text}" for offset, text in one.first[:left])
            left = max(0, left - len(one.first))
        yield from (f"! {problem}" for problem in self.problems[:SHOWN])
        if len(self.problems) > SHOWN:
            yield f"! {len(self.problems) - SHOWN:,} more of these"
        yield from (f"{topic} is not in the logs, and was not compared" for topic in self.absent)
        found = "no difference" if not self.differences else f"{self.differences:,} differences"
        yield f"{self._total('records'):,} records, {self._total('rows'):,} rows in {self.folder}: {found}"

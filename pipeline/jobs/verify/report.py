"""The report of a verification: what the logs and the export have in common, and the first differences. Pure.

The document of `to_json`:

    folder, format, seconds, differences (their number), problems [sentences], absent [topics that the logs lack]
    partitions         one each: topic, partition, records (of the log), rows (of the export), missing, extra, repeated,
                       changed, deleted (rows whose records the log no longer has), unreadable, and its first
                       differences: offset, text
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ...backend import TopicPartition
from .compare import Check, Outcome
from .plan import VerifyPlan

SHOWN = 10
"""The differences of a partition in the report, and of all in the text."""

_COUNTS = ("records", "rows", "missing", "extra", "repeated", "changed", "deleted", "unreadable")


@dataclass(slots=True)
class PartitionVerified:
    """The result for a partition; counts as in `Outcome`."""

    key: TopicPartition
    counts: Outcome = field(default_factory=Outcome)
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        for name in _COUNTS:
            setattr(self.counts, name, getattr(self.counts, name) + getattr(outcome, name))
        self.first = sorted([*self.first, *outcome.described])[:SHOWN]


class VerifyReport:
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
        self.partitions.setdefault(check.key, PartitionVerified(check.key)).add(outcome)

    @property
    def differences(self) -> int:
        """The number of rows and files that differ."""
        return len(self.problems) + sum(one.counts.differences for one in self.partitions.values())

    def _total(self, name: str) -> int:
        return sum(getattr(one.counts, name) for one in self.partitions.values())

    def to_dict(self) -> dict[str, Any]:
        """Returns the document of `to_json`, see the module."""
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

    def to_json(self) -> str:
        """Returns one document, indented."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_text(self) -> str:
        """Returns a line for each partition, the first differences, and the total."""
        lines: list[str] = []
        left = SHOWN
        for key, one in sorted(self.partitions.items()):
            of = one.counts
            more = [f"{getattr(of, name):,} {name}" for name in _COUNTS[2:] if getattr(of, name)]
            lines.append(f"{key}: {of.records:,} records in the log, {of.rows:,} rows{''.join(f', {n}' for n in more)}")
            lines += [f"  ! offset {offset}: {text}" for offset, text in one.first[:left]]
            left = max(0, left - len(one.first))
        lines += [f"! {problem}" for problem in self.problems[:SHOWN]]
        lines += [f"! {len(self.problems) - SHOWN:,} more of these"] * (len(self.problems) > SHOWN)
        lines += [f"{topic} is not in the logs, and was not compared" for topic in self.absent]
        found = "no difference" if not self.differences else f"{self.differences:,} differences"
        lines.append(f"{self._total('records'):,} records, {self._total('rows'):,} rows in {self.folder}: {found}")
        return "".join(f"{line}\n" for line in lines)

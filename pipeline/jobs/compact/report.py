"""The report of a compaction: amounts before and after by topic, as JSON and as text.

Owns the aggregation and the words. Pure. The document of `to_dict` and `to_json`, all sizes in bytes:

    paths, seconds, dry_run, topics     one topic by name: topic, partitions (all of them), and
    compacted                           partitions with work; in a dry run, those that would be compacted
    segments, bytes                     {before, after}: of all partitions
    records, tombstones                 {before, after}: of the part that was read, without markers
    rewritten_bytes                     of the segments that were, or would be, rewritten
    problems                            why partitions were left unchanged, a sentence for each

`after` is null in a dry run, as are values that need the records to be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....protocol.text import elapsed, size
from ..report import Report, add_up
from .steps import Outcome, PartitionPlan


@dataclass(slots=True)
class TopicCompaction:
    """The result for a topic."""

    topic: str
    partitions: int = 0
    compacted: int = 0
    rewritten_bytes: int = 0
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    tombstones_before: int = 0
    tombstones_after: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, plan: PartitionPlan, outcome: Outcome) -> None:
        """Adds the result of a partition."""
        self.partitions += 1
        if outcome.problem is not None:
            self.problems.append(outcome.problem)
        else:
            self.compacted += bool(plan.groups)
            self.rewritten_bytes += plan.rewritten_bytes
            add_up(self, outcome, ("records_before", "records_after", "tombstones_before", "tombstones_after"))
        self.segments_before += plan.segments
        self.segments_after += outcome.segments
        self.bytes_before += plan.bytes
        self.bytes_after += outcome.bytes


@dataclass(slots=True)
class CompactReport(Report):
    """The result of a compaction; in a dry run, its plan."""

    paths: list[str]
    topics: list[TopicCompaction] = field(default_factory=list)
    seconds: float = 0.0
    dry_run: bool = False

    @property
    def problems(self) -> list[str]:
        """Why partitions were left unchanged."""
        return [problem for topic in self.topics for problem in topic.problems]

    def to_dict(self) -> dict[str, Any]:
        return {
            "paths": self.paths,
            "seconds": round(self.seconds, 3),
            "dry_run": self.dry_run,
            "topics": [self._topic(topic) for topic in self.topics],
        }

    def _topic(self, found: TopicCompaction) -> dict[str, Any]:
        def pair(name: str, *, is_read: bool = False) -> dict[str, int | None]:
            before: int | None = getattr(found, f"{name}_before")
            after: int | None = getattr(found, f"{name}_after")
            if self.dry_run:
                before, after = (None if is_read else before), None
            return {"before": before, "after": after}

        return {
            "topic": found.topic,
            "partitions": found.partitions,
            "compacted": found.compacted,
            "rewritten_bytes": found.rewritten_bytes,
            "segments": pair("segments"),
            "bytes": pair("bytes"),
            "records": pair("records", is_read=True),
            "tombstones": pair("tombstones", is_read=True),
            "problems": found.problems,
        }

    def lines(self) -> Iterator[str]:
        for topic in self.topics:
            yield from (f"left unchanged: {problem}" for problem in topic.problems)
            where = f"{topic.topic}: {topic.compacted} of {topic.partitions} partitions"
            if not topic.compacted:
                yield f"{topic.topic}: {topic.partitions} partitions, nothing to compact"
            elif self.dry_run:
                yield (
                    f"{where} would be compacted: {size(topic.rewritten_bytes)} rewritten, "
                    f"of {size(topic.bytes_before)} in {topic.segments_before} segments"
                )
            else:
                yield (
                    f"{where} compacted: {topic.records_before} -> {topic.records_after} records "
                    f"({topic.tombstones_before} -> {topic.tombstones_after} tombstones), "
                    f"{topic.segments_before} -> {topic.segments_after} segments, "
                    f"{size(topic.bytes_before)} -> {size(topic.bytes_after)}"
                )
        if not self.topics:
            yield "no selected topic is compacted"
        elif not self.dry_run:
            before = sum(topic.bytes_before for topic in self.topics)
            after = sum(topic.bytes_after for topic in self.topics)
            yield f"{size(before)} -> {size(after)} in {elapsed(self.seconds * 1000)}"


def report_of(
    paths: Sequence[str],
    topics: Sequence[str],
    plans: Sequence[PartitionPlan],
    outcomes: Sequence[Outcome],
    unplanned: Sequence[tuple[str, str]] = (),
) -> CompactReport:
    """Returns the report of these topics; for a dry run the outcomes are the present state. `unplanned` are partitions
    without a plan: the topic, and the reason."""
    found = {topic: TopicCompaction(topic) for topic in topics}
    for topic, problem in unplanned:
        found[topic].partitions += 1
        found[topic].problems.append(problem)
    for plan, outcome in zip(plans, outcomes, strict=True):
        found[plan.topic].add(plan, outcome)
    return CompactReport(list(paths), list(found.values()))

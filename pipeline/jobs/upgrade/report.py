"""The report of an upgrade: per topic, as text and as JSON.

{"job": "upgrade", "planned": false, "paths": [...], "seconds": 1.5, "segments": 40, "topics": {"orders": {
"segments": 3, "segments_after": 4, "records": 1000, "bytes_before": 1, "bytes_after": 2, "task_seconds": 1.2}}}

`planned`: a dry run; then records, seconds and segments afterwards are unknown, and the bytes are an estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ....protocol.text import elapsed, speed
from ..report import Report, add_up


@dataclass(slots=True)
class TopicUpgrade:
    """The segments of one topic that had old messages."""

    segments: int = 0
    segments_after: int = 0
    records: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    task_seconds: float = 0.0

    def add(self, other: TopicUpgrade) -> None:
        add_up(self, other, [one.name for one in fields(self)])


@dataclass(slots=True)
class UpgradeReport(Report):
    """The report, see the module. `all_segments` is the number of checked segments."""

    paths: Sequence[str]
    planned: bool = False
    all_segments: int = 0
    topics: dict[str, TopicUpgrade] = field(default_factory=dict)
    seconds: float = 0.0

    def topic(self, name: str) -> TopicUpgrade:
        return self.topics.setdefault(name, TopicUpgrade())

    def total(self) -> TopicUpgrade:
        """Returns the sum of all topics."""
        found = TopicUpgrade()
        for topic in self.topics.values():
            found.add(topic)
        return found

    def lines(self) -> Iterator[str]:
        """Returns a line per topic, and one for all of them."""
        where = ", ".join(self.paths)
        if not self.topics:
            yield f"{where}: {self.all_segments} segments, none has messages of format v0 or v1"
            return
        yield f"{where}: " + ("to be upgraded to format v2" if self.planned else "upgraded to format v2")
        yield from (f"  {name}: {self._words(topic)}" for name, topic in sorted(self.topics.items()))
        total = self.total()
        yield f"  in all {self._words(total)}"
        if not self.planned:
            took, rate = elapsed(self.seconds * 1000), speed(total.bytes_before, self.seconds)
            yield f"  {took}, {rate}; {self.all_segments} segments were checked"

    def _words(self, topic: TopicUpgrade) -> str:
        if self.planned:
            return f"{topic.segments} segments, {topic.bytes_before} bytes -> about {topic.bytes_after} bytes"
        return (
            f"{topic.segments} segments -> {topic.segments_after}, {topic.records} records converted, "
            f"{topic.bytes_before} -> {topic.bytes_after} bytes"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "job": "upgrade",
            "planned": self.planned,
            "paths": list(self.paths),
            "seconds": round(self.seconds, 3),
            "segments": self.all_segments,
            "topics": {name: asdict(topic) for name, topic in sorted(self.topics.items())},
        }

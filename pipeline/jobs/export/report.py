"""The report of an export: the exported and the skipped offsets of each topic. Pure.

The document of `to_json`:

    folder, format, seconds
    total              {records, files, bytes, skipped, undecoded, gone}
    topics             one by name: topic, topic_id (null: not known), generation, records, files, bytes, undecoded,
                       problem (of the first value that did not decode), and its partitions: partition,
                       offsets [[start, end], ...] and how many are exported now, skipped (how many offsets were
                       exported before), gone [start, end] or null, lost [sentences of tasks]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..report import Report, total
from .manifest import Exported, Range, merged
from .plan import Plan
from .tasks import Written


@dataclass(slots=True)
class PartitionExport:
    """The result for a partition. `offsets` were exported now, `skipped` offsets were exported before, `gone` were
    deleted before their export; `lost` are the losses that tasks found."""

    partition: int
    offsets: list[Range] = field(default_factory=list)
    skipped: int = 0
    gone: Range | None = None
    lost: list[str] = field(default_factory=list)


@dataclass(slots=True)
class TopicExport:
    """The result for a topic; bytes are those of its files."""

    topic: str
    topic_id: str | None
    generation: int
    partitions: dict[int, PartitionExport] = field(default_factory=dict)
    records: int = 0
    files: int = 0
    bytes: int = 0
    undecoded: int = 0
    problem: str = ""

    skipped = total("partitions", "skipped")

    @property
    def gone(self) -> int:
        return sum(one.gone.size for one in self.partitions.values() if one.gone is not None)


_TOTALS = ("records", "files", "bytes", "skipped", "undecoded", "gone")


class ExportReport(Report):
    """The result of an export. `seconds` is its duration."""

    def __init__(self, folder: str, form: str, plan: Plan) -> None:
        self.folder = folder
        self.format = form
        self.seconds = 0.0
        self.topics: dict[str, TopicExport] = {}
        for of in plan.topics.values():
            topic = self.topics[of.topic] = TopicExport(of.topic, of.topic_id, of.generation)
            for number, skipped in sorted(of.skipped.items()):
                topic.partitions[number] = PartitionExport(number, skipped=skipped, gone=of.gone.get(number))

    def add(self, exported: Exported, written: Written) -> None:
        """Adds a finished piece of work."""
        topic = self.topics[exported.topic]
        topic.records += exported.records
        topic.files += len(exported.files)
        topic.bytes += sum(file.bytes for file in exported.files)
        topic.undecoded += exported.undecoded
        topic.problem = topic.problem or (written.problem and f"partition {exported.partition}, {written.problem}")
        partition = topic.partitions[exported.partition]
        partition.offsets = merged([*partition.offsets, exported.range])
        partition.lost += [written.lost] * bool(written.lost)

    records, files, bytes, skipped, undecoded, gone = (total("topics", name) for name in _TOTALS)

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "format": self.format,
            "seconds": round(self.seconds, 3),
            "total": {name: getattr(self, name) for name in _TOTALS},
            "topics": [_topic(topic) for _, topic in sorted(self.topics.items())],
        }

    def lines(self) -> Iterator[str]:
        """Returns a line for each topic, one for each remark on it, and the total."""
        for _, topic in sorted(self.topics.items()):
            there = f", {topic.skipped:,} offsets exported before" if topic.skipped else ""
            again = f", recreated {topic.generation} times" if topic.generation else ""
            yield f"{topic.topic}{again}: {_amount(topic)}{there}"
            for partition in topic.partitions.values():
                if partition.offsets:
                    ranges = ", ".join(map(str, partition.offsets))
                    yield f"  partition {partition.partition}: offsets {ranges}"
                if partition.gone is not None:
                    gone = f"offsets {partition.gone} were deleted before they were exported"
                    yield f"  ! partition {partition.partition}: {gone}"
                yield from (f"  ! {lost}" for lost in partition.lost)
            if topic.undecoded:
                values = "value does" if topic.undecoded == 1 else "values do"
                yield f"  ! {topic.undecoded:,} {values} not decode, first at {topic.problem}"
        yield f"{_amount(self)} in {self.folder}"


def _amount(of: TopicExport | ExportReport) -> str:
    files = "1 file" if of.files == 1 else f"{of.files:,} files"
    records = "1 record" if of.records == 1 else f"{of.records:,} records"
    return f"{records} in {files}, {of.bytes:,} bytes"


def _topic(topic: TopicExport) -> dict[str, Any]:
    return {
        **asdict(topic),
        "problem": topic.problem or None,
        "partitions": [
            {
                **asdict(one),
                "offsets": [list(of) for of in one.offsets],
                "exported": sum(of.size for of in one.offsets),
                "gone": list(one.gone) if one.gone is not None else None,
            }
            for one in topic.partitions.values()
        ],
    }

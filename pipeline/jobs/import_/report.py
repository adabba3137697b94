"""The report of an import, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from ...backend import TopicPartition

_NAMES = {"first": "firstOffset", "end": "endOffset"}


@dataclass(frozen=True, slots=True)
class Imported:
    """A partition that received rows. Offsets are those of the records in the target; -1 if an earlier run sent the
    records to a broker. `bytes` is the size of segments, or of the batches sent."""

    topic: str
    partition: int
    records: int
    bytes: int
    first: int
    end: int
    segments: int = 0

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True)
class ImportReport:
    """The report, see the module. Of a dry run it is the plan, with `bytes` of the rows in memory. `skipped`: records
    that an earlier run of the same import has written."""

    source: str
    target: str
    files: int
    partitions: list[Imported] = field(default_factory=list)
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    dry_run: bool = False

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.partitions)

    def to_text(self) -> str:
        """Returns the total, and a line for each topic."""
        does = "would be imported" if self.dry_run else "imported"
        lines = [
            f"{self.records} records of {self.files} files {does} to {self.target}: "
            f"{self.bytes} bytes in {len(self.partitions)} partitions"
        ]
        if self.skipped:
            lines.append(f"{self.skipped} records were imported by an earlier run")
        lines += self.notes
        for topic in sorted({one.topic for one in self.partitions}):
            lines.append(f"{topic}: {_topic_line([one for one in self.partitions if one.topic == topic])}")
        return "".join(f"{line}\n" for line in lines)

    def to_json(self) -> str:
        """Returns one JSON object, with a list of the partitions."""
        document = {
            "source": self.source,
            "target": self.target,
            "dryRun": self.dry_run,
            "files": self.files,
            "records": self.records,
            "bytes": self.bytes,
            "skipped": self.skipped,
            "notes": self.notes,
            "seconds": round(self.seconds, 3),
            "partitions": [{_NAMES.get(name, name): of for name, of in asdict(one).items()} for one in self.partitions],
        }
        return json.dumps(document, indent=2) + "\n"


def _topic_line(of: Iterable[Imported]) -> str:
    found = list(of)
    segments = sum(one.segments for one in found)
    line = f"{sum(one.records for one in found)} records in {len(found)} partitions"
    return line + (f", {segments} segments" if segments else "")

"""The report of an import, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..report import Report, total

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


@dataclass(slots=True)
class ImportReport(Report):
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

    records, bytes = (total("partitions", name) for name in ("records", "bytes"))

    def lines(self) -> Iterator[str]:
        """Returns the total, and a line for each topic."""
        does = "would be imported" if self.dry_run else "imported"
        yield (
            f"{self.records} records of {self.files} files {does} to {self.target}: "
            f"{self.bytes} bytes in {len(self.partitions)} partitions"
        )
        if self.skipped:
            yield f"{self.skipped} records were imported by an earlier run"
        yield from self.notes
        for topic in sorted({one.topic for one in self.partitions}):
            found = [one for one in self.partitions if one.topic == topic]
            segments = sum(one.segments for one in found)
            more = f", {segments} segments" if segments else ""
            yield f"{topic}: {sum(one.records for one in found)} records in {len(found)} partitions{more}"

    def to_dict(self) -> dict[str, Any]:
        return {
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

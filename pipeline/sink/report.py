"""The result of a micro-batch: written, or skipped because it was committed before. Owns its text and JSON. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ...protocol.text import elapsed
from .task_writer import Sent


@dataclass(frozen=True, slots=True)
class SinkReport:
    """A micro-batch that is in the topics: `written` now, or skipped, since it was committed before. `partitions` are
    the target partitions, in order; empty if it was skipped. `seconds` is the duration."""

    batch_id: int
    transactional_id: str
    written: bool
    partitions: tuple[Sent, ...]
    seconds: float

    @property
    def records(self) -> int:
        """The number of rows written."""
        return sum(one.records for one in self.partitions)

    @property
    def bytes(self) -> int:
        """The size of their keys, values and headers."""
        return sum(one.bytes for one in self.partitions)

    def to_text(self) -> str:
        """Returns one line, and one more for each partition."""
        what = f"micro-batch {self.batch_id} of transactional id {self.transactional_id!r}"
        if not self.written:
            return f"{what}: committed before, nothing is written"
        lines = [f"{what}: {self.records} records, {self.bytes} bytes in {elapsed(self.seconds * 1000)}"]
        lines += [
            f"  {one.topic}-{one.partition}: {one.records} records, offsets {one.first_offset} to {one.last_offset}"
            for one in self.partitions
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """All of it."""
        return json.dumps(
            {
                "batchId": self.batch_id,
                "transactionalId": self.transactional_id,
                "written": self.written,
                "records": self.records,
                "bytes": self.bytes,
                "seconds": round(self.seconds, 3),
                "partitions": [one._asdict() for one in self.partitions],
            },
            indent=2,
        )

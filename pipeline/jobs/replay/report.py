"""The report of a replay, and the offsets from which another continues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....protocol.text import elapsed
from ...backend import TopicPartition
from ...offsets import nested, offsets_json
from ..report import Report, total


class Replayed(NamedTuple):
    """A partition that was read from `start` on: `reached` is the next offset, `end` the planned end."""

    topic: str
    partition: int
    start: int
    reached: int
    end: int
    records: int

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True)
class ReplayReport(Report):
    """The report, see the module. `bytes` is the size of keys, values and headers. `stopped`: it was ended early."""

    source: str
    target: str
    partitions: list[Replayed] = field(default_factory=list)
    bytes: int = 0
    rounds: int = 0
    stopped: bool = False
    seconds: float = 0.0

    records = total("partitions", "records")

    @property
    def offsets(self) -> str:
        """The reached offsets, in the form of `--from-offsets`."""
        return offsets_json({one.key: one.reached for one in self.partitions})

    def lines(self) -> Iterator[str]:
        """Returns the total, a line for each topic, and how to continue."""
        yield f"{self.records} records, {self.bytes} bytes, replayed to {self.target} in {elapsed(self.seconds * 1000)}"
        for topic in sorted({one.topic for one in self.partitions}):
            of = [one for one in self.partitions if one.topic == topic]
            done, size = sum(one.reached - one.start for one in of), sum(one.end - one.start for one in of)
            yield f"{topic}: {sum(one.records for one in of)} records, {done} of {size} offsets"
        if self.stopped:
            yield f"stopped; continue with --from-offsets '{self.offsets}'"

    def to_dict(self) -> dict[str, Any]:
        """Returns the document; `offsets` are the reached ones."""
        return {
            "source": self.source,
            "target": self.target,
            "records": self.records,
            "bytes": self.bytes,
            "rounds": self.rounds,
            "stopped": self.stopped,
            "seconds": round(self.seconds, 3),
            "offsets": nested({one.key: one.reached for one in self.partitions}),
            "partitions": [one._asdict() for one in self.partitions],
        }

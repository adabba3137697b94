"""The report of a replay, and the offsets from which another continues."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from ....protocol.text import elapsed
from ...backend import TopicPartition
from ...offsets import nested, offsets_json


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
class ReplayReport:
    """The report, see the module. `bytes` is the size of keys, values and headers. `stopped`: it was ended early."""

    source: str
    target: str
    partitions: list[Replayed] = field(default_factory=list)
    bytes: int = 0
    rounds: int = 0
    stopped: bool = False
    seconds: float = 0.0

    @property
    def records(self) -> int:
        return sum(one.records for one in self.partitions)

    @property
    def offsets(self) -> str:
        """The reached offsets, in the form of `--from-offsets`."""
        return offsets_json({one.key: one.reached for one in self.partitions})

    def to_text(self) -> str:
        """Returns the total, a line for each topic, and how to continue."""
        lines = [
            f"{self.records} records, {self.bytes} bytes, replayed to {self.target} in {elapsed(self.seconds * 1000)}"
        ]
        for topic in sorted({one.topic for one in self.partitions}):
            of = [one for one in self.partitions if one.topic == topic]
            done, size = sum(one.reached - one.start for one in of), sum(one.end - one.start for one in of)
            lines.append(f"{topic}: {sum(one.records for one in of)} records, {done} of {size} offsets")
        if self.stopped:
            lines.append(f"stopped; continue with --from-offsets '{self.offsets}'")
        return "".join(f"{line}\n" for line in lines)

    def to_json(self) -> str:
        """Returns one JSON object; `offsets` are the reached ones."""
        document = {
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
        return json.dumps(document, indent=2) + "\n"

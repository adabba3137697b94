"""What a replay has done, for people and for programs, and where another goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from ....protocol.text import elapsed
from ...backend import TopicPartition
from ...offsets import nested, offsets_json


class Replayed(NamedTuple):
    """A partition that was read from `start` on: `reached` is the next offset, `end` where it was to end."""

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
    """See the module. `bytes` are those of keys, values and headers. `stopped`: it was ended before its end."""

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
        """The offsets that were reached, as `--from-offsets` takes them."""
        return offsets_json({one.key: one.reached for one in self.partitions})

    def to_text(self) -> str:
        """Lines: what was sent, then each topic, and how to go on."""
        lines = [
            f"{self.records} records, {self.bytes} bytes, replayed into {self.target} in {elapsed(self.seconds * 1000)}"
        ]
        for topic in sorted({one.topic for one in self.partitions}):
            of = [one for one in self.partitions if one.topic == topic]
            done, size = sum(one.reached - one.start for one in of), sum(one.end - one.start for one in of)
            lines.append(f"{topic}: {sum(one.records for one in of)} records, {done} of {size} offsets")
        if self.stopped:
            lines.append(f"stopped; it goes on with --from-offsets '{self.offsets}'")
        return "".join(f"{line}\n" for line in lines)

    def to_json(self) -> str:
        """One object; `offsets` are those that were reached."""
        told = {
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
        return json.dumps(told, indent=2) + "\n"

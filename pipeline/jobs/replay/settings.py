"""Which records a replay sends, where to and how fast: `ReplaySettings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...backend import ReadError
from ...offsets import Limit
from .schedule import LEAST, MOST

ISOLATIONS = ("read_committed", "read_uncommitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What is replayed of a log, and how.

    `topics`, or a pattern that whole names are `like`; all but the brokers' own if neither. `starting` and `ending`:
    "earliest", "latest", a time, or offsets (`arguments.limit`). Markers are left out, and so are aborted transactions
    unless `isolation` is "read_uncommitted".

    Records go to topics of their own names, or all to `to_topic`; topics that are not there are made. `partitions`:
    "keep", or "key" for where Kafka's default partitioner puts their keys. `timestamps`: "keep", or "new" for the time
    at which each is sent. `rate`: so many records a second over all; `speed`: so many times the pace of the timestamps,
    all partitions in step; as fast as it goes if neither. `config` are settings of Kafka's producer.
    """

    topics: Sequence[str] | None = None
    like: str | None = None
    starting: str | Limit = "earliest"
    ending: str | Limit = "latest"
    isolation: str = "read_committed"
    to_topic: str | None = None
    partitions: str = "keep"
    timestamps: str = "keep"
    rate: float | None = None
    speed: float | None = None
    config: Mapping[str, str] | None = None

    def check(self) -> None:
        """Raises ReadError for a value that cannot be."""
        if self.rate is not None and self.speed is not None:
            raise ReadError("either rate or speed says how fast")
        for name, number in (("rate", self.rate), ("speed", self.speed)):
            if number is not None and not LEAST <= number <= MOST:
                raise ReadError(f"{name} is {number}: it must be above 0, from {LEAST:g} to {MOST:g}")
        for name, value, choices in (
            ("timestamps", self.timestamps, ("keep", "new")),
            ("partitions", self.partitions, ("keep", "key")),
            ("isolation", self.isolation, ISOLATIONS),
        ):
            if value not in choices:
                raise ReadError(f"{name} is {value!r}: it must be {' or '.join(choices)}")

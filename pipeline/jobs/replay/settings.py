"""The records, the target and the pace of a replay: `ReplaySettings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...backend import ReadError
from ...offsets import Limit
from .schedule import LEAST, MOST

ISOLATIONS = ("read_committed", "read_uncommitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """The records that a replay sends, their topics and its pace.

    `topics` lists the topics; `like` is a regular expression that full names must match. With neither: all but internal
    topics. `starting` and `ending` are "earliest", "latest", a time, or offsets (`arguments.limit`). Transaction
    markers are not sent; aborted transactions only if `isolation` is "read_uncommitted".

    Records go to the topic of the same name, or all to `to_topic`; missing topics are created. `partitions` is "keep",
    or "key" for the partition that Kafka's default partitioner selects. `timestamps` is "keep", or "new" for the time
    of sending. `rate` limits records per second over all partitions; `speed` is a multiple of the pace of the
    timestamps, all partitions in step; with neither there is no limit. `config` are configs of Kafka's producer,
    `store_conf` settings of an object store whose copies of logs are read.
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
    config: Mapping[str, str] | None = field(default=None, repr=False)  # may have passwords
    store_conf: Mapping[str, str] | None = None

    def check(self) -> None:
        """Raises ReadError for an invalid value."""
        if self.rate is not None and self.speed is not None:
            raise ReadError("give either rate or speed, not both")
        for name, number in (("rate", self.rate), ("speed", self.speed)):
            if number is not None and not LEAST <= number <= MOST:
                raise ReadError(f"{name} is {number}: it must be from {LEAST:g} to {MOST:g}")
        for name, value, choices in (
            ("timestamps", self.timestamps, ("keep", "new")),
            ("partitions", self.partitions, ("keep", "key")),
            ("isolation", self.isolation, ISOLATIONS),
        ):
            if value not in choices:
                raise ReadError(f"{name} is {value!r}: it must be {' or '.join(choices)}")

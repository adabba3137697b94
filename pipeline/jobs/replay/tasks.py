"""The work of a task of a replay: sends the records of some partitions for some seconds, each when it is due.

Owns the sending of one round. A partition's records keep their order, even if their keys send them to several
partitions. The producer is idempotent, so its retries cause no duplicates; each attempt of a task has a new producer
id, and repeats the task's records.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...backend import OffsetRange, Piece, ReadError, TopicPartition
from ...offsets import Limit
from ...readers.columns import EXACT_TIME
from ...sink.batches import cut
from ...sink.options import SinkOptions
from ...sink.rows import partitions_of
from ...sink.task_writer import Sending, TaskSender
from ...sink.transaction import idempotent_grant
from . import schedule
from .schedule import LEAST, MOST, Clock, Sleep, Slice

COLUMNS = ("key", "value", EXACT_TIME.name, "headers")
UNPACED_BYTES = 4 << 20
"""Without a pace, the bytes of rows that are split into batches at once."""

IDLE_S = 1.0
"""Before a longer sleep, a task waits for the responses to its requests."""


class Line(NamedTuple):
    """Offsets of a partition, and the pieces that read them."""

    range: OffsetRange
    pieces: tuple[Piece, ...]


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

    @property
    def is_committed(self) -> bool:
        return self.isolation == "read_committed"

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
            ("isolation", self.isolation, ("read_committed", "read_uncommitted")),
        ):
            if value not in choices:
                raise ReadError(f"{name} is {value!r}: it must be {' or '.join(choices)}")


@dataclass(frozen=True, slots=True)
class Sends:
    """The sending of a replay: `counts` has the number of partitions of each target topic, `tasks` is the number of
    concurrent tasks."""

    options: SinkOptions
    counts: Mapping[str, int]
    settings: ReplaySettings
    tasks: int = 2


@dataclass(frozen=True, slots=True)
class Work:
    """One task's part of a round, with its `share` of the rate; picklable. A record of `origin_ms` is due at `start_s`
    of the wall clock at a speed, and the first one at a rate."""

    lines: tuple[Line, ...]
    sends: Sends
    share: float
    start_s: float
    origin_ms: int

    def __str__(self) -> str:
        return ", ".join(f"{line.range.key} from offset {line.range.start}" for line in self.lines)


class Played(NamedTuple):
    """The result of a task: records sent of each line, in order, and bytes of keys, values and headers."""

    records: tuple[int, ...]
    bytes: int


def replay_part(work: Work) -> Played:
    """Does a task's work, by the clock of its machine."""
    return play(work, time.time, time.sleep, lambda options: TaskSender(options, idempotent_grant(options)))


def play(work: Work, clock: Clock, sleep: Sleep, make_senders: Callable[[SinkOptions], TaskSender]) -> Played:
    """Sends the round's records, and returns when all are acknowledged. Raises SinkError, ReadError."""
    counted = [0] * len(work.lines)
    streams = [_numbered(number, _slices(work, line)) for number, line in enumerate(work.lines)]
    settings = work.sends.settings
    paced = settings.rate is not None or settings.speed is not None
    with closing(make_senders(work.sends.options)) as senders:
        lanes = _Lanes(work, senders)
        for _, number, one in heapq.merge(*streams, key=lambda entry: entry[0]):
            if paced and one.due_s > clock():
                lanes.flush()
                if one.due_s - clock() > IDLE_S:
                    lanes.settle()
                schedule.wait(one.due_s, clock, sleep)
            counted[number] += one.rows.num_rows
            time_ms = int(clock() * 1000) if settings.timestamps == "new" else None
            lanes.add(work.lines[number].range.key, one.rows, time_ms)
        lanes.flush()
        return Played(tuple(counted), lanes.settle())


def _numbered(number: int, slices: Iterable[Slice]) -> Iterator[tuple[float, int, Slice]]:
    for one in slices:
        yield one.due_s, number, one


def _slices(work: Work, line: Line) -> Iterator[Slice]:
    batches = (rows for piece in line.pieces for rows in piece.read())
    settings = work.sends.settings
    if settings.speed is not None:
        return schedule.at_pace(batches, work.start_s, work.origin_ms, settings.speed)
    if settings.rate is not None:
        share = line.range.size / max(1, sum(of.range.size for of in work.lines))
        return schedule.at_rate(batches, work.start_s, settings.rate * work.share * share)
    return schedule.at_once(batches, work.start_s)


class _Lane:
    """The rows for one partition: the waiting ones, and the next sequence."""

    def __init__(self, sender: Sending, options: SinkOptions) -> None:
        self.sender = sender
        self._options = options
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._next = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= UNPACED_BYTES:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        count = 0
        for batch in cut(iter(waiting), self._options.batch_bytes):
            self.sender.put(replace(batch, first=self._next + batch.first))
            count += batch.records
        self._next += count


class _Lanes:
    """The lanes of all target partitions, made on their first record."""

    def __init__(self, work: Work, senders: TaskSender) -> None:
        self._work = work
        self._senders = senders
        self._lanes: dict[tuple[str, int], _Lane] = {}

    def add(self, key: TopicPartition, rows: pa.RecordBatch, time_ms: int | None) -> None:
        settings = self._work.sends.settings
        topic = settings.to_topic or key.topic
        stamps = rows.column(EXACT_TIME.name)
        if time_ms is not None:
            stamps = pa.array(np.full(rows.num_rows, time_ms, np.int64))
        names = [name for name in rows.schema.names if name != EXACT_TIME.name]
        columns = [stamps, *(rows.column(name) for name in names)]
        rows = pa.RecordBatch.from_arrays(columns, names=["timestamp", *names])
        if settings.partitions == "keep":
            self._lane((topic, key.partition)).add(rows)
            return
        count = self._work.sends.counts[topic]
        where = partitions_of(rows.column("key"), rows.column("value"), count=count, topic=topic)
        for partition in np.unique(where).tolist():
            self._lane((topic, partition)).add(rows.filter(pa.array(where == partition)))

    def _lane(self, where: tuple[str, int]) -> _Lane:
        found = self._lanes.get(where)
        if found is None:
            found = self._lanes[where] = _Lane(self._senders.of(where), self._work.sends.options)
        return found

    def flush(self) -> None:
        """Sends the waiting rows."""
        for lane in self._lanes.values():
            lane.flush()

    def settle(self) -> int:
        """Waits until all sent rows are acknowledged. Returns their bytes."""
        return sum(lane.sender.finish().bytes for lane in self._lanes.values())

"""What a task of a replay does: the records of some partitions for some seconds, each sent when it is due.

Owns the sending of one round. A partition's records stay in their order, also where they go by key to several. The
producer is idempotent, so that none of its own retries sends anything twice; it has a new id for each attempt of a
task, which sends the task's records again.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ...backend import Piece, TopicPartition
from ...readers.columns import EXACT_TIME
from ...sink.batches import Batch, cut
from ...sink.coordinator_requests import Asker
from ...sink.options import SinkOptions
from ...sink.rows import partitions_of
from ...sink.task_writer import Sending, Sent
from ...sink.transaction import idempotent_grant
from . import schedule
from .schedule import Clock, Sleep, Slice

COLUMNS = ("key", "value", EXACT_TIME.name, "headers")
UNPACED_BYTES = 4 << 20
"""Where nothing is waited for, so much is cut into batches at once."""

IDLE_S = 1.0
"""Before it sleeps longer, a task waits for the answers to what it has sent."""


@dataclass(frozen=True, slots=True)
class Line:
    """Offsets `start` up to `end` of a partition, and the pieces that read them."""

    key: TopicPartition
    start: int
    end: int
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Work:
    """One task's part of a round; can be pickled.

    Records go to `to_topic`, or the topic of their own name; to their own partition, or `by_key`; `counts` are the
    partitions of each topic. Due is what was written at `origin_ms` at `start_s` of the wall clock, and `speed` times
    as fast from there on; or `rate` records a second from there on; or all at once. `is_new_time`: records get the time
    at which they are sent.
    """

    lines: tuple[Line, ...]
    counts: Mapping[str, int]
    options: SinkOptions
    start_s: float
    to_topic: str | None = None
    by_key: bool = False
    is_new_time: bool = False
    rate: float | None = None
    speed: float | None = None
    origin_ms: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{line.key} from offset {line.start}" for line in self.lines)


class Played(NamedTuple):
    """What a task has sent: records of each line, in their order, and bytes of keys, values and headers."""

    records: tuple[int, ...]
    bytes: int


class Sender(Protocol):
    """How the rows of one partition leave."""

    def put(self, batch: Batch) -> None: ...

    def finish(self) -> Sent: ...


class Senders(Protocol):
    """The senders of one task."""

    def of(self, where: tuple[str, int]) -> Sender: ...

    def close(self) -> None: ...


class _ToBrokers:
    """Those that send to brokers, as one producer and over the same connections."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._grant = idempotent_grant(options)
        self._asker = Asker(options, options.client.delivery_timeout_ms / 1000)
        self._open: list[Sending] = []

    def of(self, where: tuple[str, int]) -> Sending:
        made = Sending(self._options, self._grant, where, self._asker)
        self._open.append(made.__enter__())
        return made

    def close(self) -> None:
        for one in self._open:
            one.__exit__(None, None, None)
        self._asker.close()


def replay_part(work: Work) -> Played:
    """A task's work, by the clock of its machine."""
    return play(work, time.time, time.sleep, _ToBrokers)


def play(work: Work, clock: Clock, sleep: Sleep, make_senders: Callable[[SinkOptions], Senders]) -> Played:
    """Sends the round's records, and returns when all are in the log. SinkError, ReadError."""
    counted = [0] * len(work.lines)
    streams = [_numbered(number, _slices(work, line)) for number, line in enumerate(work.lines)]
    paced = work.rate is not None or work.speed is not None
    senders = make_senders(work.options)
    lanes = _Lanes(work, senders)
    try:
        for _, number, one in heapq.merge(*streams, key=lambda entry: entry[0]):
            if paced and one.due_s > clock():
                lanes.flush()
                if one.due_s - clock() > IDLE_S:
                    lanes.settle()
                schedule.wait(one.due_s, clock, sleep)
            counted[number] += one.rows.num_rows
            lanes.add(work.lines[number].key, one.rows, int(clock() * 1000) if work.is_new_time else None)
        lanes.flush()
        return Played(tuple(counted), lanes.settle())
    finally:
        senders.close()


def _numbered(number: int, slices: Iterable[Slice]) -> Iterator[tuple[float, int, Slice]]:
    for one in slices:
        yield one.due_s, number, one


def _slices(work: Work, line: Line) -> Iterator[Slice]:
    batches = (rows for piece in line.pieces for rows in piece.read())
    if work.speed is not None:
        return schedule.at_pace(batches, work.start_s, work.origin_ms, work.speed)
    if work.rate is not None:
        share = line.size / max(1, sum(of.size for of in work.lines))
        return schedule.at_rate(batches, work.start_s, work.rate * share)
    return schedule.at_once(batches, work.start_s)


class _Lane:
    """The rows for one partition: what waits, and the sequence of the next."""

    def __init__(self, sender: Sender, options: SinkOptions) -> None:
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
    """Every partition that is written to, made when its first record comes."""

    def __init__(self, work: Work, senders: Senders) -> None:
        self._work = work
        self._senders = senders
        self._lanes: dict[tuple[str, int], _Lane] = {}

    def add(self, key: TopicPartition, rows: pa.RecordBatch, time_ms: int | None) -> None:
        work = self._work
        topic = work.to_topic or key.topic
        stamps = rows.column(EXACT_TIME.name)
        if time_ms is not None:
            stamps = pa.array(np.full(rows.num_rows, time_ms, np.int64))
        names = [name for name in rows.schema.names if name != EXACT_TIME.name]
        columns = [stamps, *(rows.column(name) for name in names)]
        rows = pa.RecordBatch.from_arrays(columns, names=["timestamp", *names])
        if not work.by_key:
            self._lane((topic, key.partition)).add(rows)
            return
        nowhere = pa.nulls(rows.num_rows, pa.int32())
        keys, values = rows.column("key"), rows.column("value")
        where = partitions_of(keys, values, nowhere, count=work.counts[topic], topic=topic)
        for partition in np.unique(where).tolist():
            self._lane((topic, partition)).add(rows.filter(pa.array(where == partition)))

    def _lane(self, where: tuple[str, int]) -> _Lane:
        found = self._lanes.get(where)
        if found is None:
            found = self._lanes[where] = _Lane(self._senders.of(where), self._work.options)
        return found

    def flush(self) -> None:
        """Sends what waits."""
        for lane in self._lanes.values():
            lane.flush()

    def settle(self) -> int:
        """Waits until all that was sent is in the log; the bytes of it."""
        return sum(lane.sender.finish().bytes for lane in self._lanes.values())

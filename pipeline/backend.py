"""What the readers ask of a place where logs are, be it files or brokers, and what crosses to the tasks.

Owns the words between the parts: which partitions (`Selection`), which offsets (`OffsetRange`), what of each record
(`Wanted`), and the two protocols that files and brokers fulfil: `Backend` at the driver, `Piece` in a task. Pure: no
Spark, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

OnCorrupt = Literal["fail", "skip", "emit"]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """Records to be read: from offset `start` on, up to but without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """How many offsets, which may be more than there are records."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions: one of Spark's `subscribe`, `subscribePattern` and `assign`; none of them means every topic but
    the brokers' own."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] | None = None

    def of(self, known: Iterable[TopicPartition], internal: frozenset[str]) -> list[TopicPartition]:
        """Those of the known partitions that are selected, sorted. `internal` topics only where they are named."""
        if self.assigned is not None:
            return sorted(set(self.assigned) & set(known))
        if self.topics is not None:
            return sorted(key for key in known if key.topic in self.topics)
        matches = re.compile(self.pattern).fullmatch if self.pattern is not None else None
        return sorted(key for key in known if key.topic not in internal and (matches is None or matches(key.topic)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of each record is given, and which records.

    `columns` are names of `columns.FIELDS`, in the order of the rows. `committed`: aborted transactions and what is
    behind the last stable offset are left out (isolationLevel=read_committed). `control`: markers of transactions are
    given, too. `from_ms`, `before_ms`: only entries that may have records in these times need to be looked at (epoch
    milliseconds; a hint: Spark filters again). `on_corrupt`: what becomes of an entry that is damaged.
    `max_batch_bytes` bounds what one entry may become when it is decompressed. `fail_on_loss`: records that are gone
    when they are to be read are a DataLoss; else a line in the log, and reading goes on behind them (failOnDataLoss).
    """

    columns: tuple[str, ...]
    committed: bool = False
    control: bool = False
    from_ms: int | None = None
    before_ms: int | None = None
    on_corrupt: OnCorrupt = "fail"
    max_batch_bytes: int = 128 << 20
    fail_on_loss: bool = True


class Piece(Protocol):
    """Work of one task: a value that can be pickled, of some hundred bytes."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """The records, in order of their offsets, with the columns that are wanted. ReadError."""
        ...


class Backend(Protocol):
    """A place where logs are, seen from the driver. A context manager; every method raises ReadError."""

    def __enter__(self) -> Backend: ...

    def __exit__(self, *_: object) -> None: ...

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        """The partitions that there are now, sorted. A topic that was named and is not there is an error."""
        ...

    def earliest(self, of: Sequence[TopicPartition]) -> Offsets:
        """The log start offsets. Partitions that are gone are left out."""
        ...

    def latest(self, of: Sequence[TopicPartition], *, committed: bool) -> Offsets:
        """The offsets behind what may be read: high watermarks, or last stable offsets. Gone ones are left out."""
        ...

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is as late as this, or later (epoch milliseconds); None if there is none."""
        ...

    def pieces(self, ranges: Sequence[OffsetRange], wanted: Wanted, *, at_least: int | None) -> Sequence[Piece]:
        """Work that covers the ranges, each offset once. `at_least`: minPartitions."""
        ...


class ReadError(Exception):
    """Logs cannot be read as asked: one sentence that names what and where."""


class DataLoss(ReadError):
    """Records that were to be read are gone: aged out, truncated, or their topic was deleted (failOnDataLoss)."""

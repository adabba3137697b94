"""The interface between the data sources and the logs that they read, in files or on brokers.

Owns the values of that interface: the partitions (`Selection`), the offsets (`OffsetRange`), the columns and records
(`Wanted`), and two protocols that files and brokers implement: `Backend` at the driver, `Piece` in a task. Pure: no
Spark, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

from ..storage.errors import StorageError

OnCorrupt = Literal["fail", "skip", "emit"]

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""The internal topics of brokers, read only if they are named."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start`, inclusive, to `end`, exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets. Compaction and transaction markers leave fewer records."""
        return max(0, self.end - self.start)


def pattern(like: str | None) -> re.Pattern[str] | None:
    """Returns the compiled regular expression. Raises ReadError if it is none."""
    try:
        return None if like is None else re.compile(like)
    except re.error as error:
        raise ReadError(f"{like!r} is not a regular expression: {error}") from error


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions of a query, by one of Spark's `subscribe`, `subscribePattern` and `assign`; without any, all
    topics but the brokers' internal ones."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] | None = None

    @classmethod
    def named(cls, topics: Sequence[str] | None, like: str | None) -> Selection:
        """Returns these topics of which the full names match `like`; those of all that match, without `topics`. Raises
        ReadError if `like` is not a regular expression."""
        matches = pattern(like)
        if topics is None:
            return cls(pattern=like)
        return cls(tuple(topic for topic in topics if matches is None or matches.fullmatch(topic)))

    def of(self, known: Iterable[TopicPartition], internal: frozenset[str]) -> list[TopicPartition]:
        """Returns the selected ones of the `known` partitions, sorted. `internal` topics need to be named."""
        if self.assigned is not None:
            return sorted(set(self.assigned) & set(known))
        if self.topics is not None:
            return sorted(key for key in known if key.topic in self.topics)
        matches = re.compile(self.pattern).fullmatch if self.pattern is not None else None
        return sorted(key for key in known if key.topic not in internal and (matches is None or matches(key.topic)))


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns and the records that a query reads.

    `columns` are names of `columns.FIELDS`, in the order of the rows. `committed` leaves out aborted transactions and
    everything from the last stable offset on (isolationLevel=read_committed). `control` includes transaction markers.
    `from_ms` and `before_ms` (epoch milliseconds) are a hint: batches without records in these times may be skipped,
    and Spark filters again. `on_corrupt` is the treatment of damaged batches. `max_batch_bytes` bounds the decompressed
    size of one batch. `fail_on_loss` (failOnDataLoss): records that are deleted before they are read raise DataLoss;
    without it a warning is logged and reading continues after them. Without `check_crcs` (checkCrcs) no CRC of v2
    batches is computed unless a column shows it.
    """

    columns: tuple[str, ...]
    committed: bool = False
    control: bool = False
    from_ms: int | None = None
    before_ms: int | None = None
    on_corrupt: OnCorrupt = "fail"
    max_batch_bytes: int = 128 << 20
    fail_on_loss: bool = True
    check_crcs: bool = True

    @property
    def computes_crcs(self) -> bool:
        """Whether the CRCs of v2 batches are computed."""
        return self.check_crcs or "crcOk" in self.columns or self.on_corrupt == "emit"


class Piece(Protocol):
    """The work of one task: a picklable value of some hundred bytes."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields the records in offset order, with the wanted columns. Raises ReadError."""
        ...


class Backend(Protocol):
    """Logs in one place, as the driver reads them. A context manager; every method raises ReadError."""

    def __enter__(self) -> Backend: ...

    def __exit__(self, *_: object) -> None: ...

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        """Returns the selected partitions that exist, sorted. Raises ReadError for a named topic that does not
        exist."""
        ...

    def earliest(self, of: Sequence[TopicPartition]) -> Offsets:
        """Returns the log start offsets, without partitions that no longer exist."""
        ...

    def latest(self, of: Sequence[TopicPartition], *, committed: bool) -> Offsets:
        """Returns the high watermarks, or with `committed` the last stable offsets, without partitions that no longer
        exist."""
        ...

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Returns the first offset whose timestamp is >= the given one (epoch milliseconds), or None."""
        ...

    def topic_id(self, topic: str) -> bytes:
        """Returns the id of a topic; ZERO_UUID if it has none, or if the broker reports none."""
        ...

    def pieces(self, ranges: Sequence[OffsetRange], wanted: Wanted, *, at_least: int | None) -> Sequence[Piece]:
        """Returns the work that covers each offset of the ranges once. `at_least` is minPartitions."""
        ...


class ReadError(Exception):
    """Logs cannot be read. The message is one sentence with the cause and the place."""


@contextmanager
def as_read_error(what: str = "") -> Iterator[None]:
    """Turns a StorageError into ReadError; with `what`, which then precedes the text, an OSError as well."""
    try:
        yield
    except StorageError as error:
        raise ReadError(f"{what}: {error}" if what else str(error)) from error
    except OSError as error:
        if not what:
            raise
        raise ReadError(f"{what}: {error.strerror or error}") from error


class DataLoss(ReadError):
    """Records of the query are gone: deleted by retention, truncated, or their topic was deleted (failOnDataLoss)."""

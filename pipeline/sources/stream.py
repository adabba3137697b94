"""Streaming queries: one reader for all three sources, over whatever `Backend` their options name.

Owns the words between Spark and `streams.Stream`, and committing to a consumer group (`commitGroup`). Spark keeps one
process with one reader for each query, which plans the batches, and another short-lived reader from which the tasks
have `read`: so places are opened when they are first asked, and none is carried along when a reader is pickled.

What is processed is known by Spark's checkpoint alone; the group is told for others to see. Spark says that a batch is
done (`commit`) only when it has found records for the next one, which may be never. But it asks for the next one from
where the last that is done ended, so that this is told already then. A commit that fails does not stop the query: it is
in the log, and is tried again with what is processed next, or when the query stops.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .. import schemas
from ..backend import Backend, Offsets, Piece, ReadError
from ..offsets import positions
from ..options import SourceOptions
from ..streams import Limit, Position, Rules, Stream, offsets_of
from .reader import BackendFactory, arrow_schema, as_asked

_log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000  # the query waits for its commits
COMMIT_REST = 9  # after a failure, nine times as long as it took: waiting for dead brokers costs a tenth of the time

T = TypeVar("T")
Commit = Callable[[Offsets], None]


def stream_reader(options: SourceOptions, backend: BackendFactory, schema: StructType) -> LogsStreamReader:
    """What a source gives Spark for a streaming query."""
    return LogsStreamReader(options, backend, schema)


class LogsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a streaming query, and reads their pieces in the tasks; can be pickled if `backend` can."""

    def __init__(self, options: SourceOptions, backend: BackendFactory, schema: StructType) -> None:
        self.options = options
        self.columns = schemas.checked(schema, options)
        self.arrow = arrow_schema(schema)
        self._backend = backend
        self._open: Backend | None = None
        self._stream: Stream | None = None
        self._group: Group | None = None
        self._initial: Position | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": None, "_stream": None, "_group": None}

    def initialOffset(self) -> Position:
        """Where a query begins that has no checkpoint, or died in its first batch."""
        self._initial = self._plainly(self._streaming().initial)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark can be told one limit only: of two it is told the upper, and the lower holds all the same."""
        limit = self._rules().limit
        if limit.at_most is not None:
            return ReadMaxRows(limit.at_most)
        return ReadAllAvailable() if limit.at_least is None else ReadMinRows(limit.at_least)

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """Where the batch that begins at `start` ends."""
        default = self._rules().limit
        match limit:
            case ReadAllAvailable():
                asked = Limit()
            case ReadMaxRows(at_most):
                asked = default._replace(at_most=at_most)
            case ReadMinRows(at_least):
                asked = default._replace(at_least=at_least)
            case _:
                asked = default
        self._processed(start)
        return self._plainly(lambda: self._streaming().latest(start, asked))

    def prepareForTriggerAvailableNow(self) -> None:
        """The query ends with what there is now."""
        self._plainly(self._streaming().fix_ends)

    def reportLatestOffset(self) -> Position | None:
        """How far the logs go, whatever the limit: `latestOffset` in the query's progress, and what `lag` needs."""
        return self._streaming().reported()

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """One for each piece of what is between two positions."""
        return [InputPartition(piece) for piece in self._plainly(lambda: self._streaming().pieces(start, end))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a piece, as Arrow record batches."""
        piece: Piece = partition.value
        try:
            for found in piece.read():
                yield as_asked(found, self.arrow)
        except ReadError as error:
            raise error.with_traceback(None) from None

    def commit(self, end: Position) -> None:
        """Everything before `end` is processed."""
        self._processed(end)

    def stop(self) -> None:
        """The query is over."""
        if self._group is not None:
            self._group.close()
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = self._stream = self._group = None

    def _processed(self, end: Position) -> None:
        name = self.options.commit_group
        if name is None or end == self._initial:
            return
        if self._group is None:
            self._group = Group(name, committing(self.options), now_ms=_now_ms)
        self._group.processed(offsets_of(end))

    def _rules(self) -> Rules:
        options = self.options

        def start(backend: Backend) -> Offsets:
            return positions(
                backend,
                backend.partitions(options.selection),
                options.starting,
                committed=options.committed,
                no_match=options.no_match,
            )

        return Rules(
            selection=options.selection,
            wanted=options.wanted(self.columns),
            start=start,
            limit=Limit(options.max_offsets_per_trigger, options.min_offsets_per_trigger),
            max_delay_ms=options.max_trigger_delay_ms,
            min_pieces=options.min_partitions,
            max_records=options.max_records_per_partition,
        )

    def _streaming(self) -> Stream:
        if self._stream is None:
            self._open = self._plainly(lambda: self._backend().__enter__())
            self._stream = Stream(self._open, self._rules(), now_ms=_now_ms, pause=_pause, warn=self._warn)
        return self._stream

    def _warn(self, sentence: str) -> None:
        _log.warning("%s: %s", self.options.source, sentence)

    def _plainly(self, work: Callable[[], T]) -> T:
        """Spark shows an error behind a traceback: it is kept short, so that the last line is found."""
        try:
            return work()
        except ReadError as error:
            raise error.with_traceback(None) from None


class Group:
    """A consumer group that is told how far the query is. Failures are told in the log, and never raised."""

    def __init__(self, name: str, commit: Commit, *, now_ms: Callable[[], int]) -> None:
        self.name = name
        self._commit = commit
        self._now_ms = now_ms
        self._told: Offsets = {}
        self._owed: Offsets | None = None
        self._rests_until_ms: int | None = None

    def processed(self, offsets: Offsets) -> None:
        """Commits these offsets, unless they are known, or the last try has failed a short while ago."""
        self._owed = offsets if offsets != self._told else None
        if self._owed and (self._rests_until_ms is None or self._now_ms() >= self._rests_until_ms):
            self._try(self._owed)

    def close(self) -> None:
        """A last try, where something is owed."""
        if self._owed:
            self._try(self._owed)

    def _try(self, owed: Offsets) -> None:
        begun_ms = self._now_ms()
        try:
            self._commit(owed)
        except ReadError as error:
            now_ms = self._now_ms()
            self._rests_until_ms = now_ms + COMMIT_REST * (now_ms - begun_ms)
            _log.warning("not committed to group %s, tried again later: %s", self.name, error)
        else:
            self._told, self._owed, self._rests_until_ms = owed, None, None


def committing(options: SourceOptions) -> Commit:
    """Commits offsets by the `kafka.*` options, with less patience than they have by default."""
    from ..readers.wire import commit_offsets

    limits = {"default.api.timeout.ms": str(COMMIT_TIMEOUT_MS), "request.timeout.ms": str(COMMIT_TIMEOUT_MS)}
    config = {**limits, **options.kafka}
    group = options.commit_group or ""
    return lambda offsets: commit_offsets(config, group, offsets)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _pause(wait_ms: int) -> None:
    time.sleep(wait_ms / 1000)

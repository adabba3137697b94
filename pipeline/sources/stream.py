"""Streaming queries: one reader for all three sources, over the `Backend` of their options.

Adapts `streams.Stream` to Spark, and commits to a consumer group (`commitGroup`). Spark keeps one process with one
reader for each query, which plans the batches; tasks unpickle another short-lived reader and call its `read`. So
backends are opened on first use and are not pickled.

Only Spark's checkpoint has the progress of the query; the offsets in the group are for monitoring. Spark calls `commit`
for a batch only after it has found records for the next one, which may be never. But it calls `latestOffset` with the
end of the last finished batch, so the offsets are committed then already. A failed commit does not stop the query: it
is logged, and tried again with the next progress and when the query stops.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from .. import schemas
from ..backend import Backend, Offsets, ReadError
from ..offsets import positions
from ..options import SourceOptions
from ..spark_api import (
    PASSES_START,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    arrow_schema,
)
from ..streams import Limit, Position, Rules, Stream, offsets_of
from .reader import BackendFactory, plainly, rows_of_piece

_log = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000  # the default: the query waits for its commits
COMMIT_REST = 9  # pause after a failed commit, times its duration; failing brokers take at most a tenth of the time

Commit = Callable[[Offsets], None]


def stream_reader(options: SourceOptions, backend: BackendFactory, schema: StructType) -> LogsStreamReader:
    """Returns the reader of a streaming query. Raises ReadError for a limit that Spark is too old for."""
    if PASSES_START:
        return LogsStreamReader(options, backend, schema)
    limits = {
        "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
        "minOffsetsPerTrigger": options.min_offsets_per_trigger,
    }
    for name, value in limits.items():
        if value is not None:
            raise ReadError(f"{name} needs PySpark 4.2 or later: earlier ones pass no start of a batch to a source")
    return UnlimitedStreamReader(options, backend, schema)


class LogsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a streaming query and reads their pieces in the tasks; picklable if `backend` is."""

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

    @plainly
    def initialOffset(self) -> Position:
        """Returns the start of a query that has no checkpoint, or that died in its first batch."""
        self._initial = self._streaming().initial()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the read limit of the options. Spark takes one limit only: with two it gets the upper, and
        `latestOffset` applies the lower as well."""
        limit = self._rules().limit
        if limit.at_most is not None:
            return ReadMaxRows(limit.at_most)
        return ReadAllAvailable() if limit.at_least is None else ReadMinRows(limit.at_least)

    @plainly
    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """Returns the end of the batch that begins at `start`."""
        default = self._rules().limit
        match limit:
            case ReadAllAvailable():
                effective = Limit()
            case ReadMaxRows(at_most):
                effective = default._replace(at_most=at_most)
            case ReadMinRows(at_least):
                effective = default._replace(at_least=at_least)
            case _:
                effective = default
        self._processed(start)
        return self._streaming().latest(start, effective)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the current log ends as the end of the query."""
        self._streaming().fix_ends()

    @plainly
    def reportLatestOffset(self) -> Position | None:
        """Returns the log ends regardless of the limit: `latestOffset` in the query's progress, from which `lag` is
        computed."""
        return self._streaming().reported()

    @plainly
    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """Returns one partition for each piece between two positions."""
        return [InputPartition(piece) for piece in self._streaming().pieces(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Returns the rows of a piece as Arrow record batches."""
        return rows_of_piece(partition.value, self.arrow)

    def commit(self, end: Position) -> None:
        """Commits the offsets before `end` to the consumer group."""
        self._processed(end)

    def stop(self) -> None:
        """Closes the group and the backend at the end of the query. If Spark has gone, the process ends, too."""
        if self._group is not None:
            self._group.close()
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = self._stream = self._group = None
        if isinstance(sys.exc_info()[1], EOFError):
            # PySpark would report the closed connection over it, which a Unix socket refuses: a traceback on stderr
            # after a query that has ended as it should.
            os._exit(0)

    def _processed(self, end: Position) -> None:
        name = self.options.commit_group
        if name is None or end == self._initial:
            return
        if self._group is None:
            from ..readers.wire import commit_offsets

            limits = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str(COMMIT_TIMEOUT_MS))
            self._group = Group(name, partial(commit_offsets, {**limits, **self.options.kafka}, name), now_ms=_now_ms)
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
            self._open = self._backend().__enter__()
            warn = partial(_log.warning, "%s: %s", self.options.source)
            self._stream = Stream(self._open, self._rules(), now_ms=_now_ms, pause=_pause, warn=warn)
        return self._stream


class UnlimitedStreamReader(LogsStreamReader):
    """The reader for PySpark before 4.2, which does not pass the start of a batch: it is the end of the last one.

    After a restart that is not known before the first batch is planned, and the batch ends at the log ends of that
    time.
    """

    def __init__(self, options: SourceOptions, backend: BackendFactory, schema: StructType) -> None:
        super().__init__(options, backend, schema)
        self._reached: Position | None = None

    def initialOffset(self) -> Position:
        self._reached = super().initialOffset()
        return self._reached

    @plainly
    def latestOffset(self, start: Position | None = None, limit: ReadLimit | None = None) -> Position:
        """Returns the end of the next batch."""
        if self._reached is None:
            return self._streaming().ends()
        return super().latestOffset(self._reached, ReadAllAvailable())

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        self._reached = end
        return super().partitions(start, end)


class Group:
    """A consumer group that receives the progress of a query. Failed commits are logged, never raised."""

    def __init__(self, name: str, commit: Commit, *, now_ms: Callable[[], int]) -> None:
        self.name = name
        self._commit = commit
        self._now_ms = now_ms
        self._committed: Offsets = {}
        self._owed: Offsets | None = None
        self._rests_until_ms: int | None = None

    def processed(self, offsets: Offsets) -> None:
        """Commits these offsets, unless they are committed already or the last attempt failed a short while ago."""
        self._owed = offsets if offsets != self._committed else None
        if self._owed and (self._rests_until_ms is None or self._now_ms() >= self._rests_until_ms):
            self._try(self._owed)

    def close(self) -> None:
        """Tries once more to commit offsets whose commit failed."""
        if self._owed:
            self._try(self._owed)

    def _try(self, owed: Offsets) -> None:
        begun_ms = self._now_ms()
        try:
            self._commit(owed)
        except ReadError as error:
            now_ms = self._now_ms()
            self._rests_until_ms = now_ms + COMMIT_REST * (now_ms - begun_ms)
            _log.warning("commit to group %s failed, retried later: %s", self.name, error)
        else:
            self._committed, self._owed, self._rests_until_ms = owed, None, None


def _now_ms() -> int:
    return int(time.monotonic() * 1000)


def _pause(wait_ms: int) -> None:
    time.sleep(wait_ms / 1000)

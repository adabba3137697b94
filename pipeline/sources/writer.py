"""The source `ottla` as a sink: streaming queries and batches into topics.

Spark's Python sinks cannot shuffle. So the tasks of a stream stage their rows, and the driver writes each micro-batch
as one transaction, once; likewise a batch with `idempotencyKey`. Without it the tasks of a batch send their rows
themselves, at least once. Owns the words between Spark and `sink/`. What is large is better written by
`write_exactly_once`, which shuffles.

As with Spark's Kafka sink, a stream in complete mode writes all its rows in every micro-batch, and nothing that is
written is ever replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..sink.errors import SinkError
from ..sink.exactly_once import checked
from ..sink.gathered_writes import send_rows, write_staged
from ..sink.options import SinkOptions
from ..sink.staged_rows import Place, Staged, folder, remove, stage, sweep

__all__ = ["BatchWriter", "StagedBatchWriter", "StreamWriter", "batch_writer", "stream_writer"]

_log = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
ONE_BATCH = 0  # the id of a batch that is the only one of its key


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """What the source gives Spark to write a stream with. Raises SinkError."""
    given = SinkOptions.read(options)
    if given.idempotency_key is not None:
        raise SinkError("idempotencyKey is for batches: a stream is known by its transactionalId, and its batch ids")
    return StreamWriter(given, _checked(schema, given))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter | StagedBatchWriter:
    """What the source gives Spark to write a batch with. Raises SinkError."""
    given = SinkOptions.read(options)
    if overwrite:
        raise SinkError('mode("overwrite") cannot be: what is in a topic stays there; mode("append") adds to it')
    if given.transactional_id is not None:
        raise SinkError("transactionalId is for streams: a batch that is to be written once has an idempotencyKey")
    columns = _checked(schema, given)
    if given.idempotency_key is not None:
        return StagedBatchWriter(given, columns)
    if given.order_by:
        raise SinkError("orderBy needs idempotencyKey: without it each task writes its rows as they come")
    _log.warning(
        "ottla: the batch is written at least once: a task that is tried again writes its rows again; with the option"
        " idempotencyKey it is written exactly once"
    )
    return BatchWriter(given)


def _checked(schema: StructType, options: SinkOptions) -> list[str]:
    """The columns that are looked at. Raises SinkError."""
    names = checked(schema, options, of_all=True)  # Spark leaves none out
    if options.staging_location is not None:
        folder(options.staging_location)
    return names


@dataclass(frozen=True, slots=True)
class StagedRows(WriterCommitMessage):
    """What a task has staged, of which query."""

    staged: Staged
    query: str | None


@dataclass(frozen=True, slots=True)
class RowsSent(WriterCommitMessage):
    """How many rows a task has written."""

    records: int


def _staged(messages: Iterable[WriterCommitMessage | None]) -> list[Staged]:
    return [message.staged for message in messages if isinstance(message, StagedRows)]


class StreamWriter(DataSourceStreamArrowWriter):
    """Stages the rows of each micro-batch in the tasks, and writes them at the driver."""

    def __init__(self, options: SinkOptions, columns: Sequence[str]) -> None:
        self._options, self._columns = options, list(columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """In a task: nothing goes to the brokers yet."""
        with _plainly():
            context = TaskContext.get()
            query = context.getLocalProperty(QUERY_ID) if context is not None else None
            batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
            place = self._place(query, int(batch or 0))
            return StagedRows(stage((rows.select(self._columns) for rows in iterator), place), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """One transaction, unless this micro-batch is committed already; then what was staged is removed."""
        with _plainly():
            query = next((one.query for one in messages if isinstance(one, StagedRows)), None)
            transactional_id = self._options.transactional_id or (f"ottla-{query}" if query else None)
            if transactional_id is None:
                raise SinkError("Spark does not say which query this is: transactionalId must be given")
            report = write_staged(self._options, transactional_id, batchId, _staged(messages), query=query)
            if not report.written:
                _log.warning("ottla: %s", report.to_text())
            if (place := self._place(query, batchId)) is not None:
                sweep(place)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was sent; what was staged is removed."""
        remove(_staged(messages))

    def _place(self, query: str | None, batch_id: int) -> Place | None:
        location = self._options.staging_location
        return Place(location, query or self._options.transactional_id or "", batch_id) if location else None


class StagedBatchWriter(DataSourceArrowWriter):
    """A batch that is written once, by its key: staged in the tasks, written at the driver."""

    def __init__(self, options: SinkOptions, columns: Sequence[str]) -> None:
        self._options, self._columns = options, list(columns)
        location = options.staging_location
        owner = sha256((options.idempotency_key or "").encode()).hexdigest()[:32]  # a key may be too long for a name
        self._place = Place(location, f"key-{owner}", ONE_BATCH) if location else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """In a task."""
        with _plainly():
            return StagedRows(stage((rows.select(self._columns) for rows in iterator), self._place), None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """One transaction, unless there was one with this key."""
        with _plainly():
            transactional_id = f"ottla-{self._options.idempotency_key}"
            report = write_staged(self._options, transactional_id, ONE_BATCH, _staged(messages))
            if not report.written:
                _log.warning("ottla: a batch with this idempotencyKey was written before: nothing is written")
            if self._place is not None:
                sweep(self._place)  # also of runs that were killed; one that is under way would write nothing any more

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was sent; another run with the key may be under way."""
        remove(_staged(messages))


class BatchWriter(DataSourceArrowWriter):
    """A batch whose tasks send their rows as they come: at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsSent:
        """In a task."""
        with _plainly():
            return RowsSent(send_rows(self._options, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All is written."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was written stays."""


class _plainly:
    """Spark shows a traceback before an error: ours say it all in their sentence."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, SinkError):
            raise error.with_traceback(None) from None

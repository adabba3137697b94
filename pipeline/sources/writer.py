"""The source `ottla` as a sink: streaming queries and batches into topics.

Spark's Python sinks cannot shuffle. So the tasks of a stream stage their rows, and the driver writes each micro-batch
exactly once as one transaction; likewise a batch with `idempotencyKey`. Without it the tasks of a batch send their rows
themselves, at least once. Adapts `sink/` to Spark. For large data use `write_exactly_once`, which shuffles.

As in Spark's Kafka sink, a stream in complete mode writes all its rows in every micro-batch, and records in a topic are
never replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..sink.errors import SinkError
from ..sink.exactly_once import checked
from ..sink.gathered_writes import send_rows, write_staged
from ..sink.options import SinkOptions
from ..sink.staged_rows import Place, Staged, folder, remove, stage, sweep
from ..spark_api import DataSourceStreamArrowWriter

__all__ = ["BatchWriter", "StagedBatchWriter", "StreamWriter", "batch_writer", "stream_writer"]

_log = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
ONE_BATCH = 0  # the batch id of a batch with an idempotencyKey


def stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """Returns the writer of a stream. Raises SinkError."""
    given = SinkOptions.read(options)
    if given.idempotency_key is not None:
        raise SinkError("idempotencyKey is only for batches: a stream is written exactly once by its transactionalId")
    return StreamWriter(given, _checked(schema, given))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter | StagedBatchWriter:
    """Returns the writer of a batch. Raises SinkError."""
    given = SinkOptions.read(options)
    if overwrite:
        raise SinkError('mode("overwrite") is not supported: records in a topic cannot be replaced; use mode("append")')
    if given.transactional_id is not None:
        raise SinkError("transactionalId is only for streams: set idempotencyKey to write a batch exactly once")
    columns = _checked(schema, given)
    if given.idempotency_key is not None:
        return StagedBatchWriter(given, columns)
    if given.order_by:
        raise SinkError("orderBy needs idempotencyKey: without it each task sends its rows unsorted")
    _log.warning(
        "ottla: the batch is written at least once: a retried task writes its rows again; with the option"
        " idempotencyKey it is written exactly once"
    )
    return BatchWriter(given)


def _checked(schema: StructType, options: SinkOptions) -> list[str]:
    """Returns the columns that are read. Raises SinkError."""
    names = checked(schema, options, of_all=True)  # Spark passes all columns
    if options.staging_location is not None:
        folder(options.staging_location)
    return names


@dataclass(frozen=True, slots=True)
class StagedRows(WriterCommitMessage):
    """The staged rows of a task, and the id of their query."""

    staged: Staged
    query: str | None


@dataclass(frozen=True, slots=True)
class RowsSent(WriterCommitMessage):
    """The number of rows that a task has sent."""

    records: int


def _staged(messages: Iterable[WriterCommitMessage | None]) -> list[Staged]:
    return [message.staged for message in messages if isinstance(message, StagedRows)]


class StreamWriter(DataSourceStreamArrowWriter):
    """Stages the rows of each micro-batch in the tasks and writes them at the driver."""

    def __init__(self, options: SinkOptions, columns: Sequence[str]) -> None:
        self._options, self._columns = options, list(columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stages the rows of a task; nothing is sent to brokers yet."""
        with _plainly():
            context = TaskContext.get()
            query = context.getLocalProperty(QUERY_ID) if context is not None else None
            batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
            place = self._place(query, int(batch or 0))
            return StagedRows(stage((rows.select(self._columns) for rows in iterator), place), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Writes the micro-batch in one transaction unless it is committed already, and removes the staged rows."""
        with _plainly():
            query = next((one.query for one in messages if isinstance(one, StagedRows)), None)
            transactional_id = self._options.transactional_id or (f"ottla-{query}" if query else None)
            if transactional_id is None:
                raise SinkError(f"Spark did not set {QUERY_ID} in the tasks: set the option transactionalId")
            report = write_staged(self._options, transactional_id, batchId, _staged(messages), query=query)
            if not report.written:
                _log.warning("ottla: %s", report.to_text())
            if (place := self._place(query, batchId)) is not None:
                sweep(place)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Removes the staged rows; none were sent."""
        remove(_staged(messages))

    def _place(self, query: str | None, batch_id: int) -> Place | None:
        location = self._options.staging_location
        return Place(location, query or self._options.transactional_id or "", batch_id) if location else None


class StagedBatchWriter(DataSourceArrowWriter):
    """Writes a batch exactly once by its key: tasks stage the rows, the driver writes them."""

    def __init__(self, options: SinkOptions, columns: Sequence[str]) -> None:
        self._options, self._columns = options, list(columns)
        location = options.staging_location
        # A key may be too long for a file name.
        owner = sha256((options.idempotency_key or "").encode()).hexdigest()[:32]
        self._place = Place(location, f"key-{owner}", ONE_BATCH) if location else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stages the rows of a task."""
        with _plainly():
            return StagedRows(stage((rows.select(self._columns) for rows in iterator), self._place), None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Writes the batch in one transaction, unless one with this key was committed before."""
        with _plainly():
            transactional_id = f"ottla-{self._options.idempotency_key}"
            report = write_staged(self._options, transactional_id, ONE_BATCH, _staged(messages))
            if not report.written:
                _log.warning("ottla: a batch with this idempotencyKey was written before: nothing is written")
            if self._place is not None:
                # Staged rows of killed runs as well; a concurrent run with this key would write nothing any more.
                sweep(self._place)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Removes the staged rows of this run; another run with the same key may be active."""
        remove(_staged(messages))


class BatchWriter(DataSourceArrowWriter):
    """A batch whose tasks send their rows directly: at least once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsSent:
        """Sends the rows of a task."""
        with _plainly():
            return RowsSent(send_rows(self._options, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: the tasks have written all rows."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: sent rows cannot be taken back."""


class _plainly:
    """Drops the traceback of a SinkError: Spark prints one of its own, and the message is complete without."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, SinkError):
            raise error.with_traceback(None) from None

"""The source `ottla` as a sink: streaming queries and batches into topics, at least once.

The tasks send their rows themselves, as those of Spark's Kafka sink: a task or a micro-batch that Spark repeats writes
its rows again. `write_exactly_once` writes each row once: that needs a shuffle, which sinks in Python do not have.
Adapts `sink/` to Spark.

As in Spark's Kafka sink, a stream in complete mode writes all its rows in every micro-batch, and records in a topic are
never replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..sink.errors import SinkError
from ..sink.exactly_once import checked
from ..sink.options import SinkOptions
from ..sink.task_writer import send_rows
from ..spark_api import DataSourceStreamArrowWriter
from .reader import plainly

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowsSent(WriterCommitMessage):
    """The number of rows that a task has sent."""

    records: int


class _Writer:
    """Sends the rows of a task. The driver has nothing to do: PySpark's own `commit` and `abort` do nothing."""

    _unit: ClassVar[str]

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Raises SinkError."""
        given = self._options = SinkOptions.read(options)
        for name, value in (("transactionalId", given.transactional_id), ("orderBy", given.order_by)):
            if value:
                raise SinkError(f"{name} is an option of write_exactly_once: the format ottla writes at least once")
        self._columns = checked(schema, given, of_all=True)  # Spark passes all columns
        _log.warning(
            "ottla: each %s is written at least once: if Spark repeats a task, its rows are written again;"
            " write_exactly_once writes each row once",
            self._unit,
        )

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsSent:
        return RowsSent(send_rows(self._options, (rows.select(self._columns) for rows in iterator)))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A stream whose tasks send their rows."""

    _unit = "micro-batch"


class BatchWriter(_Writer, DataSourceArrowWriter):
    """A batch whose tasks send their rows."""

    _unit = "batch"

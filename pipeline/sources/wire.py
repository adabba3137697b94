"""`ottla`: the records of topics, fetched from brokers and written to them."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from ..sink.errors import SinkError
from .source import LogsSource


class WireSource(LogsSource):
    """`spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")`, batch and streaming; likewise
    `df.write` and `df.writeStream`."""

    SOURCE = "ottla"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns the writer of a batch."""
        from .writer import batch_writer

        try:
            return batch_writer(self.options, schema, overwrite)
        except SinkError as error:
            raise error.with_traceback(None) from None

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Returns the writer of a streaming query. In complete mode (`overwrite`) each micro-batch has all rows, and
        all are written."""
        from .writer import stream_writer

        try:
            return stream_writer(self.options, schema)
        except SinkError as error:
            raise error.with_traceback(None) from None

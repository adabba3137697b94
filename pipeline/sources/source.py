"""The three data sources, and their common base: options, schema, and the readers of queries and streams."""

from __future__ import annotations

import logging
import sys
from functools import partial
from typing import ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .. import schemas
from ..backend import Backend, ReadError
from ..options import Source, SourceOptions, parse
from ..sink.errors import SinkError
from .reader import LogsReader, plainly

_log = logging.getLogger(__name__)


def open_backend(options: SourceOptions) -> Backend:
    """Returns the backend for the options. Imports only the modules of that source. Raises ReadError."""
    if options.source == "ottla":
        from ..readers.wire import WireBackend

        return WireBackend(options.kafka)
    from ..readers.files import BatchBackend, FileBackend

    backend = BatchBackend if options.source == "ottla_batches" else FileBackend
    return backend(options.paths, store_conf=dict(options.store))


def quiet_planner() -> None:
    """Makes this process end as those of `worker_daemon` do, if it is one in which Spark plans: Spark starts these by
    `pyspark.daemon`, whatever its configs are. One that works or waits when the JVM ends would print a traceback.
    """
    main = sys.modules["__main__"]
    if main.__spec__ is not None and main.__spec__.name == "pyspark.daemon":
        from ..worker_daemon import change

        change(main)


quiet_planner()


class LogsSource(DataSource):
    """The base of the three sources: makes schema, batch reader and stream reader from the options."""

    SOURCE: ClassVar[Source]

    @classmethod
    def name(cls) -> str:
        return cls.SOURCE

    @plainly
    def schema(self) -> StructType:
        """Returns the columns of the options. Spark does not report here whether the query is a stream."""
        return schemas.schema(parse(self.options, self.SOURCE, None))

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options(streaming=False)
        return LogsReader(options, partial(open_backend, options), schema)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .stream import stream_reader

        options = self._options(streaming=True)
        schemas.checked(schema, options)
        return stream_reader(options, partial(open_backend, options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Raises ReadError; without this method Spark would show a traceback of its own."""
        raise ReadError(f"{self.SOURCE} cannot be written to; the format ottla writes to brokers")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Raises ReadError, like `writer`."""
        raise ReadError(f"{self.SOURCE} cannot be written to; the format ottla writes to brokers")

    def _options(self, *, streaming: bool) -> SourceOptions:
        options = parse(self.options, self.SOURCE, streaming)
        for note in options.notes:
            _log.warning("%s: %s", self.SOURCE, note)
        return options


class LogSource(LogsSource):
    """`spark.read.format("ottla_log").load("/var/lib/ottla")`, batch and streaming: the records of log directories."""

    SOURCE = "ottla_log"


class BatchesSource(LogsSource):
    """`spark.read.format("ottla_batches").load("/var/lib/ottla")`, batch and streaming: the headers of the batches in
    log directories, one row per batch."""

    SOURCE = "ottla_batches"


class WireSource(LogsSource):
    """`spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")`, batch and streaming: the
    records of topics, fetched from brokers; likewise `df.write` and `df.writeStream`."""

    SOURCE = "ottla"

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .writer import BatchWriter

        if overwrite:
            text = 'mode("overwrite") is not supported: records in a topic cannot be replaced; use mode("append")'
            raise SinkError(text)
        return BatchWriter(self.options, schema)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Returns the writer of a streaming query. In complete mode (`overwrite`) each micro-batch has all rows, and
        all are written."""
        from .writer import StreamWriter

        return StreamWriter(self.options, schema)

"""The common base of the three data sources: options, schema, and the readers of queries and streams."""

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
from .reader import LogsReader

_log = logging.getLogger(__name__)


def open_backend(options: SourceOptions) -> Backend:
    """Returns the backend for the options. Imports only the modules of that source. Raises ReadError."""
    if options.source == "ottla":
        from ..readers.wire import WireBackend

        return WireBackend(options.kafka)
    from ..readers.files import FileBackend
    from ..readers.files.batch_backend import BatchBackend

    backend = BatchBackend if options.source == "ottla_batches" else FileBackend
    return backend(options.paths, store_conf=dict(options.store))


def quiet_planner() -> None:
    """Makes this process end as those of `worker_daemon` do, if it is one in which Spark plans: Spark starts these by
    `pyspark.daemon`, whatever its configs are. One that waited for more work when the JVM ended printed a traceback.
    """
    main = sys.modules["__main__"]
    if main.__spec__ is not None and main.__spec__.name == "pyspark.daemon":
        from ..worker_daemon import worker

        setattr(main, "worker", worker)  # noqa: B010 (a module's attribute for the type checker)


quiet_planner()


class LogsSource(DataSource):
    """The base of the three sources: makes schema, batch reader and stream reader from the options."""

    SOURCE: ClassVar[Source]

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format`."""
        return cls.SOURCE

    def schema(self) -> StructType:
        """Returns the columns of the options. Spark does not report here whether the query is a stream."""
        try:
            return schemas.schema(parse(self.options, self.SOURCE, None))
        except ReadError as error:
            raise error.with_traceback(None) from None

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader of a batch query."""
        try:
            options = self._options(streaming=False)
            return LogsReader(options, partial(open_backend, options), schema)
        except ReadError as error:
            raise error.with_traceback(None) from None

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns the reader of a streaming query."""
        from .stream import stream_reader

        try:
            options = self._options(streaming=True)
            schemas.checked(schema, options)
            return stream_reader(options, partial(open_backend, options), schema)
        except ReadError as error:
            raise error.with_traceback(None) from None

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

"""What the three data sources have in common: options, schema, and the readers of queries and streams."""

from __future__ import annotations

import logging
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
    """Where the records are that the options name. Raises ReadError. Each source imports only what it needs."""
    if options.source == "ottla":
        from ..readers.wire import WireBackend

        return WireBackend(options.kafka)
    from ..readers.files import FileBackend
    from ..readers.files.batch_backend import BatchBackend

    return BatchBackend(options.paths) if options.source == "ottla_batches" else FileBackend(options.paths)


class LogsSource(DataSource):
    """What the three sources have in common: their options make a schema, a reader, and a reader of a stream."""

    SOURCE: ClassVar[Source]

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return cls.SOURCE

    def schema(self) -> StructType:
        """The columns by the options. Whether it is for a stream Spark does not say yet."""
        try:
            return schemas.schema(parse(self.options, self.SOURCE, None))
        except ReadError as error:
            raise error.with_traceback(None) from None

    def reader(self, schema: StructType) -> DataSourceReader:
        """For a batch query."""
        try:
            options = self._options(streaming=False)
            return LogsReader(options, partial(open_backend, options), schema)
        except ReadError as error:
            raise error.with_traceback(None) from None

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For a streaming query."""
        from .stream import stream_reader

        try:
            options = self._options(streaming=True)
            schemas.checked(schema, options)
            return stream_reader(options, partial(open_backend, options), schema)
        except ReadError as error:
            raise error.with_traceback(None) from None

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refused: Spark would show a traceback of its own."""
        raise ReadError(f"{self.SOURCE} only reads; the format ottla writes to brokers")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """As `writer`."""
        raise ReadError(f"{self.SOURCE} only reads; the format ottla writes to brokers")

    def _options(self, *, streaming: bool) -> SourceOptions:
        options = parse(self.options, self.SOURCE, streaming)
        for note in options.notes:
            _log.warning("%s: %s", self.SOURCE, note)
        return options

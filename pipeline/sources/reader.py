"""Batch queries: one reader for all three sources, over whatever `Backend` their options name.

Owns the order of planning: filters, partitions, ranges, pieces. What a piece is and how it is read is the backend's.
Errors are one sentence: Spark shows them behind a traceback, so the last line has to say it all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .. import schemas
from ..backend import Backend, Piece, ReadError
from ..filters import Narrowed, narrow, narrow_batches
from ..offsets import resolve, split
from ..options import SourceOptions

SCANS_ARE_APART = hasattr(DataSourceReader, "pushLimit")
"""Whether each query of Spark has a plan of its own. Up to 4.3 all queries of one `load()` share the last plan that was
made: once a filter is pushed down, the next query without one, or the other side of a union, would miss rows. What came
with `pushLimit` parts them."""

BackendFactory = Callable[[], Backend]


class _Pushdown:
    """The reader's `pushFilters`, of which Spark believes that it is not overridden.

    A reader that overrides it fails in every session in which `spark.sql.python.filterPushdown.enabled` is false, its
    default. Nothing is lost where this one is not called: Spark then evaluates all filters itself.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: LogsReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._reader.narrowed_by(filters)


class LogsReader(DataSourceReader):
    """Plans a batch query, and reads its pieces in the tasks; can be pickled if `backend` can."""

    def __init__(self, options: SourceOptions, backend: BackendFactory, schema: StructType) -> None:
        self.options = options
        self.columns = schemas.checked(schema, options)
        self.arrow = arrow_schema(schema)
        self.narrowed = Narrowed()
        self._backend = backend
        vars(self)["pushFilters"] = _Pushdown(self)

    def narrowed_by(self, filters: Sequence[Filter]) -> list[Filter]:
        """Takes over what filters say of where to look; gives those back that Spark must evaluate again: all of them
        where that is not safe, unless the option `pushdown` vouches that each query has a `load()` of its own."""
        if not (SCANS_ARE_APART if self.options.pushdown is None else self.options.pushdown):
            return list(filters)
        if self.options.source == "ottla_batches":
            self.narrowed, again = narrow_batches(filters)
        else:
            # The row of an entry that cannot be decoded has one offset for all that the entry had, and a time that may
            # be what is damaged.
            exact = self.options.on_corrupt != "emit"
            self.narrowed, again = narrow(filters, exact=exact, times=exact)
        return again

    def partitions(self) -> Sequence[InputPartition]:
        """One for each piece."""
        try:
            return [InputPartition(piece) for piece in self.pieces()]
        except ReadError as error:
            raise error.with_traceback(None) from None

    def pieces(self) -> Sequence[Piece]:
        """What is to be read, as it is now. Raises ReadError."""
        options, narrowed = self.options, self.narrowed
        with self._backend() as backend:
            known = backend.partitions(options.selection)
            ranges = resolve(
                backend,
                known,
                options.starting,
                options.ending,
                of=narrowed.partitions(known),
                no_match=options.no_match,
                committed=options.committed,
                fail_on_data_loss=options.fail_on_data_loss,
            )
            ranges = split(narrowed.ranges(ranges), options.max_records_per_partition)
            wanted = options.wanted(self.columns, from_ms=narrowed.from_ms, before_ms=narrowed.before_ms)
            return backend.pieces(ranges, wanted, at_least=options.min_partitions) if ranges else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a piece, as Arrow record batches. Where there is no piece, Spark asks for the rows of nothing."""
        piece: Piece | None = partition.value
        if piece is None:
            return
        try:
            for found in piece.read():
                yield as_asked(found, self.arrow)
        except ReadError as error:
            raise error.with_traceback(None) from None


def arrow_schema(schema: StructType) -> pa.Schema:
    """How Spark wants the rows of a schema."""
    return to_arrow_schema(schema, timezone="UTC")


def as_asked(found: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with exactly this schema: the user's may say of a column that it is never null."""
    if found.schema.equals(schema):
        return found
    return pa.RecordBatch.from_arrays([found.column(field.name).cast(field.type) for field in schema], schema=schema)

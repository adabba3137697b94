"""Batch queries: one reader for all three sources, over the `Backend` of their options.

Owns the order of planning: filters, partitions, ranges, pieces. The backend defines the pieces and reads them. An error
is one sentence without a traceback of ours, since Spark shows it as the last line of its own traceback.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from .. import schemas
from ..backend import Backend, Piece, ReadError
from ..filters import Narrowed, narrow, narrow_batches
from ..offsets import resolve, split
from ..options import SourceOptions
from ..sink.errors import SinkError
from ..spark_api import PUSHES_FILTERS, Filter, arrow_schema

SCANS_ARE_APART = hasattr(DataSourceReader, "pushLimit")
"""Whether Spark plans each query by itself. Up to Spark 4.3 all queries of one `load()` share the last plan: once a
filter is pushed down, the next query without one, or the other side of a union, would miss rows. The release that added
`pushLimit` separates the plans."""

BackendFactory = Callable[[], Backend]


P = ParamSpec("P")
T = TypeVar("T")


def plainly(work: Callable[P, T]) -> Callable[P, T]:
    """Drops the traceback of an error of ours: Spark prints its message after a traceback of its own, and a short one
    keeps it visible."""

    @functools.wraps(work)
    def done(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return work(*arguments, **named)
        except (ReadError, SinkError) as error:
            raise error.with_traceback(None) from None

    return done


class _Pushdown:
    """The reader's `pushFilters`, in a form that Spark takes for the method that was not overridden.

    Spark fails for a reader that overrides it in every session in which `spark.sql.python.filterPushdown.enabled` is
    false, the default. If Spark does not call this one, it evaluates all filters itself.
    """

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", None))  # type: ignore[arg-type]

    def __init__(self, reader: LogsReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._reader.narrowed_by(filters)


class LogsReader(DataSourceReader):
    """Plans a batch query and reads its pieces in the tasks; picklable if `backend` is."""

    def __init__(self, options: SourceOptions, backend: BackendFactory, schema: StructType) -> None:
        self.options = options
        self.columns = schemas.checked(schema, options)
        self.arrow = arrow_schema(schema)
        self.narrowed = Narrowed()
        self._backend = backend
        if PUSHES_FILTERS:
            vars(self)["pushFilters"] = _Pushdown(self)

    def narrowed_by(self, filters: Sequence[Filter]) -> list[Filter]:
        """Narrows the query by its filters and returns those that Spark must evaluate again: all of them if narrowing
        is unsafe, unless the option `pushdown` asserts that each query has its own `load()`."""
        if not (SCANS_ARE_APART if self.options.pushdown is None else self.options.pushdown):
            return list(filters)
        if self.options.source == "ottla_batches":
            self.narrowed, again = narrow_batches(filters)
        else:
            # The row of a batch that cannot be decoded has one offset for all offsets of the batch, and a timestamp
            # that may itself be damaged.
            exact = self.options.on_corrupt != "emit"
            self.narrowed, again = narrow(filters, exact=exact, times=exact)
        return again

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        """Plans the query: one partition for each piece."""
        return [InputPartition(piece) for piece in self.pieces()]

    def pieces(self) -> Sequence[Piece]:
        """Returns the work of the query with the present state of the logs. Raises ReadError."""
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
        """Returns the rows of a piece as Arrow record batches. Without any piece, Spark reads one partition with the
        value None."""
        piece: Piece | None = partition.value
        return iter(()) if piece is None else rows_of_piece(piece, self.arrow)


def rows_of_piece(piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a piece with exactly this schema: a user's schema may declare a column as never null."""
    try:
        for found in piece.read():
            if not found.schema.equals(schema):
                columns = [found.column(field.name).cast(field.type) for field in schema]
                found = pa.RecordBatch.from_arrays(columns, schema=schema)
            yield found
    except ReadError as error:
        raise error.with_traceback(None) from None

"""The data sources without Spark: options, filter pushdown, partitions, rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from ottla.pipeline.filters import column_of, holds
from ottla.pipeline.sources.reader import LogsReader
from ottla.pipeline.sources.source import BatchesSource, LogSource, LogsSource, WireSource
from ottla.pipeline.spark_api import Filter
from ottla_testing.pipeline.read_samples import Row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SOURCES: dict[str, type[LogsSource]] = {one.name(): one for one in (LogSource, BatchesSource, WireSource)}


def planned(
    name: str, options: dict[str, Any], filters: Sequence[Filter] = (), schema: StructType | None = None
) -> tuple[LogsReader, list[Any], list[Filter]]:
    """Returns a query's reader, its partitions, and the filters that Spark must evaluate again."""
    options = {"pushdown": "true"} | options
    source = SOURCES[name](CaseInsensitiveDict({key: str(value) for key, value in options.items()}))
    source = pickle.loads(pickle.dumps(source))
    reader: Any = source.reader(schema or source.schema())
    again = list(reader.narrowed_by(list(filters)))
    return reader, list(reader.partitions()), again


def tables(
    name: str, options: dict[str, Any], filters: Sequence[Filter] = (), schema: StructType | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the rows that Spark receives before it filters again; each partition is read by a pickled reader."""
    reader, partitions, _ = planned(name, options, filters, schema)
    for partition in partitions:
        there, own = pickle.loads(pickle.dumps((reader, partition)))
        for found in there.read(own):
            found.validate(full=True)
            assert found.schema.equals(reader.arrow)
            yield found


def rows(
    name: str, options: dict[str, Any], filters: Sequence[Filter] = (), schema: StructType | None = None
) -> list[dict[str, Any]]:
    """Returns the rows of a query, filtered like Spark does."""
    _, _, again = planned(name, options, filters, schema)
    found = [row for batch in tables(name, options, filters, schema) for row in batch.to_pylist()]
    return [row for row in found if all(holding(test, row) for test in again)]


def holding(test: Filter, row: dict[str, Any]) -> bool:
    """Returns whether a filter matches a row."""
    own = row[column_of(test) or ""]
    if own is None:
        return type(test).__name__ == "IsNull"
    return holds(test, own) is True


def as_rows(found: Sequence[dict[str, Any]]) -> list[Row]:
    """Returns rows of a query with headers in a comparable form, by topic, partition and offset."""
    return sorted(
        (
            Row(
                row["topic"],
                row["partition"],
                row["offset"],
                (row["timestamp"] - EPOCH) // timedelta(milliseconds=1),
                row["timestampType"],
                row["key"],
                row["value"],
                tuple((header["key"], header["value"]) for header in row["headers"] or ()),
            )
            for row in found
        ),
        key=lambda row: row[:3],
    )

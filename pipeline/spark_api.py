"""What the releases of PySpark have of the interface of data sources, with stand-ins for what the older ones lack.

4.0 has no filters that are pushed down and no writer of streams that takes Arrow's batches; before 4.2 Spark passes a
stream neither the start of a batch nor a limit. The stand-ins are never used by Spark: the classes that are built on
them work, without that ability.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from inspect import signature
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import datasource as _datasource
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

PUSHES_FILTERS = hasattr(_datasource, "Filter")
"""From 4.1 on."""

try:
    from pyspark.sql.streaming import datasource as _streaming
except ImportError:
    _streaming = None

PASSES_START = _streaming is not None
"""Whether Spark passes the start of a batch, and its limit, to `latestOffset`: from 4.2 on."""

_IN_UTC = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}  # else always


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns a schema in Arrow's types, with timestamps in UTC."""
    return to_arrow_schema(schema, **_IN_UTC)  # type: ignore[arg-type]


def to_tasks(rows: DataFrame, tasks: int, task: Column) -> DataFrame:
    """Returns the rows in `tasks` partitions, each row in the one that the integer column `task` has. Spark before 4.1
    partitions by hashes only: it gets keys with these hashes."""
    if hasattr(rows, "repartitionById"):
        return rows.repartitionById(tasks, task)
    return rows.repartition(tasks, F.get(F.array(*map(F.lit, keys_of_tasks(tasks))), task))


@lru_cache(maxsize=8)
def keys_of_tasks(tasks: int) -> tuple[int, ...]:
    """Returns for each partition the smallest integer whose hash leads to it."""
    found: dict[int, int] = {}
    for key in count():
        found.setdefault(hash_of(key) % tasks, key)
        if len(found) == tasks:
            break
    return tuple(found[number] for number in range(tasks))


def hash_of(key: int) -> int:
    """Returns Spark's hash of an integer, MurmurHash3 (x86, 32 bits) with the seed 42."""

    def rotated(number: int, bits: int) -> int:
        return (number << bits | number >> (32 - bits)) & _BITS

    mixed = rotated(key * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS
    found = (rotated(42 ^ mixed, 13) * 5 + 0xE6546B64 & _BITS) ^ 4
    found = (found ^ found >> 16) * 0x85EBCA6B & _BITS
    found = (found ^ found >> 13) * 0xC2B2AE35 & _BITS
    found ^= found >> 16
    return found - (1 << 32) if found >> 31 else found


_BITS = 0xFFFFFFFF
_FILTERS = {
    **dict.fromkeys(("IsNotNull", "IsNull"), ("attribute",)),
    **dict.fromkeys(("EqualNullSafe", "EqualTo", "In"), ("attribute", "value")),
    **dict.fromkeys(("GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"), ("attribute", "value")),
    **dict.fromkeys(("StringContains", "StringEndsWith", "StringStartsWith"), ("attribute", "value")),
    "Not": ("child",),
}

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as DataSourceStreamArrowWriter
    from pyspark.sql.datasource import EqualNullSafe as EqualNullSafe
    from pyspark.sql.datasource import EqualTo as EqualTo
    from pyspark.sql.datasource import Filter as Filter
    from pyspark.sql.datasource import GreaterThan as GreaterThan
    from pyspark.sql.datasource import GreaterThanOrEqual as GreaterThanOrEqual
    from pyspark.sql.datasource import In as In
    from pyspark.sql.datasource import IsNotNull as IsNotNull
    from pyspark.sql.datasource import IsNull as IsNull
    from pyspark.sql.datasource import LessThan as LessThan
    from pyspark.sql.datasource import LessThanOrEqual as LessThanOrEqual
    from pyspark.sql.datasource import Not as Not
    from pyspark.sql.datasource import StringContains as StringContains
    from pyspark.sql.datasource import StringEndsWith as StringEndsWith
    from pyspark.sql.datasource import StringStartsWith as StringStartsWith
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import ReadMinRows as ReadMinRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
else:

    def _class(module, name, base=object, fields=()):
        """Returns a class of a module, or a stand-in if it lacks it."""
        return getattr(module, name, None) or dataclasses.make_dataclass(name, fields, bases=(base,), frozen=True)

    Filter = _class(_datasource, "Filter")
    globals().update({name: _class(_datasource, name, Filter, fields) for name, fields in _FILTERS.items()})
    ReadLimit = _class(_streaming, "ReadLimit")
    ReadAllAvailable = _class(_streaming, "ReadAllAvailable", ReadLimit)
    ReadMaxRows = _class(_streaming, "ReadMaxRows", ReadLimit, ("max_rows",))
    ReadMinRows = _class(_streaming, "ReadMinRows", ReadLimit, ("min_rows",))
    SupportsTriggerAvailableNow = _class(_streaming, "SupportsTriggerAvailableNow")
    # Spark 4.0 passes Arrow's batches to each writer that is a DataSourceArrowWriter, of a stream, too.
    DataSourceStreamArrowWriter = getattr(_datasource, "DataSourceStreamArrowWriter", None) or type(
        "DataSourceStreamArrowWriter", (_datasource.DataSourceStreamWriter, _datasource.DataSourceArrowWriter), {}
    )

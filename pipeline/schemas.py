"""The schema of a query in Spark's types: from its options, or from a schema that the user gives.

Owns the columns of a query and their order. `readers/columns.py` defines the columns. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from ..protocol.names import did_you_mean
from .offsets import OptionError
from .options import SourceOptions
from .readers.columns import BATCH_COLUMNS, BATCH_FIELDS, FIELDS, METADATA_COLUMNS, RECORD_COLUMNS

CONTROL = "control"
CRC_OK = "crcOk"


def fields(options: SourceOptions) -> Mapping[str, pa.Field]:
    """Returns all columns of the source."""
    return BATCH_FIELDS if options.source == "ottla_batches" else FIELDS


def columns(options: SourceOptions) -> tuple[str, ...]:
    """Returns the columns that the options select, in order. Raises OptionError for an unknown one."""
    known = fields(options)
    if options.columns is not None:
        for name in options.columns:
            if name not in known:
                raise OptionError(f"columns: {_unknown(name, options)}")
        if len(set(options.columns)) != len(options.columns):
            raise OptionError(f"columns is {','.join(options.columns)!r}: each column may be named once")
        return options.columns
    if options.source == "ottla_batches":
        return BATCH_COLUMNS
    headers = ("headers",) if options.include_headers else ()
    return RECORD_COLUMNS + headers + (METADATA_COLUMNS if options.metadata else ())


def schema(options: SourceOptions) -> StructType:
    """Returns the schema of the rows for Spark when the user gives none. Raises OptionError."""
    chosen = columns(options)
    _check_needs(options, chosen)
    known = fields(options)
    return StructType([StructField(name, from_arrow_type(known[name].type), nullable=True) for name in chosen])


def checked(given: StructType, options: SourceOptions) -> tuple[str, ...]:
    """Returns the columns of a query: those of the options, or those of the user's schema, which selects among all
    columns by name. Raises OptionError, which names the wrong column."""
    known = fields(options)
    names = tuple(given.fieldNames())
    if not names:
        raise OptionError(f"the schema is empty: it needs at least one column of {options.source}: {', '.join(known)}")
    if len(set(names)) != len(names):
        raise OptionError(f"the schema has a column twice: {', '.join(names)}")
    for field in given.fields:
        if field.name not in known:
            raise OptionError(f"schema: {_unknown(field.name, options)}")
        is_, given_type = from_arrow_type(known[field.name].type).simpleString(), field.dataType.simpleString()
        if is_ != given_type:
            raise OptionError(f"schema: column {field.name} is {is_}, not {given_type}")
    if options.columns is not None and names != columns(options):
        raise OptionError("the option columns and a schema both select columns: give one of them")
    _check_needs(options, names)
    return names


def _check_needs(options: SourceOptions, chosen: Sequence[str]) -> None:
    """Rows that are not plain records (markers, damaged batches) need a column that distinguishes them."""
    if options.include_control_records and CONTROL not in chosen:
        raise OptionError(f"includeControlRecords needs the column {CONTROL}, which metadata=true gives")
    if options.on_corrupt == "emit" and CRC_OK not in chosen:
        by = "columns" if options.source == "ottla_batches" else "metadata=true"
        raise OptionError(f"onCorrupt=emit needs the column {CRC_OK}, which {by} gives")


def _unknown(name: str, options: SourceOptions) -> str:
    known = fields(options)
    return f"{options.source} has no column {name}{did_you_mean(name, known) or '; it has ' + ', '.join(known)}"

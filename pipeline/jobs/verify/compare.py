"""The work of a task: the records of a range of offsets in the log, and the rows of the same range in the export.

Compares offsets, timestamps, timestamp types, keys, values and headers, and the day by which a row is partitioned.
`decoded` is not compared: it follows from the value. Memory is bounded by the size of a piece of the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from ...backend import Piece, TopicPartition
from ...objects.places import Place
from ...readers.columns import EXACT_TIME
from ...sink.rows import milliseconds
from ..export import layout
from ..export.tasks import LAST_MS
from ..import_.files import parquet_of
from .listing import TableFile

pc: Any = _compute  # pyarrow creates its functions at import, so type checkers do not see them

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Kind = Literal["log", "deleted", "beyond"]
SHOWN = 5
"""The differences that a task describes; the others are counted."""

_BYTES_SHOWN = 32
_DAY = "day"
_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError)


@dataclass(frozen=True, slots=True)
class Check:
    """Offsets from `start` (inclusive) to `end` (exclusive) of a partition, and the files that may have them.
    Picklable.

    `kind`: "log", to compare with the log, which `piece` reads; "deleted" from the log, so that rows are only counted;
    or "beyond", where the export must not have rows. `clamped`: timestamps of tables. With `compacted` a row that the
    log does not have is deleted. `place`: of files in an object store.
    """

    topic: str
    partition: int
    start: int
    end: int
    kind: Kind
    files: tuple[TableFile, ...]
    piece: Piece | None = None
    size_bytes: int = 0
    clamped: bool = False
    compacted: bool = False
    place: Place | None = None

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.key}, offsets {self.start} to {self.end - 1}"


@dataclass(slots=True)
class Outcome:
    """The counts of a check: records of the log, rows of the export, and what differs; `described` are differences with
    their offsets, of a finished check the first ones."""

    records: int = 0
    rows: int = 0
    missing: int = 0
    extra: int = 0
    repeated: int = 0
    changed: int = 0
    deleted: int = 0
    unreadable: int = 0
    described: list[tuple[int, str]] = field(default_factory=list)

    @property
    def differences(self) -> int:
        return self.missing + self.extra + self.repeated + self.changed + self.unreadable


def compare(check: Check) -> Outcome:
    """Does the work. Raises ReadError for the log; a file that cannot be read is a difference."""
    found = Outcome()
    rows = _rows_of(check, found)
    found.rows = rows.num_rows
    offsets = _numbers(rows, "offset")
    if check.kind == "deleted":
        found.deleted = rows.num_rows
    elif check.kind == "beyond":
        found.extra = rows.num_rows
        found.described += [(int(offset), "not among the exported offsets") for offset in offsets[:SHOWN]]
    else:
        records = _records_of(check)
        found.records = records.num_rows
        _compare(check, records, rows, found)
    found.described = sorted(found.described)[:SHOWN]
    return found


# -- rows


def _records_of(check: Check) -> pa.Table:
    assert check.piece is not None
    schema = pa.schema([EXACT_TIME if name == "timestamp" else layout.SCHEMA.field(name) for name in layout.COLUMNS])
    batches = [batch.select(list(layout.READ)) for batch in check.piece.read()]
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def _rows_of(check: Check, found: Outcome) -> pa.Table:
    """Returns the rows of the range, by offset, with the columns of the log and the day of their files."""
    fields = [pa.field("timestamp", pa.int64()) if one.name == "timestamp" else one for one in layout.SCHEMA]
    schema = pa.schema([*fields, pa.field(_DAY, pa.int64())])
    parts: list[pa.Table] = [schema.empty_table()]
    for file in check.files:
        try:
            parts += [part.cast(schema) for part in _parts_of(file, check)]
        except _UNREADABLE as error:
            found.unreadable += 1
            why = " ".join(str(error).split())[:200]
            found.described.append((check.start, f"{os.path.basename(file.path)} cannot be read: {why}"))
    table = pa.concat_tables(parts)
    return table.take(pc.sort_indices(table, sort_keys=[("offset", "ascending")])).combine_chunks()


def _parts_of(file: TableFile, check: Check) -> Iterator[pa.Table]:
    with parquet_of(file.path, check.place) as parquet:
        names = set(parquet.schema_arrow.names)
        if lacks := [name for name in layout.COLUMNS if name not in names]:
            raise ValueError(f"it has no column {', '.join(lacks)}")
        for group in range(parquet.metadata.num_row_groups):
            if _is_outside(parquet.metadata.row_group(group), check):
                continue
            rows = parquet.read_row_group(group, columns=list(layout.COLUMNS)).select(list(layout.COLUMNS))
            offsets = rows.column("offset")
            rows = rows.filter(pc.and_(pc.greater_equal(offsets, check.start), pc.less(offsets, check.end)))
            if rows.num_rows:
                index = rows.schema.get_field_index("timestamp")
                rows = rows.set_column(index, "timestamp", milliseconds(rows.column("timestamp").combine_chunks()))
                yield rows.append_column(_DAY, pa.array(np.full(rows.num_rows, file.day)))


def _is_outside(group: Any, check: Check) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "offset" and column.is_stats_set and column.statistics.has_min_max:
            return column.statistics.max < check.start or column.statistics.min >= check.end
    return False


def _numbers(table: pa.Table, name: str) -> Int64s:
    return table.column(name).cast(pa.int64()).to_numpy()


# -- comparison


def _compare(check: Check, log: pa.Table, rows: pa.Table, found: Outcome) -> None:
    ours, theirs = _numbers(log, "offset"), _numbers(rows, "offset")
    first_of = np.ones(theirs.size, bool)
    first_of[1:] = np.diff(theirs) != 0
    repeated = theirs[~first_of]
    rows, theirs = rows.filter(pa.array(first_of)), theirs[first_of]
    missing, extra = np.setdiff1d(ours, theirs), np.setdiff1d(theirs, ours)
    found.missing, found.repeated = missing.size, repeated.size
    if check.compacted:
        found.deleted += extra.size
        extra = extra[:0]
    found.extra = extra.size
    for offsets, text in ((missing, "not in the export"), (extra, "not in the log"), (repeated, "repeated")):
        found.described += [(int(offset), text) for offset in offsets[:SHOWN]]
    both = np.intersect1d(ours, theirs)
    log = log.take(pa.array(np.searchsorted(ours, both))).combine_chunks()
    rows = rows.take(pa.array(np.searchsorted(theirs, both))).combine_chunks()
    _compare_values(check, both, log, rows, found)


def _compare_values(check: Check, offsets: Int64s, log: pa.Table, rows: pa.Table, found: Outcome) -> None:
    times = _numbers(log, EXACT_TIME.name)
    days = layout.days(times)
    if check.clamped:
        times = np.where(times == -1, -1, np.clip(times, -LAST_MS, LAST_MS))
    differing: dict[str, Any] = {
        "timestamp": times != _numbers(rows, "timestamp"),
        "day": days != _numbers(rows, _DAY),
        "timestampType": _numbers(log, "timestampType") != _numbers(rows, "timestampType"),
        **{name: _unequal(log.column(name), rows.column(name)) for name in ("key", "value", "headers")},
    }
    found.changed = int(np.logical_or.reduce(list(differing.values())).sum()) if offsets.size else 0
    for name, mask in differing.items():
        for row in np.flatnonzero(mask)[:SHOWN].tolist():
            if name == "day":
                pair = [str(layout.date_of(day) or "none") for day in (int(days[row]), rows.column(_DAY)[row].as_py())]
            elif name == "timestamp":
                pair = str(times[row]), str(rows.column(name)[row].as_py())
            else:
                pair = _shown(log.column(name)[row].as_py()), _shown(rows.column(name)[row].as_py())
            found.described.append((int(offsets[row]), f"{name} is {pair[0]} in the log, {pair[1]} in the export"))


def _unequal(ours: Any, theirs: Any) -> Any:
    """Returns the rows that differ, as a mask."""
    if ours.equals(theirs):
        return np.zeros(len(ours), bool)
    pairs: Iterable[tuple[Any, Any]] = zip(ours.to_pylist(), theirs.to_pylist(), strict=True)
    is_list = pa.types.is_list(ours.type)  # engines that rewrite files make a list without headers of null
    return np.array([(a or None) != (b or None) if is_list else a != b for a, b in pairs], bool)


def _shown(value: Any) -> str:
    if isinstance(value, bytes) and len(value) > _BYTES_SHOWN:
        return f"{value[:_BYTES_SHOWN]!r}... ({len(value)} bytes)"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 3 * _BYTES_SHOWN else f"{text[: 3 * _BYTES_SHOWN]}..."

"""Rows of `ottla_batches`: one row per log entry, from its header.

Owns reading headers without the records: of large entries only the headers are read, unless the CRC is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from ..columnar.columns import rows_of
from ..columns import BATCH_FIELDS, as_kind, batch_schema, codec_names, repeated, timestamps
from . import indexes
from .headers import Bools, Table
from .reading import Reading, matches
from .windows import Hops, LogFile, Window, Windows


class BatchReading(Reading):
    """One pass over the headers of a range: yields a row per entry, in the order of the log, with the wanted columns of
    `columns.BATCH_FIELDS`.

    Control batches are included. Only damage that hides the following entries counts as damage; an entry with a wrong
    CRC is an ordinary row.
    """

    _schema = staticmethod(batch_schema)

    def _entries_from(self, file: LogFile, position: int) -> Iterator[pa.RecordBatch]:
        while True:
            with_crc = "crcOk" in self._wanted.columns
            source = Windows(file, position, self._window_bytes) if with_crc else Hops(file, position)
            for found in source:
                table = found.table if isinstance(found, Window) else found
                last = int(table.last_offsets[-1])
                # Selects by the last offset, which is unique, so that each entry is in exactly one range whatever the
                # bounds.
                chosen = (table.last_offsets >= self._cursor) & (table.last_offsets < self._end) & self._chosen(table)
                if chosen.any():
                    yield self._rows(found, table, chosen)
                self._previous = last
                self._cursor = self._claimed = max(self._cursor, min(last + 1, self._end))
                if last >= self._end - 1:
                    self._is_done = True
                    return
            stop = source.stop
            if stop.problem is None:
                return
            again = indexes.after_damage(file, self._base, stop.position)
            yield from self._between(file, stop.position, again, stop.problem)
            if again is None:
                self._claimed = self._end
                return
            position = again.position

    def _rows(self, found: Window | Table, table: Table, chosen: Bools) -> pa.RecordBatch:
        everything = bool(chosen.all())
        count = len(table) if everything else int(chosen.sum())
        constants = {"topic": self._key.topic, "partition": self._key.partition, "file": self._path}
        arrays: list[pa.Array] = []
        for name in self._wanted.columns:
            kind = BATCH_FIELDS[name].type
            if name in constants:
                arrays.append(repeated(constants[name], kind, count))
                continue
            if isinstance(found, Window) and name == "crcOk":
                column = pa.array([matches(found, index) for index in range(len(table))], pa.bool_())
            else:
                column = _COLUMNS[name](table)
            column = column if everything else column.filter(pa.array(chosen))
            arrays.append(as_kind(column, kind))
        return rows_of(arrays, batch_schema(self._wanted.columns), count)


def _plain(name: str) -> Callable[[Table], pa.Array]:
    return lambda table: pa.array(getattr(table, name))


def _unless_wrapper(name: str) -> Callable[[Table], pa.Array]:
    def column(table: Table) -> pa.Array:
        unknown = table.wrappers
        return pa.array(getattr(table, name), mask=unknown if unknown.any() else None)

    return column


_COLUMNS: dict[str, Callable[[Table], pa.Array]] = {
    "position": _plain("positions"),
    "sizeBytes": _plain("sizes"),
    "baseOffset": _unless_wrapper("base_offsets"),
    "lastOffset": _plain("last_offsets"),
    "recordCount": _unless_wrapper("record_counts"),
    "magic": lambda table: pa.array(table.magics.astype(np.int32)),
    "codec": lambda table: codec_names(pa.array(table.codecs)),
    "timestampType": _plain("timestamp_types"),
    "baseTimestamp": lambda table: timestamps(pa.array(table.base_timestamps)),
    "maxTimestamp": lambda table: timestamps(pa.array(table.max_timestamps)),
    "deleteHorizon": _plain("delete_horizons"),
    "producerId": _plain("producer_ids"),
    "producerEpoch": _plain("producer_epochs"),
    "baseSequence": _plain("base_sequences"),
    "leaderEpoch": _plain("leader_epochs"),
    "transactional": _plain("transactional"),
    "control": _plain("control"),
    "crc": _plain("crcs"),
}

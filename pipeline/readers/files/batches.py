"""Rows of `ottla_batches`: one row per log entry, from its header.

Owns reading headers without the records: of large entries only the headers are read, unless the CRC is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from ...backend import TopicPartition, Wanted
from ...objects.logs import LogPlace, use
from ..columns import BATCH_FIELDS, batch_schema, codec_names, repeated, rows_of, timestamps
from . import indexes
from .headers import Bools, Table
from .indexes import Mark
from .reading import Reading, matches
from .windows import Hops, LogFile, Window, Windows


class PieceOfFiles(Protocol):
    """The offsets of one partition's folder that a task reads, and the start of its first segment."""

    @property
    def folder(self) -> str: ...
    @property
    def key(self) -> TopicPartition: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def wanted(self) -> Wanted: ...
    @property
    def base(self) -> int: ...
    @property
    def anchor(self) -> Mark | None: ...
    @property
    def objects(self) -> tuple[LogPlace, ...]: ...


@dataclass(frozen=True, slots=True)
class BatchPiece:
    """The entries whose last offset is within a piece of records, with the columns of that piece."""

    of: PieceOfFiles

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields a row per entry, in the order of the log, with the wanted columns of `columns.BATCH_FIELDS`.

        Control batches are included. Only damage that hides the following entries counts as damage; an entry with a
        wrong CRC is an ordinary row. Raises ReadError, DataLoss.
        """
        piece = self.of
        use(piece.objects)
        return _Reading(piece.folder, piece.key, piece.start, piece.end, piece.wanted).rows(piece.base, piece.anchor)


class _Reading(Reading):
    """One pass over the headers of a range."""

    def __init__(self, folder: str, key: TopicPartition, start: int, end: int, wanted: Wanted) -> None:
        super().__init__(folder, key, start, end, replace(wanted, control=True))

    def _tables(self, source: Hops | Windows) -> Iterator[tuple[Table, pa.Array | None]]:
        """Yields the headers, with the result of the CRC check if it is wanted."""
        for found in source:
            if isinstance(found, Window):
                crc_ok = pa.array([matches(found, index) for index in range(len(found.table))], pa.bool_())
                yield found.table, crc_ok
            else:
                yield found, None

    def _entries_of(self, file: LogFile, anchor: Mark | None) -> Iterator[pa.RecordBatch]:
        position = anchor.position if anchor is not None else 0
        while True:
            with_crc = "crcOk" in self._wanted.columns
            source = Windows(file, position, self._window_bytes) if with_crc else Hops(file, position)
            for table, crc_ok in self._tables(source):
                last = int(table.last_offsets[-1])
                # Selects by the last offset, which is unique, so that each entry is in exactly one range whatever the
                # bounds.
                chosen = (table.last_offsets >= self._cursor) & (table.last_offsets < self._end) & self._chosen(table)
                if chosen.any():
                    yield self._rows(table, chosen, crc_ok)
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

    def _segment(self, file: LogFile, anchor: Mark | None) -> Iterator[pa.RecordBatch]:
        self._previous = self._base - 1
        if anchor is not None and not indexes.is_still(file, anchor):
            anchor = None
        if anchor is None and self._cursor > self._base:
            anchor = indexes.before(file, self._base, self._cursor)
        yield from self._entries_of(file, anchor)

    def _rows(self, table: Table, chosen: Bools, crc_ok: pa.Array | None) -> pa.RecordBatch:
        everything = bool(chosen.all())
        count = len(table) if everything else int(chosen.sum())
        arrays: list[pa.Array] = []
        for name in self._wanted.columns:
            kind = BATCH_FIELDS[name].type
            if name in ("topic", "partition", "file"):
                constant = {"topic": self._key.topic, "partition": self._key.partition, "file": self._path}[name]
                arrays.append(repeated(constant, kind, count))
                continue
            column = crc_ok if name == "crcOk" else _COLUMNS[name](table)
            assert column is not None
            column = column if everything else column.filter(pa.array(chosen))
            arrays.append(column if column.type == kind else column.cast(kind))
        return rows_of(arrays, batch_schema(self._wanted.columns), count)

    def _raw_row(self, raw: bytes, details: dict[str, object]) -> pa.RecordBatch:
        """Returns a row with the position of bytes that hold no recognisable entry."""
        values = {
            "topic": self._key.topic,
            "partition": self._key.partition,
            "file": self._path,
            "position": details.get("position"),
            "lastOffset": details["offset"],
            "crcOk": False,
        }
        arrays = [pa.array([values.get(name)], BATCH_FIELDS[name].type) for name in self._wanted.columns]
        return rows_of(arrays, batch_schema(self._wanted.columns), 1)


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

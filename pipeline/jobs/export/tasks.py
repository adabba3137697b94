"""The work of a task of an export: writes the records of one piece to Parquet files, by the day of their timestamps.

The files are renamed when they are committed; until then they are in `_ottla/unfinished` under names unique to this
attempt. So a task that is killed, or runs twice, leaves no rows in the table. Memory is bounded by the rows of
unfinished row groups, and by the number of open files.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ....protocol.limits import INT64_MAX
from ....storage.io.files import File, Files
from ...backend import DataLoss, Piece, ReadError, TopicPartition
from ...objects.places import Place as Objects
from ...objects.places import files_of
from ...readers.columns import EXACT_TIME
from . import layout
from .layout import FileName, Place
from .manifest import ExportedFile
from .value_columns import Decoding

CODECS = ("zstd", "snappy", "lz4", "gzip", "none")
GROUP_BYTES = 32 << 20
"""The size of a row group in Arrow: large enough for columns to compress, small enough for a reader's memory."""

WAITING_BYTES = 2 * GROUP_BYTES
LAST_MS = INT64_MAX // 1000  # the largest timestamp of a table: later ones are clamped

OPEN_FILES = 64
"""The limits of waiting rows and open files, for records of many days side by side."""

FILE_BYTES = 128 << 20

# Values are rarely repeated, so no dictionary for them; statistics help readers that search for a range.
_PARQUET = {
    "use_dictionary": ["timestampType", "key", "headers.list.element.key", *layout.PARTITIONING.names],
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_statistics": ["offset", "timestamp"],
}

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Format = Literal["parquet", "delta", "iceberg"]
OnUndecodable = Literal["null", "fail", "dead-letter"]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of the files; picklable. A file is full with `rows_per_file` rows or `file_bytes` bytes of Arrow.
    Tables have timestamps in microseconds. `columns` are those of a table that prescribes them: with its field ids, and
    with the columns of `layout.PARTITIONING` at the end."""

    codec: str = "zstd"
    rows_per_file: int | None = None
    file_bytes: int = FILE_BYTES
    format: Format = "parquet"
    decoding: Decoding | None = None
    on_undecodable: OnUndecodable = "null"
    columns: pa.Schema | None = None
    key_decoding: Decoding | None = None

    @property
    def is_table(self) -> bool:
        return self.format != "parquet"

    @property
    def timestamp(self) -> pa.DataType:
        return layout.TABLE_TIMESTAMP if self.is_table else layout.TIMESTAMP

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows; the files have those of `columns`, if given."""
        fields = [one.with_type(self.timestamp) if one.name == "timestamp" else one for one in layout.SCHEMA]
        for decoding, name, letter in (
            (self.decoding, layout.DECODED, layout.DEAD_LETTER),
            (self.key_decoding, layout.DECODED_KEY, layout.DEAD_LETTER_KEY),
        ):
            if decoding is not None:
                fields.append(pa.field(name, decoding.type))
                if self.on_undecodable == "dead-letter":
                    fields.append(pa.field(letter, layout.DEAD_LETTER_TYPE))
        return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one task: offsets from `start` (inclusive) to `end` (exclusive) of a partition, read by `piece`, to
    files under `root`. Picklable. `size_bytes` is an estimate. `fail_on_loss`: missing offsets fail the job."""

    piece: Piece
    root: str
    topic: str
    partition: int
    start: int
    end: int
    generation: int
    size_bytes: int
    form: Form
    fail_on_loss: bool = False
    place: Objects | None = None  # of objects, if `root` is a URL

    def __str__(self) -> str:
        return f"{TopicPartition(self.topic, self.partition)}, offsets {self.start} to {self.end - 1}"


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a task: `files` by their names in `_ottla/unfinished`. `lost` describes lost offsets."""

    records: int
    files: tuple[tuple[str, ExportedFile], ...]
    undecoded: int = 0
    problem: str = ""
    lost: str = ""


def write(work: Work, files: Files | None = None) -> Written:
    """Does the work. Its files are part of the export only when they are committed. Raises ReadError, OSError."""
    disk = files if files is not None else files_of(work.place)
    piece: Any = work.piece
    try:
        return _written(work, piece, disk)
    except DataLoss as error:
        if work.fail_on_loss:
            raise
        lenient = replace(piece, wanted=replace(piece.wanted, fail_on_loss=False))
        return replace(_written(work, lenient, disk), lost=str(error))


def _written(work: Work, piece: Piece, files: Files) -> Written:
    writer = _Writer(work, files)
    try:
        for rows in piece.read():
            writer.add(rows)
        return writer.finished()
    except BaseException:
        writer.discard()
        raise


@dataclass(slots=True)
class _Day:
    """The rows of one day: waiting ones, and the open file for them."""

    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    file: _OpenFile | None = None


class _OpenFile:
    """A file that is being written; adapts `Files` to pyarrow."""

    def __init__(self, files: Files, path: str, form: Form) -> None:
        self.name = os.path.basename(path)
        self.rows = self.bytes = 0
        self.first = self.last = -1
        self.min_ms: int | None = None
        self.max_ms: int | None = None
        self._file: File | None = files.open(path, create=True)
        self._position = 0
        options: Any = _PARQUET  # pyarrow's type stubs are narrower than its implementation
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self, mode="w"),
            form.columns or form.schema,
            compression="NONE" if form.codec == "none" else form.codec,
            store_schema=not form.is_table,
            **options,
        )

    # The interface of a file for pyarrow

    closed = False

    def write(self, data: Any) -> int:
        assert self._file is not None
        size = len(data)
        self._file.write(self._position, data)
        self._position += size
        return size

    def tell(self) -> int:  # words: quoted
        return self._position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    # Rows

    def add(self, table: pa.Table, arrow_bytes: int) -> None:
        """Writes a row group."""
        offsets = table.column("offset")
        self.first = offsets[0].as_py() if not self.rows else self.first
        self.last = offsets[-1].as_py()
        for chunk in table.column("timestamp").chunks:
            times = chunk.drop_null().view(pa.int64()).to_numpy()
            if len(times):
                low, high = int(times.min()), int(times.max())
                self.min_ms = low if self.min_ms is None else min(self.min_ms, low)
                self.max_ms = high if self.max_ms is None else max(self.max_ms, high)
        self.rows += table.num_rows
        self.bytes += arrow_bytes
        self._writer.write_table(table, row_group_size=table.num_rows)

    def finished(self) -> int:
        """Completes the file, durably. Returns its size."""
        assert self._file is not None
        self._writer.close()
        self._file.sync()
        self.discard()
        return self._position

    def discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class _Writer:
    """The files of one piece."""

    def __init__(self, work: Work, files: Files) -> None:
        self._work = work
        self._files = files
        self._days: dict[int, _Day] = {}
        self._waiting_bytes = 0
        self._done: list[tuple[str, ExportedFile]] = []
        self._records = 0
        decodings = (("value", work.form.decoding), ("key", work.form.key_decoding))
        self._decoders = [(part, one.decoder()) for part, one in decodings if one is not None]
        self._undecoded = 0
        self._problem = ""

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds the next rows, with the columns of `layout.READ`."""
        times = rows.column(EXACT_TIME.name).to_numpy()
        found = self._shaped(rows, times)
        self._records += rows.num_rows
        days = layout.days(times)
        low, high = int(days.min()), int(days.max())
        if low == high:
            self._wait(low, found)
        else:
            order = np.argsort(days, kind="stable")
            sorted_days = days[order]
            begins = [0, *(np.flatnonzero(np.diff(sorted_days)) + 1).tolist(), len(days)]
            for begin, end in pairwise(begins):
                # Copied: a few waiting rows must not keep the whole batch alive.
                self._wait(int(sorted_days[begin]), found.take(pa.array(order[begin:end])))
        while self._waiting_bytes > WAITING_BYTES:
            self._flush(max(self._days, key=lambda day: self._days[day].waiting_bytes))

    def _shaped(self, rows: pa.RecordBatch, times: Int64s) -> pa.RecordBatch:
        """Returns the rows with the columns of the files."""
        form = self._work.form
        unknown = times == -1
        whole = np.clip(times, -LAST_MS, LAST_MS) * 1000 if form.is_table else times
        stamped = pa.array(whole, mask=unknown if unknown.any() else None).view(form.timestamp)
        arrays = [stamped if name == "timestamp" else rows.column(name) for name in layout.COLUMNS]
        for part, decoder in self._decoders:
            decoded = decoder.decode(rows.column(part))
            if decoded.problems:
                self._count(part, decoded.problems, rows.column("offset"))
            arrays.append(decoded.values)
            if form.on_undecodable == "dead-letter":
                arrays.append(_dead_letters(rows.column(part), decoded.problems))
        return pa.RecordBatch.from_arrays(arrays, schema=form.schema)

    def _count(self, part: str, problems: Mapping[int, str], offsets: pa.Array) -> None:
        """Counts values or keys that do not decode, of the records with these offsets. Raises ReadError."""
        row, problem = next(iter(problems.items()))
        offset = offsets[row]
        if self._work.form.on_undecodable == "fail":
            raise ReadError(f"the {part} at offset {offset} does not decode: {problem}")
        if not self._undecoded:
            self._problem = f"offset {offset}: {'' if part == 'value' else 'the key: '}{problem}"
        self._undecoded += len(problems)

    def _wait(self, day: int, rows: pa.RecordBatch) -> None:
        of_day = self._days.setdefault(day, _Day())
        size = rows.nbytes
        of_day.waiting.append(rows)
        of_day.waiting_bytes += size
        self._waiting_bytes += size
        if of_day.waiting_bytes >= GROUP_BYTES:
            self._flush(day)

    def _flush(self, day: int) -> None:
        """Writes the waiting rows of a day as a row group, or as several if files become full."""
        of_day = self._days[day]
        size, of_day.waiting_bytes = of_day.waiting_bytes, 0
        self._waiting_bytes -= size
        batches, of_day.waiting = of_day.waiting, []
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        form, begin = self._work.form, 0
        if form.columns is not None:
            table = self._placed(table, day)
        while begin < table.num_rows:
            file = of_day.file = of_day.file or self._opened()
            room = table.num_rows - begin if form.rows_per_file is None else form.rows_per_file - file.rows
            part = table.slice(begin, room)
            file.add(part, size * part.num_rows // table.num_rows)
            begin += part.num_rows
            if file.rows == form.rows_per_file or file.bytes >= form.file_bytes:
                self._close(day)

    def _placed(self, rows: pa.Table, day: int) -> pa.Table:
        """Returns the rows with the columns of `layout.PARTITIONING`."""
        values = (self._work.topic, self._work.partition, None if day == layout.NO_DAY else day)
        for column, value in zip(layout.PARTITIONING, values, strict=True):
            rows = rows.append_column(column, pa.repeat(pa.scalar(value, column.type), rows.num_rows))
        return rows

    def _opened(self) -> _OpenFile:
        open_now = [other for other, of_day in self._days.items() if of_day.file is not None]
        if len(open_now) >= OPEN_FILES:
            self._close(open_now[0])
        name = f"{uuid.uuid4().hex}.parquet"
        return _OpenFile(self._files, os.path.join(self._work.root, layout.UNFINISHED, name), self._work.form)

    def _close(self, day: int) -> None:
        file, self._days[day].file = self._days[day].file, None
        if file is None:
            return
        size = file.finished()
        work = self._work
        where = Place(work.topic, work.partition, day)
        divisor = 1000 if work.form.is_table else 1
        path = f"{where}/{FileName(file.first, file.last, work.generation)}"
        times = [None if time is None else time // divisor for time in (file.min_ms, file.max_ms)]
        self._done.append((file.name, ExportedFile(path, file.rows, size, file.first, file.last, *times)))

    def finished(self) -> Written:
        """Flushes all rows and closes the files durably."""
        for day in sorted(self._days):
            self._flush(day)
            self._close(day)
        return Written(self._records, tuple(self._done), self._undecoded, self._problem)

    def discard(self) -> None:
        """Closes the open files; the next owner of the folder removes them."""
        for of_day in self._days.values():
            if of_day.file is not None:
                of_day.file.discard()


def _dead_letters(values: pa.Array, problems: Mapping[int, str]) -> pa.Array:
    """Returns the column of values that do not decode, with their problems; null for the others."""
    if not problems:
        return pa.nulls(len(values), layout.DEAD_LETTER_TYPE)
    found: list[dict[str, Any] | None] = [None] * len(values)
    for row, problem in problems.items():
        found[row] = {"value": values[row].as_py(), "error": problem}
    return pa.array(found, layout.DEAD_LETTER_TYPE)

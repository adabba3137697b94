"""Passes rows from the tasks of a sink to its driver: inside the commit message, or through a file.

Spark's Python sinks cannot shuffle, and a transaction needs one process that has all rows; so the rows of all tasks are
brought together. Owns the format (an Arrow IPC stream with lz4 buffers), the size limit of a message, and the names and
removal of the files. Nothing is fsynced: a query whose machine dies repeats the micro-batch.

Files are `<stagingLocation>/ottla-staging/<owner>/<unit>-<random>.arrow`: the owner is a query, and the unit the id of
a micro-batch; or the owner is an idempotencyKey. After a micro-batch is written, its files and those of earlier ones
are removed, including leftovers of tasks and drivers that died.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa

from .errors import SinkError

FOLDER = "ottla-staging"
MESSAGE_BYTES = 4 << 20
"""The limit of rows in a commit message: the messages of about two hundred tasks fit into Spark's limit for the results
of a job (`spark.driver.maxResultSize`, 1 GiB)."""

SMALL_BYTES = 64 << 10
"""The limit with a staging folder, to spare the driver's heap."""

_NAME = re.compile(r"([0-9]+)-[0-9a-f]{32}\.arrow")
_FORM = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class Place:
    """The staging folder of one micro-batch, shared by driver and tasks, for rows that are too large for a message."""

    location: str
    owner: str
    unit: int

    @property
    def folder(self) -> Path:
        """The folder with the files of the owner."""
        return Path(folder(self.location), FOLDER, quote(self.owner, safe="") or "-")


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of a task: in `inline`, or in `file`. Picklable."""

    rows: int
    bytes: int
    inline: bytes | None = None
    file: str | None = None


def folder(location: str) -> str:
    """Returns the path of stagingLocation, also for a file: URL. Raises SinkError for a remote one."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", location):
        return location
    url = urlsplit(location)
    if url.scheme.lower() != "file" or url.netloc not in ("", "localhost"):
        raise SinkError(f"stagingLocation is {location!r}: it must be a folder that driver and tasks have mounted")
    return unquote(url.path)


def stage(batches: Iterable[pa.RecordBatch], place: Place | None, *, message_bytes: int | None = None) -> Staged:
    """Stages the rows of a task. Raises SinkError if they are too large for a message and there is no staging
    folder."""
    if message_bytes is None:
        message_bytes = MESSAGE_BYTES if place is None else SMALL_BYTES
    with _Stage(place, message_bytes) as into:
        rows = 0
        writer: pa.RecordBatchStreamWriter | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                writer = pa.ipc.new_stream(into, batch.schema, options=_FORM)
            writer.write_batch(batch)
            rows += batch.num_rows
        if writer is not None:
            writer.close()
        return into.staged(rows)


def staged_rows(staged: Iterable[Staged]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of all tasks, in the given order. Raises SinkError for a file that has changed since it was
    written."""
    for one in staged:
        if one.inline:
            with pa.ipc.open_stream(one.inline) as reader:
                yield from reader
        elif one.file is not None:
            yield from _of_file(one.file, one.bytes)


def remove(staged: Iterable[Staged]) -> None:
    """Removes the existing files of these tasks."""
    for one in staged:
        if one.file is not None:
            _unlink(Path(one.file))


def sweep(place: Place) -> None:
    """Removes the owner's staged files of this unit and earlier ones, of any task, and the folder if it is empty. Files
    that cannot be removed stay for the next sweep."""
    with contextlib.suppress(OSError):
        for path in place.folder.iterdir():
            found = _NAME.fullmatch(path.name)
            if found is not None and int(found[1]) <= place.unit:
                _unlink(path)
        place.folder.rmdir()


class _Stage(io.RawIOBase):
    """The target of an IPC stream: memory up to a limit, then a file. The file is removed unless `staged` was
    called."""

    def __init__(self, place: Place | None, message_bytes: int) -> None:
        self._place, self._most = place, message_bytes
        self._memory = io.BytesIO()
        self._file: IO[bytes] | None = None
        self._bytes = 0
        self._done = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        size = memoryview(data).nbytes
        if self._file is None and self._bytes + size > self._most:
            self._file = self._opened()
            with _as_sink_error(self._file):
                self._file.write(self._memory.getbuffer())
            self._memory = io.BytesIO()
        if self._file is None:
            self._memory.write(data)
        else:
            with _as_sink_error(self._file):
                self._file.write(data)
        self._bytes += size
        return size

    def staged(self, rows: int) -> Staged:
        """Returns the staged rows, at the end."""
        if self._file is None:
            return Staged(rows, self._bytes, inline=self._memory.getvalue() if rows else None)
        with _as_sink_error(self._file):
            self._file.close()
        self._done = True
        return Staged(rows, self._bytes, file=self._file.name)

    def close(self) -> None:
        if self._file is not None and not self.closed:
            with contextlib.suppress(OSError):  # on a full disk: the write has raised already
                self._file.close()
            if not self._done:
                _unlink(Path(self._file.name))
        super().close()

    def _opened(self) -> IO[bytes]:
        if self._place is None:
            raise SinkError(
                f"a task of this sink has more than {self._most} bytes, the limit of a message to the driver: the"
                " option stagingLocation must name a folder that driver and tasks share"
            )
        path = self._place.folder / f"{self._place.unit}-{uuid.uuid4().hex}.arrow"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
        except OSError as error:
            raise SinkError(f"stagingLocation: {path} cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def _as_sink_error(file: IO[bytes]) -> Iterator[None]:
    """Turns an error of the disk into a SinkError."""
    try:
        yield
    except OSError as error:
        raise SinkError(f"stagingLocation: {file.name} cannot be written: {error.strerror or error}") from None


def _of_file(path: str, size_bytes: int) -> Iterator[pa.RecordBatch]:
    try:
        found = os.stat(path).st_size
        if found != size_bytes:
            raise SinkError(f"stagingLocation: {path} has {found} bytes, but its task wrote {size_bytes}")
        with pa.memory_map(path) as source, pa.ipc.open_stream(source) as reader:
            yield from reader
    except OSError as error:
        raise SinkError(
            f"stagingLocation: {path}, which a task wrote, cannot be read: {error.strerror or error}; driver and tasks"
            " must share the folder"
        ) from None
    except pa.ArrowInvalid as error:
        raise SinkError(f"stagingLocation: {path} has changed since its task wrote it: {error}") from None


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def total(staged: Sequence[Staged]) -> tuple[int, int]:
    """Returns (rows, bytes) of all."""
    return sum(one.rows for one in staged), sum(one.bytes for one in staged)

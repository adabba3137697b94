"""The Parquet files of an import: their discovery, their contents, and their identity for repeated runs.

Owns the listing of a folder (hive folders, Delta tables, single files), and the inspection of each file. Only the
column `value` is required; `key`, `headers`, `timestamp`, `topic`, `partition` and `offset` are used if present,
`topic` and `partition` also from the names of folders.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import RawIOBase
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute
import pyarrow.parquet as pq
from crc32c import crc32c

from ....protocol.limits import INT32_MAX
from ...backend import ReadError
from ...objects.places import Place, is_url
from ...sink.rows import is_bytes, is_headers, is_text
from ..export.delta import actions

# pyarrow creates these functions at import, so type checkers do not see them.
pc: Any = _compute

SUFFIX = ".parquet"
DELTA_LOG = "_delta_log"
_HIDDEN = ("_", ".")

_HIVE = re.compile(r"(topic|partition)=(.+)")
_CHECKED_BYTES = 8 << 20
_BUFFER_BYTES = 1 << 20
"""The memory for a column chunk of a file, whatever the size of its row group."""
_OBJECT_BUFFER_BYTES = 4 << 20  # each is a request

DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""The errors that pyarrow raises for invalid files; UnicodeDecodeError is for invalid column names."""


class ParquetFile(NamedTuple):
    """A file to import: its path, its path relative to the import folder, and the topic and partition in its folder
    names. `place`: of an object, whose path is a URL. `size_bytes` is 0 if it is not known."""

    path: str
    name: str
    topic: str | None
    partition: int | None
    place: Place | None = None
    size_bytes: int = 0


class Part(NamedTuple):
    """The rows of one partition in a file. `first` and `last` are offsets, None if the file has none; `rises`: they
    ascend from row to row."""

    topic: str | None
    partition: int | None
    rows: int
    first: int | None
    last: int | None
    rises: bool


class Found(NamedTuple):
    """The result of the inspection of a file. `mark` changes with its bytes."""

    file: ParquetFile
    size_bytes: int
    plain_bytes: int
    mark: str
    parts: tuple[Part, ...]


def listed(folder: str | os.PathLike[str], store_conf: Mapping[str, str] | None = None) -> list[ParquetFile]:
    """Returns the Parquet files below a folder, in order of their names; or the one file that is named. For a Delta
    table, those of its newest version. A URL names objects, and `store_conf` are the settings of their store.

    Names that begin with `_` or `.` are ignored, as in Spark. Raises ReadError without any file.
    """
    root = os.fspath(folder)
    if is_url(root):
        return _listed_objects(root.rstrip("/"), store_conf or {})
    if store_conf:
        raise ReadError(f"settings of an object store do not apply to the folder {root}")
    root = os.path.abspath(root)
    if os.path.isfile(root):
        return [of_path(root, os.path.dirname(root))]
    if not os.path.isdir(root):
        raise ReadError(f"there is no file or folder {root}")
    return [of_path(path, root) for path in _chosen(root, _walked(root))]


def _walked(root: str) -> Iterator[str]:
    """Yields the names of all files below a folder, but those of hidden folders, relative to it."""

    def failed(error: OSError) -> None:
        raise ReadError(f"cannot read {error.filename}: {error.strerror}")

    for folder, folders, names in os.walk(root, onerror=failed, followlinks=True):
        folders[:] = [name for name in folders if name == DELTA_LOG or not name.startswith(_HIDDEN)]
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in names)


def _listed_objects(url: str, conf: Mapping[str, str]) -> list[ParquetFile]:
    try:
        if url.endswith(SUFFIX):
            place = Place.of(url.rpartition("/")[0], conf)
            return [of_path(url, place.url)._replace(place=place, size_bytes=place.files().size(url))]
        place = Place.of(url, conf)
        sizes = {one.path: one.size_bytes for one in place.files().below(place.url)}
    except OSError as error:
        raise ReadError(f"cannot read {error.filename or url}: {error.strerror}") from None
    paths = _chosen(place.url, (path[len(place.url) + 1 :] for path in sizes), place.options())
    return [of_path(path, place.url)._replace(place=place, size_bytes=sizes.get(path, 0)) for path in paths]


def _chosen(root: str, names: Iterable[str], options: dict[str, str] | None = None) -> list[str]:
    """Returns the paths of the Parquet files among all names below a folder, or of the Delta table in it. Raises
    ReadError without any, and for another table, whose files may have deleted rows."""
    found, names = list[str](), list(names)
    if any(name.startswith(f"{DELTA_LOG}/") for name in names):
        found, names = [_path_of(root, one["path"]) for one in actions(root, options)], []
    for name in names:
        *folders, file = name.split("/")
        above = list(takewhile(lambda folder: not folder.startswith(_HIDDEN), folders))
        if folders[len(above) :][:1] == [DELTA_LOG]:
            table = "a Delta table: import it alone"
        elif above == folders and file.endswith(".metadata.json") and folders[-1:] == ["metadata"]:
            above.pop()
            table = "an Iceberg table: name its catalog"
        else:
            if above == folders and file.endswith(SUFFIX) and not file.startswith(_HIDDEN):
                found.append(f"{root}/{name}")
            continue
        raise ReadError(f"{'/'.join((root, *above))} is {table}, since its files may have deleted rows")
    if not found:
        raise ReadError(f"{root} has no Parquet file (with a name ending in {SUFFIX})")
    return sorted(found)


def _path_of(root: str, name: str) -> str:
    """Returns the path of a file in a table's log: a URL, or a path relative to the table."""
    if is_url(root):
        if name.startswith(f"{root}/"):
            return urllib.parse.unquote(name)
        if "://" in name:
            raise ReadError(f"{root} has files elsewhere: {name}")
        return f"{root}/{urllib.parse.unquote(name)}"
    url = urllib.parse.urlsplit(name)
    if url.scheme not in ("", "file"):
        raise ReadError(f"{root} has files elsewhere: {name}")
    return os.path.join(root, urllib.parse.unquote(url.path))


def of_path(path: str, root: str) -> ParquetFile:
    """Returns a file with what the names of its folders mean. Raises ReadError."""
    named: dict[str, str] = {}
    for name in os.path.dirname(path).split(os.sep):
        if (match := _HIVE.fullmatch(name)) is not None:
            named[match[1]] = urllib.parse.unquote(match[2])
    partition = named.get("partition")
    if partition is not None and not (partition.isascii() and partition.isdecimal() and int(partition) <= INT32_MAX):
        raise ReadError(f"{path}: partition={partition} is not a partition number")
    name = path.removeprefix(f"{root}/") if is_url(root) else os.path.relpath(path, root)
    size = os.path.getsize(path) if os.path.exists(path) else 0
    return ParquetFile(path, name, named.get("topic"), None if partition is None else int(partition), None, size)


# -- inspection of a file


def parquet_of(path: str, place: Place | None = None) -> pq.ParquetFile:
    """Opens a file, or an object of a place, to be read in bounded memory. Raises the errors of `DAMAGE`."""
    if place is None:
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES)
    return pq.ParquetFile(_object(path, place), pre_buffer=False, buffer_size=_OBJECT_BUFFER_BYTES)


def _object(path: str, place: Place) -> RawIOBase:
    from ...objects.files import ObjectReader

    return ObjectReader(place.files(), path)


def opened(path: str, place: Place | None = None) -> pq.ParquetFile:
    """Opens a file and checks its columns. Raises ReadError."""
    try:
        file = parquet_of(path, place)
    except DAMAGE as error:
        raise ReadError(f"{path} is not a readable Parquet file: {_line(error)}") from error
    try:
        _check(path, file.schema_arrow)
    except BaseException:
        file.close()
        raise
    return file


def look(file: ParquetFile) -> Found:
    """Returns the contents of a file, from its columns of topics, partitions and offsets; the whole file is read once
    for its mark. Raises ReadError."""
    try:
        size_bytes, mark = _marked(file)
        with opened(file.path, file.place) as parquet:
            metadata = parquet.metadata
            plain = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
            parts = _parts(file, parquet)
    except DAMAGE as error:
        raise ReadError(f"{file.path} cannot be read: {_line(error)}") from error
    return Found(file, size_bytes, plain, mark, parts)


def identity(found: Sequence[Found], *more: object) -> str:
    """Returns a name of 16 letters for exactly these files with these bytes, independent of their place; `more` is part
    of it."""
    digest = hashlib.sha256()
    for one in sorted(found, key=lambda one: one.file.name):
        digest.update(f"{one.file.name}\0{one.size_bytes}\0{one.mark}\n".encode())
    digest.update(repr(more).encode())
    return digest.hexdigest()[:16]


def _marked(file: ParquetFile) -> tuple[int, str]:
    """Returns its size, and a checksum of the whole file with a digest of its end, where the footer is."""
    checked, tail, size = 0, b"", 0
    with open(file.path, "rb") if file.place is None else _object(file.path, file.place) as data:
        while piece := data.read(_CHECKED_BYTES):
            checked = crc32c(piece, checked)
            tail, size = piece[-4096:] if len(piece) >= 4096 else (tail + piece)[-4096:], size + len(piece)
    return size, f"{checked:08x}{hashlib.sha256(tail).hexdigest()[:16]}"


def _check(path: str, schema: pa.Schema) -> None:
    for name in _KINDS:
        if schema.names.count(name) > 1:
            raise ReadError(f"{path} has several columns {name}: it may occur once")
    if "value" not in schema.names:
        raise ReadError(f"{path} has no column value: its columns are {', '.join(schema.names) or 'none'}")
    for name, (fits, wanted) in _KINDS.items():
        if name in schema.names and not fits(schema.field(name).type):
            raise ReadError(f"{path}: {name} is of type {schema.field(name).type}: it must be {wanted}")


_KINDS: Mapping[str, tuple[Any, str]] = {
    "value": (is_bytes, "string or binary"),
    "key": (is_bytes, "string or binary"),
    "headers": (is_headers, "a list of structs of key and value"),
    "timestamp": (
        lambda kind: pa.types.is_timestamp(kind) or pa.types.is_integer(kind),
        "a timestamp, or an integer",
    ),
    "topic": (is_text, "string"),
    "partition": (pa.types.is_integer, "an integer"),
    "offset": (pa.types.is_integer, "an integer"),
}


def _parts(file: ParquetFile, parquet: pq.ParquetFile) -> tuple[Part, ...]:
    """Returns the part of each partition in the file, in order of their first rows."""
    names = set(parquet.schema_arrow.names)
    rows = parquet.metadata.num_rows
    in_columns = [name for name in ("topic", "partition") if name in names and getattr(file, name) is None]
    wanted = [*in_columns, *(["offset"] if "offset" in names else [])]
    if not rows:
        return ()
    if not wanted:
        return (Part(file.topic, file.partition, rows, None, None, True),)
    table = parquet.read(columns=wanted)
    for name in wanted:
        if table.column(name).null_count:
            raise ReadError(f"{file.path} has a row without {name}")
    if not in_columns:
        return (_part(file.topic, file.partition, table),)
    found: list[Part] = []
    numbered = table.append_column("row", pa.array(np.arange(table.num_rows)))
    groups = numbered.group_by(in_columns, use_threads=False).aggregate([("row", "min"), ("row", "count")])
    for group in sorted(groups.to_pylist(), key=lambda group: group["row_min"]):
        topic = group.get("topic", file.topic)
        partition = group.get("partition", file.partition)
        if partition is not None and not 0 <= partition <= INT32_MAX:
            raise ReadError(f"{file.path}: partition {partition} is not a partition number")
        if "offset" in wanted:
            found.append(_part(topic, partition, table.filter(mask_of(table, topic, partition))))
        else:
            found.append(Part(topic, partition, group["row_count"], None, None, True))
    return tuple(found)


def mask_of(table: pa.Table | pa.RecordBatch, topic: str | None, partition: int | None) -> Any:
    """Returns the rows of a topic and a partition, by the columns that exist."""
    masks = []
    if topic is not None and "topic" in table.schema.names:
        masks.append(pc.equal(table.column("topic").cast(pa.string()), topic))
    if partition is not None and "partition" in table.schema.names:
        masks.append(pc.equal(table.column("partition"), partition))
    return functools.reduce(pc.and_, masks)


def _part(topic: str | None, partition: int | None, rows: pa.Table) -> Part:
    offsets = rows.column("offset").cast(pa.int64()).to_numpy()
    first, last = int(offsets.min()), int(offsets.max())
    return Part(topic, partition, offsets.size, first, last, bool((np.diff(offsets) > 0).all()))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]

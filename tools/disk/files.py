"""Prints the small files of a data directory: indexes, producer snapshots, checkpoints, `partition.metadata`.

Owns the mapping of file names to kinds. Binary files are printed by their construct schemas, text files line by line.
Memory use does not depend on the size of a file. Raises Stopped for damage.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from enum import Enum

from crc32c import crc32c

from ...broker.metrics import client_ledger
from ...broker.trace.describe import describe
from ...broker.trace.tracer import Stopped, Tracer, Window, quoted
from ...protocol.structs import Struct
from ...storage import restore
from ...storage.format import checkpoint, clean_close, partition_metadata, schemas
from ...storage.format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from ...storage.inspect import Source
from ...storage.log_dir.metadata_log import SNAPSHOT_SUFFIX
from ...storage.producers import txn_index

TEXT_BYTES_MAX = 64 << 20
CHUNK_ENTRIES = 4096
_SUFFIXES = (".deleted", ".cleaned", ".swap", ".tmp", client_ledger.DAMAGED_SUFFIX)
_BASE_OFFSET = re.compile(r"([0-9]{20})")


class Kind(Enum):
    """The kind of a file, known from its name."""

    SEGMENT = "segment"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    SNAPSHOT = "producer snapshot"
    OFFSETS = "checkpoint of offsets"
    EPOCHS = "checkpoint of leader epochs"
    METADATA = "partition metadata"
    PROPERTIES = "properties"
    TEXT = "text"


_BY_SUFFIX = {
    ".log": Kind.SEGMENT,
    SNAPSHOT_SUFFIX: Kind.SEGMENT,
    ".index": Kind.OFFSET_INDEX,
    ".timeindex": Kind.TIME_INDEX,
    txn_index.SUFFIX: Kind.TRANSACTION_INDEX,
    ".snapshot": Kind.SNAPSHOT,
}
_BY_NAME = {
    checkpoint.RECOVERY_POINT: Kind.OFFSETS,
    checkpoint.LOG_START_OFFSET: Kind.OFFSETS,
    checkpoint.REPLICATION_OFFSET: Kind.OFFSETS,
    checkpoint.CLEANER_OFFSET: Kind.OFFSETS,
    checkpoint.LEADER_EPOCH: Kind.EPOCHS,
    partition_metadata.FILE_NAME: Kind.METADATA,
    "meta.properties": Kind.PROPERTIES,
    ".kafka_cleanshutdown": Kind.TEXT,
    clean_close.FILE_NAME: Kind.TEXT,
    ".lock": Kind.TEXT,
    restore.PLAN: Kind.TEXT,  # JSON
    restore.DECISION: Kind.TEXT,
    "quorum-state": Kind.TEXT,  # the KRaft quorum's, JSON
    client_ledger.FILE_NAME: Kind.TEXT,  # JSON, a line for each client
}
# The schema of an entry, and its size in bytes.
ENTRIES: dict[Kind, tuple[Struct, int]] = {
    Kind.OFFSET_INDEX: (schemas.OFFSET_ENTRY, OFFSET_ENTRY_BYTES),
    Kind.TIME_INDEX: (schemas.TIME_ENTRY, TIME_ENTRY_BYTES),
    Kind.TRANSACTION_INDEX: (schemas.ABORTED_TRANSACTION, txn_index.ENTRY_BYTES),
}
_CHECKPOINT_FIELDS = {Kind.OFFSETS: ("topic", "partition", "offset"), Kind.EPOCHS: ("epoch", "start_offset")}


def kind_of(path: str) -> Kind | None:
    """Returns the kind of a file, also of one that is being deleted or swapped in; None for an unknown name."""
    name = plain_name(path)
    return _BY_NAME.get(name) or _BY_SUFFIX.get(os.path.splitext(name)[1])


def plain_name(path: str) -> str:
    """Returns the name of a file without the suffixes of a deletion, a write or a swap."""
    name = os.path.basename(path)
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def base_offset_of(path: str) -> int | None:
    """Returns the base offset in the name of a segment's file, or None."""
    match = _BASE_OFFSET.match(os.path.basename(path))
    return int(match[1]) if match else None


def trace_file(kind: Kind, source: Source, path: str, tracer: Tracer) -> None:
    """Prints a file other than a segment. Raises Stopped."""
    tracer.line("0", 0, f"{kind.value} {quoted(os.path.basename(path))[1:-1]}, {source.size} bytes")
    if kind in ENTRIES:
        _trace_index(kind, source, tracer)
    elif kind is Kind.SNAPSHOT:
        _trace_snapshot(source, tracer)
    else:
        _trace_text(kind, source, tracer)


def describe_file(kind: Kind) -> Iterator[str]:
    """Yields the lines of the schema of a file other than a segment."""
    yield kind.value
    if kind in ENTRIES:
        yield "  entries until the end"
        yield from describe(ENTRIES[kind][0], 2)
    elif kind is Kind.SNAPSHOT:
        yield from describe(schemas.PRODUCER_SNAPSHOT, 1)
    elif kind in _CHECKPOINT_FIELDS:
        yield "  line 1: version"
        yield "  line 2: number of entries"
        yield f"  each other line: {', '.join(_CHECKPOINT_FIELDS[kind])}"
    elif kind is Kind.TEXT:
        yield "  lines"
    else:
        yield f"  each line: name{':' if kind is Kind.METADATA else ' ='} value"


def _read(source: Source, position: int, length: int) -> bytes:
    try:
        return source.read(position, length)
    except OSError as error:
        raise Stopped(str(position), f"cannot be read: {error.strerror}") from None


def _trace_index(kind: Kind, source: Source, tracer: Tracer) -> None:
    layout, size = ENTRIES[kind]
    position = 0
    while position < source.size:
        data = _read(source, position, size * CHUNK_ENTRIES)
        if not data:
            raise Stopped(str(position), "the file became shorter")
        for start in range(0, len(data), size):
            entry = data[start : start + size]
            where = position + start
            if not any(entry) and (where or size > TIME_ENTRY_BYTES) and _only_zeros(source, where):
                tracer.line(str(where), 1, f"{source.size - where} preallocated bytes, all zero")
                return
            window = Window(entry, where)
            if len(entry) < size:
                raise Stopped(str(where), f"{len(entry)} bytes where an entry takes {size}")
            tracer.line(str(where), 1, f"entry {where // size}")
            tracer.struct(layout, window, 2)
        position += len(data)


def _only_zeros(source: Source, position: int) -> bool:
    while position < source.size:
        data = _read(source, position, 1 << 16)
        if not data or any(data):
            return False
        position += len(data)
    return True


def _trace_snapshot(source: Source, tracer: Tracer) -> None:
    data = _text(source)
    window = Window(data)
    found = tracer.whole(schemas.PRODUCER_SNAPSHOT, window, 1)
    if found["version"] != 1:
        tracer.problem(Stopped("0", f"version {found['version']}: expected 1"), 1)
    if crc32c(memoryview(data)[6:]) != struct.unpack_from(">I", data, 2)[0]:
        tracer.problem(Stopped("2", "wrong CRC"), 1)


def _text(source: Source) -> bytes:
    if source.size > TEXT_BYTES_MAX:
        raise Stopped("0", f"a file of {source.size} bytes: expected at most {TEXT_BYTES_MAX}")
    return _read(source, 0, source.size)


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Yields (position, line) of each line. Raises Stopped for bytes that are not UTF-8."""
    position = 0
    while position < len(data):
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        try:
            yield position, data[position:end].decode().removesuffix("\r")
        except UnicodeDecodeError as error:
            raise Stopped(str(position + error.start), "not UTF-8") from None
        position = end + 1


def _trace_text(kind: Kind, source: Source, tracer: Tracer) -> None:
    lines = _lines(_text(source))
    if kind in _CHECKPOINT_FIELDS:
        _trace_checkpoint(_CHECKPOINT_FIELDS[kind], lines, tracer)
        return
    if kind is Kind.TEXT:
        for position, line in lines:
            tracer.line(str(position), 1, quoted(line))
        return
    separator = ":" if kind is Kind.METADATA else "="
    for position, line in lines:
        if not line.strip() or (kind is Kind.PROPERTIES and line.lstrip()[0] in "#!"):
            continue
        name, found, value = line.partition(separator)
        if not found:
            raise Stopped(str(position), f"a line without {separator!r}: {quoted(line)}")
        tracer.line(str(position), 1, f"{quoted(name.strip())[1:-1]}: {quoted(value.strip())[1:-1]}")
        if (name, kind) == ("topic_id", Kind.METADATA):
            _checked(partition_metadata.decode_id, value.strip(), position)


def _checked(read: Callable[[str], object], text: str, position: int) -> None:
    try:
        read(text)
    except ValueError:
        raise Stopped(str(position), f"unexpected value {quoted(text)}") from None


def _trace_checkpoint(names: tuple[str, ...], lines: Iterator[tuple[int, str]], tracer: Tracer) -> None:
    announced = found = 0
    position = 0
    for number, (position, line) in enumerate(lines):
        if number < 2:
            _checked(_number, line, position)
            tracer.line(str(position), 1, f"{('version', 'entries')[number]}: {int(line)}")
            if number == 0 and int(line) != 0:
                raise Stopped(str(position), f"version {int(line)}: expected 0")
            announced = int(line)
        elif line.strip():
            words = line.split()
            if len(words) != len(names):
                raise Stopped(str(position), f"expected {len(names)} values in an entry: {quoted(line)}")
            for name, word in zip(names, words, strict=True):
                if name != "topic":
                    _checked(_number, word, position)
            tracer.line(
                str(position), 1, ", ".join(f"{n} {quoted(w)[1:-1]}" for n, w in zip(names, words, strict=True))
            )
            found += 1
    if announced != found:
        raise Stopped(str(position), f"the file has {found} entries, its second line announces {announced}")


def _number(text: str) -> int:
    if len(text) > 20:
        raise ValueError(text)
    return int(text)

"""The `.txnindex` of a segment: the aborted transactions whose markers are in it.

The file is made with the first entry, and has 34 bytes for each, in the order of the markers: version 0, producer id,
the offset of the transaction's first record, that of the marker, and the last stable offset when the marker was
written. It can be derived from the log: recovery rewrites it for the segments that it reads.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping, Sequence

from ...protocol.named import NamedTuple
from ...protocol.records import batch
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ..errors import StorageError
from ..io.files import Files, write_atomically
from .producer_state import Producer, ProducerRules, advance

SUFFIX = ".txnindex"
ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = ENTRY.size
_VERSION = 0
_MARKER_KEY = struct.Struct(">hh")  # version, type
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch; the versions are 0, too
ABORT, COMMIT = 0, 1


class AbortedTransaction(NamedTuple):
    """An entry. `last_offset` is that of the marker; all transactions below `last_stable_offset` were decided at that
    time."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Marker(NamedTuple):
    """A transaction marker: ABORT or COMMIT, and the coordinator epoch (-1: none)."""

    kind: int
    coordinator_epoch: int


def dump(entries: Sequence[AbortedTransaction]) -> bytes:
    """Returns the bytes of a file."""
    return b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries)


def parse(data: bytes) -> list[AbortedTransaction]:
    """Parses the entries of a file. Raises StorageError if they are incomplete, of another version, or do not rise."""
    if len(data) % ENTRY_BYTES:
        raise StorageError(f"a transaction index of {len(data)} bytes")
    found: list[AbortedTransaction] = []
    for version, *fields in ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != _VERSION or entry.first_offset > entry.last_offset:
            raise StorageError(f"a transaction index of version {version} with {entry}")
        if found and found[-1].last_offset >= entry.last_offset:
            raise StorageError(f"a transaction index with offset {entry.last_offset} after {found[-1].last_offset}")
        found.append(entry)
    return found


def read_whole(files: Files, path: str) -> bytes:
    """Returns the whole entries of a file, without an incomplete last one, which may be being written; nothing without
    the file. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        data = files.read_bytes(path)
        return data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]
    return b""


def marker_record(marker: Marker) -> tuple[bytes, bytes]:
    """Returns the key and the value of a marker's record."""
    return _MARKER_KEY.pack(_VERSION, marker.kind), _MARKER_VALUE.pack(_VERSION, marker.coordinator_epoch)


def read_marker(data: bytes | memoryview, position: int, header: BatchHeader) -> Marker | None:
    """Returns the marker in a batch; None if it is not a control batch, or one of another kind."""
    if not header.is_control or header.producer_id < 0:
        return None
    try:
        for record in batch.records(data, position):
            _, kind = _MARKER_KEY.unpack_from(record.key or b"")
            if kind not in (ABORT, COMMIT):
                return None
            with contextlib.suppress(struct.error):
                return Marker(kind, _MARKER_VALUE.unpack_from(record.value or b"")[1])
            return Marker(kind, -1)
    except (CorruptRecords, InvalidRecords, UnsupportedCodec, struct.error):
        pass
    return None


def aborted(marker: Marker | None, header: BatchHeader, producers: Mapping[int, Producer]) -> AbortedTransaction | None:
    """Returns the entry for an abort marker, given the producers before it; None if it aborts no transaction."""
    if marker is None or marker.kind != ABORT:
        return None
    known = producers.get(header.producer_id)
    if known is None or known.transaction_first_offset < 0:
        return None
    others = (
        producer.transaction_first_offset
        for producer_id, producer in producers.items()
        if producer.transaction_first_offset >= 0 and producer_id != header.producer_id
    )
    stable = min(others, default=header.next_offset)
    return AbortedTransaction(header.producer_id, known.transaction_first_offset, header.last_offset, stable)


def apply(
    data: bytes | memoryview,
    position: int,
    header: BatchHeader,
    producers: dict[int, Producer],
    log_start_offset: int,
    rules: ProducerRules,
) -> AbortedTransaction | None:
    """Applies a batch to the producers, as `advance`, and returns the entry for it, if there is one. `data` is needed
    only for a control batch."""
    marker = read_marker(data, position, header)
    entry = aborted(marker, header, producers)
    advance(producers, header, log_start_offset, rules, -1 if marker is None else marker.coordinator_epoch)
    return entry


def write(files: Files, path: str, entries: Sequence[AbortedTransaction]) -> bool:
    """Makes a segment's file contain these entries, without a sync; removes it without entries. Returns whether it
    changed. Raises OSError.

    A file with the same entries is not touched.
    """
    data = dump(entries)
    try:
        if files.read_bytes(path) == data:
            return False
    except FileNotFoundError:
        if not data:
            return False
    if data:
        write_atomically(files, path, data, sync=False)
    else:
        files.remove(path)
    return True


def append(files: Files, path: str, entries: Sequence[AbortedTransaction]) -> None:
    """Appends entries, without a sync. After OSError a part of them may be in the file."""
    with contextlib.closing(files.open(path, create=True)) as file:
        file.write(file.size(), dump(entries))


def cut(files: Files, path: str, size_bytes: int) -> None:
    """Cuts the file to this size, if it is longer. Raises OSError."""
    with contextlib.closing(files.open(path)) as file:
        if file.size() > size_bytes:
            file.truncate(size_bytes)

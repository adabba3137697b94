"""Reads data directories and segment files without disturbing a broker: for dump, formats, verify and audits.

Takes no lock, writes nothing, uses no index, and maps no file (if a mapped file is cut, reading the page kills the
process, and a broker may be running). Entries of all three formats are read, in bounded memory. Damage is a value with
its position, so that the caller can report how far it got. `repair`, which has the directory for itself, and tests pass
other `Files`.

A file is read up to its size when it was opened; later appends of a running broker are not seen. Raises StorageError
only, when a file or folder cannot be opened.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Protocol

from ..protocol.named import NamedTuple
from ..protocol.records import formats
from ..protocol.records.batch import HEADER_BYTES, MAX_DECOMPRESSED_BYTES, BatchHeader
from ..protocol.records.checksum import crc32c
from ..protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ..protocol.records.layout import CRC_FROM, LEGACY_CRC_FROM, MAGIC_AT, MIN_BYTES, OFFSET_AND_LENGTH
from . import restore
from .errors import StorageError
from .format import checkpoint
from .format.file_names import RESTORE, offsets_in, partition_of
from .io.files import DiskFile, DiskFiles, File, Files

WINDOW_BYTES = 1 << 20
ENTRY_BYTES_MAX = 256 << 20  # a larger entry is not decoded; no broker accepts one

_DIRECTORY_FILES = {
    "meta.properties",
    checkpoint.RECOVERY_POINT,
    checkpoint.LOG_START_OFFSET,
    checkpoint.REPLICATION_OFFSET,
}


class BatchFacts(NamedTuple):
    """One entry of a segment: a v2 batch, or a v0/v1 message, which with a codec is a wrapper around others.

    `header` has the fields of all formats, as `legacy.read_header` fills them for v0 and v1. `crc_ok` is None if the
    CRC was not checked. `first_offset` and `record_count` are -1 for a wrapper that was not opened, or that could not
    be: `problem` is then the reason.
    """

    position: int
    header: BatchHeader
    crc_ok: bool | None
    first_offset: int
    record_count: int
    problem: str | None

    @property
    def magic(self) -> int:
        return self.header.magic

    @property
    def size_bytes(self) -> int:
        return self.header.size_bytes

    @property
    def codec(self) -> int:
        return self.header.codec

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def is_wrapper(self) -> bool:
        """Whether the entry is a compressed v0 or v1 message with records inside."""
        return self.header.magic < 2 and self.header.codec != 0


class Damage(NamedTuple):
    """The end of a read: no entry begins at `position`, and `left_bytes` follow.

    `is_tail`: the file ends inside an entry, or has only zeros from here on. That is how an unfinished write looks, and
    the end of a log after a crash.
    """

    position: int
    left_bytes: int
    reason: str
    is_tail: bool


class Source(Protocol):
    """Bytes at positions from 0 to `size`."""

    size: int

    def read(self, position: int, length: int) -> bytes:
        """Reads at most `length` bytes; fewer only at the end. Raises OSError."""
        ...


class BytesSource:
    """Bytes in memory, as a Source."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]


class _InspectedFile(DiskFile):
    """A file of `InspectionFiles`. A read returns less if the file became shorter."""

    __slots__ = ()

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._fd, length, position)


class InspectionFiles(DiskFiles):
    """The real disk for inspection: files are opened for reading only, and never mapped."""

    def open(self, path: str, *, create: bool = False) -> File:
        return _InspectedFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))


INSPECTION_FILES = InspectionFiles()


class FileSource:
    """A file, opened for reading; a context manager. Raises StorageError if it cannot be opened."""

    def __init__(self, path: str | os.PathLike[str], files: Files = INSPECTION_FILES) -> None:
        try:
            self._file = files.open(os.fspath(path))
            self.size = self._file.size()
        except OSError as error:
            raise StorageError(f"cannot read {os.fspath(path)}: {error.strerror}") from error

    @classmethod
    @contextlib.contextmanager
    def if_exists(cls, path: str, files: Files = INSPECTION_FILES) -> Generator[FileSource | None]:
        """Opens a file for the duration of the context; yields None if it does not exist."""
        source = None
        try:
            source = cls(path, files)
        except StorageError:
            if files.exists(path):
                raise
        with source or contextlib.nullcontext():
            yield source

    def read(self, position: int, length: int) -> bytes:
        length = min(length, self.size - position)
        return bytes(self._file.read(position, length)) if length > 0 else b""

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


# -- entries


def entries(
    source: Source, *, check_crc: bool = True, open_wrappers: bool = False, position: int = 0
) -> Iterator[BatchFacts | Damage]:
    """Yields every entry from the start on, or from the position of an entry; a Damage, if there is one, comes last.

    A wrong CRC does not end the iteration: the entry's size is trusted as long as the next header is plausible.
    `open_wrappers` finds the number of records in a v0 or v1 wrapper, and the first offset.
    """
    start = position
    window = b""
    while position < source.size:
        try:
            if start + len(window) - position < HEADER_BYTES:
                start, window = position, source.read(position, WINDOW_BYTES)
            found = _entry(source, window, position - start, position)
            if isinstance(found, Damage):
                yield found
                return
            size = found.size_bytes
            crc_ok = None
            if check_crc:
                if position + size > start + len(window) and size <= WINDOW_BYTES:
                    start, window = position, source.read(position, WINDOW_BYTES)
                crc_ok = _crc_matches(source, window, position - start, position, found)
            yield _facts(source, position, found, crc_ok, open_wrappers)
        except OSError as error:
            yield Damage(position, source.size - position, f"cannot be read: {error.strerror}", False)
            return
        position += size


def entry_at(source: Source, position: int, *, open_wrappers: bool = False) -> BatchFacts | Damage:
    """Returns the entry at a position, with its CRC checked, or the damage there."""
    return next(entries(source, open_wrappers=open_wrappers, position=position), None) or Damage(
        position, 0, "the end", True
    )


def segment(
    path: str | os.PathLike[str],
    *,
    check_crc: bool = True,
    open_wrappers: bool = False,
    files: Files = INSPECTION_FILES,
) -> Iterator[BatchFacts | Damage]:
    """Yields the `entries` of a file. Raises StorageError if it cannot be opened."""
    with FileSource(path, files) as source:
        yield from entries(source, check_crc=check_crc, open_wrappers=open_wrappers)


def sound_records(
    path: str | os.PathLike[str], files: Files = INSPECTION_FILES, start: int = 0
) -> Iterator[formats.Record]:
    """Yields the records of a segment from the entry with the offset `start` on, without those of control batches and
    of entries that are damaged or larger than ENTRY_BYTES_MAX. Raises StorageError if it cannot be opened, OSError."""
    with FileSource(path, files) as source:
        for found in entries(source):
            if isinstance(found, Damage) or not found.crc_ok or found.header.is_control:
                continue
            if found.last_offset < start or found.size_bytes > ENTRY_BYTES_MAX:
                continue
            try:
                yield from formats.records(source.read(found.position, found.size_bytes))
            except (CorruptRecords, InvalidRecords, UnsupportedCodec):
                continue


def _min_bytes(magic: int) -> int:
    return MIN_BYTES[magic] if magic < len(MIN_BYTES) else 0


def _entry(source: Source, window: bytes, at: int, position: int) -> BatchHeader | Damage:
    """Returns the header at a position of the window, or the damage there."""
    left = source.size - position
    if len(window) - at < min(left, HEADER_BYTES):
        return Damage(position, left, "the file became shorter", True)
    try:
        if left <= MAGIC_AT or left < _min_bytes(window[at + MAGIC_AT]):
            raise CorruptRecords(f"{left} bytes where an entry begins")
        header = formats.read_header(window, at, whole=False)
        if header.size_bytes > left:
            return Damage(position, left, f"an entry of {header.size_bytes} bytes where {left} are left", True)
        return header
    except CorruptRecords as error:
        if all_zeros(source, position):
            return Damage(position, left, f"{left} bytes of zeros", True)
        return Damage(position, left, str(error), left < HEADER_BYTES and _may_continue(window[at:], left))


def _may_continue(data: bytes, left: int) -> bool:
    """Returns whether these few bytes can be the beginning of an entry that continues after the file's end."""
    if left < OFFSET_AND_LENGTH.size:
        return True
    _, size = OFFSET_AND_LENGTH.unpack_from(data)
    return OFFSET_AND_LENGTH.size + size > left and (left <= MAGIC_AT or data[MAGIC_AT] < len(MIN_BYTES))


def all_zeros(source: Source, position: int) -> bool:
    """Returns whether there are only zeros from a position on. Raises OSError."""
    while position < source.size:
        data = source.read(position, WINDOW_BYTES)
        if not data or data.count(0) != len(data):
            return False
        position += len(data)
    return True


def _crc_matches(source: Source, window: bytes, at: int, position: int, header: BatchHeader) -> bool:
    end = position + header.size_bytes
    if at + header.size_bytes <= len(window):
        return formats.crc_matches(window, at, header)
    crc = 0
    checked = position + (CRC_FROM if header.magic == 2 else LEGACY_CRC_FROM)
    while checked < end:
        data = source.read(checked, min(WINDOW_BYTES, end - checked))
        if not data:
            return False
        crc = crc32c(data, crc) if header.magic == 2 else zlib.crc32(data, crc)
        checked += len(data)
    return crc == header.crc


def _facts(source: Source, position: int, header: BatchHeader, crc_ok: bool | None, open_wrappers: bool) -> BatchFacts:
    if header.magic == 2 or header.codec == 0:
        return BatchFacts(position, header, crc_ok, header.base_offset, header.record_count, None)
    if not open_wrappers:
        return BatchFacts(position, header, crc_ok, -1, -1, None)
    try:
        if header.size_bytes > ENTRY_BYTES_MAX:
            raise InvalidRecords(f"a wrapper of {header.size_bytes} bytes is not opened")
        data = source.read(position, header.size_bytes)
        offsets = [record.offset for record in formats.records(data, 0, max_bytes=MAX_DECOMPRESSED_BYTES)]
    except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
        return BatchFacts(position, header, crc_ok, -1, -1, str(error))
    return BatchFacts(position, header, crc_ok, offsets[0], len(offsets), None)


# -- directories


class SegmentFile(NamedTuple):
    """A `.log` of a partition."""

    base_offset: int
    path: str
    size_bytes: int


class PartitionFolder(NamedTuple):
    """A partition's folder and its segments, oldest first; files that are being deleted or swapped are left out."""

    topic: str
    partition: int
    path: str
    segments: tuple[SegmentFile, ...]


def followed(path: str) -> str:
    """Returns the absolute path, or for a link to a partition's folder under another name the path of that folder."""
    path = os.path.abspath(path)
    if partition_of(os.path.basename(path)) is None:
        there = os.path.realpath(path)
        return there if partition_folder(there) is not None else path
    return path


def is_folder(path: str, files: Files = INSPECTION_FILES) -> bool:
    """Returns whether the path is a folder that can be listed."""
    try:
        files.list(path)
    except OSError:
        return False
    return True


def partitions(directory: str | os.PathLike[str], files: Files = INSPECTION_FILES) -> list[PartitionFolder]:
    """Returns the partitions of a data directory of Ottla or of Apache Kafka, by topic and number.

    Raises StorageError for a path that is not a data directory: it has neither a partition nor any of the files beside
    them. Also raises it if a partition's folder cannot be read, since leaving it out would report it as missing, and if
    a restore of a snapshot has replaced a part of the directory.
    """
    root = os.fspath(directory)
    try:
        names = files.list(root)
    except OSError as error:
        raise StorageError(f"cannot read {root}: {error.strerror}") from error
    if RESTORE in names and restore.is_divided(files, root):
        raise StorageError(f"{root}: {restore.described(files, root)}")
    found: list[PartitionFolder] = []
    for name in names:
        key = partition_of(name)
        path = os.path.join(root, name)
        if key is not None and (segments := _segments(path, files)):
            found.append(PartitionFolder(*key, path, segments))
    if not found and not _DIRECTORY_FILES & set(names):
        raise StorageError(f"{root} is no data directory: it has no partition")
    return sorted(found)


def partition_folder(path: str, files: Files = INSPECTION_FILES) -> PartitionFolder | None:
    """Returns one partition's folder in its current state; None if it is gone, or has no segment. Raises StorageError
    if it cannot be read."""
    key = partition_of(os.path.basename(path))
    segments = _segments(path, files) if key is not None else ()
    return PartitionFolder(*key, path, segments) if key is not None and segments else None


def _segments(folder: str, files: Files) -> tuple[SegmentFile, ...]:
    """Returns the segments in a folder; none if it is not a folder, or was deleted in the meantime. Raises StorageError
    for a folder without read permission, which must not count as empty."""
    found: list[SegmentFile] = []
    try:
        for base_offset in offsets_in(files.list(folder), ".log"):
            path = os.path.join(folder, f"{base_offset:020d}.log")
            with contextlib.suppress(FileNotFoundError):
                found.append(SegmentFile(base_offset, path, files.size(path)))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error.strerror}") from error
    return tuple(found)

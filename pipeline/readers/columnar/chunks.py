"""Converts consecutive log entries to Arrow record batches of some megabytes.

Owns the walk over the entries, the split into chunks, and the treatment of damage. The entries of a chunk are decoded
together; a chunk has one format family, v2 or v0/v1, and keeps the order of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
from crc32c import crc32c

from ....protocol.limits import INT32_MAX
from ....protocol.records import batch, formats, legacy
from ....protocol.records.batch import CODEC_BITS, CONTROL_BIT, HEADER_BYTES, MAX_DECOMPRESSED_BYTES, BatchHeader
from ....protocol.records.errors import CorruptRecords, InvalidRecords
from ....protocol.records.layout import CRC_FROM, PREFIX_BYTES
from . import batches
from . import legacy as legacy_rows
from .columns import COLUMNS, record_batch, schema
from .rows import Rows

Buffer = bytes | bytearray | memoryview
Built = TypeVar("Built")


CHUNK_BYTES = 4 * 1024 * 1024
"""Large enough to amortise the cost per chunk, small enough for the CPU cache."""

MAX_CHUNK_BYTES = INT32_MAX - 64
"""Arrow's binary arrays have 32-bit offsets."""


@dataclass(frozen=True, slots=True)
class Damage:
    """An entry that could not be decoded. `header` is None if the bytes hold no recognisable entry: the rest is lost,
    too."""

    position: int
    header: BatchHeader | None
    error: CorruptRecords | InvalidRecords


@dataclass(frozen=True, slots=True)
class Options:
    """The options of decoding.

    `columns` are names of `columns.ALL_COLUMNS`. `control` includes the records of control batches. `keep` receives the
    position and header of each entry before its payload is read, and skips the entry by returning False.
    `check_crc=False` decodes entries with a wrong CRC; the column `crc_ok` marks them. `crcs=False` computes none for
    v2 batches, which all count as right. `on_damage` is called for each damaged entry, which is skipped; without it the
    first one raises. A chunk ends after the entry that reaches `chunk_bytes`; `max_batch_bytes` bounds the decompressed
    size of one entry. Raises ValueError for sizes that no chunk can have.
    """

    columns: Sequence[str] = COLUMNS
    control: bool = False
    keep: Callable[[int, BatchHeader], bool] | None = None
    check_crc: bool = True
    crcs: bool = True
    on_damage: Callable[[Damage], None] | None = None
    chunk_bytes: int = CHUNK_BYTES
    max_batch_bytes: int = MAX_DECOMPRESSED_BYTES

    def __post_init__(self) -> None:
        if not 0 < self.chunk_bytes <= MAX_CHUNK_BYTES or not 0 < self.max_batch_bytes <= MAX_CHUNK_BYTES:
            raise ValueError(f"chunk_bytes and max_batch_bytes must be from 1 to {MAX_CHUNK_BYTES}")


@dataclass(slots=True)
class _Chunk:
    """The collected entries and their payloads, in the order of the log."""

    positions: list[int] = field(default_factory=list)
    headers: list[BatchHeader] = field(default_factory=list)
    crc_ok: list[bool] = field(default_factory=list)
    payloads: list[bytes | memoryview] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, position: int, header: BatchHeader, crc_ok: bool, payload: bytes | memoryview) -> None:
        self.positions.append(position)
        self.headers.append(header)
        self.crc_ok.append(crc_ok)
        self.payloads.append(payload)
        self.size_bytes += len(payload)

    @property
    def is_new(self) -> bool:
        """Whether the chunk is of format v2."""
        return self.headers[0].magic == formats.NEWEST_MAGIC

    def extend(self, other: _Chunk) -> None:
        self.positions += other.positions
        self.headers += other.headers
        self.crc_ok += other.crc_ok
        self.payloads += other.payloads
        self.size_bytes += other.size_bytes

    def rows(self) -> Iterator[Rows]:
        if self.is_new:
            yield from batches.rows(self.headers, self.payloads, self.crc_ok)
        else:
            yield legacy_rows.rows(self.headers, self.payloads, self.crc_ok)

    def parts(self) -> Iterator[_Chunk]:
        """Yields each entry as a chunk of its own; for a single entry that is a run of messages, its two halves; else
        nothing."""
        entries = list(zip(self.positions, self.headers, self.crc_ok, self.payloads, strict=True))
        if len(entries) == 1:
            ((position, header, crc_ok, payload),) = entries
            found = legacy_rows.halves(header, payload) if header.magic != formats.NEWEST_MAGIC else []
            entries = [(position + at, first, crc_ok, half) for at, first, half in found]
        for entry in entries:
            part = _Chunk()
            part.add(*entry)
            yield part


def decode(data: Buffer, options: Options | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the records of every whole entry of `data`, which begins with an entry, as Arrow record batches.

    An incomplete last entry ends the iteration, as in `formats.headers`. Reads `data` lazily. Raises CorruptRecords and
    InvalidRecords for damage, whichever columns are selected (unless `on_damage` handles it), and ValueError for
    unknown columns.
    """
    options = options or Options()
    schema(options.columns)
    return _decode(data, options, lambda rows: record_batch(rows, options.columns) if rows.offsets.size else None)


def spans(data: Buffer, options: Options | None = None) -> Iterator[Rows]:
    """Yields the positions of the records and of their parts, like `decode` without building columns: copies only the
    payloads. Includes entries without records."""
    return _decode(data, options or Options(), lambda rows: rows)


def _decode(data: Buffer, options: Options, build: Callable[[Rows], Built | None]) -> Iterator[Built]:
    chunk = _Chunk()

    def taken() -> int:
        return chunk.size_bytes

    for part in _opened(data, options, taken):
        other_kind = chunk.headers and part.is_new != chunk.is_new
        if other_kind or (chunk.headers and chunk.size_bytes + part.size_bytes > MAX_CHUNK_BYTES):
            yield from _built(chunk, options, build)
            chunk = _Chunk()
        chunk.extend(part)
        if chunk.size_bytes >= options.chunk_bytes:
            yield from _built(chunk, options, build)
            chunk = _Chunk()
    if chunk.headers:
        yield from _built(chunk, options, build)


def _opened(data: Buffer, options: Options, taken: Callable[[], int]) -> Iterator[_Chunk]:
    """Yields the selected entries that pass the checks of their header and CRC, in parts of one format family. `taken`
    returns the size of the current chunk."""
    view = memoryview(data)
    # Usual entries are read in runs, unless `keep` must be called for each.
    runs = options.keep is None
    entries = formats.headers(view)
    start = following = 0
    while True:
        if runs:
            part, end = _run(view, following, options, taken())
            if end > following:
                yield part
                start = following = end
                entries = formats.headers(view[start:])
                continue
        try:
            found = next(entries, None)
        except CorruptRecords as error:
            if options.on_damage is None:
                raise
            options.on_damage(Damage(following, None, error))
            return
        if found is None:
            return
        position, header = start + found[0], found[1]
        following = position + header.size_bytes
        is_marker = header.is_control and header.magic == formats.NEWEST_MAGIC and not options.control
        if not is_marker and options.keep is not None and not options.keep(position, header):
            continue
        try:
            crc_ok = not options.crcs or formats.crc_matches(data, position, header)
            if options.check_crc and not crc_ok:
                raise CorruptRecords(f"the entry at byte {position} does not match its CRC")
            if is_marker and crc_ok:  # otherwise the bit that makes it a marker may be the damage
                continue
            payload = _payload(data, position, header, options.max_batch_bytes)
        except (CorruptRecords, InvalidRecords) as error:
            if options.on_damage is None:
                raise
            options.on_damage(Damage(position, header, error))
            continue
        part = _Chunk()
        part.add(position, header, crc_ok, payload)
        yield part


def _run(view: memoryview, position: int, options: Options, taken: int) -> tuple[_Chunk, int]:
    """Returns consecutive v2 batches, or plain messages as one entry, and the position after them. Stops after the
    entry that fills the chunk, which has `taken` bytes already, and before an entry that is unwanted, damaged or of
    another format."""
    part = _Chunk()
    if (end := legacy_rows.run(view, position, options.chunk_bytes)) > position:
        part.add(position, legacy.read_header(view, position), True, view[position:end])
        return part, end
    end = len(view)
    add_position, add_header, add_payload = part.positions.append, part.headers.append, part.payloads.append
    read_header, size = batch.read_header, 0
    try:
        while taken + size < options.chunk_bytes and position + HEADER_BYTES <= end:
            header = read_header(view, position, whole=False)
            following = position + PREFIX_BYTES + header.batch_length
            attributes = header.attributes
            if following > end or (attributes & CONTROL_BIT and not options.control):
                break
            if following - position > MAX_CHUNK_BYTES:
                break
            if options.crcs and crc32c(view[position + CRC_FROM : following]) != header.crc:
                break
            payload = view[position + HEADER_BYTES : following]
            if attributes & CODEC_BITS:
                payload = batch.payload(view, position, header, max_bytes=options.max_batch_bytes)
            if taken + size + len(payload) > MAX_CHUNK_BYTES:
                if size:
                    break
                taken = 0  # a new chunk begins
            add_position(position)
            add_header(header)
            add_payload(payload)
            size += len(payload)
            position = following
    except (CorruptRecords, InvalidRecords):
        pass  # the loop over single entries reports the damage
    part.crc_ok = [True] * len(part.headers)
    part.size_bytes = size
    return part, position


def _payload(data: Buffer, position: int, header: BatchHeader, max_bytes: int) -> bytes | memoryview:
    if header.size_bytes > MAX_CHUNK_BYTES:
        raise InvalidRecords(f"an entry of {header.size_bytes} bytes is more than a chunk can hold")
    if header.magic == formats.NEWEST_MAGIC:
        return batch.payload(data, position, header, max_bytes=max_bytes)
    if header.codec:
        return legacy.inner(data, position, header, max_bytes=max_bytes)
    return memoryview(data)[position : position + header.size_bytes]


def _built(chunk: _Chunk, options: Options, build: Callable[[Rows], Built | None]) -> Iterator[Built]:
    if options.on_damage is None:
        for rows in chunk.rows():
            if (found := build(rows)) is not None:
                yield found
        return
    try:
        # All rows are built before the first is returned, so that no row of a damaged entry is.
        built = [found for rows in chunk.rows() if (found := build(rows)) is not None]
    except (CorruptRecords, InvalidRecords) as error:
        parts = list(chunk.parts())
        if not parts:
            options.on_damage(Damage(chunk.positions[0], chunk.headers[0], error))
        for part in parts:
            yield from _built(part, options, build)
        return
    yield from built

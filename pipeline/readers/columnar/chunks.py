"""Entries of a log, one behind the other, to Arrow record batches of some megabytes.

Owns the walk over the entries, the cutting into chunks and what happens to damage. What is in a chunk is decoded
together; a chunk has one kind of format, v2 or the old ones, in the order of the log.
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

__all__ = ["CHUNK_BYTES", "MAX_CHUNK_BYTES", "Damage", "Options", "decode", "spans"]

Buffer = bytes | bytearray | memoryview
Built = TypeVar("Built")


CHUNK_BYTES = 4 * 1024 * 1024
"""Enough for the costs of a chunk to vanish among its records, little enough for the processor's cache."""

MAX_CHUNK_BYTES = INT32_MAX - 64
"""Arrow's binary arrays count in 32 bits."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One entry that could not be decoded. `header` is None where the bytes have no entry that could be told from the
    next: what follows is lost, too."""

    position: int
    header: BatchHeader | None
    error: CorruptRecords | InvalidRecords


@dataclass(frozen=True, slots=True)
class Options:
    """What to decode, and how.

    `columns` are names of `columns.ALL_COLUMNS`. `control` also gives the records of control batches. `keep` sees
    each entry's position and header before its data is looked at, and leaves it out with False. `check_crc=False`
    decodes entries whose CRC does not match; the column `crc_ok` tells which. `on_damage` is called for each damaged
    entry, which is left out; without it the first one raises. `chunk_bytes` is where a chunk ends, after the entry that
    reached it; `max_batch_bytes` bounds what one entry may become when it is decompressed.
    """

    columns: Sequence[str] = COLUMNS
    control: bool = False
    keep: Callable[[int, BatchHeader], bool] | None = None
    check_crc: bool = True
    on_damage: Callable[[Damage], None] | None = None
    chunk_bytes: int = CHUNK_BYTES
    max_batch_bytes: int = MAX_DECOMPRESSED_BYTES


@dataclass(slots=True)
class _Chunk:
    """What has been collected: entries and their payloads, in the order of the log."""

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
        """Whether it is of v2; it is of one kind."""
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
        """Each entry as a chunk of its own; of one that is a run of messages, its halves. Nothing if it is neither."""
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
    """The records of every whole entry of `data`, which starts at one, as Arrow record batches with these columns.

    An incomplete last entry ends the iteration, as in `formats.headers`. `data` is not read further than has been asked
    for. Raises CorruptRecords and InvalidRecords for damage, whichever columns are asked for (unless `on_damage` takes
    it), ValueError for columns that there are not.
    """
    options = options or Options()
    schema(options.columns)
    _check_sizes(options)
    return _decode(data, options, lambda rows: record_batch(rows, options.columns) if rows.offsets.size else None)


def spans(data: Buffer, options: Options | None = None) -> Iterator[Rows]:
    """As `decode`, but the places of the records and of their parts instead of columns, for who needs no more: nothing
    is copied but the payloads. Entries without records are given, too."""
    options = options or Options()
    _check_sizes(options)
    return _decode(data, options, lambda rows: rows)


def _check_sizes(options: Options) -> None:
    if not 0 < options.chunk_bytes <= MAX_CHUNK_BYTES or not 0 < options.max_batch_bytes <= MAX_CHUNK_BYTES:
        raise ValueError(f"sizes of chunks and batches lie between 1 and {MAX_CHUNK_BYTES}")


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
    """The entries that are wanted and undamaged so far, in parts of one kind. `taken`: what the chunk has already."""
    view = memoryview(data)
    # What is usual is looked at in runs, unless somebody wants to be asked for each.
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
        if header.is_control and header.magic == formats.NEWEST_MAGIC and not options.control:
            continue
        if options.keep is not None and not options.keep(position, header):
            continue
        try:
            crc_ok = formats.crc_matches(data, position, header)
            if options.check_crc and not crc_ok:
                raise CorruptRecords(f"the entry at byte {position} does not match its CRC")
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
    """Batches of v2, or plain messages as one entry, from a position on, and where they end: with the one that fills
    the chunk, of which so much is taken, or before what is not wanted, damaged, or of another kind."""
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
            if following - position > MAX_CHUNK_BYTES or crc32c(view[position + CRC_FROM : following]) != header.crc:
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
        pass  # it is told where entries are looked at one by one
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
        # Whole before any of it is given away: nothing of a damaged entry is to be seen.
        built = [found for rows in chunk.rows() if (found := build(rows)) is not None]
    except (CorruptRecords, InvalidRecords) as error:
        parts = list(chunk.parts())
        if not parts:
            options.on_damage(Damage(chunk.positions[0], chunk.headers[0], error))
        for part in parts:
            yield from _built(part, options, build)
        return
    yield from built

"""Entries of any message format, one after another, each with an offset, a size and a magic.

Dispatches on the magic (byte 16 of every entry) to batch.py (v2) or legacy.py (v0, v1). Logs and tools, which may
contain any format, use this module; code that handles v2 only uses batch.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from . import batch, legacy
from .batch import BatchHeader, Buffer, Record
from .errors import CorruptRecords
from .layout import LENGTH_AT, MAGIC_AT, MIN_BYTES, PREFIX_BYTES

NEWEST_MAGIC = batch.MAGIC
MIN_ENTRY_BYTES = MIN_BYTES[0]


def read_header(buffer: Buffer, position: int = 0, *, whole: bool = True) -> BatchHeader:
    """Reads the header of the entry at `position` and checks its size and magic, but not its CRC.

    `whole=False` accepts a buffer that ends somewhere after the header. Raises CorruptRecords.
    """
    at = position + MAGIC_AT
    if MAGIC_AT <= at < len(buffer) and buffer[at] < batch.MAGIC:
        return legacy.read_header(buffer, position, whole=whole)
    return batch.read_header(buffer, position, whole=whole)


def headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of every whole entry, without checking CRCs. An incomplete last entry ends the
    iteration, as in Kafka, where the tail of fetched records is often cut. Raises CorruptRecords for a bad size or
    magic.
    """
    position, end = 0, len(buffer)
    while position + MAGIC_AT < end:
        if buffer[position + MAGIC_AT] == batch.MAGIC and position + batch.HEADER_BYTES <= end:
            header = batch.read_header(buffer, position, whole=False)
            following = position + PREFIX_BYTES + header.batch_length
            if following > end:
                return
        else:
            length = int.from_bytes(buffer[position + LENGTH_AT : position + PREFIX_BYTES], "big", signed=True)
            size = PREFIX_BYTES + length
            if size < MIN_ENTRY_BYTES:
                raise CorruptRecords(f"an entry of {size} bytes is smaller than any format allows")
            following = position + size
            if following > end:
                return
            header = read_header(buffer, position)
        yield position, header
        position = following


def sound_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the same up to the first entry with a bad size or magic."""
    with contextlib.suppress(CorruptRecords):
        yield from headers(buffer)


def crc_matches(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Returns whether the CRC in the header matches the entry."""
    return (batch if header.magic == batch.MAGIC else legacy).crc_matches(buffer, position, header)


def records(buffer: Buffer, position: int = 0, *, max_bytes: int = batch.MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """Decodes the records of the entry at `position`. The caller checks the CRC. Raises CorruptRecords,
    InvalidRecords."""
    if len(buffer) > position + MAGIC_AT and buffer[position + MAGIC_AT] < batch.MAGIC:
        return legacy.records(buffer, position, max_bytes=max_bytes)
    return batch.records(buffer, position, max_bytes=max_bytes)

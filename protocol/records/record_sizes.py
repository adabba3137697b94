"""The limit of `max.decompressed.message.bytes` (Kafka 4.4) on each record of a compressed batch or message set."""

from __future__ import annotations

from ..limits import INT32_MAX
from . import batch, legacy, walk
from .batch import BatchHeader, Buffer
from .errors import InvalidRecords


def check(data: Buffer, magic: int, most: int) -> None:
    """Raises InvalidRecords if a record of the decompressed batch or message set takes more than `most` bytes after its
    size; other errors are left to later checks."""
    position, end = 0, len(data)
    if end <= most:
        return
    while position < end:
        if magic < batch.MAGIC:
            if end - position < legacy.PREFIX_BYTES:
                return
            _, size = legacy.OFFSET_AND_LENGTH.unpack_from(data, position)
            position += legacy.PREFIX_BYTES
        else:
            try:
                size, position = walk.varint(data, position)
            except (IndexError, InvalidRecords):
                return
        if size < 0:
            return
        if size > most:
            raise InvalidRecords(f"Invalid record size: {size} exceeds the configured maximum record size of {most}.")
        position += size


def check_entry(entry: Buffer, header: BatchHeader, most: int) -> None:
    """`check` for an entry of a log, which is decompressed for it only where there is a limit. Raises CorruptRecords,
    InvalidRecords, UnsupportedCodec."""
    if most < INT32_MAX and header.codec:
        opened = legacy.inner if header.magic < batch.MAGIC else batch.payload
        check(opened(entry, 0, header), header.magic, most)

"""The entries of one Fetch response by their headers: the next fetch offset, and the entries of aborted transactions.

Owns the walk from entry to entry, and aborted transactions (KIP-98). Decodes no records apart from transaction markers.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from ....protocol.records import batch, formats
from ....protocol.records.aborted import AbortedTransactions
from ....protocol.records.errors import CorruptRecords, InvalidRecords
from ....protocol.records.layout import (
    LAST_OFFSET_DELTA_AT,
    LEGACY_ATTRIBUTES_AT,
    MAGIC_AT,
    OFFSET_AND_LENGTH,
    PREFIX_BYTES,
)

Buffer = bytes | bytearray | memoryview

_INT32 = struct.Struct(">i")


class Extent(NamedTuple):
    """The extent of a Fetch response. `next_offset` is the one after the last whole entry, at least the fetch offset.
    Entries of the range end at byte `stop`; `needed_bytes` is the size of a truncated entry there, if its size field is
    complete. `is_broken`: the bytes at `stop` cannot be an entry."""

    next_offset: int
    stop: int
    needed_bytes: int
    is_broken: bool


def extent(data: Buffer, offset: int, end: int, *, distrust_headers: bool = False) -> Extent:
    """Walks the entries of a Fetch response at `offset`, up to the first whose records are all at or after `end`.

    Then `next_offset` is at least `end`. `distrust_headers`: a batch may be damaged and must be skipped; so its last
    offset is trusted only if its CRC or its record count agrees with it, or if nothing else leads further.
    """
    position, size, following = 0, len(data), offset
    claimed = offset
    unpack, delta_at = OFFSET_AND_LENGTH.unpack_from, _INT32.unpack_from
    while position + MAGIC_AT < size:
        base, length = unpack(data, position)
        stop = position + PREFIX_BYTES + length
        if length < formats.MIN_ENTRY_BYTES - PREFIX_BYTES:
            return Extent(following, position, 0, True)
        magic = data[position + MAGIC_AT]
        if stop > size:
            break
        if magic < batch.MAGIC:
            # A wrapper's offset is that of its last record.
            first, last = base if not data[position + LEGACY_ATTRIBUTES_AT] & batch.CODEC_BITS else following, base
        elif length >= batch.HEADER_BYTES - PREFIX_BYTES:
            first, last = base, base + delta_at(data, position + LAST_OFFSET_DELTA_AT)[0]
            claimed = max(claimed, last + 1)
            if distrust_headers and magic == batch.MAGIC:
                last = min(last, base + _trusted_delta(data, position))
        else:
            return Extent(following, position, 0, True)
        if first >= end:
            return Extent(max(following, end), position, 0, False)
        following = max(following, last + 1)
        position = stop
        if following >= end:
            break
    needed = max(0, PREFIX_BYTES + unpack(data, position)[1]) if size - position >= PREFIX_BYTES else 0
    if following == offset and position == size:
        following = claimed
    return Extent(following, position, needed, False)


def _trusted_delta(data: Buffer, position: int) -> int:
    """Returns the last offset delta of a possibly damaged v2 batch, as far as it is trusted."""
    header = batch.read_header(data, position)
    if header.last_offset_delta == header.record_count - 1 or batch.crc_matches(data, position, header):
        return header.last_offset_delta
    return max(0, min(header.last_offset_delta, header.record_count - 1))


def begins_damaged(data: Buffer) -> bool:
    """Returns whether the first entry is a v2 batch with a wrong CRC."""
    try:
        return not batch.crc_matches(data, 0, batch.read_header(data))
    except CorruptRecords:  # of another format
        return False


def aborted_positions(data: Buffer, aborted: Iterable[tuple[int, int]]) -> frozenset[int]:
    """Returns the positions of the batches of aborted transactions, given as (producer id, first offset), each up to
    its marker. A damaged marker ends none. Raises CorruptRecords if the entries cannot be delimited."""
    transactions = AbortedTransactions(aborted)
    found: set[int] = set()
    for position, header in formats.headers(data):
        with contextlib.suppress(CorruptRecords, InvalidRecords):
            if header.has_producer and transactions.include(data, position, header):
                found.add(position)
    return frozenset(found)

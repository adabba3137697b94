"""A producer snapshot: the producer state of a partition at an offset, in Apache Kafka's format.

Bytes and names of the files `<offset, 20 digits>.snapshot`; `store.py` writes, reads and removes them. The offset is
exclusive: a batch at that offset is not covered.

    0  version 2 (= 1) | 2  CRC-32C 4 (of 6 to the end) | 6  number of entries 4
    10 producer id 8 | epoch 2 | last sequence 4 | last offset 8 | offset delta 4 | timestamp 8 | coordinator epoch 4
       | first offset of the open transaction 8                                      46 bytes an entry, by producer id

-1 stands for none. Only the newest batch of each producer is stored. The timestamp is that of the newest batch or
transaction marker. A snapshot is a hint: a damaged one is not used.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Mapping

from ...protocol.limits import INT64_MAX
from ...protocol.records.checksum import crc32c
from ..errors import storage_errors
from ..io.files import Files
from .producer_state import SEQUENCE_SPACE, CachedBatch, Producer

SUFFIX = ".snapshot"
VERSION = 1

_HEAD = struct.Struct(">hIi")
_CRC_START = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_MAX_SEQUENCE = SEQUENCE_SPACE - 1


def file_name(offset: int) -> str:
    """Returns the name of the snapshot at an offset."""
    return f"{offset:020d}{SUFFIX}"


def dump(producers: Mapping[int, Producer]) -> bytes:
    """Returns the bytes of a snapshot."""
    data = bytearray(_HEAD.pack(VERSION, 0, len(producers)))
    for producer_id in sorted(producers):
        known = producers[producer_id]
        sequence, last_offset, delta = -1, -1, 0
        if known.batches:
            newest = known.batches[-1]
            sequence, last_offset, delta = newest.last_sequence, newest.last_offset, newest.offset_delta
        data += _ENTRY.pack(
            producer_id,
            known.epoch,
            sequence,
            last_offset,
            delta,
            known.last_timestamp_ms,
            known.coordinator_epoch,
            known.transaction_first_offset,
        )
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CRC_START:]))
    return bytes(data)


def parse(data: bytes | memoryview, offset: int = INT64_MAX) -> dict[int, Producer] | None:
    """Parses a snapshot at an offset; returns None if it is damaged, or impossible for a log up to there.

    The last offset of a producer without a batch is unknown; the snapshot's own offset bounds it.
    """
    if len(data) < _HEAD.size or (len(data) - _HEAD.size) % _ENTRY.size:
        return None
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION or count != (len(data) - _HEAD.size) // _ENTRY.size:
        return None
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        return None
    found: dict[int, Producer] = {}
    for entry in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]):
        producer_id, epoch, sequence, last_offset, delta, timestamp_ms, coordinator_epoch, first_offset = entry
        batches: tuple[CachedBatch, ...] = ()
        if last_offset >= 0:
            # Kafka before 2.1.1 wrote a negative delta for a batch whose sequences wrap.
            delta %= SEQUENCE_SPACE
            if not -1 <= sequence <= _MAX_SEQUENCE or not delta <= last_offset < offset:
                return None
            # A coordinator's batch in a transaction, such as committed offsets, has no sequences.
            first = (sequence - delta) % SEQUENCE_SPACE if sequence >= 0 else -1
            batches = (CachedBatch(first, sequence, last_offset - delta, last_offset, timestamp_ms),)
        if producer_id < 0 or epoch < 0:
            return None
        known_to = last_offset if batches else offset - 1
        found[producer_id] = Producer(epoch, batches, known_to, timestamp_ms, coordinator_epoch, first_offset)
    return found


def read(files: Files, directory: str, offset: int) -> dict[int, Producer] | None:
    """Reads the snapshot at an offset; returns None if it is missing or damaged. Raises StorageError."""
    path = os.path.join(directory, file_name(offset))
    with storage_errors(f"cannot read {path}"), contextlib.suppress(FileNotFoundError):
        return parse(files.read_bytes(path), offset)
    return None

"""The records in a message as JSON-able values, and back.

Owns what is told of a batch and of a record. The bytes themselves stand beside it in base64, and they alone count on
the way back: what is told of batches is for reading. Damage is told where it is, never raised.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from ...protocol.records import batch, formats, legacy
from ...protocol.records.batch import BatchHeader, Record
from ...protocol.records.errors import CorruptRecords, InvalidRecords
from ...protocol.records.schemas import CODEC_NAMES
from ..json_bytes import to_json

Buffer = bytes | bytearray | memoryview
WORDS = frozenset(
    "size base64 batches damaged left_over base_offset magic codec producer_id producer_epoch base_sequence "
    "is_transactional is_control count partition_leader_epoch max_timestamp records records_left_out offset timestamp "
    "key value headers name key_size value_size headers_size".split()
)
"""The names of all that is told."""


class Room:
    """How many more records may be told of one message, and how many bytes of their keys, values and headers; None for
    all. A few bytes on the wire may be very many once they are decompressed."""

    def __init__(self, records: int | None = None, size_bytes: int | None = None) -> None:
        self.left = records
        self._bytes_max = size_bytes
        self.size_bytes = 0
        """Of the records that were looked at, also of the one that was too much."""

    def take(self, record: Record, contents: bool) -> bool:
        """Whether one more may be told; if not, none may behind it."""
        if self.left is not None and self.left <= 0:
            return False
        if contents and self._bytes_max is not None:
            self.size_bytes += len(record.key or b"") + len(record.value or b"")
            self.size_bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
            if self.size_bytes > self._bytes_max:
                self.left = 0
                return False
        if self.left is not None:
            self.left -= 1
        return True


def plain_records(data: Buffer, room: Room, *, contents: bool = True) -> dict[str, Any]:
    """`{"size": bytes, "base64": them, "batches": [...]}`, with `"damaged": why` where they end before their end, and
    `"left_over": bytes` of a last batch that is cut, as Kafka cuts it.

    Without `contents` there is no base64, and keys, values and headers are told by their sizes.
    """
    told: dict[str, Any] = {"size": len(data)}
    if contents:
        told["base64"] = base64.b64encode(data).decode()
    batches: list[dict[str, Any]] = []
    told["batches"] = batches
    end = 0
    try:
        for position, header in formats.headers(data):
            batches.append(_batch(data, position, header, room, contents))
            end = position + header.size_bytes
        if end < len(data):
            told["left_over"] = len(data) - end
    except (CorruptRecords, InvalidRecords) as error:
        told["damaged"] = str(error)
    return told


def _batch(data: Buffer, position: int, header: BatchHeader, room: Room, contents: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "base_offset": header.base_offset,
        "magic": header.magic,
        "codec": CODEC_NAMES.get(header.codec, str(header.codec)),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "count": header.record_count,
        "size": header.size_bytes,
        "records": [],
    }
    if header.magic == batch.MAGIC:
        told |= {"partition_leader_epoch": header.partition_leader_epoch, "max_timestamp": header.max_timestamp}
    try:
        if not formats.crc_matches(data, position, header):
            told["damaged"] = "the CRC is another one"
            return told
        if room.left != 0:
            found = takewhile(lambda record: room.take(record, contents), _records(data, position, header))
            told["records"] = [_record(record, contents) for record in found]
    except (CorruptRecords, InvalidRecords) as error:
        told["damaged"] = str(error)
    records = told["records"]
    if header.record_count < 0:  # a wrapper of an old format says nothing of its messages
        told["count"] = len(records)
    if room.left == 0 and len(records) < header.record_count:
        told["records_left_out"] = header.record_count - len(records)
    return told


def _records(data: Buffer, position: int, header: BatchHeader) -> Iterator[Record]:
    if header.magic == batch.MAGIC:
        return batch.records(data, position)
    return legacy.records(data, position, produced=True)


def _record(record: Record, contents: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    if contents:
        told["key"], told["value"] = to_json(record.key), to_json(record.value)
        told["headers"] = [
            {"name": to_json(name.encode("utf-8", "surrogateescape")), "value": to_json(value)}
            for name, value in record.headers
        ]
    else:
        told["key_size"], told["value_size"] = _size(record.key), _size(record.value)
        told["headers_size"] = sum(
            len(name.encode("utf-8", "surrogateescape")) + len(value or b"") for name, value in record.headers
        )
    return told


def _size(data: bytes | None) -> int | None:
    return None if data is None else len(data)


def records_of(value: Any, where: str) -> bytes:
    """The bytes that `plain_records` told. Raises ValueError where they were left out, or are no base64."""
    if not isinstance(value, dict) or not isinstance(value.get("base64"), str):
        raise ValueError(f"{where}: the contents of the records were left out")
    try:
        return base64.b64decode(value["base64"].encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError(f"{where}: no base64") from error

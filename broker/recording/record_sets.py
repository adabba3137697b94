"""The records in a message as JSON-able values, and what Produce requests show of their producer.

The bytes themselves stand beside the values in base64, and only they are encoded again. Damage is described where it
is, never raised.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Any

from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.records import batch, formats, legacy
from ...protocol.records.batch import BatchHeader, Record
from ...protocol.records.errors import CorruptRecords, InvalidRecords
from ...protocol.records.schemas import CODEC_NAMES
from ..json_bytes import to_json
from .exchange import Produced

Buffer = bytes | bytearray | memoryview
WORDS = frozenset(
    "size base64 batches damaged left_over base_offset magic codec producer_id producer_epoch base_sequence "
    "is_transactional is_control count partition_leader_epoch max_timestamp records records_left_out offset timestamp "
    "key value headers name key_size value_size headers_size".split()
)
"""The names in these values."""


class Room:
    """The records of one message that may still be shown: their number, and the bytes of keys, values and headers; None
    for no limit. A few bytes on the wire may be very many once they are decompressed."""

    def __init__(self, records: int | None = None, size_bytes: int | None = None) -> None:
        self.left = records
        self._bytes_max = size_bytes
        self.size_bytes = 0
        """Of the records that were offered, with the first that was refused."""

    def take(self, record: Record, contents: bool) -> bool:
        """Whether one more record may be shown; after a refusal, none."""
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
    """`{"size": bytes, "base64": them, "batches": [...]}`, with `"damaged": why` at damage, and
    `"left_over": bytes` of a last batch that is cut, as Kafka cuts it.

    Without `contents` there is no base64, and the sizes of keys, values and headers stand for them.
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
        "codec": _codec_name(header),
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


def produced_of(request: ProduceRequest) -> Produced:
    """What a Produce request shows of its producer's configuration. Partitions with damaged records do not count."""
    headers: list[BatchHeader] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            with suppress(CorruptRecords, InvalidRecords):
                headers += [header for _, header in formats.headers(data.records or b"")]
    return Produced(
        request.acks,
        tuple(dict.fromkeys(topic.name or topic.topic_id for topic in request.topic_data)),
        tuple(dict.fromkeys(_codec_name(one) for one in headers)),
        tuple(dict.fromkeys(one.magic for one in headers)),
        bool(headers) and all(one.has_producer for one in headers),
        request.transactional_id is not None,
        tuple(dict.fromkeys(one.producer_id for one in headers if one.has_producer)),
        sum(max(1, one.record_count) for one in headers),
    )


def _codec_name(header: BatchHeader) -> str:
    return CODEC_NAMES.get(header.codec, str(header.codec))

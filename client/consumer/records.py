"""Consumer records, and the lazy decoding of a fetched record set, batch by batch.

Owns the visibility of records: control batches and aborted transactions are skipped (KIP-98), as are records below the
fetch offset, since batches are fetched whole. A cut last batch (Fetch v0-v2) is not an error. CRCs are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.named import NamedTuple
from ...protocol.records import batch, formats, legacy
from ...protocol.records.aborted import AbortedTransactions
from ...protocol.records.batch import BatchHeader, Header
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...protocol.records.layout import LENGTH_AT, PREFIX_BYTES
from ...protocol.records.new_tuple import new_tuple
from ...protocol.records.walk import check_count, check_end, varint, varlong
from ..net.errors import KafkaError

NO_TIMESTAMP_TYPE, CREATE_TIME, APPEND_TIME = -1, 0, 1  # ConsumerRecord.timestamp_type, as in Java
_BROKEN = (CorruptRecords, InvalidRecords, UnsupportedCodec)


class ConsumerRecord(NamedTuple):
    """A record of a partition.

    `timestamp_ms` is -1 in message format v0. `timestamp_type` is 0 for CreateTime, 1 for LogAppendTime, -1 for none.
    `leader_epoch` is that of the append, -1 before format v2. Header keys that are not UTF-8 have surrogate escapes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Sequence[Header] = ()
    leader_epoch: int = -1


@dataclass(slots=True, eq=False, repr=False)
class Chunk:
    """The fetched records of a partition in one response.

    `next_offset` is the next fetch offset, known before decoding; `offset` is that of the next record to read.
    `needed_bytes` is the size of the first batch if the response has only a part of it, otherwise 0. `aborted` are
    (producer id, first offset) of aborted transactions.
    """

    topic: str
    partition: int
    data: bytes | memoryview
    offset: int
    _: KW_ONLY
    committed_only: bool = False
    aborted: InitVar[Iterable[tuple[int, int]]] = ()
    check_crcs: bool = True
    next_offset: int = field(init=False)
    needed_bytes: int = field(default=0, init=False)
    _aborted: AbortedTransactions = field(init=False)
    _entries: list[tuple[int, BatchHeader]] = field(default_factory=list[tuple[int, BatchHeader]], init=False)
    _failure: Exception | None = field(default=None, init=False)
    _index: int = field(default=0, init=False)

    def __post_init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._aborted = AbortedTransactions(aborted)
        try:
            self._entries.extend(formats.headers(self.data))
        except _BROKEN as error:
            self._failure = error
        self.next_offset = max(self.offset, self._entries[-1][1].next_offset) if self._entries else self.offset
        if not self._entries and self._failure is None and len(self.data) >= PREFIX_BYTES:
            self.needed_bytes = PREFIX_BYTES + int.from_bytes(self.data[LENGTH_AT:PREFIX_BYTES], "big", signed=True)

    @property
    def is_broken(self) -> bool:
        """Whether the data after the whole batches is malformed."""
        return self._failure is not None

    def read(self) -> list[ConsumerRecord]:
        """Returns the records of the next batch with visible records, [] at the end.

        Raises KafkaError CORRUPT_MESSAGE for a damaged batch, at each call: `offset` does not move past it.
        """
        entries = self._entries
        while self._index < len(entries):
            position, header = entries[self._index]
            try:
                if self.check_crcs and not formats.crc_matches(self.data, position, header):
                    raise CorruptRecords("the CRC does not match")
                records = self._visible(position, header)
            except _BROKEN as error:
                raise self._damaged(error, header.base_offset) from error
            self._index += 1
            self.offset = max(self.offset, header.next_offset)
            if records:
                return records
        if self._failure is not None:
            raise self._damaged(self._failure, self.offset) from self._failure
        return []

    def _damaged(self, error: Exception, offset: int) -> KafkaError:
        text = f"{self.topic}-{self.partition} cannot be read at offset {max(offset, self.offset)}: {error}"
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, text + " (seek past it to continue)")

    def _visible(self, position: int, header: BatchHeader) -> list[ConsumerRecord]:
        if header.last_offset < self.offset and header.magic == batch.MAGIC:
            return []
        if self.committed_only and header.has_producer and self._aborted.include(self.data, position, header):
            return []
        if header.is_control:
            return []
        if header.magic == batch.MAGIC:
            records = _decode(self.data, position, header, self.topic, self.partition)
        else:
            records = _decode_old(self.data, position, header, self.topic, self.partition)
        if records and records[0].offset < self.offset:
            return [record for record in records if record.offset >= self.offset]
        return records


def _decode_old(
    data: bytes | memoryview, position: int, header: BatchHeader, topic: str, partition: int
) -> list[ConsumerRecord]:
    kind = NO_TIMESTAMP_TYPE if header.magic == 0 else APPEND_TIME if header.log_append_time else CREATE_TIME
    return [
        ConsumerRecord(topic, partition, record.offset, record.timestamp, kind, record.key, record.value)
        for record in legacy.records(data, position)
    ]


def _decode(
    data: bytes | memoryview, position: int, header: BatchHeader, topic: str, partition: int
) -> list[ConsumerRecord]:
    """Decodes all records of a v2 batch. Raises InvalidRecords."""
    # This loop runs for every record read. Varints of one and two bytes are inlined: (first >> 1) + (second << 6) - 64
    # folds in the marker bit and the sign. A cut field leads to a position beyond `stop`.
    payload = bytes(batch.payload(data, position, header))
    check_count(payload, header.record_count)
    records: list[ConsumerRecord] = []
    add, made = records.append, new_tuple
    base_offset, base_timestamp, leader_epoch = header.base_offset, header.base_timestamp, header.partition_leader_epoch
    append_time = header.max_timestamp if header.log_append_time else None
    kind = CREATE_TIME if append_time is None else APPEND_TIME
    end = len(payload)
    at = 0
    try:
        for _ in range(header.record_count):
            first = payload[at]
            if first < 128 and not first & 1:
                at += 1
                stop = at + (first >> 1)
            else:
                length, at = varint(payload, at)
                stop = at + length
            if stop > end or stop < at:
                raise InvalidRecords(f"a record of {stop - at} bytes in the remaining {end - at}")
            first = payload[at + 1]  # after the unused attributes
            if first < 128:
                timestamp = base_timestamp + (~(first >> 1) if first & 1 else first >> 1)
                at += 2
            else:
                delta, at = varlong(payload, at + 1)
                timestamp = base_timestamp + delta
            first = payload[at]
            if first < 128 and not first & 1:
                offset = base_offset + (first >> 1)
                at += 1
            else:
                delta, at = varint(payload, at)
                offset = base_offset + delta
            first = payload[at]
            if first < 128:
                count = -1 if first & 1 else first >> 1
                at += 1
            else:
                count, at = varint(payload, at)
            if count < 0:
                key = None
            else:
                key = payload[at : at + count]
                at += count
            first = payload[at]
            if first < 128:
                count = -1 if first & 1 else first >> 1
                at += 1
            else:
                second = payload[at + 1]
                if second < 128 and not first & 1:
                    count = (first >> 1) + (second << 6) - 64
                    at += 2
                else:
                    count, at = varint(payload, at)
            if count < 0:
                value = None
            else:
                value = payload[at : at + count]
                at += count
            headers: Sequence[Header] = ()
            if payload[at]:
                headers, at = _headers(payload, at, stop)
            else:
                at += 1
            if at != stop:
                raise InvalidRecords(f"the fields of a record end {at - stop} bytes after its length")
            if append_time is not None:
                timestamp = append_time
            add(made(ConsumerRecord, (topic, partition, offset, timestamp, kind, key, value, headers, leader_epoch)))
    except IndexError:
        raise InvalidRecords("a record is cut") from None
    check_end(at, end, header.record_count)
    return records


def _headers(payload: bytes, at: int, stop: int) -> tuple[Sequence[Header], int]:
    count, at = varint(payload, at)
    if count < 0 or count > stop - at:
        raise InvalidRecords(f"{count} headers in the remaining {stop - at} bytes")
    headers: list[Header] = []
    for _ in range(count):
        length, at = varint(payload, at)
        if not 0 <= length <= stop - at:
            raise InvalidRecords(f"a header key of {length} bytes in the remaining {stop - at}")
        key = payload[at : at + length].decode("utf-8", "surrogateescape")
        length, at = varint(payload, at + length)
        if length > stop - at:
            raise InvalidRecords(f"a header value of {length} bytes in the remaining {stop - at}")
        value = None
        if length >= 0:
            value = payload[at : at + length]
            at += length
        headers.append(Header(key, value))
    return tuple(headers), at

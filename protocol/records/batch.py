"""Record batches of message format v2 (KIP-98): the 61-byte header, the records inside, writing them.

Only the byte layout and its structural rules: the rules of a topic are in validate.py, older formats in legacy.py. All
integers are big-endian; times are epoch milliseconds, -1 for none.

    offset bytes field                       offset bytes field
         0     8 base offset                     27     8 base timestamp
         8     4 length of what follows          35     8 max timestamp
        12     4 partition leader epoch          43     8 producer id
        16     1 magic (2)                       51     2 producer epoch
        17     4 CRC-32C of bytes 21 to end      53     4 base sequence
        21     2 attributes                      57     4 record count
        23     4 last offset delta               61       records, compressed as a whole

    attributes: bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 base timestamp is a delete horizon
    record: varint length of the rest, int8 attributes (unused), varlong timestamp delta, varint offset delta,
            varint key length (-1 null), key, varint value length (-1 null), value, varint header count, headers
    header: varint key length, key (UTF-8), varint value length (-1 null), value       varints are zigzag-encoded

The base offset, length, leader epoch and magic lie outside the CRC: a broker assigns offsets without reading the data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ..limits import INT32_MAX, INT64_MAX, INT64_MIN
from ..named import NamedTuple
from . import compression
from .checksum import crc32c
from .errors import CorruptRecords, InvalidRecords
from .layout import (
    ATTRIBUTES_AT,
    CRC_AT,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    HEADER_COVERED,
    HEADER_FRONT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    MAX_TIMESTAMP_AT,
    PREFIX_BYTES,
)
from .new_tuple import new_tuple
from .walk import MIN_RECORD_BYTES, check_count, check_end, varint, varlong

Buffer = bytes | bytearray | memoryview

MAGIC = 2
NO_TIMESTAMP = -1

CODEC_BITS = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

# Bounds the memory of one decompressed batch. The limit of a topic counts compressed bytes; this one, which Kafka does
# not have, is far above what 1 MiB of real data holds and far below what a decompression bomb would take.
MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024


_INT16, _INT32, _INT64, _UINT32 = (struct.Struct(form) for form in (">h", ">i", ">q", ">I"))


class BatchHeader(NamedTuple):
    """The fields of a batch header, undecoded."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, prefix and header included."""
        return PREFIX_BYTES + self.batch_length

    @property
    def codec(self) -> int:
        """The codec, 0-4 as in `compression.Codec`; 5-7 are undefined."""
        return self.attributes & CODEC_BITS

    @property
    def log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`, regardless of its delta."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time after which the cleaner removes tombstones and markers (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 for a batch without one. Sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX

    def placed(self, base_offset: int, leader_epoch: int) -> BatchHeader:
        """Returns the same header with this base offset and leader epoch; `_replace` takes three times as long."""
        return new_tuple(BatchHeader, (base_offset, self[1], leader_epoch, *self[3:]))


class Header(NamedTuple):
    """A record header. Key bytes that are not UTF-8 become surrogate escapes, so that rewriting preserves them."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """A record with its absolute offset and its timestamp in milliseconds (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


# (timestamp delta, offset delta, key start, key end, value start, value end, headers): the positions of a record's
# parts in a payload, -1 for the start and end of null. A header is (key start, key end, value start, value end). A
# plain tuple, since one is made per record.
Span = tuple[int, int, int, int]
Entry = tuple[int, int, int, int, int, int, tuple[Span, ...]]


# --- headers


def read_header(buffer: Buffer, position: int = 0, *, whole: bool = True) -> BatchHeader:
    """Reads the header at `position` and checks its size and magic, but not its CRC.

    `whole=False` accepts a buffer that ends somewhere after the header. Raises CorruptRecords.
    """
    if position < 0 or position + HEADER_BYTES > len(buffer):
        raise CorruptRecords(f"{len(buffer) - position} bytes where a batch header takes {HEADER_BYTES}")
    header = new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptRecords(f"magic {header.magic} where {MAGIC} is expected")
    size = PREFIX_BYTES + header.batch_length
    if size < HEADER_BYTES:
        raise CorruptRecords(f"a batch of {size} bytes is smaller than its header")
    if whole and position + size > len(buffer):
        raise CorruptRecords(f"a batch of {size} bytes where {len(buffer) - position} are left")
    return header


def crc_matches(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Returns whether the CRC in the header matches the batch. Copies nothing."""
    end = position + PREFIX_BYTES + header.batch_length
    return crc32c(memoryview(buffer)[position + CRC_FROM : end]) == header.crc


def assign(buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Sets the base offset and leader epoch of a batch. Both fields lie outside the CRC."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)


def reseal(buffer: bytearray | memoryview, position: int = 0, *, attributes: int, max_timestamp: int) -> BatchHeader:
    """Replaces two fields that the CRC covers, updates the CRC and returns the new header."""
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, max_timestamp)
    size = PREFIX_BYTES + _INT32.unpack_from(buffer, position + LENGTH_AT)[0]
    with memoryview(buffer) as view, view[position + CRC_FROM : position + size] as covered:
        _UINT32.pack_into(buffer, position + CRC_AT, crc32c(covered))
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


# --- records, decoded


def entries(payload: Buffer, record_count: int) -> Iterator[Entry]:
    """Yields the deltas of every record and the positions of its parts, with the format checked in full: lengths within
    the record, header count, no bytes left in a record or after the last. Raises InvalidRecords."""
    check_count(payload, record_count)
    end = len(payload)
    position = 0
    for index in range(record_count):
        try:
            entry, position = _entry(payload, position, end)
        except IndexError:
            raise InvalidRecords(f"record {index} is cut") from None
        yield entry
    check_end(position, end, record_count)


def _entry(payload: Buffer, position: int, end: int) -> tuple[Entry, int]:
    length, position = varint(payload, position)
    stop = position + length
    if length < MIN_RECORD_BYTES - 1 or stop > end:
        raise InvalidRecords(f"a record of {length} bytes where {end - position} are left")
    delta = payload[position + 1]  # after the attributes, which are unused
    if delta < 128:
        timestamp_delta = (delta >> 1) ^ -(delta & 1)
        position += 2
    else:
        timestamp_delta, position = varlong(payload, position + 1)
    offset_delta, position = varint(payload, position)
    key_start, key_end, position = _span(payload, position, stop)
    value_start, value_end, position = _span(payload, position, stop)
    count = payload[position]
    if count == 0:
        position += 1
        spans: tuple[Span, ...] = ()
    else:
        spans, position = _header_spans(payload, position, stop)
    if position != stop:
        raise InvalidRecords(f"a record's parts and its length differ by {position - stop} bytes")
    return (timestamp_delta, offset_delta, key_start, key_end, value_start, value_end, spans), position


def _span(payload: Buffer, position: int, stop: int) -> tuple[int, int, int]:
    """Returns (start, end, position after) of nullable bytes; any negative length is null, as in Java."""
    length = payload[position]
    if length < 128:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    else:
        length, position = varint(payload, position)
    if length < 0:
        return -1, -1, position
    if length > stop - position:
        raise InvalidRecords(f"a field of {length} bytes where {stop - position} are left")
    return position, position + length, position + length


def _header_spans(payload: Buffer, position: int, stop: int) -> tuple[tuple[Span, ...], int]:
    count, position = varint(payload, position)
    if count < 0 or count > stop - position:
        raise InvalidRecords(f"{count} headers where {stop - position} bytes are left")
    spans: list[Span] = []
    for _ in range(count):
        key_start, key_end, position = _span(payload, position, stop)
        if key_start < 0:
            raise InvalidRecords("a header's key is null")
        value_start, value_end, position = _span(payload, position, stop)
        spans.append((key_start, key_end, value_start, value_end))
    return tuple(spans), position


def payload(
    buffer: Buffer, position: int, header: BatchHeader, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes | memoryview:
    """Returns the batch's records decompressed; a view of the buffer if they are not compressed.

    Raises InvalidRecords for an unknown codec, damaged data or more than `max_bytes`.
    """
    view = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    if header.codec == 0:
        return view
    if header.codec > compression.Codec.ZSTD:
        raise InvalidRecords(f"codec {header.codec} is unknown")
    return compression.decompress(header.codec, view, max_bytes)


def records(buffer: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """Decodes the batch at `position`. The header and the compression are read at once, each record when the iterator
    reaches it. The caller checks the CRC. Raises CorruptRecords, InvalidRecords."""
    header = read_header(buffer, position)
    return _decode(header, bytes(payload(buffer, position, header, max_bytes=max_bytes)))


def _decode(header: BatchHeader, data: bytes) -> Iterator[Record]:
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.log_append_time else None
    for entry in entries(data, header.record_count):
        delta, offset_delta, key_start, key_end, value_start, value_end, spans = entry
        timestamp = base_timestamp + delta if append_time is None else append_time
        if not INT64_MIN <= timestamp <= INT64_MAX:
            raise InvalidRecords(f"timestamp {timestamp} does not fit 64 bits")
        yield Record(
            base_offset + offset_delta,
            timestamp,
            data[key_start:key_end] if key_start >= 0 else None,
            data[value_start:value_end] if value_start >= 0 else None,
            tuple(
                Header(data[a:b].decode("utf-8", "surrogateescape"), data[c:d] if c >= 0 else None)
                for a, b, c, d in spans
            )
            if spans
            else (),
        )


# --- writing


class BatchFields(NamedTuple):
    """The fields of a batch header that do not follow from its records and its offset.

    `last_offset_delta` (None: the last record's) lets a batch span more offsets than its records, as compaction leaves
    it. With `log_append_time`, `max_timestamp` (None: the highest of the records) is the timestamp of every record.
    `delete_horizon_ms` replaces the base timestamp (KIP-534).
    """

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: bool = False
    log_append_time: bool = False
    last_offset_delta: int | None = None
    max_timestamp: int | None = None
    delete_horizon_ms: int | None = None


NO_PRODUCER = BatchFields()


def build(
    records: Sequence[Record],
    fields: BatchFields = NO_PRODUCER,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = 0,
    compression_level: int | None = None,
) -> bytearray:
    """Builds one batch of these records, in their order and at their offsets (relative to `base_offset`). There may be
    none if the fields have a `last_offset_delta`.

    Raises UnsupportedCodec, and InvalidRecords for values that do not fit the format.
    """
    producer_id, epoch, sequence, transactional, control, append_time, last_delta, latest, horizon_ms = fields
    if not records and last_delta is None:
        raise InvalidRecords("a batch without records")
    attributes = codec & CODEC_BITS
    attributes |= LOG_APPEND_TIME_BIT if append_time else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon_ms
    highest = NO_TIMESTAMP
    encoded = bytearray()
    for record in records:
        if record.timestamp > highest:
            highest = record.timestamp
        _put_record(encoded, record, record.timestamp - base_timestamp, record.offset - base_offset)
    data = compression.compress(codec, encoded, compression_level) if codec else encoded
    try:
        covered = HEADER_COVERED.pack(
            attributes,
            records[-1].offset - base_offset if last_delta is None else last_delta,
            base_timestamp,
            highest if latest is None else latest,
            producer_id,
            epoch,
            sequence,
            len(records),
        )
    except struct.error as error:
        raise InvalidRecords(f"a header field does not fit: {error}") from None
    return sealed(data, covered, base_offset, leader_epoch)


def sealed(data: Buffer, covered: bytes, base_offset: int, leader_epoch: int) -> bytearray:
    """Builds the batch of records that are already encoded, and compressed if the attributes have a codec. `covered` is
    the header from the attributes on, the part that the CRC covers. Raises InvalidRecords."""
    length = HEADER_BYTES - PREFIX_BYTES + len(data)
    try:
        out = bytearray(HEADER_FRONT.pack(base_offset, length, leader_epoch, MAGIC, crc32c(data, crc32c(covered))))
    except struct.error as error:
        raise InvalidRecords(f"a header field does not fit: {error}") from None
    out += covered
    out += data
    return out


def with_payload(
    header: BatchHeader, payload: Buffer, codec: int, level: int | None = None, *, bits: int = 0
) -> bytearray:
    """Builds a batch with the same header over these uncompressed records: compresses them and sets the attribute bits
    in `bits` as well. Raises UnsupportedCodec."""
    data = compression.compress(codec, payload, level)
    kept = bits | header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    rebuilt = bytearray(
        HEADER.pack(*header._replace(batch_length=HEADER_BYTES - PREFIX_BYTES + len(data), attributes=kept))
    )
    rebuilt += data
    reseal(rebuilt, attributes=kept | codec, max_timestamp=header.max_timestamp)
    return rebuilt


def record_size(record: Record, base_timestamp: int, base_offset: int = 0) -> int:
    """Returns the bytes of a record in a batch that is not compressed. Raises InvalidRecords."""
    encoded = bytearray()
    _put_record(encoded, record, record.timestamp - base_timestamp, record.offset - base_offset)
    return len(encoded)


def _put_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    if not INT64_MIN <= timestamp_delta <= INT64_MAX:
        raise InvalidRecords(f"a timestamp {timestamp_delta} ms from the batch's does not fit")
    if not -INT32_MAX <= offset_delta <= INT32_MAX:
        raise InvalidRecords(f"an offset {offset_delta} from the batch's does not fit")
    body = bytearray(1)  # attributes, unused
    _put_varint(body, timestamp_delta)
    _put_varint(body, offset_delta)
    _put_nullable(body, record.key)
    _put_nullable(body, record.value)
    _put_varint(body, len(record.headers))
    for key, value in record.headers:
        _put_nullable(body, key.encode("utf-8", "surrogateescape"))
        _put_nullable(body, value)
    _put_varint(out, len(body))
    out += body


def _put_varint(out: bytearray, value: int) -> None:
    rest = value << 1 if value >= 0 else (~value << 1) | 1
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)


def _put_nullable(out: bytearray, value: bytes | bytearray | memoryview | None) -> None:
    if value is None:
        out.append(1)  # -1
    else:
        _put_varint(out, len(value))
        out += value

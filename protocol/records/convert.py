"""Conversion between message formats, in cooperative steps: up for produced or rewritten old messages, down for old
readers.

Conversion follows KIP-98, KIP-724 and Kafka's RecordsUtil and LogValidator: how message sets become one batch, which
batches no older format can hold, and what becomes of offsets, timestamps and codecs. The loops over records are in
rows.py.

    up      a v0/v1 set -> one v2 batch, numbered from 0 (`up_set`); one entry -> one v2 batch at the same
            offsets (`up_entry`); no producer, no headers, v0 has no timestamps
    down    stored batches -> messages at the same offsets (`down`); headers, producer, epoch, transaction and control
            batches are lost, in v0 timestamps as well

All functions raise CorruptRecords (CRC, size), InvalidRecords (contents) and UnsupportedCodec. The CRC of every entry
is checked before it is converted, so that no damaged entry gets a valid one. The decompressed size of a set, and the
uncompressed content of a wrapper or batch, stays below `max_bytes`; down conversion grows uncompressed data to at most
five times its size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from operator import lt
from typing import Protocol

from ..limits import INT32_MAX
from . import batch, compression, formats, legacy, rows
from .batch import (
    CODEC_BITS,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAX_DECOMPRESSED_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    sealed,
)
from .compression import Codec
from .errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from .layout import HEADER_COVERED, LEGACY_ATTRIBUTES_AT, MAGIC_AT, MIN_BYTES, PREFIX_BYTES
from .rows import Row
from .steps import STEP_BYTES, STEP_RECORDS, Pace, Steps, in_c
from .walk import check_count, varint

_SIZE = struct.Struct(">8xi").unpack_from
_COVERED = HEADER_COVERED.pack

# The first piece of a run of messages that is read. It grows with the run, so that a set in which messages and wrappers
# alternate is not copied over and over.
_FIRST_PIECE_BYTES = 4096


# --- up


def up_set(
    data: Buffer,
    codec: int | None = None,
    *,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> Steps[bytearray]:
    """Converts a v0 or v1 message set, as a client produced it, to one v2 batch of records numbered from 0.

    Messages and wrappers may alternate; an incomplete last entry is left out, as in every format. `codec` None selects
    the codec of the last wrapper in the set. `log_append_time_ms` becomes the batch's max timestamp with the
    log-append-time bit set; the records keep their own timestamps in their deltas.
    """
    view = memoryview(data)
    writer = _BatchWriter(max_bytes, numbered=True)
    pace = Pace()
    position, end = 0, len(view)
    source = 0
    while position + MAGIC_AT < end:
        following = position + _size(view, position)
        if following > end:
            break
        header = formats.read_header(view, position)
        if header.magic == batch.MAGIC:
            raise InvalidRecords("a batch of format v2 in a message set")
        if header.codec:
            source = header.codec
            if pace.over(MIN_BYTES[1]):
                yield
                pace.renew()
            pace.spend(MIN_BYTES[1], 1)
            data_inside = yield from _opened(view, position, header, max_bytes - len(writer.payload))
            last = yield from _inner(data_inside, header, pace, writer)
            _shift(header, last, produced=True)
        else:
            following = yield from _messages(view, position, end, header.magic, pace, writer)
        position = following
    mark = 0 if log_append_time_ms is None else LOG_APPEND_TIME_BIT
    target = source if codec is None else codec
    return (yield from writer.batch(target, level, 0, mark, log_append_time_ms))


def up_entry(
    data: Buffer, position: int, header: BatchHeader, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Steps[bytearray]:
    """Converts one stored v0 or v1 entry to one v2 batch: a plain message alone, a wrapper's messages together.

    Offsets (with gaps), keys, values, timestamps, codec and the log-append-time bit of v1 are kept. A message without a
    timestamp gets none (KAFKA-13093: also in topics with log append time).
    """
    view = memoryview(data)
    mark = header.attributes & LOG_APPEND_TIME_BIT
    if not header.codec:
        yield from _check(view, position, header)
        end = position + header.size_bytes
        offset, _, timestamp, key, value, _ = legacy.message(view, position, end, header.magic)
        record, _ = rows.put_records([(timestamp, offset, key, value)], (0,), timestamp)
        covered = _COVERED(mark, 0, timestamp, timestamp, -1, -1, -1, 1)
        return (yield from in_c(len(record), partial(sealed, record, covered, offset, -1)))
    writer = _BatchWriter(max_bytes, numbered=False)
    data_inside = yield from _opened(view, position, header, max_bytes)
    last = yield from _inner(data_inside, header, Pace(), writer)
    base_offset = writer.first_offset + _shift(header, last, produced=False)
    if base_offset + writer.last_delta > header.base_offset:
        raise InvalidRecords(f"a wrapper's offset {header.base_offset} is below {last}, its last message's")
    append_time = header.max_timestamp if mark else None
    return (yield from writer.batch(header.codec, None, base_offset, mark, append_time))


# --- down


def down(
    data: Buffer, target_magic: int, fetch_offset: int, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Steps[bytes]:
    """Converts stored entries of any magic to at most `target_magic` (0 or 1), for a fetch from `fetch_offset`.

    Entries of an older format are copied. Control batches are dropped, gaps stay. Records below `fetch_offset` are
    dropped from uncompressed newer entries, which old librdkafka versions rely on; compressed entries keep all records.
    An incomplete last entry is left out. An entry that cannot be converted (zstd: UnsupportedCodec; damage) raises if
    it is the first; otherwise the result ends before it, and the next fetch begins with it. The result may be empty.
    """
    view = memoryview(data)
    out = bytearray()
    pace = Pace()
    position, end = 0, len(view)
    try:
        while position + MAGIC_AT < end:
            if view[position + MAGIC_AT] <= target_magic:
                following = yield from _copy(view, position, end, target_magic, pace, out)
            else:
                following = position + _size(view, position)
                if following > end:
                    break
                header = formats.read_header(view, position)
                if pace.over(HEADER_BYTES):
                    yield
                    pace.renew()
                pace.spend(HEADER_BYTES, 1)
                if header.magic == batch.MAGIC:
                    yield from _down_batch(view, position, header, target_magic, fetch_offset, pace, out, max_bytes)
                elif header.codec:
                    out += yield from _down_wrapper(view, position, header, pace, max_bytes)
                else:
                    messages = _MessageWriter(out, target_magic, 0, fetch_offset)
                    following = yield from _messages(view, position, end, header.magic, pace, messages)
            position = following
    except (CorruptRecords, InvalidRecords, UnsupportedCodec):
        if not out:
            raise
    return bytes(out)


def holds_newer(data: Buffer, magic: int) -> Steps[bool]:
    """Returns whether any whole entry of stored data has a format newer than `magic`. Raises CorruptRecords."""
    for number, (_, header) in enumerate(formats.headers(data), 1):
        if header.magic > magic:
            return True
        if number % STEP_RECORDS == 0:
            yield None
    return False


def _down_batch(
    view: memoryview,
    position: int,
    header: BatchHeader,
    magic: int,
    fetch_offset: int,
    pace: Pace,
    out: bytearray,
    max_bytes: int,
) -> Steps[None]:
    """Appends what the older format can hold of one v2 batch; all of it or, after an error, nothing."""
    codec = header.codec
    if header.is_control or not header.record_count:
        return
    if codec == Codec.ZSTD:
        raise UnsupportedCodec(f"zstd is unknown in format v{magic}")
    yield from _check(view, position, header)
    payload = view[position + HEADER_BYTES : position + header.size_bytes]
    mark = header.attributes & LOG_APPEND_TIME_BIT if magic else 0
    if not codec:
        begin = len(out)
        try:
            yield from _records(payload, header, pace, _MessageWriter(out, magic, mark, fetch_offset))
        except InvalidRecords:
            del out[begin:]
            raise
        return
    if codec > Codec.ZSTD:
        raise InvalidRecords(f"codec {codec} is unknown")
    data = yield from compression.decompressing(codec, payload, max_bytes)
    writer = _WrapperWriter(magic, mark, max_bytes)
    yield from _records(memoryview(data), header, pace, writer)
    if writer.payload:
        out += yield from writer.wrapper(codec, header.max_timestamp if mark else None)


def _down_wrapper(view: memoryview, position: int, header: BatchHeader, pace: Pace, max_bytes: int) -> Steps[bytearray]:
    """Converts a v1 wrapper to v0. The last offset must be known before the first message is written: it is read
    twice."""
    data = yield from _opened(view, position, header, max_bytes)
    last = yield from _inner(data, header, pace, _Nothing())
    writer = _WrapperWriter(0, 0, max_bytes, shift=_shift(header, last, produced=False))
    yield from _inner(data, header, pace, writer)
    return (yield from writer.wrapper(header.codec, None))


def _copy(view: memoryview, position: int, end: int, magic: int, pace: Pace, out: bytearray) -> Steps[int]:
    """Appends the entries from `position` on, up to one newer than `magic`, and returns the position after them, or
    `end` if the rest is an incomplete entry. For a bad size it raises after the entries before it were copied."""
    start = position
    try:
        while position + MAGIC_AT < end and (found := view[position + MAGIC_AT]) <= magic:
            size = _size(view, position, found)
            if position + size > end:
                return end
            if pace.over(min(size, STEP_BYTES)):
                out += view[start:position]
                start = position
                yield
                pace.renew()
            pace.spend(min(size, STEP_BYTES), 1)
            position += size
        return position
    finally:
        out += view[start:position]


# --- reading


class _Writer(Protocol):
    """A destination for rows, in order."""

    def add(self, found: list[Row]) -> None: ...


def _size(view: memoryview, position: int, magic: int = 0) -> int:
    """Returns the size of the whole entry, also if the view ends within it."""
    size = _SIZE(view, position)[0] + PREFIX_BYTES
    if size < MIN_BYTES[magic]:
        raise CorruptRecords(f"an entry of {size} bytes is smaller than its fixed fields")
    return size


def _check(view: memoryview, position: int, header: BatchHeader) -> Steps[None]:
    if not (yield from in_c(header.size_bytes, partial(formats.crc_matches, view, position, header))):
        raise CorruptRecords(f"the entry with offset {header.last_offset} does not match its CRC")


def _opened(view: memoryview, position: int, header: BatchHeader, max_bytes: int) -> Steps[Buffer]:
    """Checks the CRC of a wrapper and decompresses the message set inside."""
    yield from _check(view, position, header)
    value = legacy.wrapped(view, position, header)
    data = yield from compression.decompressing(header.codec, value, max_bytes, magic=header.magic)
    if not data:
        raise InvalidRecords("a compressed message without messages inside")
    return data


def _inner(data: Buffer, header: BatchHeader, pace: Pace, writer: _Writer) -> Steps[int]:
    """Reads all messages inside a wrapper and returns the offset field of the last one."""
    view = memoryview(data)
    marked = _Marked(writer, header.max_timestamp if header.log_append_time else None)
    position = yield from _messages(view, 0, len(view), header.magic, pace, marked)
    left = len(view) - position
    if left:
        if left > LEGACY_ATTRIBUTES_AT and view[position + MAGIC_AT] != header.magic:
            raise InvalidRecords(f"a message of another format inside of a wrapper of format v{header.magic}")
        if left > LEGACY_ATTRIBUTES_AT and view[position + LEGACY_ATTRIBUTES_AT] & CODEC_BITS:
            raise InvalidRecords("a compressed message inside of a compressed message")
        raise CorruptRecords(f"the last message inside of a wrapper is cut after {left} bytes")
    return marked.last_offset


def _shift(header: BatchHeader, last: int, *, produced: bool) -> int:
    """Returns the number to add to the offsets inside a wrapper (KIP-31). With `produced`, an offset of 0 is accepted
    as what old librdkafka versions send."""
    if header.magic == 0:
        return 0
    if header.base_offset >= last:
        return header.base_offset - last
    if produced and header.base_offset == 0:
        return 0
    raise InvalidRecords(f"a wrapper's offset {header.base_offset} is below {last}, its last message's")


def _messages(view: memoryview, position: int, end: int, magic: int, pace: Pace, writer: _Writer) -> Steps[int]:
    """Reads plain messages of one magic, up to one that is incomplete, compressed or of another magic; returns its
    position."""
    piece_bytes = _FIRST_PIECE_BYTES
    least = MIN_BYTES[magic]
    while end - position >= least and view[position + MAGIC_AT] == magic:
        if view[position + LEGACY_ATTRIBUTES_AT] & CODEC_BITS:
            break
        size = _size(view, position, magic)
        if size > end - position:
            break
        if pace.over(min(size, STEP_BYTES)):
            yield
            pace.renew()
        if size > STEP_BYTES:
            piece = view[position : position + size]
            found, used = yield partial(_read_large, rows.read_messages, piece, magic, 1)
            yield partial(writer.add, found)
            pace.spend(STEP_BYTES, 1)
        else:
            stop = min(position + max(min(piece_bytes, pace.bytes_left), size), end)
            found, used = rows.read_messages(bytes(view[position:stop]), magic, pace.records_left)
            writer.add(found)
            pace.spend(used, len(found))
            piece_bytes = min(piece_bytes * 4, STEP_BYTES)
        position += used
    return position


def _records(payload: memoryview, header: BatchHeader, pace: Pace, writer: _Writer) -> Steps[None]:
    """Reads all records of a v2 batch."""
    left = header.record_count
    check_count(payload, left)
    fields = (header.base_offset, header.base_timestamp, header.max_timestamp if header.log_append_time else None)
    position, end = 0, len(payload)
    while left:
        if pace.over(1):
            yield
            pace.renew()
        piece = bytes(payload[position : position + pace.bytes_left])
        found, used = rows.read_records(piece, *fields, min(left, pace.records_left))
        if found:
            writer.add(found)
            pace.spend(used, len(found))
        elif position + len(piece) == end:
            raise InvalidRecords("the last record is cut")
        elif not pace.is_fresh:
            pace.spend(STEP_BYTES)
            continue
        else:
            length, start = varint(piece, 0)
            used = start + length
            if used > end - position:
                raise InvalidRecords(f"a record of {length} bytes where {end - position - start} are left")
            large = payload[position : position + used]
            found, used = yield partial(_read_large, rows.read_records, large, *fields, 1)
            yield partial(writer.add, found)
            pace.spend(STEP_BYTES, 1)
        position += used
        left -= len(found)
    if position != end:
        raise InvalidRecords(f"{end - position} bytes after the last of {header.record_count} records")


def _read_large(
    read: Callable[..., tuple[list[Row], int]], piece: memoryview, *arguments: int | None
) -> tuple[list[Row], int]:
    """Reads one record larger than a step. The copy is made in the worker thread, too."""
    return read(bytes(piece), *arguments)


# --- writing


class _Nothing:
    """Discards rows."""

    def add(self, found: list[Row]) -> None:
        pass


class _Marked:
    """Passes rows on, with the wrapper's timestamp for log append time, and keeps the last offset."""

    __slots__ = ("_append_time", "_writer", "last_offset")

    def __init__(self, writer: _Writer, append_time: int | None) -> None:
        self._writer = writer
        self._append_time = append_time
        self.last_offset = 0

    def add(self, found: list[Row]) -> None:
        self.last_offset = found[-1][1]
        time = self._append_time
        self._writer.add(found if time is None else [(time, offset, key, value) for _, offset, key, value in found])


class _MessageWriter:
    """Writes plain messages into the output, except those below `least_offset`."""

    __slots__ = ("_attributes", "_least_offset", "_magic", "_out")

    def __init__(self, out: bytearray, magic: int, attributes: int, least_offset: int) -> None:
        self._out = out
        self._magic = magic
        self._attributes = attributes
        self._least_offset = least_offset

    def add(self, found: list[Row]) -> None:
        least = self._least_offset
        if found[0][1] < least:
            found = [row for row in found if row[1] >= least]
        self._out += rows.put_messages(found, self._magic, self._attributes, 0)[0]


class _WrapperWriter:
    """Writes messages into a wrapper. Offsets are relative to the first in v1, and absolute, plus `shift`, in v0."""

    __slots__ = ("_attributes", "_last_offset", "_magic", "_max_bytes", "_start", "_timestamp", "payload")

    def __init__(self, magic: int, attributes: int, max_bytes: int, *, shift: int = 0) -> None:
        self.payload = bytearray()
        self._magic = magic
        self._attributes = attributes
        self._max_bytes = max_bytes
        self._start: int | None = None if magic else -shift
        self._last_offset = 0
        self._timestamp = NO_TIMESTAMP

    def add(self, found: list[Row]) -> None:
        if self._start is None:
            self._start = found[0][1]
        data, highest = rows.put_messages(found, self._magic, self._attributes, self._start)
        self.payload += data
        _check_bound(self.payload, self._max_bytes)
        self._last_offset = found[-1][1] if self._magic else found[-1][1] - self._start
        self._timestamp = max(self._timestamp, highest)

    def wrapper(self, codec: int, append_time: int | None) -> Steps[bytearray]:
        """Returns the whole wrapper, with the offset of its last message and the append time or highest timestamp."""
        value = yield from compression.compressing(codec, self.payload, magic=self._magic)
        timestamp = self._timestamp if append_time is None else append_time
        fields = (self._last_offset, self._magic, self._attributes | codec, timestamp)
        return (yield from in_c(len(value), partial(legacy.wrapper, *fields, value)))


class _BatchWriter:
    """Writes records into one v2 batch, numbered in order or at their own offsets."""

    __slots__ = (
        "_base_timestamp",
        "_count",
        "_max_bytes",
        "_max_timestamp",
        "_numbered",
        "first_offset",
        "last_delta",
        "payload",
    )

    def __init__(self, max_bytes: int, *, numbered: bool) -> None:
        self.payload = bytearray()
        self.first_offset = 0
        self._numbered = numbered
        self._max_bytes = max_bytes
        self._count = 0
        self.last_delta = -1
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    def add(self, found: list[Row]) -> None:
        if not self._count:
            self._base_timestamp = found[0][0]
            self.first_offset = found[0][1]
        if self._numbered:
            deltas = range(self._count, self._count + len(found))
        else:
            first = self.first_offset
            deltas = [row[1] - first for row in found]
            if deltas[0] <= self.last_delta or deltas[-1] > INT32_MAX or not all(map(lt, deltas, deltas[1:])):
                raise InvalidRecords("the offsets inside of a compressed message do not rise")
        data, highest = rows.put_records(found, deltas, self._base_timestamp)
        self.payload += data
        _check_bound(self.payload, self._max_bytes)
        self._count += len(found)
        self.last_delta = deltas[-1]
        self._max_timestamp = max(self._max_timestamp, highest)

    def batch(
        self, codec: int, level: int | None, base_offset: int, mark: int, append_time: int | None
    ) -> Steps[bytearray]:
        """Returns the whole batch; `append_time`, if given, replaces the highest timestamp."""
        if not self._count:
            raise InvalidRecords("there is no whole message in the set")
        data = self.payload
        if codec:
            data = yield from compression.compressing(codec, data, level)
        times = (self._base_timestamp, self._max_timestamp if append_time is None else append_time)
        covered = _COVERED(mark | codec, self.last_delta, *times, -1, -1, -1, self._count)
        return (yield from in_c(len(data), partial(sealed, data, covered, base_offset, -1)))


def _check_bound(payload: bytearray, max_bytes: int) -> None:
    if len(payload) > max_bytes:
        raise InvalidRecords(f"the records take more than {max_bytes} bytes")

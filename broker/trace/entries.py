"""Prints record batches and old messages by the schemas of `ottla.protocol.records.schemas`.

Headers are always printed, records on request; compressed data is decompressed up to a bound. Damage inside a batch is
reported and the next batch is read; Stopped is raised if no further batch can be found.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from ...protocol.records import compression
from ...protocol.records.batch import HEADER_BYTES, MAX_DECOMPRESSED_BYTES, BatchHeader
from ...protocol.records.compression import CODEC_NAMES
from ...protocol.records.errors import InvalidRecords, UnsupportedCodec
from ...protocol.records.layout import (
    CRC_AT,
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LEGACY_CRC_FROM,
    MAGIC_AT,
    OFFSET_AND_LENGTH,
    PREFIX_BYTES,
)
from ...protocol.records.schemas import BATCH_HEADER, MESSAGE_V0, MESSAGE_V1, RECORD_V2, SizedBytes, fields
from ...protocol.records.walk import MIN_RECORD_BYTES, varint, varlong
from ...protocol.structs import Struct
from ...protocol.text import time_text
from ...storage import inspect
from ..metadata import record_values
from ..metadata.record_values import Part
from .tracer import Stopped, Tracer, Window

MESSAGES: dict[int, Struct] = {0: MESSAGE_V0, 1: MESSAGE_V1}
_CRC_AND_MAGIC = struct.Struct(">Ib")
_MESSAGE_BYTES_MIN = 26  # of a v0 message, null key and value


class Entries:
    """Prints entries. `topic` selects the schemas of their keys and values, `with_records` whether records are
    shown."""

    def __init__(self, tracer: Tracer, *, topic: str | None, with_records: bool) -> None:
        self.tracer = tracer
        self.topic = topic
        self.with_records = with_records

    def all(self, source: inspect.Source, base: int, depth: int, *, may_be_cut: bool = False) -> None:
        """Prints every entry of a source that begins at position `base` of the input. Raises Stopped at damage.

        With `may_be_cut` a cut entry at the end is accepted, as in the records of a Fetch response.
        """
        for found in inspect.entries(source):
            if isinstance(found, inspect.BatchFacts):
                self._entry(source, found, base, depth)
            elif may_be_cut and found.is_tail:
                self.tracer.line(str(base + found.position), depth, f"{found.left_bytes} bytes of a cut entry")
            else:
                raise Stopped(str(base + found.position), found.reason)

    def in_message(self, window: Window, depth: int) -> None:
        """Prints the records in a field of a request or response. After damage the other fields are still read."""
        try:
            self.all(inspect.BytesSource(window.stream.getvalue()), window.base, depth, may_be_cut=True)
        except Stopped as stopped:
            self.tracer.problem(stopped, depth)

    def _entry(self, source: inspect.Source, facts: inspect.BatchFacts, base: int, depth: int) -> None:
        """Prints one entry. After damage inside it the next entry is still read."""
        position = str(base + facts.position)
        try:
            if facts.magic == 2:
                self._batch(source, facts, base, depth)
            elif facts.size_bytes > inspect.ENTRY_BYTES_MAX:
                raise Stopped(position, f"a message of {facts.size_bytes} bytes is not opened")
            else:
                data = _read(source, facts.position, facts.size_bytes, base)
                self._message(Window(data, base + facts.position), facts.header, facts.crc_ok is not False, depth)
        except Stopped as stopped:
            self.tracer.problem(stopped, depth + 1)

    # -- v2

    def _batch(self, source: inspect.Source, facts: inspect.BatchFacts, base: int, depth: int) -> None:
        header = facts.header
        position = base + facts.position
        offsets = f"{header.base_offset}-{header.last_offset}"
        records = f"{header.record_count} record{'' if header.record_count == 1 else 's'}"
        self.tracer.line(str(position), depth, f"batch v2: offsets {offsets}, {records}, {header.size_bytes} bytes")
        window = Window(_read(source, facts.position, HEADER_BYTES, base), position)
        self.tracer.struct(BATCH_HEADER, window, depth + 1)
        if facts.crc_ok is False:
            self.tracer.problem(Stopped(str(position + CRC_AT), "the CRC does not match these bytes"), depth + 1)
        codec = CODEC_NAMES.get(header.codec, "unknown codec")
        size = header.size_bytes - HEADER_BYTES
        compressed = f", {codec}" if header.codec else ""
        self.tracer.line(str(position + HEADER_BYTES), depth + 1, f"records: {size} bytes{compressed}")
        if self.with_records or header.is_control:  # markers are always shown: they are metadata
            try:
                self._records(self._payload(source, facts, position), header, depth + 2)
            except Stopped as stopped:
                self.tracer.problem(stopped, depth + 2)

    def _payload(self, source: inspect.Source, facts: inspect.BatchFacts, position: int) -> Window:
        size = facts.size_bytes - HEADER_BYTES
        where = position + HEADER_BYTES
        if size > inspect.ENTRY_BYTES_MAX:
            raise Stopped(str(where), f"a batch of {facts.size_bytes} bytes is not opened")
        data = _read(source, facts.position + HEADER_BYTES, size, position - facts.position)
        if facts.codec == 0:
            return Window(data, where)
        return Window(_decompress(facts.codec, data, where, 2), inner=True)

    def _records(self, window: Window, header: BatchHeader, depth: int) -> None:
        data = window.stream.getvalue()
        position = 0
        for index in range(max(0, header.record_count)):
            try:
                length, start = varint(data, position)
            except (IndexError, InvalidRecords):
                reason = f"record {index} of {header.record_count} is cut"
                raise Stopped(window.place(position), reason) from None
            if length < MIN_RECORD_BYTES - 1 or length > len(data) - start:
                reason = f"record {index} of {length} bytes where {len(data) - start} are left"
                raise Stopped(window.place(position), reason)
            self._record(window.part(position, start + length - position), start - position, header, depth)
            position = start + length
        if position < len(data):
            reason = f"{len(data) - position} bytes after the last of {header.record_count} records"
            raise Stopped(window.place(position), reason)

    def _record(self, window: Window, body: int, header: BatchHeader, depth: int) -> None:
        """Prints one record; `body` is the position after its length."""
        self.tracer.line(window.place(0), depth, _record_title(window.stream.getvalue(), body, header))
        self._fields(RECORD_V2, window, depth + 1, control=header.is_control)
        if window.left:
            reason = f"a record's parts and its length differ by {window.left} bytes"
            self.tracer.problem(Stopped(window.position, reason), depth + 1)

    # -- v0 and v1

    def _message(
        self, window: Window, header: BatchHeader, crc_ok: bool, depth: int, offset: int | None = None
    ) -> None:
        wrapper = f" ({CODEC_NAMES.get(header.codec, 'unknown codec')} wrapper)" if header.codec else ""
        word = "last offset" if header.codec else "offset"
        at = header.base_offset if offset is None else offset
        text = f"message v{header.magic}{wrapper}: {word} {at}, {header.size_bytes} bytes"
        self.tracer.line(window.place(0), depth, text)
        self.tracer.hide_bytes = not self.with_records or bool(header.codec)
        try:
            value_window = self._fields(MESSAGES[header.magic], window, depth + 1)
        finally:
            self.tracer.hide_bytes = False
        if not crc_ok:
            self.tracer.problem(Stopped(window.place(12), "the CRC does not match these bytes"), depth + 1)
        if window.left:
            self.tracer.problem(Stopped(window.position, f"{window.left} bytes left over"), depth + 1)
        if header.codec and self.with_records:
            try:
                if value_window is None:
                    raise Stopped(window.position, "a wrapper without a value")
                self._wrapped(value_window, header, depth + 2)
            except Stopped as stopped:
                self.tracer.problem(stopped, depth + 2)

    def _wrapped(self, value: Window, header: BatchHeader, depth: int) -> None:
        data = _decompress(header.codec, value.stream.getvalue(), value.base, header.magic)
        last = 0
        for _, _, offset in _messages(data):  # walked twice, rather than keeping millions of positions
            last = offset
        if not data:
            raise Stopped("+0", "a wrapper without messages")
        for start, size, offset in _messages(data):
            part = Window(data[start : start + size], start, inner=True)
            crc, magic = _CRC_AND_MAGIC.unpack_from(data, start + LEGACY_CRC_AT)
            if magic != header.magic:
                raise Stopped(part.place(MAGIC_AT), f"magic {magic} inside a wrapper of magic {header.magic}")
            absolute = offset if magic == 0 else header.base_offset - last + offset
            inner = header._replace(
                base_offset=absolute,
                batch_length=size - PREFIX_BYTES,
                attributes=data[start + LEGACY_ATTRIBUTES_AT] & 8,
            )
            self._message(part, inner, zlib.crc32(data[start + LEGACY_CRC_FROM : start + size]) == crc, depth, absolute)

    # -- fields

    def _fields(self, layout: Struct, window: Window, depth: int, *, control: bool = False) -> Window | None:
        """Prints the fields of a record or message, its key and value by their own schemas if they have some.

        Returns the window of the value.
        """
        key: bytes | None = None
        where: Window | None = None
        for name, codec in fields(layout):
            position = window.position
            if name not in ("key", "value") or self.tracer.hide_bytes:
                value: Any = self.tracer.field(name, codec, window, depth)
            else:
                assert isinstance(codec, SizedBytes)
                value = self.tracer.read(codec, name, window)
                part = self._part(name, key, value, control)
                if part is None:
                    self.tracer.line(position, depth, f"{name}: {self.tracer.shown(name, codec, value)}")
                else:
                    self.tracer.line(position, depth, f"{name}: {len(value)} bytes, {part.title}")
                    inner = window.part(window.stream.tell() - len(value), len(value))
                    self._nested(part, inner, depth + 1)
            if name == "key":
                key = value
            elif name == "value" and value is not None:
                where = window.part(window.stream.tell() - len(value), len(value))
        return where

    def _part(self, name: str, key: bytes | None, value: bytes | None, control: bool) -> Part | None:
        if value is None:
            return None
        if control:
            return record_values.control_key(value) if name == "key" else record_values.control_value(key, value)
        if name == "key":
            return record_values.key_part(self.topic, value)
        return record_values.value_part(self.topic, key, value)

    def _nested(self, part: Part, window: Window, depth: int) -> None:
        try:
            for layout in part.layouts:
                self.tracer.struct(layout, window, depth)
            if window.left:
                raise Stopped(window.position, f"{window.left} bytes left over")
        except Stopped as stopped:
            self.tracer.problem(stopped, depth)


def _record_title(data: bytes, body: int, header: BatchHeader) -> str:
    """Returns a record's absolute offset and effective timestamp, as far as they can be read."""
    try:
        timestamp_delta, at = varlong(data, body + 1)
        offset_delta, _ = varint(data, at)
    except (IndexError, InvalidRecords):
        return "record"
    timestamp = header.max_timestamp if header.log_append_time else header.base_timestamp + timestamp_delta
    date = time_text(timestamp)
    return f"record: offset {header.base_offset + offset_delta}, timestamp {timestamp}" + (f" ({date})" if date else "")


def _read(source: inspect.Source, position: int, length: int, base: int) -> bytes:
    try:
        return source.read(position, length)
    except OSError as error:
        raise Stopped(str(base + position), f"cannot be read: {error.strerror}") from None


def _decompress(codec: int, data: bytes, position: int, magic: int) -> bytes:
    try:
        return bytes(compression.decompress(codec, data, MAX_DECOMPRESSED_BYTES, magic=magic))
    except (InvalidRecords, UnsupportedCodec) as error:
        raise Stopped(str(position), str(error)) from None


def _messages(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields (start, size, offset field) of each message inside a wrapper. Raises Stopped."""
    position = 0
    while position < len(data):
        left = len(data) - position
        if left < _MESSAGE_BYTES_MIN:
            raise Stopped(f"+{position}", f"{left} bytes where a message begins")
        offset, size = OFFSET_AND_LENGTH.unpack_from(data, position)
        if not _MESSAGE_BYTES_MIN <= size + PREFIX_BYTES <= left:
            raise Stopped(f"+{position}", f"a message of {size + PREFIX_BYTES} bytes where {left} are left")
        yield position, size + PREFIX_BYTES, offset
        position += size + PREFIX_BYTES

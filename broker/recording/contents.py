"""Frames without what users wrote: each key, value and header value of records becomes zeros, as long as before.

Owns the rewriting of Produce requests and Fetch answers, the only ones that carry records. What is left is sound:
sizes, offsets, times, sequences, header names, codecs (compressed anew, so mostly smaller) and CRCs. Control records,
which are the broker's, stay. An entry that cannot be read, or whose CRC is wrong, keeps its header alone.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

from ...protocol.api_key import ApiKey
from ...protocol.compiler import build, reader
from ...protocol.errors import MalformedMessage, ProtocolViolation
from ...protocol.headers import read_prefix, read_response_header, read_rest
from ...protocol.messages.records.fetch import FetchResponse
from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.records import batch, compression, formats, legacy
from ...protocol.records.batch import CODEC_BITS, BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...protocol.records.layout import LEGACY_CRC_AT, LENGTH_AT, MAGIC_AT, MIN_BYTES, PREFIX_BYTES
from ...protocol.schema import spec

UNREADABLE = (CorruptRecords, InvalidRecords, UnsupportedCodec)
Buffer = bytes | bytearray | memoryview

_INT32, _UINT32 = struct.Struct(">i"), struct.Struct(">I")


def without_contents(frame: bytes, api_key: int, version: int, request: bool) -> bytes:
    """A frame with zeros for contents; the very frame where the API carries no records. One that is no such message
    keeps the first bytes alone, where there can be nothing but a header."""
    if api_key != (ApiKey.PRODUCE if request else ApiKey.FETCH):
        return frame
    cls = ProduceRequest if request else FetchResponse
    declared = spec(cls)
    if version not in declared.versions:
        return _nothing(frame)
    try:
        flexible = version in declared.flexible
        if request:
            position = read_rest(frame, read_prefix(frame), flexible)[1]
        else:
            position = read_response_header(frame, api_key, flexible)[1]
        message, end = reader(cls, version)(memoryview(frame), position)
        for partition in _partitions(message, request):
            if partition.records:
                partition.records = zeroed(partition.records)
        return frame[:position] + build(message, version) + bytes(len(frame) - end)
    except (MalformedMessage, ProtocolViolation):
        return _nothing(frame)


def _partitions(message: Any, request: bool) -> list[Any]:
    if request:
        return [partition for topic in message.topic_data for partition in topic.partition_data]
    return [partition for topic in message.responses for partition in topic.partitions]


def _nothing(frame: bytes) -> bytes:
    return frame[:8] + bytes(max(0, len(frame) - 8))


def zeroed(data: Buffer) -> bytearray:
    """Records as they are on the wire, of any format, with zeros for contents. The last entry may be cut."""
    view = memoryview(data)
    out = bytearray()
    position, end = 0, len(view)
    while position + MAGIC_AT < end:
        size = PREFIX_BYTES + _INT32.unpack_from(view, position + LENGTH_AT)[0]
        magic = view[position + MAGIC_AT]
        if magic >= len(MIN_BYTES) or size < MIN_BYTES[magic]:
            break
        entry = view[position : position + size]
        if position + size > end:
            out += _header_alone(entry, magic)
            return out
        try:
            out += _entry(entry)
        except UNREADABLE:
            out += _header_alone(entry, magic)
        position += size
    return out + bytes(end - position)


def _header_alone(entry: memoryview, magic: int) -> bytes:
    kept = min(len(entry), 18 if magic == 0 else 26 if magic == 1 else batch.HEADER_BYTES)
    return bytes(entry[:kept]) + bytes(len(entry) - kept)


def _entry(entry: memoryview) -> bytearray:
    """One entry of any format. Raises UNREADABLE."""
    header = formats.read_header(entry)
    if not formats.crc_matches(entry, 0, header):
        raise CorruptRecords("what is in it cannot be trusted")
    return _batch(entry, header) if header.magic == batch.MAGIC else _message(entry, header)


def _batch(entry: memoryview, header: BatchHeader) -> bytearray:
    if header.is_control:
        return bytearray(entry)
    data = bytearray(batch.payload(entry, 0, header))
    for _, _, key, key_end, value, value_end, spans in batch.entries(bytes(data), header.record_count):
        data[key:key_end] = bytes(key_end - key)
        data[value:value_end] = bytes(value_end - value)
        for _, _, start, stop in spans:
            data[start:stop] = bytes(stop - start)
    return batch.with_payload(header, data, header.codec, bits=header.attributes & ~CODEC_BITS)


def _message(entry: memoryview, header: BatchHeader) -> bytearray:
    """One message of format v0 or v1, plain or a wrapper."""
    if header.codec == 0:
        return _plain_message(entry, header.magic)
    inner = legacy.inner(entry, 0, header)
    messages = bytearray()
    position = 0
    while position < len(inner):
        stop = legacy.message(inner, position, len(inner), header.magic)[5]
        message = memoryview(inner)[position:stop]
        if zlib.crc32(message[MAGIC_AT:]) != _UINT32.unpack_from(message, LEGACY_CRC_AT)[0]:
            raise CorruptRecords("what is in it cannot be trusted")
        messages += _plain_message(message, header.magic)
        position = stop
    value = compression.compress(header.codec, messages, magic=header.magic)
    offset, attributes, timestamp, key, _, _ = legacy.message(entry, 0, len(entry), header.magic)
    made = bytearray()
    key = None if key is None else bytes(len(key))
    legacy.put_message(made, offset, header.magic, attributes, timestamp, key, value)
    return made


def _plain_message(entry: memoryview, magic: int) -> bytearray:
    offset, attributes, timestamp, key, value, _ = legacy.message(entry, 0, len(entry), magic)
    made = bytearray()
    parts = [None if part is None else bytes(len(part)) for part in (key, value)]
    legacy.put_message(made, offset, magic, attributes, timestamp, *parts)
    return made

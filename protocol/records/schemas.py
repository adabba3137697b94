"""The three record formats described with construct, as a reference and for `ottla dump`.

Describes every field of message v0 and v1, of the v2 batch and its records, and of control records, in order and width.
Sockets and segments are read by separate bounded code (`batch`, `legacy`); a parity test compares both, field by field
and position by position. Each field checks its size against the remaining bytes here too.

    v0, v1  an entry is one message; with a codec its value holds a message set (a "wrapper")
    v2      a batch: header, then all records, compressed as a whole

Sources: KIP-32 and KIP-31 (v1), KIP-98 (v2, control records), KIP-360, KIP-534 (delete horizon). Parsing with these
raises MalformedMessage.
"""

from __future__ import annotations

import io
from typing import Any

from ..errors import MalformedMessage
from ..layouts import Fixed, Varint, bytes_left, int8, int16, int32, int64, take, uint32
from ..structs import Construct, Struct, build_value, members, parse_value
from .walk import varint, varlong, zigzag


class Bits(Fixed):
    """An integer of named bits: `names` is ((name, first bit, width), ...), lowest bit first."""

    def __init__(self, fmt: str, *names: tuple[str, int, int]) -> None:
        super().__init__(fmt)
        self.names = names

    def split(self, value: int) -> dict[str, int]:
        """Returns the value of each named group of bits, and as "unnamed" the others if any is set."""
        found = {name: value >> first & (1 << width) - 1 for name, first, width in self.names}
        named = sum(((1 << width) - 1) << first for _, first, width in self.names)
        rest = value & (1 << 8 * self.size) - 1 & ~named
        return found | ({"unnamed": rest} if rest else {})


class Zigzag(Varint):
    """A signed varint: small numbers of either sign take few bytes. `bits` is 32 (at most 5 bytes) or 64 (10)."""

    def __init__(self, bits: int) -> None:
        super().__init__(varint if bits == 32 else varlong, 5 if bits == 32 else 10)
        self.bits = bits

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        if not -(1 << self.bits - 1) <= obj < 1 << self.bits - 1:
            raise MalformedMessage(f"{path}: {obj} does not fit {self.bits} bits")
        stream.write(zigzag(obj))
        return obj


class SizedBytes(Construct):
    """Bytes after their length. If `nullable`, any negative length is null, as in Java; null is written as -1."""

    def __init__(self, length: Fixed | Zigzag, *, nullable: bool = True) -> None:
        super().__init__()
        self.length = length
        self.nullable = nullable
        self.min_size = length.size if isinstance(length, Fixed) else length.min_size

    def _parse(self, stream: Any, context: Any, path: Any) -> bytes | None:
        size = parse_value(self.length, stream, context, path)
        if size < 0:
            if self.nullable:
                return None
            raise MalformedMessage(f"{path}: null where a value must be")
        return take(stream, size, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        if obj is None and not self.nullable:
            raise MalformedMessage(f"{path}: null where a value must be")
        build_value(self.length, -1 if obj is None else len(obj), stream, context, path)
        stream.write(obj or b"")
        return obj


class ItemArray(Construct):
    """A count and its items, none shorter than `item_bytes`."""

    def __init__(self, length: Fixed | Zigzag, item: Construct, item_bytes: int) -> None:
        super().__init__()
        self.length = length
        self.item = item
        self.item_bytes = item_bytes
        self.min_size = length.size if isinstance(length, Fixed) else length.min_size

    def count(self, stream: io.BytesIO, path: str) -> int:
        """Reads the count and checks it against the remaining bytes."""
        count = parse_value(self.length, stream, None, path)
        if count < 0 or count * self.item_bytes > bytes_left(stream):
            raise MalformedMessage(f"{path}: {count} items announced, {bytes_left(stream)} bytes left")
        return count

    def _parse(self, stream: Any, context: Any, path: Any) -> list[Any]:
        return [
            parse_value(self.item, stream, context, f"{path}[{index}]")
            for index in range(self.count(stream, str(path)))
        ]

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        build_value(self.length, len(obj), stream, context, path)
        for index, value in enumerate(obj):
            build_value(self.item, value, stream, context, f"{path}[{index}]")
        return obj


class Rest(Construct):
    """All remaining bytes."""

    min_size = 0

    def _parse(self, stream: Any, context: Any, path: Any) -> bytes:
        return stream.read()

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        stream.write(obj)
        return obj


def fields(layout: Struct) -> list[tuple[str, Construct]]:
    """Returns (name, codec) of each field of a Struct, in order."""
    return [(field.name, field.subcon) for field in members(layout)]


_varint = Zigzag(32)
_varlong = Zigzag(64)
_sized = SizedBytes(int32)
_short = SizedBytes(_varint)

_CODEC = ("codec", 0, 3)
_APPEND_TIME = ("log_append_time", 3, 1)

# --- v0 and v1. `size` counts the bytes after it, `crc` is the CRC-32 of all bytes after it.

MESSAGE_V0 = Struct(
    "offset" / int64,
    "size" / int32,
    "crc" / uint32,
    "magic" / int8,
    "attributes" / Bits("b", _CODEC),
    "key" / _sized,
    "value" / _sized,
)

MESSAGE_V1 = Struct(
    "offset" / int64,
    "size" / int32,
    "crc" / uint32,
    "magic" / int8,
    "attributes" / Bits("b", _CODEC, _APPEND_TIME),
    "timestamp" / int64,
    "key" / _sized,
    "value" / _sized,
)

# --- v2. `batch_length` counts the bytes after it, `crc` is the CRC-32C of all bytes after it.

BATCH_HEADER = Struct(
    "base_offset" / int64,
    "batch_length" / int32,
    "partition_leader_epoch" / int32,
    "magic" / int8,
    "crc" / uint32,
    "attributes"
    / Bits("h", _CODEC, _APPEND_TIME, ("transactional", 4, 1), ("control", 5, 1), ("delete_horizon", 6, 1)),
    "last_offset_delta" / int32,
    "base_timestamp" / int64,
    "max_timestamp" / int64,
    "producer_id" / int64,
    "producer_epoch" / int16,
    "base_sequence" / int32,
    "record_count" / int32,
)

BATCH_V2 = Struct(*members(BATCH_HEADER), "records" / Rest())
"""A whole batch. `records` holds `record_count` times RECORD_V2, compressed with the codec."""

RECORD_HEADER = Struct("key" / SizedBytes(_varint, nullable=False), "value" / _short)

RECORD_V2 = Struct(
    "length" / _varint,
    "attributes" / int8,
    "timestamp_delta" / _varlong,
    "offset_delta" / _varint,
    "key" / _short,
    "value" / _short,
    "headers" / ItemArray(_varint, RECORD_HEADER, 2),
)

# --- control records

CONTROL_KEY = Struct("version" / int16, "type" / int16)
CONTROL_TYPES = {
    0: "abort",
    1: "commit",
    2: "leader change",
    3: "snapshot header",
    4: "snapshot footer",
    5: "kraft version",
    6: "kraft voters",
}
END_TRANSACTION = Struct("version" / int16, "coordinator_epoch" / int32)
"""The value of abort and commit markers."""

"""Kafka's primitive types as declarations: integers, strings, bytes, uuids, arrays.

A codec holds the facts of a type, such as its width: `compiler` makes the fast code of them, `layouts` the classes of
`construct`, the readable form, which name the field of a failure. Sources: the protocol guide's "Protocol Primitive
Types"; KIP-482 (compact forms and tagged fields).
"""

from __future__ import annotations

import struct
from typing import Annotated

from .errors import MalformedMessage

ZERO_UUID = bytes(16)
"""The uuid that stands for none (Kafka's `Uuid.ZERO_UUID`)."""

VARINT_BYTES_MAX = 5  # 32 bits in groups of seven


ITEMS_MAX = 1 << 20
"""The most array items and tagged fields of one message. An item of two bytes on the wire may become an object of 100
bytes (measured: up to 52 times) and takes a microsecond to parse: this bounds both, far above what clients send."""


def request_items_max(size_bytes: int) -> int:
    """Returns the most items of a request of this size: 16,384, and one more for each 32 bytes.

    The broker keeps some 500 bytes per item until the response is sent, so the bound keeps the memory of a request
    below 20 times its size plus 16 MB. Entries that clients send in large numbers (partitions of a Fetch request, topic
    ids of a Metadata request) take about 32 bytes each, so that only the size of the request bounds them.
    """
    return (1 << 14) + (size_bytes >> 5)


class Codec:
    """A type, and the smallest size of a value in bytes, by which a count is bounded before memory is allocated."""

    min_size = 0


class Fixed(Codec):
    """A number of fixed width, big-endian; `fmt` is its `struct` letter."""

    def __init__(self, fmt: str) -> None:
        super().__init__()
        self.fmt = fmt
        self.size = self.min_size = struct.calcsize(">" + fmt)


class UuidLeaf(Codec):
    """A uuid of sixteen bytes, kept as `bytes`; all zero stands for none."""

    min_size = 16


class Mark(Codec):
    """A tagged field without content, whose presence is its value. Parsed as True."""


def varint_bytes(value: int) -> bytes:
    """Returns `value` (0 <= value < 2^31) as an unsigned varint."""
    if value < 0 or value >> 31:
        raise MalformedMessage(f"{value} is not a length")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Reads an unsigned varint and returns it with the position after it. Raises ValueError above 2^31 - 1, IndexError
    at the end of the buffer."""
    value = 0
    for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 31:
                raise ValueError("varint above 2^31 - 1")
            return value, position
    raise ValueError("varint longer than five bytes")


TEXT_BYTES_MAX = 0x7FFF
"""The longest string in bytes, also in the compact form, whose length field could hold more. Kafka's generated code
refuses longer ones, so that a string received in a flexible version fits the records and responses of all versions."""

boolean = Fixed("?")
int8 = Fixed("b")
int16 = Fixed("h")
int32 = Fixed("i")
int64 = Fixed("q")
uint16 = Fixed("H")
float64 = Fixed("d")
uuid = UuidLeaf()
mark = Mark()


class Length(Codec):
    """A count or a size: int16, int32, or in the compact form a varint of count + 1. Null is -1, compact 0
    (KIP-482)."""

    def __init__(self, wire: Fixed | None, nullable: bool) -> None:
        super().__init__()
        self.wire = wire
        self.nullable = nullable
        self.min_size = 1 if wire is None else wire.size

    @property
    def compact(self) -> bool:
        """Whether the length is a varint."""
        return self.wire is None


class Blob(Codec):
    """Bytes after their length. `text` decodes them as UTF-8; `view` lets the compiled parser slice instead of
    copying."""

    def __init__(self, length: Length, text: bool, view: bool) -> None:
        super().__init__()
        self.length = length
        self.text = text
        self.view = view
        self.min_size = length.min_size


class Array(Codec):
    """A count and its items. The count is checked against the remaining bytes, at the smallest size of an item."""

    def __init__(self, length: Length, item: Codec) -> None:
        super().__init__()
        self.length = length
        self.item = item
        self.min_size = length.min_size


class Nullable(Codec):
    """A struct that may be null: one byte, 1 before a value, or -1 for null; in a tagged field 0 for null, where Apache
    Kafka writes it even if null is the default.
    """

    min_size = 1

    def __init__(self, inner: Codec, *, is_tagged: bool = False) -> None:
        super().__init__()
        self.inner = inner
        self.null = 0 if is_tagged else -1


class Variable:
    """Annotation: string or bytes, with a length field that depends on the version."""

    def __init__(self, wire: Fixed, *, text: bool = False, view: bool = False) -> None:
        self.wire = wire
        self.text = text
        self.view = view

    def codec(self, flexible: bool, nullable: bool) -> Codec:
        """Returns the codec of a field in a flexible or an older version."""
        return Blob(Length(None if flexible else self.wire, nullable), self.text, self.view)


# An annotation is the codec of a type, or a Variable.
Bool = Annotated[bool, boolean]
Int8 = Annotated[int, int8]
Int16 = Annotated[int, int16]
Int32 = Annotated[int, int32]
Int64 = Annotated[int, int64]
UInt16 = Annotated[int, uint16]
Float64 = Annotated[float, float64]
Uuid = Annotated[bytes, uuid]
Present = Annotated[bool, mark]
"""A tagged field of type bool, default False, that is true if it is present."""
Text = Annotated[str, Variable(int16, text=True)]
Bytes = Annotated[bytes, Variable(int32)]
Records = Annotated[bytes | bytearray | memoryview, Variable(int32, view=True)]
"""Record batches: kept as bytes, never decoded here. Parsed as a view of the request's own buffer."""

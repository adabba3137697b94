"""Kafka's primitive types as bounded `construct` classes: integers, strings, bytes, uuids, arrays.

Every length and count is checked against the remaining bytes before memory is allocated, and every failure is a
`MalformedMessage` that names the field.

These classes are the readable form of the schema; `compiler` walks them to generate the fast code, and tests compare
the two. Sources: the protocol guide's "Protocol Primitive Types"; KIP-482 (compact forms and tagged fields).
"""

from __future__ import annotations

import io
import struct
from typing import Annotated, Any

from .errors import MalformedMessage
from .structs import Construct, build_value, parse_value

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


class Effort:
    """The number of items that a slow parse may still visit. Raises MalformedMessage with `reason` when it is used
    up."""

    def __init__(self, items: int, reason: str) -> None:
        self.items = items
        self.reason = reason

    def spend(self, path: str) -> None:
        """Counts one item."""
        self.items -= 1
        if self.items < 0:
            raise MalformedMessage(f"{path} or after it: {self.reason}")


def bytes_left(stream: io.BytesIO) -> int:
    """Returns the number of bytes between the stream's position and its end."""
    return stream.getbuffer().nbytes - stream.tell()


def take(stream: io.BytesIO, size: int, path: str) -> bytes:
    """Reads exactly `size` bytes. Raises MalformedMessage if there are fewer."""
    if size > bytes_left(stream):
        raise MalformedMessage(f"{path}: {size} bytes announced, {bytes_left(stream)} left")
    return stream.read(size)


class Fixed(Construct):
    """A number of fixed width, big-endian; `fmt` is its `struct` letter."""

    def __init__(self, fmt: str) -> None:
        super().__init__()
        self.fmt = fmt
        self.packer = struct.Struct(">" + fmt)
        self.size = self.packer.size

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return self.packer.unpack(take(stream, self.size, path))[0]

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        try:
            stream.write(self.packer.pack(obj))
        except struct.error as error:
            raise MalformedMessage(f"{path}: {obj!r} does not fit: {error}") from None
        return obj


class UnsignedVarint(Construct):
    """An unsigned varint of at most five bytes and 31 bits (construct's own VarInt has no bound)."""

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        value = 0
        for index in range(VARINT_BYTES_MAX):
            byte = take(stream, 1, path)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                if value >> 31:
                    raise MalformedMessage(f"{path}: varint above 2^31 - 1")
                return value
        raise MalformedMessage(f"{path}: varint longer than {VARINT_BYTES_MAX} bytes")

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        stream.write(varint_bytes(obj))
        return obj


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


class UuidLeaf(Construct):
    """A uuid of sixteen bytes, kept as `bytes`; all zero stands for none."""

    def _parse(self, stream: Any, context: Any, path: Any) -> bytes:
        return take(stream, 16, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        if len(obj) != 16:
            raise MalformedMessage(f"{path}: a uuid has 16 bytes, not {len(obj)}")
        stream.write(obj)
        return obj


class Mark(Construct):
    """A tagged field without content, whose presence is its value. Parsed as True."""

    min_size = 0

    def _parse(self, stream: Any, context: Any, path: Any) -> bool:
        return True

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        return obj


TEXT_BYTES_MAX = 0x7FFF
"""The longest string in bytes, also in the compact form, whose length field could hold more. Kafka's generated code
refuses longer ones, so that a string received in a flexible version fits the records and responses of all versions."""

boolean = Fixed("?")
int8 = Fixed("b")
int16 = Fixed("h")
int32 = Fixed("i")
int64 = Fixed("q")
uint16 = Fixed("H")
uint32 = Fixed("I")
float64 = Fixed("d")
unsigned_varint = UnsignedVarint()
uuid = UuidLeaf()
mark = Mark()


class Length(Construct):
    """A count or a size: int16, int32, or in the compact form a varint of count + 1. Null is -1, compact 0
    (KIP-482)."""

    def __init__(self, wire: Fixed | None, nullable: bool) -> None:
        super().__init__()
        self.wire = wire
        self.nullable = nullable

    @property
    def compact(self) -> bool:
        """Whether the length is a varint."""
        return self.wire is None

    @property
    def min_size(self) -> int:
        """The smallest size of the length field in bytes."""
        return 1 if self.wire is None else self.wire.size

    def _parse(self, stream: Any, context: Any, path: Any) -> int | None:
        if self.wire is None:
            size = parse_value(unsigned_varint, stream, context, path) - 1
        else:
            size = parse_value(self.wire, stream, context, path)
        if size == -1 and self.nullable:
            return None
        if size < 0:
            raise MalformedMessage(f"{path}: " + ("null where a value must be" if size == -1 else f"length {size}"))
        return size

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        if obj is None and not self.nullable:
            raise MalformedMessage(f"{path}: null where a value must be")
        size = -1 if obj is None else obj
        if self.wire is None:
            build_value(unsigned_varint, size + 1, stream, context, path)
        else:
            build_value(self.wire, size, stream, context, path)
        return obj


class Blob(Construct):
    """Bytes after their length. `text` decodes them as UTF-8; `view` lets the compiled parser slice instead of
    copying."""

    def __init__(self, length: Length, text: bool, view: bool) -> None:
        super().__init__()
        self.length = length
        self.text = text
        self.view = view

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        size = parse_value(self.length, stream, context, path)
        if size is None:
            return None
        if self.text and size > TEXT_BYTES_MAX:
            raise MalformedMessage(f"{path}: a string of {size} bytes; the most is {TEXT_BYTES_MAX}")
        data = take(stream, size, path)
        if not self.text:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage(f"{path}: not UTF-8: {error.reason}") from None

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        if obj is None:
            build_value(self.length, None, stream, context, path)
            return obj
        try:
            data = obj.encode() if self.text else obj
        except UnicodeEncodeError as error:
            raise MalformedMessage(f"{path}: not encodable as UTF-8: {error.reason}") from None
        if self.text and len(data) > TEXT_BYTES_MAX:
            raise MalformedMessage(f"{path}: a string of {len(data)} bytes; the most is {TEXT_BYTES_MAX}")
        build_value(self.length, len(data), stream, context, path)
        stream.write(data)
        return obj


class Array(Construct):
    """A count and its items. The count is checked against the remaining bytes, at the smallest size of an item."""

    def __init__(self, length: Length, item: Construct) -> None:
        super().__init__()
        self.length = length
        self.item = item

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        count = parse_value(self.length, stream, context, path)
        if count is None:
            return None
        if count * max(1, min_size(self.item)) > bytes_left(stream):
            raise MalformedMessage(f"{path}: {count} items announced, {bytes_left(stream)} bytes left")
        out: list[Any] = []
        for index in range(count):
            where = f"{path}[{index}]"
            if isinstance(context, Effort):
                context.spend(where)
            out.append(parse_value(self.item, stream, context, where))
        return out

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        build_value(self.length, None if obj is None else len(obj), stream, context, path)
        for index, value in enumerate(obj or ()):
            build_value(self.item, value, stream, context, f"{path}[{index}]")
        return obj


class Nullable(Construct):
    """A struct that may be null: one byte, 1 before a value, or -1 for null; in a tagged field 0 for null, where Apache
    Kafka writes it even if null is the default.
    """

    def __init__(self, inner: Construct, *, is_tagged: bool = False) -> None:
        super().__init__()
        self.inner = inner
        self.null = 0 if is_tagged else -1

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if parse_value(int8, stream, context, path) <= self.null:
            return None
        return parse_value(self.inner, stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        build_value(int8, self.null if obj is None else 1, stream, context, path)
        if obj is not None:
            build_value(self.inner, obj, stream, context, path)
        return obj


def min_size(codec: Any) -> int:
    """Returns the smallest size in bytes of a value of this codec, by which a count is bounded before memory is
    allocated."""
    if isinstance(codec, Fixed):
        return codec.size
    if isinstance(codec, UuidLeaf):
        return 16
    if isinstance(codec, Blob | Array):
        return codec.length.min_size
    if isinstance(codec, Nullable | UnsignedVarint):
        return 1
    return codec.min_size  # a schema.Group, or a Mark


class Scalar:
    """Annotation: the same codec in all versions."""

    def __init__(self, leaf: Construct) -> None:
        self.leaf = leaf

    def codec(self, flexible: bool, nullable: bool) -> Construct:
        """Returns the codec of a field in a flexible or an older version."""
        return self.leaf


class Variable:
    """Annotation: string or bytes, with a length field that depends on the version."""

    def __init__(self, wire: Fixed, *, text: bool = False, view: bool = False) -> None:
        self.wire = wire
        self.text = text
        self.view = view

    def codec(self, flexible: bool, nullable: bool) -> Construct:
        """Returns the codec of a field in a flexible or an older version."""
        return Blob(Length(None if flexible else self.wire, nullable), self.text, self.view)


Bool = Annotated[bool, Scalar(boolean)]
Int8 = Annotated[int, Scalar(int8)]
Int16 = Annotated[int, Scalar(int16)]
Int32 = Annotated[int, Scalar(int32)]
Int64 = Annotated[int, Scalar(int64)]
UInt16 = Annotated[int, Scalar(uint16)]
UInt32 = Annotated[int, Scalar(uint32)]
Float64 = Annotated[float, Scalar(float64)]
Uuid = Annotated[bytes, Scalar(uuid)]
Present = Annotated[bool, Scalar(mark)]
"""A tagged field of type bool, default False, that is true if it is present."""
Text = Annotated[str, Variable(int16, text=True)]
Bytes = Annotated[bytes, Variable(int32)]
Records = Annotated[bytes | bytearray | memoryview, Variable(int32, view=True)]
"""Record batches: kept as bytes, never decoded here. Parsed as a view of the request's own buffer."""

"""The layouts of messages as schemas of `construct`: the readable form, which names the field of a failure.

The codecs of `primitives` are the same types without the code here. Every length and count is checked against the
remaining bytes before memory is allocated, and every failure is a `MalformedMessage` that names the field. Only what
prints or explains bytes imports this module: construct takes 10 ms to import. Tests compare its results with those of
the compiled code.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Callable
from typing import Any

from . import primitives, schema
from .errors import MalformedMessage
from .primitives import TEXT_BYTES_MAX, VARINT_BYTES_MAX, Codec, read_varint, varint_bytes
from .schema import Value, default_of, group_of
from .structs import Construct, Struct, build_value, parse_value


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


class Fixed(primitives.Fixed, Construct):
    """A number of fixed width."""

    def __init__(self, fmt: str) -> None:
        super().__init__(fmt)
        self.packer = struct.Struct(">" + fmt)

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return self.packer.unpack(take(stream, self.size, path))[0]

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        try:
            stream.write(self.packer.pack(obj))
        except struct.error as error:
            raise MalformedMessage(f"{path}: {obj!r} does not fit: {error}") from None
        return obj


class Varint(Construct):
    """An integer of as many bytes as it needs, at most `longest`, which `read(data, position)` decodes."""

    min_size = 1

    def __init__(self, read: Callable[[bytes, int], tuple[int, int]], longest: int) -> None:
        super().__init__()
        self._read = read
        self._longest = longest

    def _parse(self, stream: Any, context: Any, path: Any) -> int:
        start = stream.tell()
        try:
            value, used = self._read(stream.read(self._longest), 0)
        except IndexError:
            raise MalformedMessage(f"{path}: a varint is cut") from None
        except ValueError as error:
            raise MalformedMessage(f"{path}: {error}") from None
        stream.seek(start + used)
        return value


class UnsignedVarint(Varint):
    """An unsigned varint of at most five bytes and 31 bits (construct's own VarInt has no bound)."""

    def __init__(self) -> None:
        super().__init__(read_varint, VARINT_BYTES_MAX)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        stream.write(varint_bytes(obj))
        return obj


class UuidLeaf(primitives.UuidLeaf, Construct):
    """A uuid."""

    def _parse(self, stream: Any, context: Any, path: Any) -> bytes:
        return take(stream, 16, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        if len(obj) != 16:
            raise MalformedMessage(f"{path}: a uuid has 16 bytes, not {len(obj)}")
        stream.write(obj)
        return obj


class Mark(primitives.Mark, Construct):
    """A tagged field without content."""

    def _parse(self, stream: Any, context: Any, path: Any) -> bool:
        return True

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        return obj


int8 = Fixed("b")
int16 = Fixed("h")
int32 = Fixed("i")
int64 = Fixed("q")
uint32 = Fixed("I")
unsigned_varint = UnsignedVarint()
uuid = UuidLeaf()
mark = Mark()


class Length(primitives.Length, Construct):
    """A count or a size."""

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


class Blob(primitives.Blob, Construct):
    """Bytes after their length."""

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


class Array(primitives.Array, Construct):
    """A count and its items."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        count = parse_value(self.length, stream, context, path)
        if count is None:
            return None
        if count * max(1, self.item.min_size) > bytes_left(stream):
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


class Nullable(primitives.Nullable, Construct):
    """A struct that may be null."""

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        if parse_value(int8, stream, context, path) <= self.null:
            return None
        return parse_value(self.inner, stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        build_value(int8, self.null if obj is None else 1, stream, context, path)
        if obj is not None:
            build_value(self.inner, obj, stream, context, path)
        return obj


class Group(schema.Group, Struct):
    """The layout of one class in one version."""

    def __init__(
        self, cls: type[Value], plan: list[tuple[str, Any]], tags: dict[int, tuple[str, Any]] | None, absent: list[str]
    ) -> None:
        super().__init__(cls, plan, tags, absent)
        Struct.__init__(self, *[name / codec for name, codec in plan])  # pyright: ignore[reportUnknownMemberType]

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        values = {name: parse_value(codec, stream, context, f"{path}.{name}") for name, codec in self.plan}
        if self.tags is not None:
            last = -1
            for _ in range(parse_value(unsigned_varint, stream, context, f"{path}.(tags)")):
                tag = parse_value(unsigned_varint, stream, context, f"{path}.(tags)")
                where = f"{path}.(tag {tag})"
                if isinstance(context, Effort):
                    context.spend(where)
                if tag <= last:
                    raise MalformedMessage(f"{where}: tags must ascend")
                last = tag
                body = io.BytesIO(take(stream, parse_value(unsigned_varint, stream, context, where), where))
                if tag in self.tags:  # unknown tags are skipped (KIP-482)
                    name, codec = self.tags[tag]
                    values[name] = parse_value(codec, body, context, f"{path}.{name}")
                    if body.read(1):
                        raise MalformedMessage(f"{path}.{name}: bytes left over in the tagged field")
        return self.cls(**values)

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        if type(obj) is not self.cls:
            raise MalformedMessage(f"{path}: {self.cls.__qualname__} expected, not {type(obj).__qualname__}")
        for name in self.absent:
            if getattr(obj, name) != default_of(self.cls, name):
                raise MalformedMessage(f"{path}.{name}: set, but this version does not have the field")
        for name, codec in self.plan:
            build_value(codec, getattr(obj, name), stream, context, f"{path}.{name}")
        if self.tags is not None:
            present: list[tuple[int, bytes]] = []
            for tag, (name, codec) in self.tags.items():
                value = getattr(obj, name)
                if value != default_of(self.cls, name):
                    body = io.BytesIO()
                    build_value(codec, value, body, context, f"{path}.{name}")
                    present.append((tag, body.getvalue()))
            build_value(unsigned_varint, len(present), stream, context, path)
            for tag, built in present:
                build_value(unsigned_varint, tag, stream, context, path)
                build_value(unsigned_varint, len(built), stream, context, path)
                stream.write(built)
        return obj


@functools.cache
def struct_of(cls: type, version: int) -> Group:
    """Returns the Struct of a message in one version.

    Raises KeyError for a class that is not a message, ValueError for a version that does not exist.
    """
    return _construct_of(group_of(cls, version))


@functools.cache
def _construct_of(codec: Codec) -> Any:
    if isinstance(codec, primitives.Fixed):
        return Fixed(codec.fmt)
    if isinstance(codec, primitives.Length):
        return Length(codec.wire and _construct_of(codec.wire), codec.nullable)
    if isinstance(codec, primitives.Blob):
        return Blob(_construct_of(codec.length), codec.text, codec.view)
    if isinstance(codec, primitives.Array):
        return Array(_construct_of(codec.length), _construct_of(codec.item))
    if isinstance(codec, primitives.Nullable):
        return Nullable(_construct_of(codec.inner), is_tagged=codec.null == 0)
    if isinstance(codec, schema.Group):
        plan = [(name, _construct_of(inner)) for name, inner in codec.plan]
        tags = codec.tags and {tag: (name, _construct_of(inner)) for tag, (name, inner) in codec.tags.items()}
        return Group(codec.cls, plan, tags, codec.absent)
    return uuid if isinstance(codec, primitives.UuidLeaf) else mark

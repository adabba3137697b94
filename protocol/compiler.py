"""Compiles the layout of a message into straight-line Python that parses and builds it.

The generator walks the `schema.Group` of one version and emits a parse and a build function; each is made on first use,
per (message, version). The emitted parser checks the same bounds as the Struct but raises whichever of ValueError,
IndexError and struct.error comes first; the Struct then parses the same bytes again to name the field, and the caller
gets one MalformedMessage. A parity test compares both for every message and version.

Measured (Produce v9 with one partition): about 3 us to parse and 2 us to build, against 90 us with plain construct.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import MalformedMessage
from .primitives import (
    ITEMS_MAX,
    TEXT_BYTES_MAX,
    Array,
    Blob,
    Codec,
    Fixed,
    Length,
    Mark,
    Nullable,
    UuidLeaf,
    read_varint,
    varint_bytes,
)
from .schema import Group, default_of, fields_of, group_of

if TYPE_CHECKING:
    from .records.steps import Steps

T = TypeVar("T")
EXPLAINED_ITEMS = 1000  # the Struct takes some 20 us per item: a large hostile frame would block the event loop
STEP_ITEMS = 2000  # items per step of `step_parser` and `build_steps`: some milliseconds
JOINED_BYTES_MAX = 1024  # `build_steps` joins smaller pieces
Parser = Callable[..., Any]
Builder = Callable[[Any, Callable[[Any], None]], Any]


def parse(cls: type[T], version: int, buffer: bytes | bytearray | memoryview, position: int = 0) -> T:
    """Parses one message that fills `buffer` from `position` to its end, such as a stored record value.

    `Records` fields are slices of `buffer`; other bytes are copied. Raises MalformedMessage.
    """
    value, end = reader(cls, version)(buffer, position)
    if end != len(buffer):
        raise MalformedMessage(f"{cls.__qualname__}: {len(buffer) - end} bytes left over")
    return value


def build(value: object, version: int) -> bytes:
    """Returns the bytes of a message. Raises MalformedMessage for a value that the version cannot carry."""
    parts: list[Any] = []
    builder(type(value), version)(value, parts.append)
    return b"".join(parts)


@functools.cache
def parser(cls: type, version: int) -> Callable[..., Any]:
    """Returns the function `(buffer, position=0, items_max=ITEMS_MAX) -> value` that parses a request or response of
    this version. It raises TooManyItems before it allocates memory for more than `items_max` items.

    Bytes after the message are ignored, as Kafka's broker and its Java client ignore them: librdkafka sends some after
    Metadata v9 (issue 5049) and AlterUserScramCredentials, kafka-go after DescribeAcls v3.
    """
    read = reader(cls, version)

    def parse_message(buffer: bytes | bytearray | memoryview, position: int = 0, items_max: int = ITEMS_MAX) -> Any:
        return read(buffer, position, items_max)[0]

    return parse_message


@functools.cache
def reader(cls: type, version: int) -> Callable[..., tuple[Any, int]]:
    """Returns the function `(buffer, position=0, items_max=ITEMS_MAX) -> (value, end)` of one message and version. It
    raises MalformedMessage."""
    fast = _compiled_parser(group_of(cls, version))

    def read_message(
        buffer: bytes | bytearray | memoryview, position: int = 0, items_max: int = ITEMS_MAX
    ) -> tuple[Any, int]:
        try:
            return fast(buffer, position, items_max)
        except TooManyItems:
            raise
        except (ValueError, IndexError, struct.error) as error:
            raise explain(cls, version, buffer, position, error) from None

    return read_message


@functools.cache
def step_parser(cls: type, version: int) -> Callable[[Any, int, int], Steps[Any]]:
    """Returns the parser `(buffer, position, items_max)` of one message and version, in steps of STEP_ITEMS items."""
    in_steps: Callable[..., Steps[tuple[Any, int]]] = _compiled_parser(group_of(cls, version), in_steps=True)

    def parse_message(buffer: bytes | bytearray | memoryview, position: int, items_max: int) -> Steps[Any]:
        try:
            value, _ = yield from in_steps(buffer, position, items_max)
            return value
        except TooManyItems:
            raise
        except (ValueError, IndexError, struct.error) as error:
            raise explain(cls, version, buffer, position, error) from None

    return parse_message


@functools.cache
def builder(cls: type, version: int) -> Callable[[Any, Callable[[Any], None]], None]:
    """Returns the function `(value, add)` that builds one message and version; `add` receives the pieces of bytes in
    order.

    A `Records` value is passed to `add` as the same object, so that a large slice is never copied here.
    """
    fast = _compiled_builder(group_of(cls, version))

    def build_message(value: Any, add: Callable[[Any], None]) -> None:
        try:
            fast(value, add)
        except (ValueError, TypeError, AttributeError, struct.error) as error:
            from .layouts import build_value, struct_of  # only here, as in `explain`

            try:
                build_value(struct_of(cls, version), value, io.BytesIO(), None, cls.__qualname__)
            except MalformedMessage as explained:
                raise explained from None
            except (TypeError, AttributeError):
                pass
            raise MalformedMessage(f"{cls.__qualname__}: {error}") from error

    return build_message


def build_steps(value: object, version: int) -> Steps[list[Any]]:
    """Builds a message that may have many items, in steps of STEP_ITEMS items, and returns its pieces.

    Small pieces are joined after each step to save memory. Raises MalformedMessage.
    """
    pieces: list[Any] = []
    joined: list[Any] = []
    try:
        for _ in _step_builder(type(value), version)(value, pieces.append):
            joined += _joined(pieces)
            pieces.clear()
            yield None
    except (ValueError, TypeError, AttributeError, struct.error) as error:
        raise MalformedMessage(f"{type(value).__qualname__}: {error}") from error
    return joined + _joined(pieces)


class Shared(list[Any]):
    """Items that occur in several places of one message: `build_steps` builds them once and repeats their bytes.

    The bytes are those of the version in which the items were built first.
    """

    __slots__ = ("built",)

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(items)
        self.built = b""


@functools.cache
def _step_builder(cls: type, version: int) -> Builder:
    return _compiled_builder(group_of(cls, version), in_steps=True)


def _joined(pieces: list[Any]) -> list[Any]:
    """Joins adjacent small pieces."""
    made: list[Any] = []
    small: list[Any] = []
    for piece in pieces:
        if len(piece) <= JOINED_BYTES_MAX:
            small.append(piece)
            continue
        made += [b"".join(small), piece] if small else [piece]
        small.clear()
    return [*made, b"".join(small)] if small else made


class TooManyItems(MalformedMessage):
    """The message has more items than the caller's limit; no single field is at fault."""


def explain(cls: type, version: int, buffer: Any, position: int, error: Exception) -> MalformedMessage:
    """Parses the bytes again with the Struct, slowly, to find the field that is at fault."""
    from .layouts import Effort, parse_value, struct_of  # only for an error: with construct it takes 10 ms of a start

    name = cls.__qualname__
    stream = io.BytesIO(bytes(memoryview(buffer)[position:]))
    try:
        parse_value(struct_of(cls, version), stream, Effort(EXPLAINED_ITEMS, str(error)), name)
    except MalformedMessage as explained:
        return explained
    return MalformedMessage(f"{name}: {error}")


class _Source:
    """The lines of a generated function, and the names it uses."""

    def __init__(self, in_steps: bool, **names: Any) -> None:
        self.in_steps = in_steps
        self.lines: list[str] = []
        self.names: dict[str, Any] = names
        self.count = 0

    def name(self, prefix: str = "v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def bind(self, prefix: str, value: Any) -> str:
        name = self.name(prefix)
        self.names[name] = value
        return name

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def step(self, depth: int) -> None:
        """Emits code that counts an item and yields at the end of a step."""
        self.add(depth, "left -= 1")
        self.add(depth, f"if not left: yield; left = {STEP_ITEMS}")

    def made(self, function: str) -> Any:
        exec("\n".join(self.lines), self.names)  # built from field names and struct letters only
        return self.names[function]


class _ParserSource(_Source):
    def unpack(self, fmt: str) -> str:
        name = "unpack_" + fmt.replace("?", "t")
        self.names.setdefault(name, struct.Struct(">" + fmt).unpack_from)
        return name

    def length(self, depth: int, length: Length, n: str) -> None:
        if length.wire is None:
            self.add(depth, f"{n} = buf[pos]; pos += 1")
            self.add(depth, f"if {n} > 127: {n}, pos = read_varint(buf, pos - 1)")
            self.add(depth, f"{n} -= 1")
        else:
            self.add(depth, f"{n}, = {self.unpack(length.wire.fmt)}(buf, pos); pos += {length.wire.size}")
        self.add(depth, f"if {n} < {-1 if length.nullable else 0}: raise ValueError('length')")

    def value(self, depth: int, codec: Codec, v: str) -> None:
        if isinstance(codec, Fixed):
            self.add(depth, f"{v}, = {self.unpack(codec.fmt)}(buf, pos); pos += {codec.size}")
        elif isinstance(codec, UuidLeaf):
            self.add(depth, "q = pos + 16")
            self.add(depth, "if q > end: raise ValueError('uuid')")
            self.add(depth, f"{v} = bytes(buf[pos:q]); pos = q")
        elif isinstance(codec, Blob):
            n = self.name("n")
            self.length(depth, codec.length, n)
            depth = self.null(depth, codec.length, n, v)
            if codec.text and codec.length.compact:
                self.add(depth, f"if {n} > {TEXT_BYTES_MAX}: raise ValueError('size')")
            self.add(depth, f"q = pos + {n}")
            self.add(depth, "if q > end: raise ValueError('size')")
            made = "str(buf[pos:q], 'utf8')" if codec.text else "buf[pos:q]" if codec.view else "bytes(buf[pos:q])"
            self.add(depth, f"{v} = {made}")
            self.add(depth, "pos = q")
        elif isinstance(codec, Array):
            self.array(depth, codec, v)
        elif isinstance(codec, Nullable):
            marker = self.name("n")
            self.add(depth, f"{marker}, = {self.unpack('b')}(buf, pos); pos += 1")
            self.add(depth, f"if {marker} <= {codec.null}: {v} = None")
            self.add(depth, "else:")
            self.value(depth + 1, codec.inner, v)
        elif isinstance(codec, Mark):
            self.add(depth, f"{v} = True")
        else:
            assert isinstance(codec, Group)
            self.group(depth, codec, v)

    def null(self, depth: int, length: Length, n: str, v: str) -> int:
        if not length.nullable:
            return depth
        self.add(depth, f"if {n} < 0: {v} = None")
        self.add(depth, "else:")
        return depth + 1

    def array(self, depth: int, codec: Array, v: str) -> None:
        n = self.name("n")
        self.length(depth, codec.length, n)
        depth = self.null(depth, codec.length, n, v)
        size = max(1, codec.item.min_size)
        self.add(depth, f"if {n} * {size} > end - pos: raise ValueError('count')")
        # A number costs half of an object; an array of one number, such as the replicas of a partition, costs nothing.
        self.add(depth, f"items += {n} >> 1" if isinstance(codec.item, Fixed) else f"items += {n}")
        self.too_many(depth)
        if isinstance(codec.item, Fixed):
            self.names["unpack_many"] = struct.unpack_from
            self.add(depth, f"{v} = list(unpack_many(f'>{{{n}}}{codec.item.fmt}', buf, pos)); pos += {n} * {size}")
            return
        item = self.name()
        self.add(depth, f"{v} = []")
        self.add(depth, f"for _ in range({n}):")
        if self.in_steps:
            self.step(depth + 1)
        self.value(depth + 1, codec.item, item)
        self.add(depth + 1, f"{v}.append({item})")

    def too_many(self, depth: int) -> None:
        self.add(depth, "if items > most: raise TooManyItems(f'{message}: more than {most} items')")

    def group(self, depth: int, group: Group, v: str) -> None:
        """Emits code that creates the object and sets its slots one by one: half the time of calling its
        constructor."""
        run: list[tuple[str, Fixed]] = []

        def read_run() -> None:
            if run:
                fmt = "".join(fixed.fmt for _, fixed in run)
                size = struct.calcsize(">" + fmt)
                targets = ", ".join(f"{v}.{name}" for name, _ in run)
                self.add(depth, f"{targets}, = {self.unpack(fmt)}(buf, pos); pos += {size}")
                run.clear()

        self.add(depth, f"{v} = new({self.bind('C', group.cls)})")
        for name, codec in group.plan:
            if isinstance(codec, Fixed):
                run.append((name, codec))
            else:
                read_run()
                x = self.name()
                self.value(depth, codec, x)
                self.add(depth, f"{v}.{name} = {x}")
        read_run()
        read = {name for name, _ in group.plan}
        for name in fields_of(group.cls):
            if name not in read:
                default = default_of(group.cls, name)
                self.add(depth, f"{v}.{name} = {'[]' if default == [] else self.bind('default', default)}")
        if group.tags is not None:
            self.tagged(depth, group.tags, v)

    def tagged(self, depth: int, tags: dict[int, tuple[str, Codec]], v: str) -> None:
        n, last, tag, stop = self.name("n"), self.name("last"), self.name("tag"), self.name("stop")
        self.add(depth, f"{n} = buf[pos]; pos += 1")
        self.add(depth, f"if {n}:")
        self.add(depth + 1, f"if {n} > 127: {n}, pos = read_varint(buf, pos - 1)")
        self.add(depth + 1, f"items += {n}; {last} = -1")
        self.too_many(depth + 1)
        self.add(depth + 1, f"for _ in range({n}):")
        depth += 2
        if self.in_steps:
            self.step(depth)
        for target in (tag, stop):
            self.add(depth, f"{target} = buf[pos]; pos += 1")
            self.add(depth, f"if {target} > 127: {target}, pos = read_varint(buf, pos - 1)")
        self.add(depth, f"{stop} += pos")
        self.add(depth, f"if {tag} <= {last} or {stop} > end: raise ValueError('tag')")
        self.add(depth, f"{last} = {tag}")
        for number, (name, codec) in tags.items():
            x = self.name()
            self.add(depth, f"if {tag} == {number}:")
            self.value(depth + 1, codec, x)
            self.add(depth + 1, f"if pos != {stop}: raise ValueError('tag size')")
            self.add(depth + 1, f"{v}.{name} = {x}")
            self.add(depth + 1, "continue")
        self.add(depth, f"pos = {stop}")


def _compiled_parser(layout: Group, *, in_steps: bool = False) -> Parser:
    name = layout.cls.__qualname__
    source = _ParserSource(
        in_steps, read_varint=read_varint, TooManyItems=TooManyItems, new=object.__new__, message=name
    )
    source.add(0, "def parse(buf, pos, most):")
    source.add(1, "end = len(buf); items = 0")
    if in_steps:
        source.add(1, f"left = {STEP_ITEMS}")
        source.add(1, "if False: yield")  # makes a generator also of a message without an array
    source.group(1, layout, "result")
    source.add(1, "if pos > end: raise IndexError('the message is cut')")
    source.add(1, "return result, pos")
    return source.made("parse")


_SHORT_VARINTS = [bytes((value,)) for value in range(128)]


class _BuilderSource(_Source):
    def pack(self, fmt: str) -> str:
        name = "pack_" + fmt.replace("?", "t")
        self.names.setdefault(name, struct.Struct(">" + fmt).pack)
        return name

    def length(self, depth: int, length: Length, n: str) -> None:
        if length.wire is None:
            self.add(depth, f"add(short_varints[{n} + 1] if {n} < 127 else varint_bytes({n} + 1))")
        else:
            self.add(depth, f"add({self.pack(length.wire.fmt)}({n}))")

    def null(self, depth: int, length: Length, x: str) -> int:
        """Emits the null case and returns the depth of the other one. A field that is not nullable fails at
        `len(None)`."""
        if not length.nullable:
            return depth
        null = b"\0" if length.wire is None else b"\xff" * length.wire.size
        self.add(depth, f"if {x} is None: add({null!r})")
        self.add(depth, "else:")
        return depth + 1

    def value(self, depth: int, codec: Codec, expression: str) -> None:
        if isinstance(codec, Fixed):
            self.add(depth, f"add({self.pack(codec.fmt)}({expression}))")
            return
        if isinstance(codec, Mark):
            return
        x = self.name()
        self.add(depth, f"{x} = {expression}")
        if isinstance(codec, UuidLeaf):
            self.add(depth, f"if len({x}) != 16: raise ValueError('uuid')")
            self.add(depth, f"add({x})")
        elif isinstance(codec, Blob):
            depth = self.null(depth, codec.length, x)
            if codec.text:
                self.add(depth, f"{x} = {x}.encode()")
            n = self.name("n")
            self.add(depth, f"{n} = len({x})")
            if codec.text and codec.length.compact:
                self.add(depth, f"if {n} > {TEXT_BYTES_MAX}: raise ValueError('size')")
            self.length(depth, codec.length, n)
            self.add(depth, f"add({x})")
        elif isinstance(codec, Array):
            self.array(depth, codec, x)
        elif isinstance(codec, Nullable):
            self.add(depth, f"if {x} is None: add({codec.null.to_bytes(1, 'big', signed=True)!r})")
            self.add(depth, "else:")
            self.add(depth + 1, "add(b'\\x01')")
            self.group(depth + 1, codec.inner, x)
        else:
            self.group(depth, codec, x)

    def array(self, depth: int, codec: Array, x: str) -> None:
        depth = self.null(depth, codec.length, x)
        if not self.in_steps or isinstance(codec.item, Fixed):
            self.items(depth, codec, x)
            return
        shared, outer, body = self.name("shared"), self.name("outer"), self.name("body")
        self.add(depth, f"{shared} = type({x}) is Shared")
        self.add(depth, f"if {shared} and {x}.built: add({x}.built)")
        self.add(depth, "else:")
        self.add(depth + 1, f"if {shared}: {outer} = add; {body} = []; add = {body}.append")
        self.items(depth + 1, codec, x)
        self.add(depth + 1, f"if {shared}: add = {outer}; {x}.built = b''.join({body}); add({x}.built)")

    def items(self, depth: int, codec: Array, x: str) -> None:
        """Emits code for the count and the items."""
        n = self.name("n")
        self.add(depth, f"{n} = len({x})")
        self.length(depth, codec.length, n)
        if isinstance(codec.item, Fixed):
            self.names["pack_many"] = struct.pack
            self.add(depth, f"if {n}: add(pack_many(f'>{{{n}}}{codec.item.fmt}', *{x}))")
            return
        item = self.name()
        self.add(depth, f"for {item} in {x}:")
        if self.in_steps:
            self.step(depth + 1)
        self.value(depth + 1, codec.item, item)

    def group(self, depth: int, group: Any, x: str) -> None:
        assert isinstance(group, Group)
        cls = self.bind("C", group.cls)
        self.add(depth, f"if type({x}) is not {cls}: raise TypeError('type')")
        for name in group.absent:
            default = self.bind("default", default_of(group.cls, name))
            value = self.name()
            self.add(depth, f"{value} = {x}.{name}")
            self.add(depth, f"if {value} is not {default} and {value} != {default}: raise ValueError({name!r})")
        run: list[tuple[str, Fixed]] = []

        def write_run() -> None:
            if run:
                fmt = "".join(fixed.fmt for _, fixed in run)
                self.add(depth, f"add({self.pack(fmt)}({', '.join(f'{x}.{name}' for name, _ in run)}))")
                run.clear()

        for name, codec in group.plan:
            if isinstance(codec, Fixed):
                run.append((name, codec))
            else:
                write_run()
                self.value(depth, codec, f"{x}.{name}")
        write_run()
        if group.tags is not None:
            self.tagged(depth, group, x)

    def tagged(self, depth: int, group: Group, x: str) -> None:
        if not group.tags:
            self.add(depth, "add(b'\\0')")
            return
        present = self.name("present")
        self.add(depth, f"{present} = []")
        for tag, (name, codec) in group.tags.items():
            default = self.bind("default", default_of(group.cls, name))
            value, body, outer = self.name(), self.name("body"), self.name("outer")
            self.add(depth, f"{value} = {x}.{name}")
            self.add(depth, f"if {value} is not {default} and {value} != {default}:")
            self.add(depth + 1, f"{outer} = add; {body} = []; add = {body}.append")
            self.value(depth + 1, codec, value)
            self.add(depth + 1, f"add = {outer}; {body} = b''.join({body})")
            self.add(depth + 1, f"{present} += ({varint_bytes(tag)!r}, varint_bytes(len({body})), {body})")
        self.add(depth, f"if {present}: add(varint_bytes(len({present}) // 3)); add(b''.join({present}))")
        self.add(depth, "else: add(b'\\0')")


def _compiled_builder(layout: Group, *, in_steps: bool = False) -> Builder:
    source = _BuilderSource(in_steps, short_varints=_SHORT_VARINTS, varint_bytes=varint_bytes, Shared=Shared)
    source.add(0, "def build(value, add):")
    if in_steps:
        source.add(1, f"left = {STEP_ITEMS}")
        source.add(1, "if False: yield")
    source.group(1, layout, "value")
    return source.made("build")

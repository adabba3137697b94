"""Prints bytes by their construct schema: each field with its position, its name and its value, nested ones indented.

Reads with the schema's own leaves, which bound every length by the remaining bytes, and prints while it reads:
everything before damage is shown. Memory is that of the bytes and of one value. Raises only Stopped.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from ...protocol.errors import MalformedMessage, error_name
from ...protocol.layouts import Array, Blob, Fixed, Group, Nullable, UuidLeaf, int8, take, unsigned_varint
from ...protocol.primitives import Codec
from ...protocol.records.compression import CODEC_NAMES
from ...protocol.records.schemas import Bits, ItemArray, fields
from ...protocol.structs import Construct, Struct, parse_value
from ...protocol.text import plural, time_text
from ...storage.format.partition_metadata import encode_id

SHOWN_BYTES = 256  # of one text or blob; the total follows
INLINE_NUMBERS = 16  # numbers on one line


class Stopped(Exception):
    """The bytes at `position` do not match the schema."""

    def __init__(self, position: str, reason: str) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class Problems:
    """The first problem, and the number of problems."""

    def __init__(self) -> None:
        self.first: Stopped | None = None
        self.count = 0

    def add(self, stopped: Stopped) -> None:
        self.first = self.first or stopped
        self.count += 1


class Window:
    """Bytes to read, and their place: `base` is the position of the first byte in the input.

    The bytes of an `inner` window were compressed in the input: their positions count from the start of the
    decompressed data, and are printed with a plus sign.
    """

    def __init__(self, data: bytes, base: int = 0, *, inner: bool = False) -> None:
        self.stream = io.BytesIO(data)
        self.base = base
        self.inner = inner

    @property
    def position(self) -> str:
        """The position of the next byte, as it is printed."""
        return self.place(self.stream.tell())

    def place(self, offset: int) -> str:
        """Returns the printed position of the byte at this offset in the window."""
        return f"{'+' if self.inner else ''}{self.base + offset}"

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return self.stream.getbuffer().nbytes - self.stream.tell()

    def part(self, start: int, size: int) -> Window:
        """Returns a window on some of these bytes."""
        return Window(bytes(self.stream.getbuffer()[start : start + size]), self.base + start, inner=self.inner)


RecordsHook = Callable[[Window, int], None]


class Tracer:
    """Prints lines of `position, indented name: value` to `write`. `width` is the width of the column of positions."""

    def __init__(
        self,
        write: Callable[[str], Any],
        width: int,
        *,
        names: dict[str, Callable[[Any], str]] | None = None,
        problems: Problems | None = None,
    ) -> None:
        self._write = write
        self._width = width
        self._notes = NOTES | (names or {})
        self.on_records: RecordsHook | None = None
        """Called with the record batches in a field of a message: (window, depth)."""
        self.hide_bytes = False
        """Whether keys and values are replaced by their size."""
        self.problems = problems or Problems()
        """The problems after which reading continued."""

    def line(self, position: str, depth: int, text: str) -> None:
        self._write(f"{position:>{self._width}}  {'  ' * depth}{text}\n")

    def problem(self, stopped: Stopped, depth: int) -> None:
        """Reports a problem at a position; reading continues after it."""
        self.problems.add(stopped)
        self.line(stopped.position, depth, f"({stopped.reason})")

    def struct(self, codec: Struct, window: Window, depth: int) -> dict[str, Any]:
        """Prints the fields of a Struct, one per line; returns the values of plain fields."""
        found: dict[str, Any] = {}
        for name, inner in codec.plan if isinstance(codec, Group) else fields(codec):
            found[name] = self.field(name, inner, window, depth)
        if isinstance(codec, Group) and codec.tags is not None:
            self._tagged(codec.tags, window, depth)
        return found

    def whole(self, codec: Struct, window: Window, depth: int) -> dict[str, Any]:
        """Like `struct`, for a Struct that must fill its window. Raises Stopped otherwise."""
        found = self.struct(codec, window, depth)
        if window.left:
            raise Stopped(window.position, f"{window.left} bytes left over")
        return found

    def field(self, name: str, codec: Codec | Construct, window: Window, depth: int) -> Any:
        """Prints one field and its nested fields; returns its value if it is a plain field."""
        position = window.position
        if isinstance(codec, Nullable):
            if self.read(int8, name, window) < 0:
                self.line(position, depth, f"{name}: null")
                return None
            codec = codec.inner
        if isinstance(codec, Struct):
            self.line(position, depth, name)
            self.struct(codec, window, depth + 1)
            return None
        if isinstance(codec, Array | ItemArray):
            return self._array(name, codec, window, depth)
        value = self.read(codec, name, window)
        if isinstance(codec, Blob) and codec.view and value is not None:
            self.line(position, depth, f"{name}: {len(value)} bytes")
            if self.on_records is not None:
                end = window.stream.tell()
                self.on_records(window.part(end - len(value), len(value)), depth + 1)
            return None
        self.line(position, depth, f"{name}: {self.shown(name, codec, value)}")
        return value

    def _array(self, name: str, codec: Array | ItemArray, window: Window, depth: int) -> int | None:
        position = window.position
        if isinstance(codec, Array):
            count = self.read(codec.length, name, window)
            if count is not None and count * max(1, codec.item.min_size) > window.left:
                raise Stopped(position, f"{name}: {count} items announced, {window.left} bytes left")
        else:
            count = self._guarded(lambda: codec.count(window.stream, name), position)
        if count is None:
            self.line(position, depth, f"{name}: null")
        elif isinstance(codec.item, Fixed) and count:
            self._numbers(name, codec.item, count, position, window, depth)
        else:
            self.line(position, depth, f"{name}: {plural(count, 'item')}")
            for index in range(count):
                self.field(f"[{index}]", codec.item, window, depth + 1)
        return count

    def _numbers(self, name: str, item: Fixed, count: int, position: str, window: Window, depth: int) -> None:
        for start in range(0, count, INLINE_NUMBERS):
            where = window.position if start else position
            numbers = [self.read(item, name, window) for _ in range(min(INLINE_NUMBERS, count - start))]
            head = f"{name}: {plural(count, 'item')}: " if not start else f"  [{start}]: "
            self.line(where, depth, head + ", ".join(map(str, numbers)))

    def _tagged(self, tags: dict[int, tuple[str, Codec]], window: Window, depth: int) -> None:
        position = window.position
        count = self.read(unsigned_varint, "tagged fields", window)
        if count > window.left // 2:
            raise Stopped(position, f"{count} tagged fields announced, {window.left} bytes left")
        if count:
            self.line(position, depth, f"tagged fields: {count}")
        last = -1
        for _ in range(count):
            position = window.position
            tag = self.read(unsigned_varint, "a tag", window)
            size = self.read(unsigned_varint, f"tag {tag}", window)
            if tag <= last:
                raise Stopped(position, f"tag {tag} after tag {last}: tags must ascend")
            last = tag
            start = window.stream.tell()
            data = self._guarded(lambda size=size, tag=tag: take(window.stream, size, f"tag {tag}"), window.position)
            if tag in tags:
                name, codec = tags[tag]
                body = window.part(start, size)
                self.field(f"{name} (tag {tag})", codec, body, depth + 1)
                if body.left:
                    raise Stopped(body.position, f"{name}: {body.left} bytes left over in the tagged field")
            else:
                self.line(position, depth + 1, f"(tag {tag}, unknown): {blob(data)}")

    def read(self, codec: Codec | Construct, name: str, window: Window) -> Any:
        """Reads one field without printing it. Raises Stopped."""
        return self._guarded(lambda: parse_value(codec, window.stream, None, name), window.position)

    def _guarded(self, read: Callable[[], Any], position: str) -> Any:
        try:
            return read()
        except MalformedMessage as error:
            raise Stopped(position, str(error)) from None

    def shown(self, name: str, codec: Codec | Construct, value: Any) -> str:
        """Returns the text of a plain value."""
        if value is None:
            return "null"
        if isinstance(codec, Bits):
            return bits(codec, value)
        if isinstance(codec, UuidLeaf):
            return encode_id(value)
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, bytes):
            return f"{len(value)} bytes" if self.hide_bytes else blob(value)
        if isinstance(value, bool):
            return str(value).lower()
        note = self._notes.get(name.partition(" ")[0])
        return f"{value}{note(value) if note else ''}"


def quoted(text: str) -> str:
    """Returns text in double quotes on one line, control characters escaped, cut at SHOWN_BYTES characters."""
    shown = _letters(text[:SHOWN_BYTES])
    return f'"{shown}"' + (f"... ({len(text)} characters)" if len(text) > SHOWN_BYTES else "")


def _letters(text: str) -> str:
    if text.isprintable():  # nearly always, and much faster
        return text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(map(_letter, text))


def _letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    return letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode()


def blob(data: bytes) -> str:
    """Returns bytes as quoted text if they are printable UTF-8, else in hex; cut at SHOWN_BYTES."""
    head = data[:SHOWN_BYTES]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # The cut may split a character of a text; that is not binary data.
        cut = len(data) > len(head) and error.start >= len(head) - 3
        text = head[: error.start].decode() if cut else "\0"
    shown = f'"{_letters(text)}"' if text.isprintable() else "0x" + head.hex()
    return shown + (f"... ({len(data)} bytes)" if len(data) > SHOWN_BYTES else "")


def bits(codec: Bits, value: int) -> str:
    """Returns a bit field in hex, with the names of the bits that are set."""
    found = codec.split(value)
    words: list[str] = []
    for name, part in found.items():
        if name == "codec":
            words.append(f"codec {CODEC_NAMES.get(part, part)}")
        elif name == "unnamed":
            words.append(f"0x{part:x} without a name")
        elif part:
            words.append(name)
    return f"0x{value & (1 << 8 * codec.size) - 1:0{2 * codec.size}x} ({', '.join(words)})"


def _time_note(milliseconds: int) -> str:
    text = time_text(milliseconds)
    return f" ({text})" if text else ""


NOTES: dict[str, Callable[[Any], str]] = {
    "error_code": lambda code: f" ({error_name(code) or 'unknown'})",
    **dict.fromkeys(
        "timestamp base_timestamp max_timestamp commit_timestamp expire_timestamp current_state_timestamp "
        "assignment_timestamp create_timestamp write_timestamp log_append_time_ms "
        "transaction_last_update_timestamp_ms transaction_start_timestamp_ms".split(),
        _time_note,
    ),
}

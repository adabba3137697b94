"""Hostile values and bytes: every length field wrong in turn, arrays of the smallest items."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any
from unittest import mock

from ottla.protocol.layouts import Array, Blob, Fixed, Group, Length, Mark, Nullable, UuidLeaf

BAD_VARINTS = ["ffffffff07", "8080808008", "ffffffff0f", "ffffffffff", "ffffffffff01", "ff" * 200_000]


def sample(codec: Any, full: bool) -> Any:
    """Returns a value of `codec`; `full`: one item in each array and every tagged field set, otherwise everything is
    empty."""
    if isinstance(codec, Fixed):
        return {"?": True, "d": 1.5}.get(codec.fmt, (1 << (8 * codec.size - 1)) - 1)
    if isinstance(codec, UuidLeaf):
        return b"\x11" * 16
    if isinstance(codec, Blob):
        data = b"ab" if full else b""
        return data.decode() if codec.text else data
    if isinstance(codec, Array):
        return [sample(codec.item, full)] if full else []
    if isinstance(codec, Nullable):
        return sample(codec.inner, full)
    if isinstance(codec, Mark):
        return True
    fields = [*codec.plan, *((codec.tags or {}).values() if full else ())]
    return codec.cls(**{name: sample(item, full) for name, item in fields})


def crowded(codec: Any, count: int) -> Iterator[Any]:
    """Yields values of `codec` in which one array, each in turn, has `count` of its smallest items."""
    if isinstance(codec, Array):
        yield [sample(codec.item, False)] * count
        yield from ([value] for value in crowded(codec.item, count))
    elif isinstance(codec, Nullable):
        yield from crowded(codec.inner, count)
    elif isinstance(codec, Group):
        for name, item in [*codec.plan, *(codec.tags or {}).values()]:
            for value in crowded(item, count):
                whole = sample(codec, False)
                setattr(whole, name, value)
                yield whole


def written(layout: Any, value: Any) -> bytes:
    """Returns the bytes of a value, by the Struct."""
    stream = BytesIO()
    layout._build(value, stream, None, "hostile")
    return stream.getvalue()


@contextmanager
def _counting(cls: type, replace: Callable[[int, Any, Any], bytes | None]) -> Iterator[None]:
    """While open, the nth `_build` of `cls` writes what `replace(n, codec, stream)` returns, unless None."""
    original: Any = cls._build  # type: ignore[attr-defined]
    count = -1

    def build(self: Any, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        nonlocal count
        count += 1
        instead = replace(count, self, stream)
        if instead is None:
            return original(self, obj, stream, context, path)
        stream.write(instead)
        return obj

    with mock.patch.object(cls, "_build", build):
        yield


def wrong_lengths(layout: Group) -> Iterator[bytes]:
    """Yields frames of a full value in which one length or count, each in turn, is invalid."""
    value = sample(layout, True)
    lengths: list[Length] = []
    with _counting(Length, lambda n, codec, stream: lengths.append(codec)):
        written(layout, value)
    for index, length in enumerate(lengths):
        for bad in bad_lengths(length):

            def instead(n: int, codec: Any, stream: Any, index: int = index, bad: bytes = bad) -> bytes | None:
                return bad if n == index else None

            with _counting(Length, instead):
                yield written(layout, value)


def bad_lengths(length: Length) -> list[bytes]:
    """Returns -2, the largest number, -1 where null is not allowed, and varints that are too long or too large."""
    if length.wire is None:
        return [bytes.fromhex(text) for text in BAD_VARINTS] + ([] if length.nullable else [b"\0"])
    bits = 8 * length.wire.size
    numbers = [-2, -(1 << (bits - 1)), (1 << (bits - 1)) - 1] + ([] if length.nullable else [-1])
    return [struct.pack(f">{length.wire.fmt}", number) for number in numbers]


def bad_texts(layout: Group) -> Iterator[bytes]:
    """Yields frames of a full value in which one text, each in turn, is not UTF-8."""
    value = sample(layout, True)
    texts: list[int] = []
    with _counting(Blob, lambda n, codec, stream: texts.append(n) if codec.text else None):
        written(layout, value)
    for index in texts:

        def instead(n: int, codec: Any, stream: Any, index: int = index) -> bytes | None:
            if n != index:
                return None
            codec.length._build(2, stream, None, "text")
            return b"\xc3\x28"

        with _counting(Blob, instead):
            yield written(layout, value)

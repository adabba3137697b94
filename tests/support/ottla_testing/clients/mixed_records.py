"""Records of mixed sizes, 0 bytes to 900 kB, with and without keys, values and headers, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

LARGEST = 900_000
LARGE_EVERY = 1_000  # one record of the largest size per this number
MEDIUM_SHARE = 0.06  # of 1 to 16 kB; the others are small
WORDS = "batch segment epoch offset leader record header watermark partition index of and the is at".split()

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """A message as given to a client, and as returned by it."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@cache
def text() -> bytes:
    """Returns a megabyte that every codec compresses, also snappy, which only uses repetition."""
    source = random.Random(14)
    return " ".join(source.choice(WORDS) for _ in range(200_000)).encode()[: LARGEST + 100_000]


def mixed(count: int, *, seed: int = 1, null_values: bool = True, plain: bool = False) -> list[Message]:
    """Returns `count` messages. `plain` excludes what kcat cannot send: bytes that are not text, and headers per
    message.
    """
    source = random.Random(seed)
    pool = text()
    made: list[Message] = []
    for number in range(count):
        kind = source.random()
        if number % LARGE_EVERY == LARGE_EVERY // 2:
            size = LARGEST
        elif kind < MEDIUM_SHARE:
            size = source.randrange(1_000, 16_000)
        else:
            size = source.choice((0, 1, 10, 100, 200))
        start = source.randrange(len(pool) - size)
        value: bytes | None = pool[start : start + size]
        if (
            not plain and 0.9 < kind < 0.95 and size <= 200
        ):  # larger ones could make a batch that no codec makes smaller
            value = source.randbytes(size)
        if null_values and kind > 0.98 and size < LARGEST:
            value = None
        key = source.choice((None, b"", b"key-%d" % number, b"k" * 300))
        if plain:
            made.append(Message(key or None, value or (None if null_values else b"-")))
            continue
        headers: Headers = ()
        if kind > 0.8:
            headers = (("n", str(number).encode()), ("empty", b""), ("null", None), ("n", b"again"), ("ü", b"\x00\xff"))
        made.append(Message(key, value, headers))
    return made


def difference(sent: Sequence[Message], found: Sequence[Message]) -> str | None:
    """Returns the first difference of two sequences as a short line, though a value may have 900 kB; None if equal."""
    for number, (one, other) in enumerate(zip(sent, found, strict=False)):
        if one != other:
            return f"message {number}: sent {str(one)[:200]}, found {str(other)[:200]}"
    return None if len(sent) == len(found) else f"{len(sent)} sent, {len(found)} found"

"""Random values of any declared message in any version, for the tests."""

from __future__ import annotations

import random
from typing import Any

from ottla.protocol.primitives import Array, Blob, Fixed, Mark, Nullable, UuidLeaf
from ottla.protocol.schema import Group

RANGES = {"b": 7, "h": 15, "i": 31, "q": 63}


def random_value(codec: Any, random: random.Random, size: int = 3, *, extensions: bool = True) -> Any:
    """Returns a value that `codec` can write, with nulls, empty and non-empty lists, and odd text.

    Without `extensions`, only fields that other codecs know too.
    """
    if isinstance(codec, Fixed):
        if codec.fmt == "?":
            return random.random() < 0.5
        if codec.fmt == "d":
            return random.uniform(-1e9, 1e9)
        if codec.fmt in "HI":
            return random.randrange(1 << (16 if codec.fmt == "H" else 32))
        bits = RANGES[codec.fmt]
        return random.choice([0, -1, (1 << bits) - 1, -(1 << bits), random.randrange(1 << bits)])
    if isinstance(codec, UuidLeaf):
        return random.choice([bytes(16), random.randbytes(16)])
    if isinstance(codec, Blob):
        if codec.length.nullable and random.random() < 0.3:
            return None
        data = random.randbytes(random.choice([0, 1, 5, 126, 127, 128, 300]))
        return data.decode("latin1") if codec.text else data
    if isinstance(codec, Array):
        if codec.length.nullable and random.random() < 0.2:
            return None
        count = random.randrange(max(1, size) + 1)
        return [random_value(codec.item, random, size - 1, extensions=extensions) for _ in range(count)]
    if isinstance(codec, Nullable):
        return None if random.random() < 0.3 else random_value(codec.inner, random, size, extensions=extensions)
    if isinstance(codec, Mark):
        return True
    assert isinstance(codec, Group)
    values = {name: random_value(item, random, size, extensions=extensions) for name, item in codec.plan}
    for name, item in (codec.tags or {}).values():
        if (extensions or not codec.cls._fields[name].extension) and random.random() < 0.5:
            values[name] = random_value(item, random, size, extensions=extensions)
    return codec.cls(**values)

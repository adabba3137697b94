"""The form of the records of groups: a key begins with its type, a value with its version, which is 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...protocol.compiler import build, parse
from ...protocol.errors import MalformedMessage
from ...protocol.named import NamedTuple
from ...protocol.schema import spec

Reader: TypeAlias = tuple[type[Any], type[Any], Callable[[Any, Any], Any]]
"""The classes of key and value, and what makes a change of both; the value of a tombstone is None."""


class ReadRecord(NamedTuple):
    """A decoded record: the group, its change, and whether it was a tombstone."""

    group_id: str
    change: Any
    is_tombstone: bool


def readers(*rows: Reader) -> dict[int, Reader]:
    """Returns readers by the type of their key."""
    return {spec(row[0]).api_key: row for row in rows}


def write_record(key: Any, value: Any) -> tuple[bytes, bytes | None]:
    """Returns key and value of a record; a value of None is a tombstone. Raises MalformedMessage if a string is too
    long.
    """
    key_class: type[Any] = key.__class__
    encoded = spec(key_class).api_key.to_bytes(2, "big") + build(key, 0)
    return encoded, None if value is None else b"\0\0" + build(value, 0)


def read_record(known: Mapping[int, Reader], key_type: int, key: bytes, value: bytes | None) -> ReadRecord | None:
    """Decodes a record; None for another key type. Raises MalformedMessage."""
    reader = known.get(key_type)
    if reader is None:
        return None
    key_class, value_class, make = reader
    read_key = parse(key_class, 0, key[2:])
    read_value = None
    if value is not None:
        version = int.from_bytes(value[:2], "big", signed=True)
        if len(value) < 2 or version != 0:
            raise MalformedMessage(f"group record: value version {version}, expected 0")
        read_value = parse(value_class, 0, value[2:])
    return ReadRecord(read_key.group_id, make(read_key, read_value), value is None)

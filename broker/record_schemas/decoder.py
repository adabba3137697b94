"""What a decoder is, the bounds that all have, and Confluent's wire format: a 0, the schema's id, then the message."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Protocol

DECODED_BYTES = 256 * 1024  # of one key or value
DEPTH_MAX = 64  # of what is nested in each other
_PREFIX = struct.Struct(">bI")


class SchemaError(ValueError):
    """A schema that cannot be used; one line that says why."""


class DecodeError(ValueError):
    """Bytes that are not what their schema describes; one line that says why."""


class Decoded(NamedTuple):
    """A value as JSON has it, and what is to be said beside: the schema's id, fields that the schema does not have."""

    value: Any
    note: str = ""


class Decoder(Protocol):
    """Decodes keys or values by one schema. `kind` is Avro or Protobuf, `name` that of the record or message."""

    kind: str
    name: str

    def decode(self, data: bytes) -> Decoded:
        """Raises DecodeError."""
        ...


class Framed(NamedTuple):
    """A message in Confluent's wire format: the schema's id, and where the rest begins."""

    schema_id: int
    position: int


def framed(data: bytes) -> Framed | None:
    """The prefix of Confluent's wire format; None where there is none."""
    if len(data) < _PREFIX.size or data[0] != 0:
        return None
    return Framed(_PREFIX.unpack_from(data)[1], _PREFIX.size)


def check_size(data: bytes) -> None:
    """Raises DecodeError for more than is decoded."""
    if len(data) > DECODED_BYTES:
        raise DecodeError(f"it has {len(data)} bytes, and at most {DECODED_BYTES} are decoded")


def varint(data: bytes, position: int) -> tuple[int, int]:
    """A signed number of variable length (zigzag), as Avro and Confluent's message indexes have it, and the position
    after it. Raises DecodeError."""
    value = shift = 0
    while True:
        if position >= len(data):
            raise DecodeError(f"it ends at byte {position}, within a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise DecodeError(f"the number before byte {position} has more than ten bytes")
    value &= (1 << 64) - 1
    return (value >> 1) ^ -(value & 1), position

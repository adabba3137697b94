"""Errors, results and limits of all decoders, and Confluent's wire format: a zero byte, the schema id, the message."""

from __future__ import annotations

from typing import Any

from ...protocol.named import NamedTuple

DECODED_BYTES = 256 * 1024  # limit for one key or value
DEPTH_MAX = 64  # levels of nesting
PREFIX_BYTES = 5


class SchemaError(ValueError):
    """An unusable schema; the message is one line with the reason."""


class DecodeError(ValueError):
    """Bytes that do not match their schema; the message is one line with the reason."""


class Decoded(NamedTuple):
    """A decoded value in JSON types, with a note such as the schema id or the number of unknown fields."""

    value: Any
    note: str = ""


def schema_id_of(data: bytes) -> int | None:
    """Returns the schema id in the prefix of Confluent's wire format; None if there is none."""
    return int.from_bytes(data[1:PREFIX_BYTES], "big") if len(data) >= PREFIX_BYTES and data[0] == 0 else None


def check_size(data: bytes) -> None:
    """Raises DecodeError for more than DECODED_BYTES."""
    if len(data) > DECODED_BYTES:
        raise DecodeError(f"{len(data)} bytes exceed the limit of {DECODED_BYTES} for decoding")


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Reads a zigzag varint (Avro, Confluent's indexes); returns it and the position after it. Raises DecodeError."""
    value = shift = 0
    while True:
        if position >= len(data):
            raise DecodeError(f"data ends at byte {position} within a number")
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

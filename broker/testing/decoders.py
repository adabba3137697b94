"""Decodes keys and values of records for tests: as JSON, or by a function of the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ...protocol.frozen import frozen
from ..admin_api.views import OperationError, Record

Decoder = str | Callable[[bytes], Any]
"""A decoder of keys or values: "json", or a function of the bytes."""
Decode = Decoder | None
"""A decoder, or None for the bytes themselves."""

SHOWN_BYTES = 100  # of a key or value that cannot be decoded
SHOWN_LETTERS = 200  # characters of the reason


class Undecodable(OperationError):
    """A decoder refused a key or a value; one line with the partition and the offset."""


@frozen
class DecodedRecord(Record):
    """A record with decoded key and value; null stays None."""

    key: Any
    value: Any


def decoder(decode: Any) -> Callable[[bytes], Any] | None:
    """Returns the function that decodes. Raises TypeError, ValueError."""
    if decode is None or callable(decode):
        return decode
    if decode == "json":
        return json.loads
    if isinstance(decode, str):
        raise ValueError(f'decode is "json", a function of the bytes or None, not {decode!r}')
    raise TypeError(f'decode is "json", a function of the bytes or None, not {decode!r}')


def decoded(records: Sequence[Record], decode: Decode = None, decode_key: Decode = None) -> list[DecodedRecord]:
    """Returns the records with their values and keys decoded. Raises Undecodable for the first that cannot be
    decoded."""
    of_value, of_key = decoder(decode), decoder(decode_key)

    def read(one: Record) -> DecodedRecord:
        key, value = _read(of_key, one.key, one, "key"), _read(of_value, one.value, one, "value")
        return DecodedRecord(one.topic, one.partition, one.offset, one.timestamp_ms, key, value, one.headers)

    return [read(one) for one in records]


def _read(decode: Callable[[bytes], Any] | None, data: bytes | None, record: Record, what: str) -> Any:
    if decode is None or data is None:
        return data
    try:
        return decode(data)
    except Exception as error:
        shown = repr(data[:SHOWN_BYTES]) + (f"... ({len(data)} bytes)" if len(data) > SHOWN_BYTES else "")
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN_LETTERS]
        where = f"{record.topic}-{record.partition} at offset {record.offset}"
        raise Undecodable(f"the {what} of {where} cannot be decoded: {reason}; it is {shown}") from error

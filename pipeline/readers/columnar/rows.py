"""Where the records of a chunk lie: what decoding any of the three formats gives, and what the columns are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....protocol.records.batch import BatchHeader
from .varints import Int64s


@dataclass(frozen=True, slots=True)
class Spans:
    """Nullable pieces of a payload, in rising order: -1 bytes for null."""

    starts: Int64s
    sizes: Int64s


@dataclass(frozen=True, slots=True)
class HeaderSpans:
    """The headers of all records one behind the other, and how many each record has."""

    counts: Int64s
    keys: Spans
    values: Spans


@dataclass(frozen=True, slots=True)
class Rows:
    """One element per record, but for `entries`, `counts` and `crc_ok`: these have one per entry (a batch, a wrapper, a
    plain message or a run of these that differ in nothing but their records). `headers` is None where no record has
    any; a payload has less than 2 GiB. A record takes the bytes of the payload from its begin to its end. `goes_on`:
    the first entry is the last one of the rows before, which was too large to be decoded at once."""

    payload: bytes
    entries: Sequence[BatchHeader]
    crc_ok: Sequence[bool]
    counts: Int64s
    offsets: Int64s
    timestamps: Int64s
    offset_deltas: Int64s
    keys: Spans
    values: Spans
    headers: HeaderSpans | None
    begins: Int64s
    ends: Int64s
    goes_on: bool = False

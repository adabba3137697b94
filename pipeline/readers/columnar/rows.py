"""The positions of a chunk's records: the result of decoding any format, and the source of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....protocol.records.batch import BatchHeader
from .varints import Int64s


@dataclass(frozen=True, slots=True)
class Spans:
    """Nullable spans of a payload, ascending; size -1 is null."""

    starts: Int64s
    sizes: Int64s


@dataclass(frozen=True, slots=True)
class HeaderSpans:
    """The concatenated headers of all records, and the number of headers of each record."""

    counts: Int64s
    keys: Spans
    values: Spans


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of a chunk, one element per record; `entries`, `counts` and `crc_ok` have one element per entry (a
    batch, a wrapper, a plain message, or a run of messages with equal header fields). `headers` is None if no record
    has any; a payload has less than 2 GiB. A record spans the payload from `begins` to `ends`. `continues`: the first
    entry is the last one of the previous rows, since it was too large to decode at once."""

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
    continues: bool = False

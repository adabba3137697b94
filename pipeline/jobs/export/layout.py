"""How exported records lie in a folder: columns, the names of folders and files.

    FOLDER/topic=orders/partition=0/date=2026-11-21/00000000000000000000-00000000000000004711.parquet
    FOLDER/_ottla/manifest/00000000000000000001.json

Owns these names, and nothing else. The three columns of the folders are not in the files. Dates are of UTC, by the
records' timestamps; records without one lie in the folder that Hive, Spark and pyarrow take for a date of null. What
begins with `_` is no part of the table to any of them.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from ...readers.columns import EXACT_TIME, HEADERS

TIMESTAMP = pa.timestamp("ms", tz="UTC")
DELTA_TIMESTAMP = pa.timestamp("us", tz="UTC")  # the only unit that Delta has

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""The columns of the files. `timestamp` is null for -1, `timestampType` -1 for the records of v0, which have none;
`headers` is null where a record has none. A header's key may come several times, and its value may be null."""

COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
READ: tuple[str, ...] = tuple(EXACT_TIME.name if name == "timestamp" else name for name in COLUMNS)
"""What is read of a log for them."""

DECODED = "decoded"
"""The name of one more column: the decoded value, where decoding was asked for."""

PARTITIONING = pa.schema(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("date", pa.date32())]
)
"""The columns of the folders, in their order."""

OWN = "_ottla"
MANIFEST = f"{OWN}/manifest"
SETTINGS = f"{OWN}/export.json"
LOCK = f"{OWN}/lock"
UNFINISHED = f"{OWN}/unfinished"
PENDING = f"{OWN}/pending.json"

NO_DATE = "__HIVE_DEFAULT_PARTITION__"
FIRST_DAY = (date.min - date(1970, 1, 1)).days
LAST_DAY = (date.max - date(1970, 1, 1)).days
NO_DAY = FIRST_DAY - 1
"""The day of records without a timestamp, or with one outside of the years 1 to 9999, which no reader has dates for."""

DAY_MS = 86_400_000
_SUFFIX = ".parquet"
_NAME = re.compile(r"(?:g([1-9][0-9]{0,8})-)?([0-9]{20})-([0-9]{20})\.parquet")
_FOLDER = re.compile(r"topic=([^/]+)/partition=([0-9]{1,10})/date=([^/]+)")


class FileName(NamedTuple):
    """What a file's name says: its first and its last offset, and of which making of the topic (0: the first)."""

    first: int
    last: int
    generation: int = 0

    def __str__(self) -> str:
        front = f"g{self.generation}-" if self.generation else ""
        return f"{front}{self.first:020d}-{self.last:020d}{_SUFFIX}"


class Place(NamedTuple):
    """What a folder's name says. `day` counts from 1970-01-01 on; NO_DAY: no date."""

    topic: str
    partition: int
    day: int

    @property
    def date(self) -> str | None:
        """As in the folder's name; None for no date."""
        return None if self.day == NO_DAY else (date(1970, 1, 1) + timedelta(self.day)).isoformat()

    def __str__(self) -> str:
        return f"topic={quote(self.topic, safe='')}/partition={self.partition}/date={self.date or NO_DATE}"


def schema(decoded: pa.DataType | None = None, *, timestamp: pa.DataType = TIMESTAMP) -> pa.Schema:
    """The columns of files, with the decoded values if these have a type."""
    fields = [field.with_type(timestamp) if field.name == "timestamp" else field for field in SCHEMA]
    return pa.schema(fields + ([pa.field(DECODED, decoded)] if decoded is not None else []))


def file_name(name: str) -> FileName | None:
    """What the name of a file says; None if it is none of an export's."""
    match = _NAME.fullmatch(name)
    return FileName(int(match[2]), int(match[3]), int(match[1] or 0)) if match else None


def place(folder: str) -> Place | None:
    """What the name of a folder says, relative to the export's; None if it is none of an export's."""
    match = _FOLDER.fullmatch(folder)
    if not match:
        return None
    try:
        day = NO_DAY if match[3] == NO_DATE else (date.fromisoformat(match[3]) - date(1970, 1, 1)).days
    except ValueError:
        return None
    return Place(unquote(match[1]), int(match[2]), day)


def days(times_ms: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The day of each timestamp (epoch milliseconds; -1: none)."""
    found = times_ms // DAY_MS
    unknown = (times_ms == -1) | (found < FIRST_DAY) | (found > LAST_DAY)
    if unknown.any():
        found[unknown] = NO_DAY
    return found

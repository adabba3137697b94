"""The layout of an export folder: columns, and names of folders and files.

    FOLDER/topic=orders/partition=0/date=2026-11-21/00000000000000000000-00000000000000004711.parquet
    FOLDER/_ottla/manifest/00000000000000000001.json

Owns only these names. The three columns in folder names are not in the files. Dates are in UTC, by the records'
timestamps; records without a timestamp are in the folder that Hive, Spark and pyarrow read as a null date. All of them
ignore names that begin with `_`.
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
TABLE_TIMESTAMP = pa.timestamp("us", tz="UTC")  # the only timestamp unit of Delta, and of Iceberg before v3

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
"""The columns of the files. `timestamp` is null for -1; `timestampType` is -1 for v0 records, which have none;
`headers` is null without headers. A header's key may be repeated, and its value may be null."""

COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
READ: tuple[str, ...] = tuple(EXACT_TIME.name if name == "timestamp" else name for name in COLUMNS)
"""The columns that are read from a log for them."""

DECODED = "decoded"
"""The name of the additional column with decoded values."""

DECODED_KEY = "decodedKey"
DEAD_LETTER = "deadLetter"
DEAD_LETTER_KEY = "deadLetterKey"
DEAD_LETTER_TYPE = pa.struct([("value", pa.binary()), ("error", pa.string())])
"""The columns of values and of keys that did not decode, if requested: their bytes, and the problem in words."""

PARTITIONING = pa.schema(
    [pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("date", pa.date32())]
)
"""The columns in folder names, in order."""

OWN = "_ottla"
MANIFEST = f"{OWN}/manifest"
SETTINGS = f"{OWN}/export.json"
LOCK = f"{OWN}/lock"
UNFINISHED = f"{OWN}/unfinished"
PENDING = f"{OWN}/pending.json"
CATALOG = f"{OWN}/catalog.db"

NO_DATE = "__HIVE_DEFAULT_PARTITION__"
_EPOCH = date(1970, 1, 1)
FIRST_DAY = (date.min - _EPOCH).days
LAST_DAY = (date.max - _EPOCH).days
NO_DAY = FIRST_DAY - 1
"""The day of records without a timestamp, or with one outside the years 1 to 9999, which no reader supports."""

DAY_MS = 86_400_000
_SUFFIX = ".parquet"
_NAME = re.compile(r"(?:g([1-9][0-9]{0,8})-)?([0-9]{20})-([0-9]{20})\.parquet")
_FOLDER = re.compile(r"topic=([^/]+)/partition=([0-9]{1,10})/date=([^/]+)")


class FileName(NamedTuple):
    """The parts of a file name: first and last offset, and the generation of the topic (0: the first)."""

    first: int
    last: int
    generation: int = 0

    def __str__(self) -> str:
        front = f"g{self.generation}-" if self.generation else ""
        return f"{front}{self.first:020d}-{self.last:020d}{_SUFFIX}"


class Place(NamedTuple):
    """The parts of a folder name. `day` counts from 1970-01-01; NO_DAY: no date."""

    topic: str
    partition: int
    day: int

    @property
    def date(self) -> str | None:
        """The date as in the folder name; None without one."""
        found = date_of(self.day)
        return None if found is None else found.isoformat()

    def __str__(self) -> str:
        return f"topic={quote(self.topic, safe='')}/partition={self.partition}/date={self.date or NO_DATE}"


def file_name(name: str) -> FileName | None:
    """Parses the name of a file; None if it is not from an export."""
    match = _NAME.fullmatch(name)
    return FileName(int(match[2]), int(match[3]), int(match[1] or 0)) if match else None


def place(folder: str) -> Place | None:
    """Parses the name of a folder, relative to the export folder; None if it is not from an export."""
    match = _FOLDER.fullmatch(folder)
    if not match:
        return None
    try:
        day = day_of(None if match[3] == NO_DATE else match[3])
    except ValueError:
        return None
    return Place(unquote(match[1]), int(match[2]), day)


def date_of(day: int) -> date | None:
    """Returns the date of a day; None for NO_DAY."""
    return None if day == NO_DAY else _EPOCH + timedelta(day)


def day_of(given: date | str | None) -> int:
    """Returns the day of a date, also in ISO form; NO_DAY for None. Raises ValueError."""
    if given is None:
        return NO_DAY
    return ((date.fromisoformat(given) if isinstance(given, str) else given) - _EPOCH).days


def days(times_ms: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns the day of each timestamp (epoch milliseconds; -1: none)."""
    found = times_ms // DAY_MS
    unknown = (times_ms == -1) | (found < FIRST_DAY) | (found > LAST_DAY)
    if unknown.any():
        found[unknown] = NO_DAY
    return found

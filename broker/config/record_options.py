"""Options of a recording, validated before anything is imported or opened.

Owns the file name extensions: `.jsonl`, `.ndjson`, `.json` for JSON lines, `.pcapng`, `.pcap` for a Wireshark capture.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from ...protocol.frozen import frozen

MAX_BYTES = 1 << 30
FORMER = ".1"  # suffix of a ring's older file
LEAST_BYTES = 64 << 10


class Format(StrEnum):
    """File formats of recordings."""

    JSON = "json"
    PCAPNG = "pcapng"


ENDINGS = {
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".json": Format.JSON,
    ".pcapng": Format.PCAPNG,
    ".pcap": Format.PCAPNG,
}


class RecordError(ValueError):
    """An impossible recording; the message is one line."""


@frozen
class RecordOptions:
    """What to record, and where. Raises RecordError for options that are invalid whatever is on the disk.

    The recording ends at `max_bytes`; with `ring` it drops the oldest exchanges instead, and keeps at least half of
    that size. Without `contents`, keys, values and header values of records are left out.
    """

    path: str
    max_bytes: int = MAX_BYTES
    ring: bool = False
    contents: bool = True

    def __post_init__(self) -> None:
        format_of(self.path)
        if self.max_bytes < LEAST_BYTES:
            raise RecordError(f"a recording of {self.max_bytes} bytes is too small: the minimum is {LEAST_BYTES}")

    @property
    def file_bytes_max(self) -> int:
        """Size limit of one file; a ring has two."""
        return self.max_bytes // 2 if self.ring else self.max_bytes

    @property
    def format(self) -> Format:
        """The file format, by extension."""
        return format_of(self.path)


def format_of(path: str) -> Format:
    """Returns the format of a file, by extension. Raises RecordError."""
    found = ENDINGS.get(Path(path).suffix.lower())
    if found is None:
        raise RecordError(f"{path}: expected a file name that ends with .jsonl, .ndjson, .json, .pcapng or .pcap")
    return found

"""What is to be recorded, and where to: checked before anything else is imported, or touched.

Owns names and endings. `.jsonl`, `.ndjson` and `.json` are JSON lines, `.pcapng` and `.pcap` a capture for Wireshark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MAX_BYTES = 1 << 30
FORMER = ".1"  # of a ring's older file
LEAST_BYTES = 64 << 10


class Format(StrEnum):
    """The kinds of files."""

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
    """There can be no such recording; one line."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What is to be recorded, and where to. Raises RecordError for what cannot be, as far as that shows without
    looking at the disk.

    At `max_bytes` it ends, or, with `ring`, what is oldest goes: then it keeps the newest, at least half of that.
    Without `contents` the keys and values of records, and the values of their headers, are left out.
    """

    path: str
    max_bytes: int = MAX_BYTES
    ring: bool = False
    contents: bool = True

    def __post_init__(self) -> None:
        format_of(self.path)
        if self.max_bytes < LEAST_BYTES:
            raise RecordError(f"a recording of {self.max_bytes} bytes: the least is {LEAST_BYTES}")

    @property
    def file_bytes_max(self) -> int:
        """The limit of one file; a ring has two."""
        return self.max_bytes // 2 if self.ring else self.max_bytes

    @property
    def format(self) -> Format:
        """By the ending."""
        return format_of(self.path)


def format_of(path: str) -> Format:
    """Which kind a file is, by its ending. Raises RecordError."""
    found = ENDINGS.get(Path(path).suffix.lower())
    if found is None:
        raise RecordError(f"{path}: a recording's name ends in .jsonl (or .ndjson, .json) or .pcapng (or .pcap)")
    return found

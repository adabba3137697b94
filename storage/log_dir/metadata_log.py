"""Reads the record values in a folder of the metadata log without disturbing a broker.

The values of the newest snapshot come first, then those of the log after it.
`protocol/internal_records/metadata_values.py` decodes them. Unreadable values are skipped: a broker may be writing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ...protocol.records import formats
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from .. import inspect
from ..errors import StorageError
from ..io.files import Files

SNAPSHOT_SUFFIX = ".checkpoint"
"""The suffix of metadata log snapshots, which contain batches like a segment."""


def values(folder: inspect.PartitionFolder, files: Files = inspect.INSPECTION_FILES) -> Iterator[bytes]:
    """Yields the values of the newest snapshot, then those of the log after it."""
    snapshots: list[str] = []
    with contextlib.suppress(OSError):
        snapshots = sorted(name for name in files.list(folder.path) if name.endswith(SNAPSHOT_SUFFIX))
    start = 0
    if snapshots and snapshots[-1][:20].isdigit():
        start = int(snapshots[-1][:20])
        yield from _values(os.path.join(folder.path, snapshots[-1]), 0, files)
    for segment in folder.segments:
        yield from _values(segment.path, start, files)


def _values(path: str, start: int, files: Files) -> Iterator[bytes]:
    """Yields the values at or above an offset, in order."""
    with contextlib.suppress(StorageError, OSError), inspect.FileSource(path, files) as source:
        for found in inspect.entries(source):
            if isinstance(found, inspect.Damage) or found.crc_ok is False:
                continue
            if found.header.is_control or found.last_offset < start:
                continue
            if found.size_bytes > inspect.ENTRY_BYTES_MAX:
                continue
            with contextlib.suppress(CorruptRecords, InvalidRecords, UnsupportedCodec):
                for record in formats.records(source.read(found.position, found.size_bytes)):
                    if record.value is not None and record.offset >= start:
                        yield record.value

"""Reads the record values in the metadata log of a data directory without disturbing a broker.

The values of the newest snapshot come first, then those of the log after it.
`protocol/internal_records/metadata_values.py` decodes them. Unreadable values are skipped: a broker may be writing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from .. import inspect
from ..errors import StorageError
from ..format.file_names import METADATA_TOPIC
from ..io.files import Files

SNAPSHOT_SUFFIX = ".checkpoint"
"""The suffix of metadata log snapshots, which contain batches like a segment."""


def values(root: str, files: Files = inspect.INSPECTION_FILES) -> Iterator[bytes] | None:
    """Yields the values of the newest snapshot, then those of the log after it; None without the log, as with
    ZooKeeper. Raises StorageError if its folder cannot be listed."""
    folder = inspect.partition_folder(os.path.join(root, f"{METADATA_TOPIC}-0"), files)
    return None if folder is None else _all_values(folder, files)


def _all_values(folder: inspect.PartitionFolder, files: Files) -> Iterator[bytes]:
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
    with contextlib.suppress(StorageError, OSError):
        for record in inspect.sound_records(path, files, start):
            if record.value is not None and record.offset >= start:
                yield record.value

"""Reads and writes Apache Kafka's checkpoint text files.

    0            version
    2            number of entries
    orders 0 17  one entry per line

The four files of a data directory have `topic partition offset` entries, `leader-epoch-checkpoint` has `epoch
start_offset`. They are replaced whole (new file, sync, rename). An empty file has no entries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ..errors import StorageError, storage_errors
from ..io.files import Files, write_atomically

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
REPLICATION_OFFSET = "replication-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"
OF_DIRECTORY = (RECOVERY_POINT, LOG_START_OFFSET, REPLICATION_OFFSET, CLEANER_OFFSET)
LEADER_EPOCH = "leader-epoch-checkpoint"

TopicPartition = tuple[str, int]
E = TypeVar("E")


def _entries(files: Files, path: str, fields: int, entry_of: Callable[[list[str]], E]) -> list[E]:
    """Returns the entries of a file, each made of its fields; none if the file is missing."""
    data = b""
    with storage_errors(f"cannot read {path}"), contextlib.suppress(FileNotFoundError):
        data = files.read_bytes(path)
    try:
        if not data:
            return []
        if data[-1:] != b"\n":  # the last number may be incomplete
            raise ValueError("the last line is cut")
        lines = data.decode().splitlines()
        version, count, entries = int(lines[0]), int(lines[1]), [line.split() for line in lines[2:] if line.strip()]
        if version != 0:
            raise ValueError(f"version {version}")
        if count != len(entries):
            raise ValueError(f"{count} entries announced, {len(entries)} found")
        if any(len(entry) != fields for entry in entries):
            raise ValueError(f"an entry does not have {fields} fields")
        return list(map(entry_of, entries))
    except (ValueError, IndexError) as error:
        raise StorageError(f"malformed checkpoint {path}: {error}") from error


def _write(files: Files, path: str, entries: Sequence[str], sync: bool) -> None:
    text = "\n".join(["0", str(len(entries)), *entries]) + "\n"
    with storage_errors(f"cannot write {path}"):
        write_atomically(files, path, text.encode(), sync=sync)


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Returns the offsets of a directory-level checkpoint; empty if the file is missing. Raises StorageError if it is
    malformed."""
    return dict(_entries(files, path, 3, lambda entry: ((entry[0], int(entry[1])), int(entry[2]))))


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces a directory-level checkpoint, durably."""
    entries = [f"{topic} {partition} {offsets[topic, partition]}" for topic, partition in sorted(offsets)]
    _write(files, path, entries, True)


def read_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    """Returns the (epoch, start offset) pairs of a leader-epoch-checkpoint, in the order of the file. Raises
    StorageError if it is malformed."""
    return _entries(files, path, 2, lambda entry: (int(entry[0]), int(entry[1])))


def write_epochs(files: Files, path: str, epochs: Sequence[tuple[int, int]]) -> None:
    """Replaces a leader-epoch-checkpoint, without a sync: recovery can read the epochs from the batches."""
    _write(files, path, [f"{epoch} {start}" for epoch, start in epochs], False)

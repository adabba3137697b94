"""Reads and writes Apache Kafka's checkpoint text files.

    0            version
    2            number of entries
    orders 0 17  one entry per line

The four files of a data directory have `topic partition offset` entries, `leader-epoch-checkpoint` has `epoch
start_offset`. They are replaced whole (new file, sync, rename). An empty file has no entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import StorageError
from ..io.files import Files, write_atomically

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
REPLICATION_OFFSET = "replication-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"
LEADER_EPOCH = "leader-epoch-checkpoint"

TopicPartition = tuple[str, int]


def _entries(data: bytes, path: str, fields: int) -> list[list[str]]:
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
    except (ValueError, IndexError) as error:
        raise StorageError(f"malformed checkpoint {path}: {error}") from error
    return entries


def _read(files: Files, path: str) -> bytes:
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error}") from error


def _write(files: Files, path: str, entries: Sequence[str], sync: bool) -> None:
    text = "\n".join(["0", str(len(entries)), *entries]) + "\n"
    try:
        write_atomically(files, path, text.encode(), sync=sync)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error}") from error


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Returns the offsets of a directory-level checkpoint; empty if the file is missing. Raises StorageError if it is
    malformed."""
    try:
        return {
            (topic, int(partition)): int(offset) for topic, partition, offset in _entries(_read(files, path), path, 3)
        }
    except ValueError as error:
        raise StorageError(f"malformed checkpoint {path}: {error}") from error


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces a directory-level checkpoint, durably."""
    entries = [f"{topic} {partition} {offsets[topic, partition]}" for topic, partition in sorted(offsets)]
    _write(files, path, entries, True)


def read_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    """Returns the (epoch, start offset) pairs of a leader-epoch-checkpoint, in the order of the file. Raises
    StorageError if it is malformed."""
    try:
        return [(int(epoch), int(start)) for epoch, start in _entries(_read(files, path), path, 2)]
    except ValueError as error:
        raise StorageError(f"malformed checkpoint {path}: {error}") from error


def write_epochs(files: Files, path: str, epochs: Sequence[tuple[int, int]]) -> None:
    """Replaces a leader-epoch-checkpoint, without a sync: recovery can read the epochs from the batches."""
    _write(files, path, [f"{epoch} {start}" for epoch, start in epochs], False)

"""The file `.ottla-closed`: the state of each log at a clean shutdown, by which the next start detects lost or changed
files.

    0                                    version
    2                                    number of logs
    orders 0 3 60 0:4200:0 41:1800:34    topic, partition, log start, log end; of each segment its base offset, and
                                         the bytes of its log and of its transaction index
    crc32c 1a2b3c4d                      of all bytes before this line

The file is valid only with Ottla's own clean shutdown marker: another broker on the directory, such as Apache Kafka,
leaves another marker. A start on the directory, and a job that changes closed logs in it, removes the file. It is not
part of any log: without it a start checks less.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping

from ...protocol.named import NamedTuple
from ...protocol.records.checksum import crc32c
from ..errors import StorageError
from ..io.files import Files, write_atomically

FILE_NAME = ".ottla-closed"
_TopicPartition = tuple[str, int]
_LAST_LINE = re.compile(rb"crc32c ([0-9a-f]{8})\n")


class ClosedLog(NamedTuple):
    """The state of a log when it was closed. `segments` are (bytes of the log, bytes of the transaction index) by base
    offset."""

    log_start_offset: int
    log_end_offset: int
    segments: Mapping[int, tuple[int, int]]


def write(files: Files, root: str, logs: Mapping[_TopicPartition, ClosedLog]) -> None:
    """Writes the file; its name is durable with the next sync of the directory. Raises OSError."""
    lines = ["0", str(len(logs))]
    for (topic, partition), log in sorted(logs.items()):
        segments = " ".join(f"{base}:{size}:{aborted}" for base, (size, aborted) in sorted(log.segments.items()))
        lines.append(f"{topic} {partition} {log.log_start_offset} {log.log_end_offset} {segments}")
    data = ("\n".join(lines) + "\n").encode()
    data += b"crc32c %08x\n" % crc32c(data)
    write_atomically(files, os.path.join(root, FILE_NAME), data, sync_directory=False)


def read(files: Files, root: str) -> dict[_TopicPartition, ClosedLog]:
    """Returns the logs in the file; none if it is missing. Raises StorageError for a damaged file, and OSError."""
    path = os.path.join(root, FILE_NAME)
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return {}
    body, last = data[:-16], _LAST_LINE.fullmatch(data[-16:])
    if last is None or int(last[1], 16) != crc32c(body):
        raise StorageError(f"malformed {path}: its CRC does not match")
    found: dict[_TopicPartition, ClosedLog] = {}
    try:
        version, _, *lines = body.decode().splitlines()
        if version != "0":
            return {}
        for line in lines:
            topic, partition, start, end, *segments = line.split()
            numbers = (map(int, segment.split(":")) for segment in segments)
            sizes = {base: (size, aborted) for base, size, aborted in numbers}
            found[topic, int(partition)] = ClosedLog(int(start), int(end), sizes)
    except ValueError as error:
        raise StorageError(f"malformed {path}: {error}") from error
    return found


def discard(files: Files, root: str) -> None:
    """Removes the file, if it exists. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        files.remove(os.path.join(root, FILE_NAME))

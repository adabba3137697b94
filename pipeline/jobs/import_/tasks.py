"""A piece of a partition as segments: what a task writes, and checks, before anything gets a name that counts.

Owns the writing. The log is the storage engine's own as a follower writes it, with offsets as they are, so rolls,
indexes, epochs and snapshots are what a broker, ours or Apache Kafka's, would have left; what it is given are batches
that were encoded together. Raises ReadError.

Records are of format v2 with the times that the producers gave: which of them a broker gave is told by a file's
`timestampType`, and not kept. A record without a time, as all of format v0, has -1 there too: a consumer is told that
there is none, and retention goes by the file, as before.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from typing import NamedTuple

from ....storage.check.directory import Verification
from ....storage.config import LogConfig
from ....storage.errors import StorageError
from ....storage.follower_log import FollowerLog
from ....storage.format.file_names import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_BYTES
from ....storage.io.files import DiskFiles, Files, write_atomically
from ....storage.log.recovery import LogCheckpoints
from ....storage.partition_log import TopicIdPartition
from ...backend import ReadError
from ...readers.columnar import EncodeOptions, encode
from .plan import Piece

SEGMENT_BYTES = 1 << 30
DONE = "written.json"
"""Beside the folder of a piece once that is whole, checked and durable."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How segments are written: Kafka's defaults. `leader_epoch` is that of the batches."""

    codec: int = 0
    level: int | None = None
    segment_bytes: int = SEGMENT_BYTES
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 << 20
    batch_bytes: int = 256 << 10
    leader_epoch: int = 0


class Written(NamedTuple):
    """What a piece has become."""

    records: int
    bytes: int
    segments: int
    first: int
    end: int


class Work(NamedTuple):
    """A piece, and where to. `folder` is the task's own; the partition's lies within, as in a data directory."""

    piece: Piece
    folder: str
    topic_id: bytes
    layout: Layout
    now_ms: int

    def __str__(self) -> str:
        return str(self.piece)


def write(work: Work, files: Files | None = None) -> Written:
    """Writes a piece into a folder of its own, which gets its name when it is whole, checked and durable; or tells what
    an earlier run has written. ReadError.

    Two that write the same, as when a worker goes on that is given up, do not meet.
    """
    files = files or DiskFiles()
    try:
        done = read_done(files, work.folder)
        if done is not None:
            return done
        attempt = f"{work.folder}.{uuid.uuid4().hex[:12]}"
        log_folder = os.path.join(attempt, f"{work.piece.topic}-{work.piece.partition}")
        files.make_directory(log_folder)
        written = _write(work, log_folder, files)
        # So that the look takes it for what it is: all is there.
        write_atomically(files, os.path.join(attempt, CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_BYTES)
        _check(work, attempt, files)
        write_atomically(files, os.path.join(attempt, DONE), json.dumps(written._asdict()).encode())
        files.sync_directory(log_folder)
        try:
            files.replace(attempt, work.folder)
        except OSError:
            if read_done(files, work.folder) is None:
                raise
            remove_tree(files, attempt)  # another was first
        files.sync_directory(os.path.dirname(work.folder))
        return written
    except (StorageError, ValueError) as error:
        raise ReadError(f"{work.piece} cannot be written: {error}") from error
    except OSError as error:
        raise ReadError(f"cannot write into {work.folder}: {error.strerror or error}") from error


def _write(work: Work, folder: str, files: Files) -> Written:
    piece, layout = work.piece, work.layout
    config = LogConfig(
        segment_bytes=layout.segment_bytes,
        segment_ms=layout.segment_ms,
        index_interval_bytes=layout.index_interval_bytes,
        segment_index_bytes=layout.segment_index_bytes,
    )
    log = FollowerLog.open(
        files,
        folder,
        TopicIdPartition(piece.topic, piece.partition, work.topic_id),
        config=config,
        now_ms=work.now_ms,
        checkpoints=LogCheckpoints(clean_shutdown=True),
    )
    try:
        log.begin_at(piece.first, work.now_ms)
        options = EncodeOptions(
            codec=layout.codec,
            level=layout.level,
            batch_bytes=min(layout.batch_bytes, layout.segment_bytes // 2),
            leader_epoch=layout.leader_epoch,
        )
        records = 0
        for rows in piece.read():
            for data in encode(rows, options):
                log.append_fetched(data, now_ms=work.now_ms)
            records += rows.num_rows
        if (records, log.log_end_offset) != (piece.rows, piece.last + 1):
            raise ReadError(f"{piece}: its files hold {records} rows now, where they held {piece.rows}")
        size, end = log.size_bytes, log.log_end_offset
        log.close()
    except BaseException:
        log.abandon()
        raise
    segments = sum(name.endswith(".log") for name in files.list(folder))
    return Written(records, size, segments, piece.first, end)


def _check(work: Work, folder: str, files: Files) -> None:
    """Reads all that was written once more. ReadError."""
    for finding in Verification(folder, files=files).findings():
        if finding.wrong:
            raise ReadError(f"{work.piece} was written, and is not as it must be: {finding.file}: {finding.what}")


def read_done(files: Files, folder: str) -> Written | None:
    """What a piece has become, if it is whole there."""
    try:
        told = json.loads(files.read_bytes(os.path.join(folder, DONE)))
        return Written(**told)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        return None


def remove_tree(files: Files, path: str) -> None:
    """Removes a folder with all that is in it; nothing happens if it is not there. OSError."""
    try:
        names = files.list(path)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        files.remove(path)
        return
    for name in sorted(names, key=lambda name: name != DONE):  # what says that it is whole goes first
        remove_tree(files, os.path.join(path, name))
    files.remove_directory(path)

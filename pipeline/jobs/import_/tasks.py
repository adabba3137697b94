"""Writes a piece of a partition as segments, and verifies it before it gets its final name: the work of a task.

Owns the writing. The log is that of the storage engine in a follower, with given offsets, so rolls, indexes, epochs and
snapshots are those that a broker, Ottla or Apache Kafka, would have left; its input are batches that were encoded
together. Raises ReadError.

Records have format v2 and CreateTime; a file's `timestampType` LogAppendTime is not kept. A record without a timestamp,
as all of format v0, keeps -1: consumers get no timestamp, and retention uses the time of the file, as before.
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
from ....storage.io import folder_copies
from ....storage.io.files import DiskFiles, Files, write_atomically
from ....storage.log.recovery import LogCheckpoints
from ....storage.partition_log import TopicIdPartition
from ...backend import ReadError
from ...readers.columnar import EncodeOptions, encode
from .plan import Piece

SEGMENT_BYTES = 1 << 30
DONE = "written.json"
"""Written beside the folder of a piece once that is complete, verified and durable."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of segments, with Kafka's defaults. `leader_epoch` is that of the batches."""

    codec: int = 0
    segment_bytes: int = SEGMENT_BYTES
    index_interval_bytes: int = 4096
    batch_bytes: int = 256 << 10
    leader_epoch: int = 0


class Written(NamedTuple):
    """The facts of a written piece."""

    records: int
    bytes: int
    segments: int
    first: int
    end: int


class Work(NamedTuple):
    """A piece, and its target. `folder` belongs to the task; the partition's folder is in it, as in a data
    directory."""

    piece: Piece
    folder: str
    topic_id: bytes
    layout: Layout
    now_ms: int

    def __str__(self) -> str:
        return str(self.piece)


def write(work: Work, files: Files | None = None) -> Written:
    """Writes a piece to a folder of its own, which gets its final name once it is complete, verified and durable; or
    returns the facts of an earlier run. Raises ReadError. Concurrent attempts, such as one of an abandoned worker, do
    not disturb each other."""
    files = files or DiskFiles()
    try:
        done = read_done(files, work.folder)
        if done is not None:
            return done
        attempt = f"{work.folder}.{uuid.uuid4().hex[:12]}"
        log_folder = os.path.join(attempt, f"{work.piece.topic}-{work.piece.partition}")
        files.make_directory(log_folder)
        written = _write(work, log_folder, files)
        # the verification then expects complete logs
        write_atomically(files, os.path.join(attempt, CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_BYTES)
        for finding in Verification(attempt, files=files).findings():
            if finding.wrong:
                raise ReadError(f"{work.piece} failed its verification: {finding.file}: {finding.what}")
        write_atomically(files, os.path.join(attempt, DONE), json.dumps(written._asdict()).encode())
        files.sync_directory(log_folder)
        try:
            files.replace(attempt, work.folder)
        except OSError:
            if read_done(files, work.folder) is None:
                raise
            folder_copies.remove_tree(files, attempt)  # another attempt was first
        files.sync_directory(os.path.dirname(work.folder))
        return written
    except (StorageError, ValueError) as error:
        raise ReadError(f"{work.piece} cannot be written: {error}") from error
    except OSError as error:
        raise ReadError(f"cannot write to {work.folder}: {error.strerror or error}") from error


def _write(work: Work, folder: str, files: Files) -> Written:
    piece, layout = work.piece, work.layout
    config = LogConfig(segment_bytes=layout.segment_bytes, index_interval_bytes=layout.index_interval_bytes)
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
            batch_bytes=min(layout.batch_bytes, layout.segment_bytes // 2),
            leader_epoch=layout.leader_epoch,
        )
        records = 0
        for rows in piece.read():
            for data in encode(rows, options):
                log.append_fetched(data, now_ms=work.now_ms)
            records += rows.num_rows
        if (records, log.log_end_offset) != (piece.rows, piece.last + 1):
            raise ReadError(f"{piece}: its files now have {records} rows instead of {piece.rows}")
        size, end = log.size_bytes, log.log_end_offset
        log.close()
    except BaseException:
        log.abandon()
        raise
    segments = sum(name.endswith(".log") for name in files.list(folder))
    return Written(records, size, segments, piece.first, end)


def read_done(files: Files, folder: str) -> Written | None:
    """Returns the facts of a complete piece, or None."""
    try:
        return Written(**json.loads(files.read_bytes(os.path.join(folder, DONE))))
    except (FileNotFoundError, ValueError, TypeError):
        return None

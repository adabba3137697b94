"""The staging folder beside a data directory, in which its new partitions are built, also across runs.

    .<name of the data directory>.ottla-import/
        plan.json                 the identity of the import, and the ids of the topics
        pieces/<name>/            a complete piece: <topic>-<partition>/, written.json
        pieces/<name>.<hex>/      an incomplete piece
        data/<topic>-<partition>/ complete partitions, in the layout of a data directory
        whole.json                the facts of these
        adding.json               partitions that are being moved to the data directory, with their identity

Owns these names and every step until `data` is complete. The folder is on the same file system, so that a partition is
moved by a rename. Every step can be repeated. Raises ReadError.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....storage import inspect
from ....storage.format import checkpoint
from ....storage.format.file_names import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_BYTES, LOCK
from ....storage.io.files import Files, write_atomically
from ....storage.io.folder_copies import remove_tree
from ....storage.log_dir.directory import new_id
from ....storage.producers.snapshot import SUFFIX as SNAPSHOT
from ....storage.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from ...backend import ReadError, TopicPartition, as_read_error
from .plan import Piece
from .tasks import Layout, Work, Written, read_done

PLAN = "plan.json"
ADDING = "adding.json"
WHOLE = "whole.json"
PIECES = "pieces"
DATA = "data"
SUFFIX = ".ottla-import"
_OF_SEGMENTS = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT)


def staging_path(target: str) -> str:
    """Returns the path of the staging folder of a data directory."""
    folder, name = os.path.split(os.path.abspath(target))
    return os.path.join(folder, f".{name}{SUFFIX}")


@dataclass
class Staging:
    """The staging folder, see the module. Made by `staged`."""

    files: Files
    path: str
    ids: dict[str, bytes]
    taken_over: int = 0
    is_new: bool = False

    @property
    def data(self) -> str:
        return os.path.join(self.path, DATA)

    def work(self, pieces: Sequence[Piece], layout: Layout, now_ms: int) -> list[Work]:
        """Returns the work for the pieces of partitions that are not complete in `data` yet."""
        return [
            Work(piece, self._folder(piece), self.ids[piece.topic], layout, now_ms)
            for piece in pieces
            if not self.files.exists(os.path.join(self.data, str(piece.key)))
        ]

    def names(self) -> list[str]:
        """Returns the complete partitions."""
        there = self.files.list(self.data) if self.files.exists(self.data) else []
        return sorted(name for name in there if inspect.partition_of(name) is not None)

    def _folder(self, piece: Piece) -> str:
        name = hashlib.sha256(f"{piece.key} {piece.number}".encode()).hexdigest()[:16]
        return os.path.join(self.path, PIECES, name)

    def assemble(self, pieces: Sequence[Piece]) -> dict[TopicPartition, Written]:
        """Joins the written pieces to partitions, and returns the facts of each. Raises ReadError."""
        by_key: dict[TopicPartition, list[str]] = {}
        for piece in pieces:
            by_key.setdefault(piece.key, []).append(self._folder(piece))
        self.files.make_directory(self.data)
        whole = self.read_whole()
        for key, folders in by_key.items():
            place = os.path.join(self.data, str(key))
            if not self.files.exists(place):
                whole[key] = self._join(key, folders)
                document = [[*key, facts] for key, facts in whole.items()]
                write_atomically(self.files, os.path.join(self.path, WHOLE), json.dumps(document).encode())
                self.files.replace(os.path.join(folders[0], str(key)), place)
        self.files.sync_directory(self.data)
        self.files.sync_directory(self.path)
        remove_tree(self.files, os.path.join(self.path, PIECES))
        self.files.make_directory(os.path.join(self.path, PIECES))
        self._finish(whole)
        return {key: whole[key] for key in by_key}

    def _join(self, key: TopicPartition, folders: Sequence[str]) -> Written:
        """Joins the pieces of one partition in the folder of the first one. Can be repeated after an interruption:
        files that were moved are missing in the other folders."""
        parts = [read_done(self.files, folder) for folder in folders]
        first = os.path.join(folders[0], str(key))
        for folder in folders[1:]:
            source = os.path.join(folder, str(key))
            for name in sorted(self.files.list(source)):
                if name.endswith(_OF_SEGMENTS):
                    self.files.replace(os.path.join(source, name), os.path.join(first, name))
        if len(folders) > 1:
            self._forget_snapshots(first)
            self.files.sync_directory(first)
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            raise ReadError(
                f"{self.path}: a piece of {key} is missing: the workers must see the same files as the driver"
            )
        return Written(
            sum(part.records for part in known),
            sum(part.bytes for part in known),
            sum(part.segments for part in known),
            known[0].first,
            known[-1].end,
        )

    def _forget_snapshots(self, folder: str) -> None:
        """Removes producer snapshots at the end of a piece where no segment begins. They have no producers."""
        names = self.files.list(folder)
        bases = {name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)}
        newest = max((name for name in names if name.endswith(SNAPSHOT)), default="")
        for name in names:
            if name.endswith(SNAPSHOT) and name != newest and name.removesuffix(SNAPSHOT) not in bases:
                self.files.remove(os.path.join(folder, name))

    def read_whole(self) -> dict[TopicPartition, Written]:
        """Returns the partitions that were complete here, wherever they are now."""
        document = _read_json(self.files, os.path.join(self.path, WHOLE))
        if not isinstance(document, list):
            return {}
        return {TopicPartition(topic, partition): Written(*facts) for topic, partition, facts in document}

    def _finish(self, whole: Mapping[TopicPartition, Written]) -> None:
        """Writes the checkpoints and the clean shutdown marker for the partitions: the next owner then needs no
        recovery."""
        offsets = {(key.topic, key.partition): facts.end for key, facts in whole.items()}
        for name in (checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET):
            checkpoint.write_offsets(self.files, os.path.join(self.data, name), offsets)
        write_atomically(self.files, os.path.join(self.data, CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_BYTES)

    # -- the move to the data directory

    def read_adding(self) -> dict[str, list[int]] | None:
        """Returns {folder: identity} of a run that had begun to move partitions, or None."""
        found = _read_json(self.files, os.path.join(self.path, ADDING))
        return found if isinstance(found, dict) else None

    def note_adding(self, names: Sequence[str]) -> None:
        """Records, durably, which partitions are moved to the data directory now."""
        known = {name: identity_of(os.path.join(self.data, name)) for name in names}
        write_atomically(self.files, os.path.join(self.path, ADDING), json.dumps(known).encode())

    def forget_adding(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.remove(os.path.join(self.path, ADDING))

    def remove(self) -> None:
        """Removes the folder after everything is in the data directory. The file that proves completion goes last."""
        self.forget_adding()
        for name in self.files.list(self.path):
            if name not in (WHOLE, PLAN, LOCK):
                remove_tree(self.files, os.path.join(self.path, name))
        remove_tree(self.files, self.path)
        self.files.sync_directory(os.path.dirname(self.path))


def identity_of(path: str) -> list[int]:
    """Returns the identity of a folder, which a rename keeps; an empty one if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_dev, status.st_ino]


@contextlib.contextmanager
def staged(files: Files, target: str, identity: str, topics: Sequence[str]) -> Iterator[Staging]:
    """Opens and locks the staging folder of a data directory for the duration of the context: the one of an earlier run
    of the same import, else a new one. Raises ReadError, also for an OSError within the context."""
    path = staging_path(target)
    with as_read_error(f"cannot work in {path}"):
        files.make_directory(path)
        try:
            lock = files.lock(os.path.join(path, LOCK))
        except BlockingIOError as error:
            raise ReadError(f"another import to {target} is running") from error
        try:
            yield _opened(files, path, target, identity, topics)
        finally:
            lock.release()


def _opened(files: Files, path: str, target: str, identity: str, topics: Sequence[str]) -> Staging:
    document = _read_json(files, os.path.join(path, PLAN))
    if isinstance(document, dict) and document.get("identity") == identity:
        ids = {topic: base64.b64decode(text) for topic, text in document["ids"].items()}
        return Staging(files, path, ids, _sweep(files, path))
    if isinstance(_read_json(files, os.path.join(path, ADDING)), dict):
        raise ReadError(
            f"another import to {target} was interrupted while it added topics ({path}): run that one again first"
        )
    with contextlib.suppress(FileNotFoundError):
        files.remove(os.path.join(path, PLAN))  # first: what is left of the others then belongs to no import
        files.sync_directory(path)
    for name in files.list(path):
        if name != LOCK:
            remove_tree(files, os.path.join(path, name))
    ids = {topic: new_id() for topic in topics}
    document = {"identity": identity, "ids": {topic: base64.b64encode(of).decode() for topic, of in ids.items()}}
    files.make_directory(os.path.join(path, PIECES))
    write_atomically(files, os.path.join(path, PLAN), json.dumps(document).encode())
    files.sync_directory(os.path.dirname(path))
    return Staging(files, path, ids, is_new=True)


def _sweep(files: Files, path: str) -> int:
    """Removes incomplete pieces. Returns the number of complete ones."""
    folder = os.path.join(path, PIECES)
    files.make_directory(folder)
    whole = 0
    for name in files.list(folder):
        if "." not in name and read_done(files, os.path.join(folder, name)) is not None:
            whole += 1
        else:
            remove_tree(files, os.path.join(folder, name))
    return whole


def _read_json(files: Files, path: str) -> Any:
    try:
        return json.loads(files.read_bytes(path))
    except (FileNotFoundError, ValueError):
        return None

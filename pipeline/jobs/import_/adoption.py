"""Moves complete partitions into a data directory whose broker is stopped.

Owns the three ways. An empty or missing folder: one rename of everything. A directory without a metadata log of Ottla
(a new one, or one of an older Kafka): folder by folder, under its lock; the next start of a broker adopts them. A
directory with a metadata log (`__cluster_metadata-0`): by `ottla import-dir --move`, which adds each topic atomically.
First the result of an interrupted run is determined, whose folders are recognised under any name. `fill` has the order
of the steps of an import to a data directory; each can be interrupted, and a second run continues. Raises ReadError.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from ....protocol.internal_records.metadata_values import topic_ids
from ....storage import inspect
from ....storage.errors import StorageError
from ....storage.format.file_names import LOCK, META_PROPERTIES, aside_name, aside_of
from ....storage.format.partition_metadata import read_topic_id
from ....storage.io import folder_copies
from ....storage.io.files import Files
from ....storage.log_dir import metadata_log
from ...backend import ReadError, as_read_error
from ...readers.files.broker_lock import is_in_use
from .plan import Plan
from .report import Imported, ImportReport
from .staging_folder import Staging, identity_of, staged
from .tasks import Layout, Work, Written

HISTORY = "__cluster_metadata-0"
_NOT_ADDED = ": not added: "
_OTHER_FILE_SYSTEM = (errno.EXDEV, errno.EBUSY)

Importer = Callable[[Sequence[str]], tuple[int, str]]
"""Runs `ottla import-dir` with these arguments; returns its exit code and its output."""


def import_dir(arguments: Sequence[str]) -> tuple[int, str]:
    """Runs `ottla import-dir` as a subprocess: it is part of the broker, which this package must not import."""
    command = [sys.executable, "-m", "ottla.tools", "import-dir", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


class Target:
    """A data directory that receives topics; `importer` adds them if it has a metadata log. Paths are absolute."""

    def __init__(self, files: Files, path: str, importer: Importer = import_dir) -> None:
        self.path = os.path.abspath(path)
        self.files = files
        self._importer = importer

    # -- the directory

    @property
    def is_empty(self) -> bool:
        """Whether the prepared directory may replace it as a whole."""
        return not self.files.exists(self.path) or not self._names()

    @property
    def has_history(self) -> bool:
        return self.files.exists(os.path.join(self.path, HISTORY))

    def describe(self) -> str:
        if self.is_empty:
            return f"{self.path} (new)"
        if self.has_history:
            return f"{self.path}, by import-dir"
        return f"{self.path}, adopted by the next start of its broker"

    def check(self, topics: Sequence[str], ours: Sequence[str] = ()) -> None:
        """Raises ReadError for a directory that is in use, is a partition's folder, or has one of the topics already,
        apart from the folders `ours`."""
        if self.files.exists(self.path) and not os.path.isdir(self.path):
            raise ReadError(f"{self.path} is not a folder")
        if inspect.partition_of(os.path.basename(self.path)) and any(n.endswith(".log") for n in self._names()):
            raise ReadError(f"{self.path} is the folder of a partition: name its data directory")
        if is_in_use(self.path):
            raise ReadError(f"{self.path} is in use by a broker: stop that first")
        there = {found[0] for name in self._names() if name not in ours and (found := inspect.partition_of(name))}
        for topic in topics:
            if topic in there:
                raise ReadError(exists_already(topic, self.path))
        if not self.is_empty and not self.has_history:
            names = set(self._names())
            if not names & {META_PROPERTIES, LOCK} and not any(map(inspect.partition_of, names)):
                raise ReadError(f"{self.path} is not a data directory: it has {sorted(names)[0]}")

    def _names(self) -> list[str]:
        try:
            return self.files.list(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise ReadError(f"cannot read {self.path}: {error.strerror}") from error

    # -- adding

    def settle(self, staging: Staging) -> set[str]:
        """Determines the progress of an interrupted run: returns the topics that were added. The folders of others are
        moved back to the staging folder, as far as they are found, for `add`."""
        known = staging.read_adding()
        with as_read_error(f"cannot add to {self.path}"):
            if known is None or not self.has_history:
                names = list(known) if known is not None else [str(key) for key in staging.read_whole()]
                missing = {_topic(name) for name in names if not self._is_ours(staging, name)}
                return {_topic(name) for name in names} - missing
            existing = self.existing(map(_topic, known))
            self._take_back(staging, {name: by for name, by in known.items() if _topic(name) not in existing})
            staging.forget_adding()
            return existing

    def existing(self, topics: Iterable[str]) -> set[str]:
        """Returns which of these topics exist in the directory's metadata log."""
        return set(topics) & topic_ids(metadata_log.values(self.path)).keys()

    def _take_back(self, staging: Staging, known: dict[str, list[int]]) -> None:
        """Moves folders of topics that were not added back to the staging folder, under any name."""
        self.files.make_directory(staging.data)
        for name in self._names():
            (wanted, _), path = aside_of(name), os.path.join(self.path, name)
            for ours, identity in known.items():
                # A long name is truncated when it is set aside.
                if ours.startswith(wanted[: len(ours)][:200]) and identity and identity_of(path) == identity:
                    self.files.replace(path, os.path.join(staging.data, ours))
        self.files.sync_directory(staging.data)
        self.files.sync_directory(self.path)

    def add(self, staging: Staging) -> None:
        """Adds the contents of the staging folder. After an interruption, `settle` must be called first. Raises
        ReadError."""
        with as_read_error(f"cannot add to {self.path}"):
            names = staging.names()
            if self.is_empty and self._become(staging):
                pass
            elif self.has_history:
                staging.note_adding(names)
                self._import(staging, sorted({_topic(name) for name in names}))
            else:
                self._rename(staging, names)
        staging.remove()

    def _become(self, staging: Staging) -> bool:
        """Adds all topics in one step, by renaming the staging folder to the empty directory; returns False for a mount
        point."""
        parent = os.path.dirname(self.path)
        self.files.make_directory(parent)
        try:
            self.files.replace(staging.data, self.path)
        except OSError as error:
            if error.errno not in _OTHER_FILE_SYSTEM:
                raise
            return False
        self.files.sync_directory(parent)
        return True

    def _rename(self, staging: Staging, names: Sequence[str]) -> None:
        try:
            lock = self.files.lock(os.path.join(self.path, LOCK))
        except BlockingIOError as error:
            raise ReadError(f"{self.path} is in use by a broker: stop that first") from error
        try:
            if staging.read_adding() is None:
                staging.note_adding(names)
            for name in names:
                if not self._is_ours(staging, name):
                    self._place(os.path.join(staging.data, name), name)
            self.files.sync_directory(self.path)
        finally:
            lock.release()

    def _is_ours(self, staging: Staging, name: str) -> bool:
        """Returns whether a partition is in the directory already, with the topic id of this import."""
        path = os.path.join(self.path, name)
        try:
            return self.files.exists(path) and read_topic_id(self.files, path) == staging.ids[_topic(name)]
        except StorageError:
            return False

    def _place(self, source: str, name: str) -> None:
        """Moves a partition; across file systems it is copied, and renamed when it is complete."""
        target = os.path.join(self.path, name)
        try:
            self.files.replace(source, target)
            return
        except OSError as error:
            if error.errno not in _OTHER_FILE_SYSTEM:
                raise
        key = inspect.partition_of(name)
        assert key is not None, name
        copy = os.path.join(self.path, aside_name(*key, "delete"))
        self.files.make_directory(copy)
        found = folder_copies.entries(self.files, source)
        folder_copies.copy(self.files, source, copy, found)
        folder_copies.sync(self.files, copy, found)
        self.files.replace(copy, target)

    def _import(self, staging: Staging, topics: Sequence[str]) -> None:
        pattern = "|".join(map(re.escape, topics))
        code, output = self._importer([staging.data, "--data-dir", self.path, "--move", "--topics", pattern])
        if code == 0:
            return
        refused = [line for line in output.splitlines() if _NOT_ADDED in line]
        if refused:
            topic, _, why = refused[0].partition(_NOT_ADDED)
            raise ReadError(f"topic {topic} was not added to {self.path}: {why}")
        lines = [line for line in output.splitlines() if line.strip()] or ["import-dir printed nothing"]
        raise ReadError(f"nothing was added to {self.path}: {lines[-1].removeprefix('ottla import-dir: ')}")


def exists_already(topic: str, path: str) -> str:
    return f"topic {topic} exists already in {path}: choose another name with --to-topic"


def _topic(name: str) -> str:
    found = inspect.partition_of(name)
    return found[0] if found else name


# -- the whole import

Run = Callable[[Sequence[Work]], Iterator[tuple[Work, Written]]]
"""Runs `tasks.write` for each piece of work, anywhere."""


def fill(
    plan: Plan,
    source: str,
    target: Target,
    identity: str,
    layout: Layout,
    run: Run,
    *,
    now_ms: int,
) -> ImportReport:
    """Writes the plan's pieces as segments and adds them to a data directory whose broker is stopped. `identity` is
    unique to this import. Raises ReadError."""
    topics = list(plan.partitions)
    report = ImportReport(source, target.path, plan.files)
    with staged(target.files, target.path, identity, topics) as staging:
        done = target.settle(staging)
        if not done:
            try:
                target.check(topics, ours=list(staging.read_adding() or ()))
                if target.has_history and (there := target.existing(topics)):
                    raise ReadError(exists_already(min(there), target.path))
            except ReadError:
                if staging.is_new:
                    staging.remove()
                raise
        left = [piece for piece in plan.pieces if piece.topic not in done]
        report.skipped = sum(piece.rows for piece in plan.pieces) - sum(piece.rows for piece in left)
        if not left:
            staging.remove()
            return report
        if staging.taken_over:
            report.notes.append(f"{staging.taken_over} pieces were completed by an earlier run")
        for _ in run(staging.work(left, layout, now_ms)):
            pass
        facts = staging.assemble(left)
        for key, of in sorted(facts.items()):
            report.partitions.append(Imported(*key, of.records, of.bytes, of.first, of.end, of.segments))
        target.add(staging)
    return report

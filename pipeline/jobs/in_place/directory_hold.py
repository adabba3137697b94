"""Holding a data directory, so that files in it may be replaced: no broker, and no other job, has it meanwhile.

    with held("/var/lib/kafka") as root:
        for partition in root.partitions:
            ...

Owns the lock, the look whether the last owner closed the directory, and the ending of swaps that were interrupted. The
marker of a clean shutdown stays where it is: whoever works here leaves, at every moment, files from which the next
opening concludes the same log (see storage/compaction/swap.py). Goes through `Files`, so that tests may take the power
away.

Files on their way in have a suffix of the job's own until the driver takes them: no `.cleaned` file may be written
beside a swap, as it would make that void. Apache Kafka does not look at such names, and Ottla's opening removes them.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ....storage import inspect
from ....storage.compaction.swap import CLEANED, DELETED, OF_JOBS, SWAP, finish_leftovers, swap_in
from ....storage.errors import StorageError
from ....storage.format import clean_close
from ....storage.format.file_names import CLEAN_SHUTDOWN, LOCK
from ....storage.inspect import PartitionFolder
from ....storage.io.files import DiskFiles, Files
from ....storage.segments.segment import LOG_SUFFIX, file_name
from ...backend import ReadError

UPGRADED, COMPACTED = OWN_SUFFIXES = OF_JOBS
"""What the names of files end with that a job has written, and not put in place yet."""

_LEFT_BY_A_SWAP = (DELETED, CLEANED, SWAP)


class _Lock(Protocol):
    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Held:
    """A data directory that is held. `partitions` are in order, as they are after what was interrupted was ended.

    `was_closed`: the last owner closed it. `unfinished` are the folders where a swap was interrupted, or where a job
    left files behind; only of a directory that is just looked at.
    """

    root: str
    files: Files
    was_closed: bool
    partitions: tuple[PartitionFolder, ...]
    unfinished: tuple[str, ...] = ()


def distinct(paths: Iterable[str]) -> list[str]:
    """Directories, each once however often, and by whatever links, it was named."""
    return list({os.path.realpath(path): path for path in map(inspect.followed, map(os.fspath, paths))}.values())


@contextlib.contextmanager
def held(
    root: str | os.PathLike[str], *, files: Files | None = None, looking: bool = False, may_be_unclean: bool = False
) -> Iterator[Held]:
    """Holds a data directory of Ottla or of Apache Kafka for as long as the context lasts.

    With `looking` nothing in it is changed, as for a dry run: swaps stay as they are, and no lock file is made. Raises
    ReadError, one sentence, for what is no data directory, is in use, has a swap that cannot be ended, or, unless that
    `may_be_unclean`, was not closed by its last owner.
    """
    files = files or DiskFiles()
    path = inspect.followed(os.fspath(root))
    if inspect.partition_of(os.path.basename(path)) and any(name.endswith(LOG_SUFFIX) for name in _names(files, path)):
        raise ReadError(f"{path} is the folder of a partition: name its data directory, {os.path.dirname(path)}")
    _listed(files, path)
    lock = _locked(files, path, looking=looking)
    try:
        was_closed = files.exists(os.path.join(path, CLEAN_SHUTDOWN))
        if not was_closed and not may_be_unclean:
            raise ReadError(
                f"{path} was not closed cleanly: start its broker, which recovers the logs, stop it in an orderly way "
                "(SIGTERM), and run this again"
            )
        if not looking:
            clean_close.discard(files, path)  # it tells of segments that are about to be replaced
        unfinished = []
        for partition in _folders(files, path):
            names = _names(files, partition)
            if any(name.endswith((*_LEFT_BY_A_SWAP, *OWN_SUFFIXES)) for name in names):
                unfinished.append(partition)
                if not looking:
                    _finish(files, partition, names)
        yield Held(path, files, was_closed, _listed(files, path), tuple(unfinished) if looking else ())
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                lock.release()


def own_suffix(suffix: str) -> str:
    """The end of the names that one attempt at one piece of work gives to its files: no other attempt has the same, so
    that one which goes on though nobody waits for it any more harms nothing."""
    return f".{uuid.uuid4().hex[:12]}{suffix}"


def put_in_place(
    files: Files, folder: str, new: list[int], old: list[int], suffix: str, size_bytes: int | None = None
) -> None:
    """Swaps new segments of a partition, written and synced under names that end with `suffix`, for old ones; both by
    base offset, and the first of both is the same. Durable on return.

    `size_bytes` is how much their logs have together, by who wrote them: nothing is changed if that is not here.
    One at a time in a folder. Interrupted anywhere, the next `held`, or the next broker, completes or undoes it. Raises
    ReadError; then the folder is to be left alone until it is held anew.
    """
    _check_here(files, folder, new, suffix, size_bytes)
    try:
        names = set(files.list(folder))
        for base in new:
            # The log last: whoever finds it finds the others, too.
            ready = sorted(name for name in names if name.startswith(f"{base:020d}.") and name.endswith(suffix))
            for name in sorted(ready, key=lambda name: LOG_SUFFIX + "." in name):
                path = os.path.join(folder, name)
                files.replace(path, path.removesuffix(suffix) + CLEANED)
        # Were a `.swap` durable, and a `.cleaned` file of a lower offset not, the swap would seem to be decided.
        files.sync_directory(folder)
        swap_in(files, folder, new, old)
    except OSError as error:
        raise ReadError(f"cannot replace segments of {folder}: {error.strerror or error}") from error
    except StorageError as error:
        raise ReadError(str(error)) from error


def _check_here(files: Files, folder: str, new: list[int], suffix: str, size_bytes: int | None) -> None:
    """Whether what a task says that it wrote is what is here."""
    found = 0
    for base in new:
        path = os.path.join(folder, file_name(base) + suffix)
        try:
            found += files.size(path)
        except OSError as error:
            raise ReadError(
                f"{path} was written where a task ran, but is not here: the workers must see the same files"
            ) from error
    if not new or found != (found if size_bytes is None else size_bytes):
        raise ReadError(f"in {folder} {found} bytes of new segments are here where {size_bytes} were written")


def sweep(files: Files, folder: str, suffix: str = "") -> None:
    """Removes what jobs have written into a folder and not put in place; with `suffix` what ends so. ReadError."""
    try:
        for name in files.list(folder):
            if name.endswith(suffix or OWN_SUFFIXES):
                files.remove(os.path.join(folder, name))
    except OSError as error:
        raise ReadError(f"cannot remove what is left of a job in {folder}: {error.strerror or error}") from error


def _locked(files: Files, root: str, *, looking: bool) -> _Lock | None:
    path = os.path.join(root, LOCK)
    if looking and not files.exists(path):
        return None
    try:
        return files.lock(path)
    except BlockingIOError as error:
        raise ReadError(f"{root} is in use by a broker, or by another job: stop that first") from error
    except OSError as error:
        if looking:  # a copy that may only be read
            return None
        raise ReadError(f"cannot lock {root}: {error.strerror or error}") from error


def _folders(files: Files, root: str) -> list[str]:
    """The folders of partitions by their names alone: in the middle of a swap there may be no segment."""
    found = [os.path.join(root, name) for name in sorted(_names(files, root)) if inspect.partition_of(name)]
    return [path for path in found if inspect.is_folder(path, files)]


def _finish(files: Files, folder: str, names: list[str]) -> None:
    try:
        finish_leftovers(files, folder, names)
    except OSError as error:
        raise ReadError(f"cannot end an interrupted swap in {folder}: {error.strerror or error}") from error
    except StorageError as error:
        raise ReadError(f"cannot end an interrupted swap in {folder}: {error}") from error


def _names(files: Files, path: str) -> list[str]:
    try:
        return files.list(path)
    except OSError as error:
        raise ReadError(f"cannot read {path}: {error.strerror or error}") from error


def _listed(files: Files, root: str) -> tuple[PartitionFolder, ...]:
    try:
        return tuple(inspect.partitions(root, files))
    except StorageError as error:
        raise ReadError(str(error)) from error

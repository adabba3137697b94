"""Holds a data directory so that files in it can be replaced: no broker and no other job can use it meanwhile.

    with held("/var/lib/kafka") as root:
        for partition in root.partitions:
            ...

Owns the lock, the check that the last owner closed the directory, and the completion of interrupted swaps. The clean
shutdown marker stays in place: at every moment the files lead the next opening to the same log (see
storage/compaction/swap.py). Uses `Files`, so that tests can cut the power.

New files have a suffix of the job until the driver takes them: a `.cleaned` file next to a swap would make the swap
void. Apache Kafka ignores such names, and Ottla removes them when it opens the log.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ....storage import inspect
from ....storage.compaction.swap import CLEANED, DELETED, OF_JOBS, SWAP, finish_leftovers, swap_in
from ....storage.errors import StorageError
from ....storage.format import clean_close
from ....storage.format.file_names import CLEAN_SHUTDOWN, LOCK
from ....storage.inspect import PartitionFolder
from ....storage.io.files import DiskFiles, Files, Lock
from ....storage.segments.segment import LOG_SUFFIX, file_name
from ...backend import ReadError, as_read_error
from ...objects.places import is_url

UPGRADED, COMPACTED = OWN_SUFFIXES = OF_JOBS
"""The suffixes of files that a job has written but not put in place yet."""

_LEFT_BY_A_SWAP = (DELETED, CLEANED, SWAP)


@dataclass(frozen=True, slots=True)
class Held:
    """A held data directory. `partitions` are in order, as listed after interrupted swaps were completed.

    `unfinished` are the folders with an interrupted swap or leftover files of a job; only set with `looking`.
    """

    root: str
    files: Files
    partitions: tuple[PartitionFolder, ...]
    unfinished: tuple[str, ...] = ()


def distinct(paths: Iterable[str]) -> list[str]:
    """Returns the directories without duplicates, links resolved for comparison. Raises ReadError for a URL."""
    found: dict[str, str] = {}
    for path in map(os.fspath, paths):
        check_on_disk(path)
        followed = inspect.followed(path)
        found[os.path.realpath(followed)] = followed
    return list(found.values())


def check_on_disk(root: str | os.PathLike[str]) -> None:
    """Raises ReadError for the URL of objects, which would be the relative path of a folder."""
    if is_url(os.fspath(root)):
        raise ReadError(f"{root} is in an object store: jobs write segments to a disk only")


@contextlib.contextmanager
def held(root: str | os.PathLike[str], *, files: Files | None = None, looking: bool = False) -> Iterator[Held]:
    """Holds a data directory of Ottla or of Apache Kafka for the duration of the context.

    With `looking` nothing is changed, as for a dry run: swaps stay as they are, and no lock file is made. Raises
    ReadError, with one sentence, if the path is no data directory, is in use, has a swap that cannot be completed, or
    was not closed by its last owner.
    """
    files = files or DiskFiles()
    check_on_disk(root)
    path = inspect.followed(os.fspath(root))
    if inspect.partition_of(os.path.basename(path)) and any(name.endswith(LOG_SUFFIX) for name in _names(files, path)):
        raise ReadError(f"{path} is the folder of a partition: name its data directory, {os.path.dirname(path)}")
    _listed(files, path)
    lock = _locked(files, path, looking=looking)
    try:
        if not files.exists(os.path.join(path, CLEAN_SHUTDOWN)):
            raise ReadError(
                f"{path} was not closed cleanly: start its broker, which recovers the logs, stop it cleanly "
                "(SIGTERM), and run this again"
            )
        if not looking:
            clean_close.discard(files, path)  # it describes segments that are about to be replaced
        unfinished = []
        # By name: in the middle of a swap a folder may have no segment.
        folders = [os.path.join(path, name) for name in sorted(_names(files, path)) if inspect.partition_of(name)]
        for partition in (folder for folder in folders if inspect.is_folder(folder, files)):
            names = _names(files, partition)
            if any(name.endswith((*_LEFT_BY_A_SWAP, *OWN_SUFFIXES)) for name in names):
                unfinished.append(partition)
                if not looking:
                    with as_read_error(f"cannot complete an interrupted swap in {partition}"):
                        finish_leftovers(files, partition, names)
        yield Held(path, files, _listed(files, path), tuple(unfinished) if looking else ())
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                lock.release()


def own_suffix(suffix: str) -> str:
    """Returns a file suffix for one attempt at a piece of work. It is unique, so that an abandoned attempt that still
    writes does no harm."""
    return f".{uuid.uuid4().hex[:12]}{suffix}"


def put_in_place(files: Files, folder: str, new: list[int], old: list[int], suffix: str, size_bytes: int) -> None:
    """Swaps new segments of a partition, written and fsynced under names that end with `suffix`, for old ones, both
    given by base offset; the first of both is the same. Durable on return.

    `size_bytes` is the total size of the new logs according to their writer: nothing is changed if the files here
    differ. Not to be called concurrently for one folder. After an interruption the next `held`, or the next broker,
    completes or undoes the swap. Raises ReadError; then the folder must be left alone until it is held again.
    """
    found = 0
    for path in (os.path.join(folder, file_name(base) + suffix) for base in new):
        try:
            found += files.size(path)
        except OSError as error:
            raise ReadError(
                f"{path} was written by a worker, but does not exist here: the workers must see the same files"
            ) from error
    if not new or found != size_bytes:
        raise ReadError(f"{folder} has {found} bytes of new segments, but {size_bytes} were written")
    try:
        names = set(files.list(folder))
        for base in new:
            # The log last: its presence then implies that of the others.
            ready = sorted(name for name in names if name.startswith(f"{base:020d}.") and name.endswith(suffix))
            for name in sorted(ready, key=lambda name: LOG_SUFFIX + "." in name):
                path = os.path.join(folder, name)
                files.replace(path, path.removesuffix(suffix) + CLEANED)
        # If a `.swap` were durable, and a `.cleaned` file of a lower offset not, the swap would seem to be decided.
        files.sync_directory(folder)
        swap_in(files, folder, new, old)
    except OSError as error:
        raise ReadError(f"cannot replace segments of {folder}: {error.strerror or error}") from error
    except StorageError as error:
        raise ReadError(str(error)) from error


def sweep(files: Files, folder: str, suffix: str) -> None:
    """Removes the files of jobs that were not put in place from a folder: those that end with `suffix`. Raises
    ReadError."""
    with as_read_error(f"cannot remove leftover files of a job in {folder}"):
        for name in files.list(folder):
            if name.endswith(suffix):
                files.remove(os.path.join(folder, name))


def _locked(files: Files, root: str, *, looking: bool) -> Lock | None:
    path = os.path.join(root, LOCK)
    if looking and not files.exists(path):
        return None
    try:
        return files.lock(path)
    except BlockingIOError as error:
        raise ReadError(f"{root} is in use by a broker, or by another job: stop that first") from error
    except OSError as error:
        if looking:  # a copy on a read-only file system
            return None
        raise ReadError(f"cannot lock {root}: {error.strerror or error}") from error


def _names(files: Files, path: str) -> list[str]:
    with as_read_error(f"cannot read {path}"):
        return files.list(path)


def _listed(files: Files, root: str) -> tuple[PartitionFolder, ...]:
    with as_read_error():
        return tuple(inspect.partitions(root, files))

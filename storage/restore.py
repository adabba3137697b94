"""Replaces the contents of data directories by copies, atomically across crashes.

    <data directory>/.ottla-restore/
      new/                    the copies, durable before the plan exists
      old/                    the entries that are replaced, until the restore has ended
      marker                  becomes .kafka_cleanshutdown, as the last entry
      restore-plan.json       the names of the copies; there until this directory's entries are replaced
      restore-decision.json   in one directory: the restore is decided, for every directory

`stage` writes everything except the decision, while the directories may be in use. The rename of the decision file
decides. `finish` moves the old entries into `old`, then the copies into their places, then removes the records and the
folder. Each of its steps can be repeated: an entry is an old one if its copy is still in `new` or if the plan does not
list it. A start calls `finish` first, and so finds the whole old state or the whole copy. An undecided restore is
removed.

No file is written after the decision, so that a full disk does not block a decided restore.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from typing import cast

from ..protocol.named import NamedTuple
from .errors import DirectoryLocked, StorageError
from .format.file_names import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_BYTES, LOCK, RESTORE, SECURITY_FILES
from .io import folder_copies, random_ids
from .io.disk_errors import is_transient
from .io.files import Files, write_atomically
from .io.folder_copies import Entry

NEW, OLD, MARKER, PLAN, DECISION = "new", "old", "marker", "restore-plan.json", "restore-decision.json"
LOST_AND_FOUND = "lost+found"  # in the root of an ext file system; it belongs to root
LEFT_ALONE = frozenset((LOCK, RESTORE, LOST_AND_FOUND)) | SECURITY_FILES  # clients would lose what they need
_VERSION = 1


class DirectoryCopy(NamedTuple):
    """The new contents of one data directory. `clean`: like a closed directory, with the clean shutdown marker."""

    target: str
    source: str
    entries: Sequence[Entry]
    clean: bool


class Plan(NamedTuple):
    """A plan. `decided_in` is the data directory that gets the decision."""

    id: str
    decided_in: str
    names: frozenset[str]
    clean: bool


class Decision(NamedTuple):
    """The decision to put the copies in these directories in place."""

    id: str
    directories: tuple[str, ...]


class Problem(NamedTuple):
    """The reason why a restore of a directory could not be finished or removed. `is_transient`: a retry may succeed."""

    path: str
    reason: str
    is_transient: bool = True


def entries(files: Files, path: str) -> list[Entry]:
    """Returns the entries that a copy of a data directory consists of. Raises OSError."""
    return folder_copies.entries(files, path, {*LEFT_ALONE, CLEAN_SHUTDOWN})


def _join(path: str, *names: str) -> str:
    return os.path.join(path, RESTORE, *names)


# -- before the decision


class Staged:
    """Copies that are complete and durable in all directories. `decide` or `discard` must follow."""

    def __init__(self, files: Files, copies: Sequence[DirectoryCopy]) -> None:
        self._files = files
        self._copies = copies
        self._id = random_ids.uuid4().hex()

    def write(self) -> None:
        """Writes and syncs the copies and their plans. Raises OSError, StorageError."""
        for one in self._copies:
            self._write(one)

    def _write(self, one: DirectoryCopy) -> None:
        files, folder = self._files, _join(one.target)
        files.make_directory(_join(one.target, NEW))
        files.make_directory(_join(one.target, OLD))
        folder_copies.copy(files, one.source, _join(one.target, NEW), one.entries)
        if one.clean:
            with contextlib.closing(files.open(_join(one.target, MARKER), create=True)) as marker:
                marker.write(0, CLEAN_SHUTDOWN_BYTES)
                marker.sync()
        folder_copies.sync(files, _join(one.target, NEW), one.entries)
        names = sorted({entry.name for entry in one.entries if os.path.dirname(entry.name) == ""})
        plan: dict[str, object] = {"decided_in": self._copies[0].target, "names": names, "clean": one.clean}
        self._record(one.target, PLAN, plan)
        files.sync_directory(folder)
        files.sync_directory(one.target)

    def _record(self, path: str, name: str, fields: dict[str, object]) -> None:
        data = json.dumps({"version": _VERSION, "id": self._id, **fields}).encode() + b"\n"
        write_atomically(self._files, _join(path, name), data)

    def decide(self) -> None:
        """Decides the restore: from here on `finish` completes it. After OSError the outcome is unknown until `discard`
        succeeds."""
        self._record(self._copies[0].target, DECISION, {"directories": [one.target for one in self._copies]})

    def discard(self) -> None:
        """Removes everything. Raises OSError if a decision may remain, which the next start would carry out."""
        files = self._files
        folder = _join(self._copies[0].target)
        if files.exists(folder):
            for name in (DECISION, DECISION + ".tmp"):
                with contextlib.suppress(FileNotFoundError):
                    files.remove(os.path.join(folder, name))
            files.sync_directory(folder)
        self.clean_up()

    def clean_up(self) -> None:
        """Removes undecided copies; the next start removes those that cannot be removed now."""
        for one in self._copies:
            with contextlib.suppress(OSError):
                _remove_undecided(self._files, one.target)


def stage(files: Files, copies: Sequence[DirectoryCopy]) -> Staged:
    """Copies into all directories, durably, without changing their contents; the first one will get the decision. Paths
    are absolute. Raises OSError and StorageError after removing the copies."""
    for one in copies:
        _check_free(files, one.target)  # before anything is removed: the restore may be decided
    staged = Staged(files, copies)
    try:
        staged.write()
    except BaseException:
        staged.clean_up()
        raise
    return staged


def _check_free(files: Files, path: str) -> None:
    """Removes what an interrupted `stage` left. Raises StorageError if another restore is unfinished."""
    if files.exists(_join(path)):
        if _plan(files, path) is not None or _decision(files, path) is not None:
            raise StorageError(f"{path}: an earlier restore is not finished: start the broker with all its log.dirs")
        folder_copies.remove_tree(files, _join(path))


def _remove_undecided(files: Files, path: str) -> None:
    """Removes the folder of a restore; the plan first, durably, since it refers to the copies."""
    if files.exists(_join(path)):
        if files.exists(_join(path, PLAN)):
            files.remove(_join(path, PLAN))
            files.sync_directory(_join(path))
        folder_copies.remove_tree(files, _join(path))
        files.sync_directory(path)


# -- the records


def _record(files: Files, path: str, name: str) -> dict[str, object] | None:
    full = _join(path, name)
    try:
        found = json.loads(files.read_bytes(full))
        if found["version"] != _VERSION or not isinstance(found["id"], str):
            raise ValueError(f"version {found['version']!r}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(f"malformed {full}: {error}") from error
    return found


def _plan(files: Files, path: str) -> Plan | None:
    """Returns the plan of a directory, or None. Raises OSError, StorageError."""
    found = _record(files, path, PLAN)
    if found is None:
        return None
    decided_in = found.get("decided_in")
    names = _texts(found, "names", _join(path, PLAN))
    if not isinstance(decided_in, str):
        raise StorageError(f"malformed {_join(path, PLAN)}: decided_in {decided_in!r}")
    return Plan(str(found["id"]), decided_in, frozenset(names), bool(found.get("clean")))


def _decision(files: Files, path: str) -> Decision | None:
    """Returns the decision in a directory, or None. Raises OSError, StorageError."""
    found = _record(files, path, DECISION)
    if found is None:
        return None
    return Decision(str(found["id"]), tuple(_texts(found, "directories", _join(path, DECISION))))


def _texts(found: dict[str, object], name: str, path: str) -> list[str]:
    """Returns a list of strings in a record. Raises StorageError, with the path of the file, for anything else."""
    value = found.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[object]", value)):
        raise StorageError(f"malformed {path}: {name} {value!r}")
    return cast("list[str]", value)


# -- for readers and tools


def is_planned(files: Files, path: str) -> bool:
    """Returns whether a restore of the directory is ready, decided or not: its entries must not be opened."""
    if not files.exists(_join(path)):
        return False
    try:
        return PLAN in files.list(_join(path))
    except OSError:  # it may belong to another user
        return True


def is_divided(files: Files, path: str) -> bool:
    """Returns whether a restore has replaced some entries of the directory and not all: they must not be read."""
    if not is_planned(files, path):
        return False
    try:
        return bool(files.list(_join(path, OLD)))
    except OSError:
        return True


def described(files: Files, path: str) -> str | None:
    """Describes the restore folder in a directory as one phrase; None if there is none."""
    if not files.exists(_join(path)):
        return None
    if is_planned(files, path):
        return "an unfinished restore of a snapshot; the next start of the broker completes or removes it"
    if files.exists(_join(path, DECISION)):
        return "a restore of a snapshot that has ended here, and waits for another directory of log.dirs"
    return "copies of a restore of a snapshot that was not decided; the next start of the broker removes them"


# -- after the decision


class _Finishing:
    """One call of `finish`. `plans` and `decisions` are those of the readable directories."""

    def __init__(self, files: Files, given: Sequence[str]) -> None:
        self._files = files
        self._given = given
        self.problems: list[Problem] = []
        self._plans: dict[str, Plan] = {}
        self._decisions: dict[str, Decision] = {}
        self._read: list[str] = []

    def run(self, staged: Sequence[str]) -> None:
        for path in staged:
            self._each(path, self._look)
        decided = {decision.id for decision in self._decisions.values()}
        for path, plan in list(self._plans.items()):
            if plan.id in decided:
                self._each(path, self._replace)
            elif plan.decided_in in self._given and self._can_be_read(plan.decided_in):
                self._each(path, self._discard)
            else:
                self._unknown(path, plan)
        for path in list(self._decisions):
            self._each(path, self._end)
        for path in self._read:
            if path not in self._plans and path not in self._decisions:
                self._each(path, self._remove)

    def _each(self, path: str, step: Callable[[str], None]) -> None:
        try:
            step(path)
        except OSError as error:
            self.problems.append(Problem(path, f"a restore cannot be finished: {error}", is_transient(error)))
        except StorageError as error:
            self.problems.append(Problem(path, f"a restore cannot be finished: {error}"))

    def _look(self, path: str) -> None:
        plan, decision = _plan(self._files, path), _decision(self._files, path)
        if plan is not None:
            self._plans[path] = plan
        if decision is not None:
            self._files.sync_directory(_join(path))  # the steps after a decision must not be durable before it
            self._decisions[path] = decision
        self._read.append(path)

    def _can_be_read(self, path: str) -> bool:
        """Returns whether it is certain that the directory has no decision."""
        if self._files.exists(_join(path)):
            return path in self._read
        try:
            self._files.list(path)
        except OSError:
            return False
        return True

    def _unknown(self, path: str, plan: Plan) -> None:
        reason = (
            f"a restore of a snapshot was interrupted; {plan.decided_in} has the decision, if it was made: start the "
            f"broker with that directory in log.dirs, or remove {_join(path)} to keep the previous contents"
        )
        self.problems.append(Problem(path, reason))

    def _replace(self, path: str) -> None:
        """Replaces the entries by the copies. May be repeated after any of its steps."""
        files, plan = self._files, self._plans[path]
        left = set(files.list(_join(path, NEW)))
        new = plan.names - left
        if plan.clean and not files.exists(_join(path, MARKER)):
            new |= {CLEAN_SHUTDOWN}
        for name in sorted(files.list(path)):
            if name not in LEFT_ALONE and name not in new:
                files.replace(os.path.join(path, name), _join(path, OLD, name))
        files.sync_directory(_join(path, OLD))
        files.sync_directory(path)
        for name in sorted(left):
            files.replace(_join(path, NEW, name), os.path.join(path, name))
        files.sync_directory(_join(path, NEW))
        files.sync_directory(path)
        if plan.clean and files.exists(_join(path, MARKER)):
            files.replace(_join(path, MARKER), os.path.join(path, CLEAN_SHUTDOWN))
            files.sync_directory(path)
        self._drop(path, PLAN)
        del self._plans[path]

    def _discard(self, path: str) -> None:
        self._drop(path, PLAN)
        del self._plans[path]

    def _drop(self, path: str, name: str) -> None:
        self._files.remove(_join(path, name))
        self._files.sync_directory(_join(path))

    def _end(self, path: str) -> None:
        """Removes a decision that every directory has carried out."""
        decision = self._decisions[path]
        waiting = [one for one in decision.directories if self._waits(one, decision.id)]
        if waiting:
            self.problems.append(Problem(path, f"a restore of a snapshot waits for {', '.join(waiting)}"))
            return
        self._drop(path, DECISION)
        del self._decisions[path]

    def _waits(self, path: str, id: str) -> bool:
        """Returns whether a directory of a decided restore may not have carried it out yet."""
        try:
            self._files.list(path)
            plan = _plan(self._files, path)
        except (OSError, StorageError):
            return True
        return plan is not None and plan.id == id

    def _remove(self, path: str) -> None:
        folder_copies.remove_tree(self._files, _join(path))
        self._files.sync_directory(path)


def finish(files: Files, paths: Sequence[str | os.PathLike[str]]) -> list[Problem]:
    """Completes the decided restores of data directories that are not open, and removes undecided ones. To be called
    with all directories of a broker, before any is opened; without restores it costs one check per directory.

    Returns the problems: such a directory still has a plan, and cannot be opened, or a decision that waits for another
    directory. Raises DirectoryLocked.
    """
    given: list[str] = [os.path.abspath(os.fspath(path)) for path in paths]
    staged = [path for path in given if files.exists(_join(path))]
    if not staged:
        return []
    finishing = _Finishing(files, given)
    with contextlib.ExitStack() as locks:
        for path in list(staged):
            try:
                locks.callback(files.lock(os.path.join(path, LOCK)).release)
            except BlockingIOError as error:
                raise DirectoryLocked(f"{path} is in use by another broker") from error
            except OSError as error:
                staged.remove(path)
                finishing.problems.append(Problem(path, f"cannot be locked: {error}", is_transient(error)))
        finishing.run(staged)
    return finishing.problems

"""The process that cleans one log: files in, files out, so that neither its time nor its memory is the broker's.

Owns what passes between the two processes, JSON lines over the pipes: the task in, a group of new segments out as soon
as their files are there, a line in when the broker has put them in place, and the end of the pass or an error out. The
process knows nothing of the broker but whether it lives, and lives for one pass; killed at any moment it leaves files
that the next opening of the folder, or `remove_leftovers`, removes. Throttling (log.cleaner.io.max.bytes.per.second) is
by the real clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from ...storage.compaction.compaction import Clean, Cleaned, Group, OnProgress, SegmentFacts, clean
from ...storage.compaction.swap import CLEANED, SEGMENT_FILE, Rewritten
from ...storage.errors import StorageError
from ...storage.io.files import DiskFiles, Files

UNLIMITED = 1e300  # bytes in a second, from here on
_LEAST_WAIT_S = 0.001
_LOOK_S = 0.05  # where the system does not tell of the death of a parent, and if it died before it was asked to
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class CleaningFailed(Exception):
    """A pass ended with an error. `is_damage`: it lies in what was read, so another pass would end so, too. `errno` is
    that of an error of the disk."""

    def __init__(self, reason: str, is_damage: bool, errno: int | None = None) -> None:
        super().__init__(reason)
        self.is_damage = is_damage
        self.errno = errno


PutInPlace = Callable[[Group], None]
"""Called with each group as soon as its files are there; whatever it raises ends the pass."""


class CleanerProcess:
    """A pass in a process of its own. `run` blocks and is for a thread; `stop` may be called by any other."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self, task: Clean, bytes_per_second: float, put_in_place: PutInPlace) -> Cleaned:
        """Cleans a log. Raises CleaningFailed, also when it is stopped, and what `put_in_place` raises."""
        command = [sys.executable, "-m", __name__, str(os.getpid())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._process = process
        assert process.stdin is not None and process.stdout is not None
        try:
            if self._stopped:
                raise CleaningFailed("the cleaning was stopped", False)
            return self._converse(process.stdin, process.stdout, task, bytes_per_second, put_in_place)
        except (OSError, ValueError) as error:
            raise CleaningFailed(f"the cleaning process ended: {error}", False) from error
        finally:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()
            process.wait()

    def _converse(
        self, stdin: IO[bytes], stdout: IO[bytes], task: Clean, bytes_per_second: float, put_in_place: PutInPlace
    ) -> Cleaned:
        _send(stdin, {"task": _task_to_json(task), "bytes_per_second": min(bytes_per_second, UNLIMITED)})
        while line := stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            if "group" in answer:
                made = tuple(Rewritten(*fields) for fields in answer["group"]["new"])
                put_in_place(Group(made, tuple(answer["group"]["old"])))
                _send(stdin, {})
            elif "cleaned" in answer:
                return Cleaned(*answer["cleaned"])
            else:
                raise CleaningFailed(answer["error"], answer["is_damage"], answer["errno"])
        raise CleaningFailed("the cleaning was stopped" if self._stopped else "the cleaning process died", False)

    def stop(self) -> None:
        """Ends the pass at once, wherever it is."""
        self._stopped = True
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.kill()


class CleanerHere:
    """A pass in this process, over files that no other process sees."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._stopped = False

    def run(self, task: Clean, bytes_per_second: float, put_in_place: PutInPlace) -> Cleaned:
        """As `CleanerProcess.run`."""
        try:
            for made in clean(self._files, task, on_progress=self._check):
                if isinstance(made, Cleaned):
                    return made
                put_in_place(made)
        except StorageError as error:
            raise CleaningFailed(str(error), not isinstance(error.__cause__, OSError), _errno(error)) from error
        raise CleaningFailed("nothing was cleaned", False)

    def _check(self, size_bytes: int) -> None:
        if self._stopped:
            raise CleaningFailed("the cleaning was stopped", False)

    def stop(self) -> None:
        """As `CleanerProcess.stop`, at the next step."""
        self._stopped = True


def _errno(error: Exception) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def remove_leftovers(files: Files, directory: str) -> None:
    """Removes what a pass that was stopped was writing. The log must not be in the midst of a swap. StorageError."""
    try:
        for name in files.list(directory):
            match = SEGMENT_FILE.fullmatch(name)
            if match and match[3] == CLEANED:
                files.remove(os.path.join(directory, name))
    except FileNotFoundError:  # the folder was deleted
        return
    except OSError as error:
        raise StorageError(f"cannot remove what was being cleaned in {directory}: {error}") from error


# -- the process


def _send(pipe: IO[bytes], value: dict[str, Any]) -> None:
    pipe.write(json.dumps(value).encode() + b"\n")
    pipe.flush()


def _task_to_json(task: Clean) -> dict[str, Any]:
    return task._asdict() | {"active_producers": list(task.active_producers.items())}


def _task_from_json(found: dict[str, Any]) -> Clean:
    segments = tuple(SegmentFacts(*fields) for fields in found["segments"])
    producers = {producer_id: (epoch, offset) for producer_id, (epoch, offset) in found["active_producers"]}
    values: dict[str, Any] = found | {"segments": segments, "active_producers": producers}
    return Clean(**values)


def throttle(
    bytes_per_second: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> OnProgress:
    """Waits so long that no more than this many bytes pass in a second, over the whole of a pass."""
    start, done = now(), 0

    def on_progress(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        ahead_s = done / bytes_per_second - (now() - start)
        if ahead_s > _LEAST_WAIT_S:
            sleep(ahead_s)

    return on_progress


def _die_with(parent: int) -> None:
    """Ends this process as soon as its broker is gone, also by kill -9: what is written then would be written into the
    files of the next broker's pass over the same log."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def main() -> None:
    """One pass: see the module."""
    if len(sys.argv) > 1:
        _die_with(int(sys.argv[1]))
    out = sys.stdout.buffer
    asked: dict[str, Any] = json.loads(sys.stdin.buffer.readline() or b"{}")
    if not asked:
        return
    task, bytes_per_second = _task_from_json(asked["task"]), float(asked["bytes_per_second"])
    limit = throttle(bytes_per_second) if 0 < bytes_per_second < UNLIMITED else None
    try:
        for value in _pass(task, limit):
            _send(out, value)
            if "group" in value and not sys.stdin.buffer.readline():
                return  # the broker is gone
    except BrokenPipeError:
        os._exit(1)  # nobody is left to be told


def _pass(task: Clean, limit: OnProgress | None) -> Iterator[dict[str, Any]]:
    try:
        for made in clean(DiskFiles(), task, on_progress=limit):
            yield {"cleaned": made} if isinstance(made, Cleaned) else {"group": made._asdict()}
    except (StorageError, ValueError) as error:
        yield {"error": str(error), "is_damage": not isinstance(error.__cause__, OSError), "errno": _errno(error)}


if __name__ == "__main__":
    main()

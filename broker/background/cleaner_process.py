"""The process that cleans one log, so that the broker spends neither the time nor the memory.

Owns the protocol between the two processes, pickles over pipes: the task goes in; each group of new segments comes out
as soon as its files exist, and a byte goes in when the broker has put them in place; the end of the pass or an error
comes out. The process lives for one pass and ends with its broker. If it is killed, the next opening of the
folder, or `remove_leftovers`, removes its files. Throttling (log.cleaner.io.max.bytes.per.second) uses the real clock.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

from ...storage.compaction.compaction import Clean, Cleaned, Group, OnProgress, clean
from ...storage.compaction.swap import CLEANED, SEGMENT_FILE
from ...storage.errors import StorageError
from ...storage.io.files import DiskFiles, Files

UNLIMITED = 1e300  # bytes per second from which on there is no limit
_LEAST_WAIT_S = 0.001
_LOOK_S = 0.05  # where the parent's death raises no signal, or came before the signal was requested
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class CleaningFailed(Exception):
    """A pass ended with an error. `is_damage` means that the log's data is at fault, so that another pass would fail
    too. `errno` is the one of a disk error.
    """

    def __init__(self, reason: str, is_damage: bool, errno: int | None = None) -> None:
        super().__init__(reason)
        self.is_damage = is_damage
        self.errno = errno


PutInPlace = Callable[[Group], None]
"""Called with each group as soon as its files exist; an exception ends the pass."""
Result = Group | Cleaned | tuple[str, bool, int | None]
"""A group of new segments, the end of a pass, or the arguments of CleaningFailed for the error that ended it."""


def _results(files: Files, task: Clean, on_progress: OnProgress | None) -> Iterator[Result]:
    try:
        yield from clean(files, task, on_progress=on_progress)
    except (StorageError, ValueError) as error:
        cause = error.__cause__
        yield str(error), not isinstance(cause, OSError), cause.errno if isinstance(cause, OSError) else None


def _adopted(results: Iterator[Result], put_in_place: PutInPlace) -> Cleaned:
    """Puts the groups in place. Returns the end of the pass. Raises CleaningFailed."""
    for made in results:
        if isinstance(made, Cleaned):
            return made
        if not isinstance(made, Group):
            raise CleaningFailed(*made)
        put_in_place(made)
    raise CleaningFailed("the pass ended without a result", False)


class CleanerProcess:
    """A pass in a process of its own. `run` blocks and belongs in a thread; `stop` may be called from any other."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def run(self, task: Clean, bytes_per_second: float, put_in_place: PutInPlace) -> Cleaned:
        """Cleans a log. Raises CleaningFailed, also after `stop`, and the exceptions of `put_in_place`."""
        command = [sys.executable, "-m", __name__, str(os.getpid())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._process = process
        assert process.stdin is not None and process.stdout is not None
        try:
            if self._stopped:
                raise CleaningFailed("the cleaning was stopped", False)
            pickle.dump((task, bytes_per_second), process.stdin)
            process.stdin.flush()
            return _adopted(self._received(process.stdin, process.stdout), put_in_place)
        except (OSError, ValueError) as error:
            raise CleaningFailed(f"the cleaning process ended: {error}", False) from error
        finally:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()
            process.wait()

    def _received(self, stdin: IO[bytes], stdout: IO[bytes]) -> Iterator[Result]:
        while True:
            try:
                yield pickle.load(stdout)
            except (EOFError, pickle.UnpicklingError):
                reason = "the cleaning was stopped" if self._stopped else "the cleaning process died"
                raise CleaningFailed(reason, False) from None
            stdin.write(b"\n")  # the group is in place
            stdin.flush()

    def stop(self) -> None:
        """Ends the pass at once, at any point."""
        self._stopped = True
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.kill()


class CleanerHere:
    """A pass in this process, over files that other processes cannot open."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._stopped = False

    def run(self, task: Clean, bytes_per_second: float, put_in_place: PutInPlace) -> Cleaned:
        """Cleans a log, as `CleanerProcess.run`."""
        return _adopted(_results(self._files, task, self._check), put_in_place)

    def _check(self, size_bytes: int) -> None:
        if self._stopped:
            raise CleaningFailed("the cleaning was stopped", False)

    def stop(self) -> None:
        """Ends the pass at its next step."""
        self._stopped = True


def remove_leftovers(files: Files, directory: str) -> None:
    """Removes the files of a pass that was stopped. The log must not be in the middle of a swap. Raises
    StorageError.
    """
    try:
        for name in files.list(directory):
            match = SEGMENT_FILE.fullmatch(name)
            if match and match[3] == CLEANED:
                files.remove(os.path.join(directory, name))
    except FileNotFoundError:  # the folder was deleted
        return
    except OSError as error:
        raise StorageError(f"cannot remove the leftovers of a cleaning in {directory}: {error}") from error


# -- code of the process


def throttle(
    bytes_per_second: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> OnProgress:
    """Returns a callback that sleeps so that the pass stays below this rate, averaged since its start."""
    start, done = now(), 0

    def on_progress(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        ahead_s = done / bytes_per_second - (now() - start)
        if ahead_s > _LEAST_WAIT_S:
            sleep(ahead_s)

    return on_progress


def _die_with(parent: int) -> None:
    """Ends this process as soon as its broker has ended, also after kill -9: it would otherwise write into the files of
    the next broker's pass over the same log.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()


def main() -> None:
    """Makes one pass: see the module."""
    if len(sys.argv) > 1:
        _die_with(int(sys.argv[1]))
    try:
        task, bytes_per_second = pickle.load(sys.stdin.buffer)
    except EOFError:  # the broker has ended
        return
    limit = throttle(bytes_per_second) if 0 < bytes_per_second < UNLIMITED else None
    try:
        for made in _results(DiskFiles(), task, limit):
            pickle.dump(made, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            if isinstance(made, Group) and not sys.stdin.buffer.read(1):
                return  # the broker has ended
    except BrokenPipeError:
        os._exit(1)  # the broker has ended


if __name__ == "__main__":
    main()

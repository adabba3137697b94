"""The process that cleans one log, so that the broker spends neither the time nor the memory.

Owns the protocol between the two processes, JSON lines over pipes: the task goes in; each group of new segments comes
out as soon as its files exist, and a line goes in when the broker has put them in place; the end of the pass or an
error comes out. The process lives for one pass and ends with its broker. If it is killed, the next opening of the
folder, or `remove_leftovers`, removes its files. Throttling (log.cleaner.io.max.bytes.per.second) uses the real clock.
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
            message: dict[str, Any] = json.loads(line)
            if "group" in message:
                made = tuple(Rewritten(*fields) for fields in message["group"]["new"])
                put_in_place(Group(made, tuple(message["group"]["old"])))
                _send(stdin, {})
            elif "cleaned" in message:
                return Cleaned(*message["cleaned"])
            else:
                raise CleaningFailed(message["error"], message["is_damage"], message["errno"])
        raise CleaningFailed("the cleaning was stopped" if self._stopped else "the cleaning process died", False)

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
        try:
            for made in clean(self._files, task, on_progress=self._check):
                if isinstance(made, Cleaned):
                    return made
                put_in_place(made)
        except StorageError as error:
            raise CleaningFailed(str(error), not isinstance(error.__cause__, OSError), _errno(error)) from error
        raise CleaningFailed("the pass ended without a result", False)

    def _check(self, size_bytes: int) -> None:
        if self._stopped:
            raise CleaningFailed("the cleaning was stopped", False)

    def stop(self) -> None:
        """Ends the pass at its next step."""
        self._stopped = True


def _errno(error: Exception) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


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
    out = sys.stdout.buffer
    received: dict[str, Any] = json.loads(sys.stdin.buffer.readline() or b"{}")
    if not received:
        return
    task, bytes_per_second = _task_from_json(received["task"]), float(received["bytes_per_second"])
    limit = throttle(bytes_per_second) if 0 < bytes_per_second < UNLIMITED else None
    try:
        for value in _pass(task, limit):
            _send(out, value)
            if "group" in value and not sys.stdin.buffer.readline():
                return  # the broker has ended
    except BrokenPipeError:
        os._exit(1)  # the broker has ended


def _pass(task: Clean, limit: OnProgress | None) -> Iterator[dict[str, Any]]:
    try:
        for made in clean(DiskFiles(), task, on_progress=limit):
            yield {"cleaned": made} if isinstance(made, Cleaned) else {"group": made._asdict()}
    except (StorageError, ValueError) as error:
        yield {"error": str(error), "is_damage": not isinstance(error.__cause__, OSError), "errno": _errno(error)}


if __name__ == "__main__":
    main()

"""Cleans up after a test run that is interrupted or killed: no processes and no folders are left.

Makes the run's temporary folder, and one guard for each pytest process, those of pytest-xdist among them. A guard is a
small process that holds the read end of a pipe whose write end only its pytest process has, so that it is notified
however that process ends. Child processes inherit an environment variable that names the run; the guard kills those
that are left, also brokers and JVMs in sessions of their own. The guard of the main process then removes the folder,
unless tests failed: their files are kept.

Without /proc (macOS), `ps` finds the processes as far as it shows their environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

MARK = "OTTLA_TEST_RUN"
"""The environment variable: the folder's name, in a worker followed by the worker's."""

ENDS_WITH_PARENT = "OTTLA_TEST_ENDS_WITH_PARENT"
"""Set to 1, the run ends with the process that started it, as it does for `make test`. Linux only."""

PREFIX = "ottla-test-"
KEEP = b"keep"
KEPT_AFTER = (1, 3)
"""Exit codes of pytest: tests failed, internal error."""

ROUNDS, PAUSE_S = 100, 0.05
PR_SET_PDEATHSIG = 1


class Guard:
    """The guard of this process, and in the main process the run's folder."""

    def __init__(self, mark: str, folder: str | None) -> None:
        self.folder = folder
        clean = {name: value for name, value in os.environ.items() if name != MARK}
        os.environ[MARK] = mark
        command = [sys.executable, "-I", "-S", __file__, mark, folder or ""]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=clean, cwd="/", start_new_session=True)

    def end(self, *, keep: bool) -> None:
        """Kills what is left, and removes the folder unless it is to be kept."""
        self._process.communicate(KEEP if keep else b"")


_guard: Guard | None = None
_exit_status = 0


def pytest_configure(config: pytest.Config) -> None:
    """Begins to guard this process; tests/conftest.py has these hooks."""
    global _guard
    worker: str | None = getattr(config, "workerinput", {}).get("workerid")
    if worker is not None:
        _guard = Guard(f"{os.environ[MARK]}/{worker}-{os.getpid()}", None)
        return
    if os.environ.get(ENDS_WITH_PARENT) == "1":
        end_with_parent()
    folder = tempfile.mkdtemp(prefix=PREFIX)
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None  # which Python determines once
    _guard = Guard(Path(folder).name, folder)


def pytest_sessionfinish(exitstatus: int) -> None:
    """Decides whether the folder is kept."""
    global _exit_status
    _exit_status = int(exitstatus)


def pytest_unconfigure() -> None:
    """Cleans up, and prints the folder if it is kept."""
    global _guard
    guard, _guard = _guard, None
    if guard is None:
        return
    keep = _exit_status in KEPT_AFTER
    guard.end(keep=keep)
    if keep and guard.folder:
        print(f"the files of this run are kept in {guard.folder}")


def end_with_parent() -> None:
    """Has the kernel send SIGTERM to this process when the one that started it dies."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died in between
            os.kill(os.getpid(), signal.SIGTERM)


# -- the guard's process


def watch(mark: str, folder: str, result: IO[bytes]) -> None:
    """Waits for the end of the pytest process, and cleans up after it."""
    keep = result.read() == KEEP
    for _ in range(ROUNDS):
        left = list(left_over(mark))
        if not left:
            break
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(PAUSE_S)
    if not folder or keep:
        return
    for path in mounted_below(folder):
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)
    for _ in range(ROUNDS):  # what was killed may still write
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(PAUSE_S)


def mounted_below(folder: str) -> list[str]:
    """Returns the file systems that tests mounted in a folder, the deepest first: it cannot be removed with them."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return []
    found = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    return sorted((path for path in found if path.startswith(f"{folder}/")), reverse=True)


def left_over(mark: str) -> Iterator[int]:
    """Yields the processes of a run, or of a worker of it."""
    for process, environment in _environments():
        for word in environment:
            name, _, value = word.partition("=")
            if name == MARK and (value == mark or value.startswith(f"{mark}/")) and process != os.getpid():
                yield process


def _environments() -> Iterator[tuple[int, list[str]]]:
    """Yields the words of the environment of each process, as it was when the process began."""
    if os.path.isdir("/proc/self"):
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    text = Path("/proc", name, "environ").read_bytes().decode(errors="replace")
                except OSError:
                    continue  # it has ended, or is another user's
                yield int(name), text.split("\0")
        return
    result = subprocess.run(["ps", "-axwwE", "-o", "pid=,command="], capture_output=True, text=True, check=False)
    for line in result.stdout.splitlines():
        process, *words = line.split()
        yield int(process), words


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2], sys.stdin.buffer)

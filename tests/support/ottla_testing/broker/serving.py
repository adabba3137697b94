"""`ottla serve` as a process: starts it, and reads what it prints."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from ottla_testing.patience import PATIENCE_S

COMMAND = [sys.executable, "-m", "ottla.tools", "serve"]


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, listeners: int = 1) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A broker process and its ready lines; killed at the end if the test has not stopped it."""
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        guard = threading.Timer(PATIENCE_S, process.kill)
        guard.start()
        try:
            assert process.stdout
            yield process, [process.stdout.readline().rstrip("\n") for _ in range(listeners)]
        finally:
            guard.cancel()
            process.kill()


def refused(folder: Path, *arguments: str) -> str:
    """The one line of a refused start."""
    outcome = subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (outcome.returncode, outcome.stdout) == (2, ""), outcome.stderr
    assert outcome.stderr.startswith("ottla serve: ") and outcome.stderr.count("\n") == 1, outcome.stderr
    return outcome.stderr


def port_of(line: str) -> int:
    match = re.fullmatch(r"ottla ready on .+:([0-9]+)", line)
    assert match, line
    return int(match[1])

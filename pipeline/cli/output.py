"""The output of a command: the report on stdout and in files, errors in one line on stderr.

Owns the checks of those files before Spark starts, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.mistakes import FAILED, complain
from ..extras import require
from ..jobs.command import UsageError

if TYPE_CHECKING:
    from ..jobs.report import Report

PLOT_SUFFIXES = (".png", ".html")


def check_files(parsed: argparse.Namespace) -> None:
    """Checks that the output files can be written, without creating them. Raises UsageError."""
    for path in (parsed.report, parsed.plot):
        if path is None:
            continue
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path) or not os.path.isdir(folder):
            problem = "it is a folder" if os.path.isdir(path) else "its folder does not exist"
            raise UsageError(f"cannot write {path}: {problem}")
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            raise UsageError(f"cannot write {path}: Permission denied")
    if parsed.plot is not None:
        if parsed.dry_run:
            raise UsageError("--plot cannot be used with --dry-run: there is no report to draw")
        if os.path.splitext(parsed.plot)[1].lower() not in PLOT_SUFFIXES:
            raise UsageError(f"--plot {parsed.plot}: the file name must end in {' or '.join(PLOT_SUFFIXES)}")
        require("matplotlib", "--plot")


def write(parsed: argparse.Namespace, program: str, report: Report | None, plan: Sequence[str], code: int) -> int:
    """Writes the files and prints the report, in a dry run after the plan. Returns the exit code."""
    plan = plan if parsed.dry_run else ()
    try:
        if parsed.report is not None:
            put(parsed.report, (_document(plan) if report is None else report.to_json()).encode())
        if parsed.plot is not None:
            from ..jobs.plot import drawn

            put(parsed.plot, drawn(report, parsed.plot))  # type: ignore[arg-type]
    except OSError as error:
        return complain(program, f"cannot write {error.filename or ''}: {error.strerror}", FAILED)
    text = "".join(f"{line}\n" for line in plan) + ("" if report is None else report.to_text())
    return _print(program, text, code)


def _document(plan: Sequence[str]) -> str:
    import json

    return json.dumps({"plan": list(plan)}, indent=2) + "\n"


def put(path: str, data: bytes) -> None:
    """Writes a file atomically: a concurrent reader gets the old content or the new. Raises OSError."""
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):  # such as a pipe or /dev/stdout
        Path(path).write_bytes(data)
        return
    unfinished = f"{path}.{os.getpid()}.tmp"
    try:
        Path(unfinished).write_bytes(data)
        if os.path.exists(path):
            shutil.copymode(path, unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        error.filename = path
        raise


def _print(program: str, text: str, code: int) -> int:
    """Prints text and returns the exit code, even if the reader closes the pipe or the terminal's encoding lacks a
    character."""
    if sys.stdout is None:
        return complain(program, "cannot write: stdout is closed", FAILED)
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Output left in the buffer would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return complain(program, f"cannot write: {error.strerror}", FAILED)
    return code

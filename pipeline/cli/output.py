"""What a command prints and writes: the report on stdout and in files, mistakes in one line on stderr.

Owns the looks at those files before Spark starts, too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ...protocol.mistakes import FAILED, complain
from ..extras import require
from ..jobs.command import Report, UsageError

PLOT_SUFFIXES = (".png", ".html")


def check_files(parsed: argparse.Namespace) -> None:
    """Whether what is to be written can be. Nothing is created yet."""
    for path in (parsed.report, parsed.plot):
        if path is None:
            continue
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path) or not os.path.isdir(folder):
            raise UsageError(f"cannot write {path}: {'a folder' if os.path.isdir(path) else 'there is no such folder'}")
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            raise UsageError(f"cannot write {path}: Permission denied")
    if parsed.plot is not None:
        if parsed.dry_run:
            raise UsageError("--plot: a dry run finds nothing that could be drawn")
        if os.path.splitext(parsed.plot)[1].lower() not in PLOT_SUFFIXES:
            raise UsageError(f"--plot {parsed.plot}: a file whose name ends in {' or '.join(PLOT_SUFFIXES)}")
        require("matplotlib", "--plot")


def write(parsed: argparse.Namespace, program: str, report: Report | None, told: Sequence[str], code: int) -> int:
    """Writes the files and prints the report; before it, in a dry run, the plan as it was told. The exit code."""
    plan = told if parsed.dry_run else ()
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
    """Writes a file, whole or not at all: who reads it meanwhile has the old one. OSError."""
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):  # a pipe, or /dev/stdout
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
    """Prints, also where the reader goes away early or the terminal lacks letters."""
    if sys.stdout is None:
        return complain(program, "cannot write: stdout is closed", FAILED)
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return complain(program, f"cannot write: {error.strerror}", FAILED)
    return code

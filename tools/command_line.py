"""What the commands share: flags with errors of one line, and output that may be cut off by its reader.

Owns no command. Exit codes: 0, FOUND_DAMAGE for input that could not be read to its end, USAGE_ERROR for a mistake.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

from ..protocol.mistakes import complain

FOUND_DAMAGE = 1


def number(what: str, most: int) -> Callable[[str], int]:
    """Reads a flag's number between 0 and `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is no {what}, which is a number from 0 to {most}")
        return int(text)

    return read


def printing(program: str, run: Callable[[Callable[[str], object]], int]) -> int:
    """Runs with a `write` to stdout; its exit code.

    A reader that goes away early, as `head` does, ends the run without a word, and a full disk with one line. Letters
    that the terminal's encoding lacks are written as escapes.
    """
    out: TextIO | None = sys.stdout
    if out is None:  # it was closed before we began
        return complain(program, "cannot write: stdout is closed")
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")
    try:
        code = run(out.write)
        out.flush()
    except OSError as error:
        # What is left in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return 0 if isinstance(error, BrokenPipeError) else complain(program, f"cannot write: {error.strerror}")
    return code

"""What the commands share: flags with errors of one line, and output that may be cut off by its reader.

Owns no command. Exit codes: 0, FOUND_DAMAGE for input that could not be read to its end, USAGE_ERROR for a mistake.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from ..cli import USAGE_ERROR

FOUND_DAMAGE = 1


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}", file=sys.stderr)
        raise SystemExit(USAGE_ERROR)


def printing(run: Callable[[Callable[[str], object]], int]) -> int:
    """Runs with a `write` to stdout; its exit code.

    A reader that goes away early, as `head` does, ends the run without a word. Letters that the terminal's encoding
    lacks are written as escapes.
    """
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")
    try:
        code = run(out.write)
        out.flush()
    except BrokenPipeError:
        # What is left in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return 0
    return code

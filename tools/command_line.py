"""Shared by all commands: parsers of numeric flags, the file of `--command-config`, and output to a pipe that its
reader may close early.

Owns no command. Exit codes: 0; FOUND_DAMAGE for input that cannot be read to its end; USAGE_ERROR for wrong arguments.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from ..protocol.arguments import Parser
from ..protocol.mistakes import complain

FOUND_DAMAGE = 1
Write = Callable[[str], object]


def number(most: int, least: int = 0) -> Callable[[str], int]:
    """Returns an argparse type for a whole number from `least` to `most`."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return read


def seconds(least: float, most: float) -> Callable[[str], float]:
    """Returns an argparse type for a number of seconds from `least` to `most`."""

    def read(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not least <= found <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {least} to {most}")
        return found

    return read


def security_options(parser: Parser, file: str | None) -> dict[str, Any]:
    """Returns the security options in the file of `--command-config` as keyword arguments of a client; none without a
    file. Exits with a usage error for a file that cannot be used."""
    if file is None:
        return {}
    from ..client.net.errors import ConfigError
    from ..client.net.options import security_values  # what only reads files does not import the client

    try:
        return security_values(file)
    except ConfigError as error:
        parser.error(str(error))


def printing(program: str, run: Callable[[Write], int | None]) -> int:
    """Calls `run` with a function that writes to stdout, and returns its exit code; None counts as 0.

    A pipe closed by its reader (`head`) ends the run with exit code 0 and no message, any other write error with one
    line on stderr. Characters that the encoding of stdout lacks are written as backslash escapes.
    """
    out: TextIO | None = sys.stdout
    if out is None:  # closed by the parent process, as by `>&-`
        return complain(program, "cannot write: stdout is closed")
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")
    try:
        code = run(out.write) or 0
        out.flush()
    except OSError as error:
        # The interpreter flushes stdout once more at exit: without this, the rest of the buffer would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return 0 if isinstance(error, BrokenPipeError) else complain(program, f"cannot write: {error.strerror}")
    return code


def printing_of_logs(program: str, run: Callable[[Write], int | None], damage: Iterable[str | None]) -> int:
    """Prints what `run` reads from logs, and returns the exit code: FOUND_DAMAGE, with one line on stderr, if one of
    them is damaged. `damage` yields the damage of each log; it is consumed after `run`, which reads the logs."""
    code = printing(program, run)
    first = next((one for one in damage if one is not None), None)
    if first is None or code:
        return code
    return complain(program, f"log read up to the damage only: {first}", FOUND_DAMAGE)


def print_text(program: str, text: str, code: int = 0) -> int:
    """Writes a text to stdout in the same way, and returns the exit code: `code` if the text was written."""

    def run(write: Write) -> int:
        write(text)
        return code

    return printing(program, run)

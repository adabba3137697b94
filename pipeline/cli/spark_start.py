"""Spark for a command: started, and stopped, without a word of its own on stderr."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..extras import SetupError
from ..jobs.command import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """A session for the command of that name. What Spark said is told where it does not start: UsageError."""
    from ..session import session

    settings = {"spark.app.name": name, "spark.ui.showConsoleProgress": "false", **conf}
    with hushed() as said:
        try:
            return session(master, **settings)
        except SetupError:
            raise
        except Exception as error:
            problem = str(getattr(error, "desc", None) or error).strip().partition("\n")[0] or type(error).__name__
            raise UsageError(f"Spark does not start: {_reason(said()) or problem}") from error


def _reason(said: str) -> str:
    """The line of what the JVM said that tells why it ended."""
    lines = [line.strip() for line in said.splitlines()]
    telling = [line for line in lines if re.match(r"(Error|Exception|Caused by|.*Exception: )", line)]
    # What was caught says less than why it was thrown: "Exception thrown in awaitResult:".
    causes = [line.removeprefix("Caused by: ") for line in telling if line.startswith("Caused by: ")]
    return (causes or telling or [""])[0]


@contextlib.contextmanager
def hushed() -> Iterator[Callable[[], str]]:
    """Sends stderr into a file, which the JVM, if it is started here, goes on to write to; gives what is in it.

    Everything that matters comes back as an exception.
    """
    with tempfile.TemporaryFile() as file:

        def said() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            kept = os.dup(2)
        except OSError:  # it is closed
            yield said
            return
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)

"""Starts and stops Spark for a command, with Spark's own output on stderr suppressed."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..extras import SetupError
from ..jobs.command import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LateSession:
    """A session that starts when a job first uses it: a job that has nothing to do starts no JVM."""

    def __init__(self, name: str, master: str | None, conf: Mapping[str, str]) -> None:
        self._arguments = (name, master, conf)
        self.session: SparkSession | None = None

    def __getattr__(self, name: str) -> Any:
        """Starts the session. Raises SetupError."""
        if self.session is None:
            self.session = start(*self._arguments)
        return getattr(self.session, name)

    def end(self) -> None:
        """Stops the session, if it was started."""
        if self.session is not None:
            with hushed():
                self.session.stop()


def start(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """Returns a session for the command `name`. Raises UsageError with the JVM's message if Spark does not start."""
    from ..session import session

    settings = {"spark.app.name": name, "spark.ui.showConsoleProgress": "false", **conf}
    with hushed() as output:
        try:
            return session(master, **settings)
        except SetupError:
            raise
        except Exception as error:
            problem = str(getattr(error, "desc", None) or error).strip().partition("\n")[0] or type(error).__name__
            raise UsageError(f"Spark does not start: {_reason(output()) or problem}") from error


def _reason(output: str) -> str:
    """Returns the line of the JVM's output that names the cause."""
    lines = [line.strip() for line in output.splitlines()]
    causal = [line for line in lines if re.match(r"(Error|Exception|Caused by|.*Exception: )", line)]
    # The caught exception names less than its cause: "Exception thrown in awaitResult:".
    causes = [line.removeprefix("Caused by: ") for line in causal if line.startswith("Caused by: ")]
    return (causes or causal or [""])[0]


@contextlib.contextmanager
def hushed() -> Iterator[Callable[[], str]]:
    """Redirects stderr to a file, for the JVM started meanwhile as well, and yields a function that reads that file.

    Every error that matters is raised as an exception.
    """
    with tempfile.TemporaryFile() as file:

        def output() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            kept = os.dup(2)
        except OSError:  # stderr is closed
            yield output
            return
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        try:
            yield output
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)

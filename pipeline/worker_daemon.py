"""`pyspark.daemon` with two changes, for `spark.python.daemon.module` of a local session, and for the processes in
which Spark plans (`sources.source.quiet_planner`).

A process that has bytes left for a JVM that is gone ends without a word: over Unix sockets it notices that at once, and
would print a traceback. And the collection of garbage after each task passes over the objects of imported modules: it
took 15 ms, in which the next task waits.
"""

from __future__ import annotations

import gc
import socket
import sys
import traceback
from types import ModuleType, SimpleNamespace

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Runs the tasks that the JVM sends; returns the exit code of the process."""
    code = _worker(sock, authenticated)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return code


def print_exc() -> None:
    """Prints the error that ends a process, unless it is that of a JVM that is gone."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        traceback.print_exc()


def change(module: ModuleType) -> None:
    """Changes a `pyspark.daemon`, as a process that runs its `worker` already finds it when that raises."""
    names = {"worker": worker, "traceback": SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)}
    vars(module).update(names)


if __name__ == "__main__":
    change(daemon)
    daemon.manager()

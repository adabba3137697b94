"""`pyspark.daemon` with two changes, for `spark.python.daemon.module` of a local session, and for the processes in
which Spark plans (`sources.source.quiet_planner`).

A process that has bytes left for a JVM that is gone ends without a word: over Unix sockets it notices that at once, and
would print a traceback. And the collection of garbage after each task passes over the objects of imported modules: it
took 15 ms, in which the next task waits.
"""

from __future__ import annotations

import gc
import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Runs the tasks that the JVM sends; returns the exit code of the process."""
    try:
        code = _worker(sock, authenticated)
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
        return code
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()

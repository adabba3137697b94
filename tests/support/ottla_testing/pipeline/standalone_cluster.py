"""A standalone Spark master with workers of the installed PySpark, on loopback addresses and free ports."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pyspark

from ottla_testing.patience import PATIENCE_S

HOME = Path(pyspark.__file__).parent
MEMORY = "512m"
CONF = ("spark.executor.memory=480m", "spark.driver.memory=512m", "spark.driver.host=127.0.0.1")
"""Settings with which a session fits these workers."""

_MASTER = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_REGISTERED = re.compile(r"Successfully registered with master")


class _Daemon:
    """A process of Spark, and the lines of its log."""

    def __init__(self, kind: str, arguments: list[str], environ: dict[str, str]) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        self._process = subprocess.Popen(
            [*command, "--port", "0", "--webui-port", "0", *arguments],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()

    def until(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Returns the first match in the log, also of a later line."""

        def found() -> re.Match[str] | None:
            return next((match for line in self._lines if (match := pattern.search(line))), None)

        with self._changed:
            self._changed.wait_for(lambda: found() or not self._reader.is_alive(), PATIENCE_S)
            match = found()
        assert match is not None, "".join(self._lines[-20:])
        return match

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextlib.contextmanager
def standalone_cluster(folder: Path, java_home: str, workers: int = 2) -> Iterator[str]:
    """Yields the URL of a master with workers of one core each; `folder` gets their work folders."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "128m", "JAVA_HOME": java_home}
    environ |= {"SPARK_HOME": str(HOME), "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    with contextlib.ExitStack() as stack:

        def started(kind: str, *arguments: str) -> _Daemon:
            daemon = _Daemon(kind, list(arguments), environ)
            stack.callback(daemon.stop)
            return daemon

        url = started("master.Master").until(_MASTER)[1]
        ready = [
            started("worker.Worker", "--cores", "1", "--memory", MEMORY, "--work-dir", f"{folder}/work-{number}", url)
            for number in range(workers)
        ]
        for worker in ready:
            worker.until(_REGISTERED)
        yield url

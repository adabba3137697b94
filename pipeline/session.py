"""Spark sessions that read logs: what a local one needs set, and the three data sources made known to it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from . import java
from .extras import needed

with needed():
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # is set where spark-submit has started the JVM, and then this process
LOGGING = Path(__file__).with_name("log4j2.properties")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_starting = threading.Lock()
_taught: WeakSet[SparkSession] = WeakSet()


def session(master: str | None = None, **conf: Any) -> SparkSession:
    """A Spark session that knows `ottla_log`, `ottla_batches` and `ottla`: a new one, or the one that there is.

    `master` is by default what `spark-submit` was told, else `local[*]`. `conf` are Spark's settings, as in
    `session(**{"spark.driver.memory": "4g"})`; they come before what is set here, which is for a local master:
    loopback addresses, no web interface, a progress bar if stderr is a terminal, and errors only in the log. With
    every master filters may be pushed down (whether they are is up to the option `pushdown`), and the Python of tasks
    is that of this process unless PYSPARK_PYTHON names another. The heap is Spark's own default, 1 GiB. SetupError
    where there is no Java.
    """
    given = settings(master, conf, os.environ, terminal=sys.stderr is not None and sys.stderr.isatty())
    builder = SparkSession.builder
    for key, value in given.items():
        builder = builder.config(key, value)
    with _starting, _undisturbed(), _environment(variables(given, os.environ)):
        spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Makes `ottla_log`, `ottla_batches` and `ottla` known to a session, which needs it where Spark does not find the
    modules `pyspark_ottla...` itself, as with an editable install."""
    from .sources.batches import BatchesSource
    from .sources.log import LogSource
    from .sources.wire import WireSource

    if spark in _taught:
        return
    for source in (LogSource, BatchesSource, WireSource):
        spark.dataSource.register(source)
    _taught.add(spark)


def is_local(master: str) -> bool:
    """Whether driver and tasks are one JVM here: local, local[2], local[*,3], but not local-cluster[...]."""
    return master == "local" or master.startswith("local[")


def _text(value: object) -> str:
    """A setting as Spark reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings(
    master: str | None, conf: Mapping[str, object], environ: Mapping[str, str], *, terminal: bool
) -> dict[str, str]:
    """What a session is told: the caller's settings, and those of ours that they leave open."""
    chosen = {key: _text(value) for key, value in conf.items()}
    if master is not None:
        chosen["spark.master"] = master
    if SUBMITTED in environ:
        return {PUSHDOWN: "true", **chosen}
    chosen.setdefault("spark.master", "local[*]")
    ours = {PUSHDOWN: "true", "spark.ui.showConsoleProgress": _text(terminal)}
    if is_local(chosen["spark.master"]):
        ours |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.ui.enabled": "false"}
        places = [environ.get("SPARK_CONF_DIR"), environ.get("SPARK_HOME") and f"{environ['SPARK_HOME']}/conf"]
        if not any(place and Path(place, "log4j2.properties").exists() for place in places):
            options = chosen.pop("spark.driver.extraJavaOptions", "")
            logging = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
            ours["spark.driver.extraJavaOptions"] = f"{logging} {options}".strip()  # what comes later counts
    return ours | chosen


def variables(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """What Spark is to find in the environment while it starts, as far as that is not set. NoJava."""
    if SUBMITTED in environ:
        return {}
    python = environ.get("PYSPARK_PYTHON", sys.executable)
    wanted = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": environ.get("PYSPARK_DRIVER_PYTHON", python)}
    if is_local(given["spark.master"]) and "SPARK_LOCAL_IP" not in environ:
        wanted["SPARK_LOCAL_IP"] = LOOPBACK
    if SparkContext._gateway is None:  # the JVM that a process has started stays for all its sessions
        wanted["JAVA_HOME"] = str(java.spark_home(environ))
    return wanted


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits until the JVM has started; a second one does not. PySpark would leave a JVM that is starting to
    itself, and that stays for ever, as it finds nobody to tell where it listens."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    pressed: list[int] = []

    def note(number: int, frame: Any) -> None:
        if pressed:
            before(number, frame)
        pressed.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # a context that was started has a handler of its own
            signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for the start of the JVM, which inherits them; then this process has its own again."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

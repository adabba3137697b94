"""Spark sessions with the data sources: the settings of a local session, and the registration of the sources."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from . import cluster, java
from .extras import needed

with needed():
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set if spark-submit started the JVM, which then started this process
LOGGING = Path(__file__).with_name("log4j2.properties")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
DAEMON = "spark.python.daemon.module"
_starting = threading.Lock()
_registered: WeakSet[SparkSession] = WeakSet()


def session(master: str | None = None, **conf: Any) -> SparkSession:
    """Returns a Spark session with the formats `ottla_log`, `ottla_batches` and `ottla`: a new one, or the active one.

    `master` defaults to that of `spark-submit`, else to `local[*]`. `conf` are settings of Spark, as in
    `session(**{"spark.driver.memory": "4g"})`. They override the settings for a local master: loopback addresses, no
    web interface, a progress bar if stderr is a terminal, only errors in the log, and Unix sockets between the JVM and
    its Python processes (Spark 4.1 and later), which `worker_daemon` starts. With every master, filter pushdown is
    enabled (the option `pushdown` decides whether a source applies it), and tasks run in this process's Python unless
    PYSPARK_PYTHON or `spark.pyspark.python` names another: on a cluster, that path must exist on every worker and have
    Ottla installed. The heap is Spark's default, 1 GiB. Raises SetupError if there is no Java, and for settings of
    Spark Connect.
    """
    given = settings(master, conf, os.environ, terminal=sys.stderr is not None and sys.stderr.isatty())
    cluster.check_classic(given, os.environ)
    builder = SparkSession.builder
    for key, value in given.items():
        builder = builder.config(key, value)
    with _starting, _undisturbed(), _environment(variables(given, os.environ)):
        spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Registers `ottla_log`, `ottla_batches` and `ottla` with a session. Needed if Spark does not find the modules
    `pyspark_ottla...` itself, as in an editable install."""
    from .sources.source import BatchesSource, LogSource, WireSource

    if spark in _registered:
        return
    for source in (LogSource, BatchesSource, WireSource):
        spark.dataSource.register(source)
    _registered.add(spark)


def is_local(master: str) -> bool:
    """Returns whether driver and tasks run in one local JVM: local, local[2], local[*,3], but not local-cluster."""
    return master == "local" or master.startswith("local[")


def _text(value: object) -> str:
    """Returns a setting in Spark's form."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings(
    master: str | None, conf: Mapping[str, object], environ: Mapping[str, str], *, terminal: bool
) -> dict[str, str]:
    """Returns the settings of a session: the caller's, and our defaults for the others."""
    chosen = {key: _text(value) for key, value in conf.items()}
    if master is not None:
        chosen["spark.master"] = master
    if SUBMITTED in environ:
        return {PUSHDOWN: "true", **chosen}
    chosen.setdefault("spark.master", "local[*]")
    ours = {PUSHDOWN: "true", "spark.ui.showConsoleProgress": _text(terminal)}
    if is_local(chosen["spark.master"]):
        ours |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, "spark.ui.enabled": "false"}
        if hasattr(socket, "AF_UNIX"):
            # Over TCP a short task waits 40 ms for the rows of its JVM: Nagle's algorithm and delayed acknowledgements.
            ours |= {UNIX_SOCKETS: "true", DAEMON: f"{__package__}.worker_daemon"}
        places = [environ.get("SPARK_CONF_DIR"), environ.get("SPARK_HOME") and f"{environ['SPARK_HOME']}/conf"]
        if not any(place and Path(place, "log4j2.properties").exists() for place in places):
            options = chosen.pop("spark.driver.extraJavaOptions", "")
            logging = f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"
            ours["spark.driver.extraJavaOptions"] = f"{logging} {options}".strip()  # the last of two equal options wins
    return ours | chosen


def variables(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables for the start of Spark that are not set yet. Raises NoJava.

    PySpark sends PYSPARK_PYTHON to the workers, without it `python3`, which rarely has Ottla; under `spark-submit`,
    too.
    """
    python = given.get(cluster.PYTHON) or environ.get("PYSPARK_PYTHON") or sys.executable
    wanted = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": environ.get("PYSPARK_DRIVER_PYTHON", python)}
    if SUBMITTED in environ:
        return wanted
    if is_local(given["spark.master"]) and "SPARK_LOCAL_IP" not in environ:
        wanted["SPARK_LOCAL_IP"] = LOOPBACK
    if SparkContext._gateway is None:  # a process keeps its JVM for all its sessions
        wanted["JAVA_HOME"] = str(java.spark_home(environ))
    return wanted


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Delays the first Ctrl-C until the JVM has started; a second one interrupts at once. PySpark would abandon a
    starting JVM, which then runs forever, since no process reads its port."""
    with first_interrupt_noted() as is_pressed:
        yield
    if is_pressed():
        raise KeyboardInterrupt


@contextmanager
def first_interrupt_noted() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether Ctrl-C was pressed, which has no other effect. A second Ctrl-C has its
    previous effect."""
    pressed = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield pressed.is_set
        return

    def note(number: int, frame: Any) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed.is_set
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # a context that was started has its own handler
            signal.signal(signal.SIGINT, before)


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for the start of the JVM, which inherits them, and restores them afterwards."""
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

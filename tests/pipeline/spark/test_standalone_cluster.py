"""The jobs on a standalone master with two workers, as the guide runs them: `--master` and `spark-submit`."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ottla.broker import Embedded
from ottla.pipeline import java
from ottla.protocol.records.batch import Record
from ottla_testing.patience import PATIENCE_S
from ottla_testing.pipeline.export_samples import NOW_MS, a_log
from ottla_testing.pipeline.standalone_cluster import CONF, HOME, standalone_cluster

PROGRAM = """
import sys
from ottla.pipeline import SetupError, session, write_exactly_once

url, bootstrap, name, *conf = sys.argv[1:]
spark = session(url, **dict(one.split("=", 1) for one in conf))
try:
    rows = spark.range(20).selectExpr("CAST(id AS STRING) AS value")
    write_exactly_once(rows, 0, {"kafka.bootstrap.servers": bootstrap, "topic": "t", "transactionalId": name})
except SetupError as error:
    print(error)
finally:
    spark.stop()
"""
Start = Callable[..., subprocess.CompletedProcess[str]]
BIN = Path(sys.executable).parent
SETTINGS = [word for setting in (*CONF, "spark.task.maxFailures=1") for word in ("--conf", setting)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), str(java.spark_home())) as found:
        yield found


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("logs") / "data"
    for topic in ("orders", "users"):
        a_log(root, topic, 0, [[Record(n, NOW_MS + n, b"k", b'{"id":%d}' % n, ()) for n in range(10)]])
    return str(root)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns a Python without any installed package, like the `python3` of a worker."""
    place = tmp_path_factory.mktemp("bare") / "python3"
    place.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return str(place)


def run(command: Sequence[str], cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    kept |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(HOME), "JAVA_HOME": str(java.spark_home()), **environ}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=kept, cwd=cwd)


def ottla(url: str, cwd: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "ottla"), "pipeline", *arguments, "--master", url, *SETTINGS, "--quiet"]
    return run(command, cwd, **environ)


def submit(url: str, cwd: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    script = run([str(BIN / "ottla"), "pipeline", "--script"], cwd, **environ).stdout.split()
    command = [str(HOME / "bin" / "spark-submit"), "--master", url, *SETTINGS, *script, *arguments, "--quiet"]
    return run(command, cwd, **environ)


def own_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Returns the lines of the command. spark-submit prints the driver's stderr on stdout."""
    return [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ottla pipeline")]


def exported(lake: Path) -> list[str]:
    files = sorted(lake.glob("topic=*/**/*.parquet"))
    return [value.decode() for file in files for value in pq.ParquetFile(file).read().column("value").to_pylist()]


def audited_and_exported(url: str, logs: str, bare_python: str, cwd: Path, start: Start) -> None:
    done = start(url, cwd, "audit", logs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "no errors"
    lake = cwd / f"lake-{start.__name__}"
    done = start(url, cwd, "export", logs, "--to", str(lake), "--decode", "json", "--schema", "id BIGINT")
    assert done.returncode == 0, done.stderr
    assert exported(lake) == [f'{{"id":{n}}}' for n in range(10)] * 2


def imported(url: str, logs: str, bare_python: str, cwd: Path) -> None:
    lake = cwd / "lake-submit"
    with Embedded() as broker:
        done = ottla(url, cwd, "import", str(lake), "--bootstrap-server", broker.bootstrap)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert [len(broker.records(topic)) for topic in ("orders", "users")] == [10, 10]


def workers_without_ottla(url: str, logs: str, bare_python: str, cwd: Path, start: Start) -> None:
    done = start(url, cwd, "audit", logs, PYSPARK_PYTHON=bare_python, PYSPARK_DRIVER_PYTHON=sys.executable)
    (line,) = own_lines(done)
    assert line.startswith(f"ottla pipeline audit: the workers' Python, {bare_python}, has no module ottla: set PYSP")
    assert done.returncode == 2
    if start is ottla:
        assert (done.stdout, done.stderr) == ("", f"{line}\n")


def workers_without_that_python(url: str, logs: str, bare_python: str, cwd: Path) -> None:
    missing = str(cwd / "no" / "python")
    done = ottla(url, cwd, "audit", logs, PYSPARK_PYTHON=missing)
    assert done.stderr.startswith(f"ottla pipeline audit: the workers' Python, {missing}, cannot be run there: set ")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def driver_without_ottla(url: str, logs: str, bare_python: str, cwd: Path) -> None:
    done = submit(url, cwd, "audit", logs, PYSPARK_PYTHON=bare_python)
    (line,) = own_lines(done)
    assert line.startswith(f"ottla pipeline: the driver's Python, {sys.executable}, has no module ottla")
    assert "Traceback" not in done.stdout + done.stderr and done.returncode == 2


def session_and_sink(url: str, logs: str, bare_python: str, cwd: Path) -> None:
    with Embedded() as broker:
        broker.create_topic("t", partitions=2)
        command = [sys.executable, "-c", PROGRAM, url, broker.bootstrap]
        conf = [*CONF, "spark.task.maxFailures=1"]
        done = run([*command, "first", *conf], cwd)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert len(broker.records("t")) == 20
        done = run([*command, "second", *conf], cwd, PYSPARK_PYTHON=bare_python)
        assert done.stdout.startswith(f"the workers' Python, {bare_python}, has no module "), done.stderr
        assert done.stdout.count("\n") == 1


CASES: list[Callable[[str, str, str, Path], None]] = [
    partial(audited_and_exported, start=submit),
    partial(workers_without_ottla, start=ottla),
    imported,
    session_and_sink,
    workers_without_that_python,
    driver_without_ottla,
    partial(audited_and_exported, start=ottla),
    partial(workers_without_ottla, start=submit),
]
"""Each starts Spark once or twice: at the smallest size only the first is tried."""


def test_standalone_master_with_two_workers(
    url: str, logs: str, bare_python: str, tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    for case in CASES[: scaled(len(CASES))]:
        case(url, logs, bare_python, tmp_path)

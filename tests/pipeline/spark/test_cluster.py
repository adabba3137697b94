"""What is refused of a cluster: the workers' Python by Spark's own words for it, and Spark Connect."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline import SetupError, session
from ottla.pipeline.cli import SCRIPT, script_words
from ottla.pipeline.cluster import check_classic, context_of, worker_python
from ottla.pipeline.jobs.audit.job import audit
from ottla.pipeline.jobs.spark_tasks import JobError, ended, run

MODULE = """org.apache.spark.SparkException: Job aborted due to stage failure: (TID 3) (127.0.0.1 executor 0):
  File "cloudpickle.py", line 1, in loads
ModuleNotFoundError: No module named 'ottla'
 SQLSTATE: 38000"""
VERSION = (
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark "
    "cannot run with different minor versions."
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MODULE, "/w/python, has no module ottla: set PYSPARK_PYTHON"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "/w/python, has no module pyarrow: set"),
        (VERSION, "/w/python, is Python 3.9, but the driver's is 3.11: set"),
        ('java.io.IOException: Cannot run program "/x/python": error=2', "/x/python, cannot be run there: set"),
        (
            "AttributeError: Can't get attribute 'Work' on <module 'ottla.pipeline.jobs.export.tasks' from 'x'>",
            "/w/python, has another version of Ottla than the driver's: set",
        ),
    ],
)
def test_worker_python_is_named(text: str, words: str) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(pythonExec="/w/python"))
    found = ended(spark, RuntimeError(text))
    assert isinstance(found, SetupError) and str(found).startswith(f"the workers' Python, {words}")
    assert "\n" not in str(found)


def test_other_errors_of_jobs_stay() -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(pythonExec="/w/python"))
    for text in ("no space left", "AttributeError: 'int' object has no attribute 'x'", "Python worker exited"):
        assert worker_python(RuntimeError(text), "/w/python") is None
        assert isinstance(ended(spark, RuntimeError(text)), JobError)


def test_script_words_name_this_python() -> None:
    mine, drivers = f"spark.pyspark.python={sys.executable}", f"spark.pyspark.driver.python={sys.executable}"
    assert script_words({}, sys.executable) == ["--conf", mine, "--conf", drivers, str(SCRIPT)]
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        assert script_words({name: "/w/python"}, sys.executable) == [str(SCRIPT)]


@pytest.mark.parametrize(
    ("conf", "environ", "words"),
    [
        ({"spark.remote": "sc://host:15002"}, {}, "spark.remote is sc://host:15002: Spark Connect is not supported"),
        ({"spark.master": "sc://host"}, {}, "spark.master is sc://host: Spark Connect"),
        ({"spark.api.mode": "connect"}, {}, "spark.api.mode is connect: Spark Connect"),
        ({}, {"SPARK_REMOTE": "local"}, "SPARK_REMOTE is local: Spark Connect"),
    ],
)
def test_spark_connect_refused_by_name(conf: dict[str, str], environ: dict[str, str], words: str) -> None:
    with pytest.raises(SetupError, match=f"^{words}"):
        check_classic(conf, environ)


def test_session_refuses_spark_connect_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match=r"^spark\.remote is sc://host"):
        session(**{"spark.remote": "sc://host"})
    monkeypatch.setenv("SPARK_REMOTE", "sc://other")
    with pytest.raises(SetupError, match=r"^SPARK_REMOTE is sc://other"):
        session("local[1]")


def test_classic_settings_accepted() -> None:
    check_classic({"spark.master": "spark://host:7077", "spark.api.mode": "classic"}, dict(os.environ))


class _Remote:
    """Stands for a session of Spark Connect, whose class needs packages that are not installed here."""

    __module__ = "pyspark.sql.connect.session"


def test_jobs_refuse_a_session_of_spark_connect(tmp_path: Any) -> None:
    remote: Any = _Remote()
    with pytest.raises(SetupError, match=r"^this is a session of Spark Connect \(spark\.remote\)"):
        context_of(remote)
    with pytest.raises(SetupError, match="Spark Connect"):
        list(run(remote, [1], str, bytes_of=int))
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(b"")
    with pytest.raises(SetupError, match="Spark Connect"):
        audit(remote, [str(tmp_path)])

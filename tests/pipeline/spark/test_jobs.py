"""The jobs through Spark: bundles and cancellation, the census of Kafka's directories, and the command itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.pipeline.jobs.audit.job import audit, plan_text
from ottla.pipeline.jobs.audit.rules import Rules
from ottla.pipeline.jobs.audit.steps import Audit
from ottla.pipeline.jobs.census.job import census
from ottla.pipeline.jobs.census.plan import plan
from ottla.pipeline.jobs.census.report import report
from ottla.pipeline.jobs.census.tasks import count
from ottla.pipeline.jobs.spark_tasks import JobError, Progress, run, tasks
from ottla_testing import GOLDEN
from ottla_testing.pipeline import jobs_tasks
from ottla_testing.pipeline.census_samples import a_log, written

KAFKA = GOLDEN / "directories" / "2.8.2"


def size_of(item: int) -> int:
    return item << 20


def test_run_in_bundles(spark: SparkSession) -> None:
    items = list(range(60))
    progress: list[Progress] = []
    found = dict(run(spark, items, jobs_tasks.doubled, bytes_of=size_of, on_progress=progress.append))
    assert found == {item: 2 * item for item in items}
    sized: list[Any] = [SimpleNamespace(size_bytes=size_of(item)) for item in items]
    assert 10 < tasks(spark, sized) < 40
    assert [progress.items for progress in progress] == sorted(progress.items for progress in progress)
    assert [progress.ended for progress in progress] == [False] * (len(progress) - 1) + [True]
    assert (progress[-1].items, progress[-1].bytes) == (60, progress[-1].all_bytes)
    assert list(run(spark, [], jobs_tasks.doubled, bytes_of=size_of)) == []
    with pytest.raises(JobError, match=r"^7: ValueError: it is seven$"):
        list(run(spark, items, jobs_tasks.refuses_seven, bytes_of=size_of))
    with pytest.raises(JobError, match=r"^Spark ended the job: Python worker exited unexpectedly"):
        list(run(spark, [1], jobs_tasks.dies, bytes_of=size_of))
    for _ in run(spark, items, jobs_tasks.doubled, bytes_of=size_of):
        break  # the rest is cancelled
    assert dict(run(spark, [4], jobs_tasks.doubled, bytes_of=size_of)) == {4: 8}


def test_census_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    lines: list[str] = []
    found = census(spark, [str(KAFKA)], on_plan=lines.append)
    made = plan([str(KAFKA)])
    here = report(made, [(piece, count(piece)) for piece in made.pieces], found.seconds)
    assert found == here
    assert lines == ["13 partitions, 29 segments, 17.3 KiB: 28 pieces in 1 tasks"]
    written(tmp_path / "t-0" / f"{0:020d}.log", a_log(1, 200))
    parts = plan([str(tmp_path)], piece_bytes=100_000)
    assert len(parts.pieces) > 5
    whole = plan([str(tmp_path)])
    found = report(parts, run(spark, parts.pieces, count, bytes_of=lambda piece: piece.size_bytes))
    assert found.facts == count(whole.pieces[0])


def test_audit_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Kafka's directory is sound, as in this process; a planted fault is found, and the rest is still read."""
    progress: list[Progress] = []
    assert plan_text(spark, Audit(str(KAFKA)), Rules()).endswith("13 partitions, 29 segments, 17708 bytes, in 1 tasks")
    found = audit(spark, str(KAFKA), on_progress=progress.append, now_ms=0)
    here = Audit([str(KAFKA)]).report(now_ms=0)
    here.seconds = found.seconds
    assert found == here and found.sound and progress[-1].items == 29
    root = shutil.copytree(KAFKA, tmp_path / "data")
    log = max(root.glob("*/*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    found = audit(spark, [str(root)], records=False, rules=["key at least 1 GB"])
    (rule,) = found.rules
    assert [one.file for one in found.findings if one.part == "log"] == [f"{log.parent.name}/{log.name}"]
    assert rule.records > rule.broken > 0 and {one.part for one in found.findings} == {"log", "rules"}
    assert (found.exit_code, len(found.partitions)) == (1, 13)


def test_command_as_process(tmp_path: Path) -> None:
    """In its own process and JVM: only its own text on stdout and stderr."""
    arguments = ["pipeline", "census", str(KAFKA), "--master", "local[1]", "--conf", "spark.driver.memory=512m"]
    place = tmp_path / "out.json"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ottla")), *arguments, "--report", str(place)],
        capture_output=True,
        text=True,
        timeout=100,
        env=environ,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    made = plan([str(KAFKA)])
    assert done.stdout == report(made, [(piece, count(piece)) for piece in made.pieces]).to_text()
    lines = done.stderr.splitlines()
    assert all(line.startswith("ottla pipeline census: ") for line in lines), done.stderr
    assert lines[0].endswith("13 partitions, 29 segments, 17.3 KiB: 28 pieces in 1 tasks")
    assert lines[-1].startswith("ottla pipeline census: 28 of 28, 17.3 KiB of 17.3 KiB, ")
    assert json.loads(place.read_text())["total"]["records"] == 268

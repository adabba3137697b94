"""`ottla pipeline` without Spark: one-line errors before it starts, output, files, exit codes."""

from __future__ import annotations

import argparse
import builtins
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ottla.pipeline as package
from ottla.pipeline import SetupError, cli, extras
from ottla.pipeline.backend import ReadError
from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.audit import job as audit_job
from ottla.pipeline.jobs.audit.report import AuditReport, DirectoryAudit
from ottla.pipeline.jobs.census import job as census_job
from ottla.pipeline.jobs.census.plan import plan
from ottla.pipeline.jobs.census.report import report
from ottla.pipeline.jobs.census.tasks import count
from ottla.pipeline.jobs.command import Job
from ottla.pipeline.jobs.spark_tasks import JobError, Progress
from ottla.pipeline.sink.errors import SinkError
from ottla.storage.check.facts import Finding
from ottla.storage.errors import StorageError
from ottla.tools.main import load
from ottla_testing import ROOT
from ottla_testing.pipeline.census_samples import a_log, written

EXTRAS = set.union(*map(set, extras.EXTRAS.values()))
SESSION = import_module("ottla.pipeline.session")  # the package has the function of that name
WITHOUT_SPARK = {"optimize", "runs"}


@pytest.fixture
def logs(tmp_path: Path) -> str:
    for topic in ("orders", "users"):
        written(tmp_path / "data" / f"{topic}-0" / f"{0:020d}.log", a_log(1, 10))
    return str(tmp_path / "data")


class Jobs:
    """A stand-in for Spark and both jobs, which records their calls."""

    def __init__(self) -> None:
        self.sessions: list[tuple[str | None, dict[str, str]]] = []
        self.calls: list[dict[str, Any]] = []
        self.findings: list[Finding] = []
        self.problem: Exception | None = None
        self.stopped = 0

    def session(self, master: str | None = None, **conf: str) -> SimpleNamespace:
        self.sessions.append((master, conf))
        return SimpleNamespace(stop=self.stop, version="4")

    def stop(self) -> None:
        self.stopped += 1

    def _called(self, paths: Sequence[str], options: dict[str, Any]) -> None:
        self.calls.append({"paths": paths, **options})
        if self.problem is not None:
            raise self.problem
        if options["on_progress"] is not None:
            options["on_progress"](Progress(1, 1, 10**6, 10**6, 0.5, True))

    def census(self, spark: Any, paths: Sequence[str], *, on_plan: Any, **options: Any) -> object:
        assert spark.version
        on_plan("the plan")
        self._called(paths, options)
        made = plan(paths, topics=options["topics"])
        return report(made, [(piece, count(piece)) for piece in made.pieces])

    def audit(self, spark: Any, paths: Sequence[str], **options: Any) -> AuditReport:
        assert spark.version
        self._called(paths, options)
        return AuditReport([DirectoryAudit(paths[0], True, findings=list(self.findings))], True, 0)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    made = Jobs()
    monkeypatch.setattr(SESSION, "session", made.session)
    monkeypatch.setattr(census_job, "census", made.census)
    monkeypatch.setattr(audit_job, "audit", made.audit)
    for job in (audit_job, census_job):
        monkeypatch.setattr(job, "plan_text", lambda spark, *arguments, **options: f"the plan{spark.version[1:]}")
    return made


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """Returns the single line on stderr of a refused command."""
    try:
        found = pipeline(arguments)
    except SystemExit as stopped:
        found = stopped.code
    out, err = capsys.readouterr()
    assert (found, out, err.count("\n")) == (code, "", 1), err
    return err.removesuffix("\n")


# --- usage errors


def test_the_command_is_installed() -> None:
    assert load("pipeline") is pipeline


def test_invalid_arguments_refused(capsys: pytest.CaptureFixture[str], logs: str, jobs: Jobs) -> None:
    for arguments, problem in (
        ([], "ottla pipeline: the following arguments are required: census|audit"),
        (["count"], "ottla pipeline: unknown command count; one of: census, audit"),
        (["census"], "ottla pipeline census: the following arguments are required: PATH"),
        (
            ["audit", logs, "--colour"],
            "ottla pipeline: unknown flag --colour; ottla pipeline audit --help lists",
        ),
        (["census", logs, "--no-records"], "ottla pipeline: unknown flag --no-records"),
        (
            ["census", logs, "--conf", "x"],
            "ottla pipeline census: argument --conf: 'x' is not a setting: it must be KEY=VALUE",
        ),
        (["census", logs, "--topics", "("], "ottla pipeline census: --topics (: missing ), unterminated subpattern"),
    ):
        assert refused(capsys, *arguments).startswith(problem)
    assert not jobs.sessions


def test_missing_paths_and_topics_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path, jobs: Jobs
) -> None:
    for job in ("census", "audit"):
        assert refused(capsys, job, logs, f"{logs}/no\nwhere").startswith(
            f"ottla pipeline {job}: cannot read {logs}/no"
        )
        assert "is no data directory" in refused(capsys, job, str(tmp_path))
        assert "there is no topic missing in" in refused(capsys, job, logs, "--topic", "orders", "--topic", "missing")
        assert "no partition is selected" in refused(capsys, job, logs, "--topics", "order")
    assert not jobs.sessions


def test_output_files_checked_before_spark_starts(
    capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for flag in ("--report", "--plot"):
        assert "its folder does not exist" in refused(capsys, "census", logs, flag, f"{tmp_path}/no/x.png")
        assert "a folder" in refused(capsys, "census", logs, flag, str(tmp_path))
    assert "the file name must end in .png or .html" in refused(capsys, "audit", logs, "--plot", f"{tmp_path}/x.pdf")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert refused(capsys, "audit", logs, "--report", f"{tmp_path}/x.json").endswith("x.json: Permission denied")
    assert not jobs.sessions
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_missing_extras_are_named(
    capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert refused(capsys, "census", logs, "--plot", f"{tmp_path}/x.png").endswith("pip install 'ottla[plot]'")
    imported = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name == "partitions":
            raise ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
        return imported(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    assert refused(capsys, "audit", logs).endswith("pip install 'ottla[pipeline]'")
    assert not jobs.sessions


def test_usage_errors_import_no_extras() -> None:
    program = (
        "import sys\nfrom ottla.pipeline.cli import pipeline\n"
        "try: pipeline(['census', '--help'])\nexcept SystemExit: pass\n"
        f"print(sorted({EXTRAS} & set(sys.modules)))\n"
        f"print([name for name in {cli.MODULES} if f'ottla.pipeline.jobs.{{name}}.cli' in sys.modules])\n"
        "try: pipeline(['--help'])\nexcept SystemExit: pass\n"
        f"print(sorted({EXTRAS} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    one, every = done.stdout.split("[]\n['census']\n")
    assert "--report FILE.json" in one and every.endswith("\n[]\n")
    assert "Check batches, indexes, sequences and transactions" in " ".join(every.split())


@pytest.mark.parametrize("module", cli.MODULES)
def test_each_job_has_a_command(capsys: pytest.CaptureFixture[str], module: str) -> None:
    name = module.rstrip("_")
    assert issubclass(import_module(f"ottla.pipeline.jobs.{module}.cli").Command, Job)
    with pytest.raises(SystemExit) as stopped:
        pipeline([name, "--help"])
    words = capsys.readouterr().out
    assert stopped.value.code == 0 and words.startswith(f"usage: ottla pipeline {name} ")
    assert all(flag in words for flag in ("--report FILE.json", "--dry-run", "--quiet"))
    assert all((flag in words) == (name not in WITHOUT_SPARK) for flag in ("--master", "--conf K=V"))


def test_the_script_for_spark_submit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        pipeline(["--script"])
    *settings, script = capsys.readouterr().out.split()
    if not {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"} & set(os.environ):
        names = ("spark.pyspark.python", "spark.pyspark.driver.python")
        assert settings == [word for name in names for word in ("--conf", f"{name}={sys.executable}")]
    # From another folder and by its path, as spark-submit runs it.
    done = subprocess.run([sys.executable, script, "census"], capture_output=True, text=True, cwd="/")
    assert (done.returncode, done.stderr) == (2, "ottla pipeline census: the following arguments are required: PATH\n")


# --- runs


def test_census_report_printed_and_written(
    capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path, jobs: Jobs
) -> None:
    place, picture = tmp_path / "out.json", tmp_path / "out.png"
    arguments = ["census", logs, "--master", "local[3]", "--conf", "spark.a=b=c", "--topic", "users"]
    assert pipeline([*arguments, "--report", str(place), "--plot", str(picture)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("users (1 partition, 1 segment, ")
    assert err == (
        "ottla pipeline census: the plan\nottla pipeline census: 1 of 1, 977 KiB of 977 KiB, 1.91 MiB/s in 500 ms\n"
    )
    assert [topic["topic"] for topic in json.loads(place.read_text())["topics"]] == ["users"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    ((master, conf),) = jobs.sessions
    assert (master, conf["spark.a"], conf["spark.ui.showConsoleProgress"]) == ("local[3]", "b=c", "false")
    assert (jobs.calls[0]["paths"], jobs.calls[0]["topics"], jobs.stopped) == ([logs], ["users"], 1)


def test_audit_exit_code_1_with_findings(capsys: pytest.CaptureFixture[str], logs: str, jobs: Jobs) -> None:
    assert pipeline(["audit", logs, "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[-1], err) == ("no errors", "")
    jobs.findings = [Finding("orders-0/x.log", 5, 7, "a batch is missing")]
    assert pipeline(["audit", logs, "--topics", "o.*", "--no-records"]) == 1
    assert "! orders-0/x.log at byte 5, offset 7: a batch is missing" in capsys.readouterr().out
    first, second = jobs.calls
    assert (first["topics"], first["records"], first["on_progress"]) == (None, True, None)
    assert (second["topics"], second["records"]) == (["orders"], False)


def test_dry_run_prints_plan(capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path, jobs: Jobs) -> None:
    place = tmp_path / "plan.json"
    for job in ("census", "audit"):
        assert pipeline([job, logs, "--dry-run", "--report", str(place)]) == 0
        assert capsys.readouterr() == ("the plan\n", "")
        assert json.loads(place.read_text()) == {"plan": ["the plan"]}
        assert "--dry-run" in refused(capsys, job, logs, "--dry-run", "--plot", str(tmp_path / "x.png"))
    assert (jobs.calls, jobs.stopped) == ([], 2)


@pytest.mark.parametrize(
    "problem",
    [
        JobError("x.log: it\nfailed"),
        ReadError("x.log: it failed"),
        StorageError("x.log: it failed"),
        OSError(28, "it failed", "x.log"),
        OSError("x.log: it failed"),
        SinkError("x.log: it failed"),
    ],
)
def test_failing_job_prints_one_line(
    capsys: pytest.CaptureFixture[str], logs: str, jobs: Jobs, problem: Exception
) -> None:
    jobs.problem = problem
    assert refused(capsys, "audit", logs, "--quiet", code=1) == "ottla pipeline audit: x.log: it failed"
    assert jobs.stopped == 1


def test_unexpected_error_keeps_its_traceback(logs: str, jobs: Jobs) -> None:
    jobs.problem = KeyError("x")
    with pytest.raises(KeyError):
        pipeline(["audit", logs, "--quiet"])
    assert jobs.stopped == 1


def test_spark_start_failure_in_one_line(
    capfd: pytest.CaptureFixture[str], logs: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java(master: str | None = None, **conf: str) -> None:
        raise SetupError("there is no Java")

    def no_start(master: str | None = None, **conf: str) -> None:
        os.write(2, b"WARNING: noise\nException in thread main: the port is taken\n\tat frame\n")
        raise RuntimeError("the gateway ended\nsomehow")

    for start, problem in ((no_java, "there is no Java"), (no_start, "Exception in thread main: the port is taken")):
        monkeypatch.setattr(SESSION, "session", start)
        assert refused(capfd, "census", logs).endswith(problem)


def test_report_write_failure_in_one_line(
    capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> int:
        raise OSError(28, "No space left on device", "out.json")

    monkeypatch.setattr(Path, "write_bytes", full)
    arguments = ["census", logs, "--quiet", "--report", str(tmp_path / "out.json")]
    assert refused(capsys, *arguments, code=1).endswith(f"cannot write {tmp_path}/out.json: No space left on device")


def test_guide_lists_jobs_and_flags() -> None:
    guide = (ROOT / "docs" / "spark" / "jobs.md").read_text()
    known: set[str] = set()
    for module in cli.MODULES:
        assert f"    ottla pipeline {module.rstrip('_')} " in guide
        parser = argparse.ArgumentParser(add_help=False)
        cli.add_arguments(parser, import_module(f"ottla.pipeline.jobs.{module}.cli").Command())
        known |= {flag for action in parser._actions for flag in action.option_strings}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", guide))
    assert named - {"--records", "--script"} == known - {"--bootstrap"}  # these are of `ottla verify`, not of a job


def test_each_job_is_exported_by_package() -> None:
    for module in set(cli.MODULES) - WITHOUT_SPARK:  # commands alone
        name = {"import_": "import_records", "verify": "verify_export"}.get(module, module)
        function = getattr(package, name)
        assert name in package.__all__ and {"spark", "on_progress"} <= set(signature(function).parameters)
    assert all(callable(getattr(package, name)) for name in package.__all__)

"""Jobs that have nothing to do: they report it without Spark, which these tests do not let start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs import spark_tasks
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import NOW_MS, a_log

SESSION = import_module("ottla.pipeline.session")


def no_session(master: str | None = None, **conf: str) -> Any:
    raise AssertionError("Spark was started")


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Returns the data directory of a stopped broker, with one topic."""
    with Embedded(data_dir=tmp_path / "data") as broker:
        broker.create_topic("orders")
        for number in range(5):
            broker.send("orders", str(number))
    return str(tmp_path / "data")


def run_here(spark: Any, items: Sequence[Any], task: Callable[[Any], Any], **_: Any) -> Iterator[tuple[Any, Any]]:
    for item in items:
        yield item, task(item)


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Returns a function that runs a command with its tasks in this process."""

    def run(*arguments: str) -> int:
        with monkeypatch.context() as patched:
            patched.setattr(spark_tasks, "run", run_here)
            patched.setattr(spark_tasks, "parallelism", lambda spark: 2)
            return pipeline([*arguments, "--quiet"])

    return run


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SESSION, "session", no_session)


def idle(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a command that has nothing to do. Returns its report."""
    capsys.readouterr()
    assert pipeline(arguments) == 0
    out, err = capsys.readouterr()
    job = f"ottla pipeline {arguments[0]}"
    assert err.splitlines()[-1] == f"{job}: nothing to do, Spark was not started"
    assert all(line.startswith(f"{job}: ") for line in err.splitlines())
    return out


def test_upgrade_without_old_formats(capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path) -> None:
    place = tmp_path / "report.json"
    out = idle(capsys, "upgrade", logs, "--topic", "orders", "--report", str(place))
    assert out == f"{logs}: 1 segments, none has messages of format v0 or v1\n"
    assert json.loads(place.read_text())["topics"] == {}


def test_compact_without_compacted_topics(capsys: pytest.CaptureFixture[str], logs: str) -> None:
    idle(capsys, "compact", logs)


def test_second_export_and_import(capsys: pytest.CaptureFixture[str], tmp_path: Path, once: Callable[..., int]) -> None:
    logs, lake = str(tmp_path / "data"), str(tmp_path / "lake")
    a_log(tmp_path / "data", "orders", 0, [[Record(n, NOW_MS + n, b"k", b"v", ()) for n in range(10)]])
    assert once("export", logs, "--to", lake) == 0
    assert idle(capsys, "export", logs, "--to", lake).startswith("orders: 0 records in 0 files, 0 bytes, 10 offsets ex")
    with Embedded() as broker:
        arguments = ("import", lake, "--bootstrap-server", broker.bootstrap)
        assert once(*arguments) == 0
        idle(capsys, *arguments)
        assert len(broker.records("orders")) == 10


def test_replay_of_an_empty_range(capsys: pytest.CaptureFixture[str], logs: str) -> None:
    with Embedded() as broker:
        idle(capsys, "replay", logs, "--topic", "orders", "--from", "latest", "--bootstrap-server", broker.bootstrap)


def test_failed_start_of_spark_keeps_exit_code_2(
    capsys: pytest.CaptureFixture[str], logs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(master: str | None = None, **conf: str) -> Any:
        raise RuntimeError("the port is taken")

    monkeypatch.setattr(SESSION, "session", broken)
    assert pipeline(["census", logs]) == 2
    assert capsys.readouterr().err.endswith("Spark does not start: the port is taken\n")

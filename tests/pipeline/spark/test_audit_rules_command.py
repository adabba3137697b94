"""`ottla pipeline audit` with rules; its tasks run in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.audit import job
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import NOW_MS, a_log

SESSION = import_module("ottla.pipeline.session")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(spark: Any, items: Sequence[Any], task: Any, **_: Any) -> Iterator[Any]:
        for item in items:
            yield item, task(item)

    monkeypatch.setattr(job, "run", run)
    monkeypatch.setattr(job, "tasks", lambda spark, items, **_: len(items))
    monkeypatch.setattr(SESSION, "session", lambda master=None, **conf: SimpleNamespace(stop=lambda: None))


@pytest.fixture
def data(tmp_path: Path) -> str:
    for topic in ("orders", "views"):
        records = [Record(n, NOW_MS, b"k" if n else None, b'{"id": %d}' % n if n < 2 else b"{", ()) for n in range(3)]
        a_log(tmp_path / "data", topic, 0, [records])
    return str(tmp_path / "data")


def test_rules_of_arguments_and_of_a_file(capsys: pytest.CaptureFixture[str], data: str, tmp_path: Path) -> None:
    (tmp_path / "some.rules").write_text("# keys\norders: key required\n")
    report = tmp_path / "report.json"
    arguments = ["audit", data, "--rules", str(tmp_path / "some.rules"), "--report", str(report)]
    assert pipeline([*arguments, "--rule", "value at most 100"]) == 1
    out, err = capsys.readouterr()
    assert "! orders-0, offset 0: rule `orders: key required`: 1 of 3 records, at 0" in out
    assert "views-0" not in out and out.endswith("1 wrong: rules 1\n")
    assert "; 2 rules for 2 partitions, in 2 tasks" in err
    found = json.loads(report.read_text())
    assert found["rules"] == [
        {"rule": "value at most 100", "records": 6, "broken": 0},
        {"rule": "orders: key required", "records": 3, "broken": 1},
    ]
    assert [(one["file"], one["offset"], one["part"]) for one in found["findings"]] == [("orders-0", 0, "rules")]


def test_values_that_must_decode(capsys: pytest.CaptureFixture[str], data: str) -> None:
    schema = '{"type": "object", "properties": {"id": {"type": "integer"}}}'
    assert pipeline(["audit", data, "--topic", "views", "--quiet", "--decode", "json", "--schema", schema]) == 1
    assert "! views-0, offset 2: rule `value decodes as json`: 1 of 3 records, at 2: " in capsys.readouterr().out
    assert pipeline(["audit", data, "--quiet", "--rule", "value required"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rule", "key"], "'key' is not a rule: it must be [TOPIC:] key required"),
        (["--rule", "other: key required"], "there is no topic other in what is audited"),
        (["--topic", "orders", "--rule", "views: key required"], "there is no topic views in what is audited"),
        (["--rules", "/nowhere"], "--rules: cannot read /nowhere"),
        (["--schema", "id INT"], "--schema needs --decode"),
        (["--decode", "avro"], "--decode avro needs --schema"),
    ],
)
def test_arguments_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], data: str, arguments: list[str], words: str
) -> None:
    assert pipeline(["audit", data, *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1

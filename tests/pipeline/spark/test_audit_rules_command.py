"""`ottla pipeline audit` with rules; its tasks run in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.audit import brokers, job
from ottla.protocol.records.batch import Record
from ottla_testing.each import each
from ottla_testing.pipeline.export_samples import NOW_MS, a_log

SESSION = import_module("ottla.pipeline.session")
SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}}'


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
    assert pipeline(["audit", data, "--topic", "views", "--quiet", "--decode", "json", "--schema", SCHEMA]) == 1
    assert "! views-0, offset 2: rule `value decodes as json`: 1 of 3 records, at 2: " in capsys.readouterr().out
    assert pipeline(["audit", data, "--quiet", "--rule", "value required"]) == 0


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded() as found:
        for topic in ("orders", "views"):
            found.create_topic(topic, partitions=2)
            for n in range(6):
                value = b'{"id": %d}' % n if n < 4 else b"{"
                found.send(topic, value, key=b"k" if n else None, partition=n % 2)
        yield found


def test_rules_for_the_topics_of_brokers(
    capsys: pytest.CaptureFixture[str], broker: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "WIRE_OFFSETS", 2)
    report = tmp_path / "report.json"
    arguments = ["audit", "--bootstrap-server", broker.bootstrap, "--rule", "orders: key required"]
    assert pipeline([*arguments, "--rule", "value at least 2", "--report", str(report)]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[:3] == [
        f"{broker.bootstrap}: running brokers, by rules alone",
        "! orders-0, offset 0: rule `orders: key required`: 1 of 3 records, at 0",
        "! orders-0, offset 2: rule `value at least 2`: 1 of 3 records, at 2",
    ]
    assert out.splitlines()[6].startswith("4 partitions, 12 records in ") and out.endswith("\n5 wrong: rules 5\n")
    assert "audit of 4 partitions by 2 rules, in 8 tasks" in err
    found = json.loads(report.read_text())
    assert [(one["records"], one["broken"]) for one in found["rules"]] == [(6, 1), (12, 4)]
    (directory,) = found["directories"]
    assert (directory["path"], directory["clean"], found["segments"]) == (broker.bootstrap, None, 0)
    assert [(one["folder"], one["records"], one["end_offset"]) for one in directory["partitions"]] == [
        (f"{topic}-{index}", 3, 3) for topic in ("orders", "views") for index in range(2)
    ]


@each(
    ("arguments", "code", "words"),
    [
        (["--topic", "views", "--rule", "key required"], 1, "! views-0, offset 0: rule `key required`: 1 of 3 records"),
        (["--topics", "view.*", "--rule", "value required"], 0, "2 partitions, 6 records in "),
        (["--topic", "views", "--topics", "or.*", "--rule", "value required"], 2, "no partition is selected at "),
        (["--topics", "or.*", "--decode", "json", "--schema", SCHEMA], 1, "! orders-0, offset 2: rule `value decodes"),
        (["--rule", "value required", "--dry-run"], 0, ""),
        (["--rule", "key required", "--topic", "none"], 2, "topic 'none' does not exist (brokers at 127"),
        (["--rule", "other: key required"], 2, "there is no topic other in what is audited"),
        ([], 2, "the files of running brokers cannot be read: they need --rule, --rules or --decode"),
        (["--rule", "key required", "--no-records"], 2, "--no-records needs PATH"),
        (["--rule", "key required", "--store-conf", "region=a"], 2, "--store-conf needs the URL of an object store"),
        (["--rule", "key required", "data"], 2, "give either PATH or --bootstrap-server"),
        (["--rule", "key required", "--topics", "("], 2, "--topics (: "),
    ],
)
def test_arguments_for_brokers(
    capsys: pytest.CaptureFixture[str], broker: Embedded, arguments: list[str], code: int, words: str
) -> None:
    assert pipeline(["audit", "--bootstrap-server", broker.bootstrap, "--quiet", *arguments]) == code
    out, err = capsys.readouterr()
    assert words in (err if code == 2 else out) and err.count("\n") == (code == 2)


def test_unreachable_brokers_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    hurry = [one for name in ("default.api.timeout.ms", "request.timeout.ms") for one in ("--kafka", f"{name}=300")]
    arguments = ["audit", "--bootstrap-server", "127.0.0.1:1", *hurry, "--rule", "key required", "--quiet"]
    assert pipeline(arguments) == 2
    error = capsys.readouterr().err
    assert "127.0.0.1:1" in error and error.count("\n") == 1


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

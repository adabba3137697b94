"""`ottla pipeline import` and `replay` before Spark: refusals, in one line and with exit code 2."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from ottla.pipeline.backend import TopicPartition
from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.replay.cli import Command
from ottla.pipeline.offsets import AtOffsets
from ottla_testing.pipeline.import_samples import put_records, some
from ottla_testing.pipeline.logs_samples import written

ONE = ["--bootstrap", "127.0.0.1:1"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put_records(tmp_path / "in", "t", 0, some(3))
    written(tmp_path / "logs" / "t-0", [(2, 0, 3)])
    (tmp_path / "none").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "in"], "give either --bootstrap-server or --data-dir"),
        (["import", "in", *ONE, "--data-dir", "x"], "give either --bootstrap-server or --data-dir"),
        (
            ["import", "in", "--data-dir", "x", "--partitions", "3"],
            "--kafka, --command-config and --partitions need --bootstrap",
        ),
        (["import", "in", *ONE, "--partitions", "0"], "--partitions 0: it must be 1 or more"),
        (["import", "in", "--data-dir", "x", "--segment-bytes", "9"], "--segment-bytes 9: it must be 65536 or more"),
        (["import", "none", "--data-dir", "x"], "has no Parquet file (with a name ending in .parquet)"),
        (["import", "gone", "--data-dir", "x"], "/gone"),
        (["import", "in", "--data-dir", "s3://lake/x"], "s3://lake/x is in an object store: jobs write segments to a"),
        (["upgrade", "s3://lake/x"], "s3://lake/x is in an object store: jobs write segments to a disk only"),
        (["compact", "gs://lake/x"], "gs://lake/x is in an object store: jobs write segments to a disk only"),
        (["replay", "logs", *ONE, "--store-conf", "region=a"], "--store-conf needs the URL of an object store"),
        (["replay", "--source", "b:1", *ONE, "--store-conf", "region=a"], "--store-conf needs the URL of an object"),
        (["import", *ONE], "give FOLDER, or --catalog-conf and --table of an Iceberg table"),
        (["import", "in", *ONE, "--table", "a.b"], "--table needs --catalog or --catalog-conf"),
        (["import", *ONE, "--catalog", "rest", "--table", "a.b"], "--catalog rest needs --catalog-conf uri=..."),
        (["import", *ONE, "--catalog-conf", "uri=sqlite://"], "a catalog without FOLDER needs --table"),
        (
            ["import", *ONE, "--catalog", "sql", "--catalog-conf", "uri=sqlite:///none/a.db", "--table", "a.b"],
            "the Iceberg table a.b cannot be read: Table does not exist: a.b",
        ),
        (["import", "in", *ONE, "--kafka", "acks=0"], "kafka.acks is 0, which does not allow exactly-once writing"),
        (["import", "in", "--data-dir", "x", "--topics", "("], "--topics (: "),
        (["replay", *ONE], "give either PATH or --source"),
        (["replay", "logs", *ONE, "--source", "b:1"], "give either PATH or --source"),
        (["replay", "logs", *ONE, "--rate", "1", "--speed", "2"], "give either --rate or --speed"),
        (["replay", "logs", *ONE, "--rate", "0"], "--rate 0.0: it must be from 1e-06"),
        (["replay", "logs", *ONE, "--speed", "nan"], "--speed nan: it must be from 1e-06"),
        (["replay", "logs", *ONE, "--from", "tomorrow"], "--from is 'tomorrow': it must be earliest, "),
        (["replay", "logs", *ONE, "--from", "1", "--from-offsets", "{}"], "give either --from or --from-offsets"),
        (["replay", "logs", *ONE, "--from-offsets", "@gone"], "--from-offsets: cannot read gone: "),
        (["replay", "logs", *ONE, "--from-offsets", "7"], "--from-offsets is '7': it must be like "),
        (["replay", "none", *ONE], "none"),
    ],
)
def test_command_refuses_invalid_arguments(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert pipeline(arguments) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and err.startswith(f"ottla pipeline {arguments[0]}: ")
    assert not (place / "x").exists()


@pytest.mark.parametrize("report", [{"offsets": {"t": {"0": 5}}, "records": 9}, {"t": {"0": 5}}])
def test_from_offsets_accepts_report(place: Path, report: object) -> None:
    (place / "report.json").write_text(json.dumps(report))
    parser = argparse.ArgumentParser()
    job = Command()
    job.add_arguments(parser)
    parsed = parser.parse_args(["logs", *ONE, "--from-offsets", "@report.json"])
    parsed.topics = parsed.like = None
    job.check(parsed)
    assert parsed.starting == AtOffsets({TopicPartition("t", 0): 5})

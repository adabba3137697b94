"""Exports through Spark: a worker crash, the run that continues, and Spark reading the result."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.pipeline.jobs.export import commit
from ottla.pipeline.jobs.export.job import ExportSettings
from ottla.pipeline.jobs.spark_tasks import JobError
from ottla_testing.pipeline import export_tasks
from ottla_testing.pipeline.export_samples import checked, visible
from ottla_testing.pipeline.read_samples import by_aiokafka, write_directory

EXPORT = import_module("ottla.pipeline.jobs.export.job")
TOPICS = ["v0-none", "v1-gzip", "v2-zstd"]


def test_export_with_worker_crash(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write_directory(data)
    monkeypatch.setattr(commit, "GROUP_PIECES", 4)
    with monkeypatch.context() as dying:
        dying.setattr(EXPORT, "write", export_tasks.writes_or_dies)
        with pytest.raises(JobError, match="Python worker exited unexpectedly"):
            EXPORT.export(spark, str(data), str(out), ExportSettings(topics=TOPICS))
    plan: list[str] = []
    report = EXPORT.export(spark, str(data), str(out), ExportSettings(topics=TOPICS), on_plan=plan.append)
    found = checked(out)
    expected = sorted(
        (row for topic in TOPICS for folder in data.glob(f"{topic}-*") for row in by_aiokafka(folder)),
        key=lambda row: row[:3],
    )
    assert found == expected and plan[0].startswith("3 topics, ")
    again = EXPORT.export(spark, str(data), str(out), ExportSettings(topics=TOPICS))
    assert again.files == 0 < report.files <= len(visible(out))

    frame = spark.read.parquet(str(out))
    assert frame.columns[-3:] == ["topic", "partition", "date"]
    assert dict(frame.dtypes)["timestamp"] == "timestamp" and dict(frame.dtypes)["date"] == "date"
    columns = ["topic", "partition", "offset", "unix_millis(timestamp)", "timestampType", "key", "value", "headers"]
    seen: list[Any] = frame.where("date is null or topic <> 'v0-none'").selectExpr(*columns).collect()
    seen.sort(key=lambda row: row[:3])
    plain = [tuple(bytes(part) if isinstance(part, bytearray) else part for part in row[:7]) for row in seen]
    assert plain == [(*row[:3], None if row[3] == -1 else row[3], *row[4:7]) for row in expected]
    assert [tuple((pair.key, pair.value) for pair in row.headers or ()) for row in seen] == [
        row.headers for row in expected
    ]


def test_export_json_by_spark_schema(spark: SparkSession) -> None:
    found = EXPORT.json_schema("id BIGINT, at TIMESTAMP, by MAP<STRING, INT>, price DECIMAL(10, 2)")
    assert (
        str(found.type)
        == "struct<id: int64, at: timestamp[us, tz=UTC], by: map<string, int32>, price: decimal128(10, 2)>"
    )
    with pytest.raises(EXPORT.ExportError, match="it is not a schema in Spark's DDL form: "):
        EXPORT.json_schema("id BIG INT")

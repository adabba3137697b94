"""Import and replay through Spark: the tasks go to workers, and every record comes back, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_samples import exported, read
from logs_samples import written
from pyspark.sql import SparkSession
from wire_world import QUICK, consumed

from ottla.broker.embedded import Embedded
from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.importing import import_records
from ottla.pipeline.jobs.running import Progress

HURRY = {name: value for name, value in QUICK.items() if name.startswith(("retry", "reconnect", "request"))}


def test_an_export_comes_back_both_ways(spark: SparkSession, tmp_path: Path) -> None:
    logs, parquet, data = tmp_path / "logs", tmp_path / "parquet", tmp_path / "data"
    for partition, (magic, codec) in enumerate([(0, 1), (1, 0), (2, 3)]):
        written(logs / f"t-{partition}", [(magic, codec, 20), (magic, 0, 15)], seed=partition)
    exported(logs, parquet, rows_per_file=13)
    before = read(logs)
    told: list[str] = []
    progress: list[Progress] = []
    plan = import_records(spark, parquet, data_dir=data, dry_run=True, tell=told.append)
    assert plan.records == 105 and "would be imported" in plan.to_text() and not data.exists()
    assert "105 records" in told[0] and "3 partitions of 1 topics" in told[0]
    report = import_records(spark, parquet, data_dir=data, codec="zstd", segment_bytes=1 << 16, say=progress.append)
    assert report.records == 105 and progress[-1].ended
    assert read(data) == before
    with pytest.raises(ReadError, match="topic t exists already"):
        import_records(spark, parquet, data_dir=data)
    with Embedded(data_dir=data) as broker:
        for skipped in (0, 105):
            report = import_records(spark, parquet, bootstrap=broker.bootstrap, to_topic="u", config=HURRY)
            assert (report.records, report.skipped) == (105 - skipped, skipped)
        for topic in ("t", "u"):
            found = consumed(broker, topic, "read_committed")
            assert [(one[0], None if one[2] == -1 else one[2], *one[4:]) for one in found] == [
                (key.partition, *row[1:]) for key, rows in before.items() for row in rows
            ]

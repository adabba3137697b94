"""Import and replay through Spark: tasks run in workers, and every record is imported, to segments and to brokers."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.import_.job import ImportSettings, import_records
from ottla.pipeline.jobs.replay.job import replay
from ottla.pipeline.jobs.replay.tasks import ReplaySettings
from ottla.pipeline.jobs.spark_tasks import Progress
from ottla.pipeline.offsets import AtOffsets, parse_offsets
from ottla_testing.pipeline.import_samples import exported, put_records, read, some
from ottla_testing.pipeline.logs_samples import written
from ottla_testing.pipeline.wire_world import QUICK, consumed

HURRY = {name: value for name, value in QUICK.items() if name.startswith(("retry", "reconnect", "request"))}


def test_export_import_round_trip_segments_and_brokers(spark: SparkSession, tmp_path: Path) -> None:
    logs, parquet, data = tmp_path / "logs", tmp_path / "parquet", tmp_path / "data"
    for partition, (magic, codec) in enumerate([(0, 1), (1, 0), (2, 3)]):
        written(logs / f"t-{partition}", [(magic, codec, 20), (magic, 0, 15)], seed=partition)
    exported(logs, parquet, rows_per_file=13)
    before = read(logs)
    plan_lines: list[str] = []
    progress: list[Progress] = []
    plan = import_records(spark, parquet, data_dir=data, dry_run=True, on_plan=plan_lines.append)
    assert plan.records == 105 and "would be imported" in plan.to_text() and not data.exists()
    assert "105 records" in plan_lines[0] and "3 partitions of 1 topics" in plan_lines[0]
    settings = ImportSettings(codec="zstd", segment_bytes=1 << 16)
    report = import_records(spark, parquet, settings, data_dir=data, on_progress=progress.append)
    assert report.records == 105 and progress[-1].ended
    assert read(data) == before
    settings = ImportSettings(to_topic="u", config=HURRY)
    with Embedded(data_dir=data) as broker:
        for skipped in (0, 105):
            report = import_records(spark, parquet, settings, bootstrap=broker.bootstrap)
            assert (report.records, report.skipped) == (105 - skipped, skipped)
        for topic in ("t", "u"):
            found = consumed(broker, topic, "read_committed")
            assert [(one[0], None if one[2] == -1 else one[2], *one[4:]) for one in found] == [
                (key.partition, *row[1:]) for key, rows in before.items() for row in rows
            ]


def test_replay_stops_at_ctrl_c_and_continues(spark: SparkSession, tmp_path: Path) -> None:
    million = 1_000_000
    for partition in range(2):
        put_records(tmp_path / "in", "far", partition, [*some(30), *some(30, million)])
    put_records(tmp_path / "in", "far", 2, some(1))
    import_records(spark, tmp_path / "in", data_dir=tmp_path / "data")
    plan_lines: list[str] = []

    def ctrl_c(progress: Progress) -> None:
        signal.raise_signal(signal.SIGINT)

    with Embedded() as broker:
        source, before = str(tmp_path / "data"), signal.getsignal(signal.SIGINT)
        plan = replay(spark, source, bootstrap=broker.bootstrap, dry_run=True, on_plan=plan_lines.append)
        assert (
            plan.records == 0
            and "topics to create: far" in plan_lines[1]
            and "far" not in {topic.name for topic in broker.topics()}
        )
        first = replay(spark, source, ReplaySettings(config=HURRY), bootstrap=broker.bootstrap, on_progress=ctrl_c)
        assert first.stopped and first.records == 61 and signal.getsignal(signal.SIGINT) is before
        reached = parse_offsets(json.dumps(json.loads(first.to_json())["offsets"]), "--from-offsets")
        settings = ReplaySettings(config=HURRY, starting=AtOffsets(reached))
        rest = replay(spark, source, settings, bootstrap=broker.bootstrap)
        assert (rest.stopped, rest.records) == (False, 60)
        found = consumed(broker, "far")
        assert [(one[0], one[5]) for one in found] == [
            (n, b"v%d" % at) for n in range(2) for at in (*range(30), *range(million, million + 30))
        ] + [(2, b"v0")]
        with pytest.raises(ReadError, match="topic far would be replayed to itself"):
            replay(spark, {"bootstrap.servers": broker.bootstrap}, bootstrap=broker.bootstrap)

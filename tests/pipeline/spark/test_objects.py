"""An export to an object store, and an import and a replay from it, by Spark's workers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.jobs.command import Job, Running
from ottla.pipeline.jobs.export.cli import Command as Export
from ottla.pipeline.jobs.export.job import ExportSettings
from ottla.pipeline.jobs.import_.job import ImportSettings, import_records
from ottla.pipeline.jobs.replay.cli import Command as Replay
from ottla_testing.pipeline.export_samples import checked
from ottla_testing.pipeline.object_server import BUCKET, KEYS, ObjectServer, object_server
from ottla_testing.pipeline.read_samples import by_aiokafka, write_directory

TOPICS = ["v1-gzip", "v2-zstd"]


def ran(spark: SparkSession, job: Job, *arguments: str) -> Any:
    """Runs a command in this session, and returns its report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topic", action="append", dest="topics")
    parser.add_argument("--topics", dest="like")
    parser.add_argument("--dry-run", action="store_true")
    job.add_arguments(parser)
    parsed = parser.parse_args(arguments)
    job.check(parsed)
    report, code = job.run(Running(spark, parsed, lambda line: None, None))
    assert code == 0
    return report


def test_export_and_import_through_objects(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import import_module

    export = import_module("ottla.pipeline.jobs.export.job").export
    data, back, url = tmp_path / "data", tmp_path / "back", f"s3://{BUCKET}/spark"
    write_directory(data)
    for name, key in KEYS.items():  # of this process, and of workers that start from now on
        monkeypatch.setenv(name, key)
        monkeypatch.setitem(spark.sparkContext.environment, name, key)
    with object_server() as store:
        conf = store.conf
        settings = ExportSettings(topics=TOPICS, store_conf=conf)
        report = export(spark, str(data), url, settings)
        assert report.records == 240 and report.folder == url
        assert export(spark, str(data), f"{url}/", settings).records == 0
        imported = import_records(spark, url, ImportSettings(store_conf=conf), data_dir=back)
        assert sum(one.records for one in imported.partitions) == 240
        for topic in TOPICS:
            (old,), (new,) = sorted(data.glob(f"{topic}-*")), sorted(back.glob(f"{topic}-*"))
            assert [row[2:4] + row[5:] for row in by_aiokafka(new)] == [row[2:4] + row[5:] for row in by_aiokafka(old)]
        confs = [one for name, value in conf.items() for one in ("--store-conf", f"{name}={value}")]
        ran(spark, Export(), str(data), "--to", url, "--topic", "v2-none", *confs)
        assert sum("v2-none" in line and "COPY" in line for line in store.log) == 1


def test_logs_as_objects_equal_logs_as_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, url = tmp_path / "data", f"s3://{BUCKET}/logs"
    write_directory(data)
    with object_server() as store:
        conf = {**store.conf, "anonymous": "true"}  # Spark plans a source in a process that its JVM starts
        monkeypatch.setattr(ObjectServer, "conf", conf)
        objects = store.files("logs")
        for path in data.rglob("*"):
            if path.is_file():
                objects.put(f"{url}/{path.relative_to(data).as_posix()}", path.read_bytes())
        read = spark.read.format("ottla_log")
        options = {f"store.{name}": value for name, value in conf.items()}
        frames = [read.load(str(data)), read.options(**options).load(url)]
        here, there = (sorted(map(tuple, frame.select("topic", "partition", "offset").collect())) for frame in frames)
        assert here == there and len(here) > 1000
        confs = [one for name, value in conf.items() for one in ("--store-conf", f"{name}={value}")]
        out = tmp_path / "out"
        ran(spark, Export(), url, "--to", str(out), "--topic", "v2-zstd", *confs)
        assert [row.offset for row in checked(out)] == list(range(120))
        with Embedded() as broker:
            ran(spark, Replay(), url, "--bootstrap-server", broker.bootstrap, "--topic", "v2-zstd", *confs)
            assert len(broker.records("v2-zstd")) == 120

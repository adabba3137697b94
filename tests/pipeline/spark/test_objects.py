"""An export to an object store and an import from it, by Spark's workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.export.settings import ExportSettings
from ottla.pipeline.jobs.import_.job import import_records
from ottla.pipeline.jobs.import_.settings import ImportSettings
from ottla_testing.pipeline.object_server import BUCKET, KEYS, object_server
from ottla_testing.pipeline.read_samples import by_aiokafka, write_directory

TOPICS = ["v1-gzip", "v2-zstd"]


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
        assert pipeline(["export", str(data), "--to", url, "--topic", "v2-none", *confs, "--quiet"]) == 0
        assert sum("v2-none" in line and "COPY" in line for line in store.log) == 1

"""Tests for `make test-spark-release` alone: with the release of `.venv` other tests here check the same."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from ottla.broker.testing.embedded import Embedded
from ottla_testing.pipeline.stream_queries import Query, each_once


def test_stream_continues_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    with Embedded() as broker:
        broker.create_topic("t")
        query = Query(spark, tmp_path / "q", "ottla", {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"})
        query.options |= {"startingOffsets": "earliest"}
        for first in (0, 3):
            for number in range(first, first + 3):
                broker.send("t", str(number))
            query.run()
        assert query.batches() == [3, 3]
        assert sorted(each_once(query.rows())) == [("t", 0, number, str(number)) for number in range(6)]

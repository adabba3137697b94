"""A started session: its Java, its Python, its addresses, and its quiet log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from ottla.pipeline import session
from ottla.pipeline.java import OLDEST, version_of


def test_session_python_and_java(spark: SparkSession) -> None:
    def interpreters(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable] * batch.num_rows})

    found = spark.range(4).mapInArrow(interpreters, "python string").collect()
    assert [row.python for row in found] == [sys.executable] * 4
    jvm: Any = spark.sparkContext._jvm
    assert version_of(jvm.System.getProperty("java.version")) >= OLDEST


def test_session_loopback_and_quiet_log(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert conf.get("spark.ui.showConsoleProgress") == "false"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    jvm: Any = spark.sparkContext._jvm
    # The collector of these tests keeps a part of the gigabyte for itself.
    assert 0.9 * (1 << 30) < jvm.java.lang.Runtime.getRuntime().maxMemory() <= 1 << 30
    assert jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().name() == "ERROR"


def test_second_session_is_the_first(spark: SparkSession) -> None:
    again = session(**{"spark.sql.shuffle.partitions": "2"})
    assert again is spark
    assert again.sparkContext.master == "local[2]"

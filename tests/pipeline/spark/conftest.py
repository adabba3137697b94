"""A Spark session shared by the tests of a process; they fail if it cannot start.

They run in two processes of their own (`make test-all`), file by file: each session costs seconds and a gigabyte.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ottla.pipeline import session
from ottla_testing.pipeline.spark_classes import end_java, start_quickly

STARTED = time.monotonic()
start_quickly()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Starts a session like users have it, with two concurrent tasks; two partitions after a shuffle, since the data is
    small."""
    spark = session(
        "local[2]",
        **{
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        },
    )
    yield spark
    end_java(spark)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"the tests with Spark took {time.monotonic() - STARTED:.0f} s")

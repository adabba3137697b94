"""A Spark session shared by the tests of a process; they fail if it cannot start.

They run in two processes of their own (`make test-all`), file by file: each session costs seconds and a gigabyte.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from ottla.pipeline import session
from ottla_testing.patience import PATIENCE_S

STARTED = time.monotonic()
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For every Java that these tests start: none lives so long that its best compiler would pay."""
for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ[name] = QUICK_START


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
    spark.stop()
    # The JVM ends when its input is closed; wait for it, as it still removes its files.
    gateway: Any = SparkContext._gateway
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait(PATIENCE_S)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"the tests with Spark took {time.monotonic() - STARTED:.0f} s")

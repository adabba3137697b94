"""An archive of Spark's classes (Java's class data sharing), with which each Java of the tests starts in half the time.

    python -m ottla_testing.pipeline.spark_classes      makes it: `.venv/spark.jsa`, 190 MB

`make test-spark` runs this first. Java ignores an archive of another version or class path.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from ottla_testing.patience import PATIENCE_S

ARCHIVE = Path(sys.prefix) / "spark.jsa"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For every Java that the tests start: none lives so long that its best compiler would pay."""
_QUIET = "-Xlog:disable"  # else Java lists on stdout the classes that it cannot share
_VARIABLE = "SPARK_SUBMIT_OPTS"


def start_quickly() -> None:
    """Sets the environment of the Java processes that this process starts."""
    shared = f" -XX:SharedArchiveFile={ARCHIVE} {_QUIET}" if ARCHIVE.exists() else ""
    os.environ[_VARIABLE] = QUICK_START + shared
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_START


def make() -> None:
    """Runs what most tests run, in a Java that writes the classes it has loaded into the archive when it ends."""
    from ottla.pipeline import session

    start_quickly()
    written = ARCHIVE.with_suffix(".new")
    os.environ[_VARIABLE] = f"{QUICK_START} -XX:ArchiveClassesAtExit={written} {_QUIET}"
    spark: Any = session("local[2]", **{"spark.sql.shuffle.partitions": "2"})
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.range(100).selectExpr("id", "CAST(id AS STRING) AS text", "id % 3 AS part")
        rows.mapInArrow(lambda batches: batches, rows.schema).write.parquet(f"{folder}/rows")
        rows = spark.read.parquet(f"{folder}/rows")
        rows.groupBy("part").count().join(rows, "part").orderBy("id").toPandas()
        stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows")
        started = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", f"{folder}/checkpoint")
        started.start(f"{folder}/copied", format="parquet").awaitTermination()
    end_java(spark)
    written.replace(ARCHIVE)


def end_java(spark: Any) -> None:
    """Stops a session and waits for the end of its Java, which still removes its files."""
    from pyspark import SparkContext

    spark.stop()
    gateway: Any = SparkContext._gateway
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()  # ends the JVM
    process.wait(PATIENCE_S)


if __name__ == "__main__":
    make()

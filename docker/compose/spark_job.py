"""Reads TOPIC with Spark, over the wire and from the broker's files, until both have all RECORDS.

Prints the counts. Exit code 0 if each number is there once, 1 if not after PATIENCE_S.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from ottla.pipeline import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BOOTSTRAP = os.environ.get("BOOTSTRAP", "broker:9092")
DATA_DIR = os.environ.get("DATA_DIR", "/var/lib/kafka/data")
TOPIC = os.environ.get("TOPIC", "orders")
RECORDS = int(os.environ.get("RECORDS", "2000"))
PATIENCE_S = float(os.environ.get("PATIENCE_S", "120"))


def totals(records: DataFrame) -> tuple[int, int, int]:
    """Returns (number of records, number of different values, their sum)."""
    numbers = records.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS number")
    found = numbers.selectExpr("COUNT(*)", "COUNT(DISTINCT number)", "COALESCE(SUM(number), 0)").first()
    assert found is not None
    return found[0], found[1], found[2]


def main() -> int:
    """Reads both sources until they are complete: the producer and the broker may still be writing."""
    spark = session()
    wire = spark.read.format("ottla").option("kafka.bootstrap.servers", BOOTSTRAP).option("subscribe", TOPIC)
    files = spark.read.format("ottla_log").option("path", DATA_DIR).option("subscribe", TOPIC)
    expected = (RECORDS, RECORDS, sum(range(RECORDS)))
    begun = time.monotonic()
    while True:
        found = {}
        for name, source in {"wire": wire, "files": files}.items():
            try:
                found[name] = totals(source.load())
            except Exception as error:  # no topic yet, or no broker; Spark appends its own code to the message
                lines = [line.strip() for line in str(error).splitlines()]
                found[name] = f"not yet: {[line for line in lines if line and 'SQLSTATE' not in line][-1:]}"
            print(f"{name}: {found[name]} of {expected}", flush=True)
        if all(one == expected for one in found.values()):
            break
        if time.monotonic() - begun > PATIENCE_S:
            return 1
        time.sleep(1)
    files.load().groupBy("partition").count().orderBy("partition").show()
    print(f"spark read {RECORDS} sum {expected[2]} over the wire and from the files", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A Spark driver that may be killed, for spark_sink.py: writes rows to a topic by one of the ways to write once.

    python tests/interop/spark_sink_child.py '{"way": ..., "rows": ..., "checkpoint": ..., "options": {...}}'

The ways are "foreachBatch", which writes the files that the folder `rows` has now, one in each micro-batch, and
"batch", which writes all of them at once. Exit code 0 if all went well, else 1, with what went wrong on stderr.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ottla.pipeline import session, write_exactly_once

SCHEMA = "key binary, value binary, timestamp timestamp, headers array<struct<key:string,value:binary>>"
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "3",
    "spark.driver.memory": "700m",
    "spark.log.level": "OFF",
}


def main() -> int:
    given: dict[str, Any] = json.loads(sys.argv[1])
    options = given["options"]
    spark = session("local[2,4]", **CONF)  # a task is tried four times
    if given["way"] == "batch":
        write_exactly_once(spark.read.schema(SCHEMA).parquet(given["rows"]), 0, options)
        return 0
    writer = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(given["rows"]).writeStream
    writer = writer.foreachBatch(lambda rows, number: write_exactly_once(rows, number, options) and None)
    query = writer.option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except Exception as error:  # the reader reports it
        print(f"{type(error).__name__}: {error}"[:3000], file=sys.stderr)
        code = 1
    sys.exit(code)

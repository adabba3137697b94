"""A session of Spark Connect, for spark_connect.py: prints what its client sees, as one line of JSON.

python tests/interop/spark_connect_child.py BOOTSTRAP TOPIC FOLDER
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from ottla.pipeline import SetupError, audit, register


def main(bootstrap: str, topic: str, folder: str) -> None:
    """Counts a topic over the wire and from its files, and tries a job."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()  # type: ignore[reportAttributeAccessIssue]
    register(spark)
    wire = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    found: dict[str, int | str] = {
        "wire": wire.load().count(),
        "files": spark.read.format("ottla_log").load(folder).count(),
    }
    try:
        audit(spark, folder)
    except SetupError as error:
        found["job"] = str(error)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A process with one Spark session, for pipeline_measures.py: reads commands and writes results as lines of JSON.

    python -m ottla_testing.bench.pipeline_worker MASTER JAR,...

* `{"do": "check", "source": ..., "options": {...}}`: the number of records of a source, the sum of their offsets and
  the sum of their values' sizes. The source "consumer" is librdkafka in tasks, one per partition.
* `{"do": "read", ...}`: the seconds until all rows with all columns are in Spark's noop sink.
* `{"do": "bytes", "sum": ..., "wanted": ..., ...}`: the seconds of a sum, which must have the wanted value.
* `{"do": "decode", ...}`: the seconds until all rows of `ottla_log` are decoded in this process.
* `{"do": "parquet", ...}`: the seconds until all rows with all columns are in Parquet files.
* `{"do": "job", "name": ..., "given": [...], "more": {...}}`: the seconds of a job; in `more`, "settings" are the
  fields of its settings.
* `{"do": "sink", "sink": ..., "rows": FOLDER, "options": {...}}`: the seconds of the micro-batches of a stream from
  files to a topic, by `write_exactly_once` in foreachBatch or by a sink of this name.

Ends with its stdin.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from ottla.pipeline import session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CONSUMER = "consumer"
FOREACH = "foreachBatch"
SECONDS = 60.0
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
SETTINGS = {"export": "ExportSettings"}
CHECKED = ("count(*)", "sum(offset)", "sum(length(value))")


def consumed(bootstrap: str, topic: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a task that reads a partition with confluent-kafka, as one would write it by hand."""

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        for number in (value.as_py() for batch in numbers for value in batch.column(0)):
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "fetch.queue.backoff.ms": 1})
            end = consumer.get_watermark_offsets(TopicPartition(topic, number), SECONDS)[1]
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
            got = 0
            while got < end:
                messages: list[Any] = consumer.consume(min(10_000, end - got), SECONDS)
                if not messages:
                    raise RuntimeError(f"only {got} of {end} messages")
                got += len(messages)
                times = [message.timestamp() for message in messages]
                arrays = [
                    pa.array([message.key() for message in messages], pa.binary()),
                    pa.array([message.value() for message in messages], pa.binary()),
                    pa.array([topic] * len(messages), pa.string()),
                    pa.array([number] * len(messages), pa.int32()),
                    pa.array([message.offset() for message in messages], pa.int64()),
                    pa.array([1000 * one[1] for one in times], pa.timestamp("us", tz="UTC")),
                    pa.array([one[0] - 1 for one in times], pa.int32()),
                ]
                yield pa.RecordBatch.from_arrays(arrays, [field.split()[0] for field in SCHEMA.split(", ")])
            consumer.close()

    return read


def frame(spark: SparkSession, command: dict[str, Any]) -> DataFrame:
    """Returns the rows of a source."""
    options = command["options"]
    if command["source"] == CONSUMER:
        count = options["partitions"]
        read = consumed(options["kafka.bootstrap.servers"], options["subscribe"])
        return spark.range(count, numPartitions=count).mapInArrow(read, SCHEMA)
    return spark.read.format(command["source"]).options(**options).load()


def written(spark: SparkSession, command: dict[str, Any]) -> float:
    """Returns the seconds of all micro-batches, of two files each, as measured by Spark."""
    from ottla.pipeline import write_exactly_once

    options = command["options"]
    source = spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", 2)
    stream = source.parquet(command["rows"]).writeStream
    if command["sink"] == FOREACH:
        stream = stream.foreachBatch(lambda rows, number: write_exactly_once(rows, number, options) and None)
    else:
        stream = stream.format(command["sink"]).options(**options)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as checkpoint:
        query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        if (error := query.exception()) is not None:
            raise error
        done = [json.loads(one.json) for one in query.recentProgress]
    if sum(one["numInputRows"] for one in done) != command["count"]:
        raise RuntimeError(f"{sum(one['numInputRows'] for one in done)} of {command['count']} rows were written")
    return sum(one["durationMs"]["triggerExecution"] for one in done if one["numInputRows"]) / 1000


def job_call(spark: SparkSession, command: dict[str, Any]) -> tuple[Callable[..., object], inspect.BoundArguments]:
    """Returns the job of a command with its arguments. Raises TypeError if the job has no such parameters."""
    import ottla.pipeline

    job, more = getattr(ottla.pipeline, command["name"]), dict(command["more"])
    if "settings" in more:
        more["settings"] = getattr(ottla.pipeline, SETTINGS[command["name"]])(**more["settings"])
    return job, inspect.signature(job).bind(spark, *command["given"], **more)


def result_of(spark: SparkSession, command: dict[str, Any]) -> Any:
    """Runs a command."""
    what = command["do"]
    if what == "check":
        return list(frame(spark, command).selectExpr(*CHECKED).collect()[0])
    started = time.perf_counter()
    if what == "read":
        frame(spark, command).write.format("noop").mode("overwrite").save()
    elif what == "bytes":
        ((found,),) = frame(spark, command).selectExpr(command["sum"]).collect()
        if found != command["wanted"]:
            raise RuntimeError(f"{found} bytes instead of {command['wanted']}")
    elif what == "decode":
        from ottla.pipeline.sources.source import LogSource

        source = LogSource(command["options"])
        reader = source.reader(cast("StructType", source.schema()))
        for piece in reader.partitions():
            for _ in reader.read(piece):
                pass
    elif what == "parquet":
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
            frame(spark, command).write.parquet(f"{folder}/rows")
            return time.perf_counter() - started
    elif what == "sink":
        return written(spark, command)
    else:
        job, arguments = job_call(spark, command)
        job(*arguments.args, **arguments.kwargs)
    return time.perf_counter() - started


def main() -> None:
    master, jars = sys.argv[1:3]
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = session(master, **conf, **({"spark.jars": jars} if jars else {}))
    print(json.dumps({"ready": spark.version}), flush=True)
    for line in sys.stdin:
        try:
            found = {"result": result_of(spark, json.loads(line))}
        except Exception as error:
            words = str(error).partition("=== Streaming Query")[0]
            found = {"error": f"{type(error).__name__}: {words[-500:]}"}
        print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

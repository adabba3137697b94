"""A process with one Spark session, for pipeline_measures.py: takes commands as lines of JSON, answers by lines.

    python tests/bench/pipeline_worker.py MASTER JAR,...

`{"do": "check", "source": ..., "options": {...}}` answers how many records a source gives and the sum of their offsets
and of the bytes of their values; `{"do": "read", ...}` the seconds until all rows are in Spark's noop sink, with every
column; `{"do": "census" | "audit", "paths": [...]}` the seconds of a job. The source "consumer" is librdkafka in tasks,
one for each partition. Ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.pipeline import session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

CONSUMER = "consumer"
SECONDS = 60.0
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
CHECKED = ("count(*)", "sum(offset)", "sum(length(value))")


def consumed(bootstrap: str, topic: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does that reads a partition with confluent-kafka, as one would write it by hand."""

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
    """The rows of a source."""
    options = command["options"]
    if command["source"] == CONSUMER:
        count = options["partitions"]
        read = consumed(options["kafka.bootstrap.servers"], options["subscribe"])
        return spark.range(count, numPartitions=count).mapInArrow(read, SCHEMA)
    return spark.read.format(command["source"]).options(**options).load()


def answer(spark: SparkSession, command: dict[str, Any]) -> Any:
    """What a line asks for."""
    what = command["do"]
    if what == "check":
        return list(frame(spark, command).selectExpr(*CHECKED).collect()[0])
    started = time.perf_counter()
    if what == "read":
        frame(spark, command).write.format("noop").mode("overwrite").save()
    else:
        import ottla.pipeline

        getattr(ottla.pipeline, what)(spark, command["paths"])
    return time.perf_counter() - started


def main() -> None:
    master, jars = sys.argv[1:3]
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = session(master, **conf, **({"spark.jars": jars} if jars else {}))
    print(json.dumps({"ready": spark.version}), flush=True)
    for line in sys.stdin:
        try:
            found = {"answer": answer(spark, json.loads(line))}
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {str(error)[-500:]}"}
        print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

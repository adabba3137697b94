"""Streaming queries that write rows of text files to topics, and the records that an independent client reads there.

Each file is a micro-batch; its lines are numbers, each a row, without repetitions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline import write_exactly_once
from ottla_testing.patience import PATIENCE_S

FIRST_S = 1_700_000_000
ROW = ["lpad(value, 10, '0') AS value", "CAST(value % 7 AS string) AS key"]
HEADER = "array(named_struct('key', 'padding', 'value', CAST({} AS binary))) AS headers"


class Record(NamedTuple):
    """A record of a consumer."""

    topic: str
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Any


def committed(bootstrap: str, topic: str, partitions: int) -> list[Record]:
    """Returns all committed records, in order of partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "-", "isolation.level": "read_committed"})
    found: list[Record] = []
    for partition in range(partitions):
        where = TopicPartition(topic, partition, 0)
        end = consumer.get_watermark_offsets(where, 10)[1]
        consumer.assign([where])
        while end and consumer.position([where])[0].offset < end:
            for one in consumer.consume(10_000, 0.2):
                assert one.error() is None, one.error()
                found.append(Record(topic, partition, one.timestamp()[1], one.key(), one.value(), one.headers()))
    consumer.close()
    return found


def values(records: Iterable[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


@dataclass
class SinkQuery:
    """A query in a folder: its input and its checkpoint; `options` are the sink's. `each`: by `foreachBatch`, else by
    the format."""

    spark: SparkSession | None
    folder: Path
    options: dict[str, str]
    each: bool = True
    files: int = 0
    padding: int = 0
    """The bytes of each row's headers, which hardly compress."""

    def feed(self, numbers: Iterable[int]) -> None:
        """Adds a micro-batch."""
        into = self.folder / "in"
        into.mkdir(parents=True, exist_ok=True)
        passing = into / f".{self.files}"
        passing.write_text("".join(f"{number}\n" for number in numbers))
        os.utime(passing, (FIRST_S + self.files, FIRST_S + self.files))  # Spark reads files in the order of their times
        passing.rename(into / f"{self.files:06}.txt")
        self.files += 1

    def start(self, write: Any = None, *, now: bool = False) -> StreamingQuery:
        assert self.spark is not None
        lines = (
            self.spark.readStream.option("maxFilesPerTrigger", 1).schema("value string").text(str(self.folder / "in"))
        )
        random = " || ".join(f"sha2(value || {number}, 512)" for number in range(self.padding // 128))
        rows = lines.selectExpr(*ROW, *([HEADER.format(random)] if random else []))
        if self.each:

            def each(batch: DataFrame, batch_id: int) -> None:
                write_exactly_once(batch, batch_id, self.options)

            writer = rows.writeStream.foreachBatch(write or each)
        else:
            writer = rows.writeStream.format("ottla").options(**self.options)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run(self, write: Any = None) -> None:
        """Writes the present micro-batches, and ends."""
        for last in (False, False, True):
            try:
                assert self.start(write, now=True).awaitTermination(PATIENCE_S)
                return
            except StreamingQueryException as error:
                # Spark gives a Python worker ten seconds to start, which may be too few on a busy machine.
                if last or "failed to connect back" not in str(error):
                    raise

    def done(self) -> int:
        """Returns the number of finished micro-batches in the checkpoint."""
        return self._count("commits")

    def begun(self) -> int:
        """Returns the number of started micro-batches."""
        return self._count("offsets")

    def _count(self, name: str) -> int:
        return sum(1 for path in (self.folder / "checkpoint" / name).glob("[0-9]*") if path.name.isdigit())

    def forget(self) -> None:
        """Deletes the commit file of the last micro-batch, so that it counts as unfinished."""
        last = self.folder / "checkpoint" / "commits" / str(self.done() - 1)
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

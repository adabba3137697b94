"""Streaming queries whose batches are kept in files, to compare a repeated batch with the first one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline.backend import Selection, TopicPartition
from ottla.pipeline.readers.files import FileBackend
from ottla.pipeline.spark_api import PASSES_START
from ottla_testing.patience import PATIENCE_S

COLUMNS = "topic,partition,offset,value"

Row = tuple[str, int, int, str]
"""topic, partition, offset, value"""


def kept_in(folder: Path) -> Callable[[DataFrame, int], None]:
    """Returns a sink that writes each batch atomically to a file. A repeated batch that differs is written next to
    it."""
    folder.mkdir(parents=True, exist_ok=True)

    def keep(batch: DataFrame, number: int) -> None:
        rows = sorted((row.topic, row.partition, row.offset, bytes(row.value).decode()) for row in batch.collect())
        text, path = json.dumps(rows), folder / f"{number}.json"
        if path.exists() and path.read_text() != text:
            path = folder / f"{number}.changed"
        passing = path.with_suffix(".passing")
        passing.write_text(text)
        os.replace(passing, path)

    return keep


@dataclass
class Query:
    """A query with its checkpoint and its sink in a folder; `options` are those of its source."""

    spark: SparkSession
    folder: Path
    source: str
    options: dict[str, str] = field(default_factory=dict)

    @property
    def sink(self) -> Path:
        return self.folder / "sink"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def start(self, *, now: bool = False, **more: str) -> StreamingQuery:
        """Starts the query; before PySpark 4.2, which refuses limits, without any."""
        options = self.options | more
        if not PASSES_START:
            options.pop("maxOffsetsPerTrigger", None)
        reader = self.spark.readStream.format(self.source).options(columns=COLUMNS, **options)
        writer = reader.load().writeStream.foreachBatch(kept_in(self.sink))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if now else writer).start()

    def run(self, **more: str) -> list[dict[str, Any]]:
        """Reads the present records, and ends; returns the progress of each batch.

        Before PySpark 4.2 availableNow is one batch: the one that was interrupted, if there is one.
        """
        progress = self._run(**more)
        while not PASSES_START:
            following = self._run(**more)
            progress += following
            if not any(one["numInputRows"] for one in following):
                break
        return progress

    def _run(self, **more: str) -> list[dict[str, Any]]:
        for last in (False, False, True):
            query = self.start(now=True, **more)
            try:
                assert query.awaitTermination(PATIENCE_S)
            except StreamingQueryException as error:
                # Spark gives a source's Python ten seconds to start, which may be too few on a busy machine.
                if last or "failed to connect back" not in str(error):
                    raise
            else:
                return [json.loads(progress.json) for progress in query.recentProgress]
        raise AssertionError("unreachable")

    def die(self, *, batches: int = 1) -> None:
        """Puts the checkpoint into the state of a query that dies before its last batch is done."""
        done = sorted((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in done[-batches:]:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def rows(self) -> list[Row]:
        """Returns all rows in the order of the batches, and checks that no repeated batch differed."""
        assert not list(self.sink.glob("*.changed"))
        return [tuple(row) for path in self.finished() for row in json.loads(path.read_text())]

    def batches(self) -> list[int]:
        """Returns the number of rows of each batch."""
        return [len(json.loads(path.read_text())) for path in self.finished()]

    def finished(self) -> list[Path]:
        """Returns the batches in the sink, in order."""
        return sorted(self.sink.glob("*.json"), key=lambda path: int(path.stem))


def ends_in(folder: Path) -> dict[TopicPartition, int]:
    """Returns the offsets up to which the files of a data directory can be read now."""
    with FileBackend([str(folder)]) as logs:
        return logs.latest(logs.partitions(Selection()), committed=False)


def each_once(rows: list[Row]) -> Iterator[Row]:
    """Yields the rows, and checks that each is there once and each partition is in order."""
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        assert row[2] > last.get(row[:2], -1), f"{row} comes after offset {last[row[:2]]}"
        last[row[:2]] = row[2]
        yield row

"""A process that writes rows with failing tasks: FOLDER SEED READ COUNT OPTIONS OPTIONS.

It first copies the topic of READ: the first attempt of all, and half of those after it, raises anywhere among its rows,
or after all of them; Spark tries each task four times. Then it writes COUNT rows: a task loses the shuffle files while
it sends its rows, and they are computed again in another order. Prints a line of JSON after each; the arguments are
JSON, too. The process ends with its standard input.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from ottla.pipeline import session, write_exactly_once
from ottla.pipeline.sink import exactly_once

FOLDER = Path(sys.argv[1])
DEATHS, LOST = FOLDER / "deaths", FOLDER / "lost"
PIECE = 20  # rows per record batch
MOST = 2000
CHUNK_BYTES = 2000
TASKS: dict[str, Callable[..., Iterator[pa.RecordBatch]]] = {
    name: getattr(exactly_once, name) for name in ("place_task", "send_task")
}


def note(path: Path) -> None:
    with path.open("a") as notes:
        notes.write("x")


def noted(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def rows_of_packing(batches: Iterator[pa.RecordBatch], act: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    """Yields the rows in small record batches; calls `act` before each with the number of rows so far."""
    seen = 0
    for batch in batches:
        for start in range(0, batch.num_rows, PIECE):
            act(seen)
            seen += PIECE
            yield batch.slice(start, PIECE)


def run_task(name: str, work: Any, batches: Iterator[pa.RecordBatch], act: Callable[[int], None]) -> Iterator[Any]:
    """Runs a task that gets its rows in small record batches; calls `act` as `rows_of_packing`."""
    from ottla.pipeline.sink import tasks
    from ottla.pipeline.sink.rows import Part

    if name == "place_task":
        yield from TASKS[name](work, rows_of_packing(batches, act))
        return
    slices = tasks.slices

    def of_sending(*given: Any) -> Iterator[Any]:
        seen = 0
        for target, rows in slices(*given):
            for start in range(0, rows.num_rows, PIECE):
                act(seen)
                seen += PIECE
                yield Part(target, rows.slice(start, PIECE))

    with patch.object(tasks, "slices", of_sending):
        yield from TASKS[name](work, batches)


def mortal(name: str, seed: str) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Returns the function of the sink's tasks with this name, whose first attempts may die."""

    def run(work: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        chance = random.Random(f"{seed} {name} {context.partitionId()} {context.attemptNumber()}")
        dies = context.attemptNumber() < 3 and (chance.random() < 0.5 or not noted(DEATHS))
        left = chance.randrange(MOST) if dies else None

        def act(seen: int) -> None:
            if left is not None and seen >= left:
                die()

        def die() -> None:
            note(DEATHS)
            raise RuntimeError("this task was to die")

        yield from run_task(name, work, batches, act)
        if left is not None:
            die()

    return run


def copy(spark: SparkSession, seed: int, read: dict[str, str], options: dict[str, str]) -> dict[str, Any]:
    for name in TASKS:
        setattr(exactly_once, name, mortal(name, str(seed)))
    rows = spark.read.format("ottla").options(**read).load().select("key", "value", "timestamp")
    report = write_exactly_once(rows, 0, options)
    return {"deaths": noted(DEATHS), "records": report.records}


def again(spark: SparkSession, count: int, options: dict[str, str]) -> dict[str, Any]:
    def unstable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chance = random.Random(os.urandom(8))
        for batch in batches:
            order = chance.sample(range(batch.num_rows), batch.num_rows)
            yield batch.take(pa.array(order))

    def losing(work: Any, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        def act(seen: int) -> None:
            if seen >= count // 2 and not noted(LOST):
                for path in (FOLDER / "spark").glob("**/shuffle_*"):
                    path.unlink()
                note(LOST)
                raise RuntimeError("this task lost the files of the shuffle")

        yield from run_task("send_task", work, batches, act)

    for name, task in TASKS.items():
        setattr(exactly_once, name, task)
    exactly_once.send_task = losing
    rows = spark.range(count, numPartitions=2).selectExpr("CAST(id AS string) AS value")
    report = write_exactly_once(rows.mapInArrow(unstable, rows.schema), 0, options)
    return {"lost": noted(LOST), "records": report.records}


def end_with_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    spark = session("local[2,4]", **{"spark.local.dir": str(FOLDER / "spark")})
    seed, read, count, *to = map(json.loads, sys.argv[2:])
    exactly_once.Work = partial(exactly_once.Work, chunk_bytes=CHUNK_BYTES)  # type: ignore[misc]
    print(json.dumps(copy(spark, seed, read, to[0])), flush=True)
    print(json.dumps(again(spark, count, to[1])), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

"""A process with a query whose tasks die: `sink_child.py FOLDER SEED OPTIONS`, until it is killed.

The first attempt of all, and half of those after it, raises or kills its own process, anywhere among its rows, or after
the last one, when all are sent but the result is not reported; Spark tries each task four times. The process ends when
its stdin is closed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException

from ottla.pipeline import session
from ottla.pipeline.sink import exactly_once
from ottla_testing.pipeline.sink_queries import SinkQuery

SEED = sys.argv[2]
DEATHS = f"{sys.argv[1]}/deaths"
PIECE = 20  # rows per record batch
MOST = 200


def mortal(work: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """The sending task of the sink, which may die."""
    from ottla.pipeline.sink import tasks
    from ottla.pipeline.sink.rows import Part

    slices = tasks.slices
    context = TaskContext.get()
    assert context is not None
    attempt = context.attemptNumber()
    chance = random.Random(f"{SEED} {work.grant} {context.partitionId()} {attempt}")
    dies = attempt < 3 and (chance.random() < 0.5 or not os.path.exists(DEATHS))
    left = chance.randrange(MOST) if dies else None
    is_quiet = chance.random() < 0.5

    def die() -> None:
        with open(DEATHS, "a") as deaths:
            deaths.write("x")
        if is_quiet:
            raise RuntimeError("this task was to die")
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(*given: Any) -> Iterator[Any]:
        seen = 0
        for target, rows in slices(*given):
            for start in range(0, rows.num_rows, PIECE):
                if left is not None and seen >= left:
                    die()
                seen += PIECE
                yield Part(target, rows.slice(start, PIECE))

    with patch.object(tasks, "slices", counted):
        yield from tasks.send_task(work, batches)
    if left is not None:
        die()


def end_with_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    conf = {"spark.sql.streaming.pollingDelay": "20ms"}
    spark = session("local[2,4]", **conf)
    exactly_once.send_task = mortal
    query = SinkQuery(spark, Path(sys.argv[1]), json.loads(sys.argv[3]))
    while True:
        try:
            query.start().awaitTermination()
        except StreamingQueryException as error:
            print(f"the query failed: {str(error)[-2000:]}", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main()

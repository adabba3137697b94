"""A process that runs a streaming query until it is killed: `stream_child.py FOLDER SOURCE OPTIONS`. It ends when its
stdin is closed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from ottla.pipeline import session
from ottla_testing.pipeline.stream_queries import Query


def end_with_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    spark = session("local[1]", **{"spark.sql.shuffle.partitions": 1})
    query = Query(spark, Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])).start()
    query.awaitTermination()


main()

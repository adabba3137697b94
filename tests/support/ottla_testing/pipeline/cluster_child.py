"""The driver of a cluster whose executors are killed: `cluster_child.py MASTER FOLDER BOOTSTRAP ROUNDS`.

Each round writes rows to the topic `out`, and exports the new records of a log to a Delta and to an Iceberg table. Work
that fails is begun again, as a streaming query or a scheduler does. `FOLDER/works` has a line for each attempt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from ottla.pipeline import ExportSettings, export, session, write_exactly_once
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import NOW_MS, a_log
from ottla_testing.pipeline.standalone_cluster import CONF

ROWS, PARTITIONS = 20_000, 2
RECORDS, BATCHES = 50, 20
FORMATS = ("delta", "iceberg")
KEYS = 7
ATTEMPTS = 10
ATTEMPTS = 10


def main() -> None:
    master, place, bootstrap, rounds = sys.argv[1:]
    folder = Path(place)
    conf = {name: value for name, _, value in (one.partition("=") for one in CONF)}
    found_by = {"spark.executor.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dkilled={folder}"}
    spark = session(master, **conf, **found_by)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": "out", "transactionalId": "killed"}

    def send(number: int) -> None:
        rows = spark.range(number * ROWS, (number + 1) * ROWS, 1, PARTITIONS)
        write_exactly_once(rows.selectExpr(f"string(id % {KEYS}) AS key", "string(id) AS value"), number, options)

    def export_to(kind: str) -> None:
        settings = ExportSettings(format=kind, file_bytes=4_000)  # pyright: ignore[reportArgumentType]
        export(spark, str(folder / "logs"), str(folder / kind), settings)

    def attempt(what: str, work: Callable[[], None]) -> None:
        for left in reversed(range(ATTEMPTS)):
            with (folder / "works").open("a") as works:
                works.write(f"{what}\n")
            try:
                return work()
            except Exception as error:
                print(f"{what} failed: {type(error).__name__}: {str(error)[:500]}", flush=True)
                if not left:
                    raise
                if not left:
                    raise

    for number in range(int(rounds)):
        attempt(f"sink {number}", lambda number=number: send(number))
        for partition in range(PARTITIONS):
            first = number * BATCHES * RECORDS
            batches = [
                [Record(n, NOW_MS + n, b"k", b"%d" % n, ()) for n in range(at, at + RECORDS)]
                for at in range(first, first + BATCHES * RECORDS, RECORDS)
            ]
            a_log(folder / "logs", "orders", partition, batches, segment_bytes=8_000)
        for kind in FORMATS:
            attempt(f"{kind} {number}", lambda kind=kind: export_to(kind))
    spark.stop()


if __name__ == "__main__":
    main()

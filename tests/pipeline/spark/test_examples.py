"""The documentation's Spark programs, run as written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.broker import Embedded
from ottla_testing.snippets import ADDRESS, SNIPPETS, snippet

RECORDS = 6
# Program -> parts of its output.
PRINTS = {
    "read_files": ["record 0", "record 5", "gzip"],
    "read_broker": [f"{RECORDS}\n"],
    "scan_sizes": ["48 bytes"],
    "read_stream": ["lag: 0 offsets"],
    "write_each_row_once": [f"{RECORDS} records"],
}


def test_every_program_is_run() -> None:
    assert sorted(path.stem for path in (SNIPPETS / "spark").glob("*.py")) == sorted(PRINTS)


def test_they_work_as_written(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with Embedded(data_dir=data, configs={"compression.type": "gzip"}) as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(RECORDS):
            broker.send("orders", f"record {number}", partition=int(number == 3))
    with Embedded(data_dir=data) as broker:  # again: in use, with high watermarks in the checkpoint
        broker.create_topic("copies", partitions=2)
        for name, expected in PRINTS.items():
            program = snippet(f"spark/{name}.py").replace(ADDRESS, broker.bootstrap)
            # The JVM resolves paths against its start folder.
            for path in ("data", "checkpoint", "orders.parquet", "copying"):
                program = program.replace(f'"{path}"', repr(str(tmp_path / path)))
            capfd.readouterr()
            exec(program, {"__name__": name})
            printed = capfd.readouterr().out
            assert all(text in printed for text in expected), printed
    assert spark.read.parquet(str(tmp_path / "orders.parquet")).count() == RECORDS

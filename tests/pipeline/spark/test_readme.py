"""The programs of "Reading logs with Spark" and "Writing with Spark" in the README, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.broker import Embedded
from ottla_testing import ROOT

README = (ROOT / "README.md").read_text()
ADDRESS = "127.0.0.1:9092"
RECORDS = 6
# Of what each prints.
PRINTS = {
    "Files": ["record 0", "record 5", "gzip"],
    "A broker": [f"{RECORDS}\n"],
    "A stream": ["0 offsets behind"],
    "Each row once": [f"{RECORDS} records"],
}


def programs() -> dict[str, str]:
    """Program by its heading, from the parts between the `spark` marks."""
    parts = "".join(re.findall(r"<!-- spark -->\n(.*?)<!-- /spark -->", README, re.DOTALL))
    return dict(re.findall(r"^(\w[\w ]*)[^\n`]*:\n\n```python\n(.*?)```", parts, re.DOTALL | re.MULTILINE))


def test_there_are_four() -> None:
    assert list(programs()) == list(PRINTS)


def test_they_work_as_written(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    with Embedded(data_dir=data, configs={"compression.type": "gzip"}) as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(RECORDS):
            broker.send("orders", f"record {number}", partition=int(number == 3))
    with Embedded(data_dir=data) as broker:  # again: in use, and its high watermarks are written down
        broker.create_topic("copies", partitions=2)
        for heading, program in programs().items():
            program = program.replace(ADDRESS, broker.bootstrap)
            for name in ("data", "checkpoint", "orders.parquet", "copying"):  # the JVM looks where it was started
                program = program.replace(f'"{name}"', repr(str(tmp_path / name)))
            capfd.readouterr()
            exec(program, {"__name__": heading})
            printed = capfd.readouterr().out
            assert all(text in printed for text in PRINTS[heading]), printed
    assert spark.read.parquet(str(tmp_path / "orders.parquet")).count() == RECORDS

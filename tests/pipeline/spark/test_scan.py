"""`scan(...).map_arrow(function)`: each record is given to the function once, and errors are as those of a query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from ottla.broker import Embedded
from ottla.pipeline import scan
from ottla.pipeline.backend import ReadError
from ottla.pipeline.offsets import OptionError

COUNT = 300


def offsets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = [batch.select(["partition", "offset"]) for batch in batches]
    yield from found
    if not found:
        raise AssertionError("a piece without records")


def test_every_record_is_given_once(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Embedded(data_dir=data) as broker:
        broker.create_topic("orders", partitions=2, configs={"internal.segment.bytes": "4000"})
        for number in range(COUNT):
            broker.send("orders", f"record {number}", partition=number % 2)
        over_wire = scan(options={"kafka.bootstrap.servers": broker.bootstrap}, subscribe="orders")
        rows = over_wire.map_arrow(offsets, "partition int, offset long").collect()
        assert sorted(map(tuple, rows)) == [(index, at) for index in range(2) for at in range(COUNT // 2)]
    found = scan(str(data), subscribe="orders", columns="partition,offset").map_arrow(
        offsets, "partition int, offset long"
    )
    assert found.rdd.getNumPartitions() > 4
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, rows))
    none = scan(str(data), subscribe="orders", startingOffsets="earliest", endingTimestamp="1")
    assert none.map_arrow(offsets, "partition int, offset long").count() == 0
    with pytest.raises(OptionError, match="did you mean onCorrupt"):
        scan(str(data), onCorupt="skip")
    with pytest.raises(ReadError, match="nothing not found in"):
        scan(str(data), subscribe="nothing").map_arrow(offsets, "offset long")
    log = next(path for path in (data / "orders-0").glob("*.log") if path.stat().st_size > 3000)
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    log.write_bytes(damaged)
    with pytest.raises(PythonException, match=r"ReadError: .* offset"):
        scan(str(data), subscribe="orders").map_arrow(offsets, "partition int, offset long").collect()

"""What older releases of PySpark lack: streams without the start of a batch, and rows by the numbers of their tasks."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ottla.pipeline.backend import DataLoss, ReadError
from ottla.pipeline.options import parse
from ottla.pipeline.schemas import schema
from ottla.pipeline.sources import stream as module
from ottla.pipeline.sources.stream import UnlimitedStreamReader, stream_reader
from ottla.pipeline.spark_api import hash_of, keys_of_tasks
from ottla_testing.pipeline.stream_fakes import T0, T1, FakeBackend


def reader(logs: dict[Any, tuple[int, int]], starting: str = "earliest", **options: str) -> tuple[Any, FakeBackend]:
    """Returns the reader of a stream for a Spark before 4.2."""
    backend = FakeBackend(dict(logs))
    given = {"kafka.bootstrap.servers": "nowhere:1", "startingOffsets": starting, "columns": "offset"} | options
    found = parse(given, "ottla", True)
    return UnlimitedStreamReader(found, lambda: backend, schema(found)), backend


def test_batches_begin_at_the_end_of_the_last_one() -> None:
    one, backend = reader({T0: (2, 9)})
    start = one.initialOffset()
    assert start == {"t": {"0": 2}}
    first = one.latestOffset()
    assert first == {"t": {"0": 9}} and len(one.partitions(start, first)) == 1
    backend.logs |= {T0: (2, 12), T1: (0, 1)}
    second = one.latestOffset()
    assert second == {"t": {"0": 12, "1": 1}} and one.latestOffset() == second
    assert len(one.partitions(first, second)) == 2
    backend.logs[T0] = (15, 20)
    with pytest.raises(DataLoss, match="t-0 begins at offset 15, after 12"):
        one.latestOffset()


def test_restarted_query_has_no_start_before_its_first_batch() -> None:
    one, backend = reader({T0: (5, 9)})
    end = one.latestOffset()
    assert end == {"t": {"0": 9}}
    backend.logs[T0] = (5, 10)
    assert len(one.partitions({"t": {"0": 7}}, end)) == 1
    assert one.latestOffset() == {"t": {"0": 10}}
    lost, _ = reader({T0: (5, 9)})
    with pytest.raises(DataLoss, match="t-0 went back from offset 11 to 9"):
        lost.partitions({"t": {"0": 11}}, lost.latestOffset())


def test_available_now_ends_before_a_later_start() -> None:
    """Spark fixes the end of the query first; records that are added then are after it."""
    one, backend = reader({T0: (0, 5)}, starting="latest")
    end = one.latestOffset()
    backend.logs[T0] = (0, 8)
    start = one.initialOffset()
    assert start == end == {"t": {"0": 5}} and one.partitions(start, end) == []


def test_limits_need_a_later_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PASSES_START", False)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"):
        options = parse({"kafka.bootstrap.servers": "nowhere:1", name: "5"}, "ottla", True)
        with pytest.raises(ReadError, match=f"{name} needs PySpark 4.2 or later"):
            stream_reader(options, FakeBackend, schema(options))


def test_keys_of_tasks_lead_to_their_partitions(spark: SparkSession) -> None:
    rows = spark.range(-9, 60).select(F.col("id").cast("int"), F.hash(F.col("id").cast("int"))).collect()
    assert all(hash_of(key & 0xFFFFFFFF) == found for key, found in rows)
    for tasks in (1, 2, 13):
        keys = keys_of_tasks(tasks)
        assert [hash_of(key) % tasks for key in keys] == list(range(tasks))

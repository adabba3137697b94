"""Rows written to topics by Spark, read by an independent client: columns, replays, zombies, and the format `ottla`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline import write_exactly_once
from ottla.pipeline.sink.errors import SinkError, SinkFenced
from ottla.pipeline.sink.exactly_once import SPECULATION
from ottla_testing.patience import until
from ottla_testing.pipeline.sink_queries import PATIENCE_S, Record, SinkQuery, committed, values

LEGACY = "spark.sql.legacy.setCommandRejectsSparkCoreConfs"


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded(configs={"log.retention.ms": "-1"}) as broker:  # the default deletes old records after 5 min
        yield broker


def sink(broker: Embedded, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, **more}


def test_write_targets_and_errors(spark: SparkSession, broker: Embedded) -> None:
    for topic in ("a", "b"):
        broker.create_topic(topic, partitions=2)
    rows = spark.createDataFrame(
        [
            ("b", 1, "k1", b"v1", [("h", b"1"), ("h", None)], 3, 1_000),
            ("a", 0, None, b"v2", [], 2, 2_000),
            ("a", 0, "k3", None, None, 1, 3_000),
        ],
        "topic string, partition int, key string, value binary, headers array<struct<key: string, value: binary>>,"
        " rank int, ms long",
    ).selectExpr("*", "timestamp_millis(ms) AS timestamp")
    given = sink(broker, transactionalId="columns", orderBy="rank")
    expected = [
        Record("a", 0, 3_000, b"k3", None, None),
        Record("a", 0, 2_000, None, b"v2", None),
        Record("b", 1, 1_000, b"k1", b"v1", [("h", b"1"), ("h", None)]),
    ]
    report = write_exactly_once(rows, 7, given)
    assert committed(broker.bootstrap, "a", 2) + committed(broker.bootstrap, "b", 2) == expected
    document = json.loads(report.to_json())
    assert (document["batchId"], document["written"], document["records"]) == (7, True, 3)
    assert [(one["topic"], one["partition"], one["first_offset"]) for one in document["partitions"]] == [
        ("a", 0, 0),
        ("b", 1, 0),
    ]
    again = write_exactly_once(rows, 7, given)
    assert not again.written and again.to_text().endswith("committed before, nothing is written")

    for wrong, more, sentence in [
        (rows.drop("value"), {}, "there is no column value"),
        (rows.drop("topic"), {}, "no target topic: set the option topic, or add a column topic"),
        (rows.selectExpr("1 AS value"), {"topic": "a"}, "column value is of type int32: it must be string or binary"),
        (rows.selectExpr("value", "'1' AS partition"), {"topic": "a"}, "column partition is of type string"),
        (rows, {"orderBy": "rang"}, "orderBy names rang, which is not a column"),
        (rows, {"topik": "x"}, "no option topik; did you mean topic"),
        (rows, {"topic": "nowhere"}, "topic 'nowhere' does not exist"),
        (rows.selectExpr("nullif(topic, 'b') AS topic", "value"), {"orderBy": "value"}, "a row has no topic"),
        (rows.selectExpr("value", "9 AS partition"), {"topic": "a", "orderBy": "value"}, "partition 9 of topic 'a', "),
    ]:
        with pytest.raises(SinkError, match=sentence) as caught:
            write_exactly_once(wrong, 8, given | more)
        assert "\n" not in str(caught.value)
    with pytest.raises(SinkError, match="transactionalId must be given outside a streaming query"):
        write_exactly_once(rows, 8, sink(broker))
    spark.conf.set(LEGACY, "false")
    spark.conf.set(SPECULATION, "true")
    try:
        with pytest.raises(SinkError, match=r"^spark.speculation is true: .* must be false for this sink$"):
            write_exactly_once(rows, 8, given)
    finally:
        spark.conf.unset(SPECULATION)
        spark.conf.unset(LEGACY)
    assert committed(broker.bootstrap, "a", 2) + committed(broker.bootstrap, "b", 2) == expected


def test_repeated_micro_batch_adds_nothing(spark: SparkSession, broker: Embedded, tmp_path: Path) -> None:
    broker.create_topic("stream", partitions=2)
    query = SinkQuery(spark, tmp_path, sink(broker, topic="stream", orderBy="value"))
    query.feed(range(100))
    query.feed(range(100, 120))
    query.run()
    assert sorted(values(committed(broker.bootstrap, "stream", 2))) == list(range(120))
    assert query.done() == 2
    query.forget()

    def twice(batch: DataFrame, number: int) -> None:
        write_exactly_once(batch, number, query.options)
        write_exactly_once(batch, number, query.options)  # the same rows: it is committed already
        write_exactly_once(batch.limit(1), number, query.options)

    query.feed([120])
    with pytest.raises(StreamingQueryException, match="each write needs a transactionalId of its own"):
        query.run(twice)
    query.run()
    assert sorted(values(committed(broker.bootstrap, "stream", 2))) == list(range(121))


def test_later_query_fences_earlier_one(spark: SparkSession, broker: Embedded, tmp_path: Path) -> None:
    broker.create_topic("fenced")
    given = sink(broker, topic="fenced", transactionalId="mine")
    there, go = tmp_path / "there", tmp_path / "go"

    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        there.touch()
        while not go.exists():
            time.sleep(0.01)
        yield from batches

    slow = spark.createDataFrame([("1",)], "value string").coalesce(1).mapInArrow(waits, "value string")
    failed: list[BaseException] = []

    def first() -> None:
        try:
            write_exactly_once(slow, 0, given)
        except SinkError as error:
            failed.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    until(there.exists)
    assert write_exactly_once(spark.createDataFrame([("2",)], "value string"), 0, given).records == 1
    go.touch()
    thread.join(PATIENCE_S)
    (error,) = failed
    assert isinstance(error, SinkFenced)
    assert "transactional id 'mine'" in str(error) and "another query took over" in str(error)
    assert values(committed(broker.bootstrap, "fenced", 1)) == [2]


def test_format_ottla_stream(spark: SparkSession, broker: Embedded, tmp_path: Path) -> None:
    broker.create_topic("format", partitions=2)
    query = SinkQuery(spark, tmp_path, sink(broker, topic="format"), each=False)
    query.feed(range(200))
    query.run()
    query.feed(range(200, 300))
    query.run()
    found = committed(broker.bootstrap, "format", 2)
    assert sorted(values(found)) == list(range(300))
    for partition in (0, 1):
        of_one = values(one for one in found if one.partition == partition)
        assert of_one == sorted(of_one)
    query.forget()
    query.run()  # at least once: the repeated micro-batch is written again
    assert len(committed(broker.bootstrap, "format", 2)) == 400


def test_format_ottla_batch(spark: SparkSession, broker: Embedded) -> None:
    broker.create_topic("batches", partitions=2)
    rows = spark.range(50).selectExpr("CAST(id AS string) AS value")

    def write(mode: str = "append", **more: str) -> None:
        rows.write.format("ottla").mode(mode).options(**sink(broker, topic="batches", **more)).save()

    write()
    assert sorted(values(committed(broker.bootstrap, "batches", 2))) == list(range(50))
    for mode, more, sentence in [
        ("overwrite", {}, "records in a topic cannot be replaced"),
        ("append", {"transactionalId": "x"}, "transactionalId is an option of write_exactly_once"),
        ("append", {"stagingLocation": "x"}, "the sink has no option stagingLocation"),
    ]:
        with pytest.raises(Exception, match=f"(?i){sentence}"):
            write(mode, **more)
    assert len(committed(broker.bootstrap, "batches", 2)) == 50

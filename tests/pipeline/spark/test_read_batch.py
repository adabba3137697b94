"""Batch queries through Spark: the same rows as without, filters that skip files, SQL, and errors as users see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.broker.testing.embedded import Embedded
from ottla_testing import GOLDEN
from ottla_testing.pipeline.read_samples import BATCHES, FORMATS, PER_BATCH
from ottla_testing.pipeline.read_through import rows

KAFKAS = GOLDEN / "directories" / "2.8.2"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def load(spark: SparkSession, name: str, options: dict[str, Any], *paths: object) -> DataFrame:
    reader = spark.read.format(name).options(**{key: str(value) for key, value in options.items()})
    return reader.load([str(path) for path in paths]) if len(paths) > 1 else reader.load(*map(str, paths))


def shown(found: DataFrame) -> list[dict[str, Any]]:
    """Returns all rows, in order of topic, partition, offset, as plain values."""
    order = [name for name in ("topic", "partition", "offset", "lastOffset") if name in found.columns]
    raised: list[dict[str, Any]] = found.toArrow().to_pylist()
    return sorted(raised, key=lambda row: [row[name] for name in order])


def test_rows_equal_those_without_spark(spark: SparkSession, directory: Path, broker: Embedded) -> None:
    options = {"includeHeaders": "true", "metadata": "true"}
    files = shown(load(spark, "ottla_log", options, directory))
    assert files == rows("ottla_log", options | {"path": directory})
    assert {row["topic"] for row in files} == {*FORMATS, "events", "transactions"}
    fetched = shown(load(spark, "ottla", options | {"kafka.bootstrap.servers": broker.bootstrap}))
    # Records from brokers have no file. Wrappers of old formats have their stored position, in both.
    assert fetched == [row | {"file": None} for row in files]
    committed = options | {"isolationLevel": "read_committed", "includeControlRecords": "true"}
    kafkas = shown(load(spark, "ottla_log", committed, KAFKAS))
    assert kafkas == rows("ottla_log", committed | {"path": KAFKAS})
    assert {row["magic"] for row in kafkas} == {0, 1, 2} and any(row["control"] for row in kafkas)
    batches = load(spark, "ottla_batches", {"columns": "topic,lastOffset,codec,crcOk"}, directory / "v2-zstd-0")
    assert shown(batches) == [
        {"topic": "v2-zstd", "lastOffset": PER_BATCH * n - 1, "codec": "zstd", "crcOk": True}
        for n in range(1, BATCHES + 1)
    ]


def test_filters_skip_files(spark: SparkSession, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def events(condition: str, **options: str) -> DataFrame:
        options |= {"subscribe": "events", "columns": "partition,offset,timestamp"}
        return load(spark, "ottla_log", options, directory).where(condition)

    per_file = len(list((directory / "events-1").glob("*.log")))
    tried = {
        "partition = 2": (per_file, 400),
        "offset IN (3, 399) AND partition <> 1": (4, 4),
        "timestamp >= '2023-11-14 17:19:35' AND partition > 0": (3, 78),
        "timestamp > date'2023-11-15' OR partition = 1": (3 * per_file, 400),
    }
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        for condition, (tasks, count) in tried.items():
            found = events(condition, pushdown="true")
            assert (found.rdd.getNumPartitions(), found.count()) == (tasks, count), condition
        by_time = list(tried)[2]
        pushed = shown(events(by_time, pushdown="true"))
        with setting(spark, PUSHDOWN, "false"):  # Spark's default, as in a session made by other code
            plain = events(by_time, pushdown="true")
            assert plain.rdd.getNumPartitions() == 3 * per_file
            assert shown(plain) == pushed
        events("partition = 2", pushdown="true").explain()
    assert "Filter (" not in capsys.readouterr().out


def test_queries_of_one_load_do_not_share_filters(spark: SparkSession, directory: Path) -> None:
    events = load(spark, "ottla_log", {"subscribe": "events", "columns": "partition,offset"}, directory)
    assert events.where("partition = 1 AND offset < 10").count() == 10
    assert events.count() == 1200
    assert events.where("offset > 390 OR partition = 1").count() == 400 + 2 * 9
    one, other = events.where("partition = 2"), events.where("partition = 3 AND offset < 7")
    assert one.union(other).count() == 407


def test_sql_paths_and_schemas(spark: SparkSession, directory: Path) -> None:
    one, other = directory / "v2-none-0", directory / "v1-gzip-0"
    assert load(spark, "ottla_log", {}, one, other).count() == 2 * BATCHES * PER_BATCH
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW logs USING ottla_log OPTIONS (path '{directory}', SUBSCRIBE 'events')")
    try:
        query = "SELECT partition, count(*), max(offset) FROM logs WHERE offset < 7 GROUP BY partition ORDER BY 1"
        assert [tuple(row) for row in spark.sql(query).collect()] == [(n, 7, 6) for n in (1, 2, 3)]
    finally:
        spark.catalog.dropTempView("logs")
    own = spark.read.schema("offset BIGINT NOT NULL, value BINARY").format("ottla_log").load(str(other))
    expected = rows("ottla_log", {"path": other, "columns": "offset,value"})
    assert own.columns == ["offset", "value"] and own.where("offset < 5").toArrow().to_pylist() == expected[:5]


def error(what: Any) -> str:
    """Returns the last lines that a user sees, without Spark's own text after them."""
    with pytest.raises(PySparkException) as raised:
        what()
    text = str(raised.value).split("SQLSTATE")[0].strip()
    assert len(text.splitlines()) <= 5, text
    return text.splitlines()[-1]


def test_errors_as_users_see_them(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    def log(**options: str) -> DataFrame:
        return load(spark, "ottla_log", options, directory)

    assert error(lambda: load(spark, "ottla", {"subscribe": "a"})).endswith(
        "OptionError: kafka.bootstrap.servers must be given: brokers to connect to, as host:port,host:port"
    )
    assert error(lambda: log(startingOfsets="earliest")).endswith(
        "OptionError: ottla_log has no option startingofsets; did you mean startingOffsets?"
    )
    assert error(lambda: log(startingOffsets="latest").count()).endswith("can't be latest in a batch query")
    assert error(lambda: log(subscribe="nothing").count()).endswith(f"ReadError: nothing not found in {directory}")
    wrong = spark.read.schema("key STRING").format("ottla_log")
    assert error(lambda: wrong.load(str(directory)).count()).endswith("schema: column key is binary, not string")
    lost = log(subscribe="v2-none", endingOffsets='{"v2-none": {"0": 500}}')
    assert "DataLoss: records may be lost: v2-none-0 ends at offset 120, before the requested end, 500" in error(
        lost.count
    )
    folder = tmp_path / "v2-none-0"
    folder.mkdir()
    data = bytearray((directory / "v2-none-0" / ("0" * 20 + ".log")).read_bytes())
    data[-1] ^= 1
    (folder / ("0" * 20 + ".log")).write_bytes(data)
    message = error(load(spark, "ottla_log", {}, folder).count)
    assert message.startswith("ottla.pipeline.backend.ReadError: ") and str(folder) in message and "offset" in message
    assert 0 < load(spark, "ottla_log", {"onCorrupt": "skip"}, folder).count() < BATCHES * PER_BATCH

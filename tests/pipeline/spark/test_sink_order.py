"""The order of rows copied from one topic to another: that of each key is kept, with failing tasks as well."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.broker.testing.embedded import Embedded, NewRecord
from ottla.pipeline import write_exactly_once
from ottla_testing import SUPPORT
from ottla_testing.pipeline.sink_queries import PATIENCE_S, committed

CHILD = SUPPORT / "pipeline" / "sink_order_child.py"
KEYS, RECORDS = 500, 6000
FROM_PARTITIONS, PARTITIONS = 3, 4
TASKS = 7  # several for each source partition
BASE_MS = 1_700_000_000_000

Values = dict[bytes, list[bytes]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded(configs={"log.retention.ms": "-1"}) as broker:  # the default deletes old records after 5 min
        yield broker


@pytest.fixture(scope="module")
def source(broker: Embedded) -> str:
    """Creates a topic of keys with many values each. Timestamps fall, and values have no order of their own."""
    name = broker.create_topic("source", partitions=FROM_PARTITIONS)
    chance = random.Random(7)
    broker.send_many(
        name,
        (
            NewRecord(
                b"%08x-%d" % (chance.getrandbits(32), number),
                b"key-%d" % chance.randrange(KEYS),
                timestamp_ms=BASE_MS - number,
            )
            for number in range(RECORDS)
        ),
    )
    return name


def by_key(broker: Embedded, topic: str) -> Values:
    """Returns the values of each key, in the order of their offsets."""
    found: Values = defaultdict(list)
    for record in committed(broker.bootstrap, topic, len(broker.topic(topic).partitions)):
        found[record.key or b""].append(record.value or b"")
    return dict(found)


def last_of(found: Values) -> dict[bytes, bytes]:
    return {key: values[-1] for key, values in found.items()}


def options(broker: Embedded, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "kafka.batch.size": "2000", **more}


def copied(spark: SparkSession, broker: Embedded, source: str, tasks: int = TASKS) -> DataFrame:
    """Returns the rows of the source, for partitions by key."""
    read = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", source)
    return read.option("minPartitions", tasks).load().select("key", "value", "timestamp")


def copy_by_stream(spark: SparkSession, broker: Embedded, source: str, given: dict[str, str], folder: Path) -> None:
    """Tasks of a format write concurrently: the order within each partition of the DataFrame is kept, as for a
    batch."""
    read = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    read = read.option("subscribe", source).option("maxOffsetsPerTrigger", RECORDS // 2)
    rows = read.option("startingOffsets", "earliest").load().select("key", "value", "timestamp")
    query = rows.writeStream.format("ottla").options(**given).trigger(availableNow=True)
    assert query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination(PATIENCE_S)


@pytest.mark.parametrize("way", ["write_exactly_once", "stream", "batch"])
def test_copied_topic_keeps_order_of_each_key(
    spark: SparkSession, broker: Embedded, source: str, way: str, tmp_path: Path
) -> None:
    topic = broker.create_topic(f"copy-{way.replace(' ', '-')}", partitions=PARTITIONS)
    given = options(broker, topic)
    if way == "write_exactly_once":
        write_exactly_once(copied(spark, broker, source), 0, given | {"transactionalId": "copy"})
    elif way == "stream":
        copy_by_stream(spark, broker, source, given, tmp_path)
    else:
        rows = copied(spark, broker, source, FROM_PARTITIONS)
        rows.write.format("ottla").mode("append").options(**given).save()
    found, wanted = by_key(broker, topic), by_key(broker, source)
    assert last_of(found) == last_of(wanted)
    assert found == wanted


def test_order_by_is_stable(spark: SparkSession, broker: Embedded, source: str) -> None:
    topic = broker.create_topic("ranked", partitions=PARTITIONS)
    rows = copied(spark, broker, source).selectExpr("*", "length(value) AS rank")
    write_exactly_once(rows, 0, options(broker, topic, transactionalId="ranked", orderBy="rank"))
    wanted = {key: sorted(values, key=len) for key, values in by_key(broker, source).items()}
    assert by_key(broker, topic) == wanted


def test_sorted_query_keeps_order(spark: SparkSession, broker: Embedded, source: str) -> None:
    topic = broker.create_topic("sorted", partitions=PARTITIONS)
    rows = copied(spark, broker, source).orderBy("value")
    write_exactly_once(rows, 0, options(broker, topic, transactionalId="sorted"))
    assert by_key(broker, topic) == {key: sorted(values) for key, values in by_key(broker, source).items()}


# -- failing tasks


def reports(folder: Path, *given: Any) -> Iterator[dict[str, Any]]:
    """Yields the reports of a process whose tasks fail and are retried; see sink_order_child.py."""
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, str(CHILD), str(folder), *map(json.dumps, given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        assert child.stdout is not None
        try:
            for _ in range(2):
                line = child.stdout.readline()
                assert line, (folder / "log").read_text()[-3000:]
                yield json.loads(line)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()


def test_failing_tasks_keep_order_and_reordered_rows_written_from_scratch(
    broker: Embedded, source: str, tmp_path: Path
) -> None:
    """First tasks fail anywhere among their rows. Then the shuffle files are lost while a task has sent half of its
    rows, and the rows arrive in another order."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    mortal, again = (
        broker.create_topic(name, partitions=count) for name, count in (("mortal", PARTITIONS), ("again", 1))
    )
    read = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": source, "minPartitions": str(TASKS)}
    to = (options(broker, topic, transactionalId=topic) for topic in (mortal, again))
    copy, computed_again = reports(tmp_path / "child", seed, read, RECORDS, *to)
    assert copy["deaths"] >= 1
    assert by_key(broker, mortal) == by_key(broker, source)
    assert computed_again["lost"] >= 1
    values: Sequence[Any] = [record.value for record in committed(broker.bootstrap, again, 1)]
    assert sorted(values) == sorted(b"%d" % number for number in range(RECORDS))

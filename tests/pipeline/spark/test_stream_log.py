"""Streams of files while a broker writes, rolls, deletes and compacts; and killed queries."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from ottla.broker.testing.embedded import Embedded
from ottla_testing import SUPPORT
from ottla_testing.patience import until
from ottla_testing.pipeline.stream_queries import PATIENCE_S, Query, Row, each_once, ends_in

CHILD = SUPPORT / "pipeline" / "stream_child.py"
CONFIGS = {
    "replica.high.watermark.checkpoint.interval.ms": "20",
    "log.flush.start.offset.checkpoint.interval.ms": "20",
    "log.segment.delete.delay.ms": "0",
}
SMALL = {"segment.bytes": "4000"}  # for records of about 160 bytes


def settle(folder: Path, topic: str, *expected: int) -> None:
    """Waits until the files show these ends: a broker checkpoints its high watermarks at intervals."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := {key: end for key, end in ends_in(folder).items() if key.topic == topic}) != dict(
        zip(((topic, number) for number in range(len(expected))), expected, strict=True)
    ):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def delete_below(broker: Embedded, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        future.result(PATIENCE_S)


def write(broker: Embedded, topic: str, offsets: range, partition: int = 0) -> list[Row]:
    for number in offsets:
        assert broker.send(topic, f"{number:0100}", partition=partition) == number
    return [(topic, partition, number, f"{number:0100}") for number in offsets]


def segments(folder: Path, topic: str, partition: int = 0) -> list[Path]:
    return sorted((folder / f"{topic}-{partition}").glob("*.log"))


def test_file_stream_survives_rolls_deletions_closing_and_torn_tail(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    query = Query(spark, tmp_path / "q", "ottla_log", {"path": str(data), "subscribe": "t"})
    query.options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    with Embedded(release="3.9", data_dir=data, configs=CONFIGS) as broker:
        broker.create_topic("t", partitions=2, configs=SMALL)
        written = write(broker, "t", range(100)) + write(broker, "t", range(20), 1)
        settle(data, "t", 100, 20)
        assert len(segments(data, "t")) > 3
        query.run()
        assert query.batches() == [60, 60]
        query.die()
        # Records that the repeated batch does not need may be deleted; the cut is within a segment.
        delete_below(broker, "t", 0, 45)
        written += write(broker, "t", range(100, 130))
        settle(data, "t", 130, 20)
        query.run()
        assert query.batches() == [60, 60, 30]
        written += write(broker, "t", range(130, 140))
    # Closed: the log ends with its last whole batch, and half a batch after it is not read.
    last = segments(data, "t")[-1]
    whole = last.read_bytes()
    last.write_bytes(whole + whole[: len(whole) // 2][:120])
    query.run()
    assert query.batches() == [60, 60, 30, 10]
    last.write_bytes(whole)
    with Embedded(release="3.9", data_dir=data, configs=CONFIGS) as broker:
        written += write(broker, "t", range(140, 150)) + write(broker, "t", range(20, 40), 1)
        settle(data, "t", 150, 40)
        query.die()
        query.run()
    assert sorted(each_once(query.rows())) == sorted(written)


def test_file_stream_of_compacted_topic_has_all_last_values(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    query = Query(spark, tmp_path / "q", "ottla_log", {"path": str(data), "subscribe": "t"})
    query.options |= {"startingOffsets": "earliest"}
    compact = {"segment.bytes": "2000", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    with Embedded(release="3.9", data_dir=data, configs=CONFIGS | {"log.cleaner.backoff.ms": "100"}) as broker:
        broker.create_topic("t", configs=compact)
        count = 0
        for limit in ("60", "1000"):
            for number in range(count, count + 100):
                broker.send("t", str(number), key=f"key {number % 7}")
            count += 100
            settle(data, "t", count)
            deadline = time.monotonic() + PATIENCE_S
            while sum(path.stat().st_size for path in segments(data, "t")[:-1]) > 1100:  # 26 records have 1950 bytes
                assert time.monotonic() < deadline
                broker.clock.advance(1_000)
                time.sleep(0.02)
            query.run(maxOffsetsPerTrigger=limit)
    found = list(each_once(query.rows()))
    assert len(found) < count
    assert {str(number) for number in range(count - 7, count)} <= {row[3] for row in found}
    assert all(row[3] == str(row[2]) for row in found)
    last = {int(row[3]) % 7: int(row[3]) for row in found}
    assert last == {number % 7: number for number in range(count - 7, count)}


def test_batches_stream_returns_each_header_once(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Embedded(data_dir=data, configs=CONFIGS) as broker:
        broker.create_topic("t")
        for first in range(0, 60, 12):
            broker.send_many("t", [str(number) for number in range(first, first + 12)])
    reader = spark.readStream.format("ottla_batches").options(path=str(data), startingOffsets="earliest")
    writer = reader.option("maxOffsetsPerTrigger", "25").load().writeStream.format("memory").queryName("headers")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert len(query.recentProgress) == 3
    found = [row.baseOffset for row in spark.sql("select baseOffset from headers").collect()]
    assert sorted(found) == [0, 12, 24, 36, 48]


# --- killed


class Killed:
    """A process with a query, and its JVM."""

    def __init__(self, query: Query, log: Path) -> None:
        self.log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), str(query.folder), query.source, json.dumps(query.options)],
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(CHILD.parent)},
        )

    def until(self, reached: Callable[[], bool]) -> None:
        def reached_alive() -> bool:
            assert self.process.poll() is None, Path(self.log.name).read_text()[-3000:]
            return reached()

        until(reached_alive, lambda: Path(self.log.name).read_text()[-3000:])

    def kill(self) -> None:
        """Kills the process; may be called again."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.log.close()


@contextlib.contextmanager
def writing(broker: Embedded, written: list[Row], pause_s: float) -> Iterator[None]:
    """Appends to two partitions all the time."""
    over = threading.Event()

    def work() -> None:
        for number in itertools.count(len(written) // 2):
            for partition in range(2):
                written.extend(write(broker, "t", range(number, number + 1), partition))
            if over.wait(pause_s):
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)


@pytest.mark.soak
def test_killed_queries_lose_and_repeat_nothing(
    spark: SparkSession, tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    """One query of files and one over the wire, alternately; by default the first is killed once."""
    kills, seed = scaled(1), random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    data, written = tmp_path / "data", list[Row]()
    with Embedded(release="3.9", data_dir=data, configs=CONFIGS) as broker:
        broker.create_topic("t", partitions=2, configs=SMALL)
        common = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"}
        queries = [
            Query(spark, tmp_path / "files", "ottla_log", {"path": str(data), **common}),
            Query(spark, tmp_path / "wire", "ottla", {"kafka.bootstrap.servers": broker.bootstrap, **common}),
        ][:kills]
        for number in range(kills):
            query = queries[number % 2]
            before, first = len(query.finished()), len(written) // 2
            for partition in range(2):  # more than one batch waits for the query, which takes seconds to start
                written += write(broker, "t", range(first, first + 60), partition)
            killed = Killed(query, tmp_path / "child.log")
            try:
                killed.until(lambda query=query, enough=before + 1: len(query.finished()) >= enough)
                with writing(broker, written, 0.02):
                    enough = before + chance.randrange(1, 5)
                    killed.until(lambda query=query, enough=enough: len(query.finished()) >= enough)
                    time.sleep(chance.random() * 0.5)
                    killed.kill()
            finally:
                killed.kill()
        settle(data, "t", len(written) // 2, len(written) // 2)
        for query in queries:
            query.run(maxOffsetsPerTrigger="1000000")
            assert sorted(each_once(query.rows())) == sorted(written)

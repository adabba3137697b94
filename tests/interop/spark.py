"""Spark's own Kafka connector against brokers of ours, and our sources beside it: same options, same rows.

The connector is the reference: from a topic of ours it returns the sent records, and our sources return the same with
the same schema, over the wire and from the files, also on a running Apache Kafka.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from apache_kafka import RELEASES, Kafka, kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop import spark_session
from ottla_testing.interop.checks import Check, Failed
from ottla_testing.interop.spark_session import (
    BASE_MS,
    SECONDS,
    STEP_MS,
    Sent,
    broker,
    collected,
    consumed,
    create,
    mixed,
    session,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = 3
TOPIC = "mixed"
KAFKA, OURS, LOG = "kafka", "ottla", "ottla_log"
EVERYTHING = {"subscribe": TOPIC, "includeHeaders": "true"}
# Formats that only older brokers store, by the config that selects them.
OLD_FORMATS = {"v0": "0.9.0", "v1": "0.10.2"}


def at(number: int) -> str:
    """Returns the time of the record with this offset."""
    return str(BASE_MS + number * STEP_MS)


def by_partition(*values: Any) -> str:
    return json.dumps({TOPIC: {str(partition): value for partition, value in enumerate(values)}})


class Query(NamedTuple):
    """Options of a batch query, and which of the records of `TOPIC` it is to give."""

    options: Mapping[str, str]
    gives: Callable[[Sent], bool]


QUERIES = {
    "subscribe": Query(EVERYTHING, lambda _: True),
    "subscribePattern": Query({"subscribePattern": "mi.ed", "includeHeaders": "true"}, lambda _: True),
    "assign": Query({"assign": json.dumps({TOPIC: [0, 2]})}, lambda row: row.partition != 1),
    "offsets": Query(
        EVERYTHING | {"startingOffsets": by_partition(-2, 7, 199), "endingOffsets": by_partition(150, -1, 200)},
        lambda row: (0, 7, 199)[row.partition] <= row.offset < (150, 200, 200)[row.partition],
    ),
    "startingOffsetsByTimestamp": Query(
        {
            "subscribe": TOPIC,
            "startingOffsetsByTimestamp": by_partition(int(at(0)), int(at(45)) - 3, int(at(199))),
            "endingOffsetsByTimestamp": by_partition(int(at(9)), int(at(10**6)), int(at(200))),
        },
        lambda row: (0, 45, 199)[row.partition] <= row.offset < (9, 200, 200)[row.partition],
    ),
    "startingTimestamp": Query(
        {"subscribe": TOPIC, "startingTimestamp": at(30), "endingTimestamp": at(90)}, lambda row: 30 <= row.offset < 90
    ),
    "startingOffsetsByTimestampStrategy": Query(
        {
            "subscribe": TOPIC,
            "startingTimestamp": at(10**6),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        lambda _: False,
    ),
    "minPartitions": Query(EVERYTHING | {"minPartitions": "9"}, lambda _: True),
    "maxRecordsPerPartition": Query(EVERYTHING | {"maxRecordsPerPartition": "30"}, lambda _: True),  # of streams
}
TASKS = {"minPartitions": 9}


def at_broker(address: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": address}


def differ(what: str, found: list[Sent], wanted: list[Sent]) -> None:
    """Raises Failed with the first difference, not with all rows."""
    for one, other in zip(found, wanted, strict=False):
        if one != other:
            raise Failed(f"{what}: {str(one)[:400]} instead of {str(other)[:400]}")
    if len(found) != len(wanted):
        raise Failed(f"{what}: {len(found)} rows instead of {len(wanted)}")


def frame(source: str, place: Mapping[str, str], options: Mapping[str, str]) -> DataFrame:
    return session().read.format(source).options(**place, **options).load()


def our_broker(profile: str = "ottla") -> RunningBroker:
    """Runs a broker that writes its high watermarks to disk at once."""
    return broker(profile, replica_high_watermark_checkpoint_interval_ms="100")


def await_checkpoint(running: Any, topic: str) -> dict[int, int]:
    """Waits until the files have everything that was written to a topic of one of our brokers, or of a Kafka; returns
    partition -> end."""
    settings = {"bootstrap.servers": running.address, "group.id": "ends", "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})  # else the end is the last stable offset
    try:
        partitions = consumer.list_topics(topic, SECONDS).topics[topic].partitions
        ends = {one: consumer.get_watermark_offsets(TopicPartition(topic, one), SECONDS)[1] for one in partitions}
    finally:
        consumer.close()
    spark_session.await_checkpoint(folders(running), topic, ends)
    return ends


def folders(running: Any) -> list[Path]:
    """Returns the log directories of a broker of ours, or of a Kafka."""
    return running.log_dirs if isinstance(running, Kafka) else [running.data_dir]


# The connector alone


def run_batch_reading() -> str:
    """Checks that each query returns exactly the sent records, in the requested number of tasks."""
    address = our_broker().address
    sent = mixed(address, TOPIC, PARTITIONS)
    for name, query in QUERIES.items():
        found = frame(KAFKA, at_broker(address), query.options)
        with_headers = "includeHeaders" in query.options
        wanted = [row if with_headers else row._replace(headers=None) for row in sent if query.gives(row)]
        differ(name, collected(found), wanted)
        if name in TASKS and (count := found.rdd.getNumPartitions()) != TASKS[name]:
            raise Failed(f"{name}: {count} tasks")
    return f"{len(sent)} records in {', '.join(spark_session.CODECS)}, by {', '.join(QUERIES)}"


def run_old_formats() -> str:
    """Reads records that a broker stores in v0 and v1: no headers, and times only in v1."""
    address = our_broker("2.8").address
    for magic, release in OLD_FORMATS.items():
        sent = mixed(address, magic, 1, old=release)
        found = collected(frame(KAFKA, at_broker(address), {"subscribe": magic}))
        wanted = sent if magic == "v1" else [row._replace(timestamp_ms=-1, timestamp_type=-1) for row in sent]
        differ(magic, found, wanted)
    return f"{len(sent)} records in each of {', '.join(OLD_FORMATS)}"


def transacted(address: str, topic: str) -> tuple[list[Sent], Producer]:
    """Writes two committed transactions, an aborted one between them, and one that stays open while the producer lives;
    returns the committed records."""
    create(address, topic)
    settings: dict[str, Any] = {"bootstrap.servers": address, "transactional.id": topic, "log_level": 0}
    settings["transaction.timeout.ms"] = 900_000  # it stays open as long as the check takes
    producer = Producer(settings)
    producer.init_transactions(SECONDS)
    rows = spark_session.records(topic, 0, 0, 80)
    committed = []
    offset = 0
    for number in range(4):
        producer.begin_transaction()
        for row in rows[number * 20 :][:20]:
            more: Any = {} if row.headers is None else {"headers": list(row.headers)}
            producer.produce(topic, row.value, row.key, 0, timestamp=row.timestamp_ms, **more)
            if number in (0, 2):
                committed.append(row._replace(offset=offset))
            offset += 1
        if producer.flush(SECONDS):
            raise Failed("the records of a transaction could not be written")
        if number < 3:
            (producer.abort_transaction if number == 1 else producer.commit_transaction)(SECONDS)
            offset += 1  # the marker
    return committed, producer


def run_committed() -> str:
    """Reads with read_committed, which omits aborted and open transactions, and without it."""
    address = our_broker().address
    committed, producer = transacted(address, "transacted")
    try:
        options = {"subscribe": "transacted", "includeHeaders": "true"}
        only = options | {"kafka.isolation.level": "read_committed"}
        differ("read_committed", collected(frame(KAFKA, at_broker(address), only)), committed)
        everything = collected(frame(KAFKA, at_broker(address), options))
        if len(everything) != 80:
            raise Failed(f"read_uncommitted gives {len(everything)} of 80 records")
    finally:
        producer.abort_transaction(SECONDS)
    return f"{len(committed)} committed records of 80, with an aborted and an open transaction among them"


def writable(rows: list[Sent]) -> DataFrame:
    """Records as the connector writes them."""
    fields = "key binary, value binary, topic string, partition int, headers array<struct<key:string,value:binary>>"
    values = [
        (row.key, row.value, row.topic, row.partition, None if row.headers is None else list(row.headers))
        for row in rows
    ]
    return session().createDataFrame(values, fields)


def run_batch_writing() -> str:
    """Writes keys, values, headers and partitions with Spark; librdkafka reads them."""
    address = our_broker().address
    count = 0
    for codec in spark_session.CODECS:
        topic = f"written-{codec}"
        create(address, topic, partitions=PARTITIONS)
        rows = [row for one in range(PARTITIONS) for row in spark_session.records(topic, one, 0, 40)]
        made = writable(rows).coalesce(1).write.format(KAFKA).option("includeHeaders", "true")
        made.options(**at_broker(address), **{"kafka.compression.type": codec}).save()
        found = [row._replace(timestamp_ms=0) for row in consumed(address, topic, PARTITIONS)]
        differ(codec, found, [row._replace(timestamp_ms=0) for row in rows])
        count += len(rows)
    return f"{count} records in {', '.join(spark_session.CODECS)}, read by librdkafka"


# Streams


class Stream:
    """A stream whose batches are kept: number of the batch -> its rows. A batch that comes again after a restart takes
    the place of the first, as any sink that counts batches would do it."""

    def __init__(self, source: str, place: Mapping[str, str], options: Mapping[str, str], folder: Path) -> None:
        self.source, self.options, self.checkpoint = source, {**place, **options}, str(folder / "checkpoint")
        self.batches: dict[int, list[Sent]] = {}

    def run(self, *, enough: int | None = None) -> None:
        """Runs until everything is read; with `enough` it continues with new records and is stopped, anywhere, after so
        many batches."""

        def keep(rows: DataFrame, number: int) -> None:
            self.batches[number] = collected(rows)

        stream = session().readStream.format(self.source).options(**self.options).load().writeStream
        stream = stream.foreachBatch(keep).option("checkpointLocation", self.checkpoint)
        query = (stream.trigger(availableNow=True) if enough is None else stream).start()
        try:
            if enough is None:
                query.awaitTermination(SECONDS)
                if query.isActive:
                    raise Failed(f"the stream of {self.source} does not end; it has {len(self.batches)} batches")
            else:
                until = len(self.batches) + enough
                while query.isActive and len(self.batches) < until:
                    time.sleep(0.02)
        finally:
            query.stop()
        if (error := query.exception()) is not None:
            raise Failed(f"the stream of {self.source}: {str(error)[:1500]}")

    @property
    def rows(self) -> list[Sent]:
        """All rows; those of a repeated batch are repeated here."""
        found = [row for batch in self.batches.values() for row in batch]
        return sorted(found, key=lambda one: (one.topic, one.partition, one.offset))


def followed(source: str, running: RunningBroker, topic: str) -> Stream:
    """Reads a topic in a stream that is stopped twice, resumes from its checkpoint while more is written, and ends."""
    address = running.address
    create(address, topic, partitions=2)
    sent: list[Sent] = []

    def more(first: int, count: int, codec: str) -> None:
        part = [row for one in range(2) for row in spark_session.records(topic, one, first, count)]
        write(address, part, codec)
        await_checkpoint(running, topic)
        sent.extend(part)

    limits = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60", "includeHeaders": "true"}
    with tempfile.TemporaryDirectory(prefix="spark-") as name:
        stream = Stream(source, places(running)[source], limits, Path(name))
        more(0, 100, "lz4")
        stream.run(enough=2)
        more(100, 50, "none")
        stream.run(enough=1)
        more(150, 50, "zstd")
        stream.run()
    if too_large := [len(rows) for rows in stream.batches.values() if len(rows) > 60]:
        raise Failed(f"maxOffsetsPerTrigger=60 gave batches of {too_large}")
    differ(f"the stream of {source}", stream.rows, sorted(sent, key=lambda one: (one.partition, one.offset)))
    return stream


def run_streaming() -> str:
    stream = followed(KAFKA, our_broker(), "streamed")
    return f"{len(stream.rows)} records in {len(stream.batches)} batches, each once, over two restarts"


def run_stream_writing() -> str:
    """Copies from topic to topic, in two runs from one checkpoint."""
    address = our_broker().address
    create(address, "stream-in", "stream-out", partitions=2)
    sent: list[Sent] = []
    with tempfile.TemporaryDirectory(prefix="spark-") as checkpoint:
        for first in (0, 40):
            part = [row for one in range(2) for row in spark_session.records("stream-in", one, first, 40)]
            write(address, part)
            sent += [row._replace(topic="stream-out", timestamp_ms=0) for row in part]
            options = {"subscribe": "stream-in", "startingOffsets": "earliest", "includeHeaders": "true"}
            source = session().readStream.format(KAFKA).options(**at_broker(address), **options).load()
            rows = source.selectExpr("key", "value", "'stream-out' AS topic", "partition", "headers")
            sink = rows.writeStream.format(KAFKA).options(**at_broker(address), includeHeaders="true")
            query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
            query.awaitTermination(SECONDS)
            query.stop()
            if (error := query.exception()) is not None:
                raise Failed(str(error)[:1500])
    found = [row._replace(timestamp_ms=0) for row in consumed(address, "stream-out", 2)]
    differ("what the stream wrote", found, sorted(sent, key=lambda one: (one.partition, one.offset)))
    return f"{len(sent)} records from topic to topic, in two runs"


# Our sources beside it


def same(source: str, running: Any, name: str, options: Mapping[str, str], remote: Path | None = None) -> int:
    """Compares schema and rows of our source with the connector's; returns the number of rows. `remote` is the folder
    of a Kafka's remote segments. Raises Failed."""
    place = places(running, remote)
    theirs, ours = frame(KAFKA, place[KAFKA], options), frame(source, place[source], options)
    if ours.schema != theirs.schema:
        raise Failed(f"{name}: the schema is {ours.schema.simpleString()}, not {theirs.schema.simpleString()}")
    wanted = collected(theirs)
    differ(f"{name} of {source}", collected(ours), wanted)
    return len(wanted)


def places(running: Any, remote: Path | None = None) -> dict[str, dict[str, str]]:
    """Returns source -> the options by which it finds a broker of ours, or a Kafka."""
    wire, path = at_broker(running.address), ",".join(map(str, folders(running)))
    return {KAFKA: wire, OURS: wire, LOG: {"path": path if remote is None else f"tiered:{remote}!{path}"}}


def run_same(source: str) -> str:
    """Runs each query, also on old formats and committed records."""
    running, old = our_broker(), our_broker("2.8")
    mixed(running.address, TOPIC, PARTITIONS)
    await_checkpoint(running, TOPIC)
    count = 0
    for name, query in QUERIES.items():
        count += same(source, running, name, query.options)
    for magic, release in OLD_FORMATS.items():
        mixed(old.address, magic, 1, old=release)
        options = {"subscribe": magic, "includeHeaders": "true"}
        await_checkpoint(old, magic)
        count += same(source, old, magic, options)
    topic = f"transacted-{source}"
    _, producer = transacted(running.address, topic)
    try:
        await_checkpoint(running, topic)
        for level in ("read_committed", "read_uncommitted"):
            options = {"subscribe": topic, "includeHeaders": "true", "kafka.isolation.level": level}
            count += same(source, running, level, options)
    finally:
        producer.abort_transaction(SECONDS)
    return f"{count} rows and their schema, by {', '.join(QUERIES)}, {', '.join(OLD_FORMATS)}, read_committed"


def run_same_stream(source: str) -> str:
    """Runs the stream of the connector's check with our format."""
    stream = followed(source, our_broker(), f"streamed-{source}")
    return f"{len(stream.rows)} records in {len(stream.batches)} batches, each once, over two restarts"


def run_on_kafka(release: str) -> str:
    """Runs the same queries on a running Apache Kafka, over the wire and on its folder."""
    running = kafka(release)
    mixed(running.address, TOPIC, PARTITIONS)
    await_checkpoint(running, TOPIC)
    count = 0
    for name in ("subscribe", "offsets", "startingOffsetsByTimestamp"):
        for source in (OURS, LOG):
            count += same(source, running, name, QUERIES[name].options)
    topic = "transacted"
    _, producer = transacted(running.address, topic)
    try:
        await_checkpoint(running, topic)
        options = {"subscribe": topic, "includeHeaders": "true", "kafka.isolation.level": "read_committed"}
        for source in (OURS, LOG):
            count += same(source, running, "read_committed", options)
    finally:
        producer.abort_transaction(SECONDS)
    return f"{count} rows over the wire and from the files"


CHECKS = [
    Check("Spark's connector, batch read", run_batch_reading),
    Check("Spark's connector, batch write", run_batch_writing),
    Check("Spark's connector, read_committed", run_committed),
    Check("Spark's connector, formats v0 and v1", run_old_formats),
    Check("Spark's connector, streaming read", run_streaming),
    Check("Spark's connector, streaming write", run_stream_writing),
    *(
        check
        for source in (OURS, LOG)
        for check in (
            Check(f"Spark, {source} beside the connector", partial(run_same, source)),
            Check(f"Spark, {source} as a stream", partial(run_same_stream, source)),
        )
    ),
    *(
        Check(f"Spark, ottla and ottla_log on Kafka {version}", partial(run_on_kafka, release))
        for release, version in RELEASES.items()
    ),
]

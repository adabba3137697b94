"""Records on their way through Parquet: out of one running Apache Kafka, into another one, and into segments.

What is exported over the wire comes back with every key, value, time and header; a second export adds what is new, and
a second import nothing. What is imported to segments keeps its offsets, too; Kafka's tool looks at the files, and a
Kafka opens them.
"""

from __future__ import annotations

from pathlib import Path

import dumped
from apache_kafka import RELEASES, Kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from directories import folder, same, transplant, verified
from spark import transacted
from spark_rewritten import client, command, partitions, running

from ottla_testing.clients.line_clients import Row
from ottla_testing.interop import spark_session
from ottla_testing.interop.checks import Check, Failed
from ottla_testing.interop.spark_session import SECONDS, Sent, consumed, mixed, write
from ottla_testing.oracle.kafka_directories import Writer

SOURCE, TARGET = "3.9", "4.3"  # the two brokers
TOPICS = {"mixed": 3, "single": 1, "transacted": 1, "begins-later": 1}  # with their partitions
LATER = 70  # where the last one begins, in the middle of a batch
MORE = 40
# The records are from 2023, and topics that an import creates have the broker's retention.
SETTINGS = {"log.retention.ms": "-1", "transaction.state.log.num.partitions": "1"}


def begins_later(address: str) -> None:
    """Makes a topic whose first records are deleted."""
    mixed(address, "begins-later", 1)
    admin = AdminClient({"bootstrap.servers": address})
    place = TopicPartition("begins-later", 0, LATER)
    admin.delete_records([place])[place].result(SECONDS)


def exported(address: str, to: Path) -> dict[str, list[Sent]]:
    """Exports what a broker has, then what has come since, then nothing; what librdkafka reads of each topic."""
    words = ["--bootstrap", address, "--to", str(to), *(word for topic in TOPICS for word in ("--topic", topic))]
    mixed(address, "mixed", TOPICS["mixed"])
    mixed(address, "single", 1)
    begins_later(address)
    _, producer = transacted(address, "transacted")
    try:
        command("export", *words)
        for topic in ("mixed", "single"):
            first = 40 * len(spark_session.CODECS)
            rows = [one for number in range(TOPICS[topic]) for one in spark_session.records(topic, number, first, MORE)]
            write(address, rows, "lz4")
        command("export", *words)
        files = sorted(to.rglob("*.parquet"))
        command("export", *words)
        if sorted(to.rglob("*.parquet")) != files:
            raise Failed("an export that finds nothing new writes files")
        return {topic: consumed(address, topic, count) for topic, count in TOPICS.items()}
    finally:
        producer.abort_transaction(SECONDS)


def without_offsets(rows: list[Sent]) -> list[Sent]:
    return [row._replace(offset=0) for row in rows]


def over_the_wire(parquet: Path, wanted: dict[str, list[Sent]]) -> None:
    """Imports into a new Kafka, twice. Raises Failed."""
    kafka = Kafka(TARGET, None, 1, **SETTINGS)
    try:
        for _ in range(2):
            command("import", str(parquet), "--bootstrap", kafka.address, "--codec", "lz4")
            for topic, rows in wanted.items():
                found = consumed(kafka.address, topic, TOPICS[topic])
                same(f"{topic} imported to Kafka {RELEASES[TARGET]}", without_offsets(found), without_offsets(rows))
    finally:
        kafka.stop()


def to_segments(parquet: Path, place: Path, wanted: dict[str, list[Sent]]) -> None:
    """Imports into a new data directory, and puts its partitions into that of a Kafka. Raises Failed."""
    root = place / "imported"
    command("import", str(parquet), "--data-dir", str(root), "--codec", "zstd", "--segment-bytes", "65536")
    for release in dumped.TOOLS:
        dumped.check(release, partitions(root))
    verified(root, *wanted)
    release = RELEASES[TARGET]
    home = place / "kafka"
    home.mkdir()
    topics = [topic for topic, count in TOPICS.items() if count == 1]
    with client(release) as java:
        with running(release, home) as kafka:
            writer = Writer(kafka, java)
            for topic in topics:
                writer.topic(topic, retention_ms="-1")
        for topic in topics:
            transplant(root, kafka.logs, topic, keep_id=True)
        with running(release, home) as kafka:
            Writer(kafka, java).wait_until_ready()
            for topic in topics:
                same(f"{topic} in segments, from Kafka {release}", consumed(kafka.address, topic, 1), wanted[topic])
                last = wanted[topic][-1].offset
                if (first := java.produce(kafka.address, topic, [Row(b"key", b"more")])[0]) <= last:
                    raise Failed(f"{topic} continues at {first}, after {last}")


def run_moved() -> str:
    with folder() as place:
        parquet = place / "parquet"
        kafka = Kafka(SOURCE, None, 1, **SETTINGS)
        try:
            wanted = exported(kafka.address, parquet)
        finally:
            kafka.stop()
        over_the_wire(parquet, wanted)
        to_segments(parquet, place, wanted)
    count = sum(map(len, wanted.values()))
    return (
        f"{count} records of {len(wanted)} topics, from Kafka {RELEASES[SOURCE]} to {RELEASES[TARGET]} and to segments"
    )


CHECKS = [Check("Spark's export of a running Kafka, imported to another and to segments", run_moved)]

"""The same records by all readers: files, brokers, aiokafka's compiled decoder, a plain consumer, Kafka's own
clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.spark_api import EqualTo
from ottla_testing.oracle.stored_directories import DIRECTORIES, INTERNAL, RELEASES, stored
from ottla_testing.pipeline.read_samples import FORMATS, Row, by_aiokafka
from ottla_testing.pipeline.read_through import as_rows, rows

KINDS = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
READABLE_BY_AIOKAFKA = [topic for topic in FORMATS if topic != "v0-lz4"]


def log(path: Path | str, **options: str) -> list[Row]:
    return as_rows(rows("ottla_log", {"path": path, "includeHeaders": "true"} | options))


def wire(broker: Embedded, **options: str) -> list[Row]:
    return as_rows(rows("ottla", {"kafka.bootstrap.servers": broker.bootstrap, "includeHeaders": "true"} | options))


def consumed(broker: Embedded, topic: str, partition: int, **options: Any) -> list[Row]:
    """Returns the records that kafka-python reads."""
    consumer: Any = KafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False, **options)
    try:
        key = TopicPartition(topic, partition)
        consumer.assign([key])
        consumer.seek_to_beginning(key)
        end, found = consumer.end_offsets([key])[key], []
        while consumer.position(key) < end:
            found += [one for polled in consumer.poll(timeout_ms=1000).values() for one in polled]
        return [
            Row(
                topic,
                partition,
                one.offset,
                -1 if one.timestamp is None else one.timestamp,
                -1 if one.timestamp_type is None else one.timestamp_type,
                one.key,
                one.value,
                tuple(one.headers),
            )
            for one in found
        ]
    finally:
        consumer.close()


def test_files_match_aiokafka(directory: Path) -> None:
    for topic in (*READABLE_BY_AIOKAFKA, "transactions"):
        assert log(directory, subscribe=topic) == list(by_aiokafka(directory / f"{topic}-0")), topic
    plain = log(directory, subscribe="v0-none")
    assert [row[2:] for row in log(directory, subscribe="v0-lz4")] == [row[2:] for row in plain]
    events = [row for folder in sorted(directory.glob("events-*")) for row in by_aiokafka(folder)]
    assert log(directory, subscribe="events") == events and len(events) == 1200


def test_files_match_brokers_and_consumer(directory: Path, broker: Embedded) -> None:
    everything = log(directory)
    assert wire(broker) == everything
    assert {row.topic for row in everything} == {*FORMATS, "events", "transactions"}
    for topic in (*FORMATS, "transactions"):
        expected = [row for row in everything if row.topic == topic]
        assert consumed(broker, topic, 0) == expected, topic
    committed = log(directory, isolationLevel="read_committed", subscribe="transactions")
    assert committed == wire(broker, isolationLevel="read_committed", subscribe="transactions")
    assert committed == consumed(broker, "transactions", 0, isolation_level="read_committed")
    assert 0 < len(committed) < len(log(directory, subscribe="transactions"))


def written(release: str) -> dict[str, Any]:
    """Returns the records of Kafka's clients for the topics of a directory."""
    stored_logs = stored(release)
    folders = {topic: DIRECTORIES / release / f"{topic}-0" for topic in stored_logs}
    return {topic: stored_logs[topic] for topic, folder in folders.items() if topic not in INTERNAL and folder.is_dir()}


@pytest.mark.parametrize("release", RELEASES)
def test_kafka_directories_match_kafka_clients(release: str) -> None:
    stored_logs = written(release)
    found = log(DIRECTORIES / release)
    assert {row.topic for row in found} == {topic for topic, one in stored_logs.items() if one.records}
    for topic, one in stored_logs.items():
        mine = [row for row in found if row.topic == topic]
        assert [(row.offset, row.timestamp_type, row.timestamp_ms, *row[5:]) for row in mine] == [
            (offset, KINDS[kind], time, key, value, headers) for offset, kind, time, key, value, headers in one.records
        ], topic
        folder = DIRECTORIES / release / f"{topic}-0"
        if topic != "old-v0":  # its data has lz4
            assert [row for row in by_aiokafka(folder) if row.offset >= one.log_start_offset] == mine, topic
        committed = log(folder, isolationLevel="read_committed")
        assert [row.offset for row in committed] == one.committed, topic


@pytest.mark.parametrize("release", RELEASES)
def test_at_times_match_kafka(release: str) -> None:
    for topic, one in written(release).items():
        for time, offset, _ in one.times:
            options = {"path": DIRECTORIES / release, "subscribe": topic, "columns": "offset"}
            options |= {"startingTimestamp": str(time), "startingOffsetsByTimestampStrategy": "latest"}
            seen = [row["offset"] for row in rows("ottla_log", options)]
            expected = [record[0] for record in one.records if 0 <= offset <= record[0]]
            assert seen == expected, (topic, time)


def test_internal_topics_only_if_named() -> None:
    kafkas = DIRECTORIES / "3.9.1"
    assert not rows("ottla_log", {"path": kafkas}, [EqualTo(("topic",), "__transaction_state")])
    named = log(kafkas, subscribe="__transaction_state")
    assert named == list(by_aiokafka(kafkas / "__transaction_state-0"))
    assert named == log(kafkas / "__transaction_state-0") == log(kafkas, assign='{"__transaction_state": [0]}')

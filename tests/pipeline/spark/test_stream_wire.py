"""Streams over the wire: limits, crashes, groups, transactions, and lost data."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline import lag
from ottla_testing.patience import PATIENCE_S
from ottla_testing.pipeline.stream_queries import Query, each_once


def values(broker: Embedded, topic: str, first: int, count: int, partition: int) -> list[tuple[str, int, int, str]]:
    """Appends records whose values are their offsets."""
    for number in range(first, first + count):
        assert broker.send(topic, str(number), partition=partition) == number
    return [(topic, partition, number, str(number)) for number in range(first, first + count)]


def test_stream_restart_limit_and_group_commit(spark: SparkSession, tmp_path: Path) -> None:
    with Embedded() as broker:
        broker.create_topic("t1", partitions=2)
        written = values(broker, "t1", 0, 30, 0) + values(broker, "t1", 0, 10, 1)
        query = Query(spark, tmp_path / "q", "ottla", {"kafka.bootstrap.servers": broker.bootstrap})
        query.options |= {"subscribePattern": "t[0-9]", "startingOffsets": "earliest", "commitGroup": "seen"}
        progress = query.run(maxOffsetsPerTrigger="16")
        assert [one["numInputRows"] for one in progress] == query.batches() == [16, 16, 8]
        assert [lag(one).total for one in progress] == [24, 8, 0]
        assert {str(key): offsets for key, offsets in lag(progress[0]).items()} == {"t1-0": 18, "t1-1": 6}
        committed = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "seen"})
        seen = committed.committed([TopicPartition("t1", 0), TopicPartition("t1", 1)], 10)
        assert [one.offset for one in seen] == [30, 10]
        committed.close()

        # It died before its last batch was done; meanwhile there are more records, and a new topic.
        query.die()
        broker.create_topic("t2")
        written += values(broker, "t1", 30, 5, 0) + values(broker, "t2", 0, 3, 0)
        query.run()
        assert query.batches() == [16, 16, 8, 8]
        assert sorted(each_once(query.rows())) == sorted(written)


def test_read_committed_stream_survives_crash_in_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    with Embedded() as broker:
        broker.create_topic("t")
        plain = Producer({"bootstrap.servers": broker.bootstrap})
        first = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "first"})
        first.init_transactions(10)
        query = Query(spark, tmp_path / "q", "ottla", {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"})
        query.options |= {"isolationLevel": "read_committed"}
        broker.send("t", "before the query began")
        query.run()  # from the latest offsets, the default of streams
        assert query.rows() == []
        query.die()
        broker.send("t", "1")
        first.begin_transaction()
        first.produce("t", b"aborted")
        first.flush(PATIENCE_S)
        plain.produce("t", b"3")
        plain.flush(PATIENCE_S)
        query.run()
        assert [row[3] for row in query.rows()] == ["1"]
        first.abort_transaction(10)
        first.begin_transaction()
        first.produce("t", b"5")
        first.flush(PATIENCE_S)
        first.commit_transaction(10)
        query.die()
        query.run()
        assert [(row[2], row[3]) for row in each_once(query.rows())] == [(1, "1"), (3, "3"), (5, "5")]


def test_lost_records_fail_query_unless_data_loss_allowed(spark: SparkSession, tmp_path: Path) -> None:
    with Embedded() as broker:
        broker.create_topic("t", partitions=2)
        written = values(broker, "t", 0, 4, 0) + values(broker, "t", 0, 8, 1)
        query = Query(spark, tmp_path / "q", "ottla", {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t"})
        query.options |= {"startingOffsets": '{"t": {"0": -2, "1": 6}}'}
        query.run()
        assert sorted(query.rows()) == sorted([*written[:4], *written[-2:]])
        written += values(broker, "t", 4, 6, 0)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.delete_records([TopicPartition("t", 0, 7)]).values():
            future.result(PATIENCE_S)
        with pytest.raises(StreamingQueryException, match=r"t-0 begins at offset 7, after 4.*failOnDataLoss=false"):
            query.run()
        assert len(query.batches()) == 1
        query.run(failOnDataLoss="false")
        assert [row[2] for row in query.rows()[-3:]] == [7, 8, 9]

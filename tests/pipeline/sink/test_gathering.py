"""Staged rows written by the driver, and rows sent by tasks: read back with an independent client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.sink import SinkError, SinkFenced, SinkOptions, SinkTransaction, gathered_writes
from ottla.pipeline.sink.gathered_writes import needed, send_rows, write_staged
from ottla.pipeline.sink.staged_rows import stage
from ottla.protocol.murmur2 import java_partition

Record = tuple[int, int, bytes | None, bytes | None]
"""partition, timestamp, key, value"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded() as broker:
        yield broker


def options(broker: Embedded, **more: str) -> SinkOptions:
    return SinkOptions.read({"kafka.bootstrap.servers": broker.bootstrap, **more})


def committed(broker: Embedded, topic: str, partitions: int) -> list[Record]:
    """Returns all committed records, in order of partition and offset."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "-", "isolation.level": "read_committed"})
    found: list[Record] = []
    for partition in range(partitions):
        where = TopicPartition(topic, partition, 0)
        end = consumer.get_watermark_offsets(where, 10)[1]
        consumer.assign([where])
        while consumer.position([where])[0].offset < end:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found.append((partition, message.timestamp()[1], message.key(), message.value()))
            if not end:
                break
    consumer.close()
    return found


def rows(*values: tuple[Any, ...], **more: list[Any]) -> pa.RecordBatch:
    """Returns rows of (key, value, timestamp), and more columns."""
    columns = {
        "key": pa.array([value[0] for value in values], pa.string()),
        "value": pa.array([value[1] for value in values], pa.binary()),
        "timestamp": pa.array([value[2] for value in values], pa.timestamp("us", tz="UTC")),
    }
    return pa.RecordBatch.from_pydict(columns | more)


def test_write_staged_one_ordered_transaction_once(broker: Embedded) -> None:
    broker.create_topic("one", partitions=3)
    given = options(broker, topic="one", orderBy="rank")
    keys = [f"k{number % 7}" for number in range(60)]
    first = rows(*((keys[n], b"%d" % n, n * 1000) for n in range(0, 60, 2)), rank=[-n for n in range(0, 60, 2)])
    second = rows(*((keys[n], b"%d" % n, n * 1000) for n in range(1, 60, 2)), rank=[-n for n in range(1, 60, 2)])
    staged = [stage([first], None), stage([], None), stage([second], None)]
    report = write_staged(given, "one-id", 3, staged)
    assert (report.written, report.records, report.transactional_id) == (True, 60, "one-id")
    expected = [(java_partition(keys[n].encode(), 3), n, keys[n].encode(), b"%d" % n) for n in range(59, -1, -1)]
    expected.sort(key=lambda record: record[0])
    assert committed(broker, "one", 3) == expected
    assert [one.partition for one in report.partitions] == sorted({record[0] for record in expected})

    for batch_id in (3, 2):
        again = write_staged(given, "one-id", batch_id, staged)
        assert (again.written, again.records) == (False, 0)
        assert again.to_text().endswith("committed before, nothing is written")
    assert write_staged(given, "one-id", 4, [stage([first[:1]], None)]).records == 1
    assert len(committed(broker, "one", 3)) == 61
    # An empty micro-batch is committed as well.
    assert write_staged(given, "one-id", 5, [stage([], None)]).written
    assert not write_staged(given, "one-id", 5, staged).written


def test_write_staged_invalid_rows_leave_nothing(broker: Embedded) -> None:
    broker.create_topic("two", partitions=2)
    wrong = [
        (rows(("k", b"v", 0), topic=[None]), "a row has no topic"),
        (rows(("k", b"v", 0), topic=["nowhere"]), "topic 'nowhere' does not exist"),
        (rows(("k", b"v", 0), topic=["two"], partition=pa.array([2], pa.int32())), "partition 2 of topic 'two'"),
    ]
    good = rows(("k", b"v", 0), topic=["two"], partition=pa.array([1], pa.int32()))
    for batch, sentence in wrong:
        with pytest.raises(SinkError, match=sentence):
            write_staged(
                options(broker), "two-id", 0, [stage([good.select(batch.schema.names)], None), stage([batch], None)]
            )
    assert committed(broker, "two", 2) == []
    assert write_staged(options(broker), "two-id", 0, [stage([good], None)]).records == 1
    assert committed(broker, "two", 2) == [(1, 0, b"k", b"v")]


def test_write_staged_fenced_writes_nothing(broker: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("three")
    send = gathered_writes.TaskSender.send

    def overtaken(*arguments: Any) -> Any:
        sent = send(*arguments)
        with SinkTransaction(given, "three-id") as other:
            other.begin()
        return sent

    given = options(broker, topic="three")
    monkeypatch.setattr(gathered_writes.TaskSender, "send", overtaken)
    with pytest.raises(SinkFenced, match="another query with transactional id 'three-id' took over"):
        write_staged(given, "three-id", 0, [stage([rows(("k", b"lost", 0))], None)])
    monkeypatch.undo()
    write_staged(given, "three-id", 0, [stage([rows(("k", b"kept", 0))], None)])
    assert [record[3] for record in committed(broker, "three", 1)] == [b"kept"]


def test_send_rows_in_chunks(broker: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_writes, "CHUNK_BYTES", 1_000)
    broker.create_topic("four", partitions=2)
    broker.create_topic("five")
    batches = [
        rows(
            *((None, b"%d" % n, n * 1000) for n in range(first, first + 10)),
            topic=["five" if n % 3 == 0 else "four" for n in range(first, first + 10)],
            partition=pa.array([0 if n % 3 == 0 else n % 2 for n in range(first, first + 10)], pa.int32()),
        )
        for first in range(90, -1, -10)
    ]
    assert send_rows(options(broker), iter([batches[0][:0], *batches])) == 100
    in_order = [int(value) for batch in batches for value in batch.column("value").to_pylist()]
    assert [int(record[3] or b"") for record in committed(broker, "five", 1)] == [n for n in in_order if n % 3 == 0]
    found = committed(broker, "four", 2)
    for partition in (0, 1):
        expected = [(partition, n, None, b"%d" % n) for n in in_order if n % 3 and n % 2 == partition]
        assert [record for record in found if record[0] == partition] == expected
    assert send_rows(options(broker), iter([])) == 0


def test_write_staged_id_of_another_query_refused(broker: Embedded) -> None:
    broker.create_topic("six")
    given, staged = options(broker, topic="six"), [stage([rows(("k", b"v", 0))], None)]
    assert write_staged(given, "six-id", 0, staged, query="first").written
    for batch_id in (0, 1):
        with pytest.raises(SinkError, match=r"'six-id' belongs to query first, .* query second .* needs its own"):
            write_staged(given, "six-id", batch_id, staged, query="second")
    assert not write_staged(given, "six-id", 0, staged, query="first").written
    assert write_staged(given, "six-id", 1, staged).written
    assert write_staged(given, "six-id", 2, staged, query="second").written
    assert len(committed(broker, "six", 1)) == 3


def test_needed_columns(broker: Embedded) -> None:
    given = options(broker, orderBy="rank,value")
    assert needed(["id", "value", "rank", "topic"], given) == ["value", "rank", "topic"]
    with pytest.raises(SinkError, match="orderBy names rank, which is not a column; use value, topic"):
        needed(["value", "topic"], given)

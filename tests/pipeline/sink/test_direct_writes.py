"""Rows sent by tasks without a transaction: read back with an independent client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.sink import task_writer
from ottla.pipeline.sink.errors import SinkError
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.rows import SENT
from ottla.pipeline.sink.task_writer import send_rows

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


def rows(*values: tuple[Any, ...], **more: Any) -> pa.RecordBatch:
    """Returns rows of (key, value, timestamp), and more columns."""
    columns = {
        "key": pa.array([value[0] for value in values], pa.string()),
        "value": pa.array([value[1] for value in values], pa.binary()),
        "timestamp": pa.array([value[2] for value in values], pa.timestamp("us", tz="UTC")),
    }
    return pa.RecordBatch.from_pydict(columns | more)


def test_send_rows_in_chunks(broker: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writer, "CHUNK_BYTES", 1_000)
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


def test_invalid_rows_refused(broker: Embedded) -> None:
    broker.create_topic("two", partitions=2)
    for batch, sentence in [
        (rows(("k", b"v", 0), topic=[None]), "a row has no topic"),
        (rows(("k", b"v", 0), topic=["nowhere"]), "topic 'nowhere' does not exist"),
        (rows(("k", b"v", 0), topic=["two"], partition=pa.array([2], pa.int32())), "partition 2 of topic 'two'"),
    ]:
        with pytest.raises(SinkError, match=sentence):
            send_rows(options(broker), [batch])
    assert committed(broker, "two", 2) == []


@pytest.mark.parametrize("headers", [[{"key": None, "value": b"x"}], [None]])
def test_headers_without_key_refused(broker: Embedded, headers: list[Any]) -> None:
    topic = broker.create_topic(f"headers-{len(broker.topics())}")
    given = pa.array([headers, []], SENT.field("headers").type)
    with pytest.raises(SinkError, match="a header's key is null"):
        send_rows(options(broker, topic=topic), [rows(("k", b"v", 0), ("k", b"w", 0), headers=given)])
    assert committed(broker, topic, 1) == []

"""Has Apache Kafka write a data directory with all contents that a log may have, and records what its clients read.

Used by `make_directories.py`, which keeps small ones in `golden/directories`, and by `make interop`, which makes new
ones. Needs a running broker of `kafka_process.py`, with a fast log cleaner and retention.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client import Admin
from ottla.protocol.records import formats
from ottla_testing.clients.line_clients import Librdkafka, LineClient, Row
from ottla_testing.oracle.kafka_process import Kafka, Kraft, fetch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_700_000_000_000
# Settings for the start of the broker.
QUICK = {"log_cleaner_backoff_ms": "200", "log_retention_check_interval_ms": "500"}
# A killed broker leaves indexes with zeros up to segment.index.bytes.
CONFIGS = {"index.interval.bytes": "200", "segment.index.bytes": "1200", "file.delete.delay.ms": "100"}
OLD_FORMATS = {"old-v0": "0.9.0", "old-v1": "0.10.2"}
SENTENCE = b"the segments of a log are named after the first offset that may be in them. "
PATIENCE_SECONDS = 90  # Kafka 2.8 runs its first retention check after 30 seconds


def rows(number: int, *, headers: bool = True, now_ms: int | None = None) -> list[Row]:
    """Returns four records with every kind of key and value, others for each `number`; two numbers are a segment
    apart."""
    made = [
        (None, b"first of %d" % number),
        (b"", b""),
        (b"key-%d" % number, None),
        (b"\x00\xff\x80", SENTENCE * (1 + number % 2)),
    ]
    first = BASE_MS + 1000 * number if now_ms is None else now_ms
    given = (("h", b"1"), ("empty", b""), ("null", None), ("h", b"2")) if headers else ()
    # Out of order, so that the largest timestamp of a batch is not the last one.
    return [Row(key, value, first + (0, 5, 9, 2)[i], given if i != 1 else ()) for i, (key, value) in enumerate(made)]


class Writer:
    """The clients of one broker, and the topics they wrote: name -> configs."""

    def __init__(self, kafka: Kafka | Kraft, java: LineClient) -> None:
        self.kafka = kafka
        self.java = java
        self.librdkafka = Librdkafka()
        self.configs: dict[str, dict[str, str]] = {}
        self.open: list[Producer] = []

    @property
    def address(self) -> str:
        return self.kafka.address

    def topic(self, name: str, **configs: str) -> str:
        """Makes a topic of one partition; config names with _ for the dots."""
        named = {**CONFIGS, **{key.replace("_", "."): value for key, value in configs.items()}}
        self.configs[name] = named
        self.wait_until_ready()
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(name, 1, 1, config=named)])[name].result(60)
        return name

    def wait_until_ready(self) -> None:
        """Waits until the broker is ready: it listens before it is registered, and requests before that may wait for
        long."""

        def known() -> bool:
            try:
                cluster = AdminClient({"bootstrap.servers": self.address, "log_level": 0}).list_topics(timeout=5)
            except KafkaException:
                return False
            return 1 in cluster.brokers and cluster.controller_id == 1

        wait_for(known, f"Kafka {self.kafka.release}")

    def folder(self, topic: str) -> Path:
        return self.kafka.logs / f"{topic}-0"

    def transactional(self, name: str) -> Producer:
        """Returns a transactional producer that is kept until the broker is gone. Its open transactions stay open for a
        quarter of an hour, also in a broker that takes over the directory."""
        settings = {"transaction.timeout.ms": 900_000, "linger.ms": 5}
        made = Producer({"bootstrap.servers": self.address, "transactional.id": name, **settings})
        made.init_transactions(60)
        self.open.append(made)
        return made


def send(producer: Producer, topic: str, sent: Sequence[Row]) -> None:
    """Sends records, in one batch if possible."""
    for row in sent:
        producer.produce(topic, row.value, row.key, 0, timestamp=row.timestamp)
    producer.flush(30)


# -- the topics


def codecs(writer: Writer) -> None:
    """Writes every codec by two clients, idempotent batches, headers; a new segment every few batches."""
    topic = writer.topic("codecs", segment_ms="2500")
    for number, codec in enumerate(CODECS):
        writer.java.produce(writer.address, topic, rows(2 * number), codec, **{"enable.idempotence": "true"})
        sent = rows(2 * number + 1)
        writer.librdkafka.produce(writer.address, topic, sent, codec, **{"enable.idempotence": "true"})


def old_formats(writer: Writer) -> None:
    """Writes messages of v0 and v1, as wrappers and plain; and all three formats in one log."""
    plain = {"enable.idempotence": "false"}  # idempotent batches are refused in topics with v0 or v1
    for name, version in OLD_FORMATS.items():
        topic = writer.topic(name, message_format_version=version, segment_ms="2500", segment_bytes="700")
        for number, codec in enumerate(CODECS[:4]):
            writer.java.produce(writer.address, topic, rows(number, headers=False), codec, **plain)
            writer.librdkafka.produce(writer.address, topic, rows(number + 4, headers=False), codec, **plain)


def append_time(writer: Writer) -> None:
    topic = writer.topic("append-time", message_timestamp_type="LogAppendTime", segment_bytes="1048576")
    for number, codec in enumerate(("none", "gzip", "lz4")):
        writer.java.produce(writer.address, topic, rows(number), codec)


def numbered(writer: Writer) -> None:
    """Writes with three idempotent producers, alternating, over several segments."""
    topic = writer.topic("numbered", segment_ms="2500")
    settings = {"bootstrap.servers": writer.address, "enable.idempotence": True, "linger.ms": 5}
    producers = [Producer(settings) for _ in range(3)]
    for number in range(6):
        for index, producer in enumerate(producers):
            send(producer, topic, rows(number)[: 1 + (number + index) % 3])


def transactions(writer: Writer) -> None:
    """Writes two producers' overlapping transactions, across segments: commits, aborts, and one that is left open."""
    topic = writer.topic("transactions", segment_ms="2500")
    one, two = writer.transactional("one"), writer.transactional("two")
    for number in range(0, 8, 4):
        one.begin_transaction()
        two.begin_transaction()
        send(one, topic, rows(number))
        send(two, topic, rows(number + 1)[:2])
        writer.java.produce(writer.address, topic, rows(number + 2)[:2], "gzip")
        one.abort_transaction(30)
        send(two, topic, rows(number + 3)[2:])
        two.commit_transaction(30)
    one.begin_transaction()
    send(one, topic, rows(8)[:1])
    one.commit_transaction(30)
    topic = writer.topic("open-transaction")
    three = writer.transactional("three")
    writer.java.produce(writer.address, topic, rows(0), "none")
    three.begin_transaction()
    send(three, topic, rows(1))
    writer.java.produce(writer.address, topic, rows(2), "none")


def keyed(keys: str, word: bytes, now_ms: int) -> list[Row]:
    """Writes a record for each letter; a capital letter deletes the key of its small letter."""
    return [Row(k.lower().encode(), None if k.isupper() else word + k.encode() * 3, now_ms) for k in keys]


COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.001",
    "segment_ms": "100",
    "delete_retention_ms": "86400000000",
}


def compacted(writer: Writer) -> None:
    """Writes repeated keys, deleted ones, and producers of which only the last sequence is left."""
    for codec in ("none", "zstd"):
        topic = writer.topic(f"compacted-{codec}", **COMPACTED)
        for number, keys in enumerate(("abcde", "bdfgh", "aBhij", "Gabcdefhij", "z")):
            sent = keyed(keys, b"%d " % number, int(time.time() * 1000))
            writer.java.produce(writer.address, topic, sent, codec, **{"enable.idempotence": "true"})
            time.sleep(0.2)
        wait_until_cleaned(writer.folder(topic))


def compacted_transactions(writer: Writer) -> None:
    """Writes aborted records and markers in a compacted log."""
    topic = writer.topic("compacted-transactions", **COMPACTED)
    producer = writer.transactional("cleaned")
    ends: list[Callable[[float], None]] = [producer.commit_transaction, producer.abort_transaction] * 2
    for number, keys in enumerate(("abcde", "bdfgh", "abhij", "jkl")):
        producer.begin_transaction()
        send(producer, topic, keyed(keys, b"%d " % number, int(time.time() * 1000)))
        ends[number](30)
        time.sleep(0.2)
    writer.java.produce(writer.address, topic, keyed("z", b"last", int(time.time() * 1000)), "none")
    wait_until_cleaned(writer.folder(topic))


def wait_until_cleaned(folder: Path) -> None:
    """Waits until the cleaner has merged the older segments, and has been idle for a while."""
    seen: list[int] = []
    for _ in range(PATIENCE_SECONDS * 5):
        time.sleep(0.2)
        logs = sorted(folder.glob("*.log"))
        seen.append(sum(path.stat().st_size for path in logs if path.exists()))
        if len(seen) > 20 and len(set(seen[-15:])) == 1 and len(logs) <= 3:
            return
    raise RuntimeError(f"{folder.name} was not cleaned: {sorted(path.name for path in folder.iterdir())}")


def deleted(writer: Writer) -> None:
    """Deletes records up to the middle of a batch, and the segments below."""
    topic = writer.topic("deleted", segment_ms="2500")
    for number in range(8):
        writer.java.produce(writer.address, topic, rows(number), "none", **{"enable.idempotence": "true"})
    admin = AdminClient({"bootstrap.servers": writer.address})
    place = TopicPartition(topic, 0, 18)
    admin.delete_records([place])[place].result(30)
    wait_for(lambda: not list(writer.folder(topic).glob("0" * 20 + ".*")), topic)


def wait_for(done: Callable[[], bool], what: str) -> None:
    for _ in range(PATIENCE_SECONDS * 5):
        if done():
            return
        time.sleep(0.2)
    raise RuntimeError(f"{what}: what was waited for did not come")


def killed(writer: Writer) -> None:
    """Writes the topic of a broker that will be killed."""
    topic = writer.topic("killed", segment_ms="2500")
    for number, codec in enumerate(CODECS):
        writer.java.produce(writer.address, topic, rows(2 * number), codec, **{"enable.idempotence": "true"})
        writer.java.produce(writer.address, topic, rows(2 * number + 1), codec, **{"enable.idempotence": "true"})


TOPICS = (codecs, append_time, numbered, transactions, compacted, compacted_transactions, deleted)


# -- the contents


def count_records(address: str, topic: str, start: int, isolation: str) -> int:
    """Returns the number of records that a consumer gets from an offset on, by librdkafka, which reports the end."""
    config = {"group.id": "nobody", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**config, "bootstrap.servers": address, "isolation.level": isolation})
    consumer.assign([TopicPartition(topic, 0, start)])
    count = 0
    try:
        while True:
            message = consumer.poll(30)
            if message is None:
                raise RuntimeError(f"{topic} is not read to its end")
            if (error := message.error()) is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return count
            else:
                raise RuntimeError(f"{topic}: {error}")
    finally:
        consumer.close()


async def offsets_by_time(address: str, topic: str, times: Sequence[int]) -> list[list[int]]:
    """Returns [time, offset, timestamp] for each time, as the broker finds it; -2 is for the first offset, -1 for the
    end."""
    async with Admin(address) as admin:
        found = []
        for time_ms in times:
            listed: Any = (await admin.list_offsets({(topic, 0): time_ms}))[(topic, 0)]
            found.append([time_ms, *listed[:2]])
        return found


def committed_fetches(port: int, topic: str, start: int) -> tuple[int, list[list[Any]]]:
    """Returns the last stable offset, and the results of `read_committed` fetches, one after another: [offset, offset
    after the records, [[producer, first offset of an aborted transaction]...]]."""
    fetches: list[list[Any]] = []
    while True:
        found = fetch(port, 4, topic, start, 1 << 20, committed=True)
        headers = [header for _, header in formats.headers(bytes(found.records or b""))]
        if not headers:
            return found.last_stable_offset, fetches
        aborted = [[one.producer_id, one.first_offset] for one in found.aborted_transactions or []]
        fetches.append([start, headers[-1].next_offset, aborted])
        start = headers[-1].next_offset


def packed(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def topic_facts(writer: Writer, topic: str) -> dict[str, Any]:
    """Returns everything that the broker's own clients read from a topic, as JSON."""
    address = writer.address
    start, end = (found[1] for found in asyncio.run(offsets_by_time(address, topic, [-2, -1])))
    count = count_records(address, topic, start, "read_uncommitted")
    records = writer.java.consume(address, topic, start, count, 60)
    committed = count_records(address, topic, start, "read_committed")
    stable = writer.java.consume(address, topic, start, committed, 60, **{"isolation.level": "read_committed"})
    times = sorted({record.timestamp + add for record in records if record.timestamp >= 0 for add in (0, 1)})
    stable_offset, fetches = committed_fetches(writer.kafka.port, topic, start)
    return {
        "configs": writer.configs[topic],
        "log_start_offset": start,
        "high_watermark": end,
        "last_stable_offset": stable_offset,
        "answers": fetches,
        "times": asyncio.run(offsets_by_time(address, topic, times[:: max(1, len(times) // 12)])),
        "records": [
            [r.offset, r.kind, r.timestamp, packed(r.key), packed(r.value), [[n, packed(v)] for n, v in r.headers]]
            for r in records
        ],
        "committed": [record.offset for record in stable],
    }


def write(kafka: Kafka | Kraft, java: LineClient, topics: Sequence[Callable[[Writer], None]]) -> dict[str, Any]:
    """Writes topics and returns the facts of all of them, by name. The broker must be stopped then."""
    writer = Writer(kafka, java)
    for make in topics:
        make(writer)
        print(f"Kafka {kafka.release}: {make.__name__}", flush=True)
    return {topic: topic_facts(writer, topic) for topic in writer.configs}

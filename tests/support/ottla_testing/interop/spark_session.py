"""Spark with its own Kafka connector, and the topics that the checks of spark.py read.

One Spark session, and one broker for each profile, are made at the first use and end with the process.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Failed, Missing, jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR = "4.2.0"  # the newest; it works within Spark 4.3, too
# It needs nothing else that Spark does not bring along. Not every repository has all of its token providers, which
# only work with security on, so an earlier one will do.
TOKENS = (CONNECTOR, "4.1.0-preview1")
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR}",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_700_000_000_000
STEP_MS = 10
SECONDS = 60


class Sent(NamedTuple):
    """A record as a query must return it: in the order of the columns of Spark's Kafka source, time in milliseconds."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int = 0
    headers: tuple[tuple[str, bytes | None], ...] | None = None


def connector() -> list[Path]:
    """Returns the jars of Spark's connector. Raises Missing."""
    missing = None
    for tokens in TOKENS:
        provider = f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{tokens}"
        try:
            folder = jars(f"spark-kafka-{CONNECTOR}-{tokens}", [*ARTIFACTS, provider], alone=True)
        except Missing as error:
            missing = missing or error
        else:
            return sorted(path for path in folder.glob("*.jar") if not path.name.startswith("slf4j"))
    assert missing is not None
    raise missing


@cache
def session() -> SparkSession:
    """Returns the session of all checks, with the connector in it. Raises Missing."""
    try:
        from ottla.pipeline import session as ours
    except ImportError as error:
        raise Missing(f"no PySpark here: {error}") from None
    made = ours(
        "local[2]",
        **{
            "spark.jars": ",".join(map(str, connector())),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.log.level": "ERROR",
        },
    )
    atexit.register(made.stop)
    return made


@cache
def broker(profile: str, **overrides: str) -> RunningBroker:
    """Returns a broker of ours, for all checks that want this one."""
    folder = Path(tempfile.mkdtemp(prefix="spark-"))
    made = RunningBroker(folder, None if profile == "ottla" else profile, **overrides)

    def close() -> None:
        made.close()
        shutil.rmtree(folder)

    atexit.register(close)
    return made


def await_checkpoint(folders: Sequence[Path], topic: str, ends: Mapping[int, int]) -> None:
    """Waits until the checkpointed high watermarks reach these ends: while a broker uses a directory, its files are
    read only up to them. Raises Failed."""
    wanted = {f"{topic} {partition} {end}" for partition, end in ends.items()}
    deadline = time.monotonic() + SECONDS
    while True:
        paths = [folder / "replication-offset-checkpoint" for folder in folders]
        missing = wanted - {line for path in paths if path.exists() for line in path.read_text().splitlines()}
        if not missing:
            return
        if time.monotonic() > deadline:
            raise Failed(f"after {SECONDS} s these high watermarks are not written down: {sorted(missing)}")
        time.sleep(0.05)


def create(address: str, *topics: str, partitions: int = 1, **configs: str) -> None:
    """Creates topics that keep their records whatever their timestamps; `configs` with _ for the dots."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    settings = {"retention.ms": "-1", **{name.replace("_", "."): value for name, value in configs.items()}}
    for future in admin.create_topics([NewTopic(one, partitions, 1, config=settings) for one in topics]).values():
        future.result(SECONDS)


def records(topic: str, partition: int, first: int, count: int, *, headers: bool = True) -> list[Sent]:
    """Records with all kinds of keys, values and headers; their times grow with their offsets."""
    text = b"the leader of a partition has its log, and all others follow it; "
    made = []
    for at in range(first, first + count):
        key = (None, b"", b"key %d" % at, b"\x00\xff")[at % 4]
        value = (b"%d of %d" % (at, partition), text * (at % 30 + 1), None if key is not None else b"-", b"")[
            at // 4 % 4
        ]
        pairs = (("n", b"%d" % at), ("n", None), ("empty", b"")) if headers and at % 2 else None
        made.append(Sent(key, value, topic, partition, at, BASE_MS + at * STEP_MS, 0, pairs))
    return made


def write(address: str, rows: Sequence[Sent], codec: str = "none") -> None:
    """Sends records as they are, in their order."""
    failed: list[str] = []
    settings = {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 5, "log_level": 0}
    producer = Producer(
        {**settings, "delivery.report.only.error": True, "on_delivery": lambda error, _: failed.append(str(error))}
    )
    for row in rows:
        more: dict[str, Any] = {} if row.headers is None else {"headers": list(row.headers)}
        producer.produce(row.topic, row.value, row.key, row.partition, timestamp=row.timestamp_ms, **more)
    if producer.flush(SECONDS) or failed:
        raise Failed(f"records for {rows[0].topic} could not be written: {failed[:1]}")


@cache
def mixed(address: str, topic: str, partitions: int, old: str | None = None) -> list[Sent]:
    """Makes a topic with forty records of each codec in each partition, and returns them sorted by partition and
    offset; `old` is its message.format.version, with which it has neither headers nor zstd."""
    create(address, topic, partitions=partitions, **({"message_format_version": old} if old else {}))
    sent = []
    for number, codec in enumerate(CODECS[:-1] if old else CODECS):
        part = [
            one
            for partition in range(partitions)
            for one in records(topic, partition, number * 40, 40, headers=old is None)
        ]
        write(address, part, codec)
        sent += part
    return sorted(sent, key=lambda one: (one.partition, one.offset))


def consumed(address: str, topic: str, partitions: int) -> list[Sent]:
    """Reads a topic with librdkafka, and returns its records sorted by partition and offset."""
    settings = {"bootstrap.servers": address, "group.id": "reader", "log_level": 0, "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    found: list[Sent] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        ended = 0
        while ended < partitions:
            message = consumer.poll(SECONDS)
            if message is None:
                raise Failed(f"{topic} has no end")
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise Failed(str(error))
                ended += 1
                continue
            pairs: Any = message.headers()
            kind, time_ms = message.timestamp()
            found.append(
                Sent(
                    message.key(),
                    message.value(),
                    topic,
                    message.partition() or 0,
                    message.offset() or 0,
                    time_ms,
                    kind - 1,  # librdkafka counts from 1, Kafka from 0
                    tuple(pairs) if pairs else None,
                )
            )
    finally:
        consumer.close()
    return sorted(found, key=lambda one: (one.partition, one.offset))


def collected(frame: DataFrame) -> list[Sent]:
    """Returns the rows of a Kafka source, sorted by topic, partition and offset; headers where there are any in its
    columns."""
    columns = ["key", "value", "topic", "partition", "offset", "unix_millis(timestamp)", "timestampType"]
    columns += ["headers"] if "headers" in frame.columns else []
    found = []
    for row in frame.selectExpr(*columns).collect():
        values: list[Any] = [bytes(one) if isinstance(one, bytearray) else one for one in row]
        if len(values) == 8 and values[7] is not None:
            values[7] = tuple((key, None if value is None else bytes(value)) for key, value in values[7])
        found.append(Sent(*values))
    return sorted(found, key=lambda one: (one.topic, one.partition, one.offset))

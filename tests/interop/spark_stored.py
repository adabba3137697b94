"""Logs that Apache Kafka has compacted, or whose older segments are in remote storage (KIP-405): our sources beside
Spark's connector, over the wire and from the files.

Java and librdkafka write the records, in all codecs, also in transactions, each third of which aborts.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apache_kafka import RELEASES, Kafka, java
from confluent_kafka import Producer
from spark import LOG, OURS, at, await_checkpoint, same

from ottla_testing.clients.exchange import rows
from ottla_testing.interop.checks import Check, Failed, jars
from ottla_testing.interop.spark_session import CODECS, SECONDS, create, records, write

RELEASE = "4.4"
TIERED_RELEASE = "4.3"  # the newest one whose remote storage for tests is published; 4.4 does not load an older one
TOPIC = "stored"
SMALL: dict[str, Any] = {"internal_segment_bytes": "16384", "file_delete_delay_ms": "100"}
COMPACTED: dict[str, Any] = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.001"}
CLEANER: dict[str, Any] = {"log.cleaner.backoff.ms": "200"}
TIERED: dict[str, Any] = {"remote_storage_enable": "true", "local_retention_bytes": "20000"}
KEYS = 7
ROUNDS = 3
CHECKPOINT = "cleaner-offset-checkpoint"


def remote_storage(folder: Path) -> dict[str, Any]:
    """Returns configs of a broker whose remote segments are in a folder. Raises Missing."""
    version = RELEASES[TIERED_RELEASE]
    classes = jars(f"kafka-storage-test-{version}", [f"org.apache.kafka:kafka-storage:{version}:test"], alone=True)
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(classes / f"kafka-storage-{version}-test.jar"),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": str(folder),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
    }


def write_all(address: str) -> None:
    """Writes records with keys. Raises Failed."""
    for number, codec in enumerate(ROUNDS * CODECS):
        of_java = [row for row in rows(number, headers=True) if row.key is not None]
        java(RELEASE).produce(address, TOPIC, of_java, codec)
        write(address, [row for row in records(TOPIC, 0, 40 * number, 40) if row.key is not None], codec)
        transactions(address, codec)


def transactions(address: str, codec: str) -> None:
    settings = {"bootstrap.servers": address, "transactional.id": codec, "compression.type": codec, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(SECONDS)
    for number in range(9):
        producer.begin_transaction()
        for index in range(12):
            producer.produce(TOPIC, f"transaction {number} {index}" * 5, f"key {index % KEYS}", 0)
        if producer.flush(SECONDS):
            raise Failed("the records of a transaction could not be written")
        (producer.commit_transaction if number % 3 else producer.abort_transaction)(SECONDS)


def await_that(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not done():
        if time.monotonic() > end:
            raise Failed(f"after {SECONDS} s: {what}")
        time.sleep(0.2)


def bases(folder: Path) -> list[int]:
    """Returns the first offsets of a partition's segments."""
    return sorted(int(path.stem) for path in folder.glob("*.log"))


def run_compacted() -> str:
    """Reads what remains when Kafka has nothing more to clean: all but the active segment."""
    with stopping(Kafka(RELEASE, **CLEANER)) as running:
        create(running.address, TOPIC, **COMPACTED, **SMALL)
        write_all(running.address)
        [folder] = running.log_dirs

        def is_clean() -> bool:
            text = (folder / CHECKPOINT).read_text() if (folder / CHECKPOINT).exists() else ""
            found = re.search(rf"^{TOPIC} 0 (\d+)$", text, re.MULTILINE)
            return found is not None and int(found[1]) == bases(folder / f"{TOPIC}-0")[-1]

        await_that(is_clean, "not all is compacted")
        counts = compare(running)
    if counts["read_uncommitted"] > counts["written"] * 2 / 3:
        raise Failed(f"of {counts['written']} records {counts['read_uncommitted']} are left")
    return summary(counts)


def run_tiered() -> str:
    """Reads a log most of whose segments are only in the remote storage."""
    with tempfile.TemporaryDirectory(prefix="spark-") as name:
        remote = Path(name) / "remote"
        with stopping(Kafka(TIERED_RELEASE, **remote_storage(remote))) as running:
            create(running.address, TOPIC, **TIERED, **SMALL)
            write_all(running.address)
            [folder] = running.log_dirs
            first = settled(folder / f"{TOPIC}-0")
            await_checkpoint(running, "__remote_log_metadata")
            counts = compare(running, remote)
    return f"{summary(counts)}; those below {first} only in the remote storage"


def settled(folder: Path) -> int:
    """Waits until Kafka has deleted the local segments that are remote, which it does in several passes; returns the
    first local offset."""
    found, since = bases(folder), time.monotonic()

    def is_settled() -> bool:
        nonlocal found, since
        if (now := bases(folder)) != found:
            found, since = now, time.monotonic()
        return len(found) <= 3 and time.monotonic() > since + 2

    await_that(is_settled, "the older segments are still local")
    return found[0]


@contextmanager
def stopping(running: Kafka) -> Iterator[Kafka]:
    try:
        yield running
    finally:
        running.stop()


def compare(running: Kafka, remote: Path | None = None) -> dict[str, int]:
    """Returns query -> rows; `written` is the number of offsets."""
    end = await_checkpoint(running, TOPIC)[0]
    part = {edge: json.dumps({TOPIC: {"0": offset}}) for edge, offset in (("starting", end // 5), ("ending", end // 2))}
    queries = {
        "read_uncommitted": {},
        "read_committed": {"kafka.isolation.level": "read_committed"},
        "offsets": {f"{edge}Offsets": offsets for edge, offsets in part.items()},
        "startingTimestamp": {"startingTimestamp": at(100)},
        "minPartitions": {"minPartitions": "7"},
    }
    counts = {"written": end}
    for name, options in queries.items():
        for source in (OURS, LOG):
            options = {"subscribe": TOPIC, "includeHeaders": "true", **options}
            counts[name] = same(source, running, name, options, remote)
    return counts


def summary(counts: dict[str, int]) -> str:
    return f"{counts.pop('written')} offsets; rows, over the wire and from the files: " + ", ".join(
        f"{name} {count}" for name, count in counts.items()
    )


CHECKS = [
    Check(f"Spark, ottla and ottla_log on what Kafka {RELEASES[RELEASE]} compacted", run_compacted),
    Check(f"Spark, ottla and ottla_log on what Kafka {RELEASES[TIERED_RELEASE]} moved to remote storage", run_tiered),
]

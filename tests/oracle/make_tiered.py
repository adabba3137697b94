"""Makes `golden/tiered/`: a data directory of Apache Kafka 4.3.1 and its segments in `LocalTieredStorage` (KIP-405).

    python tests/oracle/make_tiered.py      needs java, mvn (Maven Central) and a minute

`local/` is the directory after a clean shutdown, without the partitions that nothing here needs; `remote/` has the
remote segments. `records.json` has what librdkafka read from that broker: for each partition its start and end, and
offset, key, value and timestamp of each record, with those that were aborted and without. The older segments of
`tiered-0` are only remote, as are those of `tiered-1`, of which DeleteRecords has deleted some.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla_testing import GOLDEN
from ottla_testing.interop.checks import jars
from ottla_testing.oracle.kafka_process import Kraft

RELEASE = "4.3.1"
TARGET = GOLDEN / "tiered"
TOPIC, PARTITIONS = "tiered", 2
WAIT_S = 90.0
CONFIGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "2048",
    "local.retention.bytes": "3000",
    "file.delete.delay.ms": "100",
    "index.interval.bytes": "256",
}
KEPT = (f"{TOPIC}-", "__remote_log_metadata-")


def settings(remote: Path) -> dict[str, str]:
    classes = jars(f"kafka-storage-test-{RELEASE}", [f"org.apache.kafka:kafka-storage:{RELEASE}:test"], alone=True)
    return {
        "remote_log_storage_system_enable": "true",
        "remote_log_storage_manager_class_name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote_log_storage_manager_class_path": str(classes / f"kafka-storage-{RELEASE}-test.jar"),
        "remote_log_metadata_manager_listener_name": "PLAINTEXT",
        "rsm_config_dir": str(remote),
        "rlmm_config_remote_log_metadata_topic_replication_factor": "1",
        "rlmm_config_remote_log_metadata_topic_num_partitions": "2",
        "remote_log_manager_task_interval_ms": "500",
        "log_retention_check_interval_ms": "500",
        "log_initial_task_delay_ms": "500",
    }


def produce(address: str, life: int) -> None:
    """Writes to both partitions: batches of five records, then transactions, each third of which aborts."""
    producer = Producer({"bootstrap.servers": address})
    for number in range(60):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, f"value {life} {number}" * 4, key=f"key {number % 7}", partition=partition)
        if number % 5 == 4:
            producer.flush()
    producer = Producer({"bootstrap.servers": address, "transactional.id": "writer"})
    producer.init_transactions()
    for number in range(9):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            for index in range(4):
                producer.produce(TOPIC, f"transaction {life} {number} {index}" * 3, partition=partition)
        producer.flush()
        (producer.commit_transaction if number % 3 else producer.abort_transaction)()


def wait_for_copies(kafka: Kraft) -> None:
    """Waits until only the newest segments are local."""
    end = time.monotonic() + WAIT_S
    while any(len(list((kafka.logs / f"{TOPIC}-{index}").glob("*.log"))) > 3 for index in range(PARTITIONS)):
        if time.monotonic() > end:
            raise RuntimeError(f"the segments are still local: {kafka.log}")
        time.sleep(0.2)
    time.sleep(2)  # for the deletion of remote segments


def read(address: str) -> dict[str, Any]:
    """Reads all records of each partition."""
    found: dict[str, Any] = {}
    for index in range(PARTITIONS):
        place = TopicPartition(TOPIC, index)
        by_isolation: dict[str, list[Any]] = {}
        start = end = 0
        for isolation in ("read_uncommitted", "read_committed"):
            config = {"bootstrap.servers": address, "group.id": "reader", "isolation.level": isolation}
            consumer = Consumer({**config, "enable.partition.eof": True, "auto.offset.reset": "error"})
            start, end = consumer.get_watermark_offsets(place, timeout=30)
            consumer.assign([TopicPartition(TOPIC, index, start)])
            rows = by_isolation[isolation] = []
            while (message := consumer.poll(30)) is not None and not message.error():
                key, value = message.key(), message.value()
                text = [None if one is None else one.decode() for one in (key, value)]
                rows.append([message.offset(), *text, message.timestamp()[1]])
            consumer.close()
        found[f"{TOPIC}-{index}"] = {"start": start, "end": end, **by_isolation}
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place, remote = Path(name), Path(name) / "remote"
        for life in range(2):  # the second one has the next leader epoch
            kafka = Kraft(RELEASE, place, **settings(remote))
            try:
                admin = AdminClient({"bootstrap.servers": kafka.address})
                if life == 0:
                    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=CONFIGS)])[TOPIC].result(30)
                produce(kafka.address, life)
                wait_for_copies(kafka)
                if life == 1:
                    for deleted in admin.delete_records([TopicPartition(TOPIC, 1, 70)]).values():
                        deleted.result(30)
                    time.sleep(3)
                    records = read(kafka.address)
            finally:
                kafka.stop()
        shutil.rmtree(TARGET, ignore_errors=True)
        for folder in kafka.logs.iterdir():
            if folder.name.startswith(KEPT):
                shutil.copytree(folder, TARGET / "local" / folder.name)
        for file in kafka.logs.iterdir():
            if file.is_file() and not file.name.startswith("."):
                shutil.copy(file, TARGET / "local" / file.name)
        shutil.copytree(remote, TARGET / "remote")
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in records.items())
        (TARGET / "records.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()

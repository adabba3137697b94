"""Makes `golden/producers/`: a partition that five idempotent producers wrote to, as two releases of Kafka left it.

Run by hand, with Maven and Java: `python tests/oracle/make_producers.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla_testing import GOLDEN
from ottla_testing.oracle.kafka_process import Kafka

RELEASES = ("2.8.2", "3.9.1")
PRODUCERS, ROUNDS = 5, 20
TARGET = GOLDEN / "producers"


def write(address: str) -> None:
    """Writes batches of one to three records, each producer in turn."""
    admin = AdminClient({"bootstrap.servers": address})
    config = {"segment.bytes": "2000", "index.interval.bytes": "200"}
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(60)
    settings = {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5}
    producers = [Producer(settings) for _ in range(PRODUCERS)]
    for number in range(ROUNDS):
        for index, producer in enumerate(producers):
            for _ in range(1 + (number + index) % 3):
                producer.produce("t", b"v%d-%d" % (number, index) * 5)
            producer.flush(30)


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    for release in RELEASES:
        with tempfile.TemporaryDirectory() as place:
            kafka = Kafka(release, Path(place))
            try:
                write(kafka.address)
            finally:
                kafka.stop()
            shutil.copytree(Path(place) / "logs" / "t-0", TARGET / release / "t-0")


if __name__ == "__main__":
    main()

"""Kafka Streams on brokers of ours: a word count with processing.guarantee=exactly_once_v2, killed and started again.

As nothing is held in a cache, each word goes out with 1, 2, 3 ... and so on: each number once and in this order,
however often the application or the broker was killed, with its state kept or thrown away.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from java_transactions import running

from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Check, Failed, jars, java

PARTITIONS = 2
LINES, WORDS_OF_LINE, VOCABULARY = 2400, 3, 40
WORDS = LINES * WORDS_OF_LINE
RUNS = (
    ("3.9.1", "3.9", "classic"),
    ("4.3.1", "4.3", "classic"),
    ("4.3.1", "ottla", "classic"),
    ("4.1.1", "4.1", "streams"),  # KIP-1071, in early access
    ("4.3.1", "4.3", "streams"),
    ("4.4.0", "4.4", "streams"),
)
TIMEOUTS = {
    "group_streams_session_timeout_ms": "2000",
    "group_streams_min_session_timeout_ms": "2000",
    "group_streams_heartbeat_interval_ms": "500",
    "group_streams_min_heartbeat_interval_ms": "500",
}
EARLY_ACCESS = {
    "unstable_api_versions_enable": "true",
    "unstable_feature_versions_enable": "true",
    "ottla_features": "streams.version=1",
}
INTERNAL = {"repartition": "delete", "changelog": "compact"}  # kind of topic -> its cleanup.policy
# (share of the words that are counted by then, what is done)
KILLS = ((0.15, "application"), (0.35, "broker"), (0.55, "application and its state"))
PATIENCE_SECONDS = 120


def lines(seed: str) -> list[str]:
    made = random.Random(seed)
    return [" ".join(f"word{made.randrange(VOCABULARY)}" for _ in range(WORDS_OF_LINE)) for _ in range(LINES)]


def write(address: str, written: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in ("lines", "counts")]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number, line in enumerate(written):
        producer.produce("lines", line, partition=number % PARTITIONS)
    if producer.flush(30):
        raise Failed("the lines could not be written")


class Application:
    """The word count as a process; `log` has its output."""

    def __init__(self, release: str, address: str, place: Path, protocol: str) -> None:
        state, log = place / "state", place / "application.log"
        folder = jars(f"kafka-streams-{release}", [f"org.apache.kafka:kafka-streams:{release}"])
        command = java(folder, Path(__file__).with_name("WordCount.java"), address, str(state), protocol)
        command.insert(1, "-Xmx256m")
        with log.open("a") as sink:
            self.process = subprocess.Popen(command, stdout=sink, stderr=sink)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def counts(address: str) -> Iterator[Iterator[tuple[str, int]]]:
    """Yields the committed counts in the order of the topic."""
    settings = {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("counts", index, 0) for index in range(PARTITIONS)])

    def seen() -> Iterator[tuple[str, int]]:
        while True:
            for message in consumer.consume(100, 0.2):
                if message.error() is None:
                    yield (message.key() or b"").decode(), int(message.value() or b"0")
            yield "", 0  # nothing more now

    try:
        yield seen()
    finally:
        consumer.close()


def follow(release: str, broker: RunningBroker, place: Path, protocol: str) -> tuple[dict[str, list[int]], list[str]]:
    """Returns the counts of each word in order, when there are as many as words; and what was killed."""
    found: dict[str, list[int]] = {}
    done: list[str] = []
    state, log = place / "state", place / "application.log"
    application = Application(release, broker.address, place, protocol)
    end = time.monotonic() + PATIENCE_SECONDS
    last = None
    try:
        with counts(broker.address) as seen:
            for word, count in seen:
                if word:
                    found.setdefault(word, []).append(count)
                total = sum(map(len, found.values()))
                if len(done) < len(KILLS) and total >= KILLS[len(done)][0] * WORDS:
                    victim = KILLS[len(done)][1]
                    if victim == "broker":
                        broker.restart("kill")
                    else:
                        application.kill()
                        if "state" in victim:
                            shutil.rmtree(state)
                        application = Application(release, broker.address, place, protocol)
                    done.append(victim)
                # A little longer, for what comes twice.
                if total >= WORDS and not word:
                    last = last or time.monotonic() + 2
                if last is not None and time.monotonic() > last:
                    return found, done
                if time.monotonic() > end:
                    raise Failed(f"{total} of {WORDS} words counted, killed: {done}; {log.read_text()[-2000:]}")
    finally:
        application.kill()
    raise AssertionError("the counts have no end")


def run(release: str, profile: str, protocol: str) -> str:
    written = lines(release + profile)
    configs = TIMEOUTS if protocol == "streams" else {}
    if profile == "4.1":
        configs = configs | EARLY_ACCESS
    with tempfile.TemporaryDirectory(prefix="streams-") as place, running(profile, **configs) as broker:
        write(broker.address, written)
        found, done = follow(release, broker, Path(place), protocol)
        stored = sum(broker_records(broker, "counts"))
        made = policies(broker.address)
    if made != INTERNAL:
        raise Failed(f"the topics that it made are {made}")
    wanted: dict[str, int] = {}
    for line in written:
        for word in line.split():
            wanted[word] = wanted.get(word, 0) + 1
    wrong = [
        f"{word}: {found.get(word, [])[-3:]} instead of {number}"
        for word, number in wanted.items()
        if found.get(word) != list(range(1, number + 1))
    ]
    if wrong or len(found) != len(wanted):
        raise Failed(f"{len(wrong)} of {len(wanted)} words are counted wrong, as {wrong[:3]}; killed: {done}")
    if len(done) != len(KILLS):
        raise Failed(f"it was done before all were killed: {done}")
    return f"{WORDS} words, each count once and in order; {stored} written, killed: {', '.join(done)}"


def policies(address: str) -> dict[str, str]:
    """Returns the kind of each internal topic of the application -> its cleanup.policy."""
    admin = AdminClient({"bootstrap.servers": address})
    names = [name for name in admin.list_topics(timeout=10).topics if name.startswith("words-")]
    requested = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    found = {one.name: future.result(10) for one, future in admin.describe_configs(requested).items()}
    return {name.rpartition("-")[2]: configs["cleanup.policy"].value for name, configs in found.items()}


def broker_records(broker: RunningBroker, topic: str) -> Iterator[int]:
    for index in range(PARTITIONS):
        yield sum(header.record_count for header in broker.stored(topic, index) if not header.is_control)


CHECKS = [
    Check(
        f"Kafka Streams {release}, exactly once, profile {profile}, protocol {protocol}",
        lambda release=release, profile=profile, protocol=protocol: run(release, profile, protocol),
    )
    for release, profile, protocol in RUNS
]

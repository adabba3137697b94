"""Transactions of Apache's Java clients on brokers of ours: by themselves, and in Apache's TransactionalMessageCopier.

The copier and the broker are killed in the middle of their work, and what was read is in the output once.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Check, Failed, jars, java, program

PROFILES = ("ottla", "3.9", "4.3")
# The profile 4.3 does not serve all that clients from before KIP-896 use: 0.11 to 2.0.
CLIENTS = {"4.3.1": PROFILES, "3.9.1": ("ottla", "3.9"), "2.8.2": ("ottla",), "1.1.1": ("ottla",), "0.11.0.3": ("3.9",)}
STEPS = ("commits", "open", "offsets", "metadata", "fenced", "timedOut")
# What a release lacks: group ids in sendOffsetsToTransaction from 4.0 on, group metadata up to 2.4.
LACKING = {"4.3.1": "offsets", "1.1.1": "metadata", "0.11.0.3": "metadata"}
COPIERS = (("3.9.1", "3.9"), ("4.3.1", "4.3"), ("4.3.1", "ottla"))
RECORDS = 12_000
KILLS = ("copier", "broker", "copier")
PATIENCE_SECONDS = 90


@contextmanager
def running(profile: str, **overrides: str) -> Iterator[RunningBroker]:
    with tempfile.TemporaryDirectory(prefix="transactions-") as place:
        quickly = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "200"}
        broker = RunningBroker(Path(place), None if profile == "ottla" else profile, **quickly, **overrides)
        try:
            yield broker
        finally:
            broker.close()


def run_client(release: str) -> str:
    """Runs all steps of Transactions.java on each profile."""
    folder = jars(f"kafka-clients-{release}", [f"org.apache.kafka:kafka-clients:{release}"])
    reported = []
    for profile in CLIENTS[release]:
        with running(profile) as broker:
            source = Path(__file__).with_name("Transactions.java")
            command = java(folder, source, broker.address, "t", *STEPS)
            command.insert(1, "-Xmx256m")
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired as late:
                raise Failed(f"profile {profile}: not done after {late.timeout} s; so far: {late.stdout}") from None
        passed = {words[1]: words[2] for line in done.stdout.splitlines() if len(words := line.split(" ", 2)) == 3}
        if done.returncode or tuple(passed) != STEPS:
            raise Failed(f"profile {profile}: passed {list(passed)}, then: {done.stderr[:3000]}")
        lacking = [step for step, text in passed.items() if text == "not in this release"]
        if lacking != [step for step in STEPS if step == LACKING.get(release)]:
            raise Failed(f"profile {profile}: not done: {lacking}")
        reported.append(f"{profile}: timed out as {passed['timedOut'].removeprefix('commit: ')}")
    done_steps = [step for step in STEPS if step != LACKING.get(release)]
    return f"{', '.join(done_steps)}; {'; '.join(reported)}"


def create(address: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(30)


def write(address: str, topic: str, values: Sequence[bytes]) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    for value in values:
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise Failed("the input could not be written")


def read(address: str, topic: str, partition: int = 0) -> list[bytes]:
    """Returns the values of a partition that a read_committed consumer gets."""
    settings = {"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    end = time.monotonic() + PATIENCE_SECONDS
    try:
        while time.monotonic() < end:
            for message in consumer.consume(1000, 1.0):
                error = message.error()
                if error is None:
                    found.append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
        raise Failed(f"{topic}: {len(found)} records, and no end")
    finally:
        consumer.close()


class Copier:
    """TransactionalMessageCopier as a process."""

    def __init__(self, release: str, address: str) -> None:
        folder = jars(f"kafka-tools-{release}", [f"org.apache.kafka:kafka-tools:{release}"])
        command = [
            program("java"),
            "-Xmx256m",
            "-cp",
            f"{folder}/*",
            "org.apache.kafka.tools.TransactionalMessageCopier",
        ]
        command += ["--broker-list", address, "--input-topic", "in", "--input-partition", "0", "--output-topic", "out"]
        command += ["--consumer-group", "copier", "--transactional-id", "copier", "--transaction-size", "60"]
        command += ["--enable-random-aborts", "--use-group-metadata"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def lines(self, count: int) -> bool:
        """Reads so many lines, one for each transaction; returns whether there were so many."""
        assert self.process.stdout
        return all(self.process.stdout.readline() for _ in range(count))

    def finish(self) -> None:
        """Waits for the end of the process, when everything is copied."""
        try:
            reported, complaints = self.process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"the copier does not end within {PATIENCE_SECONDS} s") from None
        if self.process.returncode:
            raise Failed(f"the copier ended with {self.process.returncode}: {complaints[-2000:]}")
        if json.loads(reported.splitlines()[-1])["remaining"]:
            raise Failed(f"the copier ended before its work: {reported.splitlines()[-1]}")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def run_copier(release: str, profile: str) -> str:
    """Copies with kills and restarts: the output equals the input."""
    values = [b"value %d" % number for number in range(RECORDS)]
    made = random.Random(release + profile)
    done = []
    with running(profile) as broker:
        create(broker.address, "in", "out")
        write(broker.address, "in", values)
        copier = Copier(release, broker.address)
        try:
            for victim in KILLS:
                if not copier.lines(made.randint(10, 40)):
                    break
                if victim == "broker":
                    broker.restart("kill")
                else:
                    copier.kill()
                    copier = Copier(release, broker.address)
                done.append(victim)
            copier.finish()
        finally:
            copier.kill()
        found = read(broker.address, "out")
        if found != values:
            twice = len(found) - len(set(found))
            raise Failed(f"{len(found)} of {RECORDS} records in the output, {twice} twice, killed: {done}")
        stored = sum(header.record_count for header in broker.stored("out") if not header.is_control)
    if done != list(KILLS):
        raise Failed(f"it was done before all were killed: {done}")
    return f"{RECORDS} records, each once and in order; {stored} written, killed: {', '.join(done)}"


CHECKS = [
    *(Check(f"transactions of Java {release}", lambda release=release: run_client(release)) for release in CLIENTS),
    *(
        Check(
            f"TransactionalMessageCopier {release}, profile {profile}",
            lambda release=release, profile=profile: run_copier(release, profile),
        )
        for release, profile in COPIERS
    ),
]

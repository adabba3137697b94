"""Consume-transform-produce loops as processes that are killed and restarted, and the check of their output.

Owns the processes, the input that is written meanwhile, and the verifier. A loop copies one topic to another; the
output must hold the copy of each input exactly once, in order, in the same partition.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla_testing.clients.copier import ON_PURPOSE, STEPS, Settings, transformed
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.clients.transactional import librdkafka
from ottla_testing.patience import PATIENCE_S

PROGRAM = Path(__file__).with_name("copier.py")
ENDED = {"fatal", "aborted"}
# Each loop has its own transactional id, and no transaction times out: these errors must never occur.
NEVER = re.compile(
    "ProducerFenced|_FENCED|TXN_STATE|TxnState|PRODUCER_EPOCH|ProducerEpoch|OUT_OF_ORDER|OutOfOrder|UNKNOWN_PRODUCER"
    "|UnknownProducer|DUPLICATE|Duplicate|MAPPING|Mapping|UNKNOWN_SERVER|UnknownError|CORRUPT|Corrupt"
)
BURST, PAUSE_SECONDS = 5, 0.02
Values = Mapping[int, Sequence[bytes]]  # by partition


# -- the verifier


def faults(source: Values, target: Values) -> list[str]:
    """Returns the errors of copies: (partition, text) for each that is missing, duplicated, out of order or without an
    input.
    """
    found: list[str] = []
    for partition in sorted(source.keys() | target.keys()):
        wanted = [transformed(value) for value in source.get(partition, ())]
        assert len(set(wanted)) == len(wanted), "the input itself holds a record twice"
        places = {value: index for index, value in enumerate(wanted)}
        seen: set[bytes] = set()
        last = -1
        for value in target.get(partition, ()):
            if (place := places.get(value)) is None:
                found.append(f"{partition}: {value!r} is no copy of any input")
            elif value in seen:
                found.append(f"{partition}: {value!r} is there twice")
            elif place < last:
                found.append(f"{partition}: {value!r} comes late")
            else:
                last = place
            seen.add(value)
        found += [f"{partition}: {value!r} is missing" for value in wanted if value not in seen]
    return found


def read_topic(address: str, topic: str, partitions: int, isolation: str = "read_committed") -> dict[int, list[bytes]]:
    """Returns all values up to the end that is visible with this isolation level. Fails if the end is not reached."""
    consumer = Consumer(
        {
            **librdkafka(address),
            "group.id": "verifier",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
        }
    )
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in found])
        end = time.monotonic() + PATIENCE_S
        while len(ended) < partitions:
            assert time.monotonic() < end, f"the end of {topic} is not reached"
            for message in consumer.consume(1000, 0.01):  # it would wait for all 1000, if it can
                if (error := message.error()) is None:
                    found[message.partition() or 0].append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def committed_offsets(admin: AdminClient, group: str, topic: str) -> dict[int, int]:
    """Returns the committed offsets of a group, once no transaction holds them back."""
    request = [ConsumerGroupTopicPartitions(group)]
    response = admin.list_consumer_group_offsets(request, require_stable=True)[group].result(PATIENCE_S)
    return {place.partition: place.offset for place in response.topic_partitions if place.topic == topic}


# -- the loops


class Loop:
    """One transactional id, whose process is restarted after each end. `committed` counts the records that its
    processes report as copied, `lives` its starts, `events` are all its lines. Before `is_ready` SIGTERM kills the
    process, which then has no handler for it.
    """

    def __init__(self, pipelines: Pipelines, settings: Settings) -> None:
        self.settings = settings
        self.committed = 0
        self.lives = 0
        self.events: list[dict[str, Any]] = []
        self.is_ready = False
        self.process: subprocess.Popen[str] | None = None
        self._pipelines = pipelines
        self._reader: threading.Thread | None = None

    @property
    def name(self) -> str:
        return self.settings.transactional_id

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, seed: int, dies: tuple[int, str, float] | None = None) -> None:
        self.lives += 1
        self.is_ready = False
        given = dataclasses.replace(self.settings, seed=seed, dies=dies, address=self._pipelines.broker.address)
        command = [sys.executable, str(PROGRAM), json.dumps(dataclasses.asdict(given))]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,))
        self._reader.start()

    def _read(self, stream: Iterator[str]) -> None:
        for line in stream:
            with self._pipelines.changed:
                try:
                    event = json.loads(line)
                except ValueError:
                    event = {"said": line.rstrip()}
                self.events.append(event)
                self.is_ready |= "ready" in event
                self.committed += int(event.get("committed", 0))
                self._pipelines.changed.notify_all()
        with self._pipelines.changed:
            self._pipelines.changed.notify_all()

    def kill(self) -> None:
        """Kills the process (-9) if it runs."""
        if self.process is not None:
            self.process.kill()
            self.gone()

    def stop(self) -> None:
        """Stops the process with SIGTERM."""
        assert self.process
        self.process.terminate()
        self.gone()
        assert self.process.returncode in (0, -9), (self.name, self.process.returncode, self.events[-10:])

    def gone(self) -> None:
        assert self.process and self.process.stdout and self._reader
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self.process.stdout.close()

    @property
    def complaints(self) -> Counter[str]:
        """Returns the reasons for aborted transactions and ends, with counts; without the deliberate ones."""
        reasons = [str(event.get("fatal") or event["aborted"]) for event in self.events if event.keys() & ENDED]
        return Counter(reason for reason in reasons if reason != ON_PURPOSE)


class Input:
    """Numbered records for each partition of a topic, a few every moment, from a thread of its own."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.failures: list[object] = []
        self.acknowledged = 0
        self._stop = threading.Event()
        self._producer = Producer({**librdkafka(address), "enable.idempotence": True, "linger.ms": 2})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self.failures.append(error)
        self.acknowledged += 1

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(BURST):
                partition = number % self.partitions
                self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=self._on_delivery)
                number += 1
            self._producer.poll(0)
            self._stop.wait(PAUSE_SECONDS)
        if self._producer.flush(PATIENCE_S):
            self.failures.append("records are left")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)


class Pipelines:
    """All loops over one source on one broker."""

    def __init__(self, broker: RunningBroker, source: str, partitions: int, loops: Sequence[Settings]) -> None:
        self.broker, self.source, self.partitions = broker, source, partitions
        self.changed = threading.Condition()
        self.loops = [Loop(self, settings) for settings in loops]

    def wait_for(self, what: Callable[[], object], complaint: str, pause: float = 0.05) -> None:
        """Returns when `what` is true; checks at each line of a loop, and periodically."""
        end = time.monotonic() + PATIENCE_S
        while not what():  # which may wait for a reader that needs the condition: it is not held here
            if time.monotonic() > end:
                self._print_stacks()
                raise AssertionError(f"{complaint}\n" + "\n".join(self.story()))
            with self.changed:
                self.changed.wait(pause)

    def _print_stacks(self) -> None:
        """Makes each live process print its stack, for the failure's text."""
        for loop in self.loops:
            if loop.alive and loop.process:
                loop.process.send_signal(signal.SIGUSR1)
        time.sleep(1)

    def story(self) -> Iterator[str]:
        for loop in self.loops:
            yield f"{loop.name}: {loop.lives} lives, {loop.committed} records; at last {loop.events[-20:]}"

    def check(self, settings: Settings) -> int:
        """Checks everything of one group; returns how many records it copied. Fails with the first errors."""
        address = self.broker.address
        source = read_topic(address, self.source, self.partitions)
        found = faults(source, read_topic(address, settings.target, self.partitions))
        assert not found, f"{settings.group}: {len(found)} faults: {found[:5]}\n" + "\n".join(self.story())
        counts = {number: len(values) for number, values in source.items()}
        assert committed_offsets(AdminClient(librdkafka(address)), settings.group, self.source) == counts
        return sum(counts.values())

    def close(self) -> None:
        for loop in self.loops:
            loop.kill()


def end_offsets(address: str, topic: str, partitions: int, isolation: str = "read_committed") -> dict[int, int]:
    """Returns the end of each partition for a reader of this isolation level."""
    consumer = Consumer({**librdkafka(address), "group.id": "verifier", "isolation.level": isolation})
    try:
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), PATIENCE_S)[1]
            for number in range(partitions)
        }
    finally:
        consumer.close()


@contextlib.contextmanager
def pipelines(broker: RunningBroker, source: str, partitions: int, loops: Sequence[Settings]) -> Iterator[Pipelines]:
    """Loops, all of which end with the test."""
    made = Pipelines(broker, source, partitions, loops)
    try:
        yield made
    finally:
        made.close()


def random_death(chooser: Any) -> tuple[int, str, float] | None:
    """For about half of the processes: a kill by itself at a step, or up to 8 ms after it."""
    if chooser.random() < 0.5:
        return None
    return chooser.randint(1, 4), chooser.choice(STEPS), chooser.choice((0.0, chooser.random() * 8))

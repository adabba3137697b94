"""kill -9 again and again under the load of real clients: no acknowledged record is lost, duplicated or changed.

A kill ends the process and keeps the page cache, so all acknowledged records must exist, whatever the moment: during a
write, a roll, a deletion, or the recovery from the last kill.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla_testing.clients.four_clients import create_topic
from ottla_testing.clients.mixed_load import (
    KEYS,
    Churn,
    Ledger,
    Place,
    Read,
    Records,
    Seen,
    Write,
    aiokafka,
    aiokafka_member,
    confluent,
    confluent_member,
    kafka_python,
    kafka_python_member,
    whole_topics,
)
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.usefixtures("close_what_kafka_python_leaves_open"),
]

ROUNDS, MOST_ROUNDS = 20, 200
SHARED, PLAIN, SHORT, COMPACTED = "shared", "plain", "short", "compacted"
PARTITIONS = {SHARED: 2, PLAIN: 1, SHORT: 1, COMPACTED: 1}
# Segments are full when an index is: 4.x and the own profile allow no segment.bytes below 1 MiB.
CONFIGS: dict[str, dict[str, object]] = {
    SHARED: {"segment_index_bytes": 192},
    PLAIN: {"segment_index_bytes": 96},
    SHORT: {"segment_index_bytes": 60, "retention_bytes": 60_000, "file_delete_delay_ms": 100},
    COMPACTED: {
        "segment_index_bytes": 60,
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": 0.01,
        "file_delete_delay_ms": 100,
    },
}


class Load:
    """All clients of one broker, each in a thread of its own."""

    PRODUCERS: tuple[tuple[str, str, Write], ...] = (
        ("confluent-kafka", SHARED, functools.partial(confluent, idempotent=True)),
        ("kafka-python", SHARED, functools.partial(kafka_python, idempotent=True)),
        ("aiokafka", SHARED, aiokafka),
        ("plain confluent-kafka", PLAIN, functools.partial(confluent, idempotent=False)),
        ("plain kafka-python", PLAIN, functools.partial(kafka_python, idempotent=False)),
        ("short", SHORT, functools.partial(confluent, idempotent=True)),
        ("compacted", COMPACTED, functools.partial(confluent, idempotent=True)),
    )
    MEMBERS: tuple[tuple[str, list[str], Read], ...] = (
        ("of confluent-kafka", [SHARED, PLAIN, COMPACTED], confluent_member),
        ("of kafka-python", [SHARED, PLAIN], kafka_python_member),
        ("of aiokafka", [SHARED, SHORT], aiokafka_member),
    )

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        for topic, partitions in PARTITIONS.items():
            create_topic(broker.address, topic, partitions, **CONFIGS[topic])
        self.broker = broker
        self.ledgers = [Ledger(name, topic, PARTITIONS[topic]) for name, topic, _ in self.PRODUCERS]
        self.seen = [Seen(group) for group, _, _ in self.MEMBERS]
        self.churn = Churn(seed)
        self._stop_writing, self._stop_reading = threading.Event(), threading.Event()
        at, stop = broker.address, self._stop_writing
        self._writers = [
            self._thread(ledger.failures, write, at, ledger, stop)
            for ledger, (_, _, write) in zip(self.ledgers, self.PRODUCERS, strict=True)
        ]
        self._writers.append(self._thread(self.churn.failures, self.churn.run, at, stop))
        self._readers = [
            self._thread(seen.failures, read, at, seen, topics, self._stop_reading)
            for seen, (_, topics, read) in zip(self.seen, self.MEMBERS, strict=True)
        ]

    def wait_for_all(self) -> None:
        """Waits until every client has done something: none of them starts during an outage."""
        self._wait(lambda: all(ledger.acknowledged for ledger in self.ledgers), "a producer has written nothing")
        self._wait(lambda: all(seen.committed for seen in self.seen), "a group has committed nothing")

    @staticmethod
    def _thread(failures: list[object], work: Callable[..., None], *arguments: object) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    @property
    def failures(self) -> list[object]:
        return [f for one in (*self.ledgers, *self.seen, self.churn) for f in one.failures]

    def wait_for_more(self, count: int) -> None:
        """Waits until `count` more records are acknowledged."""
        wanted = sum(ledger.acknowledged for ledger in self.ledgers) + count
        self._wait(lambda: sum(ledger.acknowledged for ledger in self.ledgers) >= wanted, "no records acknowledged")

    def _wait(self, what: Callable[[], bool], complaint: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not what():
            assert not self.failures, self.failures[:3]
            assert time.monotonic() < end, complaint
            time.sleep(0.005)

    def committed(self) -> dict[str, dict[Place, int]]:
        """Returns the committed offsets of each group, as acknowledged."""
        return {seen.group: dict(seen.committed) for seen in self.seen}

    def check_committed(self, known: dict[str, dict[Place, int]]) -> None:
        """Fails if a committed offset is below an earlier acknowledged one."""
        admin = AdminClient({"bootstrap.servers": self.broker.address})
        for group, offsets in known.items():
            response = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(
                PATIENCE_S
            )
            found = {(p.topic, p.partition): p.offset for p in response.topic_partitions}
            assert all(found.get(place, -1) >= offset for place, offset in offsets.items()), (group, found, offsets)

    def finish(self) -> None:
        """Ends the producers when all is acknowledged, then the members when they have committed once more."""
        self._stop_writing.set()
        for thread in self._writers:
            thread.join(PATIENCE_S)
        before = self.committed()
        self._wait(
            lambda: all(
                seen.committed and (seen.committed != before[seen.group] or self._has_read_all(seen))
                for seen in self.seen
            ),
            "a group commits nothing more",
        )
        self.stop()
        assert not self.failures, self.failures[:3]
        assert not any(ledger.waiting for ledger in self.ledgers)

    def _has_read_all(self, seen: Seen) -> bool:
        newest = {ledger.topic: max(ledger.offsets) for ledger in self.ledgers if PARTITIONS[ledger.topic] == 1}
        return all(offset > newest[topic] for (topic, _), offset in seen.committed.items() if topic in newest)

    def stop(self) -> None:
        """Ends all threads, also after a failure."""
        self._stop_writing.set()
        self._stop_reading.set()
        for thread in (*self._writers, *self._readers):
            thread.join(PATIENCE_S)


@contextlib.contextmanager
def loaded_broker(folder: Path, chooser: random.Random) -> Iterator[tuple[RunningBroker, Load]]:
    broker = RunningBroker(
        folder,
        auto_create_topics_enable="false",  # or a client's metadata request for a deleted topic would create it again
        log_retention_check_interval_ms="100",
        offsets_topic_num_partitions="5",
        log_index_size_max_bytes="120",  # the offsets of groups roll, too
        log_cleaner_backoff_ms="0",
    )
    with contextlib.ExitStack() as stack:
        stack.callback(broker.close)
        load = Load(broker, chooser.randrange(1 << 32))
        stack.callback(load.stop)
        load.wait_for_all()
        yield broker, load


# -- the conditions at the end


def check_producer(ledger: Ledger, found: Records, once: bool) -> None:
    """Fails unless all records of a producer are stored in order at their acknowledged offsets; `once`: without
    duplicates.
    """
    for partition, records in found.items():
        offsets: dict[int, int] = {}
        numbers: list[int] = []
        for offset, name, number in records:
            if name == ledger.name:
                if number not in offsets:
                    numbers.append(number)
                else:
                    assert not once, f"{name}: record {number} is at offsets {offsets[number]} and {offset}"
                offsets[number] = offset
        sent = ledger.numbers(partition)
        if ledger.topic == SHORT:
            sent = sent[len(sent) - len(numbers) :]
        assert numbers == sent, f"{ledger.name}: {len(sent)} records, {len(numbers)} are there"
        by_offset = {offset: (name, number) for offset, name, number in records}
        first = records[0][0]
        for number in sent:
            if (offset := ledger.offsets[number]) >= first:
                assert by_offset.get(offset) == (ledger.name, number), f"{ledger.name}: {number} is not at {offset}"


def check_compacted(ledger: Ledger, found: Records) -> None:
    """Fails unless the newest record of each key is stored, and the records of a key are in order."""
    newest: dict[int, int] = {}
    for offset, name, number in found[0]:
        assert name == ledger.name and newest.get(number % KEYS, -1) < number
        assert ledger.offsets[number] in (-1, offset)
        newest[number % KEYS] = number
    assert sorted(newest.values()) == ledger.numbers(0)[-KEYS:]


def check_churn(address: str, churn: Churn) -> None:
    """Fails unless created topics exist with exactly their own records, and deleted ones do not."""
    listed = AdminClient({"bootstrap.servers": address}).list_topics(timeout=PATIENCE_S).topics
    assert any(known.number for known in churn.known.values()), "no topic was made"
    found = whole_topics(address, {topic: 1 for topic in churn.known if topic in listed})
    for topic, known in churn.known.items():
        if known.exists is not None:
            assert (topic in listed) == known.exists, f"{topic} was {'made' if known.exists else 'deleted'}"
        if topic in listed:
            records = found[topic][0]
            assert {name for _, name, _ in records} <= {f"{topic}/{known.number}"}
            assert len({number for _, _, number in records}) >= known.acknowledged


def log_start(address: str, topic: str) -> int:
    """Returns the log start offset of partition 0 of a topic."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)[0]
    finally:
        consumer.close()


def check(load: Load) -> None:
    """Checks all conditions, from the acknowledgements and a full read of each topic."""
    address = load.broker.address
    load.check_committed(load.committed())
    found = whole_topics(address, PARTITIONS)
    start = None
    while start != (start := log_start(address, SHORT)):  # retention may delete records during the read
        found[SHORT] = whole_topics(address, {SHORT: PARTITIONS[SHORT]})[SHORT]
    for topic, partitions in found.items():
        for partition, records in partitions.items():
            offsets = [offset for offset, _, _ in records]
            dense = topic != COMPACTED
            gaps = [(a, b) for a, b in itertools.pairwise(offsets) if not (b == a + 1 if dense else b > a)]
            assert not gaps, f"{topic}-{partition}: from {offsets[0]} to {offsets[-1]} with gaps at {gaps}"
            if topic == SHORT:
                assert offsets[0] > 0, f"nothing of {len(offsets)} records was deleted"
            elif dense:
                assert offsets[0] == 0, f"{topic}-{partition} begins at {offsets[0]}"
            there = {offset: (name, number) for offset, name, number in records}
            for seen in load.seen:
                for offset, pair in seen.pairs((topic, partition)):
                    if offset >= offsets[0] and (dense or offset in there):
                        assert there.get(offset) == pair, f"{topic}-{partition}: offset {offset} is another record now"
    for ledger in load.ledgers:
        if ledger.topic == COMPACTED:
            check_compacted(ledger, found[COMPACTED])
        else:
            check_producer(ledger, found[ledger.topic], once=ledger.topic != PLAIN)
    check_churn(address, load.churn)


def verify(data_dir: Path) -> None:
    """Fails unless `ottla verify` finds no error."""
    command = [sys.executable, "-m", "ottla.tools", "verify", str(data_dir)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert outcome.returncode == 0, outcome.stdout[-3000:] + outcome.stderr[-3000:]


def finish(load: Load) -> None:
    """Stops cleanly, reads everything after a clean start, and verifies the directory."""
    load.finish()
    load.broker.restart("stop")
    check(load)
    load.broker.close()
    verify(load.broker.data_dir)


# -- the tests


def test_kill_at_any_moment_loses_duplicates_and_changes_nothing_acknowledged(
    tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    """Rounds of load and kill; sometimes the process is stopped before, or killed again during its recovery."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chooser = random.Random(seed)
    rounds = min(scaled(ROUNDS), MOST_ROUNDS)
    with loaded_broker(tmp_path, chooser) as (broker, load):
        for index in range(rounds):
            load.wait_for_more(100)
            time.sleep(chooser.random() / 3)
            if chooser.random() < 0.2:
                freeze(broker, chooser.random() / 4)
            known = load.committed()
            broker.kill()
            while chooser.random() < 0.2:
                broker.launch()
                time.sleep(chooser.random() / 2)
                broker.kill()
            if index % 10 == 9:
                verify(broker.data_dir)
            broker.start()
            if index % 5 == 4:
                load.check_committed(known)
        load.wait_for_more(100)
        wait_for_cleaning(load)
        wait_for_deletion(load)
        finish(load)
        assert load.churn.deleted or rounds < ROUNDS
        print({ledger.name: ledger.acknowledged for ledger in load.ledgers}, f"{load.churn.deleted} topics deleted")


def wait_for_cleaning(load: Load) -> None:
    """Waits until the compacted topic has fewer records than were written."""
    (ledger,) = (ledger for ledger in load.ledgers if ledger.topic == COMPACTED)

    def stored() -> int:
        with contextlib.suppress(FileNotFoundError):  # a file may be replaced at this moment
            return sum(header.record_count for header in load.broker.stored(COMPACTED))
        return ledger.acknowledged

    until(lambda: stored() <= ledger.acknowledged * 0.8, "nothing is cleaned", pause_s=0.05)


def wait_for_deletion(load: Load) -> None:
    """Waits until retention has deleted something: all records sent after an outage may be in one segment."""
    folder = load.broker.data_dir / f"{SHORT}-0"
    until(lambda: not (folder / f"{0:020d}.log").exists(), "nothing is deleted")


def children(pid: int) -> set[int]:
    """Returns the live child processes of a process."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.add(int(path.parent.name))
    return found


def test_cleaner_process_ends_with_the_broker(tmp_path: Path) -> None:
    """Otherwise it would write into the files of the next broker."""
    slow = {"log_cleaner_backoff_ms": "0", "log_cleaner_io_max_bytes_per_second": "1000"}
    broker = RunningBroker(tmp_path, **slow)
    try:
        create_topic(broker.address, COMPACTED, cleanup_policy="compact", segment_bytes=1 << 20)
        producer = Producer({"bootstrap.servers": broker.address})
        for number in range(400):
            producer.produce(COMPACTED, bytes(10_000), b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        assert broker.process
        assert broker.process
        owner = broker.process.pid
        cleaning = until(lambda: children(owner), "nothing is cleaned")
        time.sleep(0.5)  # so that it is in the middle of its work
        broker.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in cleaning), "the process that cleans lives on")
    finally:
        broker.kill()


def freeze(broker: RunningBroker, seconds: float) -> None:
    """Sends SIGSTOP, and SIGCONT a moment later."""
    assert broker.process
    os.kill(broker.process.pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(broker.process.pid, signal.SIGCONT)


def test_broker_stopped_for_a_moment_loses_nothing(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """SIGSTOP for a moment, and once for longer than the groups' sessions; clients survive both."""
    chooser = random.Random(1)
    with loaded_broker(tmp_path, chooser) as (broker, load):
        for seconds in (0.1, 0.5, 7.0, *(chooser.random() for _ in range(scaled(3)))):
            load.wait_for_more(500)
            freeze(broker, seconds)
        load.wait_for_more(500)
        wait_for_deletion(load)
        finish(load)

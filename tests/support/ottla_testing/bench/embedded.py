"""The broker within a test's process: the time to start it, to create a topic and to restore a snapshot, and a test
suite.
Owns these workloads, their measures and aims. Where there are a Java and Maven the start of Apache Kafka is measured,
too; otherwise it is reported as missing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla_testing.bench import peers
from ottla_testing.bench.raw import BenchError, served
from ottla_testing.bench.stats import OTTLA, Aim, Measure

KAFKA = "kafka"
PEERS = (OTTLA, KAFKA)
NAMES = ("embedded",)
WEEK_MS = 7 * 24 * 3600 * 1000
RECORDS = 10_000
ADDRESS = "127.0.0.1"

ABOUT = f"""\
embedded     a broker in the process of a test, data in memory: Embedded() until it responds, in a process that has
             started one before (start) and with all imports in a new one (first start); create_topic(); a snapshot of
             10,000 records and restoring it; moving the clock by a week with 10 topics, a group and a transaction;
             the tests of tests/examples from an installed wheel with two workers, all of them and calculated for
             200. kafka: Apache Kafka {peers.KAFKA_RELEASE} on a formatted folder, from exec to its first response"""


class Sizes(NamedTuple):
    """The amount of work. `every`: run each n-th test of the example."""

    rounds: int
    first_starts: int
    starts: int
    topics: int
    restores: int
    weeks: int
    every: int


FULL = Sizes(rounds=3, first_starts=2, starts=20, topics=100, restores=20, weeks=10, every=1)
QUICK = Sizes(rounds=1, first_starts=1, starts=10, topics=30, restores=5, weeks=3, every=20)

MEASURES = (
    Measure("embedded start", "ms", False),
    Measure("embedded first start", "ms", False),
    Measure("embedded topic", "ms", False),
    Measure("embedded restore", "ms", False),
    Measure("embedded week", "ms", False),
    Measure("embedded tests", "s", False),
    Measure("embedded tests, as 200", "s", False),
)
AIMS = (
    Aim("embedded start", None, 2, False),
    Aim("embedded topic", None, 2, False),
    Aim("embedded restore", None, 20, False),
    Aim("embedded week", None, 200, False),
    Aim("embedded tests, as 200", None, 20, False),
)

Figures = dict[str, dict[str, float]]
Take = Callable[[], Figures]


def takes(names: Sequence[str], sizes: Sizes) -> list[tuple[str, str, Take]]:
    """Returns (measure, peer, function that takes one sample) of the selected measures."""
    if NAMES[0] not in names:
        return []
    return [
        ("embedded", OTTLA, lambda: in_process(sizes)),
        ("embedded first start", OTTLA, lambda: first_start(sizes.first_starts)),
    ]


def takes_once(names: Sequence[str], sizes: Sizes) -> list[tuple[str, str, Take]]:
    """The same for measures that take long enough for one sample to be stable."""
    if NAMES[0] not in names:
        return []
    return [
        ("embedded tests", OTTLA, lambda: example_tests(sizes.every)),
        ("embedded start", KAFKA, lambda: {"embedded start": {KAFKA: kafka_start()}}),
    ]


def _median_ms(count: int, one: Callable[[], float]) -> float:
    return statistics.median(one() for _ in range(count)) * 1000


def in_process(sizes: Sizes) -> Figures:
    """Measures what a test suite does repeatedly."""
    from ottla.broker import Embedded

    def start() -> float:
        began = time.perf_counter()
        with Embedded() as broker:
            host, _, port = broker.bootstrap.rpartition(":")
            served((host, int(port)))
            return time.perf_counter() - began

    start()  # also imports all modules
    found = {"embedded start": _median_ms(sizes.starts, start)}
    with Embedded() as broker:

        def topic() -> float:
            began = time.perf_counter()
            broker.create_topic()
            return time.perf_counter() - began

        found["embedded topic"] = _median_ms(sizes.topics, topic)
    with Embedded() as broker:
        name = broker.create_topic()
        broker.send_many(name, [b"x" * 100] * RECORDS)

        def restore() -> float:
            began = time.perf_counter()
            snapshot = broker.snapshot()
            broker.restore(snapshot)
            taken = time.perf_counter() - began
            if broker.topic(name).partitions[0].end_offset != RECORDS:
                raise BenchError("a restore lost records")
            return taken

        found["embedded restore"] = _median_ms(sizes.restores, restore)
    found["embedded week"] = _median_ms(sizes.weeks, week)
    return {measure: {OTTLA: value} for measure, value in found.items()}


def week() -> float:
    """Measures seven days of 10 topics with records, __consumer_offsets with a group, and an open transaction."""
    from kafka import KafkaConsumer, KafkaProducer

    from ottla.broker import Embedded

    with Embedded(configs={"offsets.topic.num.partitions": "50"}) as broker:
        names = [broker.create_topic(partitions=3) for _ in range(10)]
        for name in names:
            broker.send_many(name, [b"x"] * 100)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="bench")
        consumer = KafkaConsumer(names[1], bootstrap_servers=broker.bootstrap, group_id="bench")
        try:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(names[0], b"x").get(10)
            deadline = time.monotonic() + 10
            while broker.group("bench").state != "Stable" and time.monotonic() < deadline:
                consumer.poll(10)
            broker.clock.freeze()
            began = time.perf_counter()
            broker.clock.advance(WEEK_MS)
            taken = time.perf_counter() - began
            if broker.group("bench").members:
                raise BenchError("a group still has its member after a week")
            if broker.topic(names[0]).partitions[0].stable_offset != broker.topic(names[0]).partitions[0].end_offset:
                raise BenchError("a transaction is still open after a week")
            return taken
        finally:
            consumer.close(autocommit=False)
            producer.close(0.2)


FIRST = """
import time
began = time.perf_counter()
from ottla.broker import Embedded
with Embedded() as broker:
    print(time.perf_counter() - began)
"""


def first_start(count: int) -> Figures:
    """Measures from the first import on, in a new process."""
    times: list[float] = []
    for _ in range(count):
        done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise BenchError(f"an embedded broker does not start: {done.stderr[-300:]}")
        times.append(float(done.stdout) * 1000)
    return {"embedded first start": {OTTLA: statistics.median(times)}}


def example_tests(every: int) -> Figures:
    """Measures the test suite of the example project."""
    from ottla_testing.installed import build_wheel, install, run_tests

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = run_tests(install(build_wheel(folder), folder), folder, every=every)
    if report.failed or not report.passed:
        raise BenchError(f"{report.failed} of the example's tests fail: {report.output[-300:]}")
    found = {"embedded tests": {OTTLA: report.seconds}}
    if every == 1:
        found["embedded tests, as 200"] = {OTTLA: report.seconds * 200 / report.passed}
    return found


def kafka_start() -> float:
    """Returns the milliseconds from exec to the first response of Apache Kafka, in a folder formatted before. Raises
    BenchError if it cannot run here.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        command, port = peers.kafka_command(Path(name), "512m")
        began = time.perf_counter()
        peer = peers.spawn(KAFKA, command, (ADDRESS, port), None, peers.KAFKA_SECONDS)
        taken = time.perf_counter() - began
        peer.stop()
    return taken * 1000

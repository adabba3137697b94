"""The exactly-once sink against a running Apache Kafka: drivers, tasks and the broker are killed, and each row is there
once.

The reference is Kafka's own console consumer with read_committed. Drivers are processes of their own, so that they can
be killed; faults come at seeded times during a micro-batch.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from apache_kafka import RELEASES, Kafka
from confluent_kafka import Consumer, TopicPartition

from ottla.protocol.murmur2 import java_partition
from ottla_testing.interop import spark_session
from ottla_testing.interop.checks import Check, Failed, Missing, jars, program

CHILD = Path(__file__).with_name("spark_sink_child.py")
TOPIC, PARTITIONS = "orders", 3
ROWS = 3000  # of each file, which is a micro-batch
KEYS = 97
BASE_MS = 1_700_000_000_000
PATIENCE_S = 180.0
MOST_DELAY_S = 1.5  # from the beginning of a micro-batch to its fault: about as long as one takes
ENDS_MS = 8000  # the console consumer ends when nothing has come for so long
ONE_PARTITION = {"transaction.state.log.num.partitions": "1"}


class Line(NamedTuple):
    """A record as the console consumer prints it."""

    partition: int
    offset: int
    timestamp_ms: int
    headers: str
    key: str
    value: str


def row(number: int) -> dict[str, Any]:
    """Returns the row of this number; its value begins with the number."""
    return {
        "key": b"key %d" % (number % KEYS),
        "value": b"%06d " % number + b"the leader of a partition has its log; " * (number % 5),
        "timestamp": (BASE_MS + number) * 1000,
        "headers": [{"key": "n", "value": b"%d" % number}] if number % 3 == 0 else None,
    }


def shown(number: int) -> tuple[int, int, str, str, str]:
    """Returns the readable parts of a record: partition, time, headers, key, value."""
    one = row(number)
    partition = java_partition(one["key"], PARTITIONS)
    headers = f"n:{number}" if one["headers"] else "NO_HEADERS"
    return partition, BASE_MS + number, headers, one["key"].decode(), one["value"].decode()


def write_files(folder: Path, first: int, count: int) -> None:
    """Writes files of rows, which a stream takes in the order of their times."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    schema = pa.schema(
        {
            "key": pa.binary(),
            "value": pa.binary(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
        }
    )
    for number in range(first, first + count):
        numbers = list(range(number * ROWS, (number + 1) * ROWS))
        random.Random(number).shuffle(numbers)  # their order is the sink's to make
        path = folder / f"{number:03d}.parquet"
        pq.write_table(pa.Table.from_pylist([row(one) for one in numbers], schema), path)
        os.utime(path, (BASE_MS // 1000 + number, BASE_MS // 1000 + number))


# -- processes


class Driver:
    """A Spark driver, its JVM and its workers, in a process group of their own."""

    def __init__(self, given: dict[str, Any], log: Path) -> None:
        self.log = log
        with log.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self, *, everything: bool) -> None:
        """Sends kill -9 to the driver, and to all processes that it has started: these would otherwise end a little
        later."""
        if everything:
            self.kill_group()
        else:
            self.process.kill()
        self.process.wait()

    def kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_worker(self, pick: random.Random) -> bool:
        """Sends kill -9 to a Python process in which a task runs; returns whether there is one."""
        parents = dict(_processes(self.process.pid))
        leaves = [pid for pid, words in parents.items() if "pyspark" in words and not _children(pid)]
        if not leaves:
            return False
        with suppress(ProcessLookupError):
            os.kill(pick.choice(leaves), signal.SIGKILL)
        return True

    def wait(self) -> int:
        """Returns its exit code. Raises Failed if it does not end."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill_group()
            raise Failed(f"the driver does not end: {self.printed}") from None

    @property
    def printed(self) -> str:
        return self.log.read_text()[-1500:]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def _processes(pid: int) -> Iterator[tuple[int, str]]:
    """Yields all descendants of a process, each with its command line."""
    for child in _children(pid):
        with suppress(OSError):
            yield child, Path(f"/proc/{child}/cmdline").read_text()
        yield from _processes(child)


# -- what is there


def console(release: str, address: str, topic: str, count: int) -> list[Line]:
    """Returns what Kafka's console consumer prints of committed records, if there are `count`; one more, if there are
    more."""
    version = RELEASES[release]
    classes = jars(f"kafka-tools-{version}", [f"org.apache.kafka:kafka-tools:{version}"])
    command = [program("java"), "-Xmx256m", "-cp", f"{classes}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    command += ["--bootstrap-server", address, "--topic", topic, "--from-beginning"]
    command += ["--isolation-level", "read_committed", "--timeout-ms", str(ENDS_MS), "--max-messages", str(count + 1)]
    for name in ("timestamp", "partition", "offset", "headers", "key"):
        command += ["--property", f"print.{name}=true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    found = []
    for line in done.stdout.splitlines():
        parts = line.split("\t")
        if len(parts) == 6:
            time_ms, partition, offset = (int(part.rpartition(":")[2]) for part in parts[:3])
            found.append(Line(partition, offset, time_ms, *parts[3:]))
    if done.returncode or not found:
        raise Failed(f"the console consumer: exit code {done.returncode}, {(done.stdout + done.stderr)[-800:]}")
    return sorted(found)


def ends(address: str) -> list[int]:
    """Returns the end offsets of the topic's partitions, committed or not."""
    settings = {"bootstrap.servers": address, "group.id": "ends", "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(TOPIC, one), spark_session.SECONDS)[1]
            for one in range(PARTITIONS)
        ]
    finally:
        consumer.close()


def compare(found: Sequence[Line], count: int) -> None:
    """Checks that each of the rows 0 to `count` is there once, complete, and in order within its partition. Raises
    Failed."""
    values = [line.value for line in found]
    if twice := sorted({value[:6] for value in values if values.count(value) > 1} if len(values) > count else set()):
        raise Failed(f"{len(twice)} rows are there more than once, such as {twice[:3]}")
    if missing := sorted({shown(number)[4] for number in range(count)} - set(values)):
        raise Failed(f"{len(missing)} rows are missing, such as {[value[:6] for value in missing[:3]]}")
    for line in found:
        wanted = shown(int(line.value[:6]))
        if (got := (line.partition, line.timestamp_ms, line.headers, line.key, line.value)) != wanted:
            raise Failed(f"{got} instead of {wanted}")
    for partition in range(PARTITIONS):
        numbers = [int(line.value[:6]) for line in found if line.partition == partition]
        if numbers != sorted(numbers):
            raise Failed(f"partition {partition} is not in the requested order")
    if len(found) != count:
        raise Failed(f"{len(found)} rows instead of {count}")


# -- the checks


class World:
    """A Kafka with an empty topic, and a folder for rows and checkpoint."""

    def __init__(self, release: str, way: str, kafka: Kafka, folder: Path) -> None:
        self.release, self.way, self.kafka, self.folder = release, way, kafka, folder
        self.pick = random.Random(f"{release} {way}")
        self.faults: list[str] = []
        self.drivers: list[Driver] = []
        spark_session.create(kafka.address, TOPIC, partitions=PARTITIONS)

    @property
    def options(self) -> dict[str, str]:
        found = {"kafka.bootstrap.servers": self.kafka.address, "topic": TOPIC, "orderBy": "value"}
        found |= {"kafka.compression.type": "lz4"}
        return found | ({"transactionalId": "load 1"} if self.way == "batch" else {})

    def start(self) -> Driver:
        given = {"way": self.way, "rows": str(self.folder / "rows"), "checkpoint": str(self.folder / "checkpoint")}
        self.drivers.append(Driver({**given, "options": self.options}, self.folder / "driver.log"))
        return self.drivers[-1]

    def finish(self, driver: Driver | None = None) -> None:
        """Runs drivers until one has ended well; one that gave up is started again. Raises Failed."""
        for _ in range(5):
            driver = driver or self.start()
            if driver.wait() == 0:
                return
            self.faults.append("driver gave up")
            driver = None
        raise Failed(f"the driver gives up again and again: {self.drivers[-1].printed}")

    def await_begun(self, driver: Driver, number: int) -> bool:
        """Returns when Spark has begun the micro-batch of this number; False if the driver has ended before."""
        end = time.monotonic() + PATIENCE_S
        while not self.file("offsets", number).exists():
            if not driver.is_running:
                return False
            if time.monotonic() > end:
                raise Failed(f"micro-batch {number} does not begin: {driver.printed}")
            time.sleep(0.01)
        return True

    def file(self, kind: str, number: int) -> Path:
        return self.folder / "checkpoint" / kind / str(number)

    def fault(self, kind: str, driver: Driver) -> None:
        """Kills a process of that kind after a random delay."""
        time.sleep(self.pick.random() * MOST_DELAY_S)
        if kind == "task":
            kind += "" if driver.kill_worker(self.pick) else " (none ran)"
        elif kind == "broker":
            self.kafka.kill()
            time.sleep(self.pick.random())
            self.kafka.start()
        else:
            driver.kill(everything=kind == "driver")
        self.faults.append(kind)

    def stop(self) -> None:
        for driver in self.drivers:
            driver.kill_group()


@contextmanager
def world(release: str, way: str) -> Iterator[World]:
    if find_spec("pyspark") is None:
        raise Missing("no PySpark here")
    with tempfile.TemporaryDirectory(prefix="spark-sink-") as place:
        kafka = Kafka(release, None, 1, **ONE_PARTITION)
        made = None
        try:
            made = World(release, way, kafka, Path(place))
            yield made
        finally:
            if made is not None:
                made.stop()
            kafka.stop()


STREAM_FAULTS = ("task", "driver", "broker", "driver's Python", "task")


def run_stream(release: str) -> str:
    """Injects a fault in each micro-batch but the last; then replays the last one, which adds nothing."""
    with world(release, "foreachBatch") as made:
        count = len(STREAM_FAULTS) + 1
        write_files(made.folder / "rows", 0, count)
        driver = made.start()
        for number, kind in enumerate(STREAM_FAULTS):
            if not driver.is_running or not made.await_begun(driver, number):
                if driver.process.poll() == 0:
                    break
                made.faults.append("driver gave up")
                driver = made.start()
                made.await_begun(driver, number)
            made.fault(kind, driver)
            if kind.startswith("driver"):
                driver = made.start()
        made.finish(driver)
        address = made.kafka.address
        compare(console(release, address, TOPIC, count * ROWS), count * ROWS)
        before = ends(address)
        commit = made.file("commits", count - 1)
        for path in (commit, commit.with_name(f".{commit.name}.crc")):
            path.unlink(missing_ok=True)
        made.finish()
        if not commit.exists():
            raise Failed(f"micro-batch {count - 1} was not replayed")
        if (after := ends(address)) != before:
            raise Failed(f"the replayed micro-batch moved the ends of the logs from {before} to {after}")
        write_files(made.folder / "rows", count, 1)
        made.finish()
        compare(console(release, address, TOPIC, (count + 1) * ROWS), (count + 1) * ROWS)
        faults = ", ".join(made.faults)
    return f"{(count + 1) * ROWS} rows, each once and in order; killed: {faults}; a micro-batch replayed, nothing added"


def run_batch(release: str) -> str:
    """Kills a driver in the middle of its one write, runs it again, and once more."""
    with world(release, "batch") as made:
        write_files(made.folder / "rows", 0, 5)
        driver = made.start()
        end = time.monotonic() + PATIENCE_S
        while driver.is_running and not sum(ends(made.kafka.address)) and time.monotonic() < end:
            time.sleep(0.05)
        driver.kill(everything=True)
        written = sum(ends(made.kafka.address))
        made.finish()
        compare(console(release, made.kafka.address, TOPIC, 5 * ROWS), 5 * ROWS)
        before = ends(made.kafka.address)
        made.finish()
        if (after := ends(made.kafka.address)) != before:
            raise Failed(f"the second write with the same id moved the ends of the logs from {before} to {after}")
    return f"{5 * ROWS} rows, each once; the driver was killed when {written} had come, and ran twice more"


def _check(name: str, run: Callable[[], str]) -> Check:
    return Check(f"Spark's sink: {name}", run)


CHECKS = [
    check
    for release, version in RELEASES.items()
    for check in (
        _check(f"foreachBatch on Kafka {version}, with kills", partial(run_stream, release)),
        _check(f"a batch on Kafka {version}", partial(run_batch, release)),
    )
]

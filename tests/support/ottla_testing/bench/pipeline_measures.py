"""Logs into Spark: Ottla's sources compared with Spark's Kafka connector, on the same topics in the same session.
Owns these workloads, their measures and aims. The connector is downloaded from Maven Central as `make interop` does;
without it, confluent-kafka in tasks replaces it. Spark runs in its own process, which ends with the run.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer

from ottla_testing.bench import peers, raw
from ottla_testing.bench.raw import BenchError
from ottla_testing.bench.stats import OTTLA, Aim, Measure

HERE = Path(__file__).resolve().parent
WIRE, CONNECTOR, TUNED, CONSUMER = "wire", "connector", "tuned", "consumer"
PEERS = (OTTLA, WIRE, CONNECTOR, TUNED, CONSUMER)
NAMES = ("pipeline",)
PARTITIONS = 2  # one task of the connector per core
KEY_BYTES = len(b"c-000000")
CODECS = {"": "none", " lz4": "lz4"}
SIZES = {"100 B": 100, "1 KiB": 1024}
LABELS = {
    f"{size}{mark}": (value_bytes, codec) for size, value_bytes in SIZES.items() for mark, codec in CODECS.items()
}
CORES = ("local[2]", "local[1]")
JOBS = ("census", "audit")
USES = ("bytes", "parquet")  # of the rows; else all columns are read and dropped
EXPORTED = "exported"
LAYERS = ("decoded", "one core")
CLIENT_SECONDS, WORKER_SECONDS = 120.0, 300.0
# As Spark's guide recommends for the connector: its consumer polls 500 records at a time by default, and discards what
# it has prefetched each time.
TUNING = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(8 << 20)}

ABOUT = """\
pipeline     all records of a topic of two partitions, all columns, to Spark's noop sink, local[2]: thousands of
             records per second by Ottla's source of files (ottla), its source of brokers (wire), Spark's Kafka
             connector with its defaults (connector) and with larger polls (tuned), or, without it, confluent-kafka in
             tasks (consumer); values of JSON that lz4 makes four times smaller. bytes: the same for the sum of the
             sizes of keys and values, which Ottla's sources have as columns; parquet: the same for all columns
             to Parquet files by Spark; exported: by `ottla pipeline export`, from files and from brokers, compared
             with the connector and Spark. decoded: by Ottla's source of files in one process, to Arrow's record
             batches, without Spark; one core: all columns through Spark, local[1]: the rest of its time is Spark's.
             census, audit: MB of log per second and core, local[1]. cores: the speed-up with two cores"""


class Sizes(NamedTuple):
    """The amount of work: number of records by the size of their values."""

    rounds: int
    records: dict[str, int]
    cores: bool


FULL = Sizes(rounds=3, records={"100 B": 2_000_000, "1 KiB": 500_000}, cores=True)
QUICK = Sizes(rounds=1, records={"100 B": 400_000, "1 KiB": 100_000}, cores=False)

MEASURES = (
    *(Measure(f"pipeline {label}", "k/s") for label in LABELS),
    *(Measure(f"pipeline {use} {label}", "k/s") for use in (*USES, EXPORTED) for label in SIZES),
    *(Measure(f"pipeline {job} {label}", "MB/s") for job in JOBS for label in SIZES),
    *(Measure(f"pipeline {layer} {label}", "k/s") for layer in LAYERS for label in SIZES),
    *(Measure(f"pipeline cores {label}", "x") for label in SIZES),
    *(Measure(f"pipeline cores {job} {label}", "x") for job in JOBS for label in SIZES),
)
AIMS = tuple(
    Aim(f"pipeline {name}", CONNECTOR, 3 if "100 B" in name else 2, True)
    for name in (*LABELS, *(f"{use} {label}" for use in (*USES, EXPORTED) for label in SIZES))
)

Figures = dict[str, dict[str, float]]
Take = Callable[[], Figures]


def value(number: int, size: int, random_: random.Random) -> bytes:
    """Returns an order of a shop with exactly this many bytes, which codecs compress about four times."""
    head = b'{"order":%d,"customer":"c-%06d","cents":%d,"state":"%s"' % (
        number,
        random_.randrange(50_000),
        random_.randrange(100_000),
        random_.choice((b"new", b"paid", b"sent", b"back")),
    )
    items = b"".join(
        b',"item-%d":{"sku":"%08x","count":%d,"gift":false}' % (i, random_.randrange(1 << 24), i % 9 + 1)
        for i in range((size - len(head)) // 40 + 1 if size > 200 else 0)
    )
    return (head + items)[: size - 1].ljust(size - 1) + b"}"


class Worker:
    """A process with Spark. Raises BenchError if it does not start or ends early."""

    def __init__(self, master: str, jars: str) -> None:
        command = [sys.executable, str(HERE / "pipeline_worker.py"), master, jars]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._line("ready")

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, what: str, **more: Any) -> Any:
        """Returns the result of a command. Raises BenchError."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        return self._line("result")

    def _line(self, key: str) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = json.loads(line) if line else {"error": "Spark's process has ended"}
        if key not in found:
            raise BenchError(str(found.get("error", found)))
        return found[key]

    def stop(self) -> None:
        """Ends the process with Spark."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Place:
    """A broker with the topics of a run, and Spark; each is created at its first use."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._broker: peers.Peer | None = None
        self._workers: dict[str, Worker] = {}
        self._topics: dict[str, str] = {}
        self._warm: set[tuple[str, ...]] = set()
        self._jars: str | None = None
        self.missing = ""  # the reason if there is no connector

    @property
    def broker(self) -> peers.Peer:
        if self._broker is None:
            self._broker = peers.start_ottla("--override", "replica.high.watermark.checkpoint.interval.ms=500")
        return self._broker

    @property
    def data(self) -> Path:
        """The directory of its logs."""
        data = self.broker.data
        assert data is not None
        return data

    def jars(self) -> str:
        """The connector's jars, separated by commas; "" without connector."""
        if self._jars is None:
            from ottla_testing.interop.checks import Missing
            from ottla_testing.interop.spark_session import connector

            try:
                self._jars = ",".join(map(str, connector()))
            except Missing as missing:
                self._jars, self.missing = "", str(missing)
        return self._jars

    def worker(self, master: str) -> Worker:
        """Returns a Spark with this many cores."""
        if master not in self._workers:
            self._workers[master] = Worker(master, self.jars())
        return self._workers[master]

    def topic(self, label: str) -> str:
        """Returns a topic with the records of a label."""
        if label not in self._topics:
            topic = f"pipeline-{label.replace(' ', '-')}"
            raw.make_topic(self.broker.address, topic, partitions=PARTITIONS)
            size, codec = LABELS[label]
            fill(self.broker.bootstrap, topic, size, codec, self.count(label))
            self._await_checkpoint(topic, self.count(label) // PARTITIONS)
            self._topics[label] = topic
        return self._topics[label]

    def count(self, label: str) -> int:
        return self.sizes.records[" ".join(label.split()[:2])]

    def _await_checkpoint(self, topic: str, end: int) -> None:
        """Waits for the checkpoint: files of a running broker are read up to the high watermarks in its checkpoint."""
        wanted = {f"{topic} {partition} {end}" for partition in range(PARTITIONS)}
        deadline = time.monotonic() + CLIENT_SECONDS
        path = self.data / "replication-offset-checkpoint"
        while not path.exists() or not wanted <= set(path.read_text().splitlines()):
            if time.monotonic() > deadline:
                raise BenchError(f"the high watermarks of {topic} were not written to a checkpoint")
            time.sleep(0.1)

    def log_bytes(self, label: str) -> int:
        """Returns the size of a topic's files."""
        folders = self.data.glob(f"{self.topic(label)}-*")
        return sum(path.stat().st_size for folder in folders for path in folder.glob("*.log"))

    def source(self, who: str, label: str) -> dict[str, Any]:
        """Returns the command to read a topic with one of the peers."""
        topic = self.topic(label)
        wire = {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": topic}
        return {
            OTTLA: {"source": "ottla_log", "options": {"path": str(self.data), "subscribe": topic}},
            WIRE: {"source": "ottla", "options": wire},
            CONNECTOR: {"source": "kafka", "options": wire},
            TUNED: {"source": "kafka", "options": {**wire, **TUNING}},
            CONSUMER: {"source": CONSUMER, "options": {**wire, "partitions": PARTITIONS}},
        }[who]

    def seconds(self, master: str, who: str, label: str, use: str = "read") -> float:
        """Reads once; the first read of its kind is preceded by one that is checked and warms up the JVM."""
        command = self.source(who, label)
        worker = self.worker(master)
        count, size = self.count(label), LABELS[label][0]
        if (master, who, label) not in self._warm:
            found = worker.run("check", **command)
            each = count // PARTITIONS
            if found != [count, PARTITIONS * each * (each - 1) // 2, count * size]:
                raise BenchError(f"{who} has the count and sums {found} for {count} records")
            self._warm.add((master, who, label))
        if use == "bytes":
            sizes = ("keySize", "valueSize") if who in (OTTLA, WIRE) else ("length(key)", "length(value)")
            if who in (OTTLA, WIRE):
                command["options"]["columns"] = ",".join(sizes)
            command |= {"sum": f"sum({sizes[0]}) + sum({sizes[1]})", "wanted": count * (size + KEY_BYTES)}
        if (master, who, label, use) not in self._warm:
            worker.run(use, **command)
            self._warm.add((master, who, label, use))
        return worker.run(use, **command)

    def export_seconds(self, who: str, label: str) -> float:
        """Exports a topic to a new folder, compressed as by Spark; the first export of its kind is preceded by a
        warm-up."""
        topic = self.topic(label)
        source = str(self.data) if who == OTTLA else {"bootstrap.servers": self.broker.bootstrap}
        more = {"settings": {"topics": [topic], "codec": "snappy"}}
        runs = 1 if (EXPORTED, who, label) in self._warm else 2
        self._warm.add((EXPORTED, who, label))
        found = 0.0
        for _ in range(runs):
            with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
                given = [source, f"{folder}/rows"]
                found = self.worker(CORES[0]).run("job", name="export", given=given, more=more)
        return found

    def job_seconds(self, master: str, job: str, label: str) -> float:
        """Runs a job over a topic's folders; the first run of its kind is preceded by a warm-up."""
        paths = [str(folder) for folder in sorted(self.data.glob(f"{self.topic(label)}-*"))]
        command = {"name": job, "given": [paths], "more": {}}
        worker = self.worker(master)
        if (master, job, label) not in self._warm:
            worker.run("job", **command)
            self._warm.add((master, job, label))
        return worker.run("job", **command)

    def close(self) -> None:
        """Ends all processes and removes the data."""
        for worker in self._workers.values():
            worker.stop()
        if self._broker is not None:
            self._broker.stop()


def fill(bootstrap: str, topic: str, size: int, codec: str, count: int, keys: int | None = None) -> None:
    """Writes records with values of a size to all partitions of a topic; with `keys`, each has one of this many random
    keys.
    Raises BenchError.
    """
    failed: list[str] = []
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "log_level": 0}
    settings |= {"linger.ms": 20, "batch.size": 65_536, "delivery.report.only.error": True}
    producer = Producer({**settings, "on_delivery": lambda error, _: failed.append(str(error))})
    random_ = random.Random(size)
    values = [value(number, size, random_) for number in range(5000)]
    for first in range(0, count, 1000):
        numbers = range(first, min(count, first + 1000))
        chosen = [random_.randrange(keys) if keys else number % 50_000 for number in numbers]
        messages = [
            {"value": values[number % len(values)], "key": b"c-%06d" % key}
            for number, key in zip(numbers, chosen, strict=True)
        ]
        while messages:
            queued = producer.produce_batch(topic, messages, partition=first // 1000 % PARTITIONS)
            messages = messages[queued:]
            producer.poll(0.01 if messages else 0)
    if producer.flush(CLIENT_SECONDS) or failed:
        raise BenchError(f"records of {topic} could not be written: {failed[:1]}")


def takes(names: Sequence[str], place: Place) -> list[tuple[str, str, Take]]:
    """Returns (measure, peer, function that takes one sample) of the selected measures."""
    if NAMES[0] not in names:
        return []
    others = (CONNECTOR, TUNED) if place.jars() else (CONSUMER,)
    found: list[tuple[str, str, Take]] = [
        (f"pipeline {label}", who, partial(read, place, who, label))
        for label in LABELS
        for who in (OTTLA, WIRE, *others)
    ]
    found += [
        (f"pipeline {use} {label}", who, partial(read, place, who, label, use))
        for use in USES
        for label in SIZES
        for who in (OTTLA, WIRE, *others)
    ]
    found += [
        (f"pipeline {EXPORTED} {label}", who, partial(export, place, who, label))
        for label in SIZES
        for who in (OTTLA, WIRE)
    ]
    if place.sizes.cores:
        found += [(f"pipeline cores {label}", OTTLA, partial(read_by_cores, place, label)) for label in SIZES]
        found += [(f"pipeline {job}", OTTLA, partial(run_job, place, job, label)) for job in JOBS for label in SIZES]
    return found


def read(place: Place, who: str, label: str, use: str = "read") -> Figures:
    """Returns thousands of records per second of one read."""
    name = f"pipeline {label}" if use == "read" else f"pipeline {use} {label}"
    rate = place.count(label) / place.seconds(CORES[0], who, label, use) / 1000
    found: Figures = {name: {who: rate}}
    if use == "parquet" and who in (CONNECTOR, TUNED):  # one figure, compared with both ways to write Parquet
        found[f"pipeline {EXPORTED} {label}"] = {who: rate}
    return found


def export(place: Place, who: str, label: str) -> Figures:
    """Returns thousands of records per second of one export."""
    return {f"pipeline {EXPORTED} {label}": {who: place.count(label) / place.export_seconds(who, label) / 1000}}


def read_by_cores(place: Place, label: str) -> Figures:
    """Reads with one core and with two, alternating, and without Spark."""
    two, one = (place.seconds(master, OTTLA, label) for master in CORES)
    alone = place.worker(CORES[1]).run("decode", **place.source(OTTLA, label))
    rates = {layer: place.count(label) / seconds / 1000 for layer, seconds in zip(LAYERS, (alone, one), strict=True)}
    found: Figures = {f"pipeline {layer} {label}": {OTTLA: rate} for layer, rate in rates.items()}
    return found | {f"pipeline cores {label}": {OTTLA: one / two}}


def run_job(place: Place, job: str, label: str) -> Figures:
    """Returns the MB per second with one core, and the speed-up of two."""
    two, one = (place.job_seconds(master, job, label) for master in CORES)
    rate = place.log_bytes(label) / one / 1e6
    return {f"pipeline {job} {label}": {OTTLA: rate}, f"pipeline cores {job} {label}": {OTTLA: one / two}}

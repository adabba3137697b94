"""The jobs that write, and the sinks: directories upgraded, compacted, exported and imported, and streams into a topic.

Owns these workloads, their measures and aims. Jobs work on directories of a broker that is stopped, those in place on a
copy that is made before the clock starts; Spark has started, too, and each job has run once before. What a sink
is compared with is that of Spark's connector, which writes at least once, to the same broker in the same run.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla_testing.bench import peers, raw
from ottla_testing.bench.pipeline_measures import (
    CONNECTOR,
    CORES,
    NAMES,
    PARTITIONS,
    SIZES,
    Figures,
    Place,
    Take,
    fill,
    value,
)
from ottla_testing.bench.stats import OTTLA, Aim, Measure

JOBS = ("upgrade", "compact", "export", "import")
FOREACH, STREAM, KAFKA = "foreachBatch", "ottla", "kafka"
SINKS = {"sink": FOREACH, "stream": STREAM}  # the measure by its word -> how the worker knows it
BASE_MS = 1_700_000_000_000
TOPIC = "pipeline"
FILES = 8  # two of them in each micro-batch

ABOUT = """\
             upgrade, compact, export, import: MB of log per second and core, local[1], read (import: written), of
             records uncompressed in v1 (upgrade), keyed so that about two in five stay (compact), to and from Parquet.
             sink, stream: thousands of rows per second from files to a topic, local[2], in micro-batches that Spark
             times, by write_exactly_once in foreachBatch and by the streaming sink, beside the connector's sink, which
             writes at least once"""


class Sizes(NamedTuple):
    """How much work it is: records by the size of their values; none where it is left out."""

    records: dict[str, int]
    rows: dict[str, int]
    segment_bytes: int = 16 << 20


FULL = Sizes(records={"100 B": 1_000_000, "1 KiB": 250_000}, rows={"100 B": 400_000, "1 KiB": 100_000})
QUICK = Sizes(records={}, rows={})  # these take as long as all the rest of a quick run

MEASURES = (
    *(Measure(f"pipeline {job} {size}", "MB/s") for job in JOBS for size in SIZES),
    *(Measure(f"pipeline cores {job} {size}", "x") for job in JOBS for size in SIZES),
    *(Measure(f"pipeline {word} {size}", "k/s") for word in SINKS for size in SIZES),
)
AIMS = tuple(Aim(f"pipeline {word} {size}", CONNECTOR, 0.8, True) for word in SINKS for size in SIZES)


class Stock:
    """What the jobs read, made when it is asked for first; in a folder of its own, which `close()` removes."""

    def __init__(self, place: Place, sizes: Sizes) -> None:
        self.place, self.sizes = place, sizes
        self._folder: Path | None = None
        self._made: dict[tuple[str, str], Path] = {}
        self._warm: set[tuple[str, ...]] = set()
        self._runs = 0

    @property
    def folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
        return self._folder

    def new(self) -> Path:
        """A name that nothing has."""
        self._runs += 1
        return self.folder / f"run-{self._runs}"

    def get(self, kind: str, size: str) -> Path:
        """What MAKERS make, once."""
        if (kind, size) not in self._made:
            self._made[kind, size] = MAKERS[kind](self, size)
        return self._made[kind, size]

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def is_warm(self, *what: str) -> bool:
        """Whether this was asked before."""
        before = what in self._warm
        self._warm.add(what)
        return before

    def seconds(self, master: str, job: str, size: str) -> tuple[float, int]:
        """One run of a job, and the bytes of log that it was about; before the first of its kind, one that warms up."""
        if not self.is_warm(master, job, size):
            self.seconds(master, job, size)
        run = RUNS[job](self, size)
        read = log_bytes(run.log)
        try:
            seconds = self.place.worker(master).ask("job", name=run.name, given=run.given, more=run.more)
            return seconds, read or log_bytes(run.log)
        finally:
            shutil.rmtree(run.made)


class Run(NamedTuple):
    """A call of a job; `log` is the directory whose bytes count, `made` what is removed behind it."""

    name: str
    given: list[str]
    more: dict[str, Any]
    log: Path
    made: Path


def log_bytes(folder: Path) -> int:
    """What the segments of a data directory have, less those of the broker's own topics."""
    found = (path for path in folder.glob("*/*.log") if not path.parent.name.startswith("__"))
    return sum(path.stat().st_size for path in found)


# -- what is made


def old_messages(stock: Stock, size: str) -> Path:
    """A data directory, as Kafka of before 0.11 leaves it: messages of v1, one by one, in several segments."""
    import numpy as np

    root = stock.new()
    count = stock.sizes.records[size] // PARTITIONS
    random_ = random.Random(size)
    messages = [message(b"c-%06d" % number, value(number, SIZES[size], random_), number) for number in range(5000)]
    template = np.frombuffer(b"".join(messages), np.uint8).reshape(len(messages), -1)
    each = max(1, stock.sizes.segment_bytes // template.shape[1])
    for partition in range(PARTITIONS):
        folder = root / f"{TOPIC}-{partition}"
        folder.mkdir(parents=True)
        for first in range(0, count, each):
            offsets = np.arange(first, min(count, first + each))
            segment = template[offsets % len(messages)]
            segment[:, :8] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
            segment.tofile(folder / f"{first:020d}.log")
            for suffix in (".index", ".timeindex"):
                (folder / f"{first:020d}{suffix}").touch()
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (root / ".kafka_cleanshutdown").touch()
    for name in ("recovery-point", "replication"):
        lines = [f"{TOPIC} {partition} {count}" for partition in range(PARTITIONS)]
        text = "\n".join(["0", str(len(lines)), *lines, ""])
        (root / f"{name}-offset-checkpoint").write_text(text)
    return root


def message(key: bytes, value: bytes, number: int) -> bytes:
    """An uncompressed message of v1, at offset 0."""
    fields = struct.pack(">bbqi", 1, 0, BASE_MS + number, len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", 0, len(fields) + 4, zlib.crc32(fields)) + fields


def keyed_records(stock: Stock, size: str) -> Path:
    """The data directory of a broker that was stopped, with a compacted topic that was never compacted."""
    count = stock.sizes.records[size]
    broker = peers.start_ottla("--override", "log.cleaner.enable=false")
    try:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(stock.sizes.segment_bytes)}
        raw.make_topic(broker.address, TOPIC, PARTITIONS, configs)
        fill(broker.bootstrap, TOPIC, SIZES[size], "none", count, keys=count // 2)
        broker.stop_cleanly()
        assert broker.data is not None
        return shutil.copytree(broker.data, stock.new(), ignore=shutil.ignore_patterns(".lock"))
    finally:
        broker.stop()


def parquet(stock: Stock, size: str) -> Path:
    """What `export` makes of the keyed records."""
    to = stock.new()
    given = [str(stock.get("keyed", size)), str(to)]
    stock.place.worker(CORES[0]).ask("job", name="export", given=given, more={"topics": [TOPIC]})
    return to


def rows(stock: Stock, size: str) -> Path:
    """Files of rows for a stream."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = stock.new()
    folder.mkdir()
    count = stock.sizes.rows[size] // FILES
    random_ = random.Random(size)
    values = [value(number, SIZES[size], random_) for number in range(5000)]
    for number in range(FILES):
        numbers = range(number * count, (number + 1) * count)
        keys = pa.array([b"c-%06d" % (one % 50_000) for one in numbers], pa.binary())
        table = pa.table({"key": keys, "value": pa.array([values[one % 5000] for one in numbers], pa.binary())})
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


MAKERS: dict[str, Callable[[Stock, str], Path]] = {
    "old": old_messages,
    "keyed": keyed_records,
    "parquet": parquet,
    "rows": rows,
}


# -- runs


def in_place(job: str, kind: str, stock: Stock, size: str) -> Run:
    """On a copy, of which nothing waits to be written to the disk any more."""
    made = shutil.copytree(stock.get(kind, size), stock.new())
    os.sync()
    return Run(job, [str(made)], {}, made, made)


def exporting(stock: Stock, size: str) -> Run:
    source, made = stock.get("keyed", size), stock.new()
    return Run("export", [str(source), str(made)], {"topics": [TOPIC]}, source, made)


def importing(stock: Stock, size: str) -> Run:
    source, made = stock.get("parquet", size), stock.new()
    return Run("import_records", [str(source)], {"data_dir": str(made)}, made, made)


RUNS: dict[str, Callable[[Stock, str], Run]] = {
    "upgrade": partial(in_place, "upgrade", "old"),
    "compact": partial(in_place, "compact", "keyed"),
    "export": exporting,
    "import": importing,
}


# -- samples


def takes(names: Sequence[str], stock: Stock) -> list[tuple[str, str, Take]]:
    """(what, of whom, how one sample of it is taken), if it was asked for."""
    if NAMES[0] not in names:
        return []
    found: list[tuple[str, str, Take]] = [
        (f"pipeline {job} {size}", OTTLA, partial(run_job, stock, job, size))
        for job in JOBS
        for size in stock.sizes.records
    ]
    for size in stock.sizes.rows:
        found += [(f"pipeline {word} {size}", OTTLA, partial(write, stock, word, size)) for word in SINKS]
        if stock.place.jars():
            found.append((f"pipeline sink {size}", CONNECTOR, partial(write_by_connector, stock, size)))
    return found


def run_job(stock: Stock, job: str, size: str) -> Figures:
    """MB per second with one core, and how much faster two are."""
    (two, _), (one, count) = (stock.seconds(master, job, size) for master in CORES)
    return {f"pipeline {job} {size}": {OTTLA: count / one / 1e6}, f"pipeline cores {job} {size}": {OTTLA: one / two}}


def write(stock: Stock, word: str, size: str) -> Figures:
    """Thousands of rows per second by one of our sinks."""
    return {f"pipeline {word} {size}": {OTTLA: rate(stock, SINKS[word], size)}}


def write_by_connector(stock: Stock, size: str) -> Figures:
    """The same by the connector's: one figure, beside both of ours."""
    found = rate(stock, KAFKA, size)
    return {f"pipeline {word} {size}": {CONNECTOR: found} for word in SINKS}


def rate(stock: Stock, sink: str, size: str) -> float:
    """Thousands of rows per second of one stream into a new topic; before the first of a sink, two that warm up: the
    JVM compiles for some seconds."""
    if not stock.is_warm(CORES[0], sink, size):
        rate(stock, sink, size)
        rate(stock, sink, size)
    broker, made = stock.place.broker, stock.new()
    topic, staging = made.name, made.with_name(f"{made.name}-staging")
    raw.make_topic(broker.address, topic, PARTITIONS)
    staging.mkdir()
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    if sink == STREAM:
        options["stagingLocation"] = str(staging)
    count = stock.sizes.rows[size] // FILES * FILES
    command = {"sink": sink, "rows": str(stock.get("rows", size)), "options": options, "count": count}
    return count / stock.place.worker(CORES[0]).ask("sink", **command) / 1000

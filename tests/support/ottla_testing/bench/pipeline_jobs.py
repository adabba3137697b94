"""The jobs that write, and the sinks: directories upgraded, compacted, exported and imported, and streams to a topic.
Owns these workloads, their measures and aims. Jobs work on directories of a stopped broker, in-place jobs on a copy
made
before the clock starts; Spark has started, and each job has run once before. The sinks are compared with Spark's
connector, which writes at least once, with the same broker in the same run.
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
SINKS = {"sink": FOREACH, "stream": STREAM}  # word of the measure -> sink of the worker
BASE_MS = 1_700_000_000_000
TOPIC = "pipeline"
FILES = 8  # two in each micro-batch

ABOUT = """\
             upgrade, compact, export, import: MB of log per second and core, local[1], read (import: written), of
             records uncompressed in v1 (upgrade), with keys so that about 40% are kept (compact), to and from Parquet.
             sink, stream: thousands of rows per second from files to a topic, local[2], in micro-batches timed by
             Spark, by write_exactly_once in foreachBatch and by the streaming sink, which writes at least once,
             compared with the connector's sink, which does, too"""


class Sizes(NamedTuple):
    """The amount of work: number of records by the size of their values; a size that is missing is not measured."""

    records: dict[str, int]
    rows: dict[str, int]
    segment_bytes: int = 16 << 20


FULL = Sizes(records={"100 B": 1_000_000, "1 KiB": 250_000}, rows={"100 B": 400_000, "1 KiB": 100_000})
QUICK = Sizes(records={}, rows={})  # these take as long as the rest of a quick run

MEASURES = (
    *(Measure(f"pipeline {job} {size}", "MB/s") for job in JOBS for size in SIZES),
    *(Measure(f"pipeline cores {job} {size}", "x") for job in JOBS for size in SIZES),
    *(Measure(f"pipeline {word} {size}", "k/s") for word in SINKS for size in SIZES),
)
AIMS = tuple(Aim(f"pipeline {word} {size}", CONNECTOR, 0.8, True) for word in SINKS for size in SIZES)


class Stock:
    """The inputs of the jobs, each created at its first use, in a folder that `close()` removes."""

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
        """Returns a new path."""
        self._runs += 1
        return self.folder / f"run-{self._runs}"

    def get(self, kind: str, size: str) -> Path:
        """Returns an input of MAKERS, created once."""
        if (kind, size) not in self._made:
            self._made[kind, size] = MAKERS[kind](self, size)
        return self._made[kind, size]

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def is_warm(self, *what: str) -> bool:
        """Returns whether this was requested before."""
        before = what in self._warm
        self._warm.add(what)
        return before

    def seconds(self, master: str, job: str, size: str) -> tuple[float, int]:
        """Runs a job; returns its seconds and the bytes of log. The first run of its kind is preceded by a warm-up."""
        if not self.is_warm(master, job, size):
            self.seconds(master, job, size)
        run = RUNS[job](self, size)
        read = log_bytes(run.log)
        try:
            seconds = self.place.worker(master).run("job", name=run.name, given=run.given, more=run.more)
            return seconds, read or log_bytes(run.log)
        finally:
            shutil.rmtree(run.made, ignore_errors=True)  # a job that failed may not have made it


class Run(NamedTuple):
    """A call of a job, see `pipeline_worker.py`; `log` is the directory whose bytes count, `made` is removed
    afterwards."""

    name: str
    given: list[str]
    more: dict[str, Any]
    log: Path
    made: Path


def log_bytes(folder: Path) -> int:
    """Returns the size of the segments of a data directory, without those of internal topics."""
    found = (path for path in folder.glob("*/*.log") if not path.parent.name.startswith("__"))
    return sum(path.stat().st_size for path in found)


# -- inputs


def old_messages(stock: Stock, size: str) -> Path:
    """Creates a data directory as left by Kafka before 0.11: single messages of v1 in several segments."""
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
    close_cleanly(root, count)
    return root


def close_cleanly(root: Path, count: int) -> None:
    """Writes the files of a stopped broker beside partitions of `count` records each."""
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (root / ".kafka_cleanshutdown").touch()
    for name in ("recovery-point", "replication"):
        lines = [f"{TOPIC} {partition} {count}" for partition in range(PARTITIONS)]
        text = "\n".join(["0", str(len(lines)), *lines, ""])
        (root / f"{name}-offset-checkpoint").write_text(text)


def message(key: bytes, value: bytes, number: int) -> bytes:
    """Returns an uncompressed message of v1 at offset 0."""
    fields = struct.pack(">bbqi", 1, 0, BASE_MS + number, len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", 0, len(fields) + 4, zlib.crc32(fields)) + fields


def keyed_records(stock: Stock, size: str) -> Path:
    """Creates the data directory of a stopped broker, with a compacted topic that was never compacted."""
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
    """Exports the keyed records."""
    to = stock.new()
    given = [str(stock.get("keyed", size)), str(to)]
    stock.place.worker(CORES[0]).run("job", name="export", given=given, more={"settings": {"topics": [TOPIC]}})
    return to


def rows(stock: Stock, size: str) -> Path:
    """Creates files of rows for a stream."""
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
    """Works on a copy that is completely written to disk."""
    made = shutil.copytree(stock.get(kind, size), stock.new())
    os.sync()
    return Run(job, [str(made)], {}, made, made)


def exporting(stock: Stock, size: str) -> Run:
    source, made = stock.get("keyed", size), stock.new()
    return Run("export", [str(source), str(made)], {"settings": {"topics": [TOPIC]}}, source, made)


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
    """Returns (measure, peer, function that takes one sample) of the selected measures."""
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
    """Returns the MB per second with one core, and the speed-up of two."""
    (two, _), (one, count) = (stock.seconds(master, job, size) for master in CORES)
    return {f"pipeline {job} {size}": {OTTLA: count / one / 1e6}, f"pipeline cores {job} {size}": {OTTLA: one / two}}


def write(stock: Stock, word: str, size: str) -> Figures:
    """Returns thousands of rows per second of one of Ottla's sinks."""
    return {f"pipeline {word} {size}": {OTTLA: rate(stock, SINKS[word], size)}}


def write_by_connector(stock: Stock, size: str) -> Figures:
    """The same for the connector's sink: one figure, compared with both."""
    found = rate(stock, KAFKA, size)
    return {f"pipeline {word} {size}": {CONNECTOR: found} for word in SINKS}


def rate(stock: Stock, sink: str, size: str) -> float:
    """Returns thousands of rows per second of one stream to a new topic. The first stream of a sink is preceded by two
    warm-ups: the JVM compiles for some seconds.
    """
    if not stock.is_warm(CORES[0], sink, size):
        rate(stock, sink, size)
        rate(stock, sink, size)
    broker, made = stock.place.broker, stock.new()
    topic = made.name
    raw.make_topic(broker.address, topic, PARTITIONS)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    count = stock.sizes.rows[size] // FILES * FILES
    command = {"sink": sink, "rows": str(stock.get("rows", size)), "options": options, "count": count}
    return count / stock.place.worker(CORES[0]).run("sink", **command) / 1000

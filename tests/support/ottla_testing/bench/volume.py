"""The pipeline on logs larger than memory: seconds and memory with 2, 4 and 8 GB, and what follows for 100 GB.
A log is written by copying a template of batches, whose base offsets their checksums do not cover. Memory is what a
process has for itself, without pages of files: the largest at any moment of the Python workers, each of which runs one
task at a time, and of the JVM.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla_testing.bench.pipeline_jobs import BASE_MS, TOPIC, close_cleanly
from ottla_testing.bench.pipeline_measures import CORES, PARTITIONS, Worker, value

NAMES = ("volume",)
GIGABYTES = (2, 4, 8)
WHOLE_GB = 100
TASK_MB = 1000
"""The memory that a task may have at any size."""
GROWN_MAX = 1.25
"""The memory with the largest log over that with the smallest, which is marked if it is larger."""
GB, MB = 10**9, 10**6
VALUE_BYTES = 1024
BATCH_RECORDS, TEMPLATE_BATCHES = 64, 256
SEGMENT_BYTES = 256 << 20
SAMPLE_S = 0.1

ABOUT = f"""\
volume       jobs and a read of a topic of {", ".join(map(str, GIGABYTES))} GB (1 KiB records, two partitions,
             local[2]): seconds, those of {WHOLE_GB} GB by the line through them, and the largest memory of a task and
             of the JVM; marked above {TASK_MB:,} MB for a task, or {GROWN_MAX:g} times that of the smallest"""

WHAT = ("read", "census", "audit", "export")


class Taken(NamedTuple):
    """What one run took."""

    what: str
    gigabytes: float
    seconds: float
    task_mb: float
    jvm_mb: float


def write_log(root: Path, size_bytes: int, *, segment_bytes: int = SEGMENT_BYTES) -> int:
    """Creates the data directory of a stopped broker with one topic; returns its number of records."""
    random_ = random.Random(VALUE_BYTES)
    records = [Record(n, BASE_MS + n, b"c-%06d" % n, value(n, VALUE_BYTES, random_)) for n in range(BATCH_RECORDS)]
    one = np.frombuffer(bytes(batch.build(records, batch.BatchFields(), base_offset=0)), np.uint8)
    each = min(TEMPLATE_BATCHES, max(1, segment_bytes // len(one)))
    template = np.tile(one, (each, 1))
    templates = max(1, round(size_bytes / PARTITIONS / template.size))
    in_segment = max(1, segment_bytes // template.size)
    for partition in range(PARTITIONS):
        folder = root / f"{TOPIC}-{partition}"
        folder.mkdir(parents=True)
        for first in range(0, templates, in_segment):
            base = first * each * BATCH_RECORDS
            with (folder / f"{base:020d}.log").open("wb") as file:
                for number in range(first, min(templates, first + in_segment)):
                    offsets = (number * each + np.arange(each)) * BATCH_RECORDS
                    template[:, :8] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
                    template.tofile(file)
            for suffix in (".index", ".timeindex"):
                (folder / f"{base:020d}{suffix}").touch()
    count = templates * each * BATCH_RECORDS
    close_cleanly(root, count)
    return count * PARTITIONS


class Memory:
    """The largest memory of the descendants of a process, sampled in a thread."""

    def __init__(self) -> None:
        self.task_bytes = self.jvm_bytes = 0

    def sample(self, root: int) -> None:
        children: dict[int, list[int]] = {}
        names: dict[int, tuple[str, int]] = {}
        for path in Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
                pid, parent = int(path.parent.name), int(fields["PPid"])
                anonymous = int(fields.get("RssAnon", "0").split()[0]) * 1024
            except (OSError, ValueError, KeyError):  # it has ended
                continue
            children.setdefault(parent, []).append(pid)
            names[pid] = fields["Name"].strip(), anonymous
        found = list(children.get(root, ()))
        while found:
            pid = found.pop()
            name, anonymous = names[pid]
            found += children.get(pid, ())
            if name == "java":
                self.jvm_bytes = max(self.jvm_bytes, anonymous)
            elif name.startswith("python"):
                self.task_bytes = max(self.task_bytes, anonymous)


@contextmanager
def sampled(pid: int) -> Iterator[Memory]:
    """Samples the descendants of a process until the end."""
    memory, ended = Memory(), threading.Event()

    def run() -> None:
        while not ended.wait(SAMPLE_S):
            memory.sample(pid)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield memory
    finally:
        ended.set()
        thread.join()


def command(what: str, log: Path, to: Path) -> tuple[str, dict[str, Any]]:
    """Returns a command of the worker."""
    if what == "read":
        return "read", {"source": "ottla_log", "options": {"path": str(log)}}
    if what == "export":
        return "job", {"name": what, "given": [str(log), str(to)], "more": {}}
    return "job", {"name": what, "given": [[str(log)]], "more": {}}


def take(folder: Path, gigabytes: float, log_line: Callable[[str], None]) -> list[Taken]:
    """Runs everything on a log of this size, each with a Spark of its own, so that memory is that of one run."""
    source, found = folder / "log", []
    write_log(source, int(gigabytes * GB))
    try:
        for what in WHAT:
            to = folder / "to"
            worker = Worker(CORES[0], "")
            try:
                with sampled(worker.pid) as memory:
                    do, more = command(what, source, to)
                    seconds = worker.run(do, **more)
            finally:
                worker.stop()
                shutil.rmtree(to, ignore_errors=True)
            found.append(Taken(what, gigabytes, seconds, memory.task_bytes / MB, memory.jvm_bytes / MB))
            log_line(f"volume: {found[-1]}")
    finally:
        shutil.rmtree(source, ignore_errors=True)
    return found


def take_all(log_line: Callable[[str], None], sizes: Sequence[float] = GIGABYTES) -> list[Taken]:
    """Returns all figures. Raises BenchError, OSError."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        return [one for size in sizes for one in take(Path(folder), size, log_line)]


def extrapolated(figures: Sequence[Taken], gigabytes: float = WHOLE_GB) -> float:
    """Returns the seconds for a size by the straight line nearest to those of the figures."""
    slope, start = np.polyfit([one.gigabytes for one in figures], [one.seconds for one in figures], 1)
    return float(slope * gigabytes + start)


def is_flat(figures: Sequence[Taken]) -> bool:
    """Whether a task needs no more memory for a larger log."""
    ones = sorted(figures, key=lambda one: one.gigabytes)
    return all(one.task_mb <= TASK_MB for one in ones) and ones[-1].task_mb <= GROWN_MAX * ones[0].task_mb


def table(figures: Sequence[Taken]) -> str:
    """Returns a line for each kind."""
    sizes = sorted({one.gigabytes for one in figures})
    heads = [f"{size:g} GB" for size in sizes]
    lines = [f"{'':8}" + "".join(f"{head:>9}" for head in (*heads, f"{WHOLE_GB} GB"))]
    lines[0] += "".join(f"{head:>13}" for head in ("task MB", "JVM MB"))
    for what in dict.fromkeys(one.what for one in figures):
        ones = sorted((one for one in figures if one.what == what), key=lambda one: one.gigabytes)
        seconds = "".join(f"{one.seconds:7.1f} s" for one in ones)
        memory = [
            "/".join(f"{mb:.0f}" for mb in all_mb) for all_mb in ([o.task_mb for o in ones], [o.jvm_mb for o in ones])
        ]
        line = f"{what:8}{seconds}{extrapolated(ones):7.0f} s" + "".join(f"{one:>16}" for one in memory)
        lines.append(line + ("" if is_flat(ones) else "  GROWS"))
    return "\n".join(lines)

"""Logs without a broker, compared with plain files: appending, reading, recovery after a kill, compaction.
Owns these workloads, and the folders that they share in a run. Plain files are measured with the same sizes on the same
file system. Rates are MB per second of log data.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ottla.protocol.records import batch
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import PartitionLog, TopicIdPartition
from ottla_testing.bench.raw import BenchError

HERE = Path(__file__).resolve().parent
OTTLA, FILE = "ottla", "file"
SIZES = {"16 KiB": (16, 1000), "1 MiB": (1024, 1000)}  # records per batch, bytes per value
RECOVERED = {"16 KiB": (16, 1000), "100 B": (1, 100)}
KEYED = (64, 256)
FIRST_MS = 1_700_000_000_000
WORKER_SECONDS = 300.0
Figures = dict[str, dict[str, float]]  # measure -> peer -> figure


class Folders:
    """Temporary folders of one run; expensive ones are created once. `close` removes them."""

    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
        self._made: dict[str, Path] = {}
        self._count = 0

    def fresh(self) -> Path:
        self._count += 1
        return self._root / f"{self._count}"

    def made(self, what: str, make: Callable[[Path], None]) -> Path:
        """Returns the folder of this name, created at its first use."""
        if what not in self._made:
            folder = self.fresh()
            make(folder)
            self._made[what] = folder
        return self._made[what]

    def close(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)


def made_batch(records: int, record_bytes: int) -> bytes:
    """Returns one uncompressed batch of records."""
    value = random.Random(1).randbytes(record_bytes)
    return bytes(batch.build([batch.Record(n, FIRST_MS + n, None, value, ()) for n in range(records)]))


# -- appending and reading


def written_and_read(folders: Folders, label: str, size_bytes: int) -> Figures:
    """Appends and reads batches of a size, with a log and with a plain file."""
    data = made_batch(*SIZES[label])
    count = max(8, size_bytes // len(data))
    log_writes, log_reads = _log_rates(folders.fresh(), data, count)
    file_writes, file_reads = _file_rates(folders.fresh(), data, count)
    return {
        f"append {label}": {OTTLA: log_writes, FILE: file_writes},
        f"read {label}": {OTTLA: log_reads, FILE: file_reads},
    }


def _log_rates(folder: Path, data: bytes, count: int) -> tuple[float, float]:
    log = PartitionLog.open(
        DiskFiles(),
        folder,
        TopicIdPartition("bench", 0),
        config=LogConfig(),
        now_ms=FIRST_MS,
        checkpoints=LogCheckpoints(clean_shutdown=True),
    )
    # As from a socket: the log may patch each buffer. They are created before the clock runs.
    buffers = [bytearray(data) for _ in range(count)]
    started = time.perf_counter()
    for buffer in buffers:
        log.append(buffer, now_ms=FIRST_MS)
    writing = time.perf_counter() - started
    del buffers
    read, offset = 0, 0
    started = time.perf_counter()
    while offset < log.log_end_offset:
        taken = bytes(log.read(offset, len(data)).records)
        offset += batch.read_header(taken).last_offset_delta + 1
        read += len(taken)
    reading = time.perf_counter() - started
    if read != count * len(data):
        raise BenchError(f"{read} bytes were read of {count * len(data)}")
    log.abandon()
    shutil.rmtree(folder)
    return count * len(data) / writing / 1e6, read / reading / 1e6


def _file_rates(path: Path, data: bytes, count: int) -> tuple[float, float]:
    size = len(data)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    buffers = [bytearray(data) for _ in range(count)]
    try:
        started = time.perf_counter()
        for number, buffer in enumerate(buffers):
            os.pwrite(fd, buffer, number * size)
        writing = time.perf_counter() - started
        del buffers
        started = time.perf_counter()
        for number in range(count):
            os.pread(fd, size, number * size)
        reading = time.perf_counter() - started
    finally:
        os.close(fd)
        os.remove(path)
    return count * size / writing / 1e6, count * size / reading / 1e6


# -- in a process of its own


def filled(folders: Folders, *numbers: int) -> Path:
    """Returns a log whose writer was killed by SIGKILL; `numbers` are arguments of the worker."""

    def fill(folder: Path) -> None:
        command = [sys.executable, str(HERE / "storage_worker.py"), "fill", str(folder), *map(str, numbers)]
        if subprocess.run(command, timeout=WORKER_SECONDS, check=False).returncode != -signal.SIGKILL:
            raise BenchError("the log could not be filled")

    return folders.made(f"filled {numbers}", fill)


def _worked(what: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, str(HERE / "storage_worker.py"), what, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WORKER_SECONDS, check=False)
    if done.returncode:
        raise BenchError(f"{what}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)


def _memory_mb(done: dict[str, float]) -> float:
    return (done["most_kib"] - done["idle_kib"]) * 1024 / 1e6


def recovered(folders: Folders, label: str, size_bytes: int) -> Figures:
    """Opens a log whose writer was killed; a plain file of that size is read in pieces of 64 KiB."""
    folder = filled(folders, size_bytes, *RECOVERED[label])
    done = _worked("recover", folder)
    found: Figures = {f"recovery {label}": {OTTLA: done["bytes"] / done["seconds"] / 1e6, FILE: _reading(folder)}}
    if label == "16 KiB":
        found["recovery memory"] = {OTTLA: _memory_mb(done)}
    return found


def _reading(folder: Path) -> float:
    read = 0
    started = time.perf_counter()
    for path in folder.glob("*.log"):
        with path.open("rb", buffering=0) as file:
            while piece := file.read(1 << 16):
                read += len(piece)
    return read / (time.perf_counter() - started) / 1e6


def compacted(folders: Folders, size_bytes: int, keys: int) -> Figures:
    """Compacts a log with several records per key; plain files of that size are copied."""
    folder = filled(folders, size_bytes, *KEYED, keys)
    done = _worked("compact", folder)
    if done["written_records"] != done["keys"]:
        raise BenchError(f"{done['written_records']} records are kept for {done['keys']} keys")
    started, copy = time.perf_counter(), folders.fresh()
    copied = 0
    copy.mkdir()
    for path in folder.glob("*.log"):
        with path.open("rb", buffering=0) as source, (copy / path.name).open("wb", buffering=0) as target:
            while piece := source.read(1 << 20):
                copied += target.write(piece)
            os.fsync(target.fileno())
    copying = copied / (time.perf_counter() - started) / 1e6
    shutil.rmtree(copy)
    return {
        "compact": {OTTLA: done["bytes"] / done["seconds"] / 1e6, FILE: copying},
        "compact memory": {OTTLA: _memory_mb(done)},
    }

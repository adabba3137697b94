"""Storage in a process of its own, to measure its memory: fills a log and dies, recovers one, compacts one.
    python storage_worker.py fill FOLDER BYTES RECORDS_OF_A_BATCH BYTES_OF_A_RECORD [KEYS]
    python storage_worker.py recover FOLDER
    python storage_worker.py compact FOLDER
`fill` kills itself by SIGKILL, like a killed broker: nothing is closed, and indexes are written only by rolls. The
others print one JSON object: seconds, bytes, and KiB of memory, idle and at the peak.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from ottla.protocol.records import batch
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import PartitionLog, TopicIdPartition

FIRST_MS = 1_700_000_000_000
COMPACTED_SEGMENT_BYTES = 64 << 20
MADE_BATCHES = 64  # without keys these batches are repeated, which does not make checksums faster


def memory_kib(name: str) -> int:
    """Returns VmRSS or VmHWM of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise OSError(f"no {name} in /proc/self/status")


def opened(folder: str, clean_shutdown: bool, segment_bytes: int = 1 << 30) -> PartitionLog:
    return PartitionLog.open(
        DiskFiles(),
        folder,
        TopicIdPartition("bench", 0),
        config=LogConfig(segment_bytes=segment_bytes),
        now_ms=FIRST_MS,
        checkpoints=LogCheckpoints(clean_shutdown=clean_shutdown),
    )


def fill(folder: str, size_bytes: int, records: int, record_bytes: int, keys: int = 0) -> None:
    """Writes about `size_bytes` and dies. With `keys`, each record has one of this many random keys."""
    log = opened(folder, True, COMPACTED_SEGMENT_BYTES if keys else 1 << 30)
    rng = random.Random(1)
    value = rng.randbytes(record_bytes)
    made: list[bytes] = []
    while log.size_bytes < size_bytes:
        if keys or len(made) < MADE_BATCHES:
            numbers = rng.choices(range(keys), k=records) if keys else [0] * records
            taken = [
                batch.Record(n, FIRST_MS + n, b"key-%012d" % number if keys else None, value, ())
                for n, number in enumerate(numbers)
            ]
            made.append(bytes(batch.build(taken)))
        data = made.pop() if keys else made[log.log_end_offset // records % len(made)]
        log.append(bytearray(data), now_ms=FIRST_MS)
    os.kill(os.getpid(), signal.SIGKILL)


def recover(folder: str) -> dict[str, float]:
    """Opens a log that was not closed, and leaves it unchanged."""
    before = set(os.listdir(folder))
    idle_kib = memory_kib("VmRSS")
    started = time.perf_counter()
    log = opened(folder, False)
    seconds = time.perf_counter() - started
    if log.cut_bytes:
        raise SystemExit(f"{log.cut_bytes} bytes were truncated")
    most_kib = memory_kib("VmHWM")
    log.abandon()
    for name in set(os.listdir(folder)) - before:
        os.remove(os.path.join(folder, name))
    return {"seconds": seconds, "bytes": log.size_bytes, "idle_kib": idle_kib, "most_kib": most_kib}


def compact(folder: str) -> dict[str, float]:
    """Compacts all but the newest segment, from the first offset on; afterwards the folder is as before."""
    from ottla.storage.compaction import compaction

    files = DiskFiles()
    names = sorted(name for name in os.listdir(folder) if name.endswith(".log"))
    facts: list[compaction.SegmentFacts] = []
    for name, following in itertools.pairwise(names):
        path = os.path.join(folder, name)
        size, modified = files.size(path), files.modified_ns(path)
        facts.append(compaction.SegmentFacts(int(name[:20]), size, int(following[:20]), modified))
    task = compaction.Clean(
        directory=folder,
        segments=tuple(facts),
        first_dirty_offset=0,
        end_offset=facts[-1].next_offset,
        now_ms=FIRST_MS,
        delete_retention_ms=86_400_000,
        active_producers={},
        segment_bytes=COMPACTED_SEGMENT_BYTES,
    )
    idle_kib = memory_kib("VmRSS")
    started = time.perf_counter()
    made = list(compaction.clean(files, task))
    seconds = time.perf_counter() - started
    most_kib = memory_kib("VmHWM")
    end = made[-1]
    if not isinstance(end, compaction.Cleaned) or end.end_offset != task.end_offset:
        raise SystemExit("the compaction is not complete")
    for name in os.listdir(folder):
        if name.endswith(".cleaned"):
            os.remove(os.path.join(folder, name))
    return {
        "seconds": seconds,
        "bytes": sum(segment.size_bytes for segment in facts),
        "idle_kib": idle_kib,
        "most_kib": most_kib,
        "keys": end.keys,
        "written_bytes": end.written_bytes,
        "written_records": end.written_records,
    }


if __name__ == "__main__":
    what, where, *numbers = sys.argv[1:]
    if what == "fill":
        fill(where, *map(int, numbers))
    print(json.dumps({"recover": recover, "compact": compact}[what](where)))

"""Compacts a large log in this process, and reports the cost: `compaction_memory.py FOLDER MEGABYTES KEYS`.

Prints JSON: the peak memory above idle (bytes), seconds of CPU time, MB/s of the read bytes. Idle is the process with
everything imported and the log written. The requirement is 64 MiB for 1024 and 1000000.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from ottla.protocol.records import batch
from ottla.storage.compaction.compaction import Clean, Cleaned, SegmentFacts, clean
from ottla.storage.compaction.swap import swap_in
from ottla.storage.io.files import DiskFiles
from ottla.storage.segments.segment import file_name

RECORDS_PER_BATCH = 100
VALUE_BYTES = 1000
SEGMENT_BYTES = 128 << 20


def status_bytes(field: str) -> int:
    """Returns a field of this process's status: VmRSS is its memory now, VmHWM the most since the last
    `reset_highest`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/self/status")


def reset_highest() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def write_log(folder: Path, size_bytes: int, keys: int) -> tuple[SegmentFacts, ...]:
    """Writes segments of uncompressed batches with repeating keys. One batch is modified again and again, since
    building so many would take minutes; its records are all of one size."""
    from crc32c import crc32c

    key_of = "{:012d}".format
    records = [batch.Record(n, 1000, key_of(0).encode(), bytes(VALUE_BYTES)) for n in range(RECORDS_PER_BATCH)]
    made = batch.build(records, leader_epoch=0)
    places = [made.index(b"000000000000", 61)]
    while (found := made.find(b"000000000000", places[-1] + VALUE_BYTES)) >= 0:
        places.append(found)
    assert len(places) == RECORDS_PER_BATCH
    facts: list[SegmentFacts] = []
    offset = written = 0
    while written < size_bytes:
        base, path = offset, folder / file_name(offset)
        with path.open("wb") as file:
            while file.tell() < SEGMENT_BYTES and written < size_bytes:
                for number, place in enumerate(places):
                    made[place : place + 12] = key_of((offset + number) * 7 % keys).encode()
                made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
                made[0:8] = offset.to_bytes(8, "big")
                file.write(made)
                offset += RECORDS_PER_BATCH
                written += len(made)
            size = file.tell()
        facts.append(SegmentFacts(base, size, offset, os.stat(path).st_mtime_ns))
    return tuple(facts)


def main(folder: Path, size_bytes: int, keys: int) -> dict[str, float]:
    files = DiskFiles()
    segments = write_log(folder, size_bytes, keys)
    task = Clean(
        directory=str(folder), segments=segments, first_dirty_offset=0, end_offset=segments[-1].next_offset,
        now_ms=10_000, delete_retention_ms=100, active_producers={},
    )  # fmt: skip
    reset_highest()
    idle, started, wall = status_bytes("VmRSS"), time.process_time(), time.monotonic()
    ended: Cleaned | None = None
    for found in clean(files, task):
        if isinstance(found, Cleaned):
            ended = found
        else:
            swap_in(files, str(folder), [made.base_offset for made in found.new], found.old)
    seconds = time.process_time() - started
    assert ended is not None and ended.end_offset == task.end_offset
    return {
        "bytes": ended.read_bytes,
        "keys": ended.keys,
        "left_records": ended.written_records,
        "above_idle_bytes": status_bytes("VmHWM") - idle,
        "seconds": round(seconds, 2),
        "wall_seconds": round(time.monotonic() - wall, 2),
        "megabytes_per_second": round(ended.read_bytes / 1e6 / seconds, 1),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]) << 20, int(sys.argv[3]))))

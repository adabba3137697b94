"""Converting records between message formats, compared with kafka-python rewriting the same data in the same process.
Owns the data and both ways to rewrite it. Rates are per second of CPU time, that is, of one core. They count the bytes
of keys and values: the size of a compressed set does not show the work.
"""

from __future__ import annotations

import functools
import random
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.protocol.records import batch, convert, formats, legacy
from ottla.protocol.records.batch import Record
from ottla.protocol.records.steps import run
from ottla_testing.bench.raw import BenchError

with warnings.catch_warnings():  # its import warns
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
SIZES = {"100 B": 100, "1 KiB": 1024}
DIRECTIONS = {"up": (1, 2), "down": (2, 1)}  # from magic, to magic
SET_BYTES = 256 * 1024
SAMPLE_SECONDS = 0.05  # of CPU time at least
OTTLA, KAFKA_PYTHON = "ottla", "kafka-python"
LABELS = tuple(f"convert {way} {codec} {size}" for way in DIRECTIONS for codec in CODECS for size in SIZES)
FIRST_TIMESTAMP = 1_700_000_000_000

Rewrite = Callable[[bytes], Any]


class Case(NamedTuple):
    """One measure: the data, both ways to rewrite it, and the expected result."""

    label: str
    data: bytes
    ways: dict[str, Rewrite]
    expected: Sequence[tuple[bytes | None, bytes | None]]
    bytes: int


@functools.cache
def case(way: str, codec: str, size: str) -> Case:
    """Returns one set of records in the source format."""
    source, target = DIRECTIONS[way]
    found = _records(SIZES[size])
    made = legacy.build(found, magic=1, codec=CODECS[codec]) if source == 1 else batch.build(found, codec=CODECS[codec])
    ways: dict[str, Rewrite] = {
        OTTLA: _up if way == "up" else _down,
        KAFKA_PYTHON: lambda data: _by_kafka_python(data, target, CODECS[codec]),
    }
    size_bytes = sum(len(record.key or b"") + len(record.value or b"") for record in found)
    expected = [(record.key, record.value) for record in found]
    return Case(f"convert {way} {codec} {size}", bytes(made), ways, expected, size_bytes)


def _records(size: int) -> list[Record]:
    """Returns about SET_BYTES of records whose values compress like text, to about a third."""
    rng = random.Random(1)
    words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(2000)]
    found = []
    for index in range(SET_BYTES // size):
        value = b" ".join(rng.choices(words, k=size // 3))[:size]
        found.append(Record(index, FIRST_TIMESTAMP + index, b"key-%d" % (index % 100), value, ()))
    return found


def _up(data: bytes) -> Any:
    return run(convert.up_set(data))


def _down(data: bytes) -> Any:
    return run(convert.down(data, 1, 0))


def _by_kafka_python(data: bytes, magic: int, codec: int) -> bytes:
    """Reads as kafka-python's consumer does, with checksums, and writes as its producer does."""
    builder = MemoryRecordsBuilder(magic=magic, compression_type=codec, batch_size=1 << 30)
    source = MemoryRecords(data)
    while source.has_next():
        entry = source.next_batch()
        if not entry.validate_crc():
            raise BenchError("kafka-python finds the records damaged")
        for record in entry:
            builder.append(record.timestamp, record.key, record.value)
    builder.close()
    return bytes(builder.buffer())


def rates(label: str) -> dict[str, float]:
    """Returns the rates of Ottla and kafka-python in MB per second of CPU time. Raises BenchError if records are
    missing."""
    _, way, codec, size = label.split(" ", 3)
    taken = case(way, codec, size)
    found: dict[str, float] = {}
    for name, rewrite in taken.ways.items():
        check(taken, rewrite(taken.data))
        count = 0
        started = time.process_time()
        while (seconds := time.process_time() - started) < SAMPLE_SECONDS:
            rewrite(taken.data)
            count += 1
        found[name] = taken.bytes * count / seconds / 1e6
    return found


def check(taken: Case, result: Any) -> None:
    """Raises BenchError unless the result has the records of the case in the target format."""
    wanted = DIRECTIONS[taken.label.split()[1]][1]
    found = []
    for position, header in formats.headers(result):
        if header.magic != wanted or not formats.crc_matches(result, position, header):
            raise BenchError(f"{taken.label}: an entry of format v{header.magic}, or with a wrong checksum")
        # kafka-python's wrappers have offset 0, like those of old producers.
        inside = batch.records(result, position) if wanted == 2 else legacy.records(result, position, produced=True)
        found += [(record.key, record.value) for record in inside]
    if found != list(taken.expected):
        raise BenchError(f"{taken.label}: {len(found)} records in the result, or wrong ones")

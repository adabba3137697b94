"""Checking the records of a produced batch, compared with kafka-python reading the same batch in the same process.
Both read every record: Ottla's check decides whether a batch is stored, kafka-python's consumer parses it. Rates are
per
second of processor time, that is, of one core.
"""

from __future__ import annotations

import functools
import random
import time
import warnings
from typing import Any, NamedTuple

from ottla.protocol.records import batch
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.rules import Rules
from ottla.protocol.records.steps import run
from ottla.protocol.records.validate import preparing
from ottla_testing.bench.raw import BenchError

with warnings.catch_warnings():  # its import warns
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecords

OTTLA, KAFKA_PYTHON = "ottla", "kafka-python"
BATCH_BYTES = 256 * 1024
SAMPLE_SECONDS = 0.05  # of processor time at least
NOW_MS = 1_700_000_000_000
SIZES = {"100 B": 100, "1 KiB": 1024}
LABELS = (
    *(f"validate {codec} {size}" for codec in ("none", "lz4") for size in SIZES),
    "validate none 100 B, 3 headers",
)


class Case(NamedTuple):
    """A batch and the number of its records."""

    data: bytes
    records: int


@functools.cache
def case(label: str) -> Case:
    """Returns the batch of a label, with values of random bytes, which are incompressible."""
    _, codec, rest = label.split(" ", 2)
    size = SIZES[rest.partition(",")[0]]
    headers = [Header(f"header-{number}", b"value") for number in range(3)] if rest.endswith("headers") else []
    source = random.Random(1)
    records = [
        Record(index, NOW_MS + index, b"key-%d" % (index % 100), source.randbytes(size), headers)
        for index in range(BATCH_BYTES // size)
    ]
    return Case(bytes(batch.build(records, codec=3 if codec == "lz4" else 0)), len(records))


def _by_ottla(data: bytes) -> int:
    return run(preparing(bytearray(data), Rules(), NOW_MS)).header.record_count


def _by_kafka_python(data: bytes) -> int:
    source, count = MemoryRecords(data), 0
    while source.has_next():
        entry: Any = source.next_batch()
        if not entry.validate_crc():
            raise BenchError("kafka-python finds the records damaged")
        count += sum(1 for _ in entry)
    return count


def rates(label: str) -> dict[str, float]:
    """Returns thousands of records per second of processor time. Raises BenchError if records are missing."""
    taken = case(label)
    found: dict[str, float] = {}
    for name, check in ((OTTLA, _by_ottla), (KAFKA_PYTHON, _by_kafka_python)):
        if check(taken.data) != taken.records:
            raise BenchError(f"{label}: {name} does not see all records")
        count = 0
        started = time.process_time()
        while (seconds := time.process_time() - started) < SAMPLE_SECONDS:
            check(taken.data)
            count += 1
        found[name] = taken.records * count / seconds / 1e3
    return found

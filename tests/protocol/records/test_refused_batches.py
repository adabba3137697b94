"""What Apache Kafka answered to damaged record batches, and that what is accepted can be read by every consumer.

`golden/refused_batches.jsonl` is made by `tests/interop/refused_batches.py`.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from kafka.record.memory_records import MemoryRecords

from ottla.broker.errors import code_of
from ottla.broker.releases.profiles import profile
from ottla.protocol.records import batch, walk
from ottla.protocol.records.rules import UNLIMITED_MS, Rules
from ottla.protocol.records.validate import place, prepare
from ottla_testing.protocol.mutated_batches import cases

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
HOUR_MS = 3_600_000
GOLDEN = Path(__file__).with_name("golden") / "refused_batches.jsonl"
ANSWERS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
OF_RELEASE = "append_time_bit_allowed counted_record_errors old_formats one_magic record_errors unnumbered_fail".split()
RULES = {
    "plain": Rules(),
    "append": Rules(log_append_time=True),
    "compact": Rules(compacted=True),
    "gzip": Rules(compression=1),
    "uncompressed": Rules(compression=0),
}


def answered(answer: dict[str, Any]) -> tuple[int, list[int]]:
    """(error code, refused records) of ours for the batch of an answer of Kafka."""
    behaviour = profile(answer["release"]).behaviour
    rules = dataclasses.replace(
        RULES[answer["topic"]],
        timestamp_after_max_ms=HOUR_MS if answer["release"] == "4.3" else UNLIMITED_MS,
        **{name: getattr(behaviour, name) for name in OF_RELEASE},
    )
    try:
        prepare(bytearray(base64.b64decode(answer["records"])), rules, answer["now_ms"], answer["version"])
    except Exception as error:
        return code_of(error), [one.batch_index for one in getattr(error, "record_errors", [])]
    return 0, []


@pytest.mark.parametrize("part", range(8))
def test_damaged_batches_are_answered_as_by_kafka(part: int) -> None:
    chosen = ANSWERS[part::8]
    for answer in chosen[: max(10, int(len(chosen) * SCALE))]:
        code, refused = answered(answer)
        assert code == answer["code"], answer
        if answer["version"] >= 8:
            assert refused == answer["refused"], answer


# What Kafka accepts and kafka-python does not read: such attributes, and header keys that are not UTF-8.
def has_odd_attributes(data: bytearray | memoryview) -> bool:
    """Whether kafka-python misreads a record: it takes the attributes for a varint."""
    header = batch.read_header(data)
    payload, position = batch.payload(data, 0, header), 0
    for _ in range(header.record_count):
        if payload[walk.varint(payload, position)[1]] > 127:
            return True
        position = walk.record(payload, position, len(payload)).end
    return False


@pytest.mark.parametrize("part", range(4))
def test_accepted_batches_are_read_whole_by_every_consumer(part: int) -> None:
    seed = random.randrange(2**32)
    accepted = 0
    for case in cases(seed, int(400 * SCALE), 1_790_000_000_000, old=True):
        if case.version < 3 and case.records[16:17] != b"\x02":
            continue
        try:
            ready = prepare(bytearray(case.records), RULES[case.topic], 1_790_000_000_000, case.version)
        except Exception as error:
            assert code_of(error) not in (None, 0), (seed, case)
            continue
        if not ready.headers:
            continue  # a set that is cut
        ready = place(ready, 1000, 0)
        found = list(batch.records(bytes(ready.buffer)))
        assert len(found) == ready.header.record_count, (seed, case)
        accepted += 1
        keys = "".join(header.key for one in found for header in one.headers)
        if has_odd_attributes(ready.buffer) or any("\udc80" <= letter <= "\udcff" for letter in keys):
            continue
        other = MemoryRecords(bytes(ready.buffer))
        read = [(one.key, one.value, one.headers) for one in other.next_batch() or ()]
        ours = [(one.key, one.value, [(header.key, header.value) for header in one.headers]) for one in found]
        assert read == ours, (seed, case)
        assert other.next_batch() is None
    assert accepted, seed

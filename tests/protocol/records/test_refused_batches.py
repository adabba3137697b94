"""Damaged record batches get Apache Kafka's error codes, and every consumer can read the accepted ones.

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
RESPONSES: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
OF_RELEASE = "append_time_bit_allowed counted_record_errors old_formats one_magic record_errors unnumbered_fail".split()
RULES = {
    "plain": Rules(),
    "append": Rules(log_append_time=True),
    "compact": Rules(compacted=True),
    "gzip": Rules(compression=1),
    "uncompressed": Rules(compression=0),
}


def our_outcome(response: dict[str, Any]) -> tuple[int, list[int]]:
    """Returns (error code, refused records) of Ottla for the batch of a recorded response of Kafka."""
    behaviour = profile(response["release"]).behaviour
    rules = dataclasses.replace(
        RULES[response["topic"]],
        timestamp_after_max_ms=HOUR_MS if response["release"] == "4.3" else UNLIMITED_MS,
        **{name: getattr(behaviour, name) for name in OF_RELEASE},
    )
    try:
        prepare(bytearray(base64.b64decode(response["records"])), rules, response["now_ms"], response["version"])
    except Exception as error:
        return code_of(error), [one.batch_index for one in getattr(error, "record_errors", [])]
    return 0, []


@pytest.mark.parametrize("part", range(8))
def test_damaged_batches_get_kafkas_error_codes(part: int) -> None:
    chosen = RESPONSES[part::8]
    for response in chosen[: max(10, int(len(chosen) * SCALE))]:
        code, refused = our_outcome(response)
        assert code == response["code"], response
        if response["version"] >= 8:
            assert refused == response["refused"], response


# Kafka accepts and kafka-python cannot read: such attributes, and header keys that are not UTF-8.
def has_odd_attributes(data: bytearray | memoryview) -> bool:
    """Returns whether kafka-python misreads a record: it parses the attributes as a varint."""
    header = batch.read_header(data)
    payload, position = batch.payload(data, 0, header), 0
    for _ in range(header.record_count):
        if payload[walk.varint(payload, position)[1]] > 127:
            return True
        position = walk.record(payload, position, len(payload)).end
    return False


@pytest.mark.parametrize("part", range(4))
def test_accepted_batches_are_fully_read_by_every_consumer(part: int) -> None:
    seed = random.randrange(2**32)
    accepted = 0
    # One in seven is accepted: of 40 cases, as at a tenth of the size, none is in one run of 700.
    for case in cases(seed, int(400 * max(1.0, SCALE)), 1_790_000_000_000, old=True):
        if case.version < 3 and case.records[16:17] != b"\x02":
            continue
        try:
            ready = prepare(bytearray(case.records), RULES[case.topic], 1_790_000_000_000, case.version)
        except Exception as error:
            assert code_of(error) not in (None, 0), (seed, case)
            continue
        if not ready.headers:
            continue  # an incomplete set
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

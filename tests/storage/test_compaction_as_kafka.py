"""Whole passes held to those of Kafka 4.3.1's cleaner: the same segments, batches, times and transaction indexes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from batches import FOLDER
from compacting import Laid, bases, clean_once, facts, lay
from make_cleaned import shown
from make_compacted import COMPACTED, RETENTION_MS, offsets
from simulated_files import SimulatedFiles

from ottla.protocol.records import formats
from ottla.storage.compaction import active_producers
from ottla.storage.producer_state import replay

LOGS = [json.loads(line) for line in COMPACTED.read_text().splitlines()]


def found(files: SimulatedFiles, end: int) -> list[list[Any]]:
    """What is below an offset, as the recording has it."""
    made: list[list[Any]] = []
    for base in bases(files):
        if base < end:
            path = f"{FOLDER}/{base:020d}"
            content = files.read_bytes(path + ".log")
            index = files.read_bytes(path + ".txnindex") if files.exists(path + ".txnindex") else b""
            time_ms = files.modified_ns(path + ".log") // 1_000_000
            made.append([base, time_ms, shown(content), offsets(content), index.hex()])
    return made


@pytest.mark.parametrize("number", range(len(LOGS)))
def test_every_pass_leaves_what_kafka_leaves(number: int) -> None:
    log = LOGS[number]
    files = SimulatedFiles()
    stored = [
        (base, time, base64.b64decode(content), bytes.fromhex(index)) for base, time, content, index in log["segments"]
    ]
    lay(files, [Laid(*part[:2], [part[2]]) for part in stored], {part[0]: [part[3]] for part in stored if part[3]})
    whole = b"".join(part[2] for part in stored)
    known = active_producers(replay((header for _, header in formats.headers(whole)), 0))
    dirty = 0
    for now_ms, end, wanted in log["passes"]:
        done = clean_once(
            files, dirty, end, now_ms=now_ms, delete_retention_ms=RETENTION_MS, active_producers=known,
            segment_bytes=log["segment_bytes"], keep_empty_at_end=True,
        )  # fmt: skip
        dirty = done.end_offset
        assert dirty == end and facts(files, end)
        assert found(files, end) == wanted


def test_the_recording_has_all_that_there_is_to_be_seen() -> None:
    left = [batch for log in LOGS for _, _, segments in log["passes"] for part in segments for batch in part[2]]
    attributes = [batch[5] for batch in left]
    assert any(bits & 0x40 and not bits & 0x20 for bits in attributes), "tombstones with a horizon"
    assert any(bits & 0x60 == 0x60 for bits in attributes), "markers with a horizon"
    assert any(not batch[12] and not batch[5] & 0x20 for batch in left), "emptied batches"
    assert any(not batch[12] and batch[5] & 0x20 for batch in left), "emptied markers"
    assert any(part[4] for log in LOGS for _, _, segments in log["passes"] for part in segments), "aborted transactions"
    before = [
        header.magic
        for log in LOGS
        for part in log["segments"]
        for _, header in formats.headers(base64.b64decode(part[2]))
    ]
    assert {0, 1, 2} == set(before) and {batch[3] for batch in left} == {2}
    horizons = {batch[7] for batch in left if batch[5] & 0x40}
    assert len(horizons) > 5

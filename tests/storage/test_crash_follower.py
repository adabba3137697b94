"""A follower log, interrupted at every call: a beginning of the leader's bytes is there, and it continues.

The transaction index, which only a transaction marker changes, matches the batches in the log.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable

import pytest

from ottla.protocol.records import batch, formats
from ottla.storage.compaction.cleaned_transactions import aborted_transactions
from ottla.storage.config import LogConfig
from ottla.storage.follower_log import FollowerLog
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import TopicIdPartition
from ottla.storage.producers import txn_index
from ottla.storage.producers.txn_index import AbortedTransaction
from ottla_testing.storage.batches import FOLDER, TOPIC_ID, make, old
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

ONLY = os.environ.get("OTTLA_CRASH_SEED")
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)


def leader(rng: random.Random, count: int = 26) -> list[bytes]:
    """Returns batches of all kinds of a leader: plain, old, committed and aborted transactions."""
    made: list[bytes] = []
    sequences, is_open = {7: 0, 8: 0}, {7: False, 8: False}
    for offset in range(count):
        kind, producer_id = rng.random(), rng.choice((7, 8))
        if kind < 0.25:
            data = make(b"%d" % offset * rng.randint(1, 20), timestamp=1000 + offset)
        elif kind < 0.4:
            data = old(1, b"%d" % offset, timestamp=1000 + offset, offset=offset)
        elif is_open[producer_id] and rng.random() < 0.5:
            data, is_open[producer_id] = marker(producer_id, rng.choice((0, 1))), False
        else:
            records = [batch.Record(0, 1000 + offset, b"k", b"%d" % offset)]
            data = batch.build(
                records,
                batch.BatchFields(
                    producer_id=producer_id, producer_epoch=0, base_sequence=sequences[producer_id], transactional=True
                ),
            )
            sequences[producer_id] += 1
            is_open[producer_id] = True
        if data[16] == batch.MAGIC:
            batch.assign(data, 0, base_offset=offset, leader_epoch=offset // 10)
        made.append(bytes(data))
    return made


def marker(producer_id: int, kind: int) -> bytearray:
    record = batch.Record(0, 1000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7))
    return batch.build(
        [record],
        batch.BatchFields(
            producer_id=producer_id, producer_epoch=0, base_sequence=-1, transactional=True, control=True
        ),
    )


def opened(files: SimulatedFiles, *, clean: bool, recovery_point: int = 0) -> FollowerLog:
    return FollowerLog.open(
        files,
        FOLDER,
        TopicIdPartition("orders", 0, TOPIC_ID),
        config=CONFIG,
        now_ms=0,
        checkpoints=LogCheckpoints(clean_shutdown=clean, recovery_point=recovery_point),
    )


def stored(files: SimulatedFiles) -> bytes:
    return b"".join(files.read_bytes(f"{FOLDER}/{n}") for n in files.list(FOLDER) if n.endswith(".log"))


def aborted(batches: list[bytes]) -> list[tuple[int, int, int]]:
    """Returns (producer id, first offset, last offset) of each aborted transaction, from the batches alone."""
    found: list[tuple[int, int, int]] = []
    begun: dict[int, int] = {}
    for data in batches:
        header = formats.read_header(data)
        if header.producer_id < 0:
            continue
        if not header.is_control:
            begun.setdefault(header.producer_id, header.base_offset)
        elif header.producer_id in begun:
            first = begun.pop(header.producer_id)
            read = txn_index.read_marker(data, 0, header)
            if read is not None and next(iter(batch.records(data))).key == struct.pack(">hh", 0, 0):
                found.append((header.producer_id, first, header.base_offset))
    return found


def fields(entries: list[AbortedTransaction]) -> list[tuple[int, int, int]]:
    return sorted(((one.producer_id, one.first_offset, one.last_offset) for one in entries), key=lambda one: one[2])


def follow(seed: int) -> int:
    rng, chance = random.Random(seed), random.Random(seed + 1)
    source = leader(rng)
    files, flushed, stops = SimulatedFiles(), 0, 0

    def on_step(step: Step) -> None:
        nonlocal stops
        for powered in (True, False):
            stops += 1
            size = len(step.change.data or b"") if step.change is not None else 0
            fork = files.fork(step, chance.randint(0, size))
            if powered:
                fork.restart()
            else:
                fork.crash(chance)
            try:
                go_on(fork, source, flushed, end if powered else flushed, chance)
            except Exception as error:
                kind = "kill" if powered else "power loss"
                where = f"after a {kind} at step {step.number}: {step.operation} {step.path}"
                raise AssertionError(f"seed {seed}, {where}: {error}") from error

    end = 0
    files.on_step = on_step
    log = opened(files, clean=True)
    while end < len(source):
        count = rng.randint(1, 5)
        log.append_fetched(b"".join(source[end : end + count]), now_ms=0)
        end = log.log_end_offset
        if rng.random() < 0.3:
            flushed = log.flush()
    log.close()
    return stops


def go_on(files: SimulatedFiles, source: list[bytes], recovery_point: int, surely: int, rng: random.Random) -> None:
    log = opened(files, clean=False, recovery_point=recovery_point)
    end = log.log_end_offset
    assert end >= surely and stored(files) == b"".join(source[:end])
    assert fields(aborted_transactions(files, FOLDER)) == aborted(source[:end])
    log.append_fetched(b"".join(source[end:]), now_ms=0)
    log.close()
    files.crash(rng)
    assert stored(files) == b"".join(source)
    assert fields(aborted_transactions(files, FOLDER)) == aborted(source)
    log = opened(files, clean=True)
    assert log.log_end_offset == len(source) and log.cut_bytes == 0
    known = {key: state.batches[-1].last_sequence for key, state in log.producers().items() if state.batches}
    sent = [formats.read_header(data) for data in source]
    assert known == {h.producer_id: h.base_sequence for h in sent if h.producer_id >= 0 and not h.is_control}
    log.abandon()


@pytest.mark.soak
def test_follower_stopped_anywhere_resumes_without_loss(scaled: Callable[[int], int]):
    first = random.randrange(1 << 32)
    for seed in [int(ONLY)] if ONLY is not None else range(first, first + scaled(3)):
        assert follow(seed) > 50

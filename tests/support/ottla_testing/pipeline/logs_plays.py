"""Random logs with transactions, and the records that a read_committed consumer gets from them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from ottla.pipeline.backend import OffsetRange, TopicPartition
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import Record
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import PartitionLog, TopicIdPartition
from ottla.storage.producers import txn_index
from ottla_testing.pipeline.logs_samples import rows, wanted

KEY = TopicPartition("orders", 0)
NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=150, retention_ms=-1)


def opened(folder: Path, *, clean: bool = True) -> PartitionLog:
    return PartitionLog.open(
        DiskFiles(),
        str(folder),
        TopicIdPartition("orders", 0, bytes(16)),
        config=CONFIG,
        now_ms=NOW,
        checkpoints=LogCheckpoints(clean_shutdown=clean),
    )


class Play:
    """Batches of five producers, in transactions and outside them, markers, and plain batches between them."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.sequences = dict.fromkeys(range(5), 0)

    def go(self, seed: int, steps: int) -> None:
        chance = random.Random(seed)
        for _ in range(steps):
            producer_id, what = chance.randrange(5), chance.choice(["data", "data", "data", "end", "plain"])
            count = chance.randrange(1, 4)
            records = [Record(n, NOW, None, b"x" * chance.randrange(40)) for n in range(count)]
            if what == "plain":
                self.log.append(batch.build(records), now_ms=NOW)
            elif what == "end":
                committed = chance.random() < 0.5
                self.log.append_marker(producer_id, 0, committed=committed, coordinator_epoch=0, now_ms=NOW)
            else:
                first = self.sequences[producer_id]
                built = batch.build(
                    records,
                    batch.BatchFields(
                        producer_id=producer_id, producer_epoch=0, base_sequence=first, transactional=True
                    ),
                )
                self.log.append(built, now_ms=NOW)
                self.sequences[producer_id] += count


def consumed(log: PartitionLog, offset: int) -> list[int]:
    """Returns the offsets that a read_committed consumer of storage gets."""
    found: list[int] = []
    while records := bytes((batches := log.read(offset, 500, committed=True)).records):
        begins = sorted((one.first_offset, one.producer_id) for one in batches.aborted)
        dropped: set[int] = set()
        start = offset
        for position, header in formats.headers(records):
            while begins and begins[0][0] <= header.last_offset:
                dropped.add(begins.pop(0)[1])
            marker = txn_index.read_marker(records, position, header)
            if marker is not None:
                dropped -= {header.producer_id} if marker.kind == txn_index.ABORT else set()
            elif not (header.is_transactional and header.producer_id in dropped):
                found += [r.offset for r in formats.records(records, position) if r.offset >= start]
            offset = header.next_offset
    return found


def committed(folder: Path, start: int = 0, end: int | None = None, **options: Any) -> list[int]:
    backend = FileBackend([str(folder)], **options)
    stop = backend.latest([KEY], committed=False)[KEY] if end is None else end
    pieces = backend.pieces([OffsetRange(*KEY, start, stop)], wanted("offset", committed=True))
    return [row["offset"] for row in rows(pieces)]

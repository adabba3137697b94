"""Batches and logs for the tests of storage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ottla.protocol.records import batch
from ottla.storage.files import Files
from ottla.storage.log import LogConfig, PartitionLog

TOPIC_ID = bytes(range(16))
FOLDER = "/data/orders-0"


def make(*values: bytes, timestamp: int = 1000, step: int = 0, codec: int = 0, **fields: Any) -> bytearray:
    """A batch as a producer sends it: one record for each value, `step` ms apart."""
    records = [batch.Record(n, timestamp + n * step, None, value) for n, value in enumerate(values)]
    return batch.build(records, codec=codec, **fields)


def sequenced(
    sequence: int, count: int = 1, *, producer_id: int = 9, epoch: int = 0, timestamp: int = 1000
) -> bytearray:
    """A batch of an idempotent producer."""
    values = [b"%d" % (sequence + n) for n in range(count)]
    return make(*values, timestamp=timestamp, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def open_log(
    files: Files,
    folder: str | os.PathLike[str] = FOLDER,
    *,
    config: LogConfig | None = None,
    clean: bool = True,
    **more: Any,
) -> PartitionLog:
    return PartitionLog.open(
        files,
        folder,
        topic="orders",
        partition=0,
        topic_id=TOPIC_ID,
        config=config or LogConfig(),
        now_ms=0,
        clean_shutdown=clean,
        pick=lambda bound: bound - 1,
        **more,
    )


def all_batches(log: PartitionLog, max_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Every batch from the log start on, as a consumer gets them."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, max_bytes).records)
        assert data
        for position, header in batch.headers(data):
            assert batch.crc_matches(data, position, header)
            yield data[position : position + header.size_bytes]
            offset = header.next_offset


def values(log: PartitionLog) -> list[bytes | None]:
    """Every record's value."""
    return [record.value for data in all_batches(log) for record in batch.records(data)]

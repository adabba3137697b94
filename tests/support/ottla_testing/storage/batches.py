"""Batches and logs for the tests of storage."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from ottla.protocol.records import batch, formats
from ottla.protocol.records.validate import Rules
from ottla.storage.io.files import Files
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import LogConfig, LogOwner, PartitionLog, TopicIdPartition
from ottla_testing.protocol.batches import batch_of

GZIP = 1
TOPIC_ID = bytes(range(16))
FOLDER = "/data/orders-0"


def make(*values: bytes, timestamp: int = 1000, step: int = 0, codec: int = 0, **fields: Any) -> bytearray:
    """Returns a batch as a producer sends it: one record for each value, `step` ms apart."""
    records = [batch.Record(n, timestamp + n * step, None, value) for n, value in enumerate(values)]
    return batch_of(records, codec=codec, **fields)


def sequenced(
    sequence: int, count: int = 1, *, producer_id: int = 9, epoch: int = 0, timestamp: int = 1000
) -> bytearray:
    """Returns a batch of an idempotent producer."""
    values = [b"%d" % (sequence + n) for n in range(count)]
    return make(*values, timestamp=timestamp, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def message(
    magic: int, value: bytes | None, *, offset: int = 0, key: bytes | None = None, timestamp: int = 1000, bits: int = 0
) -> bytes:
    """Returns one message of format v0 or v1, written by hand: the expected bytes must not come from the code under
    test."""
    body = bytes([magic, bits]) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def old(magic: int, *values: bytes, timestamp: int = 1000, step: int = 0, codec: int = 0, offset: int = 0) -> bytearray:
    """Returns a set of old messages as a producer sends it or, with an offset, as it is stored. GZIP makes it a
    wrapper."""
    inner_from = 0 if magic and codec else offset
    messages = [
        message(magic, value, offset=inner_from + number, timestamp=timestamp + number * step)
        for number, value in enumerate(values)
    ]
    if not codec:
        return bytearray(b"".join(messages))
    last = len(values) - 1
    packed = gzip.compress(b"".join(messages), mtime=0)
    latest = timestamp + max(last * step, 0)
    return bytearray(message(magic, packed, offset=offset + last, timestamp=latest, bits=codec))


def storing(magic: int, **config: Any) -> LogConfig:
    """Returns the configuration of a topic whose records are stored in a format."""
    return LogConfig(rules=Rules(target_magic=magic), **config)


def open_log(
    files: Files,
    folder: str | os.PathLike[str] = FOLDER,
    *,
    config: LogConfig | None = None,
    now_ms: int = 0,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    **owner: Any,
) -> PartitionLog:
    """Opens the partition orders-0; `owner` are fields of LogOwner."""
    return PartitionLog.open(
        files,
        folder,
        TopicIdPartition("orders", 0, TOPIC_ID),
        config=config or LogConfig(),
        now_ms=now_ms,
        checkpoints=LogCheckpoints(clean, recovery_point, log_start_offset),
        owner=LogOwner(**{"pick": lambda bound: bound - 1, **owner}),
    )


def all_batches(log: PartitionLog, max_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yields every batch or old message from the log start on, as a consumer gets them."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, max_bytes).records)
        assert data
        for position, header in formats.headers(data):
            assert formats.crc_matches(data, position, header)
            yield data[position : position + header.size_bytes]
            offset = header.next_offset


def values(log: PartitionLog) -> list[bytes | None]:
    """Returns every record's value."""
    return [record.value for data in all_batches(log) for record in formats.records(data)]


def offsets(log: PartitionLog) -> list[int]:
    """Returns every record's offset."""
    return [record.offset for data in all_batches(log) for record in formats.records(data)]

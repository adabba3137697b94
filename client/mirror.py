"""Copies partitions from a running broker byte for byte: offsets and old message formats are kept (KIP-724).

Owns the requests to the source and the order of batches: from the end of the copy, or from the source's log start
offset, up to the high watermark of the first response. How a copy is stored belongs to the implementation of `Copy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ..protocol.named import NamedTuple
from ..protocol.records import formats
from ..protocol.records.errors import CorruptRecords
from .net.cluster import Cluster
from .net.errors import ClientError
from .net.retry import retry
from .producer.log_tail import EARLIEST, Fetched, LogTail

__all__ = ["Copied", "Copy", "Diverged", "Mirror"]

FETCH_BYTES = 8 << 20
FETCH_BYTES_MAX = 1 << 30  # of one batch, for brokers that send no batch larger than the requested size
T = TypeVar("T")
ATTEMPTS = 8  # for each request

OnProgress = Callable[[str, int, int], None]
"""Called with each response: topic, partition, bytes of records."""


class Copy(Protocol):
    """The copy of a partition that a Mirror appends to."""

    @property
    def is_compacted(self) -> bool:
        """Whether the source may be compacted."""
        ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def begin_at(self, offset: int) -> None:
        """Sets the start and end offset of an empty copy. May be called again while the copy is empty."""
        ...

    def delete_records_before(self, offset: int) -> object:
        """Raises the log start offset to an offset that was copied."""
        ...

    def append(self, records: bytes | memoryview) -> int:
        """Appends the whole batches of any format and returns their number. Raises CorruptRecords."""
        ...

    def last_batch(self) -> bytes:
        """Returns the newest batch as it is stored, or empty bytes without one."""
        ...


class Copied(NamedTuple):
    """The result of a copy: its offsets, the amount copied, and the number of offsets that the source had deleted."""

    log_start_offset: int
    log_end_offset: int
    batches: int
    size_bytes: int
    skipped: int


class Diverged(Exception):
    """The copy does not match the source: of another log, or written to by another program. Nothing was copied."""


class Mirror:
    """Copies partitions of one cluster, also concurrently."""

    def __init__(self, cluster: Cluster, on_progress: OnProgress = lambda topic, partition, size_bytes: None) -> None:
        self._cluster = cluster
        self._tail = LogTail(cluster)
        self._on_progress = on_progress

    async def copy(self, topic: str, partition: int, to: Copy) -> Copied:
        """Copies up to the high watermark at the time of the call.

        Raises ClientError, Diverged, CorruptRecords, and the errors of `to`; batches copied before the error stay.
        """
        offset, skipped = await self._begin(topic, partition, to)
        goal, batches, size_bytes, max_bytes = -1, 0, 0, FETCH_BYTES
        while goal < 0 or offset < goal:
            fetched = await self._fetch(topic, partition, offset, max_bytes)
            goal = fetched.high_watermark if goal < 0 else goal
            if offset >= goal or not len(fetched.records):  # the remaining offsets were removed by compaction
                break
            count = _append(to, fetched)
            if count == 0 and max_bytes >= FETCH_BYTES_MAX:
                text = f"no batch in a response of {FETCH_BYTES_MAX} bytes"
                raise ClientError(f"{topic}-{partition} at offset {offset}: {text}")
            # Before Fetch v3 a batch larger than the requested size is cut (KIP-74).
            max_bytes = FETCH_BYTES if count else max_bytes * 2
            offset = max(offset, to.log_end_offset)
            batches, size_bytes = batches + count, size_bytes + len(fetched.records)
            self._on_progress(topic, partition, len(fetched.records))
            await asyncio.sleep(0)  # appending blocks the event loop: yields to the other copies
        if _is_empty(to):
            to.begin_at(offset)
        return Copied(to.log_start_offset, to.log_end_offset, batches, size_bytes, skipped)

    async def _begin(self, topic: str, partition: int, to: Copy) -> tuple[int, int]:
        """Returns (offset to resume from, number of offsets after the copy's end that the source deleted).

        Raises Diverged.
        """
        where = f"{topic}-{partition}"
        start = await self._again(lambda: self._tail.offset(topic, partition, EARLIEST), topic)
        end = await self._again(lambda: self._tail.offset(topic, partition), topic)
        if _is_empty(to):
            return start, 0
        offset = to.log_end_offset
        if offset > end:
            raise Diverged(f"{where}: the copy ends at offset {offset}, the source at {end}")
        if offset <= start:
            return start, start - offset
        last = to.last_batch()
        fetched = await self._fetch(topic, partition, offset - 1, FETCH_BYTES)
        there = _first_batch(fetched.records)
        # Compaction may have removed the batch since, or made it smaller.
        if there and there != last and (not to.is_compacted or len(there) == len(last)):
            raise Diverged(f"{where}: at offset {offset - 1} the copy has another batch than the source")
        return offset, 0

    async def _fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> Fetched:
        return await self._again(lambda: self._tail.fetch(topic, partition, offset, max_bytes), topic)

    async def _again(self, attempt: Callable[[], Awaitable[T]], topic: str) -> T:
        """Returns the result of `attempt`, retried with new metadata. Raises ClientError."""
        backoff_s, expire = self._cluster.retry_backoff_s, self._cluster.expire
        return await retry(attempt, backoff_s, attempts=ATTEMPTS, on_failure=lambda error: expire(topic))


def _is_empty(to: Copy) -> bool:
    return not to.last_batch()


def _append(to: Copy, fetched: Fetched) -> int:
    """Appends the batches of a response. The log start offset may be inside the first batch."""
    if not _is_empty(to):
        return to.append(fetched.records)
    try:
        first = next((header.base_offset for _, header in formats.headers(fetched.records)), None)
    except CorruptRecords:
        first = None
    if first is None:  # an incomplete batch
        return 0
    to.begin_at(min(first, fetched.log_start_offset) if fetched.log_start_offset >= 0 else first)
    count = to.append(fetched.records)
    if count and to.log_start_offset < fetched.log_start_offset:
        to.delete_records_before(fetched.log_start_offset)
    return count


def _first_batch(records: bytes | memoryview) -> bytes:
    try:
        for position, header in formats.headers(records):
            return bytes(records[position : position + header.size_bytes])
    except CorruptRecords:
        pass
    return b""

"""Copying partitions from a running broker byte for byte: nothing is converted, offsets and old formats stay (KIP-724).

Owns what is asked of the source and in which order its batches are handed on: from where a copy ends, or from the
source's log start, up to the high watermark that the first answer told. Knows nothing of how a copy is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

from ..protocol.records import formats
from ..protocol.records.errors import CorruptRecords
from .net.cluster import Cluster
from .net.errors import ClientError
from .net.retry import retry
from .producer.log_tail import EARLIEST, Fetched, LogTail

__all__ = ["Copied", "Copy", "Diverged", "Mirror"]

FETCH_BYTES = 8 << 20
FETCH_BYTES_MAX = 1 << 30  # of one batch, for brokers that send none that is larger than what was asked for
T = TypeVar("T")
ATTEMPTS = 8  # of one request

OnProgress = Callable[[str, int, int], None]
"""Told of each answer: topic, partition, bytes of records."""


class Copy(Protocol):
    """Where a partition is copied to."""

    @property
    def is_compacted(self) -> bool:
        """Whether a cleaner may be at work at the source."""
        ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def begin_at(self, offset: int) -> None:
        """Makes an empty copy begin and end there; it may be called again while that is empty."""
        ...

    def delete_records_before(self, offset: int) -> object:
        """Moves the log start up to an offset that was copied."""
        ...

    def append(self, records: bytes | memoryview) -> int:
        """Appends the whole batches, whatever their format; how many. Raises CorruptRecords for what is not sound."""
        ...

    def last_batch(self) -> bytes:
        """The newest batch as it is stored; empty if there is none."""
        ...


class Copied(NamedTuple):
    """What was done: offsets of the copy now, what it got, and how many offsets the source had deleted in between."""

    log_start_offset: int
    log_end_offset: int
    batches: int
    size_bytes: int
    skipped: int


class Diverged(Exception):
    """The copy is of another log, or was written to by somebody else: nothing was copied."""


class Mirror:
    """Copies from one cluster; partitions may be copied at the same time."""

    def __init__(self, cluster: Cluster, on_progress: OnProgress = lambda topic, partition, size_bytes: None) -> None:
        self._cluster = cluster
        self._tail = LogTail(cluster)
        self._on_progress = on_progress

    async def copy(self, topic: str, partition: int, to: Copy) -> Copied:
        """Brings a copy up to the high watermark of now. Raises ClientError, Diverged, CorruptRecords, and what the
        copy raises; what was copied before stays."""
        offset, skipped = await self._begin(topic, partition, to)
        goal, batches, size_bytes, max_bytes = -1, 0, 0, FETCH_BYTES
        while goal < 0 or offset < goal:
            fetched = await self._fetch(topic, partition, offset, max_bytes)
            goal = fetched.high_watermark if goal < 0 else goal
            if offset >= goal or not len(fetched.records):  # what lies behind was taken by a cleaner
                break
            count = _append(to, fetched)
            if count == 0 and max_bytes >= FETCH_BYTES_MAX:
                raise ClientError(f"{topic}-{partition} at offset {offset}: no batch comes")
            # Before Fetch v3 a batch that is larger than what is asked for comes cut.
            max_bytes = FETCH_BYTES if count else max_bytes * 2
            offset = max(offset, to.log_end_offset)
            batches, size_bytes = batches + count, size_bytes + len(fetched.records)
            self._on_progress(topic, partition, len(fetched.records))
            await asyncio.sleep(0)  # appending blocks: let the others have their turn
        if _is_empty(to):
            to.begin_at(offset)
        return Copied(to.log_start_offset, to.log_end_offset, batches, size_bytes, skipped)

    async def _begin(self, topic: str, partition: int, to: Copy) -> tuple[int, int]:
        """(offset to go on from, how many behind the copy's end the source does not have any more)."""
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
        # A cleaner may have taken it since, or made it smaller.
        if there and there != last and (not to.is_compacted or len(there) == len(last)):
            raise Diverged(f"{where}: at offset {offset - 1} the copy has another batch than the source")
        return offset, 0

    async def _fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> Fetched:
        return await self._again(lambda: self._tail.fetch(topic, partition, offset, max_bytes), topic)

    async def _again(self, ask: Callable[[], Awaitable[T]], topic: str) -> T:
        """The result of `ask`, with new metadata for each further attempt. Raises ClientError."""
        backoff_s, expire = self._cluster.retry_backoff_s, self._cluster.expire
        return await retry(ask, backoff_s, attempts=ATTEMPTS, on_failure=lambda error: expire(topic))


def _is_empty(to: Copy) -> bool:
    return not to.last_batch()


def _append(to: Copy, fetched: Fetched) -> int:
    """Appends an answer. Its first batch may begin before the log start, which lies inside of it then."""
    if not _is_empty(to):
        return to.append(fetched.records)
    try:
        first = next((header.base_offset for _, header in formats.headers(fetched.records)), None)
    except CorruptRecords:
        first = None
    if first is None:  # a part of one
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

"""Unacknowledged records of a producer: batches, a queue for each partition, and the bound on their memory.

Owns the futures of records. Times are arguments, in seconds of the event loop's clock; sizes are approximate bytes
before compression.

A queue has, in order: batches to be sent again (in `sequences`, or in `put_back` without idempotence), batches that
were not sent yet, and last the open batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol.named import NamedTuple
from ...protocol.records.new_tuple import new_tuple
from ..net.errors import BufferFull, ClientError
from .batches import Row
from .sequences import Sequenced, Sequences

NO_TIMESTAMP = -1
BATCH_OVERHEAD = 61


class RecordMetadata(NamedTuple):
    """The result of a record.

    `offset` and `timestamp_ms` are -1 if unknown: with acks=0, and for a duplicate whose offset the broker no longer
    has (DUPLICATE_SEQUENCE_NUMBER, KIP-192).
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def has_offset(self) -> bool:
        return self.offset >= 0

    @property
    def has_timestamp(self) -> bool:
        return self.timestamp_ms >= 0


@dataclass(slots=True, eq=False, repr=False)
class Batch(Sequenced):
    """A batch of records of one partition, with their futures.

    `ordinal` counts all records of the producer for the partition; it is that of the first record. `is_done`: its
    futures are done; later responses have no effect on them.
    """

    queue: PartitionQueue
    ordinal: int
    created_s: float
    deadline_s: float
    records: list[Row] = field(default_factory=list[Row])
    futures: list[asyncio.Future[RecordMetadata]] = field(default_factory=list[asyncio.Future[RecordMetadata]])
    size: int = BATCH_OVERHEAD
    attempts: int = 0
    not_before_s: float = 0.0
    magic: int = 2
    is_done: bool = False
    number: int = 0  # in the order of opening; the halves of a split batch keep it
    waiter: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        where = f"{self.queue.topic}-{self.queue.index}"
        return f"<Batch {where}, {len(self.records)} records from sequence {self.base_sequence}, epoch {self.epoch}>"

    def halves(self) -> list[Batch]:
        """Splits the batch into two with the same times. The batch itself must no longer be used."""
        middle = len(self.records) // 2
        parts: list[Batch] = []
        for start, stop in ((0, middle), (middle, len(self.records))):
            part = Batch(self.queue, self.ordinal + start, self.created_s, self.deadline_s)
            part.records, part.futures = self.records[start:stop], self.futures[start:stop]
            part.count = stop - start
            part.attempts = self.attempts
            part.number = self.number
            share = (self.size - BATCH_OVERHEAD) // 2
            part.size = BATCH_OVERHEAD + (share if not start else self.size - BATCH_OVERHEAD - share)
            parts.append(part)
        return parts


@dataclass(slots=True, eq=False, repr=False)
class PartitionQueue:
    """The batches of one partition. `sequences` is None without idempotence, or before the producer id is known."""

    topic: str
    index: int
    waiting: deque[Batch] = field(default_factory=deque[Batch])
    open: Batch | None = None
    put_back: list[Batch] = field(default_factory=list[Batch])
    in_flight: int = 0
    mode: bool | None = None  # idempotent (True), plain (False), undecided (None)
    sequences: Sequences[Batch] | None = None
    next_ordinal: int = 0
    lost_s: float = float("-inf")  # time of the last lost response
    # (producer id, epoch, sequence, ordinal), see `note_place`
    places: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.topic}-{self.index}>"

    def has_work(self) -> bool:
        """Returns whether there is a batch to send, now or later."""
        if self.waiting or self.put_back:
            return True
        sequences = self.sequences
        return sequences is not None and (len(sequences.unfinished) > sequences.in_flight or sequences.restarting)

    def keep_order(self, batch: Batch) -> None:
        """Puts a batch without sequences back for a retry, in the order of the records."""
        self.put_back.append(batch)
        self.put_back.sort(key=lambda kept: kept.ordinal)

    def take_first(self) -> Batch:
        """Removes and returns the first unsent batch, and closes it."""
        batch = self.waiting.popleft()
        if batch is self.open:
            self.open = None
        batch.count = len(batch.records)
        return batch

    def note_place(self, batch: Batch) -> None:
        """Stores the mapping from sequence to ordinal if the batch does not continue the last one."""
        if self.places:
            producer_id, epoch, sequence, ordinal = self.places[-1]
            if (producer_id, epoch) == (batch.producer_id, batch.epoch):
                ahead = batch.ordinal - ordinal
                if (sequence + ahead) & 0x7FFFFFFF == batch.base_sequence:
                    return
        self.places.append((batch.producer_id, batch.epoch, batch.base_sequence, batch.ordinal))

    def ordinal_of(self, producer_id: int, epoch: int, sequence: int) -> int:
        """Returns the ordinal of the record with a sequence, -1 if unknown."""
        best = -1
        for place in self.places:
            if place[:2] == (producer_id, epoch):
                ahead = (sequence - place[2]) & 0x7FFFFFFF
                if ahead < 2**30:
                    best = place[3] + ahead
        return best


class Accumulator:
    """The queues of one producer, and their memory.

    `opened` is called with each new batch. `failed` is called, in transactions, with each failed batch and the error of
    its first record.
    """

    def __init__(
        self,
        *,
        buffer_bytes: int,
        delivery_s: float,
        opened: Callable[[Batch], None],
        failed: Callable[[Batch, BaseException], None] | None = None,
    ) -> None:
        self.free = buffer_bytes
        self.delivery_s = delivery_s
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.undone: dict[Batch, None] = {}
        self._opened = opened
        self._failed = failed
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def queue(self, topic: str, index: int) -> PartitionQueue:
        """Returns the queue of a partition, created if necessary."""
        queue = self.queues.get((topic, index))
        if queue is None:
            queue = self.queues[topic, index] = PartitionQueue(topic, index)
        return queue

    @property
    def is_waited_for(self) -> bool:
        """Whether a caller waits for memory."""
        return bool(self._waiters)

    def open_batch(self, queue: PartitionQueue, now_s: float) -> Batch:
        """Opens a new batch after the last one; the batch that was open is closed."""
        batch = Batch(queue, queue.next_ordinal, now_s, now_s + self.delivery_s)
        queue.waiting.append(batch)
        queue.open = batch
        self.undone[batch] = None
        self._opened(batch)
        return batch

    async def room(self, size: int, timeout_s: float) -> None:
        """Reserves `size` bytes, waiting in the order of calls. Raises BufferFull after `timeout_s`."""
        if self.free >= size and not self._waiters:
            self.free -= size
            return
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        entry = (size, future)
        self._waiters.append(entry)
        timer = loop.call_later(timeout_s, self._too_late, future)
        try:
            await future
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give_room(size)  # granted at the same moment as the cancellation
            elif entry in self._waiters:
                self._waiters.remove(entry)
                self.give_room(0)
            raise
        finally:
            timer.cancel()

    def _too_late(self, future: asyncio.Future[None]) -> None:
        if not future.done():
            future.set_exception(BufferFull("buffer.memory: no room for the record within max.block.ms"))

    def give_room(self, size: int) -> None:
        """Releases memory, and grants it to the callers that wait, in order."""
        self.free += size
        waiters = self._waiters
        while waiters and (waiters[0][1].done() or waiters[0][0] <= self.free):
            size, future = waiters.popleft()
            if not future.done():
                self.free -= size
                future.set_result(None)

    def refuse_waiters(self, error: Callable[[], ClientError]) -> None:
        """Fails all callers that wait for memory."""
        while self._waiters:
            _, future = self._waiters.popleft()
            if not future.done():
                future.set_exception(error())

    # Ends of batches

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """Replaces a batch by its parts."""
        self._close(batch)
        for part in parts:
            self.undone[part] = None

    def fulfil(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        """Completes the futures of a batch with offsets and timestamps; -1 for unknown ones."""
        if batch.is_done:
            return
        topic, partition = batch.queue.topic, batch.queue.index
        offset = base_offset
        step = 1 if base_offset >= 0 else 0
        own_time = append_time_ms == NO_TIMESTAMP and base_offset >= 0 and batch.magic > 0
        for future, record in zip(batch.futures, batch.records, strict=True):
            if not future.done():
                timestamp_ms = record[0] if own_time else append_time_ms
                future.set_result(new_tuple(RecordMetadata, (topic, partition, offset, timestamp_ms)))
            offset += step
        self._end(batch)

    def fail(self, batch: Batch, error: Callable[[int], BaseException]) -> None:
        """Fails the futures of a batch; `error` returns the error of the record at an index."""
        if batch.is_done:
            return
        for index, future in enumerate(batch.futures):
            if not future.done():
                future.set_exception(error(index))
                if self._failed is not None:
                    future.exception()  # marked as retrieved: the end of the transaction raises the error
        self._end(batch)
        if self._failed is not None:
            self._failed(batch, error(0))

    def _close(self, batch: Batch) -> None:
        batch.is_done = True
        self.undone.pop(batch, None)
        if batch.waiter is not None and not batch.waiter.done():
            batch.waiter.set_result(None)

    def _end(self, batch: Batch) -> None:
        self._close(batch)
        batch.futures = []
        batch.records = []
        self.give_room(batch.size - BATCH_OVERHEAD)

"""The state of a sender that its parts share: the batches with their deadlines, and the ways to fail them.

The parts change it: responses retry or fail batches, recovery queries read logs, transactions drop batches. `sender.py`
derives the sender from it, which has the parts.
"""

from __future__ import annotations

import asyncio
import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from ..net.cluster import Cluster
from ..net.errors import ClientError, DeliveryTimeout, ProducerFailed
from .accumulator import Accumulator, Batch, PartitionQueue
from .idempotence import Modes
from .options import ProducerOptions


class SenderState(ABC):
    """The state of one sender, as its parts read and change it."""

    accumulator: Accumulator

    def __init__(self, cluster: Cluster, options: ProducerOptions) -> None:
        self.cluster = cluster
        self.options = options
        self.modes = Modes(str(options.enable_idempotence), self.wake)
        self.failure: ProducerFailed | None = None
        self.is_flushing = 0
        self.producer_ids: set[int] = set()
        self.loop = asyncio.get_running_loop()
        self.now_s = self.loop.time
        self._active: dict[PartitionQueue, None] = {}
        self._deadlines: list[tuple[float, int, Batch]] = []
        self._count = 0
        self._pushed = 0
        self._is_awake = False
        self._is_closed = False
        self._refreshing: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    @abstractmethod
    def _pass(self) -> None:
        """Sends the possible batches."""

    @abstractmethod
    def fail(self, error: ProducerFailed, batch: Batch | None = None) -> None:
        """Fails the producer: all unfinished batches, and all later sends."""

    def wake(self) -> None:
        """Schedules a pass that sends the possible batches."""
        if not self._is_awake and not self._is_closed:
            self._is_awake = True
            self.loop.call_soon(self._pass)

    def task(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs a coroutine as a task, which `close` cancels."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def resume(self, queue: PartitionQueue) -> None:
        """Includes a queue in the next pass."""
        self._active[queue] = None
        self.wake()

    def want_metadata(self, topic: str) -> None:
        """Refreshes the topic's metadata, since its leader is unknown or stale."""
        if topic not in self._refreshing:
            self._refreshing.add(topic)
            self.cluster.expire(topic)

    def opened(self, batch: Batch) -> None:
        """Numbers and watches a new batch, and includes its queue in the next pass."""
        self._count += 1
        batch.number = self._count
        self.watch(batch)
        self.resume(batch.queue)

    def watch(self, batch: Batch) -> None:
        """Fails the batch at its deadline."""
        self._pushed += 1
        deadlines = self._deadlines
        heapq.heappush(deadlines, (batch.deadline_s, self._pushed, batch))
        if len(deadlines) > 1000 and len(deadlines) > 4 * len(self.accumulator.undone):
            deadlines[:] = [entry for entry in deadlines if not entry[2].is_done]
            heapq.heapify(deadlines)

    def _expire(self, now_s: float) -> None:
        deadlines = self._deadlines
        while deadlines and (deadlines[0][2].is_done or deadlines[0][0] <= now_s):
            _, _, batch = heapq.heappop(deadlines)
            if not batch.is_done:
                self._take_out(batch)
                where = f"{batch.queue.topic}-{batch.queue.index}"
                text = f"{where}: not delivered within {self.options.delivery_timeout_ms} ms"
                self.accumulator.fail(batch, lambda _, text=text: DeliveryTimeout(text))

    def refuse_topic(self, topic: str, error: ClientError) -> None:
        """Fails all unsent batches of a topic."""
        for queue in self.accumulator.queues.values():
            if queue.topic == topic:
                queue.mode = None
                queue.open = None
                while queue.waiting:
                    self.accumulator.fail(queue.waiting.popleft(), lambda _: error)

    def drop(self, error: Callable[[], ClientError], *, keep_sent: bool) -> None:
        """Fails the batches not in flight; with `keep_sent` those that were sent before are kept for a retry."""
        for batch in list(self.accumulator.undone):
            sequences = batch.queue.sequences
            is_kept = keep_sent and batch.base_sequence >= 0 and not (sequences is None or sequences.restarting)
            if not batch.in_flight and not is_kept:
                self._take_out(batch)
                self.accumulator.fail(batch, lambda _: error())

    def _take_out(self, batch: Batch) -> None:
        queue = batch.queue
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            if queue.open is batch:
                queue.open = None
        elif batch in queue.put_back:
            queue.put_back.remove(batch)
        elif queue.sequences is not None and batch in queue.sequences.unfinished:
            queue.sequences.give_up(batch)

    def failed(self) -> ProducerFailed:
        """Returns a new error for batches that were unfinished when the producer failed."""
        error = ProducerFailed(f"the producer has failed: {self.failure}")
        error.__cause__ = self.failure
        return error

    def fail_all(self, error: Callable[[], ClientError]) -> None:
        """Fails all unfinished batches."""
        for other in list(self.accumulator.undone):
            self.accumulator.fail(other, lambda _: error())
        for queue in self.accumulator.queues.values():
            queue.waiting.clear()
            queue.put_back.clear()
            queue.open = None
        self.accumulator.refuse_waiters(error)

    async def flush(self) -> None:
        """Sends all batches without linger; returns when those of now are acknowledged or failed."""
        last = self._count
        self.is_flushing += 1
        self.wake()
        try:
            while batch := next((one for one in self.accumulator.undone if one.number <= last), None):
                if batch.waiter is None:
                    batch.waiter = self.loop.create_future()
                await asyncio.shield(batch.waiter)
        finally:
            self.is_flushing -= 1

"""Durability of appends: which responses wait for a sync, and how many appends one sync covers.

Owns the threads that sync logs and, for each log, the appends that wait for a sync. An append waits only if the topic
requires it (`flush.messages`), as in Kafka; then its response is sent, and consumers can read it, only after a sync
covers it. Kafka syncs within the append and blocks other appends meanwhile. Here other appends continue, and the next
sync covers them together; a log has one sync at a time. All of this runs on the event loop, except the blocking syncs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ...storage.errors import StorageError
from ..futures import wake
from ..logs import get_logger

if TYPE_CHECKING:
    from ...storage.partition_log import Appended, PartitionLog
    from ..clock import Clock, Timer

SYNC_THREADS = 8  # parallel syncs with a waiting response: a journalling file system joins them
BACKGROUND_THREADS = 2  # for syncs without a waiting response, so that a large segment delays no response
RETRY_MS = 1000  # after a sync for which no file descriptor was free


class Durability:
    """The syncs of one broker, and other work that waits for the disk. `close` ends them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self._clock = clock
        self._requested: list[LogSync] = []
        self._under_way = 0
        self._ended = 0
        self._change: asyncio.Future[None] | None = None
        self._stopping = False
        # A pool starts its threads on demand.
        self._awaited = ThreadPoolExecutor(SYNC_THREADS, "ottla-sync")
        self._background = ThreadPoolExecutor(BACKGROUND_THREADS, "ottla-background")

    def request(self, of: LogSync) -> None:
        """Starts a sync after all requests of this iteration are appended, so that it covers them."""
        if self._stopping:
            of.end(StorageError("the broker is stopping"))
            return
        if not self._requested:
            self.loop.call_soon(self._start)
        self._requested.append(of)

    def request_later(self, of: LogSync) -> Timer:
        """Starts a sync after RETRY_MS."""
        return self._clock.call_at(self._clock.now_ms() + RETRY_MS, self.request, of)

    def _start(self) -> None:
        requested, self._requested = self._requested, []
        for of in requested:
            is_awaited = of.begin()
            if is_awaited is not None:
                self._submit(self._awaited if is_awaited else self._background, of.log.flush, of.finished)
        wake(self._change)

    def in_background(self, work: Callable[[], Any], done: Callable[[BaseException | None], None]) -> None:
        """Runs blocking work in a background thread. `done` is called on the event loop with the exception, or None."""
        if not self._stopping:
            self._submit(self._background, work, done)

    async def in_thread(self, work: Callable[[], Any]) -> None:
        """Runs blocking work in a thread, ahead of background work. Raises what the work raises."""
        if self._stopping:
            raise StorageError("the broker is stopping")
        finished = self.loop.create_future()

        def done(error: BaseException | None) -> None:
            if finished.done():
                return
            if error is None:
                finished.set_result(None)
            else:
                finished.set_exception(error)
                finished.exception()  # else asyncio logs an error that no waiter has retrieved

        self._submit(self._awaited, work, done)
        await finished

    def _submit(
        self, pool: ThreadPoolExecutor, work: Callable[[], Any], done: Callable[[BaseException | None], None]
    ) -> None:
        self._under_way += 1
        pool.submit(self._work, work, done)

    def _work(self, work: Callable[[], Any], done: Callable[[BaseException | None], None]) -> None:
        """Runs in a thread. Every exception is passed on, since a response may wait for the result."""
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            error = raised
        self.loop.call_soon_threadsafe(self._finished, done, error)

    def _finished(self, done: Callable[[BaseException | None], None], error: BaseException | None) -> None:
        self._under_way -= 1
        self._ended += 1
        try:
            done(error)
        finally:
            wake(self._change)

    @property
    def is_idle(self) -> bool:
        """Whether no work is under way or requested."""
        return not (self._under_way or self._requested)

    async def idle(self) -> None:
        """Returns when no work is under way or requested."""
        while not self.is_idle:
            await self._changed()

    async def caught_up(self) -> None:
        """Returns when as much work has ended as was under way and requested at the call, regardless of later work."""
        ended = self._ended + self._under_way + len(self._requested)
        while self._ended < ended and not self.is_idle:
            await self._changed()

    async def _changed(self) -> None:
        if self._change is None or self._change.done():
            self._change = self.loop.create_future()
        await asyncio.shield(self._change)

    async def close(self) -> None:
        """Starts no more syncs. Returns when those under way have ended: then the logs may be closed."""
        self._stopping = True
        requested, self._requested = self._requested, []
        for of in requested:
            of.end(StorageError("the broker is stopping"))
        await self.idle()
        self._awaited.shutdown(wait=False)
        self._background.shutdown(wait=False)


class _Sync:
    """One sync of a log, under way or pending."""

    __slots__ = ("_error", "_waiting", "held_from", "until")

    def __init__(self) -> None:
        self.held_from: int | None = None  # the first offset hidden from consumers until it ends
        self.until = 0  # the sync covers all records below this offset
        self._waiting: list[tuple[asyncio.Future[Any], Any]] = []
        self._error: BaseException | None = None

    def wait(self, loop: asyncio.AbstractEventLoop, result: Any) -> asyncio.Future[Any]:
        """Returns a future that has `result` after the sync."""
        future = loop.create_future()
        self._waiting.append((future, result))
        if self._error is not None:
            self.failed(self._error)
        return future

    def done(self) -> None:
        """Completes all futures after a successful sync."""
        for future, result in self._waiting:
            if not future.done():
                future.set_result(result)

    def failed(self, error: BaseException) -> None:
        """Completes all futures with an error, including those that are added later."""
        self._error = error
        for future, _ in self._waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # else asyncio logs an error that no waiter has retrieved
        self._waiting = []


class LogSync:
    """The syncs of one log: at most one under way and one pending. `on_shown` is called when a sync makes more records
    visible to consumers.
    """

    __slots__ = ("_durability", "_following", "_is_requested", "_on_shown", "_running", "due_at", "log")

    def __init__(self, durability: Durability, log: PartitionLog, on_shown: Callable[[], None]) -> None:
        self.log = log
        self._durability = durability
        self._on_shown = on_shown
        self._running: _Sync | None = None
        self._following: _Sync | None = None
        self._is_requested = False
        self.due_at = 0
        """Appends whose last offset is below it need no sync; others must be passed to `after`."""
        self.reckon()

    def reckon(self) -> None:
        """Computes `due_at` again, as after a change of the log's config."""
        if self._held_from() is None:
            self.due_at = self.log.recovery_point + self.log.config.flush_messages - 1
        else:
            self.due_at = 0

    def _held_from(self) -> int | None:
        for sync in (self._running, self._following):
            if sync is not None and sync.held_from is not None:
                return sync.held_from
        return None

    # Requests for syncs

    def after(self, appended: Appended) -> Appended | asyncio.Future[Appended]:
        """Returns an append's result: at once, or after the sync that it, or an append before it, has to wait for.

        The future raises StorageError if the sync fails. A duplicate of a stored batch waits as long as that batch
        does.
        """
        sync = self._covering(appended.last_offset) if appended.duplicate else self._joined(appended)
        if sync is None:
            self.reckon()
            return appended
        return sync.wait(self._durability.loop, appended)

    def _covering(self, offset: int) -> _Sync | None:
        """The sync that has to end before consumers may read this offset."""
        found = None
        for sync in (self._running, self._following):
            if sync is not None and sync.held_from is not None and offset >= sync.held_from:
                found = sync
        return found

    def _joined(self, appended: Appended) -> _Sync | None:
        log, running, following = self.log, self._running, self._following
        if following is None or following.held_from is None:
            if running is not None and running.held_from is not None:
                unflushed = log.log_end_offset - running.until
            else:
                running, unflushed = None, log.log_end_offset - log.recovery_point
            if unflushed < log.config.flush_messages:
                return running  # Kafka would have appended it after that sync
            following = self._request()
            following.held_from = appended.base_offset
            self._hold()
        following.until = log.log_end_offset
        return following

    def covered(self) -> asyncio.Future[None] | None:
        """Returns a future of the sync that covers all appends so far, or None if none is needed. Raises StorageError
        if the log has failed.
        """
        if self.log.failure is not None:
            raise StorageError(f"{self.log.topic}-{self.log.partition}: {self.log.failure}")
        for sync in (self._following, self._running):
            if sync is not None and sync.held_from is not None:
                return sync.wait(self._durability.loop, None)
        return None

    def soon(self) -> None:
        """Syncs the present records in the background; no response waits for it."""
        end_offset = self.log.log_end_offset
        if self._running is None or self._running.until < end_offset:
            self._request().until = end_offset

    def _request(self) -> _Sync:
        """The next sync, created if none is pending."""
        following = self._following
        if following is None:
            following = self._following = _Sync()
        if self._running is None and not self._is_requested:
            self._is_requested = True
            self._durability.request(self)
        return following

    def _hold(self) -> None:
        """Updates the offset up to which consumers may read."""
        self.log.hold_back(self._held_from())
        self.reckon()

    # Progress of a sync

    def begin(self) -> bool | None:
        """Starts the pending sync. Returns whether a response waits for it, or None if there is no pending sync."""
        self._is_requested = False
        following = self._following
        if following is None or self._running is not None:
            return None
        self._running, self._following = following, None
        following.until = self.log.log_end_offset
        return following.held_from is not None

    def finished(self, error: BaseException | None) -> None:
        """Completes the waiting responses after a sync, and starts the next one."""
        running, self._running = self._running, None
        if running is None:  # the log was deleted
            return
        if error is not None:
            self._failed(running, error)
            return
        running.done()
        following = self._following
        if following is not None and following.until <= self.log.recovery_point:  # the sync covered these too
            following.done()
            self._following = None
        if self._following is not None:
            self._request()
        self._hold()
        self._on_shown()

    def _failed(self, running: _Sync, error: BaseException) -> None:
        log = self.log
        get_logger().error("sync failed", topic=log.topic, partition=log.partition, reason=str(error))
        running.failed(error)
        if isinstance(error, StorageError) and log.failure is None:
            # The sync was not attempted: its records stay hidden until the next one, and producers may retry.
            following = self._following
            if following is None and running.held_from is not None:
                following = self._following = _Sync()
            if following is not None:
                if running.held_from is not None:
                    following.held_from = running.held_from
                following.until = log.log_end_offset
                self._is_requested = True
                self._durability.request_later(self)
        elif self._following is not None:
            self._following.failed(error)
            self._following = None

    def take_over(self) -> None:
        """Completes all waits with success: another log that has all these records durably replaces this one."""
        self._end_all(_Sync.done)

    def end(self, error: BaseException) -> None:
        """Ends all waits with an error, as when the log is deleted. Hidden records stay hidden."""
        self._end_all(lambda sync: sync.failed(error))

    def _end_all(self, end: Callable[[_Sync], None]) -> None:
        self._is_requested = False
        for sync in (self._running, self._following):
            if sync is not None:
                end(sync)
        self._running = self._following = None

"""When what was appended is durable: which answers wait for that, and how many of them one sync serves.

Owns the threads that sync logs and, for each log, what waits for its syncs. Nothing is synced after an append unless
the topic asks (`flush.messages`), as in Kafka; then the append is neither answered nor shown to consumers before a sync
covers it. Kafka syncs within the append and lets no other append in meanwhile; here appends go on and are covered
together by the next sync, of which a log has one at a time. All of this runs on the event loop but the syncs
themselves, which block.
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

SYNC_THREADS = 8  # logs that are synced at once because somebody waits: a journalling file system joins them
BACKGROUND_THREADS = 2  # the same for what nobody waits for, so that a large segment keeps nobody waiting
RETRY_MS = 1000  # after a sync for which there was no descriptor


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
        # A pool starts a thread when there is work for one.
        self._awaited = ThreadPoolExecutor(SYNC_THREADS, "ottla-sync")
        self._background = ThreadPoolExecutor(BACKGROUND_THREADS, "ottla-background")

    def of(self, log: PartitionLog, on_shown: Callable[[], None]) -> LogSync:
        """The syncs of a log. `on_shown` is called when consumers may see more of it without an append."""
        return LogSync(self, log, on_shown)

    def request(self, of: LogSync) -> None:
        """Begins a sync when all requests that came together are appended, so that it covers them."""
        if self._stopping:
            of.end(StorageError("the broker stops"))
            return
        if not self._requested:
            self.loop.call_soon(self._start)
        self._requested.append(of)

    def request_later(self, of: LogSync) -> Timer:
        """The same after a while."""
        return self._clock.call_at(self._clock.now_ms() + RETRY_MS, self.request, of)

    def _start(self) -> None:
        requested, self._requested = self._requested, []
        for of in requested:
            is_awaited = of.begin()
            if is_awaited is not None:
                self._submit(self._awaited if is_awaited else self._background, of.log.flush, of.finished)
        self._tell()

    def in_background(self, work: Callable[[], Any], done: Callable[[BaseException | None], None]) -> None:
        """Does something that waits for the disk in a thread; `done` is called on the loop, with what it raised."""
        if not self._stopping:
            self._submit(self._background, work, done)

    async def in_thread(self, work: Callable[[], Any]) -> None:
        """Returns when that is done in a thread, before what nobody waits for. Raises what it raises."""
        if self._stopping:
            raise StorageError("the broker stops")
        finished = self.loop.create_future()

        def done(error: BaseException | None) -> None:
            if finished.done():
                return
            if error is None:
                finished.set_result(None)
            else:
                finished.set_exception(error)
                finished.exception()  # who awaited it may be gone

        self._submit(self._awaited, work, done)
        await finished

    def _submit(
        self, pool: ThreadPoolExecutor, work: Callable[[], Any], done: Callable[[BaseException | None], None]
    ) -> None:
        self._under_way += 1
        pool.submit(self._work, work, done)

    def _work(self, work: Callable[[], Any], done: Callable[[BaseException | None], None]) -> None:
        """In a thread. Whatever is raised there has an end here: somebody may wait for it."""
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
            self._tell()

    def _tell(self) -> None:
        """And, to whoever waits for less, that something has ended."""
        wake(self._change)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and nothing is to begin."""
        return not (self._under_way or self._requested)

    async def idle(self) -> None:
        """Returns when nothing is under way, and nothing is to begin."""
        while not self.is_idle:
            await self._changed()

    async def caught_up(self) -> None:
        """Returns when so much has ended as was under way and to begin, whatever has begun since."""
        ended = self._ended + self._under_way + len(self._requested)
        while self._ended < ended and not self.is_idle:
            await self._changed()

    async def _changed(self) -> None:
        if self._change is None or self._change.done():
            self._change = self.loop.create_future()
        await asyncio.shield(self._change)

    async def close(self) -> None:
        """Begins no more syncs, and returns when those under way have ended: then the logs may be closed."""
        self._stopping = True
        requested, self._requested = self._requested, []
        for of in requested:
            of.end(StorageError("the broker stops"))
        await self.idle()
        self._awaited.shutdown(wait=False)
        self._background.shutdown(wait=False)


class _Sync:
    """One sync of a log, under way or to come."""

    __slots__ = ("_error", "_waiting", "held_from", "until")

    def __init__(self) -> None:
        self.held_from: int | None = None  # nothing from this offset on is shown before it; None: nobody waits for it
        self.until = 0  # it covers all below this offset
        self._waiting: list[tuple[asyncio.Future[Any], Any]] = []
        self._error: BaseException | None = None

    def wait(self, loop: asyncio.AbstractEventLoop, result: Any) -> asyncio.Future[Any]:
        """A future of `result`."""
        future = loop.create_future()
        self._waiting.append((future, result))
        if self._error is not None:
            self.failed(self._error)
        return future

    def done(self) -> None:
        """Gives everybody who waits what it waits for."""
        for future, result in self._waiting:
            if not future.done():
                future.set_result(result)

    def failed(self, error: BaseException) -> None:
        """The same with an error, and for whoever comes later."""
        self._error = error
        for future, _ in self._waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever awaits it sees it too; nobody may be left to
        self._waiting = []


class LogSync:
    """The syncs of one log: at most one under way and one to come."""

    __slots__ = ("_durability", "_following", "_is_requested", "_on_shown", "_running", "due_at", "log")

    def __init__(self, durability: Durability, log: PartitionLog, on_shown: Callable[[], None]) -> None:
        self.log = log
        self._durability = durability
        self._on_shown = on_shown
        self._running: _Sync | None = None
        self._following: _Sync | None = None
        self._is_requested = False
        self.due_at = 0
        """An append whose last offset is below it needs no thought; another has to be handed to `after`."""
        self.reckon()

    def reckon(self) -> None:
        """Finds `due_at` anew, as after a change of the log's config."""
        if self._held_from() is None:
            self.due_at = self.log.recovery_point + self.log.config.flush_messages - 1
        else:
            self.due_at = 0

    def _held_from(self) -> int | None:
        for sync in (self._running, self._following):
            if sync is not None and sync.held_from is not None:
                return sync.held_from
        return None

    # Asking

    def after(self, appended: Appended) -> Appended | asyncio.Future[Appended]:
        """What an append came to: at once, or when a sync covers it if it, or one before it, has to wait for that.

        The future raises StorageError when the sync fails. A copy of what is stored waits as long as that does.
        """
        sync = self._covering(appended.last_offset) if appended.duplicate else self._joined(appended)
        if sync is None:
            self.reckon()
            return appended
        return sync.wait(self._durability.loop, appended)

    def _covering(self, offset: int) -> _Sync | None:
        """The sync without which this offset is not shown."""
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
                return running  # in Kafka it would have been appended behind that sync
            following = self._request()
            following.held_from = appended.base_offset
            self._hold()
        following.until = log.log_end_offset
        return following

    def covered(self) -> asyncio.Future[None] | None:
        """What everything appended so far waits for; None if nothing does. Raises StorageError if it waits in vain."""
        if self.log.failure is not None:
            raise StorageError(f"{self.log.topic}-{self.log.partition}: {self.log.failure}")
        for sync in (self._following, self._running):
            if sync is not None and sync.held_from is not None:
                return sync.wait(self._durability.loop, None)
        return None

    def soon(self) -> None:
        """Syncs what the log has now, in the background: nobody waits."""
        end_offset = self.log.log_end_offset
        if self._running is None or self._running.until < end_offset:
            self._request().until = end_offset

    def _request(self) -> _Sync:
        """The sync to come."""
        following = self._following
        if following is None:
            following = self._following = _Sync()
        if self._running is None and not self._is_requested:
            self._is_requested = True
            self._durability.request(self)
        return following

    def _hold(self) -> None:
        """Shows consumers what they may see."""
        self.log.hold_back(self._held_from())
        self.reckon()

    # What becomes of it

    def begin(self) -> bool | None:
        """The sync to come is under way from here on: whether anybody waits for it. None if there is none."""
        self._is_requested = False
        following = self._following
        if following is None or self._running is not None:
            return None
        self._running, self._following = following, None
        following.until = self.log.log_end_offset
        return following.held_from is not None

    def finished(self, error: BaseException | None) -> None:
        """The sync has ended: those whom it covers are answered, and the next one begins."""
        running, self._running = self._running, None
        if running is None:  # the log is gone
            return
        if error is not None:
            self._failed(running, error)
            return
        running.done()
        following = self._following
        if following is not None and following.until <= self.log.recovery_point:  # it began late enough to cover these
            following.done()
            self._following = None
        if self._following is not None:
            self._request()
        self._hold()
        self._on_shown()

    def _failed(self, running: _Sync, error: BaseException) -> None:
        log = self.log
        get_logger().error("a sync failed", topic=log.topic, partition=log.partition, reason=str(error))
        running.failed(error)
        if isinstance(error, StorageError) and log.failure is None:
            # It was not tried: what is held back stays so until it is, and whoever appended may send that again.
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
        """Ends every wait well: all that was appended is durable elsewhere, in a log that takes the place of this."""
        self._is_requested = False
        for sync in (self._running, self._following):
            if sync is not None:
                sync.done()
        self._running = self._following = None

    def end(self, error: BaseException) -> None:
        """Ends every wait, as when the log goes away; what it holds back stays so."""
        self._is_requested = False
        for sync in (self._running, self._following):
            if sync is not None:
                sync.failed(error)
        self._running = self._following = None

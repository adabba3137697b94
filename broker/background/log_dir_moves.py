"""Partitions that move from one data directory of the broker to another (KIP-113).

Owns which of them move and how far they are. A copy grows beside the partition (`storage/future_log.py`), which is read
and written meanwhile; when it has everything, its directory is written down for the partition, it takes the place, and
the old folder goes a little later, as that of a deleted topic. Everything that waits for the disk is done in threads
but that last step, on the event loop because nothing may be appended in it: by then there is little left to copy and
sync.

A move that is interrupted by a stop goes on after the next start. How fast all moves together copy is bounded by
`replica.alter.log.dirs.io.max.bytes.per.second`, in the time of disks and clients; how many do at once by
`num.replica.alter.log.dirs.threads`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.records.errors import CorruptRecords
from ...storage.errors import DirectoryFailed, OffsetOutOfRange, StorageError
from ...storage.future_log import FutureLog, discard, future_name, open_in_place
from ...storage.io.disk_errors import lasting_error
from ..config.message_format import forced_upgrade
from ..futures import wake
from ..logs import get_logger

if TYPE_CHECKING:
    from ...storage.io.files import Files
    from ..clock import Clock
    from ..config.values import Config
    from ..metadata.topics import Topics
    from ..replica.flush import Durability
    from ..replica.log_dirs import LogDir, LogDirs
    from ..replica.partition import Partition

COPY_BYTES = 1 << 20  # at once, as a fetch of a follower
LAST_BYTES = 1 << 18  # on the loop at most, at the first try
LAST_BYTES_MAX = 1 << 26  # where producers are faster than the syncs of what they have written
RETRY_MS = 1000  # after an error that may pass, and while nothing may be copied
BEGINNINGS = 3  # of a copy that does not fit what it is of, before that is given up
RATE_CONFIG = "replica.alter.log.dirs.io.max.bytes.per.second"
THREADS_CONFIG = "num.replica.alter.log.dirs.threads"

Key = tuple[str, int]


class _Over(Exception):
    """The move has been called off, or what moves is gone."""


class Move:
    """One partition on its way."""

    def __init__(self, partition: Partition, target: LogDir, path: str, *, is_continued: bool) -> None:
        self.partition = partition
        self.target = target
        self.path = path
        self.is_continued = is_continued
        self.future: FutureLog | None = None
        self.is_over = False
        self.task: asyncio.Task[None] | None = None
        self.waiting: asyncio.Future[None] | None = None  # while it waits for a time to come

    @property
    def is_waiting(self) -> bool:
        """Whether it does nothing for a while."""
        return self.waiting is not None and not self.waiting.done()

    def call_off(self) -> None:
        """Ends it; its task cleans up."""
        self.is_over = True
        wake(self.waiting)


class Moves:
    """All moves of one broker. Made when its data are open; everything belongs on its event loop."""

    def __init__(
        self,
        files: Files,
        logs: LogDirs,
        topics: Topics,
        config: Config,
        clock: Clock,
        waits: Clock,
        durability: Durability,
    ) -> None:
        self._files = files
        self._logs = logs
        self._topics = topics
        self._config = config
        self._clock = clock
        self._waits = waits
        self._durability = durability
        self._moves: dict[Key, Move] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._copying = 0
        self._slot_waiters: list[asyncio.Future[None]] = []
        self._free_ms = 0  # from when on more may be copied
        self._is_closing = False
        self._change: asyncio.Future[None] | None = None
        self.cleaning: Callable[[Partition], asyncio.Future[bool] | None] = lambda partition: None
        """The pass of the cleaner that is made over a partition, if there is one."""

    # What is under way

    def of(self, log_dir: LogDir) -> list[tuple[Partition, FutureLog]]:
        """The partitions that move to a directory, each with its copy."""
        return [
            (move.partition, move.future)
            for move in self._moves.values()
            if move.target is log_dir and move.future is not None and move.partition.offline is None
        ]

    @property
    def under_way(self) -> list[asyncio.Future[None]]:
        """What is being done just now; a move that waits for a time to come does nothing."""
        if all(move.is_waiting for move in self._moves.values()) and not self._tasks - self._tasks_of_moves():
            return []
        if self._change is None or self._change.done():
            self._change = self._durability.loop.create_future()
        return [self._change]

    def _tasks_of_moves(self) -> set[asyncio.Task[None]]:
        return {move.task for move in self._moves.values() if move.task is not None}

    def _tell(self) -> None:
        wake(self._change)

    # Beginning

    def move(self, partition: Partition, target: LogDir) -> None:
        """Has a partition move to a directory; one that moves elsewhere does so no more, and one that is there stays.
        Raises StorageError where a directory of the broker is offline, as Kafka does."""
        now = self._moves.get(_key(partition))
        if now is not None:
            if now.target is target:
                return
            self._call_off(now)
        if partition.lies_in(target):
            return
        if len(self._logs.online) < len(self._logs.all):
            raise StorageError("no partition moves while a log directory is offline")
        path = os.path.join(target.path, future_name(partition.topic, partition.index))
        self._begin(Move(partition, target, path, is_continued=False))

    def resume(self) -> None:
        """At the start: moves go on of which there are copies. One that may have what the partition has not, as after
        an unclean shutdown or a forced upgrade, begins anew; one of no partition is put aside."""
        for log_dir in self._logs.online:
            found, log_dir.data.futures = log_dir.data.futures, []
            for key, path in found:
                partition = self._topics.partition(*key) if self._topics.has_partition(*key) else None
                if partition is not None and partition.offline is not None:
                    continue  # it may be online at the next start
                is_wanted = partition is not None and not partition.lies_in(log_dir) and key not in self._moves
                holder = self._logs.holder(partition.log) if partition is not None else None
                is_kept = is_wanted and holder is not None and log_dir.data.was_clean and holder.data.was_clean
                is_kept = is_kept and not forced_upgrade(self._config)  # the copy may be of what was there before
                try:
                    if partition is None:  # it may be all that there is of it
                        renamed = log_dir.data.set_aside(*key, path)
                        get_logger().warning("a copy of no known partition was put aside", folder=renamed)
                    elif not is_kept:
                        discard(self._files, path)
                except StorageError as error:
                    get_logger().error("a copy of a partition stays", folder=path, reason=str(error))
                if partition is None or not is_wanted:
                    continue
                if not is_kept:
                    path = os.path.join(log_dir.path, future_name(*key))
                self._begin(Move(partition, log_dir, path, is_continued=is_kept))

    def _begin(self, move: Move) -> None:
        key = _key(move.partition)
        self._moves[key] = move
        self._logs.moving[key] = partial(self._call_off, move)
        move.task = self._durability.loop.create_task(self._run(move))
        self._tasks.add(move.task)
        move.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            get_logger().error("a move between directories failed", exc_info=task.exception())
        self._tell()

    def _call_off(self, move: Move) -> None:
        move.call_off()
        self._forget(move)

    def _forget(self, move: Move) -> None:
        key = _key(move.partition)
        if self._moves.get(key) is move:
            del self._moves[key]
            self._logs.moving.pop(key, None)
        self._tell()

    # The way of one

    async def _run(self, move: Move) -> None:
        where = {"topic": move.partition.topic, "partition": move.partition.index, "log_dir": move.target.path}
        has_turn = False
        try:
            await self._turn(move)
            has_turn = True
            get_logger().info("a partition moves", **where)
            await self._copy(move)
            get_logger().info("a partition has moved", **where)
        except _Over:
            await self._clean_up(move)
        except (StorageError, OffsetOutOfRange, CorruptRecords) as error:
            if not self._is_closing:
                get_logger().error("a partition does not move", **where, reason=str(error))
                if move.target.failure is None and move.partition.offline is None:
                    await self._clean_up(move)
                else:  # it may go on after the next start
                    self._leave(move)
        finally:
            self._forget(move)
            if has_turn:
                self._copying -= 1
            for turn in self._slot_waiters:
                if not turn.done():
                    turn.set_result(None)
                    break

    async def _turn(self, move: Move) -> None:
        """Returns when one more may copy."""
        while True:
            self._check(move)
            threads = self._config.get(THREADS_CONFIG) or len(self._logs.directories)
            if self._copying < threads:
                self._copying += 1
                return
            turn = self._durability.loop.create_future()
            self._slot_waiters.append(turn)
            move.waiting = turn
            self._tell()
            await turn
            self._slot_waiters.remove(turn)

    def _check(self, move: Move) -> None:
        if move.is_over or move.partition.is_gone:
            raise _Over
        if self._is_closing:
            raise StorageError("the broker stops")
        if move.partition.offline is not None:
            raise DirectoryFailed(f"{move.partition.topic}-{move.partition.index} is offline")
        if move.target.failure is not None:
            raise DirectoryFailed(f"{move.target.path} is offline: {move.target.failure}")

    async def _copy(self, move: Move) -> None:
        beginnings, last_bytes = 1, LAST_BYTES
        while True:
            self._check(move)
            try:
                if move.future is None:
                    await self._open(move)
                elif await self._follow(move):
                    continue
                elif await self._finish(move, last_bytes):
                    return
                else:
                    last_bytes = min(last_bytes * 2, LAST_BYTES_MAX)
            except (OffsetOutOfRange, CorruptRecords) as error:
                # Its end is not in the log any more, however often that happens; or it was the copy of something else.
                end_offset = move.future.log_end_offset if move.future is not None else 1 << 63
                if isinstance(error, CorruptRecords) or end_offset >= move.partition.log.log_start_offset:
                    if beginnings == BEGINNINGS:
                        raise
                    beginnings += 1
                await self._begin_anew(move)
            except StorageError as error:
                future = move.future
                self._check(move)
                if lasting_error(error) is not None or not isinstance(error.__cause__, OSError):
                    raise
                if future is not None and future.failure is not None:
                    await self._begin_anew(move)
                await self._wait_until(move, self._waits.now_ms() + RETRY_MS)

    async def _open(self, move: Move) -> None:
        log = move.partition.log
        while (cleaning := self.cleaning(move.partition)) is not None:  # it takes away what is copied and what is not
            await self._wait_for(move, cleaning)
        opened: list[FutureLog] = []
        begin = partial(
            FutureLog.begin,
            self._files,
            move.target.data,
            move.path,
            log,
            now_ms=self._clock.now_ms(),
            is_continued=move.is_continued,
        )
        try:
            await self._durability.in_thread(lambda: opened.append(begin()))
        except StorageError as error:
            if (cause := lasting_error(error)) is not None:
                move.target.data.fail(str(cause))  # as its own logs would
            raise
        move.future = opened[0]
        self._check(move)
        if not move.future.is_part_of(move.partition.log):
            raise OffsetOutOfRange(move.future.log_end_offset, log.log_start_offset, log.log_end_offset)

    async def _begin_anew(self, move: Move) -> None:
        await self._clean_up(move)
        move.path = os.path.join(move.target.path, future_name(move.partition.topic, move.partition.index))
        move.is_continued = False

    @staticmethod
    def _leave(move: Move) -> None:
        """Gives the files of the copy back."""
        future, move.future = move.future, None
        if future is not None:
            move.target.data.guests.discard(future)
            future.abandon()

    async def _clean_up(self, move: Move) -> None:
        """Removes the copy."""
        self._leave(move)
        if move.target.failure is None:
            try:
                await self._durability.in_thread(partial(discard, self._files, move.path))
            except StorageError as error:  # the next start removes it
                if not self._is_closing:
                    get_logger().error("a copy of a partition stays", folder=move.path, reason=str(error))

    async def _follow(self, move: Move) -> bool:
        """Copies some more; False if there is nothing."""
        log, future = move.partition.log, move.future
        assert future is not None
        if not future.lag(log) and future.log_start_offset >= log.log_start_offset:
            return False
        rate: int = self._config.get(RATE_CONFIG, 1 << 63)
        while self._waits.now_ms() < self._free_ms or not rate:
            await self._wait_until(move, max(self._free_ms, self._waits.now_ms() + (0 if rate else RETRY_MS)))
            self._check(move)
            log, rate = move.partition.log, self._config.get(RATE_CONFIG, 1 << 63)
        future.configure(log.config)
        data = future.wanted(log, min(COPY_BYTES, rate))
        size_bytes = len(data)
        self._free_ms = max(self._free_ms, self._waits.now_ms()) + size_bytes * 1000 // rate
        now_ms = self._clock.now_ms()
        await self._durability.in_thread(
            partial(future.follow, data, log.log_start_offset, log.log_end_offset if not size_bytes else -1, now_ms)
        )
        return True

    async def _wait_for(self, move: Move, other: asyncio.Future[Any]) -> None:
        """Returns when that has ended, whatever it came to; raises as `_check` once the move is over."""
        waiting = move.waiting = self._durability.loop.create_future()
        try:
            await asyncio.wait([other, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        self._check(move)

    async def _wait_until(self, move: Move, when_ms: int) -> None:
        self._check(move)  # who is over already is not told again
        waiting = move.waiting = self._durability.loop.create_future()
        timer = self._waits.call_at(when_ms, lambda: waiting.done() or waiting.set_result(None))
        self._tell()
        try:
            await waiting
        finally:
            timer.cancel()

    # The last step

    async def _finish(self, move: Move, last_bytes: int) -> bool:
        """Puts the copy in the place of the log; False if there is too much to copy by now."""
        future = move.future
        assert future is not None
        await self._durability.in_thread(future.save)
        self._check(move)
        if (unfinished := move.partition.unfinished) is not None:  # it may look into the log's files
            await self._wait_for(move, unfinished)
        # From here on without an await: what is appended now would be lost.
        partition, log = move.partition, move.partition.log
        if future.lag(log) and log.available_bytes(future.log_end_offset) > last_bytes:
            return False
        now_ms, key = self._clock.now_ms(), _key(partition)
        while future.lag(log) or future.log_start_offset < log.log_start_offset:
            data = future.wanted(log, COPY_BYTES)
            end_offset = -1 if len(data) else log.log_end_offset
            future.follow(data, log.log_start_offset, end_offset, now_ms)
        source = self._logs.holder(log)
        end_offset = future.complete(log)
        move.is_continued = True
        move.target.data.guests.discard(future)
        move.future = None
        self._topics.set_directory(partition, move.target.id, now_ms)
        try:
            move.target.data.write_cleaner_offset(*key, source.data.cleaner_offset(*key))
            placed = open_in_place(move.target.data, move.path, log, log.config, end_offset, now_ms)
        except StorageError as error:
            if (cause := lasting_error(error)) is not None:
                move.target.data.fail(str(cause))
            with contextlib.suppress(StorageError):
                move.target.data.discard_partition(*key)
            self._topics.set_directory(partition, source.id, now_ms)
            raise
        partition.replace_log(placed, self._durability, move.target.id)
        self._forget(move)
        self._logs.replaced(log, source, placed, move.target)
        self._durability.in_background(move.target.data.write_checkpoints, lambda error: None)
        return True

    async def close(self) -> None:
        """Stops at the next step: copies are closed, and go on after the next start."""
        self._is_closing = True
        moves = list(self._moves.values())
        for move in moves:
            wake(move.waiting)
        if self._tasks:
            await asyncio.wait(self._tasks)
        for move in moves:
            if move.future is not None:
                try:
                    move.future.check_usable()
                    await self._durability.in_thread(move.future.close)
                except StorageError:  # it is only a copy, but the next start would trust it
                    await self._clean_up(move)


def _key(partition: Partition) -> Key:
    return partition.topic, partition.index

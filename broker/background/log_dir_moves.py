"""Moves of partitions between the data directories of the broker (KIP-113).

Owns which partitions move and how far each has come. A copy grows beside the partition (`storage/future_log.py`), which
is read and written meanwhile. When the copy is complete, the partition's directory is recorded in the metadata log, the
copy replaces the log, and the old folder is deleted a little later, like that of a deleted topic. All waits for the
disk happen in threads, except in the last step: it runs on the event loop so that nothing is appended meanwhile, with
little left to copy and sync.

A move that a stop interrupts resumes after the next start. `replica.alter.log.dirs.io.max.bytes.per.second`, the lowest
of the nodes, bounds the rate of all moves together, in real time; `num.replica.alter.log.dirs.threads` bounds how many
copy at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.frozen import slotted
from ...protocol.records.errors import CorruptRecords
from ...storage.errors import DirectoryFailed, OffsetOutOfRange, StorageError
from ...storage.future_log import FutureLog, discard, future_name, open_in_place
from ...storage.io.disk_errors import lasting_error
from ..config.message_format import forced_upgrade
from ..futures import wake
from ..logs import get_logger

if TYPE_CHECKING:
    from ...storage.io.files import Files
    from ...storage.log_dir.directory import DataDirectory
    from ..clock import Clock
    from ..config.values import Config
    from ..metadata.topics import Topics
    from ..replica.flush import Durability
    from ..replica.log_dirs import LogDirs
    from ..replica.partition import Partition

COPY_BYTES = 1 << 20  # of one step, like a fetch of a follower
LAST_BYTES = 1 << 18  # copied on the event loop at most, in the first attempt
LAST_BYTES_MAX = 1 << 26  # the limit for producers that write faster than their data is synced
RETRY_MS = 1000  # after an error that may pass, and while the rate does not allow more
BEGINNINGS = 3  # restarts of a copy that does not match its log, before the move fails
RATE_CONFIG = "replica.alter.log.dirs.io.max.bytes.per.second"
THREADS_CONFIG = "num.replica.alter.log.dirs.threads"

Key = tuple[str, int]


class _Over(Exception):
    """The move was cancelled, or its partition was deleted."""


@slotted
class Move:
    """A move, and its copy once that is open. `waiting` is set while it waits for a time."""

    partition: Partition
    target: DataDirectory
    path: str
    is_continued: bool
    future: FutureLog | None = None
    is_over: bool = False
    task: asyncio.Task[None] | None = None
    waiting: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        return self.waiting is not None and not self.waiting.done()


class Moves:
    """All moves of one broker. Made when its data is open, and used on its event loop only."""

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
        self._owed_bytes = 0.0  # copied above the rate by `_owed_ms`
        self._owed_ms = 0
        self._is_closing = False
        self._change: asyncio.Future[None] | None = None
        self.cleaning: Callable[[Partition], asyncio.Future[bool] | None] = lambda partition: None
        """Returns the pass of the cleaner over a partition, or None."""

    # State

    def of(self, log_dir: DataDirectory) -> list[tuple[Partition, FutureLog]]:
        """The partitions that move to a directory, each with its copy."""
        return [
            (move.partition, move.future)
            for move in self._moves.values()
            if move.target is log_dir and move.future is not None and move.partition.offline is None
        ]

    @property
    def under_way(self) -> list[asyncio.Future[None]]:
        """The work under way; a move that waits for a time is idle."""
        tasks_of_moves = {move.task for move in self._moves.values()}
        if all(move.is_waiting for move in self._moves.values()) and not self._tasks - tasks_of_moves:
            return []
        if self._change is None or self._change.done():
            self._change = self._durability.loop.create_future()
        return [self._change]

    # Starting

    def move(self, partition: Partition, target: DataDirectory) -> None:
        """Starts the move of a partition to a directory. A move to another directory is cancelled; a partition that is
        there already stays. Raises StorageError while a directory of the broker is offline, as Kafka does.
        """
        now = self._moves.get(_key(partition))
        if now is not None:
            if now.target is target:
                return
            self._cancel(now)
        if partition.lies_in(target):
            return
        if len(self._logs.online) < len(self._logs.all):
            raise StorageError("no partition moves while a log directory is offline")
        path = os.path.join(target.path, future_name(partition.topic, partition.index))
        self._begin(Move(partition, target, path, is_continued=False))

    def resume(self) -> None:
        """Resumes the moves whose copies are found at the start.

        A copy that may have records that the partition lacks, as after an unclean shutdown or a forced upgrade, starts
        from scratch. A copy of an unknown partition is put aside.
        """
        for log_dir in self._logs.online:
            found, log_dir.futures = log_dir.futures, []
            for key, path in found:
                partition = self._topics.partition(*key) if self._topics.has_partition(*key) else None
                if partition is not None and partition.offline is not None:
                    continue  # it may be online at the next start
                is_wanted = partition is not None and not partition.lies_in(log_dir) and key not in self._moves
                holder = self._logs.holder(partition.log) if partition is not None else None
                is_kept = is_wanted and holder is not None and log_dir.was_clean and holder.was_clean
                is_kept = is_kept and not forced_upgrade(self._config)  # the copy may be in the old format
                try:
                    if partition is None:  # the copy may be the only data of it
                        renamed = log_dir.set_aside(*key, path)
                        get_logger().warning("copy of an unknown partition put aside", folder=renamed)
                    elif not is_kept:
                        discard(self._files, path)
                except StorageError as error:
                    get_logger().error("copy of a partition not removed", folder=path, reason=str(error))
                if partition is None or not is_wanted:
                    continue
                if not is_kept:
                    path = os.path.join(log_dir.path, future_name(*key))
                self._begin(Move(partition, log_dir, path, is_continued=is_kept))

    def _begin(self, move: Move) -> None:
        key = _key(move.partition)
        self._moves[key] = move
        self._logs.moving[key] = partial(self._cancel, move)
        move.task = self._durability.loop.create_task(self._run(move))
        self._tasks.add(move.task)
        move.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            get_logger().error("move between log directories failed", exc_info=task.exception())
        wake(self._change)

    def _cancel(self, move: Move) -> None:
        """Cancels the move; its task removes the copy."""
        move.is_over = True
        wake(move.waiting)
        self._forget(move)

    def _forget(self, move: Move) -> None:
        key = _key(move.partition)
        if self._moves.get(key) is move:
            del self._moves[key]
            self._logs.moving.pop(key, None)
        wake(self._change)

    # The steps of one move

    async def _run(self, move: Move) -> None:
        where = {"topic": move.partition.topic, "partition": move.partition.index, "log_dir": move.target.path}
        has_slot = False
        try:
            await self._take_slot(move)
            has_slot = True
            get_logger().info("move between log directories started", **where)
            await self._copy(move)
            get_logger().info("move between log directories completed", **where)
        except _Over:
            await self._clean_up(move)
        except (StorageError, OffsetOutOfRange, CorruptRecords) as error:
            if not self._is_closing:
                get_logger().error("move between log directories not possible", **where, reason=str(error))
                if move.target.failure is None and move.partition.offline is None:
                    await self._clean_up(move)
                else:  # it may resume after the next start
                    self._release(move)
        finally:
            self._forget(move)
            if has_slot:
                self._copying -= 1
            wake(next((waiter for waiter in self._slot_waiters if not waiter.done()), None))

    async def _take_slot(self, move: Move) -> None:
        """Returns when one more move may copy."""
        while True:
            self._check(move)
            threads = self._config.get(THREADS_CONFIG) or len(self._logs.directories)
            if self._copying < threads:
                self._copying += 1
                return
            waiter = self._durability.loop.create_future()
            self._slot_waiters.append(waiter)
            move.waiting = waiter
            wake(self._change)
            await waiter
            self._slot_waiters.remove(waiter)

    def _check(self, move: Move) -> None:
        if move.is_over or move.partition.is_gone:
            raise _Over
        if self._is_closing:
            raise StorageError("the broker is stopping")
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
                # The log was truncated below the copy's end, which may happen often; or the copy is of another log.
                end_offset = move.future.log_end_offset if move.future is not None else 1 << 63
                if isinstance(error, CorruptRecords) or end_offset >= move.partition.log.log_start_offset:
                    if beginnings == BEGINNINGS:
                        raise
                    beginnings += 1
                await self._restart(move)
            except StorageError as error:
                future = move.future
                self._check(move)
                if lasting_error(error) is not None or not isinstance(error.__cause__, OSError):
                    raise
                if future is not None and future.failure is not None:
                    await self._restart(move)
                await self._wait_until(move, self._waits.now_ms() + RETRY_MS)

    async def _open(self, move: Move) -> None:
        log = move.partition.log
        while (cleaning := self.cleaning(move.partition)) is not None:  # it would mix cleaned and uncleaned data
            await self._wait_for(move, cleaning)
        opened: list[FutureLog] = []
        begin = partial(
            FutureLog.begin,
            self._files,
            move.target,
            move.path,
            log,
            now_ms=self._clock.now_ms(),
            is_continued=move.is_continued,
        )
        try:
            await self._durability.in_thread(lambda: opened.append(begin()))
        except StorageError as error:
            if (cause := lasting_error(error)) is not None:
                move.target.fail(str(cause))  # as after an error of one of its own logs
            raise
        move.future = opened[0]
        self._check(move)
        if not move.future.is_part_of(move.partition.log):
            raise OffsetOutOfRange(move.future.log_end_offset, log.log_start_offset, log.log_end_offset)

    async def _restart(self, move: Move) -> None:
        await self._clean_up(move)
        move.path = os.path.join(move.target.path, future_name(move.partition.topic, move.partition.index))
        move.is_continued = False

    @staticmethod
    def _release(move: Move) -> None:
        """Releases the files of the copy."""
        future, move.future = move.future, None
        if future is not None:
            move.target.guests.discard(future)
            future.abandon()

    async def _clean_up(self, move: Move) -> None:
        """Removes the copy."""
        self._release(move)
        if move.target.failure is None:
            try:
                await self._durability.in_thread(partial(discard, self._files, move.path))
            except StorageError as error:  # the next start removes it
                if not self._is_closing:
                    get_logger().error("copy of a partition not removed", folder=move.path, reason=str(error))

    async def _follow(self, move: Move) -> bool:
        """Copies one more step. Returns False if nothing is left."""
        log, future = move.partition.log, move.future
        assert future is not None
        if not future.lag(log) and future.log_start_offset >= log.log_start_offset:
            return False
        while (wait_ms := self._wait_ms()) > 0:
            # Not longer: the rate may change meanwhile.
            await self._wait_until(move, self._waits.now_ms() + min(wait_ms, RETRY_MS))
            self._check(move)
            log = move.partition.log
        future.configure(log.config)
        data = future.wanted(log, min(COPY_BYTES, self._rate()))
        size_bytes = len(data)
        self._owed_bytes += size_bytes
        now_ms = self._clock.now_ms()
        await self._durability.in_thread(
            partial(future.follow, data, log.log_start_offset, log.log_end_offset if not size_bytes else -1, now_ms)
        )
        return True

    def _rate(self) -> int:
        """Returns the lowest rate of the nodes, which share the directories."""
        return 1 << 63 if self._config.fact(RATE_CONFIG) is None else self._config.lowest(RATE_CONFIG)

    def _wait_ms(self) -> int:
        """Returns the time until more may be copied at the present rate."""
        rate, now_ms = self._rate(), self._waits.now_ms()
        passed_ms, self._owed_ms = max(0, now_ms - self._owed_ms), now_ms
        self._owed_bytes = max(0.0, self._owed_bytes - rate * passed_ms / 1000)
        return int(self._owed_bytes * 1000 / rate) if rate else RETRY_MS

    async def _wait_for(self, move: Move, other: asyncio.Future[Any]) -> None:
        """Returns when `other` has ended, with or without an error. Raises as `_check` once the move is over."""
        waiting = move.waiting = self._durability.loop.create_future()
        try:
            await asyncio.wait([other, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        self._check(move)

    async def _wait_until(self, move: Move, when_ms: int) -> None:
        self._check(move)  # `_cancel` wakes a move only once
        waiting = move.waiting = self._durability.loop.create_future()
        timer = self._waits.call_at(when_ms, wake, waiting)
        wake(self._change)
        try:
            await waiting
        finally:
            timer.cancel()

    # The last step

    async def _finish(self, move: Move, last_bytes: int) -> bool:
        """Replaces the log by the copy. Returns False if too much is left to copy by now."""
        future = move.future
        assert future is not None
        await self._durability.in_thread(future.save)
        self._check(move)
        if (unfinished := move.partition.unfinished) is not None:  # it may read the log's files
            await self._wait_for(move, unfinished)
        # No await from here on: records appended now would be lost.
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
        move.target.guests.discard(future)
        move.future = None
        self._topics.set_directory(partition, move.target.id, now_ms)
        try:
            move.target.write_cleaner_offset(*key, source.cleaner_offset(*key))
            placed = open_in_place(move.target, move.path, log, log.config, end_offset, now_ms)
        except StorageError as error:
            if (cause := lasting_error(error)) is not None:
                move.target.fail(str(cause))
            with contextlib.suppress(StorageError):
                move.target.discard_partition(*key)
            self._topics.set_directory(partition, source.id, now_ms)
            raise
        partition.replace_log(placed, self._durability, move.target.id)
        self._forget(move)
        self._logs.replaced(log, source)
        self._durability.in_background(move.target.write_checkpoints, lambda error: None)
        return True

    async def close(self) -> None:
        """Stops the moves at their next step. Copies are closed and resume after the next start."""
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
                except StorageError:  # the next start must not rely on such a copy
                    await self._clean_up(move)


def _key(partition: Partition) -> Key:
    return partition.topic, partition.index

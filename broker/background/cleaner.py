"""The log cleaner: chooses the next compacted partition to clean, and adopts the result.

Owns the order of passes, one at a time, and the cleaner offset of each log. A pass itself is `storage.compaction`'s and
runs in a process of its own (`cleaner_process`). New segments replace old ones here, between two requests. Retention
skips a log that is being cleaned. A log that cannot be cleaned because its data is damaged is skipped until the next
start; Apache Kafka calls such a partition uncleanable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from ...storage.compaction.compaction import (
    Clean,
    Cleaned,
    Dirtiness,
    Group,
    dirtiness,
    facts_of,
    most_dirty,
    next_change_ms,
    task_of,
)
from ...storage.errors import StorageError
from ...storage.io.disk_errors import PASSING
from ...storage.io.files import DiskFiles, Files
from ...storage.log.retention import Removed
from ...storage.partition_log import PartitionLog
from ..config.log_config import MAX_LAG_MS
from ..logs import get_logger
from .cleaner_process import CleanerHere, CleanerProcess, CleaningFailed, remove_leftovers

if TYPE_CHECKING:
    from ...storage.log_dir.directory import DataDirectory
    from ..clock import Clock, Timer
    from ..config.values import Config
    from ..metadata.topics import Topic, Topics
    from ..replica.log_dirs import LogDirs
    from ..replica.partition import Partition

LEAST_BACKOFF_MS = 100  # log.cleaner.backoff.ms may be 0
NO_LAGS = (0, MAX_LAG_MS)

Key = tuple[str, int]


class Cleaner:
    """See the module. After `close` the logs may be closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        config: Config,
        files: Files,
        logs: LogDirs,
        topics: Topics,
        remove_later: Callable[[Callable[[], None], int], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._config = config
        self._files = files
        self._logs = logs
        self._topics = topics
        self._remove_later = remove_later
        self._uncleanable: set[Key] = set()
        self._timer: Timer | None = None
        self._backoff_ms = 0  # of the timer
        self._thread = ThreadPoolExecutor(1, "ottla-cleaner")
        self._runner: CleanerProcess | CleanerHere | None = None
        self._log: PartitionLog | None = None
        self._pass: asyncio.Task[bool] | None = None
        self._closed = False
        logs.on_delete = self._stop_deleted
        self.look()

    def is_cleaning(self, log: PartitionLog) -> bool:
        return self._log is log

    def pass_over(self, partition: Partition) -> asyncio.Future[bool] | None:
        """Returns the pass over a partition that is under way, or None."""
        is_cleaned = self._log is not None and partition.offline is None and partition.log is self._log
        return self._pass if is_cleaned else None

    @property
    def under_way(self) -> asyncio.Task[bool] | None:
        return self._pass

    def _start_timer(self) -> None:
        """Schedules `look` each `log.cleaner.backoff.ms`, by the current value of that config."""
        backoff_ms = max(self._config["log.cleaner.backoff.ms"], LEAST_BACKOFF_MS)
        if self._timer is None or self._backoff_ms != backoff_ms:
            self._stop_timer()
            self._backoff_ms = backoff_ms
            self._timer = self._clock.call_every(backoff_ms, self.look, self._due_ms)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Starts a pass over the dirtiest log. If none needs cleaning, schedules the next look."""
        if self._closed or self._pass is not None:
            return
        chosen = self._choose()
        if chosen is None:
            self._start_timer()
            return
        self._stop_timer()
        self._log = chosen[1]
        self._pass = self._loop.create_task(self._clean(*chosen))
        self._pass.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._pass, self._runner, self._log = None, None, None
        if self._closed or task.cancelled():
            return
        if (error := task.exception()) is not None:
            get_logger().error("log cleaner failed", exc_info=error)
        if error is None and task.result():
            self.look()  # another log may need cleaning at once
        else:
            self._start_timer()

    # Choosing

    def _cleanable(self) -> Iterator[tuple[Topic, PartitionLog]]:
        """The compacted logs with more than the active segment."""
        for topic in self._topics:
            if "compact" not in topic.config["cleanup.policy"]:
                continue
            for partition in topic.online_partitions():
                log, key = partition.log, (topic.name, partition.index)
                if key in self._logs.moving:  # cleaning during the copy would mix cleaned and uncleaned segments
                    continue
                if len(log.segments) > 1 and log.failure is None and key not in self._uncleanable:
                    yield topic, log

    def _choose(self) -> tuple[Topic, PartitionLog, DataDirectory, Dirtiness] | None:
        now_ms = self._clock.now_ms()
        found: dict[Key, tuple[Topic, PartitionLog, DataDirectory, Dirtiness]] = {}
        for topic, log in self._cleanable():
            try:
                log_dir = self._logs.holder(log)
                found[topic.name, log.partition] = topic, log, log_dir, self._dirtiness(topic, log, log_dir, now_ms)
            except StorageError as error:
                get_logger().error("not cleaned", topic=topic.name, partition=log.partition, reason=str(error))
        chosen = most_dirty(
            {key: (dirty, topic.config["min.cleanable.dirty.ratio"]) for key, (topic, _, _, dirty) in found.items()}
        )
        return found[chosen] if chosen is not None else None

    def _due_ms(self) -> int | None:
        """The earliest time at which a look may find work in the present state: 0 for now, None for never."""
        logs = list(self._cleanable())
        if not logs:
            return None
        if self._choose() is not None:
            return 0
        now_ms = self._clock.now_ms()
        found: list[int] = []
        for topic, log in logs:
            lags = self._lags_ms(topic)
            if lags != NO_LAGS:
                with contextlib.suppress(StorageError):  # logged by `_choose`
                    facts = facts_of(log.segments, with_times=True)
                    if (when_ms := next_change_ms(facts, now_ms, *lags)) is not None:
                        found.append(when_ms)
        return min(found, default=None)

    @staticmethod
    def _lags_ms(topic: Topic) -> tuple[int, int]:
        """The least and the greatest time for which a record of the topic stays uncleaned."""
        return topic.config["min.compaction.lag.ms"], topic.config.get("max.compaction.lag.ms", MAX_LAG_MS)

    def _dirtiness(self, topic: Topic, log: PartitionLog, log_dir: DataDirectory, now_ms: int) -> Dirtiness:
        min_lag_ms, max_lag_ms = lags = self._lags_ms(topic)
        return dirtiness(
            facts_of(log.segments, with_times=lags != NO_LAGS),
            cleaner_offset=log_dir.cleaner_offset(log.topic, log.partition),
            log_start_offset=log.log_start_offset,
            last_stable_offset=log.last_stable_offset,
            now_ms=now_ms,
            min_lag_ms=min_lag_ms,
            max_lag_ms=max_lag_ms,
        )

    # One pass

    async def _clean(self, topic: Topic, log: PartitionLog, log_dir: DataDirectory, dirty: Dirtiness) -> bool:
        """Makes one pass. Returns whether to look for the next one at once, which is False after an error that may
        pass.
        """
        runner = self._runner = CleanerProcess() if isinstance(self._files, DiskFiles) else CleanerHere(self._files)
        in_thread = partial(self._loop.run_in_executor, self._thread)
        delay_ms: int = topic.config["file.delete.delay.ms"]
        try:
            if log.recovery_point < dirty.end_offset:
                await in_thread(log.flush)
            if log_dir.cleaner_offset(log.topic, log.partition) is None:  # from now on offsets may be missing
                await in_thread(log_dir.cleaned, log, dirty.first_dirty_offset)
            task = self._task(topic, log, dirty)
            put_in_place = partial(self._put_in_place, log, delay_ms)
            rate: float = self._config["log.cleaner.io.max.bytes.per.second"]
            cleaned: Cleaned = await in_thread(runner.run, task, rate, put_in_place)
            await in_thread(log_dir.cleaned, log, cleaned.end_offset)
        except (StorageError, CleaningFailed) as error:
            if isinstance(error, CleaningFailed) and error.errno is not None and error.errno not in PASSING:
                log_dir.fail(str(error))  # as after an error of the log's own operations
                return False
            try:
                remove_leftovers(self._files, log.directory)
            except StorageError as failure:  # the next start removes them
                get_logger().error("leftovers of a cleaning not removed", reason=str(failure))
            return log.failure is None and not self._closed and self._failed(log, error)
        get_logger().info(
            "log cleaned",
            topic=log.topic,
            partition=log.partition,
            clean_up_to=cleaned.end_offset,
            read_bytes=cleaned.read_bytes,
            written_bytes=cleaned.written_bytes,
            read_records=cleaned.read_records,
            written_records=cleaned.written_records,
        )
        return True

    def _failed(self, log: PartitionLog, error: StorageError | CleaningFailed) -> bool:
        """Logs a failed pass. Returns True for an uncleanable log, so that the next pass starts at once."""
        where: dict[str, Any] = {"topic": log.topic, "partition": log.partition, "reason": str(error)}
        if isinstance(error, CleaningFailed) and not error.is_damage:
            get_logger().error("log not cleaned, the next pass retries it", **where)
            return False
        self._uncleanable.add((log.topic, log.partition))
        get_logger().error("log uncleanable until the next start", **where)
        return True

    def _task(self, topic: Topic, log: PartitionLog, dirty: Dirtiness) -> Clean:
        behaviour = self._config.profile.behaviour
        keeps = behaviour.cleaner_keeps_last_batch
        task = task_of(
            log.directory,
            log.config,
            log.producers(),
            facts_of(log.segments, with_times=False),
            dirty,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=topic.config["delete.retention.ms"],
        )
        return task._replace(
            keep_old_formats=behaviour.cleaner_keeps_old_formats,
            delete_horizon=behaviour.delete_horizon,
            keep_empty_at_end=keeps != "none",
            kept_end_offset=log.high_watermark if keeps == "high_watermark" else dirty.end_offset,
            dedupe_buffer_bytes=self._config["log.cleaner.dedupe.buffer.size"],
        )

    def _put_in_place(self, log: PartitionLog, delay_ms: int, group: Group) -> None:
        """Called in the thread of the pass. Replaces segments on the event loop, between two requests, and waits for
        it.
        """

        async def replace() -> None:
            if self._closed:
                raise CleaningFailed("the broker is stopping", False)
            removed: Removed = log.replace_segments(group.new, group.old)
            self._remove_later(removed.remove, delay_ms)

        asyncio.run_coroutine_threadsafe(replace(), self._loop).result()

    async def close(self) -> None:
        """Ends the pass under way and removes the files it was writing."""
        self._closed = True
        self._stop_timer()
        if self._runner is not None:
            self._runner.stop()
        if self._pass is not None:
            await asyncio.wait([self._pass])
        self._thread.shutdown(wait=False)

    def _stop_deleted(self, log: PartitionLog) -> None:
        """Stops the pass over a log that is about to be deleted."""
        self._uncleanable.discard((log.topic, log.partition))
        if self._log is log and self._runner is not None:
            self._runner.stop()

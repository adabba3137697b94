"""The syncs of one log against a model: random appends, duplicates, syncs that succeed, fail or are delayed.

The log is a list of numbers, and the test ends the syncs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.broker.replica.flush import Durability, LogSync
from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.log.results import Appended
from ottla_testing.patience import PATIENCE_S

NEVER = 2**63 - 1


class Log:
    """The parts of a partition's log that its syncs use."""

    topic, partition = "t", 0

    def __init__(self, flush_messages: int) -> None:
        self.config = LogConfig(flush_messages=flush_messages)
        self.log_end_offset = 0
        self.recovery_point = 0
        self.failure: str | None = None
        self.held_from: int | None = None
        self.appends: list[Appended] = []

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset if self.held_from is None else self.held_from

    def hold_back(self, offset: int | None) -> None:
        self.held_from = offset

    def append(self, count: int) -> Appended:
        first = self.log_end_offset
        self.log_end_offset += count
        self.appends.append(Appended(first, self.log_end_offset - 1, -1, 0, False))
        return self.appends[-1]


class Pool:
    """Replaces Durability: starts and ends syncs on request."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.requested: list[LogSync] = []
        self.later: list[LogSync] = []
        self.running: int | None = None  # the log end offset at the start of the sync under way

    def request(self, of: LogSync) -> None:
        self.requested.append(of)

    def request_later(self, of: LogSync) -> None:
        self.later.append(of)


@dataclass
class Play:
    """One random run."""

    rng: random.Random
    log: Log
    pool: Pool
    sync: LogSync = field(init=False)
    waiting: list[tuple[Appended, Any, int]] = field(default_factory=list)  # with flush.messages at that moment
    responded: list[Appended] = field(default_factory=list)
    shown: int = 0
    syncs: int = 0

    def __post_init__(self) -> None:
        self.sync = LogSync(self.pool, self.log, lambda: None)  # type: ignore[arg-type]

    def append(self) -> None:
        if self.log.failure is not None:
            return
        appended = self.log.append(self.rng.randint(1, 3))
        if appended.last_offset < self.sync.due_at:
            assert self.log.held_from is None
            self.check_result(appended, self.log.config.flush_messages)
        else:
            self.wait(appended, self.log.config.flush_messages)

    def copy(self) -> None:
        """Sends a duplicate of any earlier append."""
        if self.log.appends and self.log.failure is None:
            appended = self.rng.choice(self.log.appends[-10:])._replace(duplicate=True)
            if appended.last_offset < self.sync.due_at:
                self.check_result(appended, NEVER)
            else:
                self.wait(appended, NEVER)

    def wait(self, appended: Appended, flush_messages: int) -> None:
        found = self.sync.after(appended)
        if isinstance(found, asyncio.Future):
            self.waiting.append((appended, found, flush_messages))
        else:
            assert found is appended
            self.check_result(appended, flush_messages)

    def check_result(self, appended: Appended, flush_messages: int) -> None:
        """Fewer than `flush_messages` acknowledged records are not durable, and hidden records have no response."""
        assert appended.last_offset < self.log.high_watermark
        assert appended.last_offset + 1 - self.log.recovery_point < max(flush_messages, 1)
        self.responded.append(appended)

    def begin(self) -> None:
        """Starts a requested sync, which may read the log end a little later."""
        for of in self.pool.requested[:1]:
            self.pool.requested.remove(of)
            if of.begin() is not None:
                assert self.pool.running is None, "two syncs at once"
                for _ in range(self.rng.choice((0, 0, 1, 3))):
                    self.append()
                self.pool.running = self.log.log_end_offset
                self.syncs += 1

    def end(self, error: str = "") -> None:
        if self.pool.running is None:
            return
        end_offset, self.pool.running = self.pool.running, None
        if error == "failed":
            self.log.failure = "a sync failed"
        if not error:
            self.log.recovery_point = end_offset
        self.sync.finished(StorageError(error) if error else None)

    def collect(self) -> None:
        """Collects the results of finished waits."""
        still = []
        for appended, future, flush_messages in self.waiting:
            if not future.done():
                still.append((appended, future, flush_messages))
            elif future.exception() is None:
                assert future.result() is appended
                self.check_result(appended, flush_messages)
        self.waiting = still

    def check(self) -> None:
        log = self.log
        self.collect()
        assert self.shown <= log.high_watermark <= log.log_end_offset
        self.shown = log.high_watermark
        if log.config.flush_messages == 1 and log.held_from is None and not self.changed:
            assert log.recovery_point == log.log_end_offset
        if self.pool.running is None and not self.pool.requested and not self.pool.later:
            assert not self.waiting, "these waits never end"
            assert log.held_from is None or log.failure is not None

    changed: bool = False

    def settle(self) -> None:
        """Lets all waits end."""
        while self.pool.requested or self.pool.later or self.pool.running is not None:
            for of in self.pool.later:
                self.pool.request(of)
            self.pool.later = []
            self.begin()
            self.end()
            self.check()
        assert not self.waiting


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.mark.parametrize("flush_messages", [0, 1, 2, 7])
def test_random_operations_match_the_model(
    flush_messages: int, loop: asyncio.AbstractEventLoop, scaled: Callable[[int], int]
) -> None:
    first = random.randrange(1 << 32)
    synced = 0
    for seed in range(first, first + scaled(150)):
        rng = random.Random(seed)
        play = Play(rng, Log(flush_messages), Pool(loop))

        def retry(play: Play = play) -> None:
            later, play.pool.later = play.pool.later, []
            play.pool.requested += later

        def configure(play: Play = play, rng: random.Random = rng) -> None:
            play.changed = True
            play.log.config = LogConfig(flush_messages=rng.choice((1, 2, 5, NEVER)))
            play.sync.reckon()

        steps: list[tuple[Callable[[], None], float]] = [
            (play.append, 10),
            (play.copy, 3),
            (play.begin, 6),
            (play.end, 5),
            (lambda play=play: play.end("put off"), 0.5),
            (lambda play=play: play.end("failed"), 0.05),
            (lambda play=play: play.sync.soon(), 1),
            (retry, 2),
            (configure, 0.3),
        ]
        try:
            for step in rng.choices([step for step, _ in steps], [weight for _, weight in steps], k=120):
                step()
                play.check()
            if rng.random() < 0.2:  # the topic is deleted meanwhile
                play.sync.end(StorageError("gone"))
                play.end()
                play.collect()
                assert not play.waiting
                continue
            play.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        synced += play.syncs
    assert synced > scaled(150)


async def test_idle_returns_after_a_requested_sync_was_dropped() -> None:
    durability = Durability(asyncio.get_running_loop(), None)  # type: ignore[arg-type]
    log: Any = Log(1)
    sync = LogSync(durability, log, lambda: None)
    sync.soon()
    sync.end(StorageError("gone"))
    async with asyncio.timeout(PATIENCE_S):
        await durability.idle()
        await durability.close()

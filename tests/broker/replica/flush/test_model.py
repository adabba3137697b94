"""The syncs of one log against what they are for: random appends, copies, syncs that succeed, fail or are put off.

The log is a row of numbers here, and syncs end when the test lets them.
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
    """As much of a partition's log as its syncs know."""

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
    """In the place of Durability: begins and ends syncs when it is told to."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.requested: list[LogSync] = []
        self.later: list[LogSync] = []
        self.running: int | None = None  # the log's end when the sync under way looked

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
    waiting: list[tuple[Appended, Any, int]] = field(default_factory=list)  # with flush.messages of that moment
    answered: list[Appended] = field(default_factory=list)
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
            self.answer(appended, self.log.config.flush_messages)
        else:
            self.wait(appended, self.log.config.flush_messages)

    def copy(self) -> None:
        """Of anything that was appended, however long ago."""
        if self.log.appends and self.log.failure is None:
            appended = self.rng.choice(self.log.appends[-10:])._replace(duplicate=True)
            if appended.last_offset < self.sync.due_at:
                self.answer(appended, NEVER)
            else:
                self.wait(appended, NEVER)

    def wait(self, appended: Appended, flush_messages: int) -> None:
        found = self.sync.after(appended)
        if isinstance(found, asyncio.Future):
            self.waiting.append((appended, found, flush_messages))
        else:
            assert found is appended
            self.answer(appended, flush_messages)

    def answer(self, appended: Appended, flush_messages: int) -> None:
        """Fewer than so many of what was answered are not durable; and nobody is told of what is held back."""
        assert appended.last_offset < self.log.high_watermark
        assert appended.last_offset + 1 - self.log.recovery_point < max(flush_messages, 1)
        self.answered.append(appended)

    def begin(self) -> None:
        """A sync begins if one was asked for; it may look at the log only a little later."""
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
        """Looks who has been answered."""
        still = []
        for appended, future, flush_messages in self.waiting:
            if not future.done():
                still.append((appended, future, flush_messages))
            elif future.exception() is None:
                assert future.result() is appended
                self.answer(appended, flush_messages)
        self.waiting = still

    def check(self) -> None:
        log = self.log
        self.collect()
        assert self.shown <= log.high_watermark <= log.log_end_offset
        self.shown = log.high_watermark
        if log.config.flush_messages == 1 and log.held_from is None and not self.changed:
            assert log.recovery_point == log.log_end_offset
        if self.pool.running is None and not self.pool.requested and not self.pool.later:
            assert not self.waiting, "nobody will ever answer these"
            assert log.held_from is None or log.failure is not None

    changed: bool = False

    def settle(self) -> None:
        """Lets everything come to its end."""
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
def test_random_plays(flush_messages: int, loop: asyncio.AbstractEventLoop, scaled: Callable[[int], int]) -> None:
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
            if rng.random() < 0.2:  # the topic is deleted in the midst of it
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


async def test_idle_ends_also_when_what_was_asked_for_is_gone() -> None:
    durability = Durability(asyncio.get_running_loop(), None)  # type: ignore[arg-type]
    log: Any = Log(1)
    sync = durability.of(log, lambda: None)
    sync.soon()
    sync.end(StorageError("gone"))
    async with asyncio.timeout(PATIENCE_S):
        await durability.idle()
        await durability.close()

"""Random errors of three disks under a broker that is written to, cleaned, stopped and started.

In the end every record is there once, in order, and no directory has a finding. The writers are idempotent and retry
unacknowledged batches, as clients do.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from ottla.broker.clock import ManualClock
from ottla.broker.config.serve_options import StartupError
from ottla.broker.logs import get_logger
from ottla.broker.network import server
from ottla.protocol.records import formats
from ottla.storage.check.directory import Verification
from ottla.storage.errors import StorageError
from ottla_testing.broker.harness import Broker, Client, create_topics, fetch, options, produce
from ottla_testing.broker.idempotence import numbered
from ottla_testing.storage.failing_files import CHANGES, FailingFiles

PARTITIONS = 5
OVERRIDES = {"log.index.size.max.bytes": "60", "log.index.interval.bytes": "0", "log.cleaner.enable": "false"}
CODES = (errno.EIO, errno.EROFS, errno.ENOSPC, errno.EMFILE, errno.EDQUOT)
OPERATIONS = sorted(CHANGES | {"open", "read", "read_bytes", "size", "list", "lock", "modified"})
OFTEN = ["write"] * 12 + ["create", "open", "replace", "read", "sync"] * 4  # the frequent operations of a broker
RETRIED = (56, 6)


class Life:
    """One broker after the other over the same directories, and the state of its clients."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folders = [folder / name for name in ("one", "two", "three")]
        self.files = FailingFiles()
        self.clock = ManualClock()
        self.broker: Broker | None = None
        self.client: Client | None = None
        self.written = [0] * PARTITIONS  # acknowledged sequences: all below it
        self.failures = 0
        self.lost = 0  # directories

    def trouble(self) -> None:
        """Makes one later operation fail, or several on one disk."""
        rng = self.random
        operation, code = rng.choice(OPERATIONS + OFTEN), rng.choice(CODES)
        folder, left = str(rng.choice(self.folders)), rng.randrange(4)
        stretch = rng.choice((1, 1, 3, 1000))

        def fails(found: str, path: str) -> int:
            nonlocal left
            if found != operation or not path.startswith(folder):
                return 0
            left -= 1
            if not -stretch <= left < 0:
                return 0
            self.failures += 1
            return code

        self.files.fails = fails

    async def start(self) -> None:
        """Starts until a start succeeds: the disks are repaired after a refused one."""
        while self.broker is None:
            requested = options(self.folders, OVERRIDES)
            try:
                started = await server.start(requested, asyncio.get_running_loop(), self.clock, files=self.files)
            except StartupError:
                self.files.repair()
                continue
            self.broker = Broker(started, self.clock)
            self.client = await self.broker.client()

    async def stop(self) -> None:
        if self.broker is not None:
            logs = self.broker.state.logs
            self.lost += len(logs.all) - len(logs.online)
            with contextlib.suppress(StorageError):
                await self.broker.stop()
            self.broker = self.client = None

    async def write(self, index: int) -> int:
        """Writes one batch of two records; returns the code."""
        assert self.client is not None
        sequence = self.written[index]
        data = numbered(sequence, producer_id=100 + index)
        (topic,) = (await self.client.call(produce(data, "t", index), 9)).responses
        code = topic.partition_responses[0].error_code
        assert code in (0, *RETRIED), code
        if code == 0:
            self.written[index] += 2
        return code

    async def step(self) -> None:
        assert self.broker is not None and self.client is not None
        chance = self.random.random()
        index = self.random.randrange(PARTITIONS)
        if chance < 0.25:
            self.trouble()
        elif chance < 0.28:
            self.files.repair()
        elif chance < 0.75:
            await self.write(index)
        elif chance < 0.85:
            offset = self.random.randrange(self.written[index] + 1)
            (topic,) = (await self.client.call(fetch(("t", index, offset)), 11)).responses
            assert topic.partitions[0].error_code in (0, 56)
        elif chance < 0.9:
            self.clock.advance(61_000)
            await self.broker.state.durability.idle()
        elif chance < 0.95:
            name = f"more{self.random.randrange(1 << 30)}"
            (made,) = (await self.client.call(create_topics(name, partitions=2), 7)).topics
            assert made.error_code in (0, 56)
        else:
            await self.stop()
            await self.start()
        await asyncio.sleep(0)
        if self.broker is not None and self.broker.state.failed.done():  # as the process would
            await self.stop()
            self.files.repair()
            await self.start()

    def stored(self, index: int) -> list[int]:
        """The sequences of a partition's records on the disk."""
        (folder,) = (path for top in self.folders for path in top.glob(f"t-{index}"))
        found = []
        for path in sorted(folder.glob("*.log")):
            data = path.read_bytes()
            for position, _ in formats.headers(data):
                found += [int(record.value or b"-1") for record in formats.records(data, position)]
        return found


async def live(folder: Path, seed: int, steps: int) -> Life:
    life = Life(folder, seed)
    await life.start()
    assert life.client is not None
    (made,) = (await life.client.call(create_topics("t", partitions=PARTITIONS), 7)).topics
    assert made.error_code == 0
    for _ in range(steps):
        await life.step()
    life.files.repair()
    await life.stop()
    await life.start()
    for index in range(PARTITIONS):
        assert await life.write(index) == 0
    await life.stop()
    return life


@pytest.mark.soak
@pytest.mark.slow
async def test_every_record_is_stored_once_after_random_failures(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    get_logger()
    failures = lost = 0
    for number in range(scaled(4) + 40):
        if number >= scaled(4) and failures and lost:
            break  # else a few lives more: in many no directory is lost
        seed = random.randrange(1 << 32)
        folder = tmp_path / str(seed)
        with structlog.testing.capture_logs() as events:
            try:
                life = await live(folder, seed, 120)
                for index in range(PARTITIONS):
                    assert life.stored(index) == list(range(life.written[index])), f"partition {index}"
                for top in life.folders:
                    assert [found for found in Verification(str(top)).findings() if found.wrong] == []
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error
        assert not [event for event in events if event.get("exc_info")], f"seed {seed}: {events}"
        failures, lost = failures + life.failures, lost + life.lost
        shutil.rmtree(folder)
    assert failures > 0 and lost > 0

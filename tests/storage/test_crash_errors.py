"""The n-th disk call fails during mixed work: acknowledged records stay, and the live log serves them.

The error is EIO or a full disk, with any part of a write done, in a call that changes or only reads something. The
failed call is not acknowledged; the next opening finds all acknowledged records, and a beginning of the rest.

A failure prints its seed; `OTTLA_CRASH_SEED=n` runs that one alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable

import pytest

from ottla.storage.errors import StorageError
from ottla_testing.storage.crash_check import check, check_log
from ottla_testing.storage.crash_world import Stop, Violation, World
from ottla_testing.storage.simulated_files import SimulatedFile

ONLY = os.environ.get("OTTLA_CRASH_SEED")


class FailingWorld(World):
    """Work in which one call fails; it ends there, with a check of the running process, and an opening."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, check)
        self.failed: StorageError | None = None

    def on_step(self, step: object) -> None:
        """Does not interrupt the work; only the error does."""

    def do(self, operation: Callable[[], None]) -> None:
        if self.failed is not None:
            return
        try:
            super().do(operation)
        except StorageError as error:
            self.failed = error
            self.check_all(f"an error in {self.doing}: {error}")

    def check_all(self, where: str) -> None:
        """Checks the running process, and the state that the next one finds."""
        self.files.restart()
        for key, log in self.logs.items():
            if log.failure is None and self.directory.failure is None and key in self.partitions:
                check_log(log, self.partitions[key].copy(), True, self.chance)
        self.directory.abandon()
        fork = self.files.fork()
        fork.restart()
        known = {key: partition.copy() for key, partition in self.partitions.items()}
        check(Stop(fork, known, set(self.gone), True, self.upgrades, where), self.chance)


def run(seed: int) -> FailingWorld:
    rng = random.Random(seed)
    counting = FailingWorld(seed)
    counting.run()
    world = FailingWorld(seed)
    world.files.fail_with = rng.choice((errno.EIO, errno.ENOSPC))
    world.files.portion = rng.random()
    if rng.random() < 0.7:
        world.files.fail_at = rng.randrange(counting.files.steps)
    else:
        world.files.fail_look_at = rng.randrange(max(counting.files.looks, 1))
    try:
        world.run()
        if world.failed is None:  # the failure had no consequences
            world.check_all("the end")
    except StorageError as error:
        assert not world.history, f"OTTLA_CRASH_SEED={seed} shows it again: only the first opening may fail so: {error}"
        world.failed = error
    except (Violation, AssertionError, OSError) as error:
        work = ", ".join(world.history)
        raise AssertionError(f"OTTLA_CRASH_SEED={seed} shows it again: {error}\nthe work: {work}") from error
    return world


@pytest.mark.soak
def test_disk_error_keeps_every_acknowledged_batch(scaled: Callable[[int], int]):
    first = random.randrange(1 << 32)
    worlds = [run(seed) for seed in ([int(ONLY)] if ONLY is not None else range(first, first + scaled(60)))]
    assert any(world.failed is not None for world in worlds) or ONLY is not None


def test_undetected_short_write_is_found(monkeypatch: pytest.MonkeyPatch):
    write = SimulatedFile.write

    def short(file: SimulatedFile, position: int, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a part of it was written
            write(file, position, data)

    monkeypatch.setattr(SimulatedFile, "write", short)
    with pytest.raises(AssertionError, match="shows it again"):
        for seed in range(200):
            run(seed)

"""Mixed work on a data directory, stopped at every write, sync and rename: nothing that was promised is lost.

Each seed is one run of `crash_world.World`: appends in all formats, by producers with and without sequences, rolls,
flushes, retention, DeleteRecords, checkpoints, upgrades, clean and unclean ends, partitions that come and go. At each
call that changes the disk a kill and a power loss are tried, and `crash_check` opens what is left.

A failure prints its seed; `OTTLA_CRASH_SEED=n` runs that one alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from ottla_testing.storage.crash_check import check
from ottla_testing.storage.crash_world import Violation, World

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
ONLY = os.environ.get("OTTLA_CRASH_SEED")
PARTS = 5  # of one test each


def run(seed: int, make: Callable[..., World] = World) -> World:
    world = make(seed, check)
    try:
        world.run()
    except BaseException as error:
        work = ", ".join(world.history)
        raise AssertionError(f"OTTLA_CRASH_SEED={seed} shows it again: {error}\nthe work: {work}") from error
    return world


@pytest.mark.soak
@pytest.mark.timeout(900 * max(1.0, SCALE))
@pytest.mark.parametrize("part", range(PARTS if ONLY is None else 1))
def test_stopped_at_every_call_all_that_was_promised_is_there(part: int):
    """The number of seeds grows with the square of the scale: 2,000 in a soak, whose seeds are new ones."""
    count = max(1, int(SCALE * SCALE))
    first = part * count if SCALE <= 1 else random.randrange(1 << 32)
    stops = 0
    for seed in [int(ONLY)] if ONLY is not None else range(first, first + count):
        stops += run(seed).stops
    assert stops > 100


def test_the_work_is_mixed_and_follows_from_its_seed():
    """Every kind of work is done within some seeds, and one seed does the same twice."""
    done: set[str] = set()
    operations: set[str] = set()
    for seed in range(30):
        worlds = [World(seed, lambda stop, rng: None) for _ in range(2)]
        for world in worlds:
            world.run()
        assert worlds[0].files.log == worlds[1].files.log
        done |= set(worlds[0].history)
        operations |= {line.split()[0] for line in worlds[0].files.log}
    assert done == {operation.__name__ for _, operation in World(0, check).work} | {"close"}
    assert operations == {
        "create",
        "write",
        "truncate",
        "sync",
        "touch",
        "mkdir",
        "rename",
        "remove",
        "rmdir",
        "syncdir",
    }


def test_a_violation_names_its_seed():
    def found(seed: int, check: object) -> World:
        def broken(stop: object, rng: object) -> None:
            raise Violation("a plant")

        return World(seed, broken)

    with pytest.raises(AssertionError, match=r"OTTLA_CRASH_SEED=7 shows it again: a plant"):
        run(7, found)

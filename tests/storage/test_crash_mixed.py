"""Mixed work on a data directory, interrupted at every write, sync and rename: nothing acknowledged is lost.

Each seed is one run of `crash_world.World`: appends in all formats, by producers with and without sequences, rolls,
flushes, retention, DeleteRecords, checkpoints, upgrades, clean and unclean shutdowns, new and deleted partitions. At
each call that changes the disk, in a small run at some of them, a kill and a power loss are simulated, and
`crash_check` opens the result.

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
PARTS = 5  # one test for each


def run(seed: int, make: Callable[..., World] = World, stride: int = 1) -> World:
    world = make(seed, check, stride=stride)
    try:
        world.run()
    except BaseException as error:
        work = ", ".join(world.history)
        raise AssertionError(f"OTTLA_CRASH_SEED={seed} shows it again: {error}\nthe work: {work}") from error
    return world


@pytest.mark.soak
@pytest.mark.timeout(900 * max(1.0, SCALE))
@pytest.mark.parametrize("part", range(PARTS if ONLY is None else 1))
def test_crash_at_any_call_keeps_all_guarantees(part: int, stride: int):
    """The number of seeds grows with the square of the scale: 2,000 in a soak, with new seeds."""
    count = max(1, int(SCALE * SCALE))
    first = part * count if SCALE <= 1 else random.randrange(1 << 32)
    stops, stride = 0, stride if ONLY is None else 1
    for seed in [int(ONLY)] if ONLY is not None else range(first, first + count):
        stops += run(seed, stride=stride).stops
    assert stops > 100 / stride


def worked(seed: int) -> World:
    world = World(seed, lambda stop, rng: None, stride=1 << 30)
    world.run()
    return world


def test_operations_are_mixed_and_determined_by_the_seed():
    """Every kind of work occurs within some seeds, and one seed gives the same work twice."""
    done: set[str] = set()
    operations: set[str] = set()
    first = worked(0)
    assert worked(0).files.log == first.files.log != worked(1).files.log
    for world in (worked(seed) for seed in range(2, 30)):
        done |= set(world.history)
        operations |= {line.split()[0] for line in world.files.log}
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


def test_violation_has_its_seed():
    def found(seed: int, check: object, stride: int) -> World:
        def broken(stop: object, rng: object) -> None:
            raise Violation("a plant")

        return World(seed, broken)

    with pytest.raises(AssertionError, match=r"OTTLA_CRASH_SEED=7 shows it again: a plant"):
        run(7, found)

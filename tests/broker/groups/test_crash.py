"""Groups of KIP-848 and share groups survive a crash at any step, and planted bugs are detected.

`group_crash_world.py` has the workload and the checks. A failure prints its seed; `OTTLA_CRASH_SEED=n` runs only that
one.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.broker_state import BrokerState
from ottla.broker.groups.coordinator import GroupCoordinator
from ottla.broker.groups.records import TransactionEnd
from ottla.broker.share import records as share_records
from ottla.broker.share.share_partitions import SharePartitions
from ottla.broker.share.state_coordinator import StateCoordinator
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.group_crash_world import run
from ottla_testing.broker.transaction_world import syncs_in_turn
from ottla_testing.each import each

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
ONLY = os.environ.get("OTTLA_CRASH_SEED")
CURRENT_ASSIGNMENT = 8  # the type of a key


@pytest.mark.timeout(900 * max(1.0, SCALE))
@pytest.mark.parametrize(
    ("synced", "failing"),
    [(False, False), (True, False), (False, True)],
    ids=["killed", "without power", "full now and then"],
)
def test_groups_survive_a_crash_at_any_step(
    synced: bool, failing: bool, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of seeds grows with the square of the scale; a small run and a soak use new ones."""
    syncs_in_turn(monkeypatch)
    count = max(1, int(SCALE * SCALE))
    is_whole = stride == 1
    first = 0 if is_whole and SCALE <= 1 else random.randrange(1 << 32)
    stop_chance = 1.0 if SCALE > 1 or ONLY is not None else 0.2 if is_whole else 0.04
    seeds = [int(ONLY)] if ONLY is not None else range(first, first + count)
    for world in [run(seed, synced, stop_chance, failing) for seed in seeds]:
        assert world.stops > (20 if is_whole else 0) and world.acknowledged > 0
        assert (world.failures > 0) == failing or (failing and not is_whole)


# -- planted bugs


def acknowledges_before_the_write(patch: pytest.MonkeyPatch) -> None:
    """Completes acknowledgements in memory, and stores them with the next expired locks only."""
    patch.setattr(SharePartitions, "_write", lambda self, led, batches: None)


def responds_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Responds to heartbeats and commits before the sync, so that a power loss reverts an acknowledged epoch."""

    async def at_once(self: BrokerState, group_id: str) -> ErrorCode:
        return ErrorCode.NONE

    patch.setattr(BrokerState, "group_records_durable", at_once)


def acknowledges_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Responds to acknowledgements before the sync."""

    def write(self: SharePartitions, led: Any, batches: Any) -> Any:
        outcome = original(self, led, batches)
        return None if isinstance(outcome, asyncio.Future) else outcome

    original = SharePartitions._write
    patch.setattr(SharePartitions, "_write", write)


def loses_updates_since_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Restores share partitions from their snapshots alone."""

    def decode(key: bytes, value: bytes | None) -> Any:
        entry = original(key, value)
        return entry if entry is None or entry.is_snapshot else None

    original = share_records.decode

    def load(self: StateCoordinator, index: int, log: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(share_records, "decode", decode)
            return loads(self, index, log)

    loads = StateCoordinator.load
    patch.setattr(StateCoordinator, "load", load)


def forgets_members_at_a_start(patch: pytest.MonkeyPatch) -> None:
    """Loads no current assignments of consumer groups: members begin again with epoch 0."""

    def load(self: GroupCoordinator, index: int, log: Any) -> ErrorCode:
        return original(self, index, [entry for entry in log if not is_current(entry)])

    def is_current(entry: Any) -> bool:
        return not isinstance(entry, TransactionEnd) and entry[0][:2] == CURRENT_ASSIGNMENT.to_bytes(2, "big")

    original = GroupCoordinator.load
    patch.setattr(GroupCoordinator, "load", load)


PLANTS = [
    (acknowledges_before_the_write, False),
    (responds_before_the_sync, True),
    (acknowledges_before_the_sync, True),
    (loses_updates_since_the_snapshot, False),
    (forgets_members_at_a_start, False),
]


@each(("plant", "synced"), PLANTS, strided=True)
def test_planted_bug_is_detected(plant: Callable[[pytest.MonkeyPatch], None], synced: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        syncs_in_turn(patch)
        plant(patch)
        with pytest.raises(AssertionError, match="shows it again"):
            for seed in range(10):
                run(seed, synced, 0.5)

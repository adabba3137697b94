"""Transactions survive a crash at any step, and planted bugs are detected.

`transaction_world.py` has the workload and the checks. A failure prints its seed; `OTTLA_CRASH_SEED=n` runs only that
one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.broker_state import BrokerState
from ottla.broker.metadata.topics import TRANSACTION_STATE_TOPIC
from ottla.broker.transactions.coordinator import Entry, Marking, TransactionCoordinator
from ottla.broker.transactions.state import Append, Appended, Loaded, MarkersWritten, TransactionState, WriteMarkers
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.transaction_world import DECIDED, NOW_MS, run, syncs_in_turn
from ottla_testing.each import each

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
ONLY = os.environ.get("OTTLA_CRASH_SEED")


@pytest.mark.timeout(900 * max(1.0, SCALE))
@pytest.mark.parametrize("failing", [False, True], ids=["", "full now and then"])
@pytest.mark.parametrize("synced", [False, True], ids=["killed", "without power"])
def test_transactions_survive_a_crash_at_any_step(
    synced: bool, failing: bool, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of seeds grows with the square of the scale; a small run and a soak use new ones."""
    syncs_in_turn(monkeypatch)
    count = max(1, int(SCALE * SCALE))
    is_whole = stride == 1
    first = 0 if is_whole and SCALE <= 1 else random.randrange(1 << 32)
    stop_chance = 1.0 if SCALE > 1 or ONLY is not None else 0.2 if is_whole else 0.04
    seeds = [int(ONLY)] if ONLY is not None else range(first, first + count)
    worlds = [run(seed, synced, stop_chance, failing) for seed in seeds]
    assert all(world.stops > (30 if is_whole else 0) for world in worlds)
    failures = sum(world.failures for world in worlds)
    assert (failures > 0) == failing or (failing and not is_whole)


# -- planted bugs


def writes_markers_before_the_decision(patch: pytest.MonkeyPatch) -> None:
    """Writes the markers before the decision."""

    def append(self: TransactionCoordinator, entry: Entry, write: Append) -> Any:
        written = write.written
        if written is not None and written.state in DECIDED:
            markers = WriteMarkers(
                written.transactional_id,
                written.producer_id,
                written.producer_epoch,
                written.state is TransactionState.PREPARE_COMMIT,
                written.partitions,
                written.client_version,
            )
            for partition in written.partitions:
                self._markers.write(partition, markers, NOW_MS)
        return original(self, entry, write)

    original = TransactionCoordinator._append_record
    patch.setattr(TransactionCoordinator, "_append_record", append)


def completes_before_the_markers(patch: pytest.MonkeyPatch) -> None:
    """Writes the completion record before the markers."""

    def perform(self: TransactionCoordinator, entry: Entry, effect: Any) -> Any:
        if not isinstance(effect, WriteMarkers):
            return original(self, entry, effect)
        self._feed(entry, MarkersWritten(effect))
        for partition in effect.partitions:
            self._markers.write(partition, effect, NOW_MS)
            assert self._markers.on_written is not None
            self._markers.on_written(partition, effect)
        return None

    original = TransactionCoordinator._perform
    patch.setattr(TransactionCoordinator, "_perform", perform)


def leaves_a_marker_out(patch: pytest.MonkeyPatch) -> None:
    """Leaves out the last of several markers."""

    def mark(self: TransactionCoordinator, entry: Entry) -> Any:
        if entry.marking is not None and len(entry.marking.left) > 1:
            entry.marking.left.popitem()
        return original(self, entry)

    original = TransactionCoordinator._mark
    patch.setattr(TransactionCoordinator, "_mark", mark)


def finishes_nothing_at_a_start(patch: pytest.MonkeyPatch) -> None:
    def feed(self: TransactionCoordinator, entry: Entry, event: Any) -> None:
        if not isinstance(event, Loaded):
            original(self, entry, event)

    original = TransactionCoordinator._feed
    patch.setattr(TransactionCoordinator, "_feed", feed)


def forgets_what_runs_at_a_start(patch: pytest.MonkeyPatch) -> None:
    """Drops open transactions at start, as if they were aborted in memory only."""

    def load(self: TransactionCoordinator, index: int, log: Any) -> ErrorCode:
        code = original(self, index, log)
        for name, entry in list(self._entries.items()):
            if entry.slot.state is TransactionState.ONGOING:
                del self._entries[name]
        return code

    original = TransactionCoordinator.load
    patch.setattr(TransactionCoordinator, "load", load)


def skips_the_groups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerState, "_marked", lambda self, partition, markers: None)


def responds_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Responds and writes markers before the sync, so that a power loss reverts an acknowledged decision."""

    def append(self: BrokerState, *what: Any) -> Any:
        appended = original(self, *what)
        return object() if what[0] == TRANSACTION_STATE_TOPIC else appended

    original = BrokerState._append_internal
    patch.setattr(BrokerState, "_append_internal", append)


def completes_before_the_markers_are_synced(patch: pytest.MonkeyPatch) -> None:
    def write_marker(self: BrokerState, *what: Any) -> Any:
        original(self, *what)

    original = BrokerState._write_marker
    patch.setattr(BrokerState, "_write_marker", write_marker)


def takes_a_failed_marker_for_written(patch: pytest.MonkeyPatch) -> None:
    def settled(self: TransactionCoordinator, marking: Marking, partition: Any, error: Any) -> None:
        marking.left.pop(partition, None)
        original(self, marking, partition, error)

    original = TransactionCoordinator._marker_settled
    patch.setattr(TransactionCoordinator, "_marker_settled", settled)


def takes_a_failed_record_for_written(patch: pytest.MonkeyPatch) -> None:
    def append(self: TransactionCoordinator, entry: Entry, write: Append) -> Any:
        outcome = original(self, entry, write)
        return outcome and Appended(write)

    original = TransactionCoordinator._append_record
    patch.setattr(TransactionCoordinator, "_append_record", append)


PLANTS = [
    (writes_markers_before_the_decision, False, False),
    (completes_before_the_markers, False, False),
    (leaves_a_marker_out, False, False),
    (finishes_nothing_at_a_start, False, False),
    (forgets_what_runs_at_a_start, False, False),
    (skips_the_groups, False, False),
    (responds_before_the_sync, True, False),
    (completes_before_the_markers_are_synced, True, False),
    (takes_a_failed_marker_for_written, False, True),
    (takes_a_failed_record_for_written, False, True),
]


@each(("plant", "synced", "failing"), PLANTS, strided=True)
def test_planted_bug_is_detected(plant: Callable[[pytest.MonkeyPatch], None], synced: bool, failing: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        syncs_in_turn(patch)
        plant(patch)
        with pytest.raises(AssertionError, match="shows it again"):
            for seed in range(10):
                run(seed, synced, 0.5, failing)

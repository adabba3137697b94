"""Scripts in which a transaction is decided and not ended, since its marker for partition 1 cannot be written.

A script determines when that begins and ends; the runner implements it.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_testing.oracle.transaction_plays import ABORT, COMMIT
from ottla_testing.oracle.transaction_script import STRANGER, Stage

HeldPlay = Callable[[Stage, Callable[[], None], Callable[[], None]], None]


def send_all(stage: Stage, old: tuple[int, int], versions: tuple[int, ...]) -> None:
    """Sends every request that is possible in the meantime, with the epoch of the transaction and those around it."""
    for epoch in range(-1, 3):
        given = (old[0], old[1] + epoch)
        for version in versions:
            for direction in (COMMIT, ABORT):
                stage.end(direction, version, given=given)
        for version in (1, 3):
            stage.add(version, (0,), given=given)
            stage.add(version, (2,), given=given)
            stage.add_offsets(version, given=given)
        for partition in (0, 2):
            for verify_only in (True, False):
                transaction = {
                    "name": stage.name,
                    "given": given,
                    "partitions": (partition,),
                    "verify_only": verify_only,
                }
                stage.add_batched(4, transaction)
    for version in versions:
        stage.end(COMMIT, version, given=(STRANGER, 0))
    stage.add(3, given=(STRANGER, 0))
    stage.init(4)
    for epoch in range(-1, 2):
        stage.init(4, given=(old[0], old[1] + epoch))
    stage.init(4, given=(STRANGER, 0))
    stage.describe()
    stage.list(state_filters=["PrepareCommit", "PrepareAbort"])


def produce_all(stage: Stage, old: tuple[int, int], *versions: int) -> None:
    """Sends records for a partition that has its marker, and for one that was never in the transaction."""
    for epoch in (0, 1):
        for partition in (0, 2):
            for version in versions:
                stage.produce(version, partition, given=(old[0], old[1] + epoch))
        for version in (3, 4, 5)[: 3 if 12 in versions else 2]:
            stage.commit_offsets(version, given=(old[0], old[1] + epoch))


def played_held(
    stage: Stage, hold: Callable[[], None], release: Callable[[], None], direction: bool, version: int, new: bool
) -> None:
    stage.init(4)
    stage.init(4)
    stage.add(3, (0, 1))
    old = (stage.pid, stage.epoch)
    hold()
    stage.held = True
    try:
        stage.end(direction, version)
        stage.wait_for_markers(1)
        send_all(stage, old, (1, 4, 5) if new else (1, 4))
        produce_all(stage, old, *((9, 11, 12) if new else (9, 11)))
    finally:
        stage.held = False
        release()
    stage.settle("CompleteCommit" if direction else "CompleteAbort")
    stage.describe()


def held_commit(stage: Stage, hold: Callable[[], None], release: Callable[[], None]) -> None:
    played_held(stage, hold, release, COMMIT, 4, new=False)


def held_abort(stage: Stage, hold: Callable[[], None], release: Callable[[], None]) -> None:
    played_held(stage, hold, release, ABORT, 4, new=False)


def new_held_old_commit(stage: Stage, hold: Callable[[], None], release: Callable[[], None]) -> None:
    played_held(stage, hold, release, COMMIT, 4, new=True)


def new_held_commit(stage: Stage, hold: Callable[[], None], release: Callable[[], None]) -> None:
    played_held(stage, hold, release, COMMIT, 5, new=True)


def new_held_abort(stage: Stage, hold: Callable[[], None], release: Callable[[], None]) -> None:
    played_held(stage, hold, release, ABORT, 5, new=True)


def held_fence(stage: Stage, hold: Callable[[], None], release: Callable[[], None]) -> None:
    """The abort was begun by another InitProducerId."""
    stage.init(4)
    stage.init(4)
    stage.add(3, (0, 1))
    old = (stage.pid, stage.epoch)
    hold()
    stage.held = True
    try:
        stage.init(4)
        stage.wait_for_markers(1)
        send_all(stage, old, (1, 4))
        produce_all(stage, old, 9, 11)
    finally:
        stage.held = False
        release()
    stage.settle("CompleteAbort")
    stage.describe()
    stage.init(4)
    stage.describe()


def new_held_fence(stage: Stage, hold: Callable[[], None], release: Callable[[], None]) -> None:
    stage.init(5)
    stage.produce(12)
    stage.add(3, (1,))
    old = (stage.pid, stage.epoch)
    hold()
    stage.held = True
    try:
        stage.init(5)
        stage.wait_for_markers(1)
        send_all(stage, old, (4, 5))
        produce_all(stage, old, 12)
    finally:
        stage.held = False
        release()
    stage.settle("CompleteAbort")
    stage.describe()
    stage.init(5)
    stage.describe()


HELD: tuple[HeldPlay, ...] = (held_commit, held_abort, held_fence)
HELD_NEW: tuple[HeldPlay, ...] = (new_held_old_commit, new_held_commit, new_held_abort, new_held_fence)

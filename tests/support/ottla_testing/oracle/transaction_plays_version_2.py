"""Scripts for releases with transaction.version 2 (KIP-890: 4.0 and later), where each transaction has its own
epoch."""

from __future__ import annotations

from ottla_testing.oracle.transaction_plays import ABORT, COMMIT, TIME_OUT_MS
from ottla_testing.oracle.transaction_script import STRANGER, Play, Stage


def listed_by_pattern(stage: Stage) -> None:
    for name in ("one", "two"):
        stage.other(name).init(4)
    for pattern in (None, "", ".*one", "listed_by_pattern-.*", "one", "listed_by_pattern-(one|two)", "[", "(?i).*ONE"):
        stage.list(2, transactional_id_pattern=pattern)


def new_end_states(stage: Stage) -> None:
    stage.init(5)
    stage.init(5)
    for phase in ("empty", "committed", "committed, nothing in it", "aborted", "aborted, nothing in it"):
        stage.keep(phase, "")
        if phase in ("committed", "aborted"):
            stage.produce(12, sequence=0)
            stage.describe()
            for given in ((STRANGER, 0), (stage.pid, stage.epoch - 1), (stage.pid, stage.epoch + 1)):
                stage.end(COMMIT, 5, given=given)
                stage.end(ABORT, 5, given=given)
            stage.end(phase == "committed", 5)
        elif "," in phase:
            stage.end(ABORT, 5)
        stage.describe()
        now = (stage.pid, stage.epoch)
        for epoch in (-2, -1, 1):
            for direction in (COMMIT, ABORT):
                stage.end(direction, 5, given=(now[0], now[1] + epoch))
        stage.end(COMMIT, 5, given=now)
        stage.end(ABORT, 5, given=now)
        stage.describe()
    stage.end(COMMIT, 5, name="nobody's")
    stage.end(COMMIT, 5, name="")


def new_rounds(stage: Stage) -> None:
    """Rounds of a client of version 2, in which each transaction has an epoch of its own."""
    stage.init(5)
    for number in range(4):
        stage.produce(12, number % 2)
        stage.produce(12, number % 2, sequence=1)
        stage.commit_offsets(5, number)
        stage.describe()
        stage.producers()
        stage.end(number % 3 != 2, 5)
        stage.producers()
        stage.offsets(require_stable=True)
    stage.describe()


def new_produce_first_sequence(stage: Stage) -> None:
    stage.init(5)
    stage.produce(12, 0, sequence=5)
    stage.produce(12, 0, sequence=0)
    stage.produce(12, 0, sequence=6)
    stage.producers(0)
    stage.produce(12, 1, sequence=5)
    stage.produce(12, 1, sequence=0)
    stage.end(COMMIT, 5)
    stage.produce(12, 0, sequence=7)
    stage.produce(12, 0, sequence=1)
    stage.produce(12, 0, sequence=0)
    stage.producers(0)


def new_produce_refused(stage: Stage) -> None:
    other = stage.other("other")
    stage.init(5)
    stage.init(5)
    other.init(5)
    stage.produce(12, given=(stage.pid, stage.epoch - 1))
    stage.produce(12, given=(stage.pid, stage.epoch + 1))
    stage.produce(12, given=(other.pid, other.epoch))
    stage.produce(12, given=(STRANGER, 0))
    stage.produce(12, name="nobody's")
    stage.produce(12, name=other.name)
    stage.produce(12, name=None)
    stage.produce(12, sequence=5)
    stage.describe()
    stage.produce(12)
    stage.produce(12)
    stage.produce(12, sequence=7)
    stage.produce(12, transactional=False, sequence=1)
    stage.describe()
    old = (stage.pid, stage.epoch)
    stage.end(COMMIT, 5)
    for version in (9, 11, 12):
        stage.produce(version, sequence=1, given=old)
    stage.produce(11)
    stage.produce(12, sequence=1)
    stage.produce(12, sequence=0)
    for version in (9, 11, 12):
        stage.produce(version, sequence=1, given=old)
    stage.producers()
    stage.end(ABORT, 5)
    stage.describe()


def new_offsets_refused(stage: Stage) -> None:
    stage.init(5)
    stage.init(5)
    stage.commit_offsets(5, given=(STRANGER, 0))
    stage.commit_offsets(5, given=(stage.pid, 0))
    stage.commit_offsets(5, given=(stage.pid, 5))
    stage.commit_offsets(5, name="nobody's")
    stage.describe()
    stage.commit_offsets(5, topic="unknown")
    stage.commit_offsets(5, member=(5, "nobody"))
    stage.commit_offsets(5, member=(5, ""))
    stage.describe()
    stage.commit_offsets(5, 7)
    stage.describe()
    stage.offsets(require_stable=True)
    old = (stage.pid, stage.epoch)
    stage.end(COMMIT, 5)
    stage.offsets(require_stable=True)
    stage.commit_offsets(5, 8, given=old)
    stage.commit_offsets(4, 8)
    stage.commit_offsets(3, 8)
    stage.offsets(require_stable=True)


def new_fenced(stage: Stage) -> None:
    stage.init(5)
    stage.produce(12)
    old = (stage.pid, stage.epoch)
    stage.init(5)
    stage.settle()
    stage.describe()
    stage.producers()
    stage.end(COMMIT, 5, given=old)
    stage.end(ABORT, 5, given=old)
    stage.end(ABORT, 5, given=(old[0], old[1] + 1))
    stage.end(COMMIT, 5, given=(old[0], old[1] + 1))
    stage.produce(12, sequence=1, given=old)
    stage.init(5, given=old)
    stage.init(5)
    stage.describe()
    stage.produce(12, sequence=1, given=old)
    stage.end(COMMIT, 5, given=old)
    stage.init(5, given=old)


def new_recovers(stage: Stage) -> None:
    """KIP-360 where epochs grow with each transaction."""
    stage.init(5)
    stage.produce(12)
    stage.end(ABORT, 5)
    stage.init(5, given=(stage.pid, stage.epoch))
    stage.describe()
    before = (stage.pid, stage.epoch)
    stage.produce(12)
    stage.end(COMMIT, 5)
    stage.init(5, given=before)
    stage.describe()
    stage.produce(12)
    stage.init(5, given=(stage.pid, stage.epoch))
    stage.settle()
    stage.describe()
    stage.init(5, given=(stage.pid, stage.epoch))
    stage.describe()


def new_and_old(stage: Stage) -> None:
    """One id used with both versions."""
    stage.init(4)
    stage.add()
    stage.produce(11)
    stage.end(COMMIT, 5)
    stage.describe()
    stage.produce(12)
    stage.end(COMMIT, 4)
    stage.describe()
    stage.end(COMMIT, 4)
    stage.end(COMMIT, 5)
    stage.end(ABORT, 5)
    stage.end(ABORT, 4)
    stage.end(COMMIT, 4)
    stage.describe()
    stage.add_offsets(4)
    stage.commit_offsets(4, 3)
    stage.commit_offsets(5, 4)
    stage.end(ABORT, 5)
    stage.add(3)
    stage.produce(12, 1)
    stage.produce(12, 0)
    stage.describe()
    stage.end(ABORT, 4)
    stage.describe()


def new_timed_out(stage: Stage) -> None:
    stage.init(5, timeout_ms=TIME_OUT_MS)
    stage.produce(12)
    old = (stage.pid, stage.epoch)
    stage.settle("CompleteAbort")
    stage.describe()
    stage.producers()
    for epoch in (0, 1, 2):
        stage.end(COMMIT, 5, given=(old[0], old[1] + epoch))
    stage.end(ABORT, 5, given=old)
    stage.end(ABORT, 5, given=(old[0], old[1] + 1))
    stage.produce(12, sequence=1, given=old)
    stage.commit_offsets(5, given=old)
    stage.init(5, given=old)
    stage.init(5)
    stage.describe()


NEW: tuple[Play, ...] = (
    listed_by_pattern,
    new_end_states,
    new_rounds,
    new_produce_first_sequence,
    new_produce_refused,
    new_offsets_refused,
    new_fenced,
    new_recovers,
    new_and_old,
    new_timed_out,
)

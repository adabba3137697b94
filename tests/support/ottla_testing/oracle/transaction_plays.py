"""Scripts of requests that a producer, or an impostor, may send to a transaction coordinator, in order.

For all releases; `transaction_plays_version_2` has those for transaction.version 2.
"""

from __future__ import annotations

from ottla_testing.oracle.transaction_script import STRANGER, Play, Stage

COMMIT, ABORT = True, False
TIME_OUT_MS = 1500  # enough for a few requests to a busy broker


def init_versions(stage: Stage) -> None:
    for version in range(6):
        stage.init(version)
    stage.init(6)


def init_given(stage: Stage) -> None:
    """KIP-360: with the producer's current id and epoch."""
    stage.init(4, given=(STRANGER, 3))
    stage.init(4)
    first = (stage.pid, stage.epoch)
    stage.init(4, given=first)
    stage.init(4, given=first)
    stage.init(4, given=first)
    second = (stage.pid, stage.epoch)
    stage.init(4, given=second)
    for version in (3, 4, 5):
        stage.init(version, given=first)
        stage.init(version, given=(STRANGER, 0))
        stage.init(version, given=(stage.pid, stage.epoch + 1))
    stage.init(4)
    stage.init(4, given=second)
    stage.describe()


def init_refused(stage: Stage) -> None:
    for version in (0, 3, 4):
        stage.init(version, timeout_ms=0)
        stage.init(version, timeout_ms=-1)
        stage.init(version, timeout_ms=900_001)
    stage.init(4, timeout_ms=900_000)
    for version in (3, 4):
        stage.init(version, given=(-1, 0))
        stage.init(version, given=(stage.pid, -1))
    stage.describe()
    for version in (0, 4, 5):
        stage.init(version, name="")


def init_without_id(stage: Stage) -> None:
    for version in (0, 1, 2, 3, 4, 5):
        stage.init(version, name=None)
    stage.init(4, given=(STRANGER, 5), name=None)
    stage.init(4, given=(STRANGER, -1), name=None)
    stage.init(4, timeout_ms=-1, name=None)


def init_while_ongoing(stage: Stage) -> None:
    """InitProducerId of a new instance aborts the open transaction of the old one."""
    stage.init(4)
    stage.add()
    stage.produce()
    old = (stage.pid, stage.epoch)
    stage.init(4)
    stage.settle()
    stage.describe()
    stage.producers()
    stage.init(4)
    stage.describe()
    for version in (0, 1, 2, 3, 4):
        stage.end(COMMIT, version, given=old)
    for version in (0, 1, 2, 3):
        stage.add(version, given=old)
    for version in (0, 1, 2, 3, 4):
        stage.add_offsets(version, given=old)
    for version in (9, 11):
        stage.produce(version, sequence=1, given=old)
    stage.init(4, given=old)
    stage.init(3, given=old)


def init_given_while_ongoing(stage: Stage) -> None:
    stage.init(4)
    stage.add()
    stage.produce()
    old = (stage.pid, stage.epoch)
    stage.init(4, given=(STRANGER, 0))
    stage.describe()
    stage.init(4, given=(stage.pid, stage.epoch + 1))
    stage.settle()
    stage.describe()
    stage.init(4, given=old)
    stage.describe()
    stage.init(4, given=old)
    stage.init(4)
    stage.describe()


def init_given_while_still_ongoing(stage: Stage) -> None:
    """With the right epoch, and with an older one."""
    stage.init(4)
    stage.init(4)
    stage.add()
    stage.init(4, given=(stage.pid, 0))
    stage.settle()
    stage.describe()
    stage.init(4)
    stage.add()
    stage.init(4, given=(stage.pid, stage.epoch))
    stage.settle()
    stage.describe()
    stage.init(4, given=(stage.pid, stage.epoch))
    stage.describe()


def add_versions(stage: Stage) -> None:
    stage.init(4)
    for version in (0, 1, 2, 3):
        stage.add(version, (version % 3,))
        stage.add(version, (0, 1))
    stage.describe()
    stage.list(state_filters=["Ongoing"])
    stage.end(COMMIT)
    stage.describe()
    stage.add(3, (2,))
    stage.describe()
    stage.end(ABORT)
    stage.describe()


def add_refused(stage: Stage) -> None:
    stage.init(4)
    stage.init(4)
    for version in (0, 1, 2, 3):
        stage.add(version, given=(STRANGER, 0))
        stage.add(version, given=(stage.pid, stage.epoch - 1))
        stage.add(version, given=(stage.pid, stage.epoch + 1))
        stage.add(version, name="nobody's")
        stage.add(version, name="")
        stage.add(version, (0, 1), unknown=(0, 1))
        stage.add(version, (0, 7))
        stage.add(version, (-1,))
        stage.add(version, ())
        stage.add(version, (0, 1), given=(STRANGER, 0), unknown=(0,))
    stage.describe()


def add_batched(stage: Stage) -> None:
    """As brokers do, to add and to verify (KIP-890)."""
    other = stage.other("other")
    stage.init(4)
    other.init(4)
    mine, its = {"name": stage.name, "verify_only": False}, {"name": other.name, "given": (other.pid, other.epoch)}
    for version in (4, 5):
        stage.add_batched(version, {**mine, "partitions": (0,), "verify_only": True})
        stage.add_batched(version, {**mine, "partitions": (0, 1)}, {**its, "partitions": (1,), "verify_only": False})
        stage.add_batched(
            version,
            {**mine, "partitions": (0, 2), "verify_only": True},
            {**its, "partitions": (1,), "verify_only": True},
        )
        stage.add_batched(version, {**mine, "partitions": (0,), "given": (STRANGER, 0)})
        stage.add_batched(version, {**mine, "partitions": (0,), "given": (stage.pid, 5)})
        stage.add_batched(version, {**mine, "partitions": (0,), "given": (STRANGER, 0), "verify_only": True})
        stage.add_batched(version, {**mine, "partitions": (0,), "given": (stage.pid, 5), "verify_only": True})
        stage.add_batched(version, {**mine, "partitions": (0,), "name": "nobody's", "verify_only": True})
        stage.add_batched(version, {**mine, "partitions": (0,), "name": ""})
        stage.add_batched(version, {**mine, "partitions": (0, 9)}, {**its, "partitions": (2,), "verify_only": False})
        stage.add_batched(version, {**mine, "partitions": (0, 9), "verify_only": True})
        stage.end(COMMIT)
        stage.add_batched(version, {**mine, "partitions": (0,), "verify_only": True})
    stage.describe(stage.name, other.name)


def add_offsets(stage: Stage) -> None:
    stage.init(4)
    stage.init(4)
    for version in (0, 1, 2, 3, 4):
        stage.add_offsets(version, given=(STRANGER, 0))
        stage.add_offsets(version, given=(stage.pid, stage.epoch - 1))
        stage.add_offsets(version, given=(stage.pid, stage.epoch + 1))
        stage.add_offsets(version, name="nobody's")
        stage.add_offsets(version, name="")
        stage.add_offsets(version)
        stage.add_offsets(version)
    stage.add_offsets(3, group="")
    stage.describe()
    stage.end(COMMIT)
    stage.describe()


def offsets_committed(stage: Stage) -> None:
    stage.init(4)
    for version, end in ((0, COMMIT), (1, COMMIT), (2, ABORT), (3, COMMIT), (4, COMMIT)):
        stage.add_offsets(3)
        stage.commit_offsets(version, 10 * version + 1)
        stage.offsets(require_stable=True)
        stage.offsets(require_stable=False)
        stage.end(end)
        stage.offsets(require_stable=True)
    stage.add_offsets(3)
    stage.commit_offsets(3, 100)
    stage.commit_offsets(3, 99)
    stage.end(COMMIT)
    stage.offsets(require_stable=True)


def offsets_refused(stage: Stage) -> None:
    stage.init(4)
    stage.init(4)
    for version in (0, 2, 3, 4):
        stage.commit_offsets(version, group=f"fresh-{version}")  # no AddOffsetsToTxn before it
    stage.add_offsets(3)
    for version in (0, 3, 4):
        stage.commit_offsets(version, given=(STRANGER, 0))
        stage.commit_offsets(version, given=(stage.pid, 0))
        stage.commit_offsets(version, given=(stage.pid, 5))
        stage.commit_offsets(version, name="nobody's")
        stage.commit_offsets(version, topic="unknown")
    stage.commit_offsets(3, member=(5, ""))
    stage.commit_offsets(3, member=(5, "nobody"))
    stage.commit_offsets(3, member=(-1, "nobody"))
    stage.commit_offsets(3, 7)
    stage.end(COMMIT)
    stage.offsets(require_stable=True)
    stage.commit_offsets(3, 8)
    stage.commit_offsets(4, 8)
    stage.offsets(require_stable=True)


def offsets_of_the_fenced(stage: Stage) -> None:
    stage.init(4)
    stage.add_offsets(3)
    stage.commit_offsets(3, 7)
    old = (stage.pid, stage.epoch)
    stage.init(4)
    stage.settle()
    stage.offsets(require_stable=True)
    stage.init(4)
    stage.commit_offsets(3, 8, given=old)
    stage.commit_offsets(4, 8, given=old)
    stage.offsets(require_stable=True)


def end_states(stage: Stage) -> None:
    """EndTxn up to v4 in each state, by the right producer and by others."""
    stage.init(4)
    stage.init(4)
    for phase in ("empty", "ongoing", "committed", "ongoing again", "aborted"):
        if phase.startswith("ongoing"):
            stage.add()
        stage.keep(phase, "")
        for version in (0, 1, 2, 3, 4):
            stage.end(COMMIT, version, given=(STRANGER, 0))
            stage.end(COMMIT, version, given=(stage.pid, stage.epoch - 1))
            stage.end(ABORT, version, given=(stage.pid, stage.epoch + 1))
            stage.end(COMMIT, version, name="nobody's")
            stage.end(COMMIT, version, name="")
        if phase == "ongoing":
            stage.end(COMMIT)
        elif phase == "ongoing again":
            stage.end(ABORT)
        else:
            for version in (0, 4):
                stage.end(COMMIT, version)
                stage.end(ABORT, version)
        stage.describe()


def end_by_version(stage: Stage) -> None:
    stage.init(4)
    for version in (0, 1, 2, 3, 4):
        for direction in (COMMIT, ABORT):
            stage.add()
            stage.produce(sequence=2 * version + int(not direction))
            stage.producers()
            stage.end(direction, version)
            stage.producers()
    stage.describe()


def produce_unadded(stage: Stage) -> None:
    """The broker verifies unknown partitions (3.6 and later)."""
    stage.init(4)
    for version in (3, 7, 8, 9, 10, 11):
        stage.produce(version)
    stage.describe()
    stage.add(3, (0,))
    for version in (9, 11):
        stage.produce(version, partition=1)
    stage.produce(9)
    stage.produce(11, sequence=1)
    stage.describe()
    stage.end(COMMIT)
    for version in (9, 11):
        stage.produce(version, sequence=2)
    stage.producers(0)
    stage.producers(1)


def produce_first_sequence(stage: Stage) -> None:
    """A producer whose first batch in a partition does not have sequence 0."""
    stage.init(4)
    stage.add(3, (0, 1, 2))
    stage.produce(9, 0, sequence=5)
    stage.produce(9, 0, sequence=6)
    stage.produce(9, 0, sequence=8)
    stage.produce(11, 1, sequence=0)
    stage.produce(11, 1, sequence=2)
    stage.produce(9, 2, sequence=5, transactional=False)
    stage.producers(0)
    stage.producers(1)
    stage.producers(2)
    stage.end(COMMIT)
    stage.init(4, given=(stage.pid, stage.epoch))
    stage.add(3, (0,))
    stage.produce(9, 0, sequence=7)
    stage.produce(9, 0, sequence=0)


def produce_refused(stage: Stage) -> None:
    other = stage.other("other")
    stage.init(4)
    stage.init(4)
    other.init(4)
    stage.add(3, (0, 1))
    for version in (9, 11):
        stage.produce(version, given=(stage.pid, stage.epoch - 1))
        stage.produce(version, given=(stage.pid, stage.epoch + 1))
        stage.produce(version, given=(other.pid, other.epoch))
        stage.produce(version, given=(STRANGER, 0))
        stage.produce(version, name="nobody's")
        stage.produce(version, name=other.name)
        stage.produce(version, name=None)
        stage.produce(version, name="")
    stage.produce(9, 1, transactional=False)
    stage.produce(9, 1, transactional=False, name=None, sequence=1)
    stage.produce(9, 1, sequence=5)
    stage.produce(9, 1, sequence=2)
    stage.produce(9, 1, sequence=2)
    stage.produce(9, 1, transactional=False, sequence=3)
    stage.produce(9, 1, sequence=3, given=(stage.pid, stage.epoch + 1))
    stage.produce(9, 1, sequence=0, given=(stage.pid, stage.epoch + 1))
    stage.producers(0)
    stage.producers(1)
    stage.describe()


def produce_after_a_refusal(stage: Stage) -> None:
    """A refused batch may or may not change the expected sequence."""
    stage.init(4)
    stage.add()
    stage.produce(11, sequence=0, name="nobody's")
    stage.produce(11, sequence=5)


def produce_after_the_fence(stage: Stage) -> None:
    """An old instance's writes, before and after the new one's first."""
    stage.init(4)
    stage.add()
    stage.produce()
    old = (stage.pid, stage.epoch)
    stage.init(4)
    stage.settle()
    stage.produce(9, sequence=1, given=old)
    stage.produce(11, sequence=1, given=old)
    stage.init(4)
    stage.produce(9, sequence=1, given=old)
    stage.add()
    stage.produce(9, sequence=1, given=old)
    stage.produce(9)
    stage.produce(9, sequence=1, given=old)
    stage.end(COMMIT)
    stage.produce(9, sequence=1, given=old)
    stage.producers()


def described(stage: Stage) -> None:
    stage.init(4, timeout_ms=12_345)
    stage.describe(stage.name, "nobody's")
    stage.describe("")
    stage.add(3, (2, 0))
    stage.describe()
    stage.add_offsets()
    stage.end(COMMIT)
    stage.describe()
    stage.add()
    stage.end(ABORT)
    stage.describe()
    stage.describe(stage.name, stage.name)


def listed(stage: Stage) -> None:
    made = [stage.other(name) for name in ("empty", "ongoing", "committed", "aborted")]
    for one in made:
        one.init(4)
    for one in made[1:]:
        one.add()
    made[2].end(COMMIT)
    made[3].end(ABORT)
    for version in (0, 1, 2):
        stage.list(version)
    stage.list(state_filters=["Ongoing"])
    stage.list(state_filters=["Ongoing", "Empty"])
    stage.list(state_filters=["CompleteCommit", "CompleteAbort"])
    stage.list(state_filters=["Ongoing", "Undone", "ongoing", ""])
    stage.list(state_filters=["Undone"])
    stage.list(state_filters=["Dead"])
    stage.list(state_filters=["PrepareEpochFence"])
    stage.list(producer_id_filters=[made[1].pid])
    stage.list(producer_id_filters=[made[1].pid, made[2].pid, STRANGER])
    stage.list(producer_id_filters=[STRANGER])
    stage.list(producer_id_filters=[made[1].pid], state_filters=["Empty"])
    stage.list(duration_filter=0)
    stage.list(duration_filter=3_600_000)
    stage.list(duration_filter=-5)


def found(stage: Stage) -> None:
    for version in range(1, 7):
        stage.find(version, "found")
        stage.find(version, "")
        stage.find(version, "found", key_type=5)
        stage.find(version, "found", key_type=-1)


def timed_out(stage: Stage) -> None:
    stage.init(4, timeout_ms=TIME_OUT_MS)
    stage.add()
    stage.produce()
    old = (stage.pid, stage.epoch)
    stage.settle("CompleteAbort")
    stage.describe()
    stage.producers()
    for version in (1, 4):
        stage.end(COMMIT, version, given=old)
        stage.end(ABORT, version, given=old)
    stage.add(1, given=old)
    stage.add(3, given=old)
    stage.add_offsets(3, given=old)
    stage.produce(9, sequence=1, given=old)
    stage.init(3, given=old)
    stage.init(4, given=old)
    stage.init(4)
    stage.describe()


BOTH: tuple[Play, ...] = (
    init_versions,
    init_given,
    init_refused,
    init_without_id,
    init_while_ongoing,
    init_given_while_ongoing,
    init_given_while_still_ongoing,
    add_versions,
    add_refused,
    add_batched,
    add_offsets,
    offsets_committed,
    offsets_refused,
    offsets_of_the_fenced,
    end_states,
    end_by_version,
    produce_unadded,
    produce_first_sequence,
    produce_refused,
    produce_after_a_refusal,
    produce_after_the_fence,
    described,
    listed,
    found,
    timed_out,
)

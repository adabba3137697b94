"""A restore of data directories interrupted at every step: each start finds the whole old state or the whole copy."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence

import pytest

from ottla.storage import inspect, restore
from ottla.storage.errors import DirectoryLocked, StorageError
from ottla.storage.format.file_names import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_BYTES, META_PROPERTIES, RESTORE
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.restore import DirectoryCopy, Problem
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles, Step

ONE, TWO = "/one", "/two"
KEPT = "/snapshot"
Tree = dict[str, bytes | None]

OLD: dict[str, Tree] = {
    ONE: {
        "meta.properties": b"old",
        "recovery-point-offset-checkpoint": b"0\n0\n",
        "__cluster_metadata-0": None,
        "__cluster_metadata-0/00000000000000000000.log": b"old metadata",
        "both-0": None,
        "both-0/00000000000000000000.log": b"old" * 30,
        "later-0": None,
        "later-0/00000000000000000000.log": b"later",
        "gone.1d7a2c3b4e5f60718293a4b5c6d7e8f9-delete": None,
    },
    TWO: {"meta.properties": b"old 2", "both-1": None, "both-1/00000000000000000000.log": b"o"},
}
NEW: dict[str, Tree] = {
    ONE: {
        "meta.properties": b"new",
        "recovery-point-offset-checkpoint": b"0\n1\nboth 0 3\n",
        "cleaner-offset-checkpoint": b"0\n0\n",
        "__cluster_metadata-0": None,
        "__cluster_metadata-0/00000000000000000000.log": b"new metadata",
        "both-0": None,
        "both-0/00000000000000000000.log": b"new" * 500,
        "both-0/00000000000000000000.index": b"",
        "before-0": None,
        "before-0/00000000000000000000.log": b"before",
        "empty-0": None,
    },
    TWO: {"meta.properties": b"new 2", "both-1": None, "both-1/00000000000000000000.log": b"nnn"},
}


def put(files: SimulatedFiles, root: str, tree: Tree) -> None:
    files.make_directory(root)
    for name, data in tree.items():
        if data is None:
            files.make_directory(f"{root}/{name}")
            continue
        file = files.open(f"{root}/{name}", create=True)
        file.write(0, data)
        file.sync()
        file.close()
        files.sync_directory(f"{root}/{name}".rpartition("/")[0])
    files.sync_directory(root)
    files.sync_directory("/")


def tree(files: SimulatedFiles, root: str) -> Tree:
    """Returns the contents of a directory, without its lock."""
    found: Tree = {name[len(root) + 1 :]: None for name in files.directories if name.startswith(root + "/")}
    for name in files.contents:
        if name.startswith(root + "/") and not name.endswith("/.lock"):
            found[name[len(root) + 1 :]] = files.read_bytes(name)
    return found


def expected(of: dict[str, Tree], root: str, *, clean: bool) -> Tree:
    return {**of[root], **({CLEAN_SHUTDOWN: CLEAN_SHUTDOWN_BYTES} if clean else {})}


def world(roots: Sequence[str]) -> SimulatedFiles:
    files = SimulatedFiles()
    for root in roots:
        put(files, root, OLD[root])
        put(files, KEPT + root, NEW[root])
    return files


def copies(files: SimulatedFiles, roots: Sequence[str]) -> list[DirectoryCopy]:
    return [DirectoryCopy(root, KEPT + root, restore.entries(files, KEPT + root), root == ONE) for root in roots]


def restored(files: SimulatedFiles, roots: Sequence[str]) -> None:
    restore.stage(files, copies(files, roots)).decide()
    assert restore.finish(files, roots) == []


def state_of(files: SimulatedFiles, roots: Sequence[str]) -> str:
    """Returns whether the directories have the old state or the copies, as a whole."""
    found = {root: tree(files, root) for root in roots}
    if found == {root: expected(NEW, root, clean=root == ONE) for root in roots}:
        return "new"
    assert found == {root: OLD[root] for root in roots}, found
    return "old"


@pytest.mark.parametrize("roots", [[ONE], [ONE, TWO], [TWO, ONE]])
def test_restore_leaves_the_copies_unchanged(roots: list[str]) -> None:
    files = world(roots)
    restored(files, roots)
    assert state_of(files, roots) == "new"
    files.crash(random.Random(1))
    assert state_of(files, roots) == "new"


@pytest.mark.parametrize("roots", [[ONE], [ONE, TWO]])
def test_restore_stopped_at_any_step_is_complete_after_the_next_start(
    roots: list[str], scaled: Callable[[int], int]
) -> None:
    """By a kill and by a power loss; the start after it is interrupted at a random step as well."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    outcomes: list[str] = []
    decided_at: list[int] = []
    for powered in (True, False):
        for _ in range(1 if powered else scaled(3)):
            files = world(roots)
            left: list[tuple[Step, SimulatedFiles]] = []

            def fork(step: Step, files: SimulatedFiles = files, left: list = left, powered: bool = powered) -> None:
                done = len(step.change.data or b"") if step.change else 0
                stopped = files.fork(step, rng.randint(0, done))
                if powered:
                    stopped.restart()
                else:
                    stopped.crash(rng)
                left.append((step, stopped))

            files.on_step = fork
            restored(files, roots)
            files.on_step = None
            assert len(left) > 60
            found = [_started(stopped, roots, rng, f"{step.operation} {step.path}") for step, stopped in left]
            decided = [number for number, (step, _) in enumerate(left) if step.path.endswith("decision.json.tmp")]
            decided_at.append(decided[-1])
            assert set(found[: decided[0]]) == {"old"} and found[decided[-1] + 2 :].count("old") == 0
            outcomes += found
    assert set(outcomes) == {"old", "new"} and decided_at


def _started(files: SimulatedFiles, roots: Sequence[str], rng: random.Random, where: str) -> str:
    """Returns the state after a start that is itself interrupted once more."""
    again = files.fork()
    again.fail_at, again.killing = rng.randrange(30), True
    try:
        restore.finish(again, roots)
    except Killed:
        again.restart() if rng.random() < 0.5 else again.crash(rng)
        assert restore.finish(again, roots) == []
    state_of(again, roots)  # either: a decision that a kill left unsynced may be lost in a power loss
    assert restore.finish(files, roots) == [], where
    return state_of(files, roots)


def test_restore_with_a_disk_error_at_any_step_loses_nothing(scaled: Callable[[int], int]) -> None:
    """The caller discards an undecided restore; a decided one is finished by a later start."""
    roots = [ONE, TWO]
    step, outcomes = 0, set[str]()
    while True:
        files = world(roots)
        files.fail_at = files.steps + step
        files.fail_with = random.Random(step).choice([errno.EIO, errno.ENOSPC])
        outcome = _tried(files, roots)
        failed = files.fail_at is not None and files.steps > files.fail_at
        outcomes.add(outcome)
        if not failed:
            assert outcome == "done"
            break
        if outcome in ("refused", "discarded"):
            assert {root: {k: v for k, v in tree(files, root).items() if RESTORE not in k} for root in roots} == OLD
        files.restart()
        assert restore.finish(files, roots) == []
        assert state_of(files, roots) == ("old" if outcome in ("refused", "discarded") else "new"), step
        step += 1
    assert outcomes == {"refused", "discarded", "unfinished", "done"} and step > 60


def _tried(files: SimulatedFiles, roots: Sequence[str]) -> str:
    try:
        staged = restore.stage(files, copies(files, roots))
    except (OSError, StorageError):
        return "refused"
    try:
        staged.decide()
    except OSError:
        staged.discard()
        return "discarded"
    problems = restore.finish(files, roots)
    planned = [root for root in roots if restore.is_planned(files, root)]
    for root in planned:
        assert root in {problem.path for problem in problems}
        with pytest.raises(StorageError, match="restore of a snapshot"):
            DataDirectory.take(files, root, node_id=1)
    return "unfinished" if problems else "done"


def test_full_disk_after_the_decision_does_not_stop_the_restore() -> None:
    files = world([ONE])
    restore.stage(files, copies(files, [ONE])).decide()
    files.capacity = files.used()
    assert restore.finish(files, [ONE]) == []
    assert state_of(files, [ONE]) == "new"


def test_full_disk_while_copying_is_refused_and_leaves_nothing() -> None:
    files = world([ONE])
    before = tree(files, ONE)
    for room in range(0, 3000, 100):
        files.capacity = files.used() + room
        try:
            restore.stage(files, copies(files, [ONE])).clean_up()
        except OSError as error:
            assert error.errno == errno.ENOSPC
        assert tree(files, ONE) == before


def test_source_that_changed_since_it_was_listed_is_refused() -> None:
    files = world([ONE])
    listed = copies(files, [ONE])
    files.remove(f"{KEPT}{ONE}/before-0/00000000000000000000.log")
    with pytest.raises(FileNotFoundError):
        restore.stage(files, listed)
    files = world([ONE])
    files.open(f"{KEPT}{ONE}/before-0/00000000000000000000.log").write(6, b"more")
    with pytest.raises(StorageError, match="has 10 bytes, and had 6"):
        restore.stage(files, listed)
    assert tree(files, ONE) == OLD[ONE]


def test_restore_of_a_missing_directory_is_finished_once_it_is_given() -> None:
    files = world([ONE, TWO])
    restore.stage(files, copies(files, [ONE, TWO])).decide()
    assert restore.finish(files, [ONE]) == [Problem(ONE, "a restore of a snapshot waits for /two")]
    shown = {name: data for name, data in tree(files, ONE).items() if not name.startswith(RESTORE)}
    assert shown == expected(NEW, ONE, clean=True)
    assert restore.described(files, ONE) == (
        "a restore of a snapshot that has ended here, and waits for another directory of log.dirs"
    )
    files.open(f"{ONE}/since.txt", create=True)  # later files stay
    assert [problem.path for problem in restore.finish(files, [ONE])] == [ONE]
    assert f"{ONE}/since.txt" in files.contents
    with pytest.raises(StorageError, match="an earlier restore is not finished"):
        restore.stage(files, copies(files, [ONE]))
    assert restore.finish(files, [TWO, ONE]) == []
    files.remove(f"{ONE}/since.txt")
    assert state_of(files, [ONE, TWO]) == "new"


def test_directory_without_the_deciding_one_is_not_opened() -> None:
    files = world([ONE, TWO])
    restore.stage(files, copies(files, [ONE, TWO])).decide()
    (problem,) = restore.finish(files, [TWO])
    assert problem.path == TWO and "/one has the decision" in problem.reason
    with pytest.raises(StorageError, match="an unfinished restore of a snapshot"):
        DataDirectory.take(files, TWO, node_id=1)
    assert restore.finish(files, [ONE, TWO]) == [] and state_of(files, [ONE, TWO]) == "new"


def test_restore_is_discarded_if_the_deciding_directory_has_none() -> None:
    files = world([ONE, TWO])
    restore.stage(files, copies(files, [ONE, TWO]))
    assert [problem.path for problem in restore.finish(files, [TWO])] == [TWO]
    assert restore.finish(files, [ONE]) == []
    assert restore.finish(files, [ONE, TWO]) == [] and state_of(files, [ONE, TWO]) == "old"


def test_malformed_plan_is_reported_and_nothing_changes() -> None:
    files = world([ONE])
    restore.stage(files, copies(files, [ONE])).decide()
    file = files.open(f"{ONE}/{RESTORE}/{restore.PLAN}")
    file.truncate(5)
    before = tree(files, ONE)
    (problem,) = restore.finish(files, [ONE])
    assert "malformed /one/.ottla-restore/restore-plan.json" in problem.reason and tree(files, ONE) == before


def test_directory_in_use_is_not_finished() -> None:
    files = world([ONE])
    restore.stage(files, copies(files, [ONE])).decide()
    files.lock(f"{ONE}/.lock")
    with pytest.raises(DirectoryLocked, match="/one is in use"):
        restore.finish(files, [ONE])


def test_lost_and_found_is_neither_copied_nor_moved() -> None:
    files = world([ONE])
    files.make_directory(f"{ONE}/lost+found")
    files.make_directory(f"{KEPT}{ONE}/lost+found")
    restored(files, [ONE])
    files.remove_directory(f"{ONE}/lost+found")
    assert state_of(files, [ONE]) == "new"


def test_readers_refuse_a_partly_replaced_directory() -> None:
    """Before the first rename and after the last one they can read."""
    files = world([ONE])
    seen: list[str] = []

    def look(step: Step) -> None:
        here = files.fork(step)
        here.restart()
        try:
            inspect.partitions(ONE, here)
            seen.append("read")
        except StorageError as error:
            assert "an unfinished restore of a snapshot" in str(error)
            names = here.list(ONE)
            seen.append("refused" if META_PROPERTIES in names or len(names) < 9 else "?")

    restore.stage(files, copies(files, [ONE])).decide()
    files.on_step = look
    assert restore.finish(files, [ONE]) == []
    first, last = seen.index("refused"), len(seen) - 1 - seen[::-1].index("refused")
    assert set(seen[:first]) == {"read"} and set(seen[first : last + 1]) == {"refused"} and seen[last + 1 :]

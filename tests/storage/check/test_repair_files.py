"""Repair of the files beside the logs, the backup, and undoing a repair."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.storage.check.directory import REPAIRING, Verification
from ottla.storage.check.repair import Repair, backup_place, place_of
from ottla.storage.errors import StorageError
from ottla.storage.format import checkpoint
from ottla.storage.io.files import DiskFiles
from ottla.storage.io.undo_journal import MANIFEST, Backup, put_back
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN, DataDirectory
from ottla_testing.each import each
from ottla_testing.storage.batches import make, sequenced
from ottla_testing.storage.repairing import (
    CONFIG,
    DIRECTORIES,
    RELEASES,
    TOPIC_ID,
    Unsynced,
    change,
    does,
    entries,
    facts,
    log_of,
    options,
    repair,
    tree,
    wrong,
)

# -- files derived from the log


def test_rebuilt_indexes_equal_the_lost_ones(copied: Path, sound: Path) -> None:
    for number, suffix in enumerate((".index", ".timeindex", ".index", ".timeindex")):
        path = log_of(copied, number).with_suffix(suffix)
        if number < 2:
            path.write_bytes(b"\1" * 7)
        else:
            path.unlink()
    steps, _ = repair(copied)
    assert does(steps, "index") == ["rebuild both indexes from the log"] * 4
    put = {name: data for name, data in tree(copied).items() if name != CLEAN_SHUTDOWN}
    assert put == {name: data for name, data in tree(sound).items() if name != CLEAN_SHUTDOWN}


@each("release", RELEASES, strided=True)
def test_rebuilt_transaction_indexes_equal_kafkas(release: str, again: Callable[[Path], Path]) -> None:
    root = again(DIRECTORIES / release)
    paths = [path for path in sorted(root.glob("*/*.txnindex")) if path.stat().st_size and "compacted" not in str(path)]
    assert paths
    was = {path: path.read_bytes() for path in paths}
    for number, path in enumerate(paths):
        path.write_bytes(was[path][:33] if number % 2 else b"") if number else path.unlink()
    steps, _ = repair(root, gaps=True)
    assert does(steps, "transactions") == ["rebuild it from the markers in the log"] * len(paths)
    assert {path: path.read_bytes() for path in paths} == was


def test_snapshots_that_contradict_the_log_are_removed(copied: Path) -> None:
    snapshots = sorted((copied / "orders-0").glob("*.snapshot"))
    snapshots[0].write_bytes(snapshots[1].read_bytes())
    change(snapshots[-1], 9, b"\x77")
    (copied / "orders-0" / f"{10**6:020d}.snapshot").write_bytes(snapshots[1].read_bytes())
    steps, _ = repair(copied)
    assert len(does(steps, "snapshot")) == 3
    assert wrong(copied) == []


@pytest.mark.parametrize("data", [b"0\n1\n3 0\n", b"0\n2\n0 0\n1 9\n", b"x", b"0\n2\n0 0\n"])
def test_leader_epochs_are_rebuilt(copied: Path, sound: Path, data: bytes) -> None:
    (copied / "orders-0" / checkpoint.LEADER_EPOCH).write_bytes(data)
    steps, _ = repair(copied)
    assert does(steps, "epochs") == ["rebuild it from the batches"]
    assert tree(copied)["orders-0/leader-epoch-checkpoint"] == tree(sound)["orders-0/leader-epoch-checkpoint"]


# -- beside the log


def offsets_in(root: Path, name: str) -> dict[tuple[str, int], int]:
    return checkpoint.read_offsets(DiskFiles(), str(root / name))


@pytest.mark.parametrize(
    "name", [checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET, checkpoint.LOG_START_OFFSET]
)
def test_malformed_checkpoint_is_rewritten(copied: Path, sound: Path, name: str) -> None:
    true = offsets_in(sound, name)
    assert true
    was = (copied / name).read_bytes()
    for data in (b"1" + was[1:], was[:-1], was + b"x\n", was.replace(b"orders", b"\xff", 1)):
        (copied / name).write_bytes(data)
        (copied / CLEAN_SHUTDOWN).touch()
        steps, _ = repair(copied)
        assert len(does(steps, "checkpoint")) == 1
        rebuilt = offsets_in(copied, name)
        assert rebuilt == true or (name == checkpoint.LOG_START_OFFSET and rebuilt.items() < true.items())


def test_impossible_checkpoint_offsets_are_moved_into_the_logs(copied: Path, sound: Path) -> None:
    ends = offsets_in(sound, checkpoint.RECOVERY_POINT)
    key, end = ("orders", 0), ends["orders", 0]
    for name in (checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET, checkpoint.CLEANER_OFFSET):
        checkpoint.write_offsets(DiskFiles(), str(copied / name), {**ends, key: end + 5, ("gone", 3): 1})
    checkpoint.write_offsets(DiskFiles(), str(copied / checkpoint.LOG_START_OFFSET), {key: end + 9})
    steps, _ = repair(copied)
    assert len(does(steps, "checkpoint")) == 6
    assert offsets_in(copied, checkpoint.RECOVERY_POINT) == offsets_in(copied, checkpoint.REPLICATION_OFFSET) == ends
    # the cleaner starts from scratch
    assert offsets_in(copied, checkpoint.CLEANER_OFFSET) == {**ends, key: 0, ("gone", 3): 1}
    assert offsets_in(copied, checkpoint.LOG_START_OFFSET) == {}
    assert entries(copied, "orders-0") == entries(sound, "orders-0")


def test_log_that_ends_before_its_start_continues_at_its_start(copied: Path) -> None:
    end = offsets_in(copied, checkpoint.RECOVERY_POINT)["orders", 0]
    checkpoint.write_offsets(DiskFiles(), str(copied / checkpoint.LOG_START_OFFSET), {("orders", 0): end - 1})
    path = log_of(copied, -1)
    path.write_bytes(path.read_bytes()[:-3])
    steps, _ = repair(copied)
    does_it = "remove all segments, whose records were deleted, and continue at the log start"
    assert does_it in [step.does for step in steps]
    assert [p.name for p in (copied / "orders-0").glob("*.log")] == [f"{end - 1:020d}.log"]
    assert wrong(copied) == []
    directory = DataDirectory.open(DiskFiles(), copied, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG, now_ms=0)
    assert log.append(make(b"next"), now_ms=0).base_offset == end - 1
    directory.close()


def test_lost_topic_id_is_restored_if_known(copied: Path) -> None:
    path = copied / "orders-1" / "partition.metadata"
    was = path.read_bytes()
    path.write_bytes(b"x")
    backup = Backup(Unsynced(), backup_place(str(copied)), str(copied))
    assert [step.mends for step in Repair(Unsynced(), str(copied), backup).run()] == [True]
    assert path.read_bytes() == was
    (copied / "transactions-0" / "partition.metadata").write_bytes(b"x")
    steps, _ = repair(copied)
    assert [(step.mends, step.finding.part) for step in steps] == [(False, "identity")]


def test_partition_with_another_topic_id_is_reported(copied: Path) -> None:
    shutil.copytree(copied / "orders-1", copied / "orders-2")
    shutil.copytree(copied / "orders-1", copied / "orders-3")
    (copied / "orders-3" / "partition.metadata").write_bytes(b"version: 0\ntopic_id: " + b"A" * 21 + b"Q")
    before = tree(copied)
    steps, _ = repair(copied)
    assert [(step.mends, step.finding.file) for step in steps] == [(False, "orders-3/partition.metadata")]
    assert [finding.file for finding in wrong(copied)] == ["orders-3/partition.metadata"]
    assert tree(copied) == before


def test_files_that_an_open_would_remove_are_in_the_backup(copied: Path, sound: Path) -> None:
    old = f"old-0.{'0' * 32}-delete"
    (copied / old).mkdir()
    left = {
        f"orders-0/{5:020d}.log.deleted": b"1",
        f"orders-0/{log_of(sound, 1).name}.cleaned": b"2",
        f"orders-0/{log_of(sound, 1).name}.swap": b"3",
        f"orders-0/{10**6:020d}.timeindex": b"4",
        "orders-1/x.tmp": b"5",
        "y.tmp": b"6",
        f"{old}/{0:020d}.log": b"7",
    }
    for name, data in left.items():
        (copied / name).write_bytes(data)
    steps, place = repair(copied)
    assert all(step.mends for step in steps)
    assert {**tree(copied), CLEAN_SHUTDOWN: b""}.keys() == tree(sound).keys()
    assert not (copied / old).exists()
    assert {name: (place / f"{name}.0-1").read_bytes() for name in left} == left


def test_completed_swap_can_be_undone(copied: Path, sound: Path) -> None:
    path = log_of(copied, 1)
    swap = path.with_name(path.name + ".swap")
    swap.write_bytes(path.read_bytes()[: facts(path)[-1].position])
    damaged = tree(copied)
    _, place = repair(copied, gaps=True)
    assert not swap.exists()
    assert len(facts(path)) == len(facts(log_of(sound, 1))) - 1
    put_back(DiskFiles(), str(copied), str(place))
    assert tree(copied) == damaged


def test_swap_of_a_damaged_log_is_completed_up_to_the_damage(copied: Path, sound: Path) -> None:
    """The old segments after the damage still have the records that it took."""
    first, second = log_of(copied, 1), log_of(copied, 2)
    swap = first.with_name(first.name + ".swap")
    swap.write_bytes(first.read_bytes() + second.read_bytes())
    change(swap, first.stat().st_size + 8, b"\0\0\0\1")
    damaged = tree(copied)
    steps, place = repair(copied)
    assert "complete the swap up to the damage" in [step.does for step in steps]
    assert all(step.mends for step in steps)
    assert wrong(copied) == []
    assert entries(copied, "orders-0") == entries(sound, "orders-0")
    put_back(Unsynced(), str(copied), str(place))
    assert tree(copied) == damaged


# -- a directory that was not closed


def killed(tmp_path: Path) -> Path:
    """Returns a directory whose broker was killed."""
    root = tmp_path / "killed"
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG, now_ms=0)
    for number in range(40):
        log.append(sequenced(number, timestamp=1000 + number), now_ms=0)
    directory.abandon()
    return root


def test_damage_that_recovery_fixes_is_not_repaired(tmp_path: Path) -> None:
    root = killed(tmp_path)
    before = tree(root)
    assert repair(root)[0] == []
    assert tree(root) == before


def test_incomplete_last_entry_is_cut_and_in_the_backup(tmp_path: Path) -> None:
    root = killed(tmp_path)
    path = log_of(root, -1)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(make(b"half"))[:50])
    steps, place = repair(root)
    assert does(steps) == ["cut 50 bytes"]
    assert path.read_bytes() == whole
    assert (place / "orders-0" / f"{path.name}.{len(whole)}-{len(whole) + 50}").exists()
    assert repair(root)[0] == []


# -- the backup


class Elsewhere(Unsynced):
    """The disk of the backup is another one: files cannot be renamed to it."""

    def replace(self, source: str, target: str) -> None:
        if "ottla-repair" in target and "ottla-repair" not in source:
            raise OSError(errno.EXDEV, "another device")
        super().replace(source, target)


def test_backup_on_another_disk(copied: Path) -> None:
    left = copied / "orders-0" / f"{5:020d}.log.deleted"
    left.write_bytes(b"deleted")
    damaged = tree(copied)
    place = Path(backup_place(str(copied)))
    backup = Backup(Elsewhere(), str(place), str(copied))
    steps = list(Repair(Elsewhere(), str(copied), backup, options()).run())
    assert [step.mends for step in steps] == [True]
    assert (place / "orders-0" / f"{left.name}.0-7").read_bytes() == b"deleted"
    assert not left.exists()
    put_back(Unsynced(), str(copied), str(place))
    assert tree(copied) == damaged


def test_manifest_has_source_backup_and_reason_of_each_file(copied: Path) -> None:
    path = log_of(copied, -1)
    size = path.stat().st_size
    change(path, size - 1, b"\xff")
    at = facts(path)[-1].position
    _, place = repair(copied)
    lines = [json.loads(line) for line in (place / MANIFEST).read_text().splitlines()]
    assert lines[0] == {"version": 1, "directory": str(copied)}
    cut = next(line for line in lines[1:] if line["does"] == "cut")
    assert (cut["file"], cut["from"], cut["to"]) == (f"orders-0/{path.name}", at, size)
    assert cut["why"].startswith("CRC 0x")
    assert (place / cut["saved"]).stat().st_size == size - at


def test_undo_does_not_overwrite_later_writes(copied: Path) -> None:
    path = log_of(copied, -1)
    path.write_bytes(path.read_bytes()[:-1])
    _, place = repair(copied)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(StorageError, match="was changed since the repair"):
        put_back(DiskFiles(), str(copied), str(place))
    with pytest.raises(StorageError, match="belongs to "):
        put_back(DiskFiles(), str(copied.parent), str(place))
    with pytest.raises(StorageError, match="cannot read"):
        put_back(DiskFiles(), str(copied), str(copied))


def test_unfinished_repair_is_reported_and_completed_by_the_next(copied: Path, sound: Path) -> None:
    (copied / CLEAN_SHUTDOWN).rename(copied / REPAIRING)
    notes = [finding for finding in Verification(copied).findings() if not finding.wrong]
    assert [finding.file for finding in notes] == [REPAIRING]
    steps, _ = repair(copied)
    assert [step.finding.file for step in steps] == [REPAIRING]
    assert not (copied / REPAIRING).exists()


def test_backup_is_placed_next_to_the_data_directory(copied: Path, tmp_path: Path) -> None:
    assert backup_place(str(copied)) == backup_place(str(copied / "orders-0")) == str(tmp_path / "ottla-repair-1")
    assert place_of(str(copied)) == (str(copied), None)
    assert place_of(str(copied / "orders-0")) == (str(copied), "orders-0")


def test_repair_of_one_partition_leaves_others_unchanged(copied: Path) -> None:
    for folder in ("orders-0", "orders-1"):
        log_of(copied, 0, folder).with_suffix(".index").write_bytes(b"x")
    steps, _ = repair(copied, only="orders-1")
    assert [step.finding.file.split("/")[0] for step in steps] == ["orders-1"]
    assert {finding.file.split("/")[0] for finding in wrong(copied)} == {"orders-0"}

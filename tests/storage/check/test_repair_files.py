"""Repair of what lies beside the logs, the backup and its way back."""

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

# -- what follows from the log


def test_indexes_are_made_anew_byte_for_byte(copied: Path, sound: Path) -> None:
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


@pytest.mark.parametrize("release", RELEASES)
def test_transaction_indexes_are_made_anew_as_kafka_wrote_them(release: str, again: Callable[[Path], Path]) -> None:
    root = again(DIRECTORIES / release)
    paths = [path for path in sorted(root.glob("*/*.txnindex")) if path.stat().st_size and "compacted" not in str(path)]
    assert paths
    was = {path: path.read_bytes() for path in paths}
    for number, path in enumerate(paths):
        path.write_bytes(was[path][:33] if number % 2 else b"") if number else path.unlink()
    steps, _ = repair(root, gaps=True)
    assert does(steps, "transactions") == ["rebuild it from the markers in the log"] * len(paths)
    assert {path: path.read_bytes() for path in paths} == was


def test_snapshots_that_the_log_contradicts_go(copied: Path) -> None:
    snapshots = sorted((copied / "orders-0").glob("*.snapshot"))
    snapshots[0].write_bytes(snapshots[1].read_bytes())
    change(snapshots[-1], 9, b"\x77")
    (copied / "orders-0" / f"{10**6:020d}.snapshot").write_bytes(snapshots[1].read_bytes())
    steps, _ = repair(copied)
    assert len(does(steps, "snapshot")) == 3
    assert wrong(copied) == []


@pytest.mark.parametrize("data", [b"0\n1\n3 0\n", b"0\n2\n0 0\n1 9\n", b"x", b"0\n2\n0 0\n"])
def test_leader_epochs_are_made_anew(copied: Path, sound: Path, data: bytes) -> None:
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
def test_a_malformed_checkpoint_is_written_anew(copied: Path, sound: Path, name: str) -> None:
    true = offsets_in(sound, name)
    assert true
    was = (copied / name).read_bytes()
    for data in (b"1" + was[1:], was[:-1], was + b"x\n", was.replace(b"orders", b"\xff", 1)):
        (copied / name).write_bytes(data)
        (copied / CLEAN_SHUTDOWN).touch()
        steps, _ = repair(copied)
        assert len(does(steps, "checkpoint")) == 1
        told = offsets_in(copied, name)
        assert told == true or (name == checkpoint.LOG_START_OFFSET and told.items() < true.items())


def test_offsets_that_cannot_be_are_put_within_the_logs(copied: Path, sound: Path) -> None:
    ends = offsets_in(sound, checkpoint.RECOVERY_POINT)
    key, end = ("orders", 0), ends["orders", 0]
    for name in (checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET, checkpoint.CLEANER_OFFSET):
        checkpoint.write_offsets(DiskFiles(), str(copied / name), {**ends, key: end + 5, ("gone", 3): 1})
    checkpoint.write_offsets(DiskFiles(), str(copied / checkpoint.LOG_START_OFFSET), {key: end + 9})
    steps, _ = repair(copied)
    assert len(does(steps, "checkpoint")) == 6
    assert offsets_in(copied, checkpoint.RECOVERY_POINT) == offsets_in(copied, checkpoint.REPLICATION_OFFSET) == ends
    assert offsets_in(copied, checkpoint.CLEANER_OFFSET) == {**ends, key: 0, ("gone", 3): 1}  # the cleaner begins anew
    assert offsets_in(copied, checkpoint.LOG_START_OFFSET) == {}
    assert entries(copied, "orders-0") == entries(sound, "orders-0")


def test_a_log_that_ends_in_front_of_its_start_goes_on_there(copied: Path) -> None:
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


def test_topic_ids_come_from_their_owner_or_from_the_others(copied: Path) -> None:
    path = copied / "orders-1" / "partition.metadata"
    was = path.read_bytes()
    path.write_bytes(b"x")
    backup = Backup(Unsynced(), backup_place(str(copied)), str(copied))
    assert [step.mends for step in Repair(Unsynced(), str(copied), backup).run()] == [True]
    assert path.read_bytes() == was
    (copied / "transactions-0" / "partition.metadata").write_bytes(b"x")
    steps, _ = repair(copied)
    assert [(step.mends, step.finding.part) for step in steps] == [(False, "identity")]


def test_a_partition_with_another_id_may_be_of_another_topic(copied: Path) -> None:
    shutil.copytree(copied / "orders-1", copied / "orders-2")
    shutil.copytree(copied / "orders-1", copied / "orders-3")
    (copied / "orders-3" / "partition.metadata").write_bytes(b"version: 0\ntopic_id: " + b"A" * 21 + b"Q")
    before = tree(copied)
    steps, _ = repair(copied)
    assert [(step.mends, step.finding.file) for step in steps] == [(False, "orders-3/partition.metadata")]
    assert [finding.file for finding in wrong(copied)] == ["orders-3/partition.metadata"]
    assert tree(copied) == before


def test_what_an_opening_removes_goes_into_the_backup(copied: Path, sound: Path) -> None:
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


def test_a_swap_is_completed_and_can_be_put_back(copied: Path, sound: Path) -> None:
    path = log_of(copied, 1)
    swap = path.with_name(path.name + ".swap")
    swap.write_bytes(path.read_bytes()[: facts(path)[-1].position])
    damaged = tree(copied)
    _, place = repair(copied, gaps=True)
    assert not swap.exists()
    assert len(facts(path)) == len(facts(log_of(sound, 1))) - 1
    put_back(DiskFiles(), str(copied), str(place))
    assert tree(copied) == damaged


def test_a_swap_of_a_damaged_log_is_completed_up_to_the_damage(copied: Path, sound: Path) -> None:
    """The old segments behind the damage still have what it took."""
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
    """A directory of whose broker nothing is left but what it wrote."""
    root = tmp_path / "killed"
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG, now_ms=0)
    for number in range(40):
        log.append(sequenced(number, timestamp=1000 + number), now_ms=0)
    directory.abandon()
    return root


def test_what_every_opening_recovers_is_left_to_it(tmp_path: Path) -> None:
    root = killed(tmp_path)
    before = tree(root)
    assert repair(root)[0] == []
    assert tree(root) == before


def test_but_an_unfinished_end_is_cut_and_kept(tmp_path: Path) -> None:
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
    """The backup lies on another disk: nothing can be renamed there."""

    def replace(self, source: str, target: str) -> None:
        if "ottla-repair" in target and "ottla-repair" not in source:
            raise OSError(errno.EXDEV, "another device")
        super().replace(source, target)


def test_the_backup_may_lie_on_another_disk(copied: Path) -> None:
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


def test_the_manifest_says_what_went_where_and_why(copied: Path) -> None:
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


def test_what_was_written_since_is_not_overwritten_by_putting_back(copied: Path) -> None:
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


def test_a_repair_that_did_not_end_is_told_of_and_ends_in_the_next(copied: Path, sound: Path) -> None:
    (copied / CLEAN_SHUTDOWN).rename(copied / REPAIRING)
    notes = [finding for finding in Verification(copied).findings() if not finding.wrong]
    assert [finding.file for finding in notes] == [REPAIRING]
    steps, _ = repair(copied)
    assert [step.finding.file for step in steps] == [REPAIRING]
    assert not (copied / REPAIRING).exists()


def test_the_backup_lies_in_no_data_directory(copied: Path, tmp_path: Path) -> None:
    assert backup_place(str(copied)) == backup_place(str(copied / "orders-0")) == str(tmp_path / "ottla-repair-1")
    assert place_of(str(copied)) == (str(copied), None)
    assert place_of(str(copied / "orders-0")) == (str(copied), "orders-0")


def test_one_partition_is_mended_alone(copied: Path) -> None:
    for folder in ("orders-0", "orders-1"):
        log_of(copied, 0, folder).with_suffix(".index").write_bytes(b"x")
    steps, _ = repair(copied, only="orders-1")
    assert [step.finding.file.split("/")[0] for step in steps] == ["orders-1"]
    assert {finding.file.split("/")[0] for finding in wrong(copied)} == {"orders-0"}

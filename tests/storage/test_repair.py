"""Repair: every damage is mended or named, nothing is lost that is not in the backup, and a crash does no harm."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from batches import make, old, sequenced, storing
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch
from ottla.storage import checkpoint, inspect
from ottla.storage.directory import CLEAN_SHUTDOWN, META_PROPERTIES, DataDirectory
from ottla.storage.errors import StorageError
from ottla.storage.files import DiskFile, DiskFiles, Files
from ottla.storage.log import LogConfig
from ottla.storage.overlay import Overlay, ReadOnlyFiles
from ottla.storage.repair import Options, Repair, Step, backup_place, place_of
from ottla.storage.repair_log import empty_batch
from ottla.storage.saving import MANIFEST, Backup, NoBackup, put_back, read_manifest
from ottla.storage.verify import CLEANER_OFFSET, REPAIRING, Finding, Verification

GOLDEN = Path(__file__).parents[1] / "oracle" / "golden"
DIRECTORIES = GOLDEN / "directories"
RELEASES = ("2.8.2", "3.9.1", "4.3.1")
CONFIG = LogConfig(segment_bytes=1400, index_interval_bytes=200)
TOPIC_ID = bytes(range(16))
HARMLESS = {".lock"}
Tree = dict[str, bytes]


def fill(files: Files, root: str) -> None:
    """A directory that was closed: two partitions, all formats, producers, several segments, records deleted."""
    directory = DataDirectory.open(files, root, node_id=1)
    log = directory.open_partition("orders", 0, topic_id=TOPIC_ID, config=CONFIG, now_ms=0)
    for number in range(24):
        log.append(sequenced(number * 3, 3, timestamp=1000 + number), now_ms=0)
        log.append(make(b"x" * 50, b"%d" % number * 20, timestamp=1000 + number, codec=1), now_ms=0)
    log.delete_records_before(4)
    log = directory.open_partition("orders", 1, topic_id=TOPIC_ID, config=storing(1), now_ms=0)
    for number in range(12):
        log.append(old(1, b"a" * 30, b"%d" % number, timestamp=2000 + number), now_ms=0, produce_version=2)
    directory.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "data"
    root.mkdir()
    shutil.copytree(GOLDEN / "logs" / "transactions-0", root / "transactions-0")
    fill(DiskFiles(), str(root))
    directory = DataDirectory.open(DiskFiles(), root, node_id=1)
    directory.open_partition("transactions", 0, config=CONFIG, now_ms=0)
    for number in (0, 1):
        directory.open_partition("orders", number, config=CONFIG, now_ms=0)
    directory.close()
    return root


@pytest.fixture
def copied(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data"))


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A directory copied anew, to the same place each time."""
    above = tmp_path_factory.mktemp("again")

    def copy(source: Path) -> Path:
        shutil.rmtree(above)
        return Path(shutil.copytree(source, above / "data"))

    return copy


def tree(root: Path) -> Tree:
    found = {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
    return {name: data for name, data in found.items() if Path(name).name not in HARMLESS}


def wrong(root: Path, *, gaps: bool = False) -> list[Finding]:
    return [f for f in Verification(root, may_have_gaps=lambda topic: gaps).findings() if f.wrong]


def options(*, skip: bool = False, gaps: bool = False) -> Options:
    return Options(skip, lambda topic: gaps, {"orders": TOPIC_ID}, lambda topic: CONFIG.index_interval_bytes)


def repair(root: Path, *, skip: bool = False, gaps: bool = False, only: str | None = None) -> tuple[list[Step], Path]:
    place = Path(backup_place(str(root)))
    backup = Backup(Unsynced(), str(place), str(root))
    steps = list(Repair(Unsynced(), str(root), backup, options(skip=skip, gaps=gaps), only).run())
    backup.close()
    return steps, place


def dry(root: Path, *, skip: bool = False, gaps: bool = False) -> list[Step]:
    with Overlay(ReadOnlyFiles()) as files:
        backup = NoBackup(files, "/nowhere", str(root))
        return list(Repair(files, str(root), backup, options(skip=skip, gaps=gaps)).run())


def entries(root: Path, folder: str) -> list[tuple[int, bytes]]:
    """Offset and bytes behind what lies outside the CRC, of each entry with records."""
    found: list[tuple[int, bytes]] = []
    for path in sorted((root / folder).glob("*.log")):
        data = path.read_bytes()
        for one in inspect.segment(path):
            if isinstance(one, inspect.BatchFacts) and one.crc_ok and one.header.record_count:
                end = one.position + one.size_bytes
                found.append((one.header.base_offset, data[one.position + 17 : end]))
    return found


class _UnsyncedFile(DiskFile):
    def sync(self) -> None:
        pass


class Unsynced(DiskFiles):
    """The real disk, quicker."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        return _UnsyncedFile(path, os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644))

    def sync_directory(self, path: str) -> None:
        pass


# -- any damage


@given(data=st.data())
def test_any_damage_is_mended_and_can_be_put_back(
    data: st.DataObject, sound: Path, again: Callable[[Path], Path]
) -> None:
    release = data.draw(st.sampled_from(["", "", *RELEASES]))
    source, gaps = (DIRECTORIES / release, True) if release else (sound, False)
    root = again(source)
    before = tree(source)
    name = data.draw(st.sampled_from([name for name in before if before[name] and not name.startswith(".")]))
    was = before[name]
    at = data.draw(st.integers(0, len(was) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "extend", "zeros", "remove"]))
    skip = data.draw(st.booleans())
    byte = data.draw(st.integers(1, 255))
    now = {
        "flip": was[:at] + bytes([was[at] ^ byte]) + was[at + 1 :],
        "cut": was[:at],
        "extend": was + bytes([byte]) * 9,
        "zeros": was[:at] + bytes(min(len(was) - at, 70)) + was[at + 70 :],
        "remove": b"",
    }[how]
    if how == "remove":
        (root / name).unlink()
    else:
        (root / name).write_bytes(now)
    damaged = tree(root)
    told = dry(root, skip=skip, gaps=gaps)
    assert tree(root) == damaged
    steps, place = repair(root, skip=skip, gaps=gaps)
    assert [step.does for step in told] == [step.does for step in steps]
    left = [step.finding.file for step in steps if not step.mends]
    assert [finding.file for finding in wrong(root, gaps=gaps)] == left, (name, how, at, byte)
    assert left in ([], [META_PROPERTIES] if name == META_PROPERTIES else [name][: name.endswith("partition.metadata")])
    assert [step.finding.file for step in repair(root, gaps=gaps)[0]] == left
    for folder in {Path(name).parts[0] for name in before if name.endswith(".log")}:
        found, true = entries(root, folder), entries(source, folder)
        if name.startswith(folder + "/") and name.endswith(".log"):
            # The offset of the last one lies outside of its CRC, and may be higher than it was.
            assert len(set(found) - set(true)) <= (how in ("flip", "zeros"))
            assert not skip or how != "flip" or len(true) - len(found) <= 2
        else:
            assert found == true
    if place.exists():
        put_back(Unsynced(), str(root), str(place))
    assert tree(root) == damaged


@pytest.mark.parametrize("name", [*RELEASES, *(f"{release}-killed" for release in RELEASES)])
def test_there_is_nothing_to_do_in_a_directory_that_kafka_left(name: str, again: Callable[[Path], Path]) -> None:
    root = again(DIRECTORIES / name)
    before = tree(root)
    steps, place = repair(root, gaps=True)
    assert (steps, place.exists(), tree(root)) == ([], False, before)


# -- the log


def log_of(root: Path, number: int = 0, folder: str = "orders-0") -> Path:
    return sorted((root / folder).glob("*.log"))[number]


def facts(path: Path) -> list[inspect.BatchFacts]:
    return [found for found in inspect.segment(path) if isinstance(found, inspect.BatchFacts)]


def change(path: Path, at: int, new: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + len(new)] = new
    path.write_bytes(data)


def does(steps: list[Step], part: str = "log") -> list[str]:
    return [step.does for step in steps if step.finding.part == part]


def test_a_damaged_stretch_is_left_out_and_its_offsets_are_covered(copied: Path) -> None:
    path = log_of(copied, 1)
    was = facts(path)
    change(path, was[2].position, b"\xff" * (was[4].position - was[2].position + 20))
    true = path.read_bytes()
    steps, place = repair(copied, skip=True)
    assert does(steps)[0] == f"leave out {was[5].position - was[2].position} bytes"
    now = facts(path)
    filler = now[2].header
    assert (filler.base_offset, filler.last_offset, filler.record_count) == (
        was[2].header.base_offset,
        was[4].last_offset,
        0,
    )
    assert [one.header for one in now[:2] + now[3:]] == [one.header for one in was[:2] + was[5:]]
    saved = place / f"orders-0/{path.name}.{was[2].position}-{was[5].position}"
    assert saved.read_bytes() == true[was[2].position : was[5].position]
    assert wrong(copied) == []


def test_without_skip_the_log_ends_at_the_damage_and_says_what_goes_with_it(copied: Path) -> None:
    path = log_of(copied, 1)
    was, later = facts(path), [path.name for path in sorted((copied / "orders-0").glob("*.log"))[2:]]
    change(path, was[2].position + 30, b"\xff")
    count = len(entries(copied, "orders-0"))
    kept = len(facts(log_of(copied, 0))) + 2
    steps, place = repair(copied)
    told = does(steps)
    cut = was[-1].position + was[-1].size_bytes - was[2].position
    assert told[0] == f"cut {cut} bytes and remove {len(later)} segments behind"
    assert "remove them as well, as a recovery does; --skip keeps them" in told
    assert [s.finding.what for s in steps if s.finding.what.startswith(f"{count - kept} sound")] != []
    assert [p.name for p in sorted((copied / "orders-0").glob("*.log"))] == [log_of(copied, 0).name, path.name]
    assert [name for name, _ in sizes(place, later)] == later[::-1]
    assert all((place / f"orders-0/{name}.0-{size}").stat().st_size == size for name, size in sizes(place, later))
    assert path.stat().st_size == was[2].position
    ends = checkpoint.read_offsets(DiskFiles(), str(copied / checkpoint.RECOVERY_POINT))
    assert ends["orders", 0] == was[2].header.base_offset
    assert wrong(copied) == []


def sizes(place: Path, names: list[str]) -> list[tuple[str, int]]:
    """Size of each whole file in a backup."""
    lines = read_manifest(DiskFiles(), str(place))
    return [(Path(line["file"]).name, line["size"]) for line in lines[1:] if Path(line.get("file", "")).name in names]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("number", [0, 1, 4])
def test_an_offset_between_its_neighbours_is_put_right(copied: Path, sound: Path, skip: bool, number: int) -> None:
    path = log_of(copied, 1)
    one = facts(path)[number]
    for offset in (
        0,
        one.header.base_offset - 1,
        one.header.base_offset + 1,
        one.header.base_offset + 4,
        1 << 40,
        1 << 62,
    ):
        change(path, one.position, offset.to_bytes(8, "big"))
        steps, _ = repair(copied, skip=skip)
        assert does(steps)[0].split(",")[0] == f"give it the offset {one.header.base_offset}"
        assert path.read_bytes() == log_of(sound, 1).read_bytes()
        assert wrong(copied) == []


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("number", [0, 3])
def test_a_leader_epoch_that_stands_alone_is_put_right(copied: Path, sound: Path, skip: bool, number: int) -> None:
    path = log_of(copied, 1)
    change(path, facts(path)[number].position + 12, b"\0\1\0\0")
    steps, _ = repair(copied, skip=skip)
    assert does(steps)[0] == "give it the leader epoch 0 of its neighbours"
    assert path.read_bytes() == log_of(sound, 1).read_bytes()
    assert wrong(copied) == []


def test_a_segment_ends_where_the_next_one_begins(copied: Path, sound: Path) -> None:
    first, second = log_of(copied, 0), log_of(copied, 1)
    was = first.read_bytes()
    first.write_bytes(was + second.read_bytes()[: facts(second)[2].position])
    steps, _ = repair(copied)
    assert does(steps)[0].startswith("cut ")
    assert does(steps)[0].endswith(" bytes: the next segment has these offsets")
    assert first.read_bytes() == was
    assert entries(copied, "orders-0") == entries(sound, "orders-0")
    assert wrong(copied) == []


def test_an_empty_segment_within_another_one_goes(copied: Path, sound: Path) -> None:
    (copied / "orders-0" / f"{7:020d}.log").touch()
    steps, _ = repair(copied)
    assert does(steps)[0] == "remove it: the segment in front has these offsets"
    assert entries(copied, "orders-0") == entries(sound, "orders-0")
    assert wrong(copied) == []


def test_a_segment_that_is_missing_ends_the_log_or_is_covered(copied: Path, sound: Path, tmp_path: Path) -> None:
    gone, before = log_of(copied, 1), log_of(copied, 0)
    first, behind = facts(gone)[0].header.base_offset, facts(log_of(copied, 2))[0].header.base_offset
    gone.unlink()
    other = Path(shutil.copytree(copied, tmp_path / "other"))
    steps, _ = repair(copied)
    assert does(steps)[0] == f"end the log at {first}: offsets {first}-{behind - 1} are missing"
    assert [path.name for path in (copied / "orders-0").glob("*.log")] == [before.name]
    assert wrong(copied) == []
    repair(other, skip=True)
    assert facts(other / "orders-0" / before.name)[-1].last_offset == behind - 1
    lost = {entry[0] for entry in entries(sound, "orders-0")} - {entry[0] for entry in entries(other, "orders-0")}
    assert lost == {offset for offset in lost if first <= offset < behind} != set()
    assert wrong(other) == []


def test_offsets_that_are_missing_inside_a_segment_take_nothing_with_them(copied: Path) -> None:
    path = log_of(copied, 1)
    data, was = path.read_bytes(), facts(path)
    path.write_bytes(data[: was[2].position] + data[was[3].position :])
    steps, place = repair(copied)
    filler = facts(path)[2].header
    assert (filler.base_offset, filler.last_offset) == (was[2].header.base_offset, was[2].last_offset)
    assert filler.record_count == 0
    assert not list(place.glob("orders-0/*.log.*"))
    assert wrong(copied) == []
    assert does(steps)[0].startswith("put an empty batch in the place of offsets ")


@given(data=st.data())
def test_sound_entries_are_found_behind_any_garbage(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("any") / "orders-0"
    folder.mkdir()
    base = data.draw(st.sampled_from([0, 5, (1 << 32) - 40, 1 << 40]))
    written, true = b"", []
    offset = base
    for _ in range(data.draw(st.integers(1, 6))):
        garbage = data.draw(st.one_of(st.binary(max_size=90), st.integers(0, 3000).map(bytes)))
        one = bytes(batch.build([batch.Record(offset, 1, None, b"v" * 9)], base_offset=offset))
        written += garbage + one
        true.append(offset)
        offset += data.draw(st.integers(1, 30))
    (folder / f"{base:020d}.log").write_bytes(written)
    steps, _ = repair(folder.parent, skip=True, only="orders-0")
    assert all(step.mends for step in steps)
    assert [entry[0] for entry in entries(folder.parent, "orders-0")] == true
    assert wrong(folder.parent) == []


def test_an_empty_batch_is_read_by_everything(copied: Path) -> None:
    made = empty_batch(7, 20)
    header = batch.read_header(made)
    assert batch.crc_matches(made, 0, header)
    assert (header.base_offset, header.last_offset, header.record_count, list(batch.records(made))) == (7, 20, 0, [])


# -- what follows from the log


def test_indexes_are_made_anew_byte_for_byte(copied: Path, sound: Path) -> None:
    for number, suffix in enumerate((".index", ".timeindex", ".index", ".timeindex")):
        path = log_of(copied, number).with_suffix(suffix)
        if number < 2:
            path.write_bytes(b"\1" * 7)
        else:
            path.unlink()
    steps, _ = repair(copied)
    assert does(steps, "index") == ["make both indexes anew from the log"] * 4
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
    assert does(steps, "transactions") == ["make it anew from the markers in the log"] * len(paths)
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
    assert does(steps, "epochs") == ["make it anew from the batches"]
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
    for name in (checkpoint.RECOVERY_POINT, checkpoint.REPLICATION_OFFSET, CLEANER_OFFSET):
        checkpoint.write_offsets(DiskFiles(), str(copied / name), {**ends, key: end + 5, ("gone", 3): 1})
    checkpoint.write_offsets(DiskFiles(), str(copied / checkpoint.LOG_START_OFFSET), {key: end + 9})
    steps, _ = repair(copied)
    assert len(does(steps, "checkpoint")) == 6
    assert offsets_in(copied, checkpoint.RECOVERY_POINT) == offsets_in(copied, checkpoint.REPLICATION_OFFSET) == ends
    assert offsets_in(copied, CLEANER_OFFSET) == {**ends, key: 0, ("gone", 3): 1}  # the cleaner begins anew
    assert offsets_in(copied, checkpoint.LOG_START_OFFSET) == {}
    assert entries(copied, "orders-0") == entries(sound, "orders-0")


def test_a_log_that_ends_in_front_of_its_start_goes_on_there(copied: Path) -> None:
    end = offsets_in(copied, checkpoint.RECOVERY_POINT)["orders", 0]
    checkpoint.write_offsets(DiskFiles(), str(copied / checkpoint.LOG_START_OFFSET), {("orders", 0): end - 1})
    path = log_of(copied, -1)
    path.write_bytes(path.read_bytes()[:-3])
    steps, _ = repair(copied)
    assert "remove all segments, which were deleted, and go on at the log start" in [step.does for step in steps]
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


# -- the backup


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
    with pytest.raises(StorageError, match="is of "):
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

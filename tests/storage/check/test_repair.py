"""Repair of logs: every damage is mended or reported, and every removed byte is in the backup."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch
from ottla.storage.check.directory import commonest
from ottla.storage.check.repair_log import empty_batch
from ottla.storage.format import checkpoint
from ottla.storage.io.files import DiskFiles
from ottla.storage.io.undo_journal import put_back, read_manifest
from ottla.storage.log_dir.directory import META_PROPERTIES
from ottla_testing.each import taken
from ottla_testing.storage.repairing import (
    DIRECTORIES,
    RELEASES,
    Unsynced,
    change,
    does,
    dry,
    entries,
    facts,
    log_of,
    repair,
    tree,
    wrong,
)

# -- any damage


def is_identity(left: list[str], damaged: str) -> bool:
    """Returns whether the only finding left is the topic id of a partition: of two different ids, either may be
    wrong."""
    topic = damaged.rpartition("-")[0]
    return damaged.endswith("/partition.metadata") and [name.rpartition("-")[0] for name in left] == [topic]


@given(data=st.data())
def test_repair_of_any_damage_can_be_undone(data: st.DataObject, sound: Path, again: Callable[[Path], Path]) -> None:
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
    planned = dry(root, skip=skip, gaps=gaps)
    assert tree(root) == damaged
    steps, place = repair(root, skip=skip, gaps=gaps)
    assert [step.does for step in planned] == [step.does for step in steps]
    left = [step.finding.file for step in steps if not step.mends]
    assert [finding.file for finding in wrong(root, gaps=gaps)] == left, (name, how, at, byte)
    assert left in ([], [META_PROPERTIES]) if name == META_PROPERTIES else left == [] or is_identity(left, name)
    assert [step.finding.file for step in repair(root, gaps=gaps)[0]] == left
    for folder in {Path(name).parts[0] for name in before if name.endswith(".log")}:
        found, true = entries(root, folder), entries(source, folder)
        if name.startswith(folder + "/") and name.endswith(".log"):
            # The offset of the last batch lies outside its CRC, and may be too high.
            assert len(set(found) - set(true)) <= (how in ("flip", "zeros"))
            assert not skip or how != "flip" or len(true) - len(found) <= 2
        else:
            assert found == true
    if place.exists():
        put_back(Unsynced(), str(root), str(place))
    assert tree(root) == damaged


def test_of_two_topic_ids_the_order_of_partitions_does_not_decide() -> None:
    one, other = bytes(15) + b"1", bytes(15) + b"2"
    assert commonest(Counter([one, other])) == commonest(Counter([other, one]))
    assert commonest(Counter([one, other, one])) == one == commonest(Counter([other, one, one]))


@pytest.mark.parametrize("name", [*RELEASES, *(f"{release}-killed" for release in RELEASES)])
def test_repair_of_kafkas_directory_does_nothing(name: str, again: Callable[[Path], Path]) -> None:
    root = again(DIRECTORIES / name)
    before = tree(root)
    steps, place = repair(root, gaps=True)
    assert (steps, place.exists(), tree(root)) == ([], False, before)


# -- the log


def test_skip_replaces_a_damaged_range_with_an_empty_batch(copied: Path) -> None:
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


def test_without_skip_the_log_ends_at_the_damage_and_lost_batches_are_reported(copied: Path) -> None:
    path = log_of(copied, 1)
    was, later = facts(path), [path.name for path in sorted((copied / "orders-0").glob("*.log"))[2:]]
    change(path, was[2].position + 30, b"\xff")
    count = len(entries(copied, "orders-0"))
    kept = len(facts(log_of(copied, 0))) + 2
    steps, place = repair(copied)
    planned = does(steps)
    cut = was[-1].position + was[-1].size_bytes - was[2].position
    assert planned[0] == f"cut {cut} bytes and remove {len(later)} segments after it"
    assert "remove them as well, as a recovery does; --skip keeps them" in planned
    assert [s.finding.what for s in steps if s.finding.what.startswith(f"{count - kept} sound")] != []
    assert [p.name for p in sorted((copied / "orders-0").glob("*.log"))] == [log_of(copied, 0).name, path.name]
    assert [name for name, _ in sizes(place, later)] == later[::-1]
    assert all((place / f"orders-0/{name}.0-{size}").stat().st_size == size for name, size in sizes(place, later))
    assert path.stat().st_size == was[2].position
    ends = checkpoint.read_offsets(DiskFiles(), str(copied / checkpoint.RECOVERY_POINT))
    assert ends["orders", 0] == was[2].header.base_offset
    assert wrong(copied) == []


def sizes(place: Path, names: list[str]) -> list[tuple[str, int]]:
    """Returns the size of each whole file in a backup."""
    lines = read_manifest(DiskFiles(), str(place))
    return [(Path(line["file"]).name, line["size"]) for line in lines[1:] if Path(line.get("file", "")).name in names]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("number", [0, 1, 4])
def test_damaged_offset_between_its_neighbours_is_corrected(
    copied: Path, sound: Path, skip: bool, number: int, stride: int
) -> None:
    path = log_of(copied, 1)
    one = facts(path)[number]
    base = one.header.base_offset
    for offset in taken((0, base - 1, base + 1, base + 4, 1 << 40, 1 << 62), stride):
        change(path, one.position, offset.to_bytes(8, "big"))
        steps, _ = repair(copied, skip=skip)
        assert does(steps)[0].split(",")[0] == f"give it the offset {one.header.base_offset}"
        assert path.read_bytes() == log_of(sound, 1).read_bytes()
        assert wrong(copied) == []


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("number", [0, 3])
def test_damaged_leader_epoch_is_corrected(copied: Path, sound: Path, skip: bool, number: int) -> None:
    path = log_of(copied, 1)
    change(path, facts(path)[number].position + 12, b"\0\1\0\0")
    steps, _ = repair(copied, skip=skip)
    assert does(steps)[0] == "give it the leader epoch 0 of its neighbours"
    assert path.read_bytes() == log_of(sound, 1).read_bytes()
    assert wrong(copied) == []


def test_segment_is_cut_where_the_next_one_begins(copied: Path, sound: Path) -> None:
    first, second = log_of(copied, 0), log_of(copied, 1)
    was = first.read_bytes()
    first.write_bytes(was + second.read_bytes()[: facts(second)[2].position])
    steps, _ = repair(copied)
    assert does(steps)[0].startswith("cut ")
    assert does(steps)[0].endswith(" bytes: the next segment has these offsets")
    assert first.read_bytes() == was
    assert entries(copied, "orders-0") == entries(sound, "orders-0")
    assert wrong(copied) == []


def test_empty_segment_within_another_is_removed(copied: Path, sound: Path) -> None:
    (copied / "orders-0" / f"{7:020d}.log").touch()
    steps, _ = repair(copied)
    assert does(steps)[0] == "remove it: the segment before it has these offsets"
    assert entries(copied, "orders-0") == entries(sound, "orders-0")
    assert wrong(copied) == []


def test_missing_segment_ends_the_log_or_becomes_empty_batches(copied: Path, sound: Path, tmp_path: Path) -> None:
    gone, before = log_of(copied, 1), log_of(copied, 0)
    first, later_base = facts(gone)[0].header.base_offset, facts(log_of(copied, 2))[0].header.base_offset
    gone.unlink()
    other = Path(shutil.copytree(copied, tmp_path / "other"))
    steps, _ = repair(copied)
    assert does(steps)[0] == f"end the log at {first}: offsets {first}-{later_base - 1} are missing"
    assert [path.name for path in (copied / "orders-0").glob("*.log")] == [before.name]
    assert wrong(copied) == []
    repair(other, skip=True)
    assert facts(other / "orders-0" / before.name)[-1].last_offset == later_base - 1
    lost = {entry[0] for entry in entries(sound, "orders-0")} - {entry[0] for entry in entries(other, "orders-0")}
    assert lost == {offset for offset in lost if first <= offset < later_base} != set()
    assert wrong(other) == []


def test_missing_offsets_inside_a_segment_remove_no_records(copied: Path) -> None:
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
def test_sound_entries_are_found_after_any_garbage(
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


def test_empty_batch_has_a_valid_header_and_no_records(copied: Path) -> None:
    made = empty_batch(7, 20)
    header = batch.read_header(made)
    assert batch.crc_matches(made, 0, header)
    assert (header.base_offset, header.last_offset, header.record_count, list(batch.records(made))) == (7, 20, 0, [])

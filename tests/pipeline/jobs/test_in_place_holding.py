"""Holding a data directory: exclusive, completes interrupted swaps, and changes nothing when only looking."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.in_place.directory_hold import COMPACTED, UPGRADED, held, own_suffix, put_in_place, sweep
from ottla.pipeline.readers.files.catalog import Catalog
from ottla.storage import restore
from ottla.storage.check.directory import Verification
from ottla.storage.check.repair import Repair
from ottla.storage.compaction.rewrite import Limits, Source, Target, rewrite
from ottla.storage.config import LogConfig
from ottla.storage.format.file_names import RESTORE
from ottla.storage.io.files import DiskFiles
from ottla.storage.io.undo_journal import Backup
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN, LOCK, DataDirectory
from ottla_testing.each import each
from ottla_testing.storage.old_messages import lay_down, piece, rows_of
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

ROOT, FOLDER = "/data", "/data/orders-0"
OLD = [(0, [piece(1, 0, 0, (1, 1, 1, 1, 1), (5,))]), (6, [piece(0, 0, 6, (1,), (0,))])]


def laid_down(*, closed: bool = True) -> tuple[SimulatedFiles, list]:
    files = SimulatedFiles()
    rows = lay_down(files, OLD, FOLDER)
    if closed:
        files.open(f"{ROOT}/{CLEAN_SHUTDOWN}", create=True).close()
    files.sync_directory(FOLDER)
    files.sync_directory(ROOT)
    files.restart()
    return files, rows


def replace_first(files: SimulatedFiles) -> None:
    """Replaces the first segment by three of v2."""
    suffix = own_suffix(UPGRADED)
    source = Source(f"{FOLDER}/{0:020d}.log", files.size(f"{FOLDER}/{0:020d}.log"))
    made = rewrite(files, [source], Target(FOLDER, 0, 0, end_offset=6, limits=Limits(index_bytes=36), suffix=suffix))
    size_bytes = sum(output.size_bytes for output in made)
    put_in_place(files, FOLDER, [output.base_offset for output in made], [0], suffix, size_bytes)


def test_held_directory_is_exclusive(tmp_path: Path):
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=0)
    for looking in (False, True):
        with (
            pytest.raises(ReadError, match=f"^{tmp_path} is in use by a broker, or by another job"),
            held(tmp_path, looking=looking),
        ):
            pass
    directory.close()
    with held(tmp_path) as root:
        assert root.partitions == ()
        with pytest.raises(ReadError, match="is in use"), held(tmp_path):
            pass
    with held(tmp_path):
        pass


def test_held_refuses_invalid_or_unclean_directory(tmp_path: Path):
    with pytest.raises(ReadError, match=r"cannot read .*/nowhere: No such file"), held(tmp_path / "nowhere"):
        pass
    with pytest.raises(ReadError, match="is no data directory"), held(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / f"{0:020d}.log").touch()
    with (
        pytest.raises(ReadError, match=f"is the folder of a partition: name its data directory, {tmp_path}$"),
        held(tmp_path / "a-0"),
    ):
        pass
    with (
        pytest.raises(ReadError, match=r"was not closed cleanly: start its broker.* and run this again$"),
        held(tmp_path),
    ):
        pass


def test_held_looking_changes_nothing_and_hold_completes_swap():
    files, rows = laid_down()
    step = 0
    while True:
        files, rows = laid_down()
        files.fail_at, files.killing = step, True
        try:
            with held(ROOT, files=files) as root:
                replace_first(files)
            break
        except Killed:
            files.restart()
        names = files.list(FOLDER)
        with held(ROOT, files=files, looking=True) as root:
            assert root.unfinished == ((FOLDER,) if any(not name.endswith(("log", "index")) for name in names) else ())
        assert files.log == [] and files.locked == set()
        with held(ROOT, files=files) as root:
            (partition,) = root.partitions
            assert rows_of(files, FOLDER) == rows and partition.segments[0].base_offset == 0
            assert all(name.endswith((".log", "index")) for name in files.list(FOLDER))
        step += 1
    assert step > 25


@each("seed", range(40))
def test_held_power_loss_loses_nothing(seed: int):
    rng = random.Random(seed)
    files, rows = laid_down()
    files.fail_at, files.killing = rng.randrange(40), True
    try:
        with held(ROOT, files=files):
            replace_first(files)
    except Killed:
        pass
    files.crash(rng)
    with held(ROOT, files=files):
        assert rows_of(files, FOLDER) == rows


def test_sweep_removes_only_files_of_job():
    files, rows = laid_down()
    for name in ("00000000000000000000.log.0a.upgraded", "00000000000000000000.log.0b.compacted", "kept.upgraded.not"):
        files.open(f"{FOLDER}/{name}", create=True).close()
    before = len(files.list(FOLDER))
    sweep(files, FOLDER, UPGRADED)
    assert len(files.list(FOLDER)) == before - 1
    sweep(files, FOLDER, COMPACTED)
    assert f"{FOLDER}/kept.upgraded.not" in files.contents and len(files.list(FOLDER)) == before - 2
    assert rows_of(files, FOLDER) == rows and LOCK not in files.list(ROOT)


def test_open_and_repair_remove_leftover_files(tmp_path: Path):
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=0)
    directory.open_partition("a", 0, config=LogConfig(), now_ms=0)
    directory.close()
    left = tmp_path / "a-0" / f"{0:020d}.log{own_suffix(UPGRADED)}"
    left.write_bytes(b"half")
    (found,) = Verification(str(tmp_path)).findings()
    assert not found.wrong and found.what.startswith("of a job that did not end")
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=0)
    directory.open_partition("a", 0, config=LogConfig(), now_ms=0)
    directory.close()
    assert not left.exists() and list(Verification(str(tmp_path)).findings()) == []
    left.write_bytes(b"half")
    steps = Repair(DiskFiles(), str(tmp_path), Backup(DiskFiles(), f"{tmp_path}-backup", str(tmp_path))).run()
    assert all(step.mends for step in steps) and not left.exists()


def test_put_in_place_keeps_mode_and_owner(tmp_path: Path):
    """When root runs the test, the owner is another user, as for a job that root runs on a broker's directory."""
    files, folder = DiskFiles(), str(tmp_path / "orders-0")
    owner = 12345 if os.geteuid() == 0 else os.geteuid()
    files.make_directory(folder)
    for base, pieces in OLD:
        (tmp_path / "orders-0" / f"{base:020d}.log").write_bytes(b"".join(part.data for part in pieces))
        (tmp_path / "orders-0" / f"{base:020d}.index").touch()
        (tmp_path / "orders-0" / f"{base:020d}.timeindex").touch()
    for path in (tmp_path / "orders-0").iterdir():
        path.chmod(0o664)
        os.chown(path, owner, -1)
    suffix = own_suffix(UPGRADED)
    log = f"{folder}/{0:020d}.log"
    made = rewrite(
        files,
        [Source(log, files.size(log))],
        Target(folder, 0, 0, end_offset=6, limits=Limits(index_bytes=36), suffix=suffix),
    )
    before = os.stat(log).st_ino
    size_bytes = sum(output.size_bytes for output in made)
    put_in_place(files, folder, [output.base_offset for output in made], [0], suffix, size_bytes)
    found = [path.stat() for path in (tmp_path / "orders-0").iterdir() if path.suffix != ".snapshot"]
    assert len(made) > 1 and os.stat(log).st_ino != before and len(found) > 6
    assert {(stat.S_IMODE(one.st_mode), one.st_uid) for one in found} == {(0o664, owner)}


def test_directory_of_which_a_restore_replaced_a_part_is_refused(tmp_path: Path):
    directory = DataDirectory.open(DiskFiles(), tmp_path, node_id=0)
    directory.open_partition("t", 0, config=LogConfig(), now_ms=0)
    directory.close()
    staged = tmp_path / RESTORE
    (staged / restore.OLD / "u-0").mkdir(parents=True)
    assert list(Catalog([str(tmp_path)]).refresh())
    (staged / restore.PLAN).write_text("{}")
    line = "an unfinished restore of a snapshot; the next start of the broker completes or removes it"
    with pytest.raises(ReadError, match=line):
        Catalog([str(tmp_path)]).refresh()
    with pytest.raises(ReadError, match=line), held(tmp_path):
        pass

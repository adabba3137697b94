"""Restores of data directories that are interrupted, or lack disk space: nothing is lost, and the error names the
cause."""

from __future__ import annotations

import contextlib
import errno
import json
import random
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla.broker.admin_api import operations, snapshots
from ottla.broker.admin_api.operations import OperationError
from ottla.storage import restore
from ottla.storage.format.file_names import CLEAN_SHUTDOWN, RESTORE
from ottla.tools.disk.dump import dump
from ottla.tools.disk.formats import formats
from ottla.tools.disk.import_dir import import_dir
from ottla.tools.disk.repair import repair
from ottla.tools.disk.verify import verify
from ottla_testing import SUPPORT
from ottla_testing.broker.restore_child import BEFORE, SINCE, change, contents, fill
from ottla_testing.broker.serving import serving
from ottla_testing.patience import PATIENCE_S
from ottla_testing.storage.failing_files import CHANGES, FailingFiles

CHILD = SUPPORT / "broker" / "restore_child.py"
KEPT = {"t": BEFORE, "early": []}
CHANGED = {"t": sorted([*BEFORE, *SINCE]), "late": []}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def folders_of(tmp_path: Path, count: int) -> list[Path]:
    return [tmp_path / f"data-{number}" for number in range(count)]


def found(folders: list[Path]) -> dict[str, list[bytes]]:
    """Returns the records that a new start finds, and checks that no files of the restore are left."""
    with Embedded(data_dir=folders) as broker:
        assert not [folder for folder in folders if (folder / RESTORE).exists()]
        return contents(broker)


def ended(folders: list[Path], last: int, number: int = signal.SIGKILL) -> tuple[int, str]:
    command = [sys.executable, str(CHILD), str(int(number)), str(last), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout


@pytest.mark.process
def test_restore_killed_at_any_change_of_a_file_leaves_one_whole_state(
    tmp_path: Path, temporary: Path, scaled: Callable[[int], int]
) -> None:
    count = 2
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    code, out = ended(folders_of(tmp_path / "whole", count), 0)
    assert code == 0 and found(folders_of(tmp_path / "whole", count)) == KEPT
    changes = int(out)
    assert changes > 40
    outcomes = []
    steps = [changes // 4, 3 * changes // 4 + 1, *(rng.randrange(1, changes) for _ in range(scaled(2) - 2))]
    for run, step in enumerate(steps):  # of many some are alike
        number = rng.choice([signal.SIGKILL, signal.SIGTERM])
        folders = folders_of(tmp_path / str(run), count)
        assert ended(folders, step, number) == (-number, "")
        state = found(folders)
        assert state in (KEPT, CHANGED), (step, number, state)
        outcomes.append(state)
    assert outcomes[0] == CHANGED


@pytest.mark.process
def test_stop_while_a_restore_is_under_way_ends_it_whole(tmp_path: Path, temporary: Path) -> None:
    flags = ("--listen", "127.0.0.1:0", "--data-dir", "data", "--control", "127.0.0.1:0")
    with serving(tmp_path, *flags, listeners=2) as (process, lines):
        url = lines[1].removeprefix("ottla control on ") + "/v1"

        def send_request(path: str, body: object = {}) -> None:
            request = urllib.request.Request(url + path, json.dumps(body).encode(), method="POST")
            urllib.request.urlopen(request).close()

        send_request("/topics", {"name": "kept"})
        send_request("/snapshots", {"name": "s"})
        send_request("/topics", {"name": "late"})

        def restoring() -> None:
            with contextlib.suppress(OSError):  # stopped before or after
                send_request("/snapshots/s/restore")

        thread = threading.Thread(target=restoring)
        thread.start()
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=PATIENCE_S)
        thread.join()
        assert process.returncode == 0, error
    assert list(temporary.iterdir()) == []
    assert (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
    assert found([tmp_path / "data"]) in ({"kept": []}, {"kept": [], "late": []})


def started(folders: list[Path]) -> tuple[Embedded, FailingFiles]:
    broker = Embedded(data_dir=folders)
    broker._thread._files = files = FailingFiles()
    return broker, files


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_restore_whose_disk_fails_during_the_copy_leaves_the_broker_unchanged(
    tmp_path: Path, temporary: Path, code: int, scaled: Callable[[int], int]
) -> None:
    folders = folders_of(tmp_path, 2)
    broker, files = started(folders)
    with broker:
        fill(broker)
        snapshot = broker.snapshot()
        change(broker)
        tried: list[tuple[str, str]] = []
        files.fails = lambda operation, path: tried.append((operation, path)) or 0 if RESTORE in path else 0
        broker.restore(snapshot)
        change(broker)
        copying = [step for step in tried[: 1 + _decision(tried)] if step[0] in CHANGES]
        assert len(copying) > 40
        for operation, path in random.sample(copying, min(len(copying), scaled(12))):
            files.fail_once(Path(path).parent, code, operation, Path(path).name)
            with pytest.raises(OperationError, match=r"the snapshot could not be restored.*Errno"):
                broker.restore(snapshot)
            files.repair()
            assert contents(broker) == CHANGED
            assert not [folder for folder in folders if (folder / RESTORE).exists()]
        broker.restore(snapshot)
        assert contents(broker) == KEPT
    assert found(folders) == KEPT


def _decision(tried: list[tuple[str, str]]) -> int:
    return next(number for number, (_, path) in enumerate(tried) if path.endswith(restore.DECISION + ".tmp"))


def test_restore_whose_disk_fails_after_the_decision_is_completed_later(tmp_path: Path, temporary: Path) -> None:
    folders = folders_of(tmp_path, 2)
    broker, files = started(folders)
    with broker:
        fill(broker)
        first = broker.snapshot()
        change(broker)
        second = broker.snapshot()
        files.fail_once(folders[1] / RESTORE, errno.EIO, "replace", nth=2)
        with pytest.raises(OperationError, match=r"could not be restored: .*a restore cannot be finished"):
            broker.restore(first)
        with pytest.raises(OperationError, match="a snapshot could not be restored"):
            broker.topics()
        files.break_down(folders[1], errno.EIO, {"replace"})
        with pytest.raises(OperationError, match="an earlier restore could not be completed"):
            broker.restore(second)
        files.repair()
        broker.restore(second)
        assert contents(broker) == CHANGED
        files.fail_once(folders[1] / RESTORE, errno.EIO, "replace", nth=2)
        with pytest.raises(OperationError):
            broker.restore(first)
    assert found(folders) == KEPT


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path, int], None]]:
    """Makes a folder's file system report this number of free bytes."""
    free = snapshots.free_bytes

    def set_free(folder: Path, left: int) -> None:
        monkeypatch.setattr(
            snapshots, "free_bytes", lambda path: left if Path(path).is_relative_to(folder) else free(path)
        )

    yield set_free


def test_restore_without_disk_space_names_the_needed_bytes_and_changes_nothing(
    tmp_path: Path, temporary: Path, little_room: Callable[[Path, int], None]
) -> None:
    folders = folders_of(tmp_path, 2)
    broker, files = started(folders)
    with broker:
        fill(broker)
        snapshot = broker.snapshot()
        change(broker)
        little_room(folders[0], 5000)
        changed: list[str] = []
        files.fails = lambda operation, path: changed.append(path) or 0 if RESTORE in path else 0
        line = r"continues unchanged: no room for the copy: .*data-0 needs [0-9]+ bytes .*, which has 5000 free"
        with pytest.raises(OperationError, match=line):
            broker.restore(snapshot)
        assert changed == [] and contents(broker) == CHANGED


def test_disk_space_is_summed_over_directories_of_one_file_system(
    tmp_path: Path, temporary: Path, little_room: Callable[[Path, int], None]
) -> None:
    with Embedded(data_dir=folders_of(tmp_path, 2)) as broker:
        fill(broker)
        snapshot = broker.snapshot()
        with pytest.raises(OperationError) as refused:
            little_room(tmp_path, 0)
            broker.restore(snapshot)
        (one,) = re.findall(r"needs ([0-9]+)", str(refused.value))
        little_room(tmp_path, int(one))
        with pytest.raises(OperationError, match=r"data-1 needs"):
            broker.restore(snapshot)


def test_snapshot_without_disk_space_leaves_no_files(
    tmp_path: Path, temporary: Path, little_room: Callable[[Path, int], None]
) -> None:
    broker, files = started(folders_of(tmp_path, 1))
    with broker:
        fill(broker)
        before = set(temporary.iterdir())
        little_room(temporary, 5000)
        with pytest.raises(
            OperationError, match=r"no snapshot could be taken: no room for the copy: .*temporary needs"
        ):
            broker.snapshot()
        little_room(temporary, 1 << 40)
        for nth in (0, 3, 9):
            files.fail_once(temporary, errno.ENOSPC, "write", nth=nth)
            with pytest.raises(OperationError, match=r"no snapshot could be taken: .*No space left on device"):
                broker.snapshot()
            assert set(temporary.iterdir()) == before
        files.repair()
        broker.send("t", "x")
        assert broker.snapshot() is not None


def test_reset_without_a_kept_start_names_the_reason(
    tmp_path: Path, temporary: Path, little_room: Callable[[Path, int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    little_room(temporary, 0)
    with Embedded(data_dir=tmp_path / "data") as broker:
        broker.create_topic("t")
        with pytest.raises(
            OperationError, match="at the start was not kept, no reset is possible: no snapshot could be taken: no room"
        ):
            broker.reset()
        assert [topic.name for topic in broker.topics()] == ["t"]
    assert "a reset is not possible" in capfd.readouterr().err
    assert operations.START_BYTES > 0


def _divided(folder: Path, temporary: Path) -> None:
    """Returns a directory in which an interrupted restore has replaced a part of the entries."""
    broker, files = started([folder])
    with broker:
        fill(broker)
        snapshot = broker.snapshot()
        change(broker)
        files.fail_once(folder, errno.EIO, "replace", nth=12)
        with pytest.raises(OperationError):
            broker.restore(snapshot)


def test_tools_name_a_directory_that_is_partly_replaced(
    tmp_path: Path, temporary: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    _divided(folder, temporary)
    capfd.readouterr()
    tools: list[Callable[[], int]] = [
        lambda: verify([str(folder)]),
        lambda: formats([str(folder)]),
        lambda: repair([str(folder)]),
        lambda: import_dir([str(folder), "--data-dir", str(tmp_path / "other")]),
    ]
    for tool in tools:
        assert tool() != 0
        assert "an unfinished restore of a snapshot; the next start of the broker" in capfd.readouterr().err
    assert dump([str(folder / RESTORE / restore.PLAN)]) == 0
    assert '\\"names\\": [' in capfd.readouterr().out
    assert found([folder]) == KEPT
    assert verify([str(folder)]) == 0


def test_verify_names_copies_that_were_not_decided(
    tmp_path: Path, temporary: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    with Embedded(data_dir=folder) as broker:
        fill(broker)
    (folder / RESTORE / restore.NEW / "t-0").mkdir(parents=True)
    (folder / RESTORE / restore.NEW / "t-0" / "00000000000000000000.log").write_bytes(b"half")
    assert verify([str(folder)]) == 0
    assert "copies of a restore of a snapshot that was not decided" in capfd.readouterr().out
    assert found([folder]) == KEPT


def test_import_completes_an_interrupted_restore_of_its_target(
    tmp_path: Path, temporary: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, source = tmp_path / "data", tmp_path / "source"
    _divided(folder, temporary)
    with Embedded(data_dir=source) as broker:
        broker.send("added", "x")
    assert import_dir([str(source), "--data-dir", str(folder)]) == 0, capfd.readouterr()
    assert found([folder]) == {**KEPT, "added": [b"x"]}


def test_start_without_the_disk_of_a_directory_that_is_partly_replaced_takes_it_offline(
    tmp_path: Path, temporary: Path
) -> None:
    """Like any directory whose disk fails (KIP-112); the restore is completed when the disk works."""
    folders = folders_of(tmp_path, 2)
    broker, files = started(folders)
    with broker:
        fill(broker)
        snapshot = broker.snapshot()
        change(broker)
        files.fail_once(folders[1] / RESTORE, errno.EIO, "replace", nth=2)
        with pytest.raises(OperationError):
            broker.restore(snapshot)
    broker, files = started(folders)
    files.break_down(folders[1], errno.EIO, {"replace"})
    with broker:
        offline = [one.offline for topic in broker.topics() for one in topic.partitions if one.offline is not None]
        assert {topic.name for topic in broker.topics()} == set(KEPT) and offline
        assert all("a restore cannot be finished: [Errno 5]" in line for line in offline)
    assert found(folders) == KEPT

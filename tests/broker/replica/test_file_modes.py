"""Permissions of written files: private to the owner, unless OTTLA_UMASK differs or the file replaces another."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla.storage.format.file_names import META_PROPERTIES
from ottla.storage.io import permissions
from ottla.storage.io.files import DiskFiles, SharedFiles, write_atomically
from ottla.tools.disk.import_dir import import_dir
from ottla.tools.disk.repair import repair
from ottla.tools.disk.verify import verify
from ottla_testing.broker.serving import serving
from ottla_testing.patience import PATIENCE_S

ROOT = os.geteuid() == 0
OTHER = 12345 if ROOT else os.geteuid()


@pytest.fixture(autouse=True)
def ordinary_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def modes_of(*paths: Path) -> dict[str, set[str]]:
    """The modes of files and folders, including these paths."""
    found: dict[str, set[str]] = {"files": set(), "folders": set()}
    for path in [*paths, *(below for one in paths if one.is_dir() for below in one.rglob("*"))]:
        kind = "folders" if path.is_dir() else "files"
        found[kind].add(f"{stat.S_IMODE(path.stat().st_mode):o}")
    return found


def use(broker: Embedded) -> None:
    """Makes the broker write all kinds of files: segments, indexes, checkpoints, several folders."""
    broker.create_topic("t", partitions=2, configs={"segment.ms": 1000})
    for number in range(3):
        broker.send_many("t", [(str(number), bytes(100)), ("k", str(number))])
        broker.clock.advance(2000)
    broker.create_topic("gone")
    broker.delete_topic("gone")


@pytest.mark.parametrize(
    ("umask", "files", "folders"), [(None, "600", "700"), ("027", "640", "750"), ("0022", "644", "755")]
)
def test_broker_files_have_the_modes_of_the_umask(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, umask: str | None, files: str, folders: str
) -> None:
    if umask is not None:
        monkeypatch.setenv(permissions.VARIABLE, umask)
    data, records = [tmp_path / "new" / "one", tmp_path / "new" / "two"], tmp_path / "recordings"
    records.mkdir()
    for name in ("r.jsonl", "r.pcapng"):
        with Embedded(data_dir=data, record=records / name) as broker:
            if not broker.topics():
                use(broker)
            kept = broker.snapshot()
            broker.send("t", "more")
            broker.restore(kept)
            assert modes_of(*data) == {"files": {files}, "folders": {folders}}
            for folder in temporary.iterdir():
                assert modes_of(folder)["folders"] <= {"700", folders}
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (data[0] / META_PROPERTIES).exists()
    assert modes_of(*data, data[0].parent) == {"files": {files}, "folders": {folders}}
    assert modes_of(*records.iterdir())["files"] == {files}


@pytest.mark.process
def test_serve_applies_the_given_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's own umask would remove requested permissions."""
    monkeypatch.setenv(permissions.VARIABLE, "002")
    flags = ("--listen", "127.0.0.1:0", "--data-dir", "data", "--control", "127.0.0.1:0", "--record", "r.jsonl")
    with serving(tmp_path, *flags, "--override", "log.cleaner.backoff.ms=10", listeners=2) as (process, lines):
        url = lines[1].removeprefix("ottla control on ") + "/v1"
        body = b'{"name": "t", "configs": {"cleanup.policy": "compact", "segment.ms": "100"}}'
        urllib.request.urlopen(urllib.request.Request(url + "/topics", body, method="POST")).close()
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, error
    assert modes_of(tmp_path / "data") == {"files": {"664"}, "folders": {"775"}}
    assert modes_of(tmp_path / "r.jsonl")["files"] == {"664"}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("8", "OTTLA_UMASK is '8', but must be an octal number such as 077 or 022"),
        ("rwx", "OTTLA_UMASK is 'rwx', but must be an octal number such as 077 or 022"),
        ("0377", "OTTLA_UMASK is 0377, which takes permissions away from the owner; the most is 077"),
    ],
)
def test_invalid_umask_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, line: str) -> None:
    monkeypatch.setenv(permissions.VARIABLE, value)
    program = "import sys; from ottla.tools.main import main; sys.exit(main(['verify', 'x']))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"ottla: {line}\n")
    with pytest.raises(ValueError, match="OTTLA_UMASK"):
        Embedded()


def test_existing_directory_keeps_its_modes_and_new_files_are_private(tmp_path: Path, temporary: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    with Embedded(data_dir=data) as broker:
        use(broker)
    for path in [data, *data.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.chown(path, OTHER, -1)
    was = {path for path in data.rglob("*") if path.suffix in (".log", ".properties") or "checkpoint" in path.name}
    with Embedded(data_dir=data) as broker:
        broker.send("t", "x", partition=0)
        broker.create_topic("new")
        snapshot = broker.snapshot()
        broker.send("new", "x")
        broker.restore(snapshot)
    for path in was:
        if path.exists():
            assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) == (0o644, OTHER), path
    assert modes_of(data / "new-0") == {"files": {"600"}, "folders": {"700"}}
    assert {path.stat().st_uid for path in data.rglob("*")} == {OTHER}
    assert stat.S_IMODE(data.stat().st_mode) == 0o755


def test_replaced_files_keep_mode_and_owner(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "checkpoint"
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.chown(path, OTHER, -1)
    write_atomically(DiskFiles(), str(path), b"new")
    found = path.stat()
    assert (path.read_bytes(), stat.S_IMODE(found.st_mode), found.st_uid) == (b"new", 0o640, OTHER)


def test_segments_that_a_cleaner_replaced_keep_mode_and_owner(tmp_path: Path) -> None:
    configs = {"cleanup.policy": "compact", "segment.ms": 1000, "min.cleanable.dirty.ratio": 0.01}
    with Embedded(data_dir=tmp_path / "data") as broker:
        broker.clock.freeze()
        broker.create_topic("t", configs=configs)
        for number in range(6):
            broker.send("t", str(number), key="k")
            broker.clock.advance(100)
        log = tmp_path / "data" / "t-0" / "00000000000000000000.log"
        log.chmod(0o644)
        os.chown(log, OTHER, -1)
        inode = log.stat().st_ino
        broker.clock.advance(2000)
        broker.send("t", "last", key="other")
        broker.clock.advance(60_000)
        assert [record.value for record in broker.records("t")] == [b"5", b"last"]
    found = log.stat()
    assert (found.st_ino != inode, stat.S_IMODE(found.st_mode), found.st_uid) == (True, 0o644, OTHER)


def test_backup_of_a_repair_is_private_and_repaired_files_keep_their_mode(tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "backup"
    with Embedded(data_dir=data) as broker:
        use(broker)
    log = sorted((data / "t-0").glob("*.log"))[0]
    log.chmod(0o644)
    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 1
    log.write_bytes(damaged)
    assert verify([str(data)]) == 1
    assert repair([str(data), "--apply", "--backup", str(place)]) == 0
    assert verify([str(data)]) == 0
    found = modes_of(place)
    assert found["folders"] == {"700"} and found["files"] <= {"600", "644"} and "600" in found["files"]
    assert stat.S_IMODE(log.stat().st_mode) == 0o644


def test_import_is_private(tmp_path: Path) -> None:
    source, data = tmp_path / "source", tmp_path / "data"
    for folder, topic in ((source, "added"), (data, "own")):
        with Embedded(data_dir=folder) as broker:
            broker.send(topic, "x")
    for path in source.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert import_dir([str(source), "--data-dir", str(data)]) == 0
    assert modes_of(data) == {"files": {"600"}, "folders": {"700"}}


def test_root_creates_files_of_the_folders_owner(tmp_path: Path) -> None:
    """Run by another user, the files have that user's ownership."""
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, OTHER, -1)
    files = DiskFiles()
    files.make_directory(str(data / "a" / "b"))
    files.open(str(data / "a" / "b" / "file"), create=True).close()
    files.lock(str(data / ".lock")).release()
    assert {path.stat().st_uid for path in data.rglob("*")} == {OTHER}


def test_export_has_the_modes_of_the_process_umask(tmp_path: Path) -> None:
    files = SharedFiles()
    files.make_directory(str(tmp_path / "lake" / "part"))
    files.open(str(tmp_path / "lake" / "part" / "file"), create=True).close()
    assert modes_of(tmp_path / "lake") == {"files": {"644"}, "folders": {"755"}}
    shutil.rmtree(tmp_path / "lake")


def test_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path, error in (("file", FileExistsError), ("file/below", NotADirectoryError)):
        with pytest.raises(error):
            DiskFiles().make_directory(str(tmp_path / path))

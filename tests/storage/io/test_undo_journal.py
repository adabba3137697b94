"""Laws of the undo journal and of the overlay, for any operations on them."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.errors import StorageError
from ottla.storage.io.copy_on_write import Overlay
from ottla.storage.io.files import Files
from ottla.storage.io.undo_journal import MANIFEST, Backup, SavingFiles, put_back, read_manifest
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

ROOT, BACKUP = "/disk/data", "/disk/kept"
NAMES = ("a", "b", "folder/c", "d")
Tree = dict[str, bytes]


class Operation(NamedTuple):
    """An operation: `name`, and where needed `other`, a position and bytes."""

    does: str
    name: str
    other: str
    at: int
    data: bytes


operations = st.lists(
    st.builds(
        Operation,
        st.sampled_from(["write", "write", "truncate", "remove", "replace", "create", "rewrite"]),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.integers(0, 40),
        st.binary(max_size=30),
    ),
    max_size=14,
)


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory(f"{ROOT}/folder")
    for number, name in enumerate(NAMES[:3]):
        file = files.open(f"{ROOT}/{name}", create=True)
        file.write(0, bytes([number + 1]) * (10 + number * 9))
        file.sync()
        file.close()
    for folder in ("/", "/disk", ROOT, f"{ROOT}/folder"):
        files.sync_directory(folder)
    files.restart()
    return files


def tree(files: SimulatedFiles) -> Tree:
    return {path: bytes(content.live) for path, content in files.contents.items() if path.startswith(ROOT)}


def do(files: Files, one: Operation) -> None:
    """Does one operation; nothing if the file does not exist."""
    path, other = f"{ROOT}/{one.name}", f"{ROOT}/{one.other}"
    with contextlib.suppress(FileNotFoundError):
        if one.does == "remove":
            files.remove(path)
        elif one.does == "replace":
            if path != other:
                files.replace(path, other)
        elif one.does == "rewrite":
            size = files.size(path)
            if isinstance(files, SavingFiles):
                middle = min(one.at, size)
                files.rewrite(path, [(0, middle), one.data, (min(middle + 5, size), size)])
        else:
            file = files.open(path, create=one.does == "create")
            try:
                if one.does == "truncate":
                    file.truncate(min(one.at, file.size()))
                else:
                    file.write(min(one.at, file.size()), one.data)
            finally:
                file.close()


def run(files: SimulatedFiles, todo: list[Operation]) -> None:
    saving = SavingFiles(files, ROOT, Backup(files, BACKUP, ROOT))
    for number, one in enumerate(todo):
        saving.why = f"operation {number}"
        do(saving, one)
    saving.settle()


@given(todo=operations)
def test_any_operations_can_be_undone(todo: list[Operation]) -> None:
    files = disk()
    before = tree(files)
    run(files, todo)
    if BACKUP in files.directories:
        put_back(files, ROOT, BACKUP)
        assert put_back(files, ROOT, BACKUP) == len(
            [line for line in read_manifest(files, BACKUP)[1:] if line["does"] not in ("ends", "undone")]
        )
    assert tree(files) == before


@given(todo=operations, data=st.data())
def test_any_operations_can_be_undone_after_a_power_loss(todo: list[Operation], data: st.DataObject) -> None:
    counting = disk()
    run(counting, todo)
    files = disk()
    before = tree(files)
    files.fail_at, files.killing = data.draw(st.integers(0, max(counting.steps - 1, 0))), True
    with contextlib.suppress(Killed):
        run(files, todo)
    if data.draw(st.booleans()):
        files.crash(data.draw(st.randoms(use_true_random=False)))
    files.restart()
    with contextlib.suppress(StorageError):  # nothing was changed before the first line of a manifest
        put_back(files, ROOT, BACKUP)
    assert tree(files) == before


@given(todo=operations)
def test_overlay_shows_changes_and_leaves_the_disk_unchanged(todo: list[Operation]) -> None:
    below, true = disk(), disk()
    before = tree(below)
    with Overlay(below) as overlay:
        for one in todo:
            for files in (overlay, true):
                do(files, one)
            names = {folder: true.list(folder) for folder in (ROOT, f"{ROOT}/folder")}
            assert {folder: overlay.list(folder) for folder in names} == names
        wanted = tree(true)
        assert {path: overlay.read_bytes(path) for path in wanted} == wanted
        for path, data in wanted.items():
            assert (overlay.size(path), overlay.exists(path)) == (len(data), True)
            file = overlay.open(path)
            middle = len(data) // 2
            assert bytes(file.read(middle, len(data) - middle)) == data[middle:]
            with pytest.raises(OSError, match="file ends early"):
                file.read(0, len(data) + 1)
            file.close()
    assert tree(below) == before
    assert below.steps == 0


def test_failed_backup_stops_further_changes() -> None:
    files = disk()
    before = tree(files)
    files.failing = lambda operation, path: operation == "sync" and path == f"{BACKUP}/{MANIFEST}"
    saving = SavingFiles(files, ROOT, Backup(files, BACKUP, ROOT))
    for _ in range(2):
        with pytest.raises(OSError, match=r"injected|ended this backup"):
            saving.remove(f"{ROOT}/a")
        files.failing = lambda operation, path: False
    assert tree(files) == before

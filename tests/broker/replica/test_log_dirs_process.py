"""Failing directories under a real process: its output and its exit code."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla_testing.broker.harness import (
    COMMAND,
    Client,
    create_topics,
    fetch,
    only,
    process,
    produce,
    records,
    running,
    values,
)
from ottla_testing.patience import PATIENCE_S

# The error of a read-only file system for a lock, a write or a change below a folder.
READ_ONLY = """
import errno, os, sys
from ottla.storage.io.files import DiskFiles
def refusing(name):
    original = getattr(DiskFiles, name)
    def operation(self, path, *more, **fields):
        if path.startswith({folder!r}):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return original(self, path, *more, **fields)
    setattr(DiskFiles, name, operation)
for name in ("lock", "replace", "remove", "remove_directory", "sync_directory"):
    refusing(name)
from ottla.tools.serve import serve
sys.exit(serve(sys.argv[2:]))
"""


@functools.cache
def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "--bind", folder, folder], capture_output=True).returncode:
            return False
        return subprocess.run(["umount", folder], capture_output=True).returncode == 0


@contextlib.contextmanager
def read_only(folder: Path, how: str) -> Iterator[list[str]]:
    """A folder without write permission; the command of a broker that sees it so."""
    if how == "pretended":
        yield [sys.executable, "-c", READ_ONLY.format(folder=str(folder)), "serve"]
    elif how == "mode":
        folder.chmod(0o500)
        for path in folder.iterdir():
            path.chmod(0o500 if path.is_dir() else 0o400)
        try:
            yield COMMAND
        finally:
            folder.chmod(0o700)
            for path in folder.iterdir():
                path.chmod(0o700 if path.is_dir() else 0o600)
    else:
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
            yield COMMAND
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


# Root ignores modes, and only root may mount.
WAYS = [
    "pretended",
    *(["mode"] if os.geteuid() else []),
    *(["mounted"] if shutil.which("mount") and can_mount() else []),
]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def written(*folders: Path) -> None:
    """Topic t with a partition for each folder, one record in each."""
    async with running(*folders) as broker:
        await broker.topic("t", len(folders))
        client = await broker.client()
        for index in range(len(folders)):
            assert only(await client.call(produce(records(b"v"), "t", index), 9)).error_code == 0


@pytest.mark.process
@pytest.mark.parametrize("how", WAYS)
async def test_read_only_directory_refuses_the_start_with_one_line(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    await written(folder)
    before = contents(folder)
    with read_only(folder, how) as command:
        arguments = ["--listen", "127.0.0.1:0", "--data-dir", str(folder)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S)
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("ottla serve: cannot use ") and str(folder) in line
    assert os.strerror(30) in line or how == "mode"
    assert contents(folder) == before
    async with running(folder) as broker:
        assert broker.state.logs.directories[0].was_clean


@pytest.mark.process
@pytest.mark.parametrize("how", WAYS)
async def test_read_only_directory_beside_another_loses_its_partitions_only(how: str, tmp_path: Path) -> None:
    folders = [tmp_path / "data", tmp_path / "other"]
    await written(*folders)
    other = [int(path.name[-1]) for path in folders[1].glob("t-*")]
    with read_only(folders[1], how) as command:
        code = command[2] if command is not COMMAND else None
        with process(tmp_path, "--data-dir", str(folders[1]), command=code) as broker:
            client = await Client.connect(broker.ports[0])
            for index in range(2):
                response = only(await client.call(fetch(("t", index, 0)), 11))
                assert (response.error_code, values(response.records)) == ((56, []) if index in other else (0, [b"v"]))
            client.close()
            assert broker.end() == 0
            (line,) = (line for line in broker.error.splitlines() if "[error" in line)
            assert "log directory unusable" in line and str(folders[1]) in line
    async with running(*folders) as started:
        assert [log_dir.was_clean for log_dir in started.state.logs.directories] == [True, True]


@pytest.mark.process
@pytest.mark.parametrize("which", ["the only one", "the metadata's", "another"])
async def test_directory_removed_under_a_running_broker(which: str, tmp_path: Path) -> None:
    """The broker ends by itself, with exit code 1 and a line with the reason, if it needs the directory."""
    folders = [tmp_path / "data", *([tmp_path / "other"] if which != "the only one" else [])]
    more = [argument for folder in folders[1:] for argument in ("--data-dir", str(folder))]
    with process(tmp_path, *more) as broker:
        client = await Client.connect(broker.ports[0])
        gone = folders[-1 if which == "another" else 0]
        shutil.rmtree(gone)
        (made,) = (await client.call(create_topics("t", partitions=4), 7)).topics
        if which == "another":
            assert made.error_code == 0
            for index in range(4):
                assert only(await client.call(produce(records(b"v"), "t", index), 9)).error_code == 0
            client.close()
            assert broker.end(signal.SIGTERM) == 0
        else:
            assert made.error_code == 56
            client.close()
            assert broker.process.wait(timeout=PATIENCE_S) == 1
        text = broker.error
        assert "Traceback" not in text
        failed = [line for line in text.splitlines() if "log directory failed" in line]
        assert len(failed) == 1 and str(gone) in failed[0]
        ended = [line for line in text.splitlines() if "fatal disk failure, broker stops" in line]
        assert len(ended) == (0 if which == "another" else 1)
    assert not (tmp_path / "data" / "t-0").exists() or which == "another"
    assert not (gone / "t-0").exists()

"""Unreadable pages of a mapping raise an error, where touching them would kill the process.

A file that was cut under its mapping simulates a disk that cannot read a page: the system reports both in the same way.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.storage.io import files
from ottla.storage.io.files import MAP_BYTES, DiskFile, DiskFiles

READ = """
import sys
from ottla.storage.io.files import DiskFile, DiskFiles
DiskFile._can_populate = sys.argv[2] == "True" and DiskFile._can_populate
file = DiskFiles().open(sys.argv[1])
file.read(0, 300_000)
with open(sys.argv[1], "r+b") as other:
    other.truncate(150_000)
for position, length in ((0, 100_000), (100_000, 100_000), (200_000, 70_000), (1, 99_999)):
    try:
        print(position, len(bytes(file.read(position, length))))
    except OSError as error:
        print(position, error.errno)
"""


def read(path: Path, populates: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", READ, str(path), str(populates)], capture_output=True, text=True)


def test_read_of_a_truncated_mapped_file_raises(tmp_path: Path):
    path = tmp_path / "f"
    path.write_bytes(bytes(300_000))
    if DiskFiles().open(str(path)).read(0, MAP_BYTES) and DiskFile._can_populate:  # a kernel with that check
        found = read(path, True)
        assert found.returncode == 0, found.stderr
        lines = [tuple(map(int, line.split())) for line in found.stdout.splitlines()]
        assert lines[0] == (0, 100_000) and lines[1] == (100_000, errno.EIO)
        assert lines[2:] == [(200_000, errno.EIO), (1, 99_999)]
        path.write_bytes(bytes(300_000))
    assert read(path, False).returncode < 0  # without the check


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOMEM, errno.EFAULT])
def test_madvise_errors_are_ignored(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An older kernel is tried once; errors other than those of the disk are ignored."""
    path = tmp_path / "f"
    path.write_bytes(b"x" * MAP_BYTES * 2)
    advised: list[tuple[int, int]] = []

    class Mapping(files.mmap.mmap):
        def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
            advised.append((start, length))
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.mmap, "mmap", Mapping)
    monkeypatch.setattr(DiskFile, "_can_populate", True)
    file = DiskFiles().open(str(path))
    if code == errno.EFAULT:
        with pytest.raises(OSError, match="cannot be read") as raised:
            file.read(0, MAP_BYTES)
        assert raised.value.errno == errno.EIO
    else:
        assert file.read(5000, MAP_BYTES) == file.read(5000, MAP_BYTES) == b"x" * MAP_BYTES
        assert advised == [(4096, MAP_BYTES + 904)] * (1 if code == errno.EINVAL else 2) or files.mmap.PAGESIZE != 4096
    file.close()

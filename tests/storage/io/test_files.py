"""The real disk with the `Files` interface: mappings, growth, atomic replacement; and a log on it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from ottla.storage.io.files import MAP_BYTES, DiskFiles, write_atomically
from ottla.storage.partition_log import LogConfig
from ottla_testing.storage.batches import make, open_log, values


def test_views_of_long_reads_stay_valid_after_appends_and_close(tmp_path: Path):
    file = DiskFiles().open(str(tmp_path / "f"), create=True)
    first = os.urandom(MAP_BYTES)
    file.write(0, first)
    view = file.read(0, MAP_BYTES)
    assert isinstance(view, memoryview) and view.readonly
    second = os.urandom(3 * MAP_BYTES)
    file.write(MAP_BYTES, second)
    assert bytes(file.read(10, 2 * MAP_BYTES)) == (first + second)[10 : 10 + 2 * MAP_BYTES]
    assert file.read(5, 7) == first[5:12]
    assert file.size() == 4 * MAP_BYTES
    file.close()
    file.close()
    assert bytes(view) == first


@pytest.mark.parametrize("length", [10, 2 * MAP_BYTES])
def test_read_after_the_end_raises(tmp_path: Path, length: int):
    file = DiskFiles().open(str(tmp_path / "f"), create=True)
    with pytest.raises(OSError, match="early"):
        file.read(0, length)
    file.write(0, bytes(length))
    assert len(file.read(0, length)) == length
    file.truncate(length - 1)
    with pytest.raises(OSError, match="1 bytes early"):
        file.read(0, length)


def test_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = DiskFiles().open(str(tmp_path / "f"), create=True)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, bytes(data[:7]), position))
    file.write(3, b"0123456789abcdefghij")
    assert file.read(3, 20) == b"0123456789abcdefghij"


def test_replaced_file_leaves_no_temporary_file(tmp_path: Path):
    files = DiskFiles()
    for sync in (True, False):
        for text in (b"longer than the next", b"short"):
            write_atomically(files, str(tmp_path / "f"), text, sync=sync)
            assert files.read_bytes(str(tmp_path / "f")) == text
    assert (
        files.list(str(tmp_path)) == ["f"]
        and files.exists(str(tmp_path / "f"))
        and files.size(str(tmp_path / "f")) == 5
    )


def test_log_on_a_real_disk(tmp_path: Path):
    files = DiskFiles()
    config = LogConfig(segment_bytes=600_000)
    log = open_log(files, tmp_path / "orders-0", config=config)
    expected = [bytes([number]) * 100_000 for number in range(20)]
    slices = []
    for value in expected:
        offset = log.append(make(value), now_ms=0).base_offset
        slices.append((value, log.read(offset, 1 << 20).records))
    assert values(log) == expected
    log.close()
    assert all(value in bytes(data) for value, data in slices)
    for clean in (True, False):
        log = open_log(files, tmp_path / "orders-0", config=config, clean=clean)
        assert values(log) == expected and log.cut_bytes == 0
        log.close()
    newest = max((tmp_path / "orders-0").glob("*.log"))
    with newest.open("ab") as file:
        file.write(b"half")
    log = open_log(files, tmp_path / "orders-0", config=config, clean=False)
    assert values(log) == expected and log.cut_bytes == 4


def test_idle_partitions_hold_no_descriptors(tmp_path: Path):
    files = DiskFiles()
    log = open_log(files, tmp_path / "orders-0")
    log.append(make(b"a"), now_ms=0)
    log.close()
    gc.collect()  # objects of other tests
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    logs = [open_log(files, tmp_path / "orders-0") for _ in range(20)]
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
    assert all(values(log) == [b"a"] for log in logs)
    for log in logs:
        log.close()

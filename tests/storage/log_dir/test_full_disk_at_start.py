"""A start on a full disk after a kill: it fails in one line, leaves no temporary file, and with room all is there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.io.files import DiskFiles, write_atomically
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import PartitionLog
from ottla_testing.storage.batches import TOPIC_ID, make, sequenced, values
from ottla_testing.storage.simulated_files import SimulatedFiles

DATA = "/data"


def opened(files: SimulatedFiles) -> tuple[DataDirectory, list[PartitionLog]]:
    directory = DataDirectory.open(files, DATA, node_id=1, make_id=lambda: TOPIC_ID)
    config = LogConfig(segment_bytes=300, index_interval_bytes=0)
    try:
        logs = [directory.open_partition("t", index, topic_id=TOPIC_ID, config=config, now_ms=0) for index in range(2)]
    except StorageError:
        directory.abandon()
        raise
    return directory, logs


def killed() -> SimulatedFiles:
    """Makes two logs and kills them, one with a torn tail."""
    files = SimulatedFiles()
    _, logs = opened(files)
    for number in range(6):
        logs[0].append(make(b"%d" % number), now_ms=0)
        logs[1].append(sequenced(number), now_ms=0)
    files.restart()
    files.contents[f"{DATA}/t-0/{4:020d}.log"].live.extend(b"torn")
    return files


def temporary(files: SimulatedFiles) -> list[str]:
    return [name for name in files.contents if name.endswith((".tmp", ".cleaned", ".swap"))]


def test_start_on_a_full_disk_at_any_step_leaves_no_temporary_file_and_loses_nothing() -> None:
    files = killed()
    whole = files.fork()
    opened(whole)
    steps = whole.steps
    assert steps > 20
    failed = 0
    for step in range(steps):
        disk = files.fork()
        disk.fail_at, disk.fail_with = step, errno.ENOSPC
        try:
            opened(disk)
        except StorageError as error:
            failed += 1
            assert "\n" not in str(error) and "injected" in str(error)
        assert temporary(disk) == []
        disk.restart()
        directory, logs = opened(disk)
        assert [len(values(log)) for log in logs] == [6, 6]
        logs[1].append(sequenced(6), now_ms=0)  # the producer state is there
        directory.close()
    assert failed > steps // 3, (failed, steps)


def test_start_on_a_disk_without_any_room_leaves_no_temporary_file() -> None:
    disk = killed()
    disk.capacity = disk.used()
    with pytest.raises(StorageError, match="no space"):
        opened(disk)
    assert temporary(disk) == []
    disk.capacity = 1 << 40
    disk.restart()
    _, logs = opened(disk)
    assert [len(values(log)) for log in logs] == [6, 6]


def test_write_atomically_on_a_full_disk_keeps_only_the_old_file(tmp_path: Path) -> None:
    class FullFiles(DiskFiles):
        def replace(self, source: str, target: str) -> None:
            raise OSError(errno.ENOSPC, "no space", target)

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="no space"):
        write_atomically(FullFiles(), str(path), b"new")
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("file", b"old")]

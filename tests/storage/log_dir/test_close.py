"""The syncs of a close of a data directory: only of files written since the last sync."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.io.files import DiskFile, DiskFiles, Files
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN, FEW_LOGS, DataDirectory
from ottla.storage.partition_log import PartitionLog
from ottla_testing.storage.batches import TOPIC_ID, make, values
from ottla_testing.storage.simulated_files import SimulatedFiles

DATA = "/data"
PARTITIONS = 20
OF_THE_DIRECTORY = 10  # the checkpoints and the marker, each with its name


def opened(files: Files, path: str = DATA, partitions: int = PARTITIONS) -> tuple[DataDirectory, list[PartitionLog]]:
    directory = DataDirectory.open(files, path, node_id=1, make_id=lambda: TOPIC_ID)
    config = LogConfig(index_interval_bytes=0)
    logs = [
        directory.open_partition("t", index, topic_id=TOPIC_ID, config=config, now_ms=0) for index in range(partitions)
    ]
    return directory, logs


def syncs(files: SimulatedFiles, begun: int = 0) -> Counter[str]:
    """Returns how often which kind of file was synced, by the end of its name; a folder is "folder"."""
    found: Counter[str] = Counter()
    for step in files.log[begun:]:
        operation, path = step.split(" ", 1)
        if operation.startswith("sync"):
            name = path.rsplit("/", 1)[-1]
            found["folder" if operation != "sync" else name.lstrip("0123456789")] += 1
    return found


def test_close_of_unwritten_partitions_syncs_none_of_their_files() -> None:
    files = SimulatedFiles()
    directory, _ = opened(files)
    begun = len(files.log)
    directory.close()
    found = syncs(files, begun)
    assert found.total() <= OF_THE_DIRECTORY, found
    assert not [name for name in found if name.endswith((".log", ".index", ".timeindex", ".metadata"))]
    for seed in range(20):  # and a power loss right after it costs nothing
        fork = files.fork()
        fork.crash(random.Random(seed))
        again, logs = opened(fork)
        assert again.was_clean and [log.topic_id for log in logs] == [TOPIC_ID] * PARTITIONS
        assert [log.log_end_offset for log in logs] == [0] * PARTITIONS
        logs[0].append(make(b"a"), now_ms=0)
        assert values(logs[0]) == [b"a"]


def test_close_syncs_each_written_file_and_folder_once() -> None:
    files = SimulatedFiles()
    directory, logs = opened(files)
    for log in logs:
        for number in range(3):
            log.append(make(b"%d" % number), now_ms=0)
    begun = len(files.log)
    directory.close()
    found = syncs(files, begun)
    each = {".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"}
    assert {name: found[name] for name in each} == dict.fromkeys(each, PARTITIONS)
    assert found.total() <= PARTITIONS * (len(each) + 1) + OF_THE_DIRECTORY, found
    assert all(content.live == content.durable for content in files.contents.values())


def test_close_after_a_flush_syncs_only_its_own_writes() -> None:
    files = SimulatedFiles()
    directory, logs = opened(files)
    for log in logs:
        log.append(make(b"a"), now_ms=0)
        log.flush()
    begun = len(files.log)
    directory.close()
    found = syncs(files, begun)
    assert found[".log"] == found[".index"] == found["leader-epoch-checkpoint"] == 0
    assert found[".timeindex"] == found[".snapshot"] == PARTITIONS
    assert all(content.live == content.durable for content in files.contents.values())


def test_close_after_only_reads_syncs_no_partition() -> None:
    files = SimulatedFiles()
    directory, logs = opened(files)
    for log in logs:
        log.append(make(b"a"), now_ms=0)
    directory.close()
    directory, logs = opened(files)
    assert [values(log) for log in logs] == [[b"a"]] * PARTITIONS
    begun = len(files.log)
    directory.close()
    assert syncs(files, begun).total() <= OF_THE_DIRECTORY


def test_close_after_a_kill_syncs_writes_of_the_killed_process() -> None:
    files = SimulatedFiles()
    _, logs = opened(files)
    for log in logs:
        log.append(make(b"a"), now_ms=0)
    files.restart()
    directory, _ = opened(files)
    directory.close()
    assert all(content.live == content.durable for content in files.contents.values())


class CountingFiles(DiskFiles):
    """Counts the syncs that are in progress at once; from `counts` on, each waits a little for another one."""

    def __init__(self) -> None:
        self.most = self._now = 0
        self._change = threading.Condition()
        self.counts = self.fails = False
        outer = self

        class CountingFile(DiskFile):
            def sync(self) -> None:
                outer.sync_begins()
                super().sync()

        self._kind = CountingFile

    def sync_begins(self) -> None:
        if self.fails:
            raise OSError(5, "injected")
        if not self.counts:
            return
        with self._change:
            self._now += 1
            self.most = max(self.most, self._now)
            self._change.notify_all()
            self._change.wait_for(lambda: self.most >= 2, 0.2)
            self._now -= 1

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        file = super().open(path, create=create)
        assert isinstance(file, DiskFile)
        return self._kind(path, file._fd)


def test_close_in_threads_syncs_logs_concurrently(tmp_path: Path) -> None:
    files = CountingFiles()
    directory, logs = opened(files, str(tmp_path / "d"), FEW_LOGS + 1)
    for log in logs:
        log.append(make(b"a"), now_ms=0)
    files.counts = True
    directory.close(threads=4)
    assert files.most >= 2 and (tmp_path / "d" / CLEAN_SHUTDOWN).exists()
    again, logs = opened(DiskFiles(), str(tmp_path / "d"), FEW_LOGS + 1)
    assert again.was_clean and [values(log) for log in logs] == [[b"a"]] * (FEW_LOGS + 1)
    again.close()


def test_close_in_threads_with_a_failing_sync_writes_no_clean_marker(tmp_path: Path) -> None:
    files = CountingFiles()
    directory, logs = opened(files, str(tmp_path / "d"), 4)
    for log in logs:
        log.append(make(b"a"), now_ms=0)
    files.counts = files.fails = True
    with pytest.raises(StorageError):
        directory.close(threads=4)
    assert not (tmp_path / "d" / CLEAN_SHUTDOWN).exists()
    again, logs = opened(DiskFiles(), str(tmp_path / "d"), 4)
    assert [values(log) for log in logs] == [[b"a"]] * 4
    again.close()

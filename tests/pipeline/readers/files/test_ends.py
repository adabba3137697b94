"""Partitions, and the start and end of their logs, in directories in use and others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.pipeline.backend import OffsetRange, ReadError, Selection, TopicPartition
from ottla.pipeline.readers.files import FileBackend
from ottla.pipeline.readers.files.ends import is_in_use
from ottla.protocol.records.batch import Record
from ottla.storage.config import LogConfig
from ottla.storage.format.checkpoint import LOG_START_OFFSET, REPLICATION_OFFSET, write_offsets
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import PartitionLog
from ottla_testing.pipeline.logs_samples import KEY, rows, wanted, written

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300, retention_ms=-1)

# Queries the lock as another broker would.
TRIES = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free", flush=True)
except OSError:
    print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    found = DataDirectory.open(DiskFiles(), tmp_path / "data", node_id=1)
    yield found
    found.close()


def log_of(directory: DataDirectory, topic: str = "orders", partition: int = 0) -> PartitionLog:
    return directory.open_partition(topic, partition, topic_id=bytes(range(16)), config=CONFIG, now_ms=NOW)


def append(log: PartitionLog, count: int, size: int = 100) -> None:
    for number in range(count):
        log.append_records([Record(0, NOW + number, b"k", bytes(size))], now_ms=NOW)


def both(backend: FileBackend, key: TopicPartition) -> tuple[int, int]:
    return backend.earliest([key])[key], backend.latest([key], committed=False)[key]


# -- ends


def test_end_of_directory_in_use_is_high_watermark_and_lock_kept(directory: DataDirectory) -> None:
    log = log_of(directory)
    append(log, 40)
    assert is_in_use(directory.path)
    backend = FileBackend([directory.path])
    key = TopicPartition("orders", 0)
    assert both(backend, key) == (0, 0), "no high watermark was written yet"
    directory.write_checkpoints(REPLICATION_OFFSET)
    assert both(backend, key) == (0, 40)
    append(log, 5)
    assert both(backend, key) == (0, 40)
    lock = subprocess.run(
        [sys.executable, "-c", TRIES, os.path.join(directory.path, ".lock")], input="", capture_output=True, text=True
    )
    assert lock.stdout == "locked\n"
    directory.close()
    assert not is_in_use(directory.path)
    assert both(backend, key) == (0, 45)


def test_is_in_use_lock_of_another_process_detected(tmp_path: Path) -> None:
    root = tmp_path / "data"
    DataDirectory.open(DiskFiles(), root, node_id=1).close()
    (root / ".kafka_cleanshutdown").unlink()
    assert not is_in_use(str(root)), "killed"
    holder = [sys.executable, "-c", TRIES, str(root / ".lock")]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "free\n"
        assert is_in_use(str(root))
        process.communicate("")
    assert not is_in_use(str(root))
    assert not is_in_use(str(tmp_path)), "no data directory"


def test_end_after_kill_is_last_whole_entry(directory: DataDirectory, tmp_path: Path) -> None:
    log = log_of(directory)
    append(log, 40)
    directory.write_checkpoints(REPLICATION_OFFSET)
    append(log, 7)
    copy = tmp_path / "copy"
    shutil.copytree(directory.path, copy)
    backend = FileBackend([str(copy)])
    key = TopicPartition("orders", 0)
    assert both(backend, key) == (0, 47)
    with open(copy / "orders-0" / f"{log.segments[-1].base_offset:020d}.log", "ab") as file:
        file.write(b"\0\0\0\0")
    assert both(backend, key) == (0, 47)
    pieces = backend.pieces([OffsetRange(*key, 0, 47)], wanted("offset"))
    assert [row["offset"] for row in rows(pieces)] == list(range(47))


def test_end_resumes_from_last_known_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "orders-3", [(2, 0, 3)] * 50, interval_bytes=None)
    backend = FileBackend([str(tmp_path)])
    assert both(backend, KEY) == (0, folder.end)
    data = folder.log().read_bytes()
    from ottla.pipeline.readers.files.windows import LogFile

    positions: list[int] = []
    fill = LogFile.fill

    def noted(self: LogFile, buffer: memoryview, position: int) -> int:
        positions.append(position)
        return fill(self, buffer, position)

    monkeypatch.setattr(LogFile, "fill", noted)
    more = written(tmp_path / "more" / "orders-3", [(2, 0, 3)], first=folder.end)
    folder.log().write_bytes(data + more.log().read_bytes())
    assert both(backend, KEY) == (0, more.end)
    assert positions and min(positions) >= len(data)
    folder.log().write_bytes(data[:1000])
    assert both(backend, KEY)[1] < folder.end


def test_start_after_delete_records(directory: DataDirectory) -> None:
    log = log_of(directory)
    append(log, 60)
    log.delete_records_before(17)
    directory.write_checkpoints()
    backend = FileBackend([directory.path])
    key = TopicPartition("orders", 0)
    assert both(backend, key) == (17, 60)
    pieces = backend.pieces([OffsetRange(*key, 17, 60)], wanted("offset"))
    assert [row["offset"] for row in rows(pieces)] == list(range(17, 60))
    assert backend.at_times({key: NOW}) == {key: 17}


def test_invalid_checkpoint_raises(tmp_path: Path) -> None:
    written(tmp_path / "orders-3", [(2, 0, 3)])
    for name in (LOG_START_OFFSET, REPLICATION_OFFSET):
        (tmp_path / name).write_text("0\n2\norders 3 0\n")
        with pytest.raises(ReadError, match=f"malformed checkpoint .*{name}"):
            both(FileBackend([str(tmp_path)]), KEY)
        (tmp_path / name).unlink()
    write_offsets(DiskFiles(), str(tmp_path / LOG_START_OFFSET), {("orders", 3): 2})
    assert FileBackend([str(tmp_path)]).earliest([KEY]) == {KEY: 2}


def test_ends_of_empty_partition(tmp_path: Path) -> None:
    (tmp_path / "orders-3").mkdir()
    (tmp_path / "orders-3" / f"{9:020d}.log").touch()
    backend = FileBackend([str(tmp_path)])
    assert both(backend, KEY) == (9, 9)
    assert backend.latest([KEY], committed=True) == {KEY: 9}
    assert backend.at_times({KEY: 0}) == {KEY: None}
    assert backend.pieces([OffsetRange(*KEY, 9, 9)], wanted()) == []


# -- partitions


def keys(*paths: Path | str, selection: Selection | None = None) -> list[str]:
    return [str(key) for key in FileBackend([str(path) for path in paths]).partitions(selection or Selection())]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("roots")
    for name in (
        "a/orders-0",
        "a/orders-1",
        "a/__consumer_offsets-0",
        "b/orders-2",
        "b/bills-0",
        "b/__consumer_offsets-1",
    ):
        written(root / name, [(2, 0, 2)])
    (root / "a" / f"gone-0.{'0' * 32}-delete").mkdir()
    (root / "a" / "meta.properties").write_text("version=1\n")
    return root


def test_paths_directories_and_partition_folders(roots: Path) -> None:
    a, b = roots / "a", roots / "b"
    assert keys(a) == ["orders-0", "orders-1"]
    assert keys(a, b) == keys(f"{a}, {b}/") == keys(f"{roots}/*") == keys(f"file:{a}", f"file://{b}")
    assert keys(a, b) == ["bills-0", "orders-0", "orders-1", "orders-2"]
    assert keys(a / "orders-1", b) == ["bills-0", "orders-1", "orders-2"]
    assert keys(a, a / "orders-1") == ["orders-0", "orders-1"], "found twice at the same place"


def test_internal_topics_only_if_named(roots: Path) -> None:
    a, b = roots / "a", roots / "b"
    assert keys(a / "__consumer_offsets-0", b) == ["__consumer_offsets-0", "bills-0", "orders-2"]
    assert keys(a, b, selection=Selection(topics=("__consumer_offsets",))) == [
        f"__consumer_offsets-{n}" for n in (0, 1)
    ]
    assert keys(a, b, selection=Selection(pattern=".*s")) == ["bills-0", "orders-0", "orders-1", "orders-2"]
    assert keys(a, selection=Selection(assigned=(TopicPartition("__consumer_offsets", 0),))) == ["__consumer_offsets-0"]


def test_missing_path_or_topic_named_in_error(roots: Path, tmp_path: Path) -> None:
    a = roots / "a"
    for selection, missing in (
        (Selection(topics=("orders", "nothing")), "nothing"),
        (Selection(assigned=(TopicPartition("orders", 0), TopicPartition("orders", 9))), "orders-9"),
    ):
        with pytest.raises(ReadError, match=f"{missing} not found in {a}$"):
            keys(a, selection=selection)
    assert keys(a, selection=Selection(pattern="nothing")) == []
    for path, words in (
        (a / "none", "there is no folder"),
        (f"{roots}/x*", "no file or folder matches"),
        (tmp_path, "no data dir"),
    ):
        with pytest.raises(ReadError, match=words):
            keys(path)
    with pytest.raises(ReadError, match="no path"):
        FileBackend([""])
    (tmp_path / "file").touch()
    with pytest.raises(ReadError, match="cannot read"):
        keys(tmp_path / "file")


def test_partition_in_two_directories_raises_with_both_paths(roots: Path, tmp_path: Path) -> None:
    shutil.copytree(roots / "b", tmp_path / "c")
    with pytest.raises(ReadError, match=r"\S+ is in two folders: \S+/b/\S+ and \S+/c/\S+$"):
        keys(roots / "b", tmp_path / "c")
    os.symlink(roots / "b", tmp_path / "d")
    assert keys(roots / "b", tmp_path / "d") == ["bills-0", "orders-2"]


def test_path_with_comma(tmp_path: Path) -> None:
    written(tmp_path / "x,y" / "orders-3", [(2, 0, 2)])
    assert keys(tmp_path / "x,y") == ["orders-3"]


def test_partition_created_and_deleted_between_calls(tmp_path: Path) -> None:
    written(tmp_path / "orders-3", [(2, 0, 2)])
    backend = FileBackend([str(tmp_path)])
    other = TopicPartition("bills", 0)
    assert backend.partitions(Selection()) == [KEY]
    written(tmp_path / "bills-0", [(2, 0, 4)])
    assert backend.earliest([KEY, other]) == {KEY: 0, other: 0}
    shutil.rmtree(tmp_path / "orders-3")
    assert list(backend.latest([KEY, other], committed=False)) == [other]
    assert list(backend.latest([KEY, other], committed=True)) == [other]
    assert backend.at_times({KEY: 5, other: 10**15}) == {other: None}
    assert backend.partitions(Selection()) == [other]


def test_backend_is_context_manager() -> None:
    with tempfile.TemporaryDirectory() as root:
        written(Path(root) / "orders-3", [(2, 0, 2)])
        with FileBackend([root]) as backend:
            assert backend.partitions(Selection()) == [KEY]

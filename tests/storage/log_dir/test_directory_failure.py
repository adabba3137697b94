"""A data directory with a failing disk: lasting and transient errors, and the failure as a whole."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from ottla.storage.errors import DirectoryFailed, DirectoryLocked, StorageError
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN, DataDirectory
from ottla.storage.partition_log import LogConfig, PartitionLog
from ottla_testing.storage.batches import TOPIC_ID, make, values
from ottla_testing.storage.failing_files import FailingFiles

LASTING = (errno.EIO, errno.EROFS, errno.ENOENT, errno.EACCES)
PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


def open_directory(files: FailingFiles, path: Path, **more) -> DataDirectory:
    return DataDirectory.open(files, path, node_id=1, make_id=lambda: TOPIC_ID, **more)


def open_partition(directory: DataDirectory, topic: str = "orders", **config) -> PartitionLog:
    return directory.open_partition(topic, 0, config=LogConfig(**config), now_ms=0)


@pytest.mark.parametrize("code", LASTING)
@pytest.mark.parametrize(
    ("operation", "name"),
    [
        ("lock", ".lock"),
        ("read_bytes", "meta.properties"),
        ("list", ""),
        ("remove", ".kafka_cleanshutdown"),
        ("read_bytes", "recovery-point-offset-checkpoint"),
        ("syncdir", ""),
    ],
)
def test_directory_that_cannot_be_opened_has_failed_and_is_not_locked(
    code: int, operation: str, name: str, files: FailingFiles, tmp_path: Path
):
    if code == errno.ENOENT and operation == "read_bytes":
        code = errno.EISDIR  # a missing small file is not unusual
    open_directory(files, tmp_path / "d").close()
    files.break_down(tmp_path / "d" / name if name else tmp_path / "d", code, {operation})
    with pytest.raises(DirectoryFailed, match=str(tmp_path / "d")):
        open_directory(files, tmp_path / "d")
    assert files.failed
    files.repair()
    open_directory(files, tmp_path / "d").close()


def test_other_errors_do_not_fail_the_directory(files: FailingFiles, tmp_path: Path):
    held = open_directory(files, tmp_path / "d")
    with pytest.raises(DirectoryLocked):
        open_directory(files, tmp_path / "d")
    held.close()
    files.break_down(tmp_path / "e", errno.EMFILE, {"lock"})
    for path, more in ((tmp_path / "e", {}), (tmp_path / "f", {"cluster_id": "!"})):
        with pytest.raises(StorageError) as raised:
            open_directory(files, path, **more)
        assert type(raised.value) is StorageError


def test_file_instead_of_a_directory_fails(files: FailingFiles, tmp_path: Path):
    (tmp_path / "d").write_text("")
    with pytest.raises(DirectoryFailed):
        open_directory(files, tmp_path / "d")


@pytest.mark.parametrize("code", LASTING)
def test_disk_error_of_one_log_fails_the_directory_and_all_logs(code: int, files: FailingFiles, tmp_path: Path):
    directory = open_directory(files, tmp_path / "d")
    first, second = open_partition(directory), open_partition(directory, "other")
    for log in (first, second):
        log.append(make(b"a"), now_ms=0)
    reported: list[str | None] = []
    directory.on_failure = lambda: reported.append(directory.failure)
    files.fail_once(tmp_path / "d", code, "write", ".log")
    with pytest.raises(StorageError):
        first.append(make(b"b"), now_ms=0)
    assert len(reported) == 1 and directory.failure and "injected" not in directory.failure
    for log in (first, second):
        for call in (
            lambda log=log: log.append(make(b"c"), now_ms=0),
            lambda log=log: log.read(0, 100),
            lambda log=log: log.delete_records_before(1),
            lambda log=log: log.find_timestamp(0),
            log.flush,
        ):
            with pytest.raises(StorageError, match="offline"):
                call()
    for call in (directory.write_checkpoints, lambda: open_partition(directory, "third")):
        with pytest.raises(DirectoryFailed, match="offline"):
            call()
    assert len(reported) == 1
    directory.close()
    assert not (tmp_path / "d" / CLEAN_SHUTDOWN).exists()
    again = open_directory(files, tmp_path / "d")
    assert values(open_partition(again)) == values(open_partition(again, "other")) == [b"a"]
    again.close()
    assert (tmp_path / "d" / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("code", PASSING)
def test_full_disk_fails_only_the_append(code: int, files: FailingFiles, tmp_path: Path):
    directory = open_directory(files, tmp_path / "d")
    log = open_partition(directory)
    files.break_down(tmp_path / "d", code, {"write", "create"})
    for _ in range(3):
        with pytest.raises(StorageError):
            log.append(make(b"a"), now_ms=0)
    with pytest.raises(StorageError) as raised:
        open_partition(directory, "other")
    assert not isinstance(raised.value, DirectoryFailed)
    with pytest.raises(StorageError):
        directory.write_checkpoints()
    files.repair()
    assert directory.failure is None
    log.append(make(b"b"), now_ms=0)
    directory.close()
    assert (tmp_path / "d" / CLEAN_SHUTDOWN).exists()
    assert values(open_partition(open_directory(files, tmp_path / "d"))) == [b"b"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_failed_sync_fails_the_directory_on_any_error(code: int, files: FailingFiles, tmp_path: Path):
    directory = open_directory(files, tmp_path / "d")
    log = open_partition(directory)
    log.append(make(b"a"), now_ms=0)
    files.fail_once(tmp_path / "d", code, "sync", ".log")
    with pytest.raises(StorageError):
        log.flush()
    assert directory.failure is not None


@pytest.mark.parametrize("operation", ["checkpoint", "delete", "remove", "aside", "open"])
def test_disk_error_of_a_directory_operation_fails_it(operation: str, files: FailingFiles, tmp_path: Path):
    directory = open_directory(files, tmp_path / "d")
    open_partition(directory).append(make(b"a"), now_ms=0)
    remove = None
    if operation == "remove":
        remove = directory.delete_partition("orders", 0)
    files.break_down(tmp_path / "d")
    with pytest.raises(DirectoryFailed):
        if remove is not None:
            remove()
        elif operation == "checkpoint":
            directory.write_checkpoints()
        elif operation == "delete":
            directory.delete_partition("orders", 0)
        elif operation == "aside":
            directory.set_aside("none", 0)
        else:
            open_partition(directory, "new")
    assert directory.failure is not None
    if remove is not None:
        remove()  # left to the next start
    directory.close()
    files.repair()
    open_directory(files, tmp_path / "d").close()


def test_removed_directory_is_not_created_again(files: FailingFiles, tmp_path: Path):
    directory = open_directory(files, tmp_path / "d")
    open_partition(directory).append(make(b"a"), now_ms=0)
    shutil.rmtree(tmp_path / "d")
    with pytest.raises(DirectoryFailed, match="is gone"):
        open_partition(directory, "other")
    directory.close()
    assert not (tmp_path / "d").exists()


def test_failed_close_writes_no_clean_marker(files: FailingFiles, tmp_path: Path):
    directory = open_directory(files, tmp_path / "d")
    open_partition(directory).append(make(b"a"), now_ms=0)
    files.fail_once(tmp_path / "d", errno.EIO, "create", ".timeindex")
    with pytest.raises(StorageError):
        directory.close()
    assert not (tmp_path / "d" / CLEAN_SHUTDOWN).exists()
    open_directory(files, tmp_path / "d").abandon()

"""Durability and disk errors of a flush: one flush at a time, and each covers only its own writes."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.format.checkpoint import LEADER_EPOCH
from ottla.storage.io.files import DiskFile, DiskFiles
from ottla.storage.partition_log import PartitionLog
from ottla.storage.segments.segment import Segment
from ottla_testing.patience import PATIENCE_S
from ottla_testing.storage.batches import FOLDER, make, open_log, values
from ottla_testing.storage.simulated_files import SimulatedFiles


def appended(log: PartitionLog, value: bytes) -> None:
    log.append(make(value), now_ms=0)


def test_flush_does_not_count_data_that_a_concurrent_flush_has_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(SimulatedFiles())
    appended(log, b"1")
    begun, go_on = threading.Event(), threading.Event()
    sync: Callable[[Segment], None] = Segment.sync

    def slow(segment: Segment) -> None:
        if not begun.is_set():
            begun.set()
            assert go_on.wait(PATIENCE_S)
        sync(segment)

    monkeypatch.setattr(Segment, "sync", slow)
    points: list[int] = []
    first = threading.Thread(target=lambda: points.append(log.flush()))
    first.start()
    assert begun.wait(PATIENCE_S)
    appended(log, b"2")  # while the first is in progress
    second = threading.Thread(target=lambda: points.append(log.flush()))
    second.start()
    second.join(0.05)
    assert second.is_alive() and points == [] and log.recovery_point == 0 and log.unflushed_records == 2
    go_on.set()
    first.join(PATIENCE_S)
    second.join(PATIENCE_S)
    assert points == [1, 2] and log.recovery_point == 2 and log.unflushed_records == 0


def test_disk_error_is_reported_before_it_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    log = open_log(files)
    appended(log, b"1")
    reported: list[tuple[object, int | None]] = []
    log.on_failure = lambda log, error: reported.append((log, error.errno))

    def broken(*args: object) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(log._active._opened()), "write", broken)
        with pytest.raises(StorageError, match="the disk is gone"):
            appended(log, b"2")
    assert reported == [(log, errno.EIO)] and log.log_end_offset == 1
    appended(log, b"2")  # the disk works again, and nothing was lost
    with monkeypatch.context() as patch:
        patch.setattr(type(log._active._opened()), "read", broken)
        with pytest.raises(StorageError, match="the disk is gone"):
            log.read(0, 1 << 20)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "sync", broken)
        with pytest.raises(StorageError, match="the disk is gone"):
            log.flush()
    assert reported == [(log, errno.EIO)] * 3
    assert log.failure == "a sync failed: [Errno 5] the disk is gone"


def test_failed_log_refuses_appends_and_reads() -> None:
    files = SimulatedFiles()
    log = open_log(files)
    appended(log, b"1")
    reported: list[object] = []
    log.on_failure = lambda log, error: reported.append(error)
    log.fail("its disk is gone")
    log.fail("and again")
    for refused in (
        lambda: appended(log, b"2"),
        lambda: log.read(0, 1 << 20),
        lambda: log.delete_records_before(1),
        lambda: log.retain(0),
        lambda: log.find_timestamp(0),
        log.max_timestamp,
        log.segment_bases,
        log.flush,
        log.close,
    ):
        with pytest.raises(StorageError, match="is offline: its disk is gone"):
            refused()
    assert reported == [] and log.failure == "is offline: its disk is gone"
    log.close()  # the first call that reports it
    assert open_log(files).log_end_offset == 1


def test_time_of_the_oldest_unflushed_append(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    log = open_log(files)
    assert log.unflushed_since_ms is None
    for now_ms in (5, 9):
        log.append(make(b"1"), now_ms=now_ms)
    assert log.unflushed_since_ms == 5
    sync: Callable[[Segment], None] = Segment.sync

    def meanwhile(segment: Segment) -> None:
        """Appends during the flush, which does not cover this append."""
        assert log.unflushed_since_ms is None
        monkeypatch.setattr(Segment, "sync", sync)
        log.append(make(b"2"), now_ms=20)
        sync(segment)

    monkeypatch.setattr(Segment, "sync", meanwhile)
    log.flush()
    assert log.unflushed_since_ms == 20
    with monkeypatch.context() as patch:

        def no_descriptor(segment: Segment) -> None:
            raise OSError(errno.EMFILE, "too many")

        patch.setattr(Segment, "sync", no_descriptor)
        with pytest.raises(StorageError):
            log.flush()
    assert log.unflushed_since_ms == 20
    log.flush()
    assert log.unflushed_since_ms is None
    log.append(make(b"3"), now_ms=30)
    log.abandon()
    assert open_log(files, clean=False).unflushed_since_ms == 0


def test_bytes_written_after_the_end_by_others_are_cut_at_close() -> None:
    """A KRaft broker of Kafka appends to the metadata log before it takes the lock."""
    files = SimulatedFiles()
    log = open_log(files)
    appended(log, b"1")
    path = f"{FOLDER}/{0:020d}.log"
    theirs = files.open(path)
    theirs.write(log.size_bytes, b"of another process, longer than what we append" * 4)
    theirs.close()
    appended(log, b"2")
    log.close()
    assert files.size(path) == log.size_bytes
    assert values(open_log(files)) == [b"1", b"2"]


def test_files_that_recovery_left_unsynced_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file opened and closed again on the loop, as for retention, would be closed while another thread syncs it."""
    config = LogConfig(segment_bytes=100)
    log = open_log(DiskFiles(), tmp_path, config=config)
    for value in (b"1", b"2", b"3"):
        appended(log, value)
    log.abandon()
    (tmp_path / LEADER_EPOCH).unlink()  # recovery reads all segments for the epochs and closes them
    log = open_log(DiskFiles(), tmp_path, config=config, clean=False)
    segment = log.segments[0]
    syncing, looked = threading.Event(), threading.Event()
    largest, sync = Segment.largest_timestamp, DiskFile.sync

    def paused(file: DiskFile) -> None:
        syncing.set()
        assert looked.wait(PATIENCE_S)
        sync(file)

    points: list[int] = []
    flush = threading.Thread(target=lambda: points.append(log.flush()))

    def slow(looked_at: Segment) -> tuple[int, int]:
        flush.start()
        assert syncing.wait(PATIENCE_S)
        return largest(looked_at)

    monkeypatch.setattr(DiskFile, "sync", paused)
    monkeypatch.setattr(Segment, "largest_timestamp", slow)
    segment.times_ms()
    looked.set()
    flush.join(PATIENCE_S)
    assert points == [3]

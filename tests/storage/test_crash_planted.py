"""Tests of the crash checker: each of these bugs, planted into the code, is found within a few seeds.

An omitted sync, two swapped steps: bugs that the crash tests must find, and the only proof that they do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from ottla.storage.format import checkpoint
from ottla.storage.io.files import Files
from ottla.storage.log import recovery, upgrade
from ottla.storage.log.flusher import Flusher
from ottla.storage.log_dir import directory
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.log_dir.offset_checkpoints import OffsetCheckpoints
from ottla.storage.producers import snapshot
from ottla.storage.producers.store import Producers
from ottla.storage.segments.segment import Segment
from ottla_testing.storage.crash_check import check
from ottla_testing.storage.crash_world import Violation, World

SEEDS = 120  # the rarest needs one of forty
Patch = pytest.MonkeyPatch


def syncs_no_log(patch: Patch) -> None:
    """A flush that covers bytes which it did not sync."""
    patch.setattr(Segment, "sync", lambda self: None)


def syncs_no_folder(patch: Patch) -> None:
    """A flush that syncs files whose names are not durable."""
    sync = Flusher._sync
    patch.setattr(Flusher, "_sync", lambda self, segments, names, changed: sync(self, segments, names, False))


def renames_before_the_sync(patch: Patch) -> None:
    """A checkpoint that replaces the old one before its bytes are durable."""

    def write(files: Files, path: str, data: bytes, *, sync: bool = True) -> None:
        file = files.open(path + ".tmp", create=True)
        file.truncate(0)
        file.write(0, data)
        files.replace(path + ".tmp", path)
        if sync:
            files.sync_directory(os.path.dirname(path))
            file.sync()
        file.close()

    patch.setattr(checkpoint, "write_atomically", write)


def marks_before_the_flush(patch: Patch) -> None:
    """A clean shutdown marker that is written before the logs are closed."""
    close = DataDirectory.close

    def close_late(self: DataDirectory) -> None:
        path = os.path.join(self.path, directory.CLEAN_SHUTDOWN)
        directory.write_atomically(self._files, path, directory.CLEAN_SHUTDOWN_BYTES)
        close(self)

    patch.setattr(DataDirectory, "close", close_late)


def checkpoints_before_the_sync(patch: Patch) -> None:
    """A recovery point above the durable part of the log."""
    patch.setattr(Flusher, "recovery_point", property(lambda self: self._end_offset(), lambda self, value: None), False)


def forgets_the_log_start(patch: Patch) -> None:
    """DeleteRecords with a response before its checkpoint is written."""
    patch.setattr(OffsetCheckpoints, "log_start_moves", lambda self, log, offset: None)


def cuts_nothing(patch: Patch) -> None:
    """A recovery that leaves torn bytes after the log end."""
    patch.setattr(Segment, "truncate", lambda self, size: setattr(self, "size_bytes", size))
    patch.setattr(Segment, "cut_torn", lambda self, **more: None)


def keeps_the_marker(patch: Patch) -> None:
    """A start that does not remove the clean shutdown marker."""
    begin = DataDirectory._begin

    def begin_and_mark(self: DataDirectory) -> None:
        begin(self)
        if self.was_clean:
            path = os.path.join(self.path, directory.CLEAN_SHUTDOWN)
            directory.write_atomically(self._files, path, directory.CLEAN_SHUTDOWN_BYTES)

    patch.setattr(DataDirectory, "_begin", begin_and_mark)


def believes_bad_checksums(patch: Patch) -> None:
    """A recovery that does not check CRCs."""
    patch.setattr(recovery, "crc_matches", lambda data, position, header: True)


def careless(files: Files) -> Any:
    return Careless(files)


class Careless:
    """Files whose sync does nothing."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: str, *, create: bool = False) -> Any:
        file = self._files.open(path, create=create)
        file.sync = lambda: None
        return file


def swaps_before_the_sync(patch: Patch) -> None:
    """An upgrade that removes the old segment before the new one's bytes are durable."""
    made = upgrade.rewrite
    patch.setattr(upgrade, "rewrite", lambda files, *args, **named: made(careless(files), *args, **named))


def keeps_producers_of_lost_batches(patch: Patch) -> None:
    """A recovery that keeps snapshots of cut batches."""
    patch.setattr(Producers, "settle", lambda self, bases, start, end: setattr(self, "_replay_end", end))
    patch.setattr(Producers, "remove_above", lambda self, offset: None)


def forgets_aborts(patch: Patch) -> None:
    """A recovery that keeps transaction indexes unchanged."""
    patch.setattr(recovery.txn_index, "write", lambda files, path, entries: False)


def syncs_no_aborts(patch: Patch) -> None:
    """A flush that syncs a marker without its transaction index."""
    noted = Flusher.wrote_file
    patch.setattr(Flusher, "wrote_file", lambda self, name: name.endswith(".txnindex") or noted(self, name))


def expires_what_is_open(patch: Patch) -> None:
    """A snapshot without open transactions."""
    dump = snapshot.dump
    patch.setattr(
        snapshot,
        "dump",
        lambda known: dump({key: one._replace(transaction_first_offset=-1) for key, one in known.items()}),
    )


# With the kinds of work that reveal each bug, beside appends; all kinds reveal them too, in more time.
PLANTS = {
    syncs_no_log: ("flush",),
    syncs_no_folder: ("flush",),
    renames_before_the_sync: ("delete_records", "flush"),
    marks_before_the_flush: ("reopen",),
    checkpoints_before_the_sync: ("checkpoint",),
    forgets_the_log_start: ("delete_records",),
    cuts_nothing: (),
    keeps_the_marker: ("reopen",),
    believes_bad_checksums: (),
    swaps_before_the_sync: ("produce_old", "flush", "upgrade"),
    keeps_producers_of_lost_batches: ("flush", "stop_and_go_on"),
    forgets_aborts: ("produce_in_transaction", "end_transaction"),
    syncs_no_aborts: ("produce_in_transaction", "end_transaction", "flush"),
    expires_what_is_open: ("produce_in_transaction", "end_transaction", "flush"),
}

# The rare ones start from a seed that has found them: that saves half a minute, and all later seeds still follow.
FIRST: dict[Callable[[Patch], None], int]
FIRST = {checkpoints_before_the_sync: 48, renames_before_the_sync: 42, swaps_before_the_sync: 7}


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "kinds"), PLANTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_planted_bug_is_found(plant: Callable[[Patch], None], kinds: tuple[str, ...], monkeypatch: Patch):
    plant(monkeypatch)
    for number in range(SEEDS):
        seed = (FIRST.get(plant, 0) + number) % SEEDS
        try:
            World(seed, check, operations=12, kinds=(*kinds, "produce", "produce_idempotent")).run()
        except Violation as violation:
            print(f"{plant.__name__}: found by seed {seed}: {violation}")
            return
    raise AssertionError(f"not found within {SEEDS} seeds")

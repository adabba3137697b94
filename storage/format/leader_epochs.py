"""The leader epochs of one partition and their start offsets, in memory and in `leader-epoch-checkpoint`.

In each pair both numbers are higher than in the one before. Messages of an old format have no epoch: they void all
entries, until the next v2 batch. The file is a hint, since every batch has its epoch; it is synced only by the next
flush.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable

from ...protocol.records.batch import MAGIC
from ..errors import StorageError
from ..io.files import Files
from . import checkpoint


class LeaderEpochs:
    """The leader epoch cache of a partition. `entries` are (epoch, first offset); `wrote_file` is called with the
    file's name when it was written.

    Methods that change the file raise StorageError, and then change nothing.
    """

    __slots__ = ("_files", "_path", "_wrote_file", "entries")

    def __init__(
        self, files: Files, directory: str, entries: list[tuple[int, int]], wrote_file: Callable[[str], None]
    ) -> None:
        self._files = files
        self._path = os.path.join(directory, checkpoint.LEADER_EPOCH)
        self._wrote_file = wrote_file
        self.entries = entries

    @property
    def newest(self) -> int:
        """The epoch of the newest batch; -1 if it has none."""
        return self.entries[-1][0] if self.entries else -1

    def note(self, magic: int, epoch: int, start_offset: int) -> None:
        """Adds the epoch of a batch before the batch is written. If the write fails, the entry is still valid for the
        next batch."""
        if magic < MAGIC:
            if self.entries:
                self._write([])
        elif not self.entries or self.entries[-1][0] < epoch:
            self._write([*(entry for entry in self.entries if entry[1] < start_offset), (epoch, start_offset)])

    def restore(self, entries: list[tuple[int, int]]) -> None:
        """Restores the entries after a failed append of old messages. The file is corrected too, if possible: it is a
        hint."""
        if entries and not self.entries:
            self.entries = entries
            with contextlib.suppress(StorageError):
                self._write(entries)

    def keep(self, entries: list[tuple[int, int]]) -> None:
        """Removes all entries except these."""
        if entries != self.entries:
            self._write(entries)

    def _write(self, entries: list[tuple[int, int]]) -> None:
        checkpoint.write_epochs(self._files, self._path, entries)
        self.entries = entries
        self._wrote_file(checkpoint.LEADER_EPOCH)

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch of the record at an offset below the log end; -1 if it has none."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[number - 1][0] if number else -1

    def end_offset(self, epoch: int, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the largest epoch at or below the given one; (-1, -1) if unknown.

        An epoch before all known ones ends at the start of the first known one (KIP-101, KIP-279). A leader epoch
        without batches, as after the adoption of a directory, begins at the log end; the newest epoch with batches
        therefore ends there, and in a log without any all epochs do.
        """
        if epoch == leader_epoch:
            return epoch, log_end_offset
        number = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        if epoch < 0 or epoch > leader_epoch:
            return -1, -1
        if not self.entries:
            return epoch, log_end_offset
        if number == len(self.entries):
            return self.entries[-1][0], log_end_offset
        return (self.entries[number - 1][0] if number else epoch), self.entries[number][1]

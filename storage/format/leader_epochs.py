"""The leader epochs of one partition: which began at which offset, in memory and in `leader-epoch-checkpoint`.

Owns that file and the rules of the pairs in it: both numbers rise. Messages of an old format carry no epoch: with them
all that was known is void, until the next v2 batch. The file is a hint, as every batch carries its epoch; it is synced
by the next flush only.
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
    """See the module. `entries` are (epoch, first offset); `wrote_file` is told of the file's name when it was written.

    What changes the file raises StorageError, and then nothing has changed.
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
        """Notes the epoch of a batch before that is written. If it never is, the entry stays true: the next begins
        there."""
        if magic < MAGIC:
            if self.entries:
                self._write([])
        elif not self.entries or self.entries[-1][0] < epoch:
            self._write([*(entry for entry in self.entries if entry[1] < start_offset), (epoch, start_offset)])

    def restore(self, entries: list[tuple[int, int]]) -> None:
        """Old messages were not written after all. The file is put right too, if it can be: it is a hint."""
        if entries and not self.entries:
            self.entries = entries
            with contextlib.suppress(StorageError):
                self._write(entries)

    def keep(self, entries: list[tuple[int, int]]) -> None:
        """Forgets all but these."""
        if entries != self.entries:
            self._write(entries)

    def _write(self, entries: list[tuple[int, int]]) -> None:
        checkpoint.write_epochs(self._files, self._path, entries)
        self.entries = entries
        self._wrote_file(checkpoint.LEADER_EPOCH)

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at an offset below the end was written; -1 where it carries none."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[number - 1][0] if number else -1

    def end_offset(self, epoch: int, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch at or below one; (-1, -1) if that is not known.

        An epoch before all known ones ends where the first of these begins (KIP-101, KIP-279). A leader epoch in which
        nothing was written yet, as after an adoption, begins at the end of the log, so the newest one ends there, and
        in a log without any all.
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

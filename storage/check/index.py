"""Compares the two indexes of a segment with its log.

Entries are read in pieces, so memory is bounded for files of any size. Apache Kafka preallocates the indexes of its
active segment: zeros after the last entry are valid if the log was not closed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ...protocol.records.batch import BatchHeader
from .. import inspect
from ..format.index import OFFSET_ENTRY, TIME_ENTRY

_PIECE_ENTRIES = 4096
_ENTRIES_LEAST = 2
_DEFAULT_INTERVAL_BYTES = 4096

Problem = tuple[int, str, bool]
"""The byte in the index, the description, and whether it is a fault."""


class _Entries:
    """The entries of an index, in order; `next` is the next one to compare, None after the last."""

    layout: struct.Struct

    def __init__(self, path: str, source: inspect.FileSource | None, base_offset: int, may_have_zeros: bool) -> None:
        self.path = path
        self.exists = source is not None
        self._source = source
        self._base_offset = base_offset
        self._may_have_zeros = may_have_zeros
        self._problems: list[Problem] = []
        self._reader = self._read()
        self._at = -self.layout.size
        self.next: tuple[int, int] | None = None
        self._advance()

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return 0 if self._source is None else self._source.size

    def _read(self) -> Iterator[tuple[int, int]]:
        source, size = self._source, self.layout.size
        position = 0
        while source is not None and position < source.size:
            data = source.read(position, _PIECE_ENTRIES * size)
            whole = len(data) - len(data) % size
            for at, entry in zip(range(0, whole, size), self.layout.iter_unpack(data[:whole]), strict=True):
                if self._may_have_zeros and not any(entry) and inspect.all_zeros(source, position + at):
                    return
                yield entry
            position += len(data)
            if whole < len(data):
                left = len(data) - whole
                self._problem(f"{left} bytes where an entry begins", position - left)
                return

    def _advance(self) -> None:
        try:
            self.next = next(self._reader, None)
        except OSError as error:
            self._problem(f"cannot be read: {error.strerror}")
            self.next = None
        self._at += self.layout.size

    def _problem(self, what: str, at: int | None = None) -> None:
        """Records the first problem; the rest of the file is not checked."""
        if not self._problems:
            self._problems.append((max(self._at, 0) if at is None else at, what, True))

    def _stop(self, what: str) -> None:
        self._problem(what)
        self.next = None


class OffsetEntries(_Entries):
    """`.index`: (relative offset, position). The entry of batches appended together may have the last offset of all."""

    layout = OFFSET_ENTRY
    indexed = -1  # the position of the last entry that agrees with the log
    _owed = -1  # an offset that a later batch must end with
    _last = -1

    def take(self, position: int, last_offset: int) -> None:
        """Compares with the next entry of the log."""
        entry = self.next
        if entry is not None and position >= entry[1]:
            relative, at = entry
            if at != position:
                return self._stop(f"position {at}, where no entry of the log begins")
            if relative <= self._last or self._owed >= 0:
                return self._stop(f"relative offset {relative} at position {at} does not follow {self._last}")
            self._last, self.indexed = relative, at
            self._owed = self._base_offset + relative
            self._advance()
        if self._owed >= 0:
            if last_offset > self._owed:
                what = f"relative offset {self._owed - self._base_offset}: no entry of the log ends with it there"
                self._owed = -1
                self._at -= self.layout.size
                return self._stop(what)
            if last_offset == self._owed:
                self._owed = -1
        return None

    def pass_over(self, position: int) -> None:
        """Skips a log entry that is not trusted: an index entry at its position may have any offset."""
        self._owed = -1
        while self.next is not None and self.next[1] <= position:
            if self.next[1] < position:
                return self._stop(f"position {self.next[1]}, where no entry of the log begins")
            self._last = max(self._last, self.next[0])
            self._advance()
        return None

    def end(self, log_bytes: int) -> list[Problem]:
        """Returns the problems, at the end of the log."""
        if self._owed >= 0:
            self._at -= self.layout.size
            self._problem(f"relative offset {self._owed - self._base_offset} lies after the log's end")
        elif self.next is not None:
            self._problem(f"position {self.next[1]}, where the log has {log_bytes} bytes")
        return self._problems


class TimeEntries(_Entries):
    """`.timeindex`: (largest timestamp so far, relative offset of the batch with it)."""

    layout = TIME_ENTRY
    taken = 0  # entries that agree with the log
    _largest_ms = _last_ms = -1
    _passed_over = False

    def take(self, header: BatchHeader) -> None:
        """Compares with the next entry of the log."""
        if self._passed_over:
            self._passed_over = False
            while self.next is not None and self._base_offset + self.next[1] < header.base_offset:
                self._last_ms = max(self._last_ms, self.next[0])
                self._advance()
        while self.next is not None and header.last_offset >= self._base_offset + self.next[1]:
            timestamp_ms, relative = self.next
            offset = self._base_offset + relative
            if timestamp_ms <= self._last_ms:
                return self._stop(f"timestamp {timestamp_ms} after {self._last_ms}")
            if header.max_timestamp != timestamp_ms or (header.magic == 2 and offset < header.base_offset):
                return self._stop(f"timestamp {timestamp_ms} at offset {offset}, by the log {header.max_timestamp}")
            if self._largest_ms > timestamp_ms:
                return self._stop(f"timestamp {timestamp_ms} at offset {offset}, where {self._largest_ms} came before")
            self._last_ms = timestamp_ms
            self.taken += 1
            self._advance()
        self._largest_ms = max(self._largest_ms, header.max_timestamp)
        return None

    def pass_over(self) -> None:
        """Skips a log entry that is not trusted: index entries of its offsets may have any timestamp."""
        self._passed_over = True

    def end(self, largest_ms: int) -> list[Problem]:
        """Returns the problems, at the end of the log. `largest_ms` is the timestamp of the last entry, -1 if any is
        valid."""
        if self._passed_over:
            return self._problems
        if self.next is not None:
            self._problem(f"relative offset {self.next[1]} lies after the log's end")
        elif self.exists and largest_ms > self._last_ms:
            self._problem(f"ends with timestamp {self._last_ms}, the log's largest is {largest_ms}")
        return self._problems


class IndexTail:
    """Whether an offset index lost entries at its end, by the batches of the segment, in order, and which of them the
    indexes have.

    A log gets an index entry with the first append after more than `index.interval.bytes`. That config is not in the
    files, but it is below the least distance of two entries, and not below the distance from an entry to the last batch
    without one. An append of several batches, as of a follower before Apache Kafka 4.0 or of a cleaner, breaks this:
    then there is no conclusion.

    An append that adds to the offset index adds to the time index, too, and so does a close. So a time entry that lies
    a whole distance after the last index entry belongs to a lost one; with no time entry after it, it may be that of a
    close after an append of several batches.
    """

    def __init__(self) -> None:
        self._indexed = 0  # the position of the last one in the offset index
        self._entries = 0
        self._least = 1 << 62  # distance of two entries
        self._most = -1  # distance from an entry to the last batch without one
        self._before = 0  # the position of the batch before
        self._times = 0
        self._tail: list[int] = []  # positions with time entries since the last one in the offset index

    def add(self, position: int, *, indexed: bool, times: int) -> None:
        """Adds a batch. `times` is the number of time entries up to it."""
        if indexed:
            self._most = max(self._most, self._before - self._indexed)
            self._least = min(self._least, position - self._indexed)
            self._indexed, self._entries = position, self._entries + 1
            self._tail.clear()
        elif times > self._times and len(self._tail) < 2:
            self._tail.append(position)
        self._times, self._before = times, position

    def problem(self) -> tuple[str, bool] | None:
        """Returns in words that entries are lost, and whether that is sure; None if not."""
        if not self._tail:
            return None
        distance = self._tail[0] - self._indexed
        if self._entries < _ENTRIES_LEAST:
            is_due, sure = self._entries == 0 and len(self._tail) > 1 and distance > _DEFAULT_INTERVAL_BYTES, False
        else:
            is_due, sure = self._most < self._least <= distance, len(self._tail) > 1
        if not is_due:
            return None
        after = f"after position {self._indexed}" if self._entries else "at all"
        may = "is cut" if sure else "may be cut"
        return f"{may}: no entry {after}, although the time index has one for position {self._tail[0]}", sure

"""Whether an offset index lost entries at its end, by the distances of those that it has.

A log gets an index entry with the first append after more than `index.interval.bytes`. That config is not in the files,
but it is below the least distance of two entries, and not below the distance from an entry to the last batch without
one. An append of several batches, as of a follower before Apache Kafka 4.0 or of a cleaner, breaks this: then there is
no conclusion.

An append that adds to the offset index adds to the time index, too, and so does a close. So a time entry that lies a
whole distance after the last index entry belongs to a lost one; with no time entry after it, it may be that of a close
after an append of several batches.
"""

from __future__ import annotations

ENTRIES_LEAST = 2
DEFAULT_INTERVAL_BYTES = 4096


class IndexTail:
    """The batches of a segment, in order, and which of them the indexes have."""

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
        if self._entries < ENTRIES_LEAST:
            is_due, sure = self._entries == 0 and len(self._tail) > 1 and distance > DEFAULT_INTERVAL_BYTES, False
        else:
            is_due, sure = self._most < self._least <= distance, len(self._tail) > 1
        if not is_due:
            return None
        after = f"after position {self._indexed}" if self._entries else "at all"
        may = "is cut" if sure else "may be cut"
        return f"{may}: no entry {after}, although the time index has one for position {self._tail[0]}", sure

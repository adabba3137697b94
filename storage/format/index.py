"""The sparse indexes of one segment, `.index` and `.timeindex`, in Apache Kafka's layout.

Entries in memory and their bytes; no I/O. Both indexes are hints: `parse` refuses impossible contents, the segment
checks every entry it follows against the batch at that position, and rebuilds both from the log when in doubt.

`.index`      8 bytes an entry: int32 relative offset of the batch's last record, int32 position of that batch.
`.timeindex` 12 bytes an entry: int64 largest timestamp so far, int32 relative offset of the batch that has it.

Relative offsets count from the segment's base offset. Numbers are big-endian. Neither file is preallocated.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import islice, pairwise
from operator import lt

from ...protocol.limits import INT32_MAX

MAX_RELATIVE_OFFSET = INT32_MAX
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES = OFFSET_ENTRY.size, TIME_ENTRY.size


def _rises(values: array[int]) -> bool:
    return all(map(lt, values, islice(values, 1, None)))


class OffsetIndex:
    """Last offsets (relative) and positions of some batches, both strictly rising.

    `saved` counts the entries that the file already holds.
    """

    __slots__ = ("offsets", "positions", "saved")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")
        self.saved = 0

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def parse(cls, data: bytes | memoryview, log_bytes: int) -> OffsetIndex | None:
        """Parses the bytes of a file; returns None if it cannot be the index of a log of `log_bytes`."""
        if len(data) % OFFSET_ENTRY_BYTES:
            return None
        numbers = array("i")
        numbers.frombytes(data)
        if sys.byteorder == "little":
            numbers.byteswap()
        index = cls()
        index.offsets, index.positions = numbers[0::2], numbers[1::2]
        index.saved = len(index.offsets)
        if index.offsets:
            in_range = index.offsets[0] >= 0 and index.positions[0] >= 0 and index.positions[-1] < log_bytes
            if not (in_range and _rises(index.offsets) and _rises(index.positions)):
                return None
        return index

    def unsaved(self) -> bytes:
        """Returns the bytes of the entries after the saved ones."""
        numbers = array("i", bytes(OFFSET_ENTRY_BYTES * (len(self) - self.saved)))
        numbers[0::2] = self.offsets[self.saved :]
        numbers[1::2] = self.positions[self.saved :]
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers.tobytes()

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def floor(self, relative_offset: int) -> int:
        """Returns the number of the last entry at or below the offset; -1 if there is none."""
        return bisect_right(self.offsets, relative_offset) - 1

    def floor_of_position(self, position: int) -> int:
        """Returns the number of the last entry at or before the position; -1 if there is none."""
        return bisect_right(self.positions, position) - 1


class TimeIndex:
    """Timestamps (ms) and the relative offsets of their batches, both rising.

    `saved` counts the entries that the file already holds.
    """

    __slots__ = ("offsets", "saved", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("i")
        self.saved = 0

    def __len__(self) -> int:
        return len(self.timestamps)

    @classmethod
    def parse(cls, data: bytes | memoryview) -> TimeIndex | None:
        """Parses the bytes of a file; returns None if they are not a time index."""
        if len(data) % TIME_ENTRY_BYTES:
            return None
        index = cls()
        entries: Iterable[tuple[int, int]] = TIME_ENTRY.iter_unpack(data)
        for timestamp, offset in entries:
            index.timestamps.append(timestamp)
            index.offsets.append(offset)
        index.saved = len(index.timestamps)
        if index.timestamps:
            offsets_rise = index.offsets[0] >= 0 and all(a <= b for a, b in pairwise(index.offsets))
            if not (index.timestamps[0] >= 0 and offsets_rise and _rises(index.timestamps)):
                return None
        return index

    def unsaved(self) -> bytes:
        """Returns the bytes of the entries after the saved ones."""
        return b"".join(
            TIME_ENTRY.pack(self.timestamps[number], self.offsets[number]) for number in range(self.saved, len(self))
        )

    def maybe_append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Adds an entry if the timestamp is later than that of the last one; -1, no timestamp, never is."""
        last = self.timestamps[-1] if self.timestamps else -1
        if timestamp_ms > last:
            self.timestamps.append(timestamp_ms)
            self.offsets.append(relative_offset)

    def below(self, timestamp_ms: int) -> int:
        """Returns the number of the last entry earlier than the timestamp; -1 if there is none.

        All batches up to that entry's own are earlier, so a search for the timestamp may begin there.
        """
        return bisect_left(self.timestamps, timestamp_ms) - 1

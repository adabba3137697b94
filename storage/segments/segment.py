"""One segment of a partition log: whole entries in one `.log` file, with its two sparse indexes.

Manages the files `<base offset, 20 digits>.log|.index|.timeindex`, their sizes and their state in memory; rolling,
recovery and retention are decided elsewhere. Positions count bytes from the start of the `.log`; only bytes below
`size_bytes` belong to the log, even if the file is longer.

An entry ("batch" in the names here) is a v2 batch, or a message of format v0 or v1, which may be a wrapper around a
compressed set; a segment may contain all of them. The header of a message has its last offset, and a wrapper's first
one is known only after decompression: searches for an offset therefore take the first entry that ends at or above it.

Files are opened when first needed. The indexes are loaded (or rebuilt) when first needed and written by `save_indexes`,
which a roll and a clean close call: in between they are only in memory, and an unclean shutdown rebuilds them.
"""

from __future__ import annotations

import contextlib
import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from ...protocol.records.batch import HEADER_BYTES, MAGIC, BatchHeader
from ...protocol.records.errors import CorruptRecords
from ...protocol.records.formats import MIN_ENTRY_BYTES, crc_matches, read_header
from ...protocol.records.layout import MAGIC_AT, OFFSET_AND_LENGTH, PREFIX_BYTES
from ..errors import DamagedEntry, StorageError, storage_errors
from ..format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from ..io.files import File, Files

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)

# A look-up reads this much after an index entry at once: the batch is at most index.interval.bytes and a batch away.
_SCAN_BYTES = 8 * 1024
# The number of newest batches whose exact positions are kept, so that a consumer at the tail is served without reading
# the disk. 12 bytes each; one half is dropped when full.
_TAIL_BATCHES = 2048
# base offset, batch length, last offset delta of a v2 header; the first two are a message's offset and size
_OFFSETS = struct.Struct(">qi11xi")


def file_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """Returns the name of a segment's file: its base offset in 20 digits, and a suffix."""
    return f"{base_offset:020d}{suffix}"


class Segment:
    """A segment. Raises StorageError (or OSError, if documented) only."""

    __slots__ = (
        "_file",
        "_files",
        "_index_interval_bytes",
        "_is_end_assumed",
        "_loaded",
        "_log_path",
        "_offset_index",
        "_since_index_bytes",
        "_tail_ends",
        "_tail_positions",
        "_tail_start",
        "_time_index",
        "_torn",
        "_unsaved",
        "_unsynced",
        "base_offset",
        "created_ms",
        "first_timestamp_ms",
        "is_doubtful",
        "is_removed",
        "jitter_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "next_offset",
        "size_bytes",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, size_bytes: int, index_interval_bytes: int):
        """Describes a segment of `size_bytes` in `directory`; touches no file. Its owner sets `next_offset`."""
        self._files = files
        self._log_path = os.path.join(directory, file_name(base_offset))
        self._file: File | None = None
        self._index_interval_bytes = index_interval_bytes
        self._loaded = size_bytes == 0
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._since_index_bytes = 0
        self._torn = False
        self._is_end_assumed = False
        self._unsaved = False  # whether the index files lack entries
        self._unsynced: set[str] = set()  # suffixes of the files written since their last sync
        self._tail_start = base_offset  # the first offset in the tail
        self._tail_ends = array("q")  # last offsets
        self._tail_positions = array("i")
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes: int = size_bytes
        self.is_removed = False
        self.is_doubtful = False  # its end differs from the assumed one: the next start has to recover it
        self.created_ms = 0
        self.jitter_ms = 0
        self.first_timestamp_ms: int | None = None  # the largest of the first batch; None until known
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset  # the last offset of the batch with it

    @classmethod
    def create(
        cls, files: Files, directory: str, base_offset: int, index_interval_bytes: int, *, now_ms: int, jitter_ms: int
    ) -> Segment:
        """Makes a new, empty segment. A file of that name, left by a failed attempt, is emptied. Raises OSError."""
        segment = cls(files, directory, base_offset, 0, index_interval_bytes)
        segment._unsaved = True
        segment.created_ms = now_ms
        segment.jitter_ms = jitter_ms
        segment._file = file = files.open(segment._log_path, create=True)
        if file.size():
            file.truncate(0)
        return segment

    # -- the log file

    def path(self, suffix: str) -> str:
        """Returns the path of one of the segment's files."""
        return self._log_path.removesuffix(LOG_SUFFIX) + suffix

    def _opened(self) -> File:
        self._file = self._file or self._files.open(self._log_path)
        return self._file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def read(self, position: int, length: int) -> bytes | memoryview:
        try:
            return self._opened().read(position, length)
        except OSError as error:
            raise StorageError(f"cannot read {self._log_path}: {error}") from error

    def read_batches(self, position: int, length: int) -> bytes | memoryview:
        """Reads from the beginning of a batch, whose size is checked: that of an old index entry, or in a file that was
        changed, may be no batch's. Raises DamagedEntry."""
        data = self.read(position, length)
        if length >= PREFIX_BYTES:
            _, size = OFFSET_AND_LENGTH.unpack_from(data)
            if not MIN_ENTRY_BYTES <= size + PREFIX_BYTES <= self.size_bytes - position:
                what = f"a batch of {size + PREFIX_BYTES} bytes"
                raise DamagedEntry(f"{self._log_path} at byte {position}: {what}")
        return data

    @property
    def is_loaded(self) -> bool:
        """Whether the indexes and the end are known."""
        return self._loaded

    def append(self, buffer: bytes | bytearray | memoryview, headers: Sequence[BatchHeader]) -> None:
        """Appends whole batches, with final headers and offsets, in one write.

        `headers` has one for each entry in the buffer. After StorageError the segment is unchanged: bytes that reached
        the file are cut off, at once or, if that fails too, before the next write.
        """
        self.load()  # otherwise the indexes of a segment that was never loaded, as after an upgrade, would begin here
        try:
            self.cut_torn()
            file = self._opened()
            self._torn = True
            self._unsynced.add(LOG_SUFFIX)
            file.write(self.size_bytes, buffer)
            self._unsynced.add(LOG_SUFFIX)  # again: a sync in another thread may have begun before the write
            self._torn = False
        except OSError as error:
            with contextlib.suppress(OSError):  # tried again before the next write and at close
                self.cut_torn()
            raise StorageError(f"cannot append to {self._log_path}: {error}") from error
        self._unsaved = True
        ends, positions, position = self._tail_ends, self._tail_positions, self.size_bytes
        if not ends:
            self._tail_start = self.next_offset
        for header in headers:
            if len(ends) >= _TAIL_BATCHES:
                self._tail_start = ends[_TAIL_BATCHES // 2 - 1] + 1
                del ends[: _TAIL_BATCHES // 2], positions[: _TAIL_BATCHES // 2]
            self.count(header, position)
            ends.append(header.base_offset + header.last_offset_delta)
            positions.append(position)
            position += PREFIX_BYTES + header.batch_length
        self.size_bytes = position

    def cut_torn(self, *, look: bool = False) -> None:
        """Removes bytes of a failed write after the last batch; with `look` also those of another program that wrote
        there without the lock. Raises OSError."""
        if look and self._file is not None and self._file.size() > self.size_bytes:
            self._torn = True
        if self._torn:
            self.truncate(self.size_bytes)

    def truncate(self, size_bytes: int) -> None:
        """Cuts the log at the end of a batch. The caller counts the batches again. Raises OSError."""
        self._unsynced.add(LOG_SUFFIX)
        self._opened().truncate(size_bytes)
        self.size_bytes: int = size_bytes
        self._torn = False

    def doubt_files(self) -> None:
        """Marks all files as unsynced, as after a kill: their contents may not be durable."""
        self._unsynced.update(SUFFIXES)
        # Otherwise `times_ms` would open the log and close it again, perhaps while another thread syncs it.
        with contextlib.suppress(OSError):
            self._opened()

    def sync(self) -> None:
        """Makes everything written since the last sync durable, in the log and in the index files. Raises OSError."""
        for suffix in SUFFIXES:
            if suffix in self._unsynced:
                # first: writes of another thread in the meantime need a sync of their own
                self._unsynced.discard(suffix)
                try:
                    self._sync_file(suffix)
                except OSError:
                    self._unsynced.add(suffix)
                    if not self.is_removed:  # a removed file need not be durable
                        raise

    def _sync_file(self, suffix: str) -> None:
        if suffix == LOG_SUFFIX:
            self._opened().sync()
            return
        with contextlib.suppress(FileNotFoundError), contextlib.closing(self._files.open(self.path(suffix))) as file:
            file.sync()

    def close(self) -> None:
        """Closes the descriptor. Slices that were read stay valid. Raises OSError."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    # -- batches

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yields (position, header) of each batch from a batch's position on. CRCs are not checked."""
        data = memoryview(self.read(0, self.size_bytes)) if self.size_bytes > position else memoryview(b"")
        while position < self.size_bytes:
            try:
                header = read_header(data, position)
            except CorruptRecords as error:
                raise DamagedEntry(f"{self._log_path} at byte {position}: {error}") from error
            if position + header.size_bytes > self.size_bytes:
                raise DamagedEntry(f"{self._log_path} at byte {position}: the batch ends after the file")
            yield position, header
            position += header.size_bytes

    def header(self, position: int) -> BatchHeader:
        """Returns the header of the batch at a position."""
        try:
            length = min(HEADER_BYTES, max(self.size_bytes - position, 0))
            return read_header(self.read(position, length), whole=False)
        except CorruptRecords as error:
            raise DamagedEntry(f"{self._log_path} at byte {position}: {error}") from error

    def first_timestamp(self) -> int:
        """Returns the largest timestamp of the first batch in ms; -1 if there is none."""
        if self.first_timestamp_ms is None:
            if self.size_bytes == 0:
                return -1
            self.first_timestamp_ms = self.header(0).max_timestamp
        return self.first_timestamp_ms

    def count(self, header: BatchHeader, position: int) -> None:
        """Adds a batch at `position` to the indexes and the largest timestamp, by the rule of Kafka 3.9 and 4.1+.

        A batch gets an entry once more than index.interval.bytes lie between it and the batch with the last entry (or
        the start of the segment), so the first batch never has one. The indexes depend on the log only.
        """
        last_relative = header.base_offset + header.last_offset_delta - self.base_offset
        if position == 0:
            self.first_timestamp_ms = header.max_timestamp
        if header.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp
            self.max_timestamp_offset = self.base_offset + last_relative
        if self._since_index_bytes > self._index_interval_bytes:
            self._offset_index.append(last_relative, position)
            self._time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
            self._since_index_bytes = 0
        self._since_index_bytes += header.size_bytes
        self.next_offset = self.base_offset + last_relative + 1

    # -- the indexes

    def reset(self) -> None:
        """Clears the indexes and counts, to count again from the first batch on."""
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
        self._since_index_bytes = 0
        self._loaded = self._unsaved = True
        self._tail_ends, self._tail_positions = array("q"), array("i")
        self.first_timestamp_ms = None
        self.max_timestamp_ms, self.max_timestamp_offset = -1, self.base_offset
        self.next_offset = self.base_offset

    def rebuild(self) -> None:
        """Counts every batch of the log again."""
        next_offset = self.next_offset
        self.reset()
        for position, header in self.batches():
            self.count(header, position)
        self._settle_end(next_offset)

    def load(self) -> None:
        """Reads both index files and counts the batches after their last entries.

        An index that is missing or contradicts the log is rebuilt. Raises StorageError if the log does not end with a
        whole batch.
        """
        if self._loaded:
            return
        known_offset = self.next_offset
        try:
            if not self._load_files() or not self._count_tail():
                self.rebuild()
        except StorageError as error:
            self.is_doubtful = self._is_end_assumed and not isinstance(error.__cause__, OSError)
            self.next_offset, self._loaded, self._unsaved = known_offset, False, False
            raise

    def _load_files(self) -> bool:
        """Returns whether both files could be read and the last entry of each is valid."""
        try:
            offset_index = OffsetIndex.parse(self._files.read_bytes(self.path(INDEX_SUFFIX)), self.size_bytes)
            time_index = TimeIndex.parse(self._files.read_bytes(self.path(TIME_INDEX_SUFFIX)))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError(f"cannot read the indexes of {self._log_path}: {error}") from error
        if offset_index is None or time_index is None:
            return False
        if len(offset_index) and not self.points_at(offset_index.positions[-1], offset_index.offsets[-1]):
            return False
        self._offset_index, self._time_index = offset_index, time_index
        if len(time_index):
            timestamp_ms, offset = time_index.timestamps[-1], self.base_offset + time_index.offsets[-1]
            if not self._entry_is_true(offset):
                return False
            last_offset = self._end_of_true(self._scan(offset), offset, timestamp_ms)
            if last_offset is None:
                return False
            self.max_timestamp_ms, self.max_timestamp_offset = timestamp_ms, last_offset
        return True

    def _count_tail(self) -> bool:
        """Counts the batch of the last offset entry and those after it; returns False if the time index lacks one of
        them.

        A saved time index has the largest timestamp, so none of the tail's may be later.
        """
        next_offset, known_timestamp_ms = self.next_offset, self.max_timestamp_ms
        self._loaded = True
        self._since_index_bytes = 0
        tail = self.batches(self._offset_index.positions[-1] if len(self._offset_index) else 0)
        try:
            for position, header in tail:
                self.count(header, position)
        except StorageError:
            self._loaded = False
            raise
        self._settle_end(next_offset)
        return self.max_timestamp_ms == known_timestamp_ms

    def assume_end(self, next_offset: int) -> None:
        """Sets the end of the segment as recorded when it was closed; assumed until the first `load`, which verifies
        it."""
        self.next_offset = next_offset
        self._is_end_assumed = True

    def _settle_end(self, known_offset: int) -> None:
        """Compares the counted end with the known one. The base of the next segment bounds a damaged last batch."""
        if self._is_end_assumed and self.next_offset != known_offset:
            what = f"ends at offset {self.next_offset}, not at {known_offset} as when it was closed"
            raise StorageError(f"{self._log_path} {what}")
        self._is_end_assumed = False
        self.next_offset = known_offset if known_offset > self.base_offset else self.next_offset

    def _end_of_true(self, position: int | None, offset: int, timestamp_ms: int) -> int | None:
        """Returns the last offset of the batch at a position if a time entry matches it, otherwise None.

        Kafka 2.8 stores the record of an uncompressed batch that has the timestamp, not the batch's last offset.
        """
        if position is None:
            return None
        header = self.header(position)
        begins_there = header.magic < MAGIC or header.base_offset <= offset
        return header.last_offset if begins_there and header.max_timestamp == timestamp_ms else None

    def points_at(self, position: int, relative_offset: int) -> bool:
        """Returns whether an index entry is valid: the batch at the position ends with the offset.

        Or a later one does: for batches that were appended or cleaned together Kafka up to 3.8 stores the position of
        the first and the offset of the last.
        """
        offset, left = self.base_offset + relative_offset, self.size_bytes - position
        if left < MIN_ENTRY_BYTES:
            return False
        data = self.read(position, min(HEADER_BYTES, left))
        if data[MAGIC_AT] < MAGIC:
            last, length = OFFSET_AND_LENGTH.unpack_from(data)
            smallest = MIN_ENTRY_BYTES
        elif left >= HEADER_BYTES:
            base, length, delta = _OFFSETS.unpack_from(data)
            last, smallest = base + delta, HEADER_BYTES
        else:
            return False
        if not smallest <= PREFIX_BYTES + length <= left:
            return False
        return last == offset or (last < offset and self._is_first_of_several(position, offset))

    def _is_first_of_several(self, position: int, offset: int) -> bool:
        """Returns whether a sound batch lies at the position, and a later one ends with the offset."""
        with contextlib.suppress(StorageError, CorruptRecords):
            batches = self.walk(position)
            _, size, _ = next(batches)
            data = self.read(position, size)
            if crc_matches(data, 0, read_header(data)):
                return offset == next((last for _, _, last in batches if last >= offset), None)
        return False

    def save_indexes(self) -> bool:
        """Updates both index files; the time index ends with the segment's largest timestamp. Returns whether one
        changed and needs a sync: not if both are empty. Raises OSError."""
        if not self._unsaved:
            return False
        self._time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
        for index, suffix, entry_bytes in (
            (self._offset_index, INDEX_SUFFIX, OFFSET_ENTRY_BYTES),
            (self._time_index, TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES),
        ):
            with contextlib.closing(self._files.open(self.path(suffix), create=True)) as file:
                if index.saved < len(index):
                    file.write(entry_bytes * index.saved, index.unsaved())
                    self._unsynced.add(suffix)
                if file.size() != entry_bytes * len(index):
                    file.truncate(entry_bytes * len(index))
                    self._unsynced.add(suffix)
                index.saved = len(index)
        self._unsaved = False
        return not self._unsynced.isdisjoint((INDEX_SUFFIX, TIME_INDEX_SUFFIX))

    def is_index_full(self, index_bytes: int, entries: int = 1) -> bool:
        """Returns whether an index lacks room for as many entries in files of segment.index.bytes; the last time entry
        is reserved for the roll."""
        return len(self._offset_index) + entries > index_bytes // OFFSET_ENTRY_BYTES or (
            len(self._time_index) + entries > index_bytes // TIME_ENTRY_BYTES - 1
        )

    # -- look-ups

    def position_of(self, offset: int) -> int | None:
        """Returns the position of the batch that contains the offset, or of the first one after it; None if there is
        none."""
        if offset >= self.next_offset:
            return None
        if offset >= self._tail_start and len(self._tail_ends):
            return self._tail_positions[bisect_left(self._tail_ends, offset)]
        self.load()
        return self._position(offset)

    def _position(self, offset: int) -> int | None:
        """Like `position_of`, from the loaded sparse index, which is rebuilt if its entry is invalid."""
        if not self._entry_is_true(offset):
            self.rebuild()
        return self._scan(offset)

    def _entry_is_true(self, offset: int) -> bool:
        """Returns whether the index entry for the offset points at its batch."""
        index = self._offset_index
        entry = index.floor(offset - self.base_offset)
        return entry < 0 or self.points_at(index.positions[entry], index.offsets[entry])

    def _scan(self, offset: int) -> int | None:
        """Looks up an entry of the sparse index, then the few headers after it."""
        entry = self._offset_index.floor(offset - self.base_offset)
        for at, _, last_offset in self.walk(self._offset_index.positions[entry] if entry >= 0 else 0):
            if last_offset >= offset:
                return at
        return None

    def walk(self, position: int) -> Iterator[tuple[int, int, int]]:
        """Yields (position, size, last offset) of the batches from a batch's position on."""
        chunk, chunk_position = b"", position
        while position < self.size_bytes:
            start = position - chunk_position
            if start + HEADER_BYTES > len(chunk):
                chunk = self.read(position, min(_SCAN_BYTES, self.size_bytes - position))
                chunk_position, start = position, 0
                if len(chunk) < MIN_ENTRY_BYTES:
                    raise DamagedEntry(f"{self._log_path} ends inside of a batch header")
            if chunk[start + MAGIC_AT] < MAGIC:
                last, length = OFFSET_AND_LENGTH.unpack_from(chunk, start)
                delta, smallest = 0, MIN_ENTRY_BYTES
            elif start + HEADER_BYTES <= len(chunk):
                base, length, delta = _OFFSETS.unpack_from(chunk, start)
                last, smallest = base + delta, HEADER_BYTES
            else:
                raise DamagedEntry(f"{self._log_path} ends inside of a batch header")
            size = PREFIX_BYTES + length
            if delta < 0 or size < smallest or position + size > self.size_bytes:  # otherwise a reader would skip it
                raise DamagedEntry(f"{self._log_path} at byte {position}: a batch of {size} bytes, {delta + 1} offsets")
            yield position, size, last
            position += size

    def end_of_whole(self, position: int, limit: int) -> int:
        """Returns the end of the last whole batch from `position` on that ends at or below `limit`; `position` if none
        does."""
        if limit >= self.size_bytes:
            return self.size_bytes
        if len(self._tail_positions) and limit >= self._tail_positions[0]:
            return max(position, self._tail_positions[bisect_right(self._tail_positions, limit) - 1])
        self.load()
        entry = self._offset_index.floor_of_position(limit)
        end = position
        if entry >= 0 and self._offset_index.positions[entry] > position:
            end = self._offset_index.positions[entry]
            if not self.points_at(end, self._offset_index.offsets[entry]):
                self.rebuild()
                return self.end_of_whole(position, limit)
        for at, size, _ in self.walk(end):
            if at + size > limit:
                break
            end = at + size
        return end

    def end_below(self, offset: int) -> int:
        """Returns the position of the first batch that reaches the offset; the end of the segment if none does."""
        position = None if offset >= self.next_offset else self.position_of(offset)
        return self.size_bytes if position is None else position

    def boundaries(self, position: int) -> list[int]:
        """Returns the positions of some batches, rising, from one at or before `position` on."""
        self.load()
        index = self._offset_index
        entry = index.floor_of_position(position)
        if entry < 0:
            return [0, *index.positions]
        if not self.points_at(index.positions[entry], index.offsets[entry]):
            self.rebuild()
            return self.boundaries(position)
        return index.positions[entry:].tolist()

    def batch_end(self, position: int) -> int:
        """Returns the end of the batch at a position."""
        for at, size, _ in self.walk(position):
            return at + size
        raise StorageError(f"{self._log_path} has no batch at byte {position}")

    def indexed_offset_from(self, position: int) -> int | None:
        """Returns the offset of the first index entry at or after a position; None if there is none."""
        self.load()
        entry = bisect_left(self._offset_index.positions, position)
        return self.base_offset + self._offset_index.offsets[entry] if entry < len(self._offset_index) else None

    def bytes_from(self, offset: int) -> int:
        """Returns the bytes from the batch that contains the offset to the end, without reading the disk.

        Exact for the newest batches and the segment's start; otherwise up to an index interval and a batch too many.
        """
        if offset >= self.next_offset:
            return 0
        if offset >= self._tail_start and len(self._tail_ends):
            return self.size_bytes - self._tail_positions[bisect_left(self._tail_ends, offset)]
        entry = self._offset_index.floor(offset - self.base_offset)
        return self.size_bytes - (self._offset_index.positions[entry] if entry >= 0 else 0)

    def largest_timestamp(self) -> tuple[int, int]:
        """Returns (largest timestamp in ms or -1, last offset of the first batch that has it)."""
        self.load()
        return self.max_timestamp_ms, self.max_timestamp_offset

    def retention_time_ms(self) -> int:
        """Returns the time for retention.ms: the largest timestamp, or the modification time of the file. Raises
        StorageError."""
        largest_ms, _ = self.times_ms()
        return largest_ms if largest_ms >= 0 else self.modified_ns() // 1_000_000

    def times_ms(self) -> tuple[int, int]:
        """Returns the largest timestamp of all records and that of the first batch; -1 if there is none.

        Closes a descriptor that was opened for this, since every partition is checked periodically. Raises
        StorageError.
        """
        was_open = self.is_open
        try:
            return self.largest_timestamp()[0], self.first_timestamp()
        finally:
            if not was_open:
                with contextlib.suppress(OSError):
                    self.close()

    def modified_ns(self) -> int:
        """Returns when the file was last changed, in ns since 1970. Raises StorageError."""
        with storage_errors(f"cannot read the modification time of {self._log_path}"):
            return self._files.modified_ns(self._log_path)

    def batches_not_before(self, timestamp_ms: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yields (position, header) of the batches with a record at or after the timestamp, oldest first."""
        self.load()
        entry = self._time_index.below(timestamp_ms)
        position: int | None = 0
        if entry >= 0:
            # All batches up to this entry's are earlier, if the entry is valid.
            offset = self.base_offset + self._time_index.offsets[entry]
            position = self._position(offset)
            if self._end_of_true(position, offset, self._time_index.timestamps[entry]) is None:
                self.rebuild()
                position = 0
        for at, header in self.batches(position or 0):
            if header.max_timestamp >= timestamp_ms:
                yield at, header

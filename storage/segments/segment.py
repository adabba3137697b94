"""One segment of a partition log: a run of whole entries in one `.log` file, with its two sparse indexes.

Owns the files `<base offset, 20 digits>.log|.index|.timeindex`, their sizes and what is kept of them in memory. Decides
nothing about rolling, recovery or retention. Positions count bytes from the start of the `.log`; only bytes below
`size_bytes` belong to the log, whatever the file holds behind them.

An entry ("batch" in the names here) is a v2 batch, or a message of format v0 or v1, which may be a wrapper around a
compressed set; one segment may hold all of them. The header of a message tells its last offset, and a wrapper's first
one is known only when it is opened: so whatever looks for an offset takes the first entry that ends at it or behind.

Files are opened when first needed. The indexes are loaded (or rebuilt) when first needed and written by `save_indexes`,
which a roll and a clean close call: between the two they live in memory, and an unclean stop rebuilds them.
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
from ..errors import StorageError
from ..format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from ..io.files import File, Files

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)

# A look-up reads this much behind an index entry at once: an entry is at most index.interval.bytes and a batch away.
_SCAN_BYTES = 8 * 1024
# Newest batches whose exact positions are kept, so that a consumer at the tail is answered without reading the disk.
# 12 bytes each; one half is dropped when full.
_TAIL_BATCHES = 2048
# base offset, batch length, last offset delta of a v2 header; the first two are a message's offset and size
_OFFSETS = struct.Struct(">qi11xi")


def file_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """The name of a segment's file: its base offset in 20 digits."""
    return f"{base_offset:020d}{suffix}"


class Segment:
    """See the module. Raises StorageError (or OSError, where said) and nothing else."""

    __slots__ = (
        "_file",
        "_files",
        "_index_interval_bytes",
        "_is_end_told",
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
        """A segment of `size_bytes` that lies in `directory`; touches no file. `next_offset` is its owner's to set."""
        self._files = files
        self._log_path = os.path.join(directory, file_name(base_offset))
        self._file: File | None = None
        self._index_interval_bytes = index_interval_bytes
        self._loaded = size_bytes == 0
        self._offset_index = OffsetIndex()
        self._time_index = TimeIndex()
        self._since_index_bytes = 0
        self._torn = False
        self._is_end_told = False
        self._unsaved = False  # whether the index files lack something
        self._unsynced: set[str] = set()  # the suffixes of files that were written since their last sync
        self._tail_start = base_offset  # the first offset that the tail knows
        self._tail_ends = array("q")  # last offsets
        self._tail_positions = array("i")
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes: int = size_bytes
        self.is_removed = False
        self.is_doubtful = False  # its end was told, and is not so: who opens it next has to recover it
        self.created_ms = 0
        self.jitter_ms = 0
        self.first_timestamp_ms: int | None = None  # the first batch's largest; None until known
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset  # the last offset of the batch that brought it

    @classmethod
    def create(
        cls, files: Files, directory: str, base_offset: int, index_interval_bytes: int, *, now_ms: int, jitter_ms: int
    ) -> Segment:
        """A new, empty segment. A file of that name, left by a create that failed half way, is emptied. OSError."""
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
        """The path of one of the segment's files."""
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

    def append(self, buffer: bytes | bytearray | memoryview, headers: Sequence[BatchHeader]) -> None:
        """Writes whole batches, whose headers and offsets are final, behind the others, in one write.

        `headers` has one for each entry of the buffer, which they fill. After StorageError the segment is as before:
        bytes that reached the file are cut off again, now or, where that fails too, before the next write.
        """
        self.load()  # of one that was never looked at, as an upgrade leaves it, the indexes would begin here
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
        """Removes what a failed write may have left behind the last batch; with `look` also what somebody else wrote
        there, who did not ask for the lock. OSError."""
        if look and self._file is not None and self._file.size() > self.size_bytes:
            self._torn = True
        if self._torn:
            self.truncate(self.size_bytes)

    def truncate(self, size_bytes: int) -> None:
        """Cuts the log at a batch's end. The caller counts the batches anew. OSError."""
        self._unsynced.add(LOG_SUFFIX)
        self._opened().truncate(size_bytes)
        self.size_bytes: int = size_bytes
        self._torn = False

    def doubt_files(self) -> None:
        """Has the next sync cover all files, as after a kill: what was found in them may not be durable."""
        self._unsynced.update(SUFFIXES)

    def sync(self) -> None:
        """Makes all that was written since the last sync durable, in the log and in the index files. OSError."""
        for suffix in SUFFIXES:
            if suffix in self._unsynced:
                self._unsynced.discard(suffix)  # first: what another thread writes meanwhile needs a sync of its own
                try:
                    self._sync_file(suffix)
                except OSError:
                    self._unsynced.add(suffix)
                    if not self.is_removed:  # else nothing of it has to be durable any more
                        raise

    def _sync_file(self, suffix: str) -> None:
        if suffix == LOG_SUFFIX:
            self._opened().sync()
            return
        with contextlib.suppress(FileNotFoundError), contextlib.closing(self._files.open(self.path(suffix))) as file:
            file.sync()

    def close(self) -> None:
        """Gives the descriptor back. Slices that were read stay valid. OSError."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    # -- batches

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from a batch's position on. No CRC is checked."""
        data = memoryview(self.read(0, self.size_bytes)) if self.size_bytes > position else memoryview(b"")
        while position < self.size_bytes:
            try:
                header = read_header(data, position)
            except CorruptRecords as error:
                raise StorageError(f"{self._log_path} at byte {position}: {error}") from error
            if position + header.size_bytes > self.size_bytes:
                raise StorageError(f"{self._log_path} at byte {position}: the batch ends behind the file")
            yield position, header
            position += header.size_bytes

    def header(self, position: int) -> BatchHeader:
        """The header of the batch at a position."""
        try:
            length = min(HEADER_BYTES, max(self.size_bytes - position, 0))
            return read_header(self.read(position, length), whole=False)
        except CorruptRecords as error:
            raise StorageError(f"{self._log_path} at byte {position}: {error}") from error

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch in ms; -1 if there is none."""
        if self.first_timestamp_ms is None:
            if self.size_bytes == 0:
                return -1
            self.first_timestamp_ms = self.header(0).max_timestamp
        return self.first_timestamp_ms

    def count(self, header: BatchHeader, position: int) -> None:
        """Takes a batch at `position` into the indexes and the largest timestamp, by the rule of Kafka 3.9 and 4.1+.

        An entry is made for a batch once more than index.interval.bytes lie between the batch that has the last entry
        (or the start of the segment) and it, so the first batch never has one. The indexes depend on the log only.
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
        """Forgets the indexes and all that was counted, to count anew from the first batch on."""
        self._offset_index, self._time_index = OffsetIndex(), TimeIndex()
        self._since_index_bytes = 0
        self._loaded = self._unsaved = True
        self._tail_ends, self._tail_positions = array("q"), array("i")
        self.first_timestamp_ms = None
        self.max_timestamp_ms, self.max_timestamp_offset = -1, self.base_offset
        self.next_offset = self.base_offset

    def rebuild(self) -> None:
        """Counts every batch of the log anew."""
        next_offset = self.next_offset
        self.reset()
        for position, header in self.batches():
            self.count(header, position)
        self._settle_end(next_offset)

    def load(self) -> None:
        """Reads both index files and counts the batches behind their last entries.

        What is missing or contradicts the log is rebuilt from it. StorageError if the log does not end with a whole
        batch.
        """
        if self._loaded:
            return
        told_offset = self.next_offset
        try:
            if not self._load_files() or not self._count_tail():
                self.rebuild()
        except StorageError as error:
            self.is_doubtful = self._is_end_told and not isinstance(error.__cause__, OSError)
            self.next_offset, self._loaded, self._unsaved = told_offset, False, False
            raise

    def _load_files(self) -> bool:
        """Whether both files could be read and the last entry of each is true."""
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
        """Counts the batch of the last offset entry and those behind it; False if the time index misses one of them.

        A time index that was saved knows the largest timestamp, so none of the tail's may be later.
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

    def tell_end(self, next_offset: int) -> None:
        """Where the segment ends, as its last user told when it closed it: believed until the first `load`."""
        self.next_offset = next_offset
        self._is_end_told = True

    def _settle_end(self, told_offset: int) -> None:
        """Compares what was counted with what was known before. The next segment's base bounds a damaged last batch."""
        if self._is_end_told and self.next_offset != told_offset:
            what = f"ends at offset {self.next_offset}, not at {told_offset} as when it was closed"
            raise StorageError(f"{self._log_path} {what}")
        self._is_end_told = False
        self.next_offset = told_offset if told_offset > self.base_offset else self.next_offset

    def _end_of_true(self, position: int | None, offset: int, timestamp_ms: int) -> int | None:
        """The last offset of the batch at a position if it is the one that a time entry speaks of, else None.

        Kafka 2.8 names the record of an uncompressed batch that has the timestamp, not the batch's last.
        """
        if position is None:
            return None
        header = self.header(position)
        begins_there = header.magic < MAGIC or header.base_offset <= offset
        return header.last_offset if begins_there and header.max_timestamp == timestamp_ms else None

    def points_at(self, position: int, relative_offset: int) -> bool:
        """Whether an index entry is true: the batch at the position ends with the offset.

        Or one behind it does: of batches that were appended or cleaned together Kafka up to 3.8 notes the position of
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
        """Whether a sound batch lies at the position, and one behind it ends with the offset."""
        with contextlib.suppress(StorageError, CorruptRecords):
            batches = self.walk(position)
            _, size, _ = next(batches)
            data = self.read(position, size)
            if crc_matches(data, 0, read_header(data)):
                return offset == next((last for _, _, last in batches if last >= offset), None)
        return False

    def save_indexes(self) -> bool:
        """Brings both index files up to date; the time index ends with the segment's largest timestamp. Whether one
        changed, so is to be synced: not if both are empty. OSError."""
        if not self._unsaved:
            return False
        self._time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
        for index, suffix, entry_bytes in (
            (self._offset_index, INDEX_SUFFIX, OFFSET_ENTRY_BYTES),
            (self._time_index, TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES),
        ):
            file = self._files.open(self.path(suffix), create=True)
            try:
                if index.saved < len(index):
                    file.write(entry_bytes * index.saved, index.unsaved())
                    self._unsynced.add(suffix)
                if file.size() != entry_bytes * len(index):
                    file.truncate(entry_bytes * len(index))
                    self._unsynced.add(suffix)
                index.saved = len(index)
            finally:
                file.close()
        self._unsaved = False
        return not self._unsynced.isdisjoint((INDEX_SUFFIX, TIME_INDEX_SUFFIX))

    def is_index_full(self, index_bytes: int, entries: int = 1) -> bool:
        """Whether an index has no room left for as many entries in files of segment.index.bytes; the last time entry is
        the roll's."""
        return len(self._offset_index) + entries > index_bytes // OFFSET_ENTRY_BYTES or (
            len(self._time_index) + entries > index_bytes // TIME_ENTRY_BYTES - 1
        )

    # -- look-ups

    def position_of(self, offset: int) -> int | None:
        """The position of the batch that holds the offset, or of the first one behind it; None if there is none."""
        if offset >= self.next_offset:
            return None
        if offset >= self._tail_start and len(self._tail_ends):
            return self._tail_positions[bisect_left(self._tail_ends, offset)]
        self.load()
        return self._position(offset)

    def _position(self, offset: int) -> int | None:
        """As `position_of`, from the loaded sparse index, which is rebuilt if the entry it gives is not true."""
        if not self._entry_is_true(offset):
            self.rebuild()
        return self._scan(offset)

    def _entry_is_true(self, offset: int) -> bool:
        """Whether the entry by which the offset is looked up points at its batch."""
        index = self._offset_index
        entry = index.floor(offset - self.base_offset)
        return entry < 0 or self.points_at(index.positions[entry], index.offsets[entry])

    def _scan(self, offset: int) -> int | None:
        """One entry of the sparse index, then the few headers behind it."""
        entry = self._offset_index.floor(offset - self.base_offset)
        for at, _, last_offset in self.walk(self._offset_index.positions[entry] if entry >= 0 else 0):
            if last_offset >= offset:
                return at
        return None

    def walk(self, position: int) -> Iterator[tuple[int, int, int]]:
        """(position, size, last offset) of the batches from a batch's position on."""
        chunk, chunk_position = b"", position
        while position < self.size_bytes:
            start = position - chunk_position
            if start + HEADER_BYTES > len(chunk):
                chunk = self.read(position, min(_SCAN_BYTES, self.size_bytes - position))
                chunk_position, start = position, 0
                if len(chunk) < MIN_ENTRY_BYTES:
                    raise StorageError(f"{self._log_path} ends inside of a batch header")
            if chunk[start + MAGIC_AT] < MAGIC:
                last, length = OFFSET_AND_LENGTH.unpack_from(chunk, start)
                delta, smallest = 0, MIN_ENTRY_BYTES
            elif start + HEADER_BYTES <= len(chunk):
                base, length, delta = _OFFSETS.unpack_from(chunk, start)
                last, smallest = base + delta, HEADER_BYTES
            else:
                raise StorageError(f"{self._log_path} ends inside of a batch header")
            size = PREFIX_BYTES + length
            if delta < 0 or size < smallest or position + size > self.size_bytes:  # else a reader would pass it over
                raise StorageError(f"{self._log_path} at byte {position}: a batch of {size} bytes, {delta + 1} offsets")
            yield position, size, last
            position += size

    def end_of_whole(self, position: int, limit: int) -> int:
        """The end of the last whole batch from `position` on that ends at or below `limit`; `position` if none does."""
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
        """Where the first batch that reaches the offset begins; the end of the segment if none does."""
        position = None if offset >= self.next_offset else self.position_of(offset)
        return self.size_bytes if position is None else position

    def boundaries(self, position: int) -> list[int]:
        """The positions of some batches, rising, from one at or before `position` on."""
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
        """The end of the batch at a position."""
        for at, size, _ in self.walk(position):
            return at + size
        raise StorageError(f"{self._log_path} has no batch at byte {position}")

    def indexed_offset_from(self, position: int) -> int | None:
        """The offset of the first index entry at or behind a position; None if there is none."""
        self.load()
        entry = bisect_left(self._offset_index.positions, position)
        return self.base_offset + self._offset_index.offsets[entry] if entry < len(self._offset_index) else None

    def bytes_from(self, offset: int) -> int:
        """Bytes from the batch that holds the offset to the end, without reading the disk.

        Exact for the newest batches and for the segment's start; else up to an index interval and a batch too many.
        """
        if offset >= self.next_offset:
            return 0
        if offset >= self._tail_start and len(self._tail_ends):
            return self.size_bytes - self._tail_positions[bisect_left(self._tail_ends, offset)]
        entry = self._offset_index.floor(offset - self.base_offset)
        return self.size_bytes - (self._offset_index.positions[entry] if entry >= 0 else 0)

    def largest_timestamp(self) -> tuple[int, int]:
        """(largest timestamp in ms or -1, last offset of the first batch that has it)."""
        self.load()
        return self.max_timestamp_ms, self.max_timestamp_offset

    def retention_time_ms(self) -> int:
        """The time by which the segment is retained: its largest timestamp, else when its file was last changed.
        StorageError."""
        largest_ms, _ = self.times_ms()
        return largest_ms if largest_ms >= 0 else self.modified_ns() // 1_000_000

    def times_ms(self) -> tuple[int, int]:
        """The largest timestamp of all its records and that of its first batch; -1 if there is none.

        Gives a descriptor back that was opened for this: every partition is asked now and then. StorageError.
        """
        was_open = self.is_open
        try:
            return self.largest_timestamp()[0], self.first_timestamp()
        finally:
            if not was_open:
                with contextlib.suppress(OSError):
                    self.close()

    def modified_ns(self) -> int:
        """When its file was last changed, in ns since 1970. StorageError."""
        try:
            return self._files.modified_ns(self._log_path)
        except OSError as error:
            raise StorageError(f"cannot tell the time of {self._log_path}: {error}") from error

    def batches_not_before(self, timestamp_ms: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches with a record at or after the timestamp, oldest first: (position, header)."""
        self.load()
        entry = self._time_index.below(timestamp_ms)
        position: int | None = 0
        if entry >= 0:
            # All batches up to this entry's are earlier, if the entry is true.
            offset = self.base_offset + self._time_index.offsets[entry]
            position = self._position(offset)
            if self._end_of_true(position, offset, self._time_index.timestamps[entry]) is None:
                self.rebuild()
                position = 0
        for at, header in self.batches(position or 0):
            if header.max_timestamp >= timestamp_ms:
                yield at, header

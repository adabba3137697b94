"""Searches the tail of a log for the earlier copy of a batch that is no longer cached (KAFKA-5494).

The scan goes backwards from the end of a log, over a limited number of bytes, for a batch with the same producer, epoch
and sequences. It opens the files by descriptors of its own when it is made, and can then run beside all other use of
the log, also in another thread. The caller must not append anything that could change the result meanwhile; reading,
syncing, cleaning and deleting the log are harmless.

A segment is divided into runs of whole batches by its index. A run that lacks the bytes (producer id, epoch and base
sequence are adjacent) is skipped; otherwise its headers are checked, since the bytes may be part of a record.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Sequence

from ...protocol.named import NamedTuple
from ...protocol.records import batch
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords
from ...protocol.records.layout import LENGTH_AND_MAGIC, MIN_BYTES, PREFIX_BYTES, PRODUCER_ID_AT
from ..errors import StorageError
from ..io.files import MAP_BYTES, File, Files
from ..segments.segment import LOG_SUFFIX, Segment
from .producer_state import CachedBatch

# The bytes of one read. Few enough to be copied, not mapped: a copying read releases the GIL to other threads.
RUN_BYTES = MAP_BYTES // 2
_WANTED = struct.Struct(">qhi")
_LEAST_LENGTH = MIN_BYTES[0] - PREFIX_BYTES


class _Part(NamedTuple):
    """The part of one segment to search: from the first boundary to the end. Boundaries are positions of batches."""

    path: str
    file: File
    boundaries: Sequence[int]
    first: int  # batches before this position are skipped, though a run may begin there
    end: int


class DuplicateScan:
    """One scan; call it once: it returns the copy, or None if there is none within reach."""

    def __init__(
        self,
        files: Files,
        segments: Sequence[Segment],
        wanted: BatchHeader,
        log_start_offset: int,
        scan_bytes: int,
        is_over: Callable[[], bool],
    ):
        """Prepares a scan of the batches that begin in the last `scan_bytes` of a log's segments, at or above its log
        start.

        `is_over` returns whether the result is no longer needed. May read index files. Raises StorageError.
        """
        self._last_sequence = wanted.last_sequence
        self._wanted = _WANTED.pack(wanted.producer_id, wanted.producer_epoch, wanted.base_sequence)
        self._log_start_offset = log_start_offset
        self._is_over = is_over
        self._parts: list[_Part] = []
        left = scan_bytes
        try:
            for segment in reversed(segments):
                if left <= 0 or segment.next_offset <= log_start_offset:
                    break
                size = segment.size_bytes
                if size:
                    first, path = max(size - left, 0), segment.path(LOG_SUFFIX)
                    boundaries = segment.boundaries(first)
                    self._parts.append(_Part(path, files.open(path), boundaries, first, size))
                    left -= size
        except BaseException as error:
            self._close()
            if isinstance(error, OSError):
                raise StorageError(f"cannot look for a duplicate: {error}") from error
            raise

    def __call__(self) -> CachedBatch | None:
        """Searches, newest first. Raises StorageError, also if `is_over` is true."""
        try:
            for part in self._parts:
                found = self._look(part)
                if found is not None:
                    return found
        except OSError as error:
            raise StorageError(f"cannot look for a duplicate: {error}") from error
        finally:
            self._close()
        return None

    def _close(self) -> None:
        for part in self._parts:
            with contextlib.suppress(OSError):
                part.file.close()

    def _look(self, part: _Part) -> CachedBatch | None:
        number, end = len(part.boundaries), part.end
        while number:
            if self._is_over():
                raise StorageError(f"{part.path} is closed")
            number -= 1
            while number and end - part.boundaries[number - 1] <= RUN_BYTES:
                number -= 1
            start = part.boundaries[number]
            found = self._in_run(part.file, start, end, part.first)
            if found is not None:
                return found
            end = start
        return None

    def _in_run(self, file: File, start: int, end: int, first: int) -> CachedBatch | None:
        """Returns the newest copy among the batches of a run, which may be longer than one read."""
        found: CachedBatch | None = None
        while start < end:
            data = bytes(file.read(start, min(RUN_BYTES, end - start)))
            if start + len(data) == end and self._wanted not in data:
                return found
            position, size = 0, len(data)
            while position + batch.HEADER_BYTES <= size:
                length, magic = LENGTH_AND_MAGIC.unpack_from(data, position)
                at = position + PRODUCER_ID_AT
                if magic == batch.MAGIC and start + position >= first and data.startswith(self._wanted, at):
                    found = self._copy(data, position) or found
                if length < _LEAST_LENGTH:
                    raise StorageError(f"a batch of {length} bytes at byte {start + position}")
                position += PREFIX_BYTES + length
            if position < size and start + size == end:
                break  # the last is a message of an old format, shorter than a v2 batch header
            start += position
        return found

    def _copy(self, data: bytes, position: int) -> CachedBatch | None:
        try:
            header = batch.read_header(data, position, whole=False)
        except CorruptRecords:
            return None
        if header.last_sequence != self._last_sequence or header.last_offset < self._log_start_offset:
            return None
        return CachedBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )

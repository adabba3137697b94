"""Checks the records of many entries at once, with arrays: their number, offsets and timestamps against the headers.

Owns the fast path to the result of `verify_entry.record_problem`. That function is called for each entry that fails
here, so both give the same findings in the same words, and only sound entries take the fast path.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....protocol.records import batch, legacy
from ....protocol.records.batch import LOG_APPEND_TIME_BIT, MAX_DECOMPRESSED_BYTES
from ....protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ....storage import inspect
from ....storage.check.facts import SegmentTask
from ....storage.check.segment import Entries, Opened
from ....storage.errors import StorageError
from ....storage.segments.entry_check import record_problem
from ...readers.columnar import Rows, batches
from ...readers.columnar import legacy as old

CHUNK_BYTES = 4 << 20
CHUNK_ENTRIES = 20_000

_REFUSED = (CorruptRecords, InvalidRecords, UnsupportedCodec)


def together(source: inspect.Source, entries: Entries, task: SegmentTask) -> Opened:
    """Yields entries with the problem of their records or None, some megabytes after `entries`. Raises StorageError."""
    chunk = _Chunk(source, task)
    try:
        for found in entries:
            if isinstance(found, inspect.Damage):
                yield from chunk.checked()
                chunk = _Chunk(source, task)
                yield found, None
                continue
            is_new = found.header.magic == batch.MAGIC
            if chunk.is_full(found) or (chunk.headers and chunk.is_new != is_new):
                yield from chunk.checked()
                chunk = _Chunk(source, task)
            chunk.add(found, is_new)
        yield from chunk.checked()
    except OSError as error:
        raise StorageError(f"cannot read {task.segment.path}: {error.strerror}") from error


class _Window:
    """A read-ahead window; entries are read in order."""

    def __init__(self, source: inspect.Source) -> None:
        self._source = source
        self._start = 0
        self._data = b""

    def get(self, position: int, length: int) -> memoryview:
        at = position - self._start
        if at < 0 or at + length > len(self._data):
            size = max(length, min(inspect.WINDOW_BYTES, self._source.size - position))
            self._start, self._data, at = position, self._source.read(position, size), 0
        return memoryview(self._data)[at : at + length]


class _Chunk:
    """Entries of one format family, v2 or v0/v1, that are checked together. `places` are the indexes of entries with a
    collected payload; those in `alone` are checked one by one."""

    def __init__(self, source: inspect.Source, task: SegmentTask) -> None:
        self._source = source
        self._task = task
        self._window = _Window(source)
        self.entries: list[inspect.BatchFacts] = []
        self.is_new = True
        self.places: list[int] = []
        self.headers: list[batch.BatchHeader] = []
        self.payloads: list[bytes | memoryview] = []
        self.alone: set[int] = set()
        self._bytes = 0
        self._rows = 0

    def is_full(self, following: inspect.BatchFacts) -> bool:
        rows = self._rows + following.header.record_count
        return self._bytes >= CHUNK_BYTES or len(self.entries) >= CHUNK_ENTRIES or rows > batches.MAX_ROWS

    def add(self, found: inspect.BatchFacts, is_new: bool) -> None:
        self.entries.append(found)
        if not found.crc_ok:
            return
        place, header = len(self.entries) - 1, found.header
        self.is_new = is_new
        try:
            if found.size_bytes > inspect.ENTRY_BYTES_MAX or header.record_count > batches.MAX_ROWS:
                raise InvalidRecords("too large")  # to decode at once
            data = self._window.get(found.position, found.size_bytes)
            if is_new:
                payload = batch.payload(data, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES)
            elif header.codec:
                payload = legacy.inner(data, 0, header, max_bytes=MAX_DECOMPRESSED_BYTES)
            else:
                payload = data
        except _REFUSED:
            self.alone.add(place)
            return
        self.places.append(place)
        self.headers.append(header)
        self.payloads.append(payload)
        self._bytes += len(payload)
        self._rows += max(header.record_count, 0)

    def checked(self) -> Iterator[tuple[inspect.BatchFacts, str | None]]:
        if self.headers:
            try:
                self._check()
            except _REFUSED:
                self.alone.update(self.places)
        for place, found in enumerate(self.entries):
            yield self._checked_alone(found) if place in self.alone else (found, None)

    def _checked_alone(self, found: inspect.BatchFacts) -> tuple[inspect.BatchFacts, str | None]:
        if found.is_wrapper:
            opened = inspect.entry_at(self._source, found.position, open_wrappers=True)
            if isinstance(opened, inspect.Damage) or opened.problem is not None:
                return (found if isinstance(opened, inspect.Damage) else opened), None
            found = opened
        return found, record_problem(self._source, found, self._task.segment.path, self._task.gaps)

    def _check(self) -> None:
        """Adds suspect entries to `alone`, and completes the facts of opened wrappers."""
        crc_ok = [True] * len(self.headers)
        if not self.is_new:
            self._check_old(old.rows(self.headers, self.payloads, crc_ok))
            return
        parts = list(batches.rows(self.headers, self.payloads, crc_ok))
        if len(parts) > 1:  # an entry is split over several
            self.alone.update(self.places)
            return
        rows, headers, gaps = parts[0], self.headers, self._task.gaps
        firsts, ends = _bounds(rows)
        suspect = _unordered(rows, firsts)
        some = np.flatnonzero(rows.counts)
        last = rows.offsets[ends[some] - 1]
        bases = np.array([header.base_offset for header in headers], np.int64)
        lasts = bases + np.array([header.last_offset_delta for header in headers], np.int64)
        suspect[some] |= last > lasts[some]
        suspect[some] |= rows.offsets[firsts[some]] < bases[some]
        if not gaps:
            suspect[some] |= (last < lasts[some]) | (rows.offsets[firsts[some]] != bases[some])
            bits = np.array([header.attributes for header in headers], np.int64)[some]
            header_times = np.array([header.max_timestamp for header in headers], np.int64)[some]
            if some.size:
                largest = np.maximum(np.maximum.reduceat(rows.timestamps, firsts[some]), -1)
                suspect[some] |= (bits & LOG_APPEND_TIME_BIT == 0) & (largest != header_times)
        self.alone.update(self.places[index] for index in np.flatnonzero(suspect).tolist())

    def _check_old(self, rows: Rows) -> None:
        firsts, ends = _bounds(rows)
        suspect = _unordered(rows, firsts)
        last = rows.offsets[ends - 1]
        suspect |= last != np.array([header.last_offset for header in self.headers], np.int64)
        for index, header in enumerate(self.headers):
            place = self.places[index]
            if suspect[index]:
                self.alone.add(place)
            elif header.codec:
                first, count = int(rows.offsets[firsts[index]]), int(rows.counts[index])
                self.entries[place] = self.entries[place]._replace(first_offset=first, record_count=count)


def _bounds(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Returns the index of the first record of each entry, and of its end."""
    ends = np.cumsum(rows.counts)
    return ends - rows.counts, ends


def _unordered(rows: Rows, firsts: np.ndarray) -> np.ndarray:
    """Returns for each entry whether its offsets are not ascending."""
    suspect = np.zeros(rows.counts.size, np.bool_)
    falls = np.flatnonzero(rows.offsets[1:] <= rows.offsets[:-1]) + 1
    if falls.size:
        inside = falls[~np.isin(falls, firsts)]
        suspect[np.searchsorted(firsts, inside, "right") - 1] = True
    negative = np.flatnonzero(rows.offsets < 0)
    if negative.size:
        suspect[np.searchsorted(firsts, negative, "right") - 1] = True
    return suspect

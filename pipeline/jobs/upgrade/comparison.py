"""Compares upgraded segments with their source by decoding both, before the source is replaced.

Owns the comparison, entry by entry: v2 batches are byte-equal; an old entry has its offsets, keys, values and
timestamps in one v2 batch, with the same codec and timestamp type, without a producer, and with a valid CRC; and the
indexes match the log: each entry names a batch of it, in the time index one whose timestamp no earlier batch exceeds.
Missing index entries only cost time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from ....protocol.records import batch
from ....protocol.records.batch import HEADER_BYTES, NO_TIMESTAMP
from ....protocol.records.errors import CorruptRecords, InvalidRecords
from ....protocol.records.layout import CRC_FROM, LEGACY_ATTRIBUTES_AT, MAGIC_AT
from ....storage.compaction.rewrite import Source
from ....storage.io.files import Files
from ....storage.producers import txn_index
from ....storage.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from ...backend import ReadError
from ...readers.columnar import COLUMNS, Options, Rows, decode
from ...readers.columnar.batches import lone_rows
from ...readers.columnar.columns import record_batch, schema
from ...readers.columnar.legacy import plain_rows
from ...readers.files.headers import Table
from ..in_place.windows import PADDING, WINDOW_BYTES, entry_windows

_WANTED = tuple(name for name in COLUMNS if name != "timestamp_type")  # that is compared entry by entry
_WRAPPED_BYTES = 256 << 10
_BY_OFFSET = np.dtype([("offset", ">i4"), ("position", ">i4")])
_BY_TIME = np.dtype([("time", ">i8"), ("offset", ">i4")])
_NAME_DIGITS = 20

_Window = tuple[bytes, list[int]]


class Different(ReadError):
    """A result differs from its source; the source was not replaced."""


def compare(files: Files, source: Source, results: Sequence[Source], window_bytes: int = WINDOW_BYTES) -> int:
    """Compares a log with those that were made of it, in order, and returns the number of old records. Raises
    Different, and ReadError for a file that cannot be read; neither names the log."""
    found = _Results(files, results, window_bytes)
    old = place = 0
    try:
        for data, places in entry_windows(files, source.log_path, source.size_bytes, window_bytes):
            for part, made in found.beside(data, places):
                if len(part) == 1:
                    raise Different(f"at byte {place + part[0]}: the upgraded log ends before")
                try:
                    old += _compared((data, part), made)
                except (CorruptRecords, InvalidRecords, Different) as error:
                    raise Different(
                        f"from byte {place + part[0]} to {place + part[-1]} the upgraded log differs, and the "
                        f"segment stays unchanged: {error}"
                    ) from error
            place += places[-1]
        if found.take(1)[1][1:]:
            raise Different("the upgraded log has entries after its end")
        if aborted_transactions(files, results) != aborted_transactions(files, [source]):
            raise Different("the aborted transactions differ")
    except OSError as error:
        raise ReadError(f"it, or the upgraded log, cannot be read: {error.strerror or error}") from error
    except CorruptRecords as error:
        raise Different(f"the upgraded log cannot be read: {error}") from error
    return old


class _Results:
    """The entries of some logs, concatenated."""

    def __init__(self, files: Files, results: Sequence[Source], window_bytes: int) -> None:
        self._windows = self._all(files, results, window_bytes)
        self._window: _Window = b"", [0]
        self._done = 0

    @staticmethod
    def _all(files: Files, results: Sequence[Source], window_bytes: int) -> Iterator[_Window]:
        for result in results:
            indexes, place = Indexes(files, result), 0
            for data, places in entry_windows(files, result.log_path, result.size_bytes, window_bytes):
                indexes.add(place, data, places)
                place += places[-1]
                yield data, places
            indexes.finish()

    def take(self, count: int) -> _Window:
        """Returns up to `count` entries; none only at the end."""
        if self._done == len(self._window[1]) - 1:
            self._window, self._done = next(self._windows, (b"", [0])), 0
        data, places = self._window
        first, self._done = self._done, min(self._done + count, len(places) - 1)
        return data, places[first : self._done + 1]

    def beside(self, data: bytes, places: list[int]) -> Iterator[tuple[list[int], _Window]]:
        """Yields the entries at these places in parts, each with the same number of entries of these logs; a single
        place and no entry if these logs end before."""
        done = 0
        for until in _cuts(data, places):
            while done < until:
                made = self.take(until - done)
                count = len(made[1]) - 1
                yield places[done : done + count + 1], made
                if not count:
                    return
                done += count


def _cuts(data: bytes, places: Sequence[int]) -> Iterator[int]:
    """Yields the ends of the parts that are compared at once: all entries, unless there are wrappers, which may be
    large when decompressed."""
    at = np.array(places, np.int64)
    read = np.frombuffer(data, np.uint8)
    is_compressed = (read[at[:-1] + LEGACY_ATTRIBUTES_AT] & batch.CODEC_BITS) > 0
    is_wrapper = (read[at[:-1] + MAGIC_AT] != batch.MAGIC) & is_compressed
    wrapped = np.cumsum(np.where(is_wrapper, np.diff(at), 0))
    done = 0
    while done < wrapped.size:
        before = int(wrapped[done - 1]) if done else 0
        done = max(int(np.searchsorted(wrapped, before + _WRAPPED_BYTES, "right")), done + 1)
        yield done


def _only(window: _Window, wanted: npt.NDArray[np.bool_]) -> _Window:
    """Returns some of the entries, concatenated."""
    if wanted.all():
        return window
    data, places = memoryview(window[0]), window[1]
    parts = [data[places[index] : places[index + 1]] for index in np.flatnonzero(wanted).tolist()]
    return b"".join((*parts, PADDING)), [0, *accumulate(map(len, parts))]


def _compared(source: _Window, made: _Window) -> int:
    """Compares equally many entries. Returns the number of records of old formats. Raises Different, or the error of a
    decoder."""
    magics = np.frombuffer(source[0], np.uint8)[np.array(source[1][:-1], np.int64) + MAGIC_AT]
    is_new = magics == batch.MAGIC
    if is_new.any():
        (data, places), (made_data, made_places) = _only(source, is_new), _only(made, is_new)
        if data[places[0] : places[-1]] != made_data[made_places[0] : made_places[-1]]:
            raise Different("batches of format v2 differ")
        if is_new.all():
            return 0
    (data, places), (made_data, made_places) = _only(source, ~is_new), _only(made, ~is_new)
    before, after = Table.of(data, places[:-1], 0), Table.of(made_data, made_places[:-1], 0)
    if not after.is_new.all():
        raise Different("an entry is not of format v2")
    for what, same in (
        ("codec", after.codecs == before.codecs),
        ("type of timestamp", after.appended == before.appended),
        ("offset", after.last_offsets <= before.last_offsets),
        ("producer", (after.producer_ids == -1) & (after.producer_epochs == -1) & (after.base_sequences == -1)),
        ("leader epoch", after.leader_epochs == -1),
        ("kind of batch", ~(after.transactional | after.control | after.delete_horizons)),
    ):
        if not same.all():
            raise Different(f"the {what} of a batch differs")
    old = _table_of(plain_rows(data, places)) if _are_alike(before) else _decoded(data, places)
    are_lone = not after.codecs.any() and (after.record_counts == 1).all()
    new = _lone(made_data, made_places, after) if are_lone else _decoded(made_data, made_places)
    if not new.equals(old):
        raise Different("the records differ")
    _check_headers(new, after)
    return new.num_rows


def _check_headers(records: pa.Table, table: Table) -> None:
    """Checks the header fields by which records are looked up. Raises Different."""
    counts = table.record_counts
    ends = np.cumsum(counts)
    if (counts < 1).any() or int(ends[-1]) != records.num_rows:
        raise Different("a batch has not the number of records in its header")
    offsets, timestamps = (records.column(name).to_numpy() for name in ("offset", "timestamp"))
    latest = np.maximum.reduceat(timestamps, ends - counts)
    for what, same in (
        ("first offset", table.base_offsets == offsets[ends - counts]),
        ("last offset", table.last_offsets == offsets[ends - 1]),
        (
            "largest timestamp",
            (table.max_timestamps == latest) | (table.max_timestamps == np.maximum(latest, NO_TIMESTAMP)),
        ),
    ):
        if not same.all():
            raise Different(f"a batch's {what} does not match its records")


def _decoded(data: bytes, places: Sequence[int]) -> pa.Table:
    found = decode(memoryview(data)[places[0] : places[-1]], Options(columns=_WANTED))
    return pa.Table.from_batches(found, schema(_WANTED))


def _are_alike(table: Table) -> bool:
    """Returns whether the entries are plain messages that differ only in their records."""
    marks = table.data[table.places[:, None] + (MAGIC_AT, LEGACY_ATTRIBUTES_AT)]
    return bool((marks == marks[0]).all()) and not table.codecs[0]


def _table_of(rows: Rows) -> pa.Table:
    return pa.Table.from_batches([record_batch(rows, _WANTED)])


def _lone(data: bytes, places: Sequence[int], table: Table) -> pa.Table:
    """Returns the records of uncompressed batches of one record, decoded together."""
    view = memoryview(data)
    found = [crc32c(view[begin + CRC_FROM : end]) for begin, end in pairwise(places)]
    if (table.crcs != np.array(found, np.int64)).any():
        raise CorruptRecords("a batch does not match its CRC")
    at = np.array(places, np.int64)
    appended = np.where(table.appended, table.max_timestamps, -1)
    return _table_of(
        lone_rows(data, at[:-1] + HEADER_BYTES, at[1:], table.base_offsets, table.base_timestamps, appended)
    )


# -- indexes


class Indexes:
    """The two indexes of a log of v2 batches, whose name begins with its base offset. Raises OSError."""

    def __init__(self, files: Files, log: Source) -> None:
        base = int(os.path.basename(log.log_path)[:_NAME_DIGITS])

        def read(kind: str, entry: np.dtype) -> np.ndarray:
            data = files.read_bytes(_beside(log.log_path, kind))
            if len(data) % entry.itemsize:
                raise CorruptRecords(f"its {kind} has {len(data)} bytes")
            return np.frombuffer(data, entry)

        by_offset, by_time = read(INDEX_SUFFIX, _BY_OFFSET), read(TIME_INDEX_SUFFIX, _BY_TIME)
        self._offsets = by_offset["offset"].astype(np.int64) + base
        self._positions = by_offset["position"].astype(np.int64)
        self._times, self._of_times = by_time["time"].astype(np.int64), by_time["offset"].astype(np.int64) + base
        for rising in (self._positions, self._offsets, self._times):
            if (np.diff(rising) <= 0).any():
                raise CorruptRecords("the entries of an index do not ascend")
        self._done = self._done_times = 0
        self._latest = -1

    def add(self, place: int, data: bytes, places: Sequence[int]) -> None:
        """Takes the next batches: they begin at `places` of the data, the first one at `place` of the log."""
        table = Table.of(data, places[:-1], 0)
        if not table.is_new.all():
            raise CorruptRecords("an entry is not of format v2")
        at, lasts, own = table.places, table.last_offsets, table.max_timestamps
        end = int(np.searchsorted(self._positions, place + places[-1]))
        positions, offsets = self._positions[self._done : end] - place + places[0], self._offsets[self._done : end]
        self._done = end
        self._check(at, positions, lasts, offsets, "offset")
        latest = np.maximum.accumulate(np.maximum(own, self._latest))
        self._latest = int(latest[-1])
        end = int(np.searchsorted(self._of_times, lasts[-1], "right"))
        times, offsets = self._times[self._done_times : end], self._of_times[self._done_times : end]
        self._done_times = end
        for expected in (own, latest):
            self._check(lasts, offsets, expected, times, "time")

    @staticmethod
    def _check(known: npt.NDArray, of: npt.NDArray, expected: npt.NDArray, by_index: npt.NDArray, what: str) -> None:
        found = np.minimum(np.searchsorted(known, of), known.size - 1)
        if (known[found] != of).any() or (expected[found] != by_index).any():
            raise CorruptRecords(f"an entry of its {what} index matches no batch")

    def finish(self) -> None:
        """Checks that no index entries are left after the last batch."""
        if self._done < self._positions.size or self._done_times < self._times.size:
            raise CorruptRecords("an index has entries after the end of its log")


def aborted_transactions(files: Files, logs: Sequence[Source]) -> bytes:
    """Returns the whole entries of the transaction indexes of some logs. Raises OSError."""
    return b"".join(txn_index.read_whole(files, _beside(log.log_path, txn_index.SUFFIX)) for log in logs)


def _beside(log_path: str, kind: str) -> str:
    """Returns the path of another file of the same segment."""
    folder, name = os.path.split(log_path)
    return os.path.join(folder, name[:_NAME_DIGITS] + kind + name[_NAME_DIGITS + len(LOG_SUFFIX) :])

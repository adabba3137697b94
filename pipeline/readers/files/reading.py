"""Reads the records of some offsets from a partition's folder in bounded memory: the work of a piece in its task.

Owns the conversion of byte windows to rows: selecting entries, cutting both ends, and treating damage. All entries of a
window are decoded together. If that fails they are halved until the undecodable entry is alone, so that only damaged
entries are lost and the usual case needs no work per entry.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NoReturn

import numpy as np
import pyarrow as pa

from ....protocol.records import formats
from ....protocol.records.batch import BatchHeader
from ....protocol.records.compression import CODEC_NAMES
from ....protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...backend import DataLoss, ReadError, TopicPartition, Wanted
from .. import columnar
from ..columns import assemble, decoder_columns, row_of, schema
from . import catalog, indexes, transactions
from .headers import Bools, Int64s, Table
from .indexes import Mark, OffsetEntries
from .transactions import Aborted
from .windows import WINDOW_BYTES, Gone, LogFile, Window, Windows

_log = logging.getLogger(__name__)

_FEW_RUNS = 8  # up to this number each run of v0/v1 messages is decoded by itself; above it, together with a filter
_RAW_BYTES = 1 << 20  # the most that is shown of damaged bytes without a recognisable entry
_OPENINGS = 100
_SETTLED_NS = 2_000_000_000  # a directory's mtime may stay unchanged for this long during changes
_OFFSETS_OF_SEGMENT = 2**31
_REFUSALS = (CorruptRecords, InvalidRecords, UnsupportedCodec)


class _Refused(Exception):
    """One of the entries that were decoded together is damaged; no row of them was returned yet."""


def _refuse(damage: columnar.Damage) -> NoReturn:
    raise _Refused from damage.error


class Reading:
    """One pass over the offsets from `start` (inclusive) to `end` (exclusive)."""

    _schema = staticmethod(schema)

    def __init__(
        self, folder: str, key: TopicPartition, start: int, end: int, wanted: Wanted, window_bytes: int = WINDOW_BYTES
    ) -> None:
        self._folder = folder
        self._key = key
        self._start = start
        self._end = end
        self._wanted = wanted
        self._window_bytes = window_bytes
        needed = decoder_columns(wanted.columns)
        self._needed = needed if "offset" in needed else (*needed, "offset")
        self._cursor = start  # everything below was returned or does not exist
        self._claimed = start  # everything below was returned or is within damage
        self._previous = -1  # the last offset of the previous entry
        self._is_done = False
        self._aborted: Aborted | None = None
        self._base = 0
        self._damaged = 0
        self._first_damage = ""
        self._last_is_damaged = False  # the last entry read is damaged, and its offsets are in doubt
        self._next: BatchHeader | None = None  # the header after the window, if there is one
        self._next_at = 0
        self._number = 0
        self._doubt: int | None = None  # start of the damage, while no sound entry was found after it
        self._resume: Mark | None = None  # where reading continues, since the size of a damaged entry is wrong
        self._index: OffsetEntries | None = None  # the offset index of the segment, once it was needed
        self._path = ""
        self._listed: tuple[int, list[int]] | None = None  # the folder's mtime and its segments

    def rows(self, base: int, anchor: Mark | None) -> Iterator[pa.RecordBatch]:
        """Yields the rows, from the entry after `anchor` (if it is still there) of the segment with this base offset.

        Raises ReadError, DataLoss.
        """
        retries = 0
        if self._cursor < base:  # there was no earlier segment when this was planned
            base, anchor = self._found_again(), None
        while self._cursor < self._end:
            try:
                with LogFile(catalog.log_path(self._folder, base)) as file:
                    self._base, self._path = base, file.path
                    yield from self._segment(file, anchor)
                retries = 0
            except Gone:
                retries += 1
                if retries > _OPENINGS:
                    text = f"cannot read {self._folder}: its segments are deleted faster than they can be opened"
                    raise ReadError(text) from None
                base, anchor = self._found_again(), None
                continue
            if self._is_done or self._cursor >= self._end:
                break
            following = self._following(base)
            if following is None:
                break
            base, anchor = following, None
        if self._damaged:
            text = "damaged entries skipped partition=%s count=%d first=%s"
            _log.warning(text, self._key, self._damaged, self._first_damage)

    # -- segments

    def _bases(self) -> list[int]:
        """Returns the base offsets of the current segments; lists a folder of thousands again only after it has
        changed."""
        try:
            changed_ns = os.stat(self._folder).st_mtime_ns
        except OSError:
            return catalog.bases(self._folder)
        if self._listed is None or self._listed[0] != changed_ns:
            found = catalog.bases(self._folder)
            if abs(time.time_ns() - changed_ns) < _SETTLED_NS:
                return found
            self._listed = changed_ns, found
        return self._listed[1]

    def _found_again(self) -> int:
        """Returns the segment of the next offset after its previous one was deleted or merged."""
        try:
            bases = self._bases()
        except Gone:
            self._lost(self._end, "its folder was deleted")
            return 0
        number = catalog.number_of(bases, self._cursor)
        if number < 0:
            self._lost(min(bases[0], self._end), f"the log now begins at offset {bases[0]}")
        return bases[max(number, 0)]

    def _following(self, base: int) -> int | None:
        """Returns the next segment after one that ended below the next offset to read, or None if there is none."""
        try:
            bases = self._bases()
        except Gone:
            self._lost(self._end, "its folder was deleted")
            return None
        following = next(iter(bases[bisect_right(bases, base) :][:1]), None)
        if following is None:
            self._cursor = max(self._cursor, self._claimed)
            if self._cursor < self._end:
                self._lost(self._end, f"the log now ends at offset {self._cursor}")
            return None
        self._cursor = max(self._cursor, min(following, self._end))
        self._claimed = max(self._claimed, self._cursor)
        return following if self._cursor < self._end else None

    def _lost(self, end: int, why: str) -> None:
        """Skips to an offset because the records before it no longer exist. Raises DataLoss if that is an error."""
        what = f"{self._key}: offsets {self._cursor} to {end - 1} no longer exist: {why}"
        if self._wanted.fail_on_loss:
            raise DataLoss(what)
        _log.warning("%s", what)
        self._cursor = self._claimed = end

    # -- one segment

    def _segment(self, file: LogFile, anchor: Mark | None) -> Iterator[pa.RecordBatch]:
        self._previous = self._base - 1
        self._doubt = None
        self._file, self._index = file, None
        if anchor is not None and not indexes.is_still(file, anchor):
            anchor = None
        if anchor is None and self._cursor > self._base and file.size() > self._window_bytes:
            anchor = indexes.before(file, self._base, self._cursor)
        yield from self._entries_from(file, anchor.position if anchor is not None else 0)

    def _entries_from(self, file: LogFile, position: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the entries from a position on."""
        while True:
            windows = Windows(file, position, self._window_bytes)
            for window in windows:
                yield from self._window(file, window)
                if self._is_done:
                    return
                if self._resume is not None:
                    break
            if self._resume is not None:
                position, self._resume = self._resume.position, None
                continue
            if windows.stop.problem is None:
                return
            # The size of a damaged entry may have led to a wrong position.
            doubt = windows.stop.position if self._doubt is None else self._doubt
            again = indexes.after_damage(file, self._base, doubt)
            yield from self._between(file, windows.stop.position, again, windows.stop.problem)
            if again is None or self._is_done:
                self._claimed = self._end
                return
            position = again.position

    def _between(self, file: LogFile, position: int, again: Mark | None, problem: str) -> Iterator[pa.RecordBatch]:
        """Reports bytes without recognisable entries."""
        offset = max(self._previous + 1, self._base)
        self._note(position, offset, problem)
        end = again.position if again is not None else file.size()
        if self._wanted.on_corrupt == "emit" and offset < self._end and position < end:
            raw = file.read(position, min(end - position, _RAW_BYTES))
            offset = max(offset, self._cursor)
            yield self._raw_row(raw, {"offset": offset, "lastOffset": offset, "position": position})

    # -- windows

    def _window(self, file: LogFile, window: Window) -> Iterator[pa.RecordBatch]:
        """Yields the wanted rows of a window. Sets `_is_done` at the last offset."""
        table, number = window.table, 0
        # The CRC does not cover offsets; the next entry's offset shows whether the last one of this window is
        # plausible.
        self._next_at = int(table.positions[-1] + table.sizes[-1])
        self._next = file.header(self._next_at)
        while number < len(table) and not self._is_done:
            firsts, lasts = table.first_offsets(self._previous), table.last_offsets
            begin = number + int(np.searchsorted(lasts[number:], self._cursor))
            rises = self._rises(firsts[number:], lasts[number:])
            if not rises or (begin > number and self._hides(window, begin, firsts)):
                yield from self._one_by_one(file, window, begin - 1 if rises else number)
                number = self._number
                if self._resume is not None:
                    return
                continue
            stop = begin + int(np.searchsorted(lasts[begin:], self._end - 1))
            is_last = stop < len(table)
            # The entry that ends at or after the last offset is the last one if it begins before the end.
            end = stop + 1 if is_last and firsts[stop] < self._end else stop
            yield from self._entries(window, np.arange(begin, end))
            if self._resume is not None:
                return
            number = end
            if end:
                self._previous = int(lasts[end - 1])
            if self._last_is_damaged:  # its extent is unknown; the following entry decides
                self._previous = int(firsts[end - 1])
                self._claimed = max(self._claimed, int(lasts[end - 1]) + 1)
                continue
            if end > begin:
                self._cursor = max(self._cursor, int(lasts[end - 1]) + 1)
                self._claimed = max(self._claimed, self._cursor)
            self._is_done = is_last
            if not is_last:
                return

    def _rises(self, firsts: Int64s, lasts: Int64s) -> bool:
        """Returns whether offsets ascend, as in every sound log."""
        return bool(
            firsts[0] > self._previous
            and firsts[0] >= self._base
            and lasts[-1] < self._base + _OFFSETS_OF_SEGMENT
            and (self._next is None or lasts[-1] < self._next.base_offset)
            and (lasts >= firsts).all()
            and (firsts[1:] > lasts[:-1]).all()
        )

    def _hides(self, window: Window, begin: int, firsts: Int64s) -> bool:
        """Returns whether the entry before the first wanted one may be damaged and contain wanted offsets: the CRC
        covers its last offset delta."""
        if begin < len(firsts) and int(firsts[begin]) <= self._cursor:
            return False
        return not matches(window, begin - 1)

    def _one_by_one(self, file: LogFile, window: Window, number: int) -> Iterator[pa.RecordBatch]:
        """Reads entries whose offsets are inconsistent: yields the plausible ones and reports the others as damaged.
        Sets `_number` to the first entry that was not read: after all, or where offsets ascend again."""
        table = window.table
        bases, lasts, wrappers = table.base_offsets.tolist(), table.last_offsets.tolist(), table.wrappers.tolist()
        is_after_damage = False
        for index in range(number, len(table)):
            self._number = index + 1
            first = min(self._previous + 1, bases[index]) if wrappers[index] else bases[index]
            last = lasts[index]
            problem = self._problem(file, window, index, first, last)
            if problem is not None:
                is_after_damage = True
                yield from self._damage(window, index, problem)
                if self._resume is not None:
                    return
                continue
            if first >= self._end:
                self._is_done = True
                return
            if last >= self._cursor:
                yield from self._entries(window, np.array([index]))
                if self._resume is not None:
                    return
                is_after_damage |= self._last_is_damaged
                if not self._last_is_damaged:
                    self._cursor = last + 1
                    self._claimed = max(self._claimed, self._cursor)
                    self._is_done = last >= self._end - 1
            self._previous = first if self._last_is_damaged else last
            if self._is_done:
                return
            if is_after_damage and not self._last_is_damaged and index + 1 < len(table):
                firsts = table.first_offsets(self._previous)
                if self._rises(firsts[index + 1 :], table.last_offsets[index + 1 :]):
                    return
                is_after_damage = False

    def _problem(self, file: LogFile, window: Window, index: int, first: int, last: int) -> str | None:
        """Returns why an entry's offsets are implausible, or None."""
        if not max(self._previous + 1, self._base) <= first <= last < self._base + _OFFSETS_OF_SEGMENT:
            return f"it has the offsets {first} to {last} after offset {self._previous}"
        table, following = window.table, self._next
        if index + 1 < len(table):
            following = formats.read_header(window.entry(index + 1))
        if following is not None and self._previous < following.base_offset <= last:
            is_sound = matches(window, index + 1) if index + 1 < len(table) else file.is_whole(self._next_at, following)
            if is_sound:
                return f"it has the offsets {first} to {last} before {following.base_offset}"
        if self._wanted.on_corrupt == "emit" or matches(window, index):
            return None
        return "it does not match its CRC"

    # -- entries

    def _entries(self, window: Window, indices: Int64s) -> Iterator[pa.RecordBatch]:
        """Yields the rows of these entries, without the unwanted ones."""
        self._last_is_damaged = False
        if not len(indices):
            return
        last = int(indices[-1])
        chosen = self._chosen(window.table)
        if not self._wanted.control:
            # Without its CRC the bit that makes a marker may be damage, and records would be lost silently.
            chosen[[index for index in np.flatnonzero(window.table.control).tolist() if matches(window, index)]] = False
        chosen = indices[chosen[indices]]
        if self._wanted.on_corrupt == "emit":
            suspects = [index for index in chosen.tolist() if not matches(window, index)]
            self._last_is_damaged = suspects[-1:] == [last]
        else:
            suspects = []
        for run in _runs(window.table, chosen, suspects):
            yield from self._run(window, run, last)
            if self._resume is not None:
                return

    def _chosen(self, table: Table) -> Bools:
        """Returns which entries may have wanted records; markers are among them."""
        wanted = self._wanted
        chosen = np.ones(len(table), np.bool_)
        if wanted.from_ms is not None:
            chosen &= table.latest_times() >= wanted.from_ms
        if wanted.before_ms is not None:  # else the earliest timestamp is unknown
            chosen &= ~(table.appended & (table.max_timestamps >= wanted.before_ms))
        if wanted.committed and bool((table.transactional & ~table.control).any()):
            if self._aborted is None:
                self._aborted = transactions.aborted(self._folder, self._cursor, self._end)
            chosen &= ~self._aborted.hits(table)
        return chosen

    def _run(self, window: Window, run: Int64s, last: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows of some entries of one format family, decoded together or by halves."""
        table = window.table
        given = -1
        try:
            for found in self._decoded(window, run):
                if found.num_rows:
                    offsets = found.column("offset").to_numpy()
                    given = int(offsets[-1])
                    rows = self._assembled(found, offsets)
                    if rows.num_rows:
                        yield rows
            self._doubt = None
            return
        except (_Refused, *_REFUSALS) as refused:
            error = refused.__cause__ if isinstance(refused, _Refused) else refused
        if len(run) == 1:
            index = int(run[0])
            self._last_is_damaged |= index == last
            problem = str(error) if matches(window, index) else "it does not match its CRC"
            yield from self._damage(window, index, problem)
            return
        rest = run[table.last_offsets[run] > given]
        half = max(len(rest) // 2, 1)
        for part in (rest[:half], rest[half:]):
            if len(part) and self._resume is None:
                yield from self._run(window, part, last)

    def _decoded(self, window: Window, run: Int64s) -> Iterator[pa.RecordBatch]:
        table, policy = window.table, self._wanted.on_corrupt
        first, last = int(run[0]), int(run[-1])
        begin = int(table.places[first])
        end = int(table.places[last] + table.sizes[last])
        places = set((table.places[run] - begin).tolist()) if last - first >= len(run) else None
        is_new = bool(table.is_new[first])
        options = columnar.Options(
            columns=self._needed,
            control=True,
            keep=None if places is None else lambda position, header: position in places,
            check_crc=policy != "emit",
            crcs=self._wanted.computes_crcs,
            # With this callback no row of a chunk is returned before the whole chunk is decoded. Old formats work so
            # anyway, and are faster without it.
            on_damage=_refuse if is_new and policy != "fail" else None,
            max_batch_bytes=self._wanted.max_batch_bytes,
        )
        found = columnar.decode(window.data[begin:end], options)
        if policy != "emit" or len(run) > 1 or matches(window, first):
            yield from found
            return
        # The decoded records must have the offsets of their entry; otherwise they would pass for other records.
        decoded = list(found)
        low = int(table.first_offsets(self._previous)[first]) if is_new else -1
        high = int(table.last_offsets[first])
        ends = [(int(part.column("offset")[0].as_py()), int(part.column("offset")[-1].as_py())) for part in decoded]
        inside = all(low <= one and other <= high for one, other in ends)
        rising = all(bool((np.diff(part.column("offset").to_numpy()) > 0).all()) for part in decoded)
        if not inside or not rising or any(one[1] >= other[0] for one, other in pairwise(ends)):
            raise CorruptRecords("its records have offsets outside its own")
        yield from decoded

    def _assembled(self, found: pa.RecordBatch, offsets: Int64s) -> pa.RecordBatch:
        """Returns rows without the records before or after the range."""
        if offsets[0] < self._start or offsets[-1] >= self._end:
            begin, end = np.searchsorted(offsets, (self._start, self._end)).tolist()
            found = found.slice(begin, end - begin)
        return assemble(found, *self._key, self._wanted.columns, self._path)

    # -- damage

    def _note(self, position: int, offset: int, problem: str) -> None:
        """Raises ReadError, or counts the damage for the warning at the end."""
        where = f"{self._path} at byte {position}, offset {offset}: {problem}"
        if self._wanted.on_corrupt == "fail":
            raise ReadError(where)
        if not self._damaged:
            self._first_damage = where
        self._damaged += 1

    def _damage(self, window: Window, index: int, problem: str) -> Iterator[pa.RecordBatch]:
        """Reports an entry that cannot be decoded."""
        table = window.table
        offset = int(table.base_offsets[index])
        position = int(table.positions[index])
        self._note(position, offset, problem)
        self._doubt = position if self._doubt is None else self._doubt
        # With an indexed entry within the extent of the damaged one the size of that is wrong: a size that leads to the
        # start of a later entry would hide those before it.
        if self._index is None:
            self._index = indexes.offset_entries(self._path, self._base)
        end = position + int(table.sizes[index])
        self._resume = indexes.within(self._file, self._base, position, end, self._index)
        self._claimed = max(self._claimed, min(int(table.last_offsets[index]) + 1, self._end))
        if self._wanted.on_corrupt == "emit" and self._start <= offset < self._end:
            yield self._raw_row(
                bytes(window.entry(index)[: None if self._resume is None else self._resume.position - position]),
                {
                    "offset": offset,
                    "timestamp": int(np.clip(table.max_timestamps[index], -(2**53), 2**53)) * 1000,
                    "timestampType": int(table.timestamp_types[index]),
                    "magic": int(table.magics[index]),
                    "codec": CODEC_NAMES.get(int(table.codecs[index])),
                    "producerId": int(table.producer_ids[index]),
                    "producerEpoch": int(table.producer_epochs[index]),
                    "sequence": int(table.base_sequences[index]),
                    "leaderEpoch": int(table.leader_epochs[index]),
                    "batchOffset": offset,
                    "transactional": bool(table.transactional[index]),
                    "control": bool(table.control[index]),
                },
            )

    def _raw_row(self, raw: bytes, details: dict[str, object]) -> pa.RecordBatch:
        """Returns a row with those of these values that are wanted; the raw bytes are the one of a record."""
        values = {
            **details,
            "value": raw,
            "topic": self._key.topic,
            "partition": self._key.partition,
            "crcOk": False,
            "file": self._path,
        }
        return row_of(values, self._schema(self._wanted.columns))


def matches(window: Window, index: int) -> bool:
    """Returns whether an entry matches its CRC."""
    data = window.entry(index)
    return formats.crc_matches(data, 0, formats.read_header(data))


def _runs(table: Table, chosen: Int64s, suspects: Sequence[int]) -> Iterator[Int64s]:
    """Splits the entries into runs that are decoded together: one format family each, suspects alone, and v0/v1
    messages without gaps while such runs are few."""
    if not len(chosen):
        return
    kinds = table.is_new[chosen]
    breaks = np.diff(kinds.astype(np.int8)) != 0
    if suspects:
        alone = np.isin(chosen, np.array(suspects, np.int64))
        breaks = breaks | alone[1:] | alone[:-1]
    holes = (np.diff(chosen) > 1) & ~kinds[1:]
    if int(holes.sum()) < _FEW_RUNS:
        breaks = breaks | holes
    yield from np.split(chosen, np.flatnonzero(breaks) + 1)

"""A backend over files: partitions, their start and end offsets, and work split into pieces for tasks.

Owns the split: a piece per segment, or per part of a large segment, which begins after a known entry. A piece is
defined by its offsets; the position of its records is a hint that is checked against the file when the piece is read,
so segments may be rolled, merged and deleted in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from ....protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...backend import DataLoss, OffsetRange, Offsets, ReadError, Selection, TopicPartition, Wanted
from ...objects.logs import LogPlace, places_of, use
from .. import columnar
from . import catalog, indexes
from .batches import BatchReading
from .catalog import Catalog, Folder, Segment
from .ends import Ends, is_torn
from .indexes import Mark
from .reading import Reading
from .windows import WINDOW_BYTES, Gone, LogFile, Window, Windows, retried

T = TypeVar("T")

PART_BYTES = 64 << 20
"""Segments are split into parts of about this size: some tenths of a second of work."""

PIECES_PLENTY = 512
JOINED_BYTES = 4 << 20
"""With more than PIECES_PLENTY pieces, adjacent small segments of a partition are joined up to this size: starting a
Spark task takes longer than reading some kilobytes."""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """The records of some offsets of a partition: of one segment as it was when this was planned, or of several small
    ones.

    `base` is the base offset of the (first) segment, `anchor` one of its entries that ends below `start`. `size_bytes`
    is an estimate. `objects`: the places of the logs if they are objects.
    """

    folder: str
    key: TopicPartition
    start: int
    end: int
    base: int
    anchor: Mark | None
    size_bytes: int
    wanted: Wanted
    window_bytes: int = WINDOW_BYTES
    objects: tuple[LogPlace, ...] = ()

    _reading: ClassVar[type[Reading]] = Reading

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields the records in offset order, with the wanted columns. Raises ReadError, DataLoss."""
        use(self.objects)
        reading = self._reading(self.folder, self.key, self.start, self.end, self.wanted, self.window_bytes)
        return reading.rows(self.base, self.anchor)


@dataclass(frozen=True, slots=True)
class BatchPiece(FilePiece):
    """The entries whose last offset is within the offsets, with a row for each; `wanted.columns` are names of
    `columns.BATCH_FIELDS`."""

    _reading = BatchReading


class FileBackend:
    """The logs under some paths; implements `backend.Backend`.

    Paths are data directories of Ottla or Apache Kafka, or folders of partitions; each may hold several, separated by
    commas, and wildcards; or URLs of copies of them as objects, with `store_conf` as the settings of their store. Takes
    no lock and writes nothing. Results reflect the logs at the time of each call.
    """

    _piece: ClassVar[type[FilePiece]] = FilePiece

    def __init__(
        self,
        paths: Sequence[str],
        *,
        part_bytes: int = PART_BYTES,
        window_bytes: int = WINDOW_BYTES,
        store_conf: Mapping[str, str] | None = None,
    ) -> None:
        self._objects = places_of((one for path in paths for one in path.split(",")), store_conf)
        self._catalog = Catalog(paths)
        self._ends = Ends()
        self._part_bytes = part_bytes
        self._window_bytes = window_bytes
        self._marks: dict[str, Mark] = {}  # the newest entry that begins a piece, by segment

    def __enter__(self) -> FileBackend:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        return self._catalog.selected(selection)

    def earliest(self, of: Sequence[TopicPartition]) -> Offsets:
        return self._of_each(of, self._ends.start)

    def latest(self, of: Sequence[TopicPartition], *, committed: bool) -> Offsets:
        return self._of_each(of, self._ends.last_stable if committed else self._ends.high_watermark)

    def _of_each(self, keys: Iterable[TopicPartition], look: Callable[[Folder], T]) -> dict[TopicPartition, T]:
        """Returns the result of `look` for each partition, without those that no longer exist."""
        self._ends.look()
        found: dict[TopicPartition, T] = {}
        for key in keys:
            folder = self._catalog.folder(key)
            if folder is not None:
                with suppress(Gone):
                    found[key] = look(folder)
        return found

    def topic_id(self, topic: str) -> bytes:
        """Returns the id of a topic from its first partition here; ZERO_UUID if it has no id or is not here."""
        return self._catalog.topic_id(topic)

    # -- timestamps

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        def first(folder: Folder) -> int | None:
            start, end = self._ends.start(folder), self._ends.high_watermark(folder)
            return retried(lambda: _first_at(folder, start, end, times[folder.key]))

        return self._of_each(times, first)

    # -- pieces

    def pieces(self, ranges: Sequence[OffsetRange], wanted: Wanted, *, at_least: int | None = None) -> list[FilePiece]:
        """Returns the work that covers each offset of the ranges once, in the order of the ranges and their offsets."""
        listed: dict[str, list[Segment]] = {}
        by_range = [list(self._by_segment(one, wanted, listed)) for one in ranges]
        if at_least is None and sum(map(len, by_range)) > PIECES_PLENTY:
            by_range = [list(joined(of, min(JOINED_BYTES, self._part_bytes))) for of in by_range]
        whole = [piece for of in by_range for piece in of]
        bytes_each = self._part_bytes
        if at_least and at_least > len(whole):
            bytes_each = max(1, min(bytes_each, sum(piece.size_bytes for piece in whole) // at_least))
        return [part for piece in whole for part in self._parts(piece, bytes_each)]

    def _by_segment(self, range_: OffsetRange, wanted: Wanted, listed: dict[str, list[Segment]]) -> Iterator[FilePiece]:
        """Yields a piece for each segment, without the estimated bytes before `start`. `listed` caches the segments of
        folders that were listed for other ranges."""
        folder = self._catalog.folder(range_.key)
        if folder is None:
            if wanted.fail_on_loss and range_.size:
                raise DataLoss(
                    f"{range_.key} no longer exists: offsets {range_.start} to {range_.end - 1} cannot be read"
                )
            return
        start, end = range_.start, range_.end
        try:
            if wanted.committed:
                end = min(end, self._ends.last_stable(folder))
            if folder.path not in listed:
                listed[folder.path] = retried(lambda: catalog.segments(folder.path))
            found = listed[folder.path]
        except Gone:
            found = [Segment(0, None, catalog.log_path(folder.path, 0), 0)]  # the task lists the folder again
        first = max(catalog.number_of([segment.base for segment in found], start), 0)
        for number, segment in enumerate(found[first:], first):
            if number and segment.base >= end:
                break
            low = start if number == 0 else max(start, segment.base)
            high = end if segment.end is None else min(end, segment.end)
            if low < high:
                yield from self._of_segment(folder, segment, low, high, wanted)

    def _of_segment(self, folder: Folder, segment: Segment, low: int, high: int, wanted: Wanted) -> Iterator[FilePiece]:
        anchor, size_bytes = None, segment.size_bytes
        try:
            with LogFile(segment.path) as file:
                if wanted.from_ms is not None:
                    earlier = indexes.earlier_up_to(file, segment.base, wanted.from_ms)
                    low = low if earlier is None else max(low, earlier + 1)
                    largest = indexes.largest_time(file, segment.base) if low < high else None
                    if low >= high or (largest is not None and largest < wanted.from_ms):
                        return
                if low > segment.base:
                    anchor = self._before(file, segment, low)
                if high < (segment.end or high + 1) and segment.size_bytes > self._part_bytes:
                    last = indexes.floor(file, segment.base, high)
                    size_bytes = last.end if last is not None else size_bytes
        except Gone:
            pass
        size_bytes = max(0, size_bytes - (anchor.end if anchor is not None else 0))
        yield self._piece(
            folder.path,
            folder.key,
            low,
            high,
            segment.base,
            anchor,
            size_bytes,
            wanted,
            self._window_bytes,
            self._objects,
        )

    def _before(self, file: LogFile, segment: Segment, offset: int) -> Mark | None:
        """Returns the entry before an offset, and caches it: a stream resumes at the same place, and an active segment
        may have no index."""
        known = self._marks.get(file.path)
        if known is not None and not indexes.is_still(file, known):
            known = None
        mark = indexes.before(file, segment.base, offset, known)
        if mark is not None:
            self._marks[file.path] = mark
        return mark

    def _parts(self, piece: FilePiece, bytes_each: int) -> Iterator[FilePiece]:
        """Splits a piece into parts of about `bytes_each` bytes."""
        count = -(-piece.size_bytes // bytes_each)
        if count <= 1:
            yield piece
            return
        begin = piece.anchor.end if piece.anchor is not None else 0
        cuts: list[Mark] = []
        try:
            with LogFile(catalog.log_path(piece.folder, piece.base)) as file:
                entries = indexes.offset_entries(file.path, piece.base)
                for number in range(1, count):
                    position = begin + number * piece.size_bytes // count
                    last = cuts[-1] if cuts else piece.anchor
                    if last is not None and position <= last.position:
                        continue
                    mark = indexes.at_or_after(file, piece.base, position, last, entries)
                    if mark is None or mark.last_offset >= piece.end - 1:
                        break
                    if mark.last_offset >= piece.start and (last is None or mark.last_offset > last.last_offset):
                        cuts.append(mark)
        except Gone:
            cuts = []
        start, anchor = piece.start, piece.anchor
        size_bytes = piece.size_bytes // (len(cuts) + 1)
        for mark in cuts:
            yield replace(piece, start=start, end=mark.last_offset + 1, anchor=anchor, size_bytes=size_bytes)
            start, anchor = mark.last_offset + 1, mark
        yield replace(piece, start=start, anchor=anchor, size_bytes=size_bytes)


class BatchBackend(FileBackend):
    """The same logs, with pieces that return one row for each batch."""

    _piece = BatchPiece


def joined(pieces: Iterable[FilePiece], most_bytes: int) -> Iterator[FilePiece]:
    """Joins adjacent pieces of a partition while their size stays at or below `most_bytes`."""
    last: FilePiece | None = None
    for piece in pieces:
        if last is None:
            last = piece
        elif (last.key, last.end) == (piece.key, piece.start) and last.size_bytes + piece.size_bytes <= most_bytes:
            last = replace(last, end=piece.end, size_bytes=last.size_bytes + piece.size_bytes)
        else:
            yield last
            last = piece
    if last is not None:
        yield last


def _first_at(folder: Folder, start: int, end: int, time_ms: int) -> int | None:
    """Returns the first offset in a range whose timestamp is >= `time_ms`. Raises `Gone`."""
    for segment in catalog.segments(folder.path):
        if (segment.end is not None and segment.end <= start) or segment.base >= end:
            continue
        with LogFile(segment.path) as file:
            largest = indexes.largest_time(file, segment.base)
            if largest is not None and largest < time_ms:
                continue
            earlier = indexes.earlier_up_to(file, segment.base, time_ms)
            low = start if earlier is None else max(start, earlier + 1)
            mark = indexes.before(file, segment.base, low) if low > segment.base else None
            windows = Windows(file, mark.position if mark is not None else 0)
            for window in windows:
                found = _first_in(file, window, low, end, time_ms)
                if found is not None:
                    return found if found < end else None
            stop = windows.stop
            if stop.problem is not None and (segment.end is not None or not is_torn(file, stop.position)):
                raise ReadError(f"{file.path} at byte {stop.position}: {stop.problem}")
    return None


def _first_in(file: LogFile, window: Window, start: int, end: int, time_ms: int) -> int | None:
    """Returns the first such offset in a window; `end` if the search is over."""
    table = window.table
    for index in np.flatnonzero((table.latest_times() >= time_ms) & (table.last_offsets >= start)).tolist():
        if table.is_new[index] and table.base_offsets[index] >= end:
            return end
        try:
            options = columnar.Options(columns=("offset", "timestamp"), control=True)
            for rows in columnar.decode(window.entry(index), options):
                offsets, times = rows.column("offset").to_numpy(), rows.column("timestamp").to_numpy()
                hits = np.flatnonzero((times >= time_ms) & (offsets >= start))
                if hits.size:
                    return int(offsets[hits[0]])
        except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
            where = f"{file.path} at byte {table.positions[index]}, offset {table.base_offsets[index]}"
            raise ReadError(f"{where}: {error}") from error
    return None

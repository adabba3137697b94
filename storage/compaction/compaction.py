"""Compaction: which logs are dirty enough, and segments with only the last record of each key in the place of others.

Owns the rules of Apache Kafka's cleaner. Blocking, no clock: files in, files out, so that another process can do it.
`clean` goes over the dirty part of a log once to learn the last offset of each key (`offset_map`), as far as these fit
into its buffer, then over the log from its beginning, and writes `.cleaned` files with what stays (`rewrite`); the
caller puts them in place (`swap.swap_in`), one group after the other. Who has learned the last offsets in another way
(`Survivors`) does the second half alone, group by group, with `groups`, `Chooser` and `clean_group`. Offsets never
change. What stays:

* of a key the last record; what has no key goes. Behind the end of the map all stays.
* a tombstone for another delete.retention.ms, so that consumers see it: from Kafka 3.1 on counted from the first pass
  that left nothing else of it, the delete horizon that is noted in the batch then (KIP-534); before, and in the old
  formats, from the time when the newest segment that was clean already was written.
* nothing of aborted transactions. A transaction's marker stays as long as a batch of it does, and a horizon longer; of
  an aborted one that has batches left the entry in the transaction index, too.
* the header of a batch without records if it is the last of a producer that is known, since the next one's sequences
  are judged by it; from Kafka 4.0 on also if it is the last below the end of the pass.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ...protocol.limits import INT64_MAX
from ...protocol.records import batch, filtering, formats
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ..errors import StorageError
from ..format.index import MAX_RELATIVE_OFFSET
from ..io.files import Files
from ..producers import txn_index
from ..producers.producer_state import Producer
from ..segments.scan import entries
from ..segments.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_name
from .cleaned_transactions import CleanedTransactions, aborted_transactions
from .offset_map import OffsetMap
from .rewrite import Limits, Read, Source, Target, Verdict, every, none, rewrite
from .swap import CLEANED, Rewritten

OnProgress = Callable[[int], None]
"""Is told how many bytes were read or written since the last call, about every MiB; it may wait (a throttle). What it
raises ends the cleaning: what was being written is removed."""

K = TypeVar("K")


class SegmentFacts(NamedTuple):
    """A segment as its log knows it. `next_offset` is where the next one begins. The timestamps are of its records (the
    largest) and of its first batch (the largest in it), -1 if there is none; only `dirtiness` asks for them."""

    base_offset: int
    size_bytes: int
    next_offset: int
    modified_ns: int
    largest_timestamp_ms: int = -1
    first_timestamp_ms: int = -1

    @property
    def modified_ms(self) -> int:
        return self.modified_ns // 1_000_000

    @property
    def time_ms(self) -> int:
        """Of its newest record, else of the file."""
        return self.largest_timestamp_ms if self.largest_timestamp_ms >= 0 else self.modified_ms


# -- the choice


class Dirtiness(NamedTuple):
    """What a pass over a log would have to do: from `first_dirty_offset` up to `end_offset`, the base of a segment."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """For how long max.compaction.lag.ms has been breached; 0 if it is not."""

    @property
    def ratio(self) -> float:
        """The dirty part of what a pass would go over."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, min_ratio: float) -> bool:
        """Whether it is more than min.cleanable.dirty.ratio, or has waited too long."""
        return self.ratio > min_ratio or (self.overdue_ms > 0 and self.cleanable_bytes > 0)


def dirtiness(
    segments: Sequence[SegmentFacts],
    *,
    cleaner_offset: int | None,
    log_start_offset: int,
    last_stable_offset: int,
    now_ms: int,
    min_lag_ms: int = 0,
    max_lag_ms: int = INT64_MAX,
) -> Dirtiness:
    """How dirty a log is. `segments` are all, oldest first, with the active one; `cleaner_offset` is where the last
    pass ended, by its checkpoint: without one, or if it lies outside of the log, the log is dirty from its start on.

    No segment can be cleaned that is active, ends behind the last stable offset, or holds a record younger than
    `min_lag_ms`, and none behind it.
    """
    active = segments[-1]
    first_dirty = log_start_offset if cleaner_offset is None else cleaner_offset
    if not log_start_offset <= first_dirty <= active.next_offset:
        first_dirty = log_start_offset
    dirty = [segment for segment in segments[:-1] if segment.next_offset > first_dirty]
    end = min(last_stable_offset, active.base_offset)
    if min_lag_ms > 0:
        young = (segment.base_offset for segment in dirty if segment.time_ms > now_ms - min_lag_ms)
        end = min(end, next(young, end))
    # Whole segments only: the one that the end lies in is left for another time.
    end = max(first_dirty, end)
    end = next((segment.base_offset for segment in segments if segment.next_offset > end), active.base_offset)
    times = [segment.first_timestamp_ms for segment in dirty if segment.first_timestamp_ms > 0]
    overdue_ms = max(now_ms - max(max_lag_ms, 0) - min(times), 0) if times else 0
    return Dirtiness(
        first_dirty_offset=first_dirty,
        end_offset=end,
        clean_bytes=sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size_bytes for segment in dirty if segment.base_offset < end),
        overdue_ms=overdue_ms,
    )


def next_change_ms(segments: Sequence[SegmentFacts], now_ms: int, min_lag_ms: int, max_lag_ms: int) -> int | None:
    """The next time at which `dirtiness` may tell something else of the same segments; None if never: when the lag of
    one ends. From when the largest lag is over on it does so with every moment, but then the log is due."""
    times = [segment.time_ms + min_lag_ms for segment in segments[:-1]]
    times += [s.first_timestamp_ms + max(max_lag_ms, 0) + 1 for s in segments[:-1] if s.first_timestamp_ms > 0]
    return min((when_ms for when_ms in times if when_ms > now_ms), default=None)


def most_dirty(logs: Mapping[K, tuple[Dirtiness, float]]) -> K | None:
    """Which log is to be cleaned first, of these with their min.cleanable.dirty.ratio; None if none is due."""
    due = [(found.ratio, key) for key, (found, min_ratio) in logs.items() if found.is_due(min_ratio)]
    return max(due, key=lambda pair: pair[0])[1] if due else None


def active_producers(producers: Mapping[int, Producer]) -> dict[int, tuple[int, int]]:
    """Of each producer that a log knows the epoch and the offset of its last record, -1 if only a marker is known."""
    return {
        producer_id: (known.epoch, known.batches[-1].last_offset if known.batches else -1)
        for producer_id, known in producers.items()
    }


# -- the cleaning


class Clean(NamedTuple):
    """What is to be done. `segments`: oldest first, all that lie below `end_offset`, the first offset that no pass may
    touch (from `dirtiness`). They are durable: else a power loss could take the record for which an older one of its
    key was dropped. `active_producers` as above. The rest as the configs of these names say, and by release:
    old formats stay up to 3.9, the delete horizon is noted from 3.1 on, and the last batch stays from 4.0 on.
    """

    directory: str
    segments: tuple[SegmentFacts, ...]
    first_dirty_offset: int
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    active_producers: Mapping[int, tuple[int, int]]
    keep_old_formats: bool = False
    delete_horizon: bool = True
    keep_empty_at_end: bool = True
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    dedupe_buffer_bytes: int = 128 * 1024 * 1024


class Group(NamedTuple):
    """New segments, complete and synced as `.cleaned` files, and the base offsets of those that they replace."""

    new: tuple[Rewritten, ...]
    old: tuple[int, ...]


class Cleaned(NamedTuple):
    """The end of a pass: where the log begins to be dirty now, and what was gone over. `indexed` counts the records of
    the dirty part; of entries that were dropped unread, and of transactions, the header's count is taken."""

    end_offset: int
    keys: int
    indexed_records: int
    read_bytes: int
    written_bytes: int
    read_records: int
    written_records: int


def clean(files: Files, task: Clean, *, on_progress: OnProgress | None = None) -> Iterator[Group | Cleaned]:
    """Cleans a log: gives each Group as soon as its files are there, and `Cleaned` at the end.

    A group is to be swapped in, or its files removed, before anything else is done with the folder; those that were
    given before an error stay as they are. The end may lie before `task.end_offset`, if the map is full: then there is
    more to do. Raises StorageError, ValueError if the buffer has no room for a key, and what `on_progress` raises.
    """
    meter = _Meter(on_progress)
    aborted = aborted_transactions(files, task.directory)
    found = _map_keys(files, task, CleanedTransactions(aborted), meter)
    chooser = Chooser(task, found, CleanedTransactions(aborted))
    read_bytes = written_bytes = written_records = 0
    for group in groups(files, task, found.end_offset):
        new = clean_group(files, task, group, chooser, on_bytes=meter.add)
        read_bytes += sum(segment.size_bytes for segment in group)
        written_bytes += sum(made.size_bytes for made in new)
        written_records += sum(made.records for made in new)
        yield Group(tuple(new), tuple(segment.base_offset for segment in group))
    yield Cleaned(
        found.end_offset,
        len(found.offsets),
        found.records,
        read_bytes,
        written_bytes,
        chooser.records,
        written_records,
    )


class _Meter:
    """Adds up what is to be told of."""

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._bytes = 0

    def add(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._bytes >= 1 << 20:
            size_bytes, self._bytes = self._bytes, 0
            if self._on_progress is not None:
                self._on_progress(size_bytes)


def _log_path(task: Clean, segment: SegmentFacts) -> str:
    return os.path.join(task.directory, file_name(segment.base_offset))


# -- the last offset of each key


class Survivors(Protocol):
    """What is known of the last records of keys, asked for each entry with data that was not aborted, in their order:
    the verdict on it, given whether tombstones stay in it, and what a verdict has besides."""

    def verdict(
        self, header: BatchHeader, retains_tombstones: bool, keep_empty: bool, delete_horizon_ms: int | None
    ) -> Verdict: ...


class _Found(NamedTuple):
    """The last offset of each key in the dirty part below `end_offset`."""

    offsets: OffsetMap
    end_offset: int
    records: int

    def verdict(
        self, header: BatchHeader, retains_tombstones: bool, keep_empty: bool, delete_horizon_ms: int | None
    ) -> Verdict:
        map_end, get = self.end_offset, self.offsets.get

        def keep(offset: int, key: bytes | None, has_value: bool) -> bool:
            if offset >= map_end:
                return True
            return key is not None and (has_value or retains_tombstones) and offset >= get(key)

        return Verdict(keep, keep_empty, delete_horizon_ms)


def _map_keys(files: Files, task: Clean, transactions: CleanedTransactions, meter: _Meter) -> _Found:
    offsets = OffsetMap(task.dedupe_buffer_bytes)
    end, records = task.first_dirty_offset, 0
    for number, segment in enumerate(task.segments):
        is_last = number == len(task.segments) - 1
        next_offset = task.end_offset if is_last else task.segments[number + 1].base_offset
        if next_offset <= task.first_dirty_offset:
            continue
        path = _log_path(task, segment)
        position = 0
        try:
            for data, header in entries(files, path, segment.size_bytes, meter.add):
                if header.next_offset > task.first_dirty_offset:
                    count, full_at = _map_entry(data, header, offsets, transactions, task.first_dirty_offset)
                    records += count
                    if full_at is not None:
                        return _Found(offsets, full_at, records)
                position += len(data)
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
            raise StorageError(f"{path} at byte {position}: {error}") from error
        end = next_offset  # offsets may be missing at the end of a segment
    return _Found(offsets, end, records)


def _map_entry(
    data: memoryview, header: BatchHeader, offsets: OffsetMap, transactions: CleanedTransactions, start: int
) -> tuple[int, int | None]:
    """Notes the records of an entry at or behind `start`: how many it has, and the first that had no room, if any."""
    if not formats.crc_matches(data, 0, header):
        # What is damaged must not decide what goes, least of all when other groups were swapped in before it is found.
        raise CorruptRecords("the checksum does not match")
    if header.is_control:
        transactions.on_marker(header, data)
        return header.record_count, None
    if transactions.on_batch(header):
        return header.record_count, None
    put = offsets.put
    if header.magic == batch.MAGIC:
        base_offset = header.base_offset
        payload = bytes(batch.payload(data, 0, header))
        for _, _, _, _, delta, key, _ in filtering.parts(payload, header.record_count):
            if key is not None and base_offset + delta >= start and not put(key, base_offset + delta):
                return header.record_count, base_offset + delta
        return header.record_count, None
    count = 0
    for record in formats.records(data):
        if record.key is not None and record.offset >= start and not put(record.key, record.offset):
            return count, record.offset
        count += 1
    return count, None


# -- what stays


def tombstones_from_ms(task: Clean) -> int:
    """By the time of files: what lies in a segment that is younger than this keeps its tombstones."""
    clean = [segment for segment in task.segments if segment.base_offset < task.first_dirty_offset]
    return clean[-1].modified_ms - task.delete_retention_ms if clean else 0


class Choosing(Protocol):
    """A `Choose` that also puts together the transaction index of what it goes through."""

    @property
    def aborted(self) -> list[bytes]: ...

    @aborted.setter
    def aborted(self, entries: list[bytes]) -> None: ...

    def __call__(self, header: BatchHeader, data: memoryview) -> Verdict: ...


class Chooser:
    """The verdict on each entry of the log, from the first segment on; or from the first one of `task.segments` on if
    `transactions` know what comes before, and `from_ms` is `tombstones_from_ms` of the whole."""

    def __init__(
        self, task: Clean, survivors: Survivors, transactions: CleanedTransactions, from_ms: int | None = None
    ) -> None:
        self._task = task
        self._verdict = survivors.verdict
        self._transactions = transactions
        self._retains = True
        self._from_ms = tombstones_from_ms(task) if from_ms is None else from_ms
        self._new_horizon_ms = task.now_ms + task.delete_retention_ms if task.delete_horizon else None
        self._segments = list(task.segments[::-1])
        self.records = 0
        self.aborted: list[bytes] = []

    def __call__(self, header: BatchHeader, data: memoryview) -> Verdict:
        while self._segments and header.last_offset >= self._segments[-1].base_offset:
            self._retains = self._segments.pop().modified_ms > self._from_ms
        self.records += abs(header.record_count)
        if header.is_control:
            return self._of_marker(header, data)
        if header.magic != batch.MAGIC:
            return self._verdict(header, self._retains, False, self._new_horizon_ms)
        if self._transactions.on_batch(header):
            return Verdict(none, self._keeps_empty(header))
        retains = self._retains
        if self._task.delete_horizon:
            retains = not header.has_delete_horizon or self._task.now_ms < header.base_timestamp
        return self._verdict(header, retains, self._keeps_empty(header), self._new_horizon_ms)

    def _of_marker(self, header: BatchHeader, data: memoryview) -> Verdict:
        if not batch.crc_matches(data, 0, header):
            raise CorruptRecords("the checksum does not match")
        is_needed, entry = self._transactions.on_marker(header, data)
        if entry is not None:
            self.aborted.append(txn_index.dump([entry]))
        keep_empty = self._keeps_empty(header)
        if header.record_count == 0:
            return Verdict(none, keep_empty)
        if is_needed:
            return Verdict(every, keep_empty)
        if not self._task.delete_horizon:
            return Verdict(every if self._retains else none, keep_empty)
        if header.has_delete_horizon and header.base_timestamp <= self._task.now_ms:
            return Verdict(none, keep_empty)
        return Verdict(every, keep_empty, self._new_horizon_ms)

    def _keeps_empty(self, header: BatchHeader) -> bool:
        if header.next_offset == self._task.end_offset and self._task.keep_empty_at_end:
            return True
        known = self._task.active_producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return False
        epoch, last_offset = known
        return header.last_offset == last_offset if last_offset >= 0 else header.is_control and header[10] == epoch


# -- the groups


def groups(files: Files, task: Clean, map_end: int) -> Iterator[list[SegmentFacts]]:
    """Runs of segments that become one: as long as log, indexes and offsets fit into one, by what they are before.
    Only segments below `map_end`; of indexes the files are looked at. StorageError."""
    group: list[SegmentFacts] = []
    sizes = [0, 0, 0]
    for segment in task.segments:
        if segment.base_offset >= map_end:
            break
        own = [segment.size_bytes, *_index_sizes(files, task, segment)]
        together = [before + more for before, more in zip(sizes, own, strict=True)]
        fits = (
            together[0] <= task.segment_bytes
            and max(together[1:]) <= task.segment_index_bytes
            and (not segment.size_bytes or _last_offset(task, segment) - group[0].base_offset <= MAX_RELATIVE_OFFSET)
            if group
            else True
        )
        if not fits:
            yield group
            group, together = [], own
        group.append(segment)
        sizes = together
    if group:
        yield group


def _last_offset(task: Clean, segment: SegmentFacts) -> int:
    return min(segment.next_offset, task.end_offset) - 1


def _index_sizes(files: Files, task: Clean, segment: SegmentFacts) -> list[int]:
    sizes = [0, 0]
    for number, suffix in enumerate((INDEX_SUFFIX, TIME_INDEX_SUFFIX)):
        path = os.path.join(task.directory, file_name(segment.base_offset, suffix))
        try:
            with contextlib.suppress(FileNotFoundError):
                sizes[number] = files.size(path)
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error}") from error
    return sizes


def clean_group(
    files: Files,
    task: Clean,
    group: Sequence[SegmentFacts],
    chooser: Choosing,
    *,
    suffix: str = CLEANED,
    read: Read = entries,
    on_bytes: OnProgress | None = None,
) -> list[Rewritten]:
    """Writes what stays of one group, under names that end so; `on_bytes` is told what is read and written. A `read`
    that gives runs has asked the chooser about what is in them. Raises as `rewrite`."""
    done_bytes = 0

    def on_progress(read_bytes: int, converted: int) -> None:
        nonlocal done_bytes
        if on_bytes is not None:
            on_bytes(read_bytes - done_bytes)
        done_bytes = read_bytes

    chooser.aborted = []
    made = rewrite(
        files,
        [Source(_log_path(task, segment), segment.size_bytes) for segment in group],
        Target(
            task.directory,
            group[0].base_offset,
            task.index_interval_bytes,
            end_offset=group[-1].next_offset,
            limits=Limits(index_bytes=task.segment_index_bytes),
            suffix=suffix,
        ),
        choose=chooser,
        keep_old=task.keep_old_formats,
        aborted=chooser.aborted,
        on_progress=on_progress,
        read=read,
    )
    if on_bytes is not None:
        on_bytes(sum(output.size_bytes for output in made))
    return made

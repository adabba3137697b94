"""Log compaction: selects dirty logs and rewrites segments with only the last record of each key.

Follows the rules of Apache Kafka's cleaner. Blocking, without a clock: files in, files out, so that another process can
do it. `clean` reads the dirty part of a log to find the last offset of each key (`offset_map`), as far as the keys fit
into its buffer. It then reads the log from its beginning and writes `.cleaned` files with the retained records
(`rewrite`). The caller swaps them in (`swap.swap_in`), one group after the other. A caller that finds the last offsets
differently (`Survivors`) does only the second half, group by group, with `groups`, `Chooser` and `clean_group`. Offsets
never change.

* The last record of each key is retained; records without a key are removed. Above the end of the map everything is
  retained.
* A tombstone is retained for delete.retention.ms more, so that consumers see it. From Kafka 3.1 on this time begins
  with the first pass that removed all earlier records of its key, which sets the delete horizon in the batch (KIP-534).
  In earlier releases and old formats it begins with the modification time of the newest segment that was already clean.
* Records of aborted transactions are removed. A transaction marker is retained as long as a batch of its transaction,
  and then until its delete horizon; the transaction index entry of an aborted transaction as long as it has batches.
* A batch that lost all records keeps its header if it is the last of an active producer, whose next sequences are
  checked against it. From Kafka 4.0 on also if it is the last batch below the end of the pass.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ...protocol.limits import INT32_MAX, INT64_MAX
from ...protocol.named import NamedTuple
from ...protocol.records import batch, filtering, formats, record_sizes
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ..config import LogConfig
from ..errors import StorageError, storage_errors
from ..format.index import MAX_RELATIVE_OFFSET
from ..io.files import Files
from ..producers import txn_index
from ..producers.producer_state import Producer
from ..segments.scan import entries
from ..segments.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment, file_name
from .cleaned_transactions import CleanedTransactions, aborted_transactions
from .offset_map import OffsetMap
from .rewrite import Choose, Limits, Read, Source, Target, Verdict, every, none, rewrite
from .swap import CLEANED, Rewritten

OnProgress = Callable[[int], None]
"""Called with the number of bytes read or written since the last call, about every MiB; it may wait (a throttle). An
exception from it ends the cleaning, and the file being written is removed."""

K = TypeVar("K")


class SegmentFacts(NamedTuple):
    """A segment according to its log. `next_offset` is the base of the next one. The timestamps are the largest of its
    records and the largest of its first batch, -1 if there is none; only `dirtiness` needs them."""

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
        """The largest record timestamp, or the modification time of the file."""
        return self.largest_timestamp_ms if self.largest_timestamp_ms >= 0 else self.modified_ms


def facts_of(segments: Iterable[Segment], *, with_times: bool) -> list[SegmentFacts]:
    """Returns the facts of the segments of an open log, the active one last. Raises StorageError."""
    found: list[SegmentFacts] = []
    for one in segments:
        times = one.times_ms() if with_times else (-1, -1)
        found.append(SegmentFacts(one.base_offset, one.size_bytes, one.next_offset, one.modified_ns(), *times))
    return found


# -- selection


class Dirtiness(NamedTuple):
    """The work of a pass over a log: from `first_dirty_offset` up to `end_offset`, the base of a segment."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """How long max.compaction.lag.ms has been exceeded; 0 if it is not."""

    @property
    def ratio(self) -> float:
        """The dirty fraction of the bytes of a pass."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, min_ratio: float) -> bool:
        """Returns whether the ratio exceeds min.cleanable.dirty.ratio, or max.compaction.lag.ms is exceeded."""
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
    """Returns how dirty a log is. `segments` are all, oldest first, with the active one; `cleaner_offset` is the end of
    the last pass according to its checkpoint: if missing or outside the log, the log is dirty from its start on.

    A segment is not cleaned if it is active, ends above the last stable offset, or has a record younger than
    `min_lag_ms`; nor is any segment after it.
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
    # Whole segments only: the one that contains the end is left for a later pass.
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
    """Returns the next time at which `dirtiness` of the same segments may change, when a lag ends; None if never. After
    the max lag is over it changes all the time, but then the log is due."""
    times = [segment.time_ms + min_lag_ms for segment in segments[:-1]]
    times += [s.first_timestamp_ms + max(max_lag_ms, 0) + 1 for s in segments[:-1] if s.first_timestamp_ms > 0]
    return min((when_ms for when_ms in times if when_ms > now_ms), default=None)


def most_dirty(logs: Mapping[K, tuple[Dirtiness, float]]) -> K | None:
    """Returns the log to clean first, given each with its min.cleanable.dirty.ratio; None if none is due."""
    due = [(found.ratio, key) for key, (found, min_ratio) in logs.items() if found.is_due(min_ratio)]
    return max(due, key=lambda pair: pair[0])[1] if due else None


def active_producers(producers: Mapping[int, Producer]) -> dict[int, tuple[int, int]]:
    """Returns for each producer its epoch and the offset of its last record, -1 if only a marker is known."""
    return {
        producer_id: (known.epoch, known.batches[-1].last_offset if known.batches else -1)
        for producer_id, known in producers.items()
    }


# -- cleaning


class Clean(NamedTuple):
    """A cleaning task.

    The segments are all those below `end_offset` (from `dirtiness`), oldest first. They must be durable: otherwise a
    power loss could take a record whose predecessor of the same key was already removed. `active_producers` comes from
    the function of this name. `keep_old_formats` is true up to Kafka 3.9, `delete_horizon` from 3.1 on. With
    `keep_empty_at_end`, from 4.0 on, a batch that ends at `kept_end_offset` (None: `end_offset`) keeps its header
    without records. The other fields are the configs of their names.
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
    kept_end_offset: int | None = None
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    max_record_bytes: int = INT32_MAX


def task_of(
    directory: str,
    config: LogConfig,
    producers: Mapping[int, Producer],
    facts: Iterable[SegmentFacts],
    dirty: Dirtiness,
    *,
    now_ms: int,
    delete_retention_ms: int,
) -> Clean:
    """Returns the task of a pass over an open log, by the rules of the newest cleaner."""
    return Clean(
        directory=directory,
        segments=tuple(one for one in facts if one.base_offset < dirty.end_offset),
        first_dirty_offset=dirty.first_dirty_offset,
        end_offset=dirty.end_offset,
        now_ms=now_ms,
        delete_retention_ms=delete_retention_ms,
        active_producers=active_producers(producers),
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        max_record_bytes=config.rules.max_record_bytes,
    )


class Group(NamedTuple):
    """New segments, complete and synced as `.cleaned` files, and the base offsets of those that they replace."""

    new: tuple[Rewritten, ...]
    old: tuple[int, ...]


class Cleaned(NamedTuple):
    """The result of a pass: the new first dirty offset, and what was read and written."""

    end_offset: int
    keys: int
    read_bytes: int
    written_bytes: int
    read_records: int
    written_records: int


def clean(files: Files, task: Clean, *, on_progress: OnProgress | None = None) -> Iterator[Group | Cleaned]:
    """Cleans a log: yields each Group when its files are complete, and `Cleaned` at the end.

    A group must be swapped in, or its files removed, before any other change to the folder; groups yielded before an
    error remain. The end may be below `task.end_offset` if the map is full: there is then more to clean. Raises
    StorageError, ValueError if the buffer has no room for a key, and the exceptions of `on_progress`.
    """
    meter = _Meter(on_progress)
    aborted = aborted_transactions(files, task.directory)
    found = _map_keys(files, task, CleanedTransactions(aborted), meter)
    chooser = Chooser(task, found.verdict, CleanedTransactions(aborted))
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
        read_bytes,
        written_bytes,
        chooser.records,
        written_records,
    )


class _Meter:
    """Sums up bytes and reports them about every MiB."""

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


Survivors = Callable[[BatchHeader, bool, bool, int | None], Verdict]
"""The last records of keys, queried for each entry with data that was not aborted, in order: returns the verdict on it,
given whether its tombstones are retained and the other fields of the verdict, `keep_empty` and `delete_horizon_ms`."""


class _Found(NamedTuple):
    """The last offset of each key in the dirty part below `end_offset`."""

    offsets: OffsetMap
    end_offset: int

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
    end = task.first_dirty_offset
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
                    full_at = _map_entry(data, header, offsets, transactions, task)
                    if full_at is not None:
                        return _Found(offsets, full_at)
                position += len(data)
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
            raise StorageError(f"{path} at byte {position}: {error}") from error
        end = next_offset  # offsets may be missing at the end of a segment
    return _Found(offsets, end)


def _map_entry(
    data: memoryview, header: BatchHeader, offsets: OffsetMap, transactions: CleanedTransactions, task: Clean
) -> int | None:
    """Adds the records of an entry at or above the first dirty offset; returns the first offset without room in the
    map, if any."""
    if not formats.crc_matches(data, 0, header):
        # Damaged entries must not decide what is removed, least of all if other groups are swapped in before the damage
        # is found.
        raise CorruptRecords("the checksum does not match")
    if header.is_control:
        transactions.on_marker(header, data)
        return None
    if transactions.on_batch(header):
        return None
    record_sizes.check_entry(data, header, task.max_record_bytes)
    put, start = offsets.put, task.first_dirty_offset
    if header.magic == batch.MAGIC:
        base_offset = header.base_offset
        payload = bytes(batch.payload(data, 0, header))
        for _, _, _, _, delta, key, _ in filtering.parts(payload, header.record_count):
            if key is not None and base_offset + delta >= start and not put(key, base_offset + delta):
                return base_offset + delta
        return None
    for record in formats.records(data):
        if record.key is not None and record.offset >= start and not put(record.key, record.offset):
            return record.offset
    return None


# -- retention of records


def tombstones_from_ms(task: Clean) -> int:
    """Returns the modification time, in ms, above which a segment retains its tombstones."""
    clean = [segment for segment in task.segments if segment.base_offset < task.first_dirty_offset]
    return clean[-1].modified_ms - task.delete_retention_ms if clean else 0


class Chooser:
    """Decides which records of each entry to retain, and collects the transaction index entries of these. Entries must
    be passed from the start of the log on.

    To begin later, at the first of `task.segments`, `transactions` must have the state before it, and `from_ms` must be
    `tombstones_from_ms` of the whole log.
    """

    def __init__(
        self, task: Clean, survivors: Survivors, transactions: CleanedTransactions, from_ms: int | None = None
    ) -> None:
        self._task = task
        self._verdict = survivors
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
        if header.magic == batch.MAGIC and self._transactions.on_batch(header):
            return Verdict(none, self._keeps_empty(header))
        record_sizes.check_entry(data, header, self._task.max_record_bytes)
        if header.magic != batch.MAGIC:
            return self._verdict(header, self._retains, False, self._new_horizon_ms)
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
        kept_end = self._task.kept_end_offset
        if self._task.keep_empty_at_end and header.next_offset == (
            self._task.end_offset if kept_end is None else kept_end
        ):
            return True
        known = self._task.active_producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return False
        epoch, last_offset = known
        return header.last_offset == last_offset if last_offset >= 0 else header.is_control and header[10] == epoch


# -- groups


def groups(files: Files, task: Clean, map_end: int) -> Iterator[list[SegmentFacts]]:
    """Yields groups of segments to merge into one: as long as log, indexes and offsets fit into one segment, by their
    sizes before cleaning. Only segments below `map_end`. Raises StorageError if the size of an index file cannot be
    read."""
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
        with storage_errors(f"cannot read {path}"), contextlib.suppress(FileNotFoundError):
            sizes[number] = files.size(path)
    return sizes


def clean_group(
    files: Files,
    task: Clean,
    group: Sequence[SegmentFacts],
    chooser: Chooser,
    *,
    suffix: str = CLEANED,
    read: Read = entries,
    choose: Choose | None = None,
    on_bytes: OnProgress | None = None,
) -> list[Rewritten]:
    """Writes the retained records of one group, to files whose names end with `suffix`; `on_bytes` receives the bytes
    read and written. A `read` that has already applied the chooser comes with a `choose` that returns its verdicts.
    Raises like `rewrite`."""
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
        choose=choose or chooser,
        keep_old=task.keep_old_formats,
        aborted=chooser.aborted,
        on_progress=on_progress,
        read=read,
    )
    if on_bytes is not None:
        on_bytes(sum(output.size_bytes for output in made))
    return made

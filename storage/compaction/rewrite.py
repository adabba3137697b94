"""Rewrites segments: entries of any message format in, v2 batches at the same offsets out, with both indexes.

A `Choose` of the caller decides what to retain of every entry, by default all. Blocking, without a clock; memory is
bounded by one entry and a buffer. Reads its sources and writes new files beside them, which `swap.swap_in` puts in
place.

v2 batches are copied byte for byte. A batch that loses records keeps offsets, sequences, producer and epochs, which
idempotent producers and committed offsets depend on. Entries of v0 and v1 are converted as Kafka 4.0's cleaner does
(KIP-724, KAFKA-13093): a plain message becomes a batch of one record, so that replicas which convert at different times
stay aligned, a compressed wrapper one batch with the same codec; v0 has no timestamps (-1), the log append time of a v1
wrapper is kept. Converted messages are larger than before, so an output may have to end before its source does; it then
continues in another segment. With `keep_old` entries keep their format, as the cleaner left them up to Kafka 3.9.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...protocol.limits import INT32_MAX, INT64_MAX
from ...protocol.named import NamedTuple
from ...protocol.records import batch, convert, filtering, formats, legacy
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...protocol.records.filtering import Keep
from ...protocol.records.layout import LENGTH_AND_MAGIC, MIN_BYTES, PREFIX_BYTES
from ...protocol.records.steps import run
from ..errors import StorageError, storage_errors
from ..format.index import MAX_RELATIVE_OFFSET
from ..io.files import Files
from ..producers import txn_index
from ..segments.scan import entries
from ..segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment
from .swap import CLEANED, Rewritten

_LAST_OFFSET = struct.Struct(">18xq")  # of an aborted transaction: the offset of its marker
_WRITE_BYTES = 1 << 20  # written, and reported, at once

Progress = Callable[[int, int], None]
"""Called now and then with (bytes read so far, records converted so far)."""


class Source(NamedTuple):
    """A segment to read: the path of its `.log`, and the number of its bytes that belong to the log."""

    log_path: str
    size_bytes: int


class Run(NamedTuple):
    """Consecutive v2 batches, ready to be written: the result of a `Read` for a stretch of a source.

    A batch lies in `data` from its element of `bounds` to the next one; the other sequences have one element per batch,
    `counts` is None if each has one record. The offsets rise. `converted`: they had an older format before.
    """

    data: bytes | bytearray | memoryview
    bounds: Sequence[int]
    base_offsets: Sequence[int]
    last_offsets: Sequence[int]
    max_timestamps: Sequence[int]
    counts: Sequence[int] | None
    converted: bool
    source_bytes: int

    def records(self, first: int, stop: int) -> int:
        """Returns the number of records of some of the batches."""
        return stop - first if self.counts is None else sum(self.counts[first:stop])


class Limits(NamedTuple):
    """The limits of an output: Kafka's hard bound for positions, and segment.index.bytes for each index."""

    segment_bytes: int = INT32_MAX
    index_bytes: int = 10 * 1024 * 1024


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of rewritten segments: new files in `directory`, whose names end with `suffix`.

    The first segment begins at `base_offset`, and all offsets must be below `end_offset`. An index has an entry for
    each `index_interval_bytes` of its log.
    """

    directory: str
    base_offset: int
    index_interval_bytes: int
    end_offset: int = INT64_MAX
    limits: Limits = LIMITS
    suffix: str = CLEANED


def every(offset: int, key: bytes | None, has_value: bool) -> bool:
    """Keeps a record. As the `keep` of a verdict it retains an entry without reading it."""
    return True


def none(offset: int, key: bytes | None, has_value: bool) -> bool:
    """Drops a record. As the `keep` of a verdict it drops an entry without reading it."""
    return False


class Verdict(NamedTuple):
    """What to retain of an entry: the records for which `keep` is true, by offset, key and presence of a value.

    `keep_empty`: a v2 batch that loses all records keeps its header, as for the last batch of an active producer.
    `delete_horizon_ms` (KIP-534) is set in a batch without one, if it is a control batch or retains a record without a
    value.
    """

    keep: Keep = every
    keep_empty: bool = False
    delete_horizon_ms: int | None = None


KEEP = Verdict()

Choose = Callable[[BatchHeader, memoryview], Verdict]
"""Decides on an entry, given its header and its bytes; for a v0 or v1 wrapper the header has only the last offset."""


Read = Callable[[Files, str, int], Iterator[tuple[memoryview, BatchHeader] | Run]]
"""Reads the first bytes of a log: yields its entries like `scan.entries`, or runs of the retained batches, already
converted and checked like `rewritten` does. Raises like `scan.entries`."""


class Stays(NamedTuple):
    """The retained part of an entry, or None, and the number of its records (-1: all of a wrapper, which was not
    opened)."""

    entry: bytes | bytearray | memoryview | None
    records: int


NOTHING = Stays(None, 0)


def holds_old_formats(files: Files, source: Source) -> bool:
    """Returns whether a segment has an entry of an old format, by a walk over the headers. Raises StorageError if these
    are damaged."""
    if source.size_bytes == 0:
        return False
    with storage_errors(f"cannot read {source.log_path}"), contextlib.closing(files.open(source.log_path)) as file:
        data = memoryview(file.read(0, source.size_bytes))
    position, last = 0, source.size_bytes - MIN_BYTES[0]
    header_of = LENGTH_AND_MAGIC.unpack_from
    while position <= last:
        length, magic = header_of(data, position)
        if magic != batch.MAGIC:
            if magic in (0, 1):
                return True
            raise StorageError(f"{source.log_path} at byte {position}: message format v{magic} is unknown")
        if length < MIN_BYTES[0] - PREFIX_BYTES:
            break
        position += PREFIX_BYTES + length
    if position != source.size_bytes:
        raise StorageError(f"{source.log_path} at byte {position}: not a whole batch")
    return False


def rewrite(
    files: Files,
    sources: Sequence[Source],
    target: Target,
    *,
    choose: Choose | None = None,
    keep_old: bool = False,
    aborted: list[bytes] | None = None,
    on_progress: Progress | None = None,
    read: Read = entries,
) -> list[Rewritten]:
    """Writes the retained part of consecutive segments, oldest first, as segments of v2 batches.

    There is one output (empty if nothing is retained) unless the target's limits require more. All files are synced and
    have the modification time of the last source. `keep_old` keeps the message formats. `aborted` are the transaction
    index entries of the output, complete when the last entry was chosen; by default those of the sources. Runs from
    `read` are retained whole; `choose` decides on its other entries. Raises StorageError, and the exceptions of
    `on_progress`; all output is then removed, unless the disk refuses that too.
    """
    writer = _Writer(files, target, on_progress)
    if aborted is not None:
        writer.aborted = aborted
    try:
        for source in sources:
            if aborted is None:
                writer.aborted += _aborted_of(files, source)
            _rewrite_one(files, source, writer, choose, keep_old, read)
        writer.finish(files.modified_ns(sources[-1].log_path))
    except OSError as error:
        writer.discard()
        raise StorageError(f"cannot rewrite {sources[0].log_path}: {error}") from error
    except BaseException:  # also when the process is stopped by a signal
        writer.discard()
        raise
    return [
        Rewritten(out.base_offset, out.next_offset, out.size_bytes, out.converted, out.records)
        for out in writer.outputs
    ]


def _aborted_of(files: Files, source: Source) -> list[bytes]:
    """Returns the aborted transactions of a source. Their offsets do not change; an incomplete last one is dropped."""
    data = txn_index.read_whole(files, source.log_path.removesuffix(LOG_SUFFIX) + txn_index.SUFFIX)
    return [data[at : at + txn_index.ENTRY_BYTES] for at in range(0, len(data), txn_index.ENTRY_BYTES)]


def _rewrite_one(
    files: Files, source: Source, writer: _Writer, choose: Choose | None, keep_old: bool, read: Read
) -> None:
    position = 0
    try:
        for found in read(files, source.log_path, source.size_bytes):
            if isinstance(found, Run):
                writer.add_run(found)
                position += found.source_bytes
                writer.read(found.source_bytes)
                continue
            data, header = found
            stays = rewritten(data, header, choose(header, data) if choose else KEEP, keep_old)
            if stays.entry is not None:
                after = formats.read_header(stays.entry)
                converted = 0 if keep_old or header.magic == batch.MAGIC else after.record_count
                writer.add(stays.entry, after, converted or stays.records, converted)
            position += len(data)
            writer.read(len(data))
    except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
        raise StorageError(f"{source.log_path} at byte {position}: {error}") from error


def rewritten(data: memoryview, header: BatchHeader, verdict: Verdict, keep_old: bool = False) -> Stays:
    """Returns what one entry becomes: a v2 batch, or with `keep_old` an entry of its format; `data` itself if nothing
    changes.

    Raises CorruptRecords, InvalidRecords, UnsupportedCodec. The CRC is checked before records are read, so that no
    damaged entry gets a valid one.
    """
    keep, keep_empty, delete_horizon_ms = verdict
    if header.magic != batch.MAGIC:
        return _old(data, header, keep, delete_horizon_ms, keep_old)
    if keep is every and delete_horizon_ms is None:
        return Stays(data, header.record_count)
    if not batch.crc_matches(data, 0, header):
        raise CorruptRecords("the checksum does not match")
    if keep is not none and header.record_count:
        payload = bytes(batch.payload(data, 0, header))
        made, count = filtering.thinned(payload, header, None if keep is every else keep, delete_horizon_ms)
        if count:
            return Stays(data if made is None else made, count)
    return Stays(_emptied(header), 0) if keep_empty else NOTHING


def _old(data: memoryview, header: BatchHeader, keep: Keep, delete_horizon_ms: int | None, keep_old: bool) -> Stays:
    """Returns what an entry in v0 or v1 becomes. The batch of a wrapper spans the offsets from the first to the last
    retained record."""
    if keep is none:
        return NOTHING
    if keep is every:
        made, count = data if keep_old else None, header.record_count
    else:
        if not formats.crc_matches(data, 0, header):
            raise CorruptRecords("the checksum does not match")
        records = list(formats.records(data))
        kept = [record for record in records if keep(record.offset, record.key, record.value is not None)]
        made, count = None, len(kept)
        append_time = header.log_append_time
        if not kept:
            return NOTHING
        if keep_old:
            made = data
            if count < len(records):
                made = legacy.build(kept, magic=header.magic, codec=header.codec, log_append_time=append_time)
        elif count < len(records):
            made = batch.build(
                kept,
                batch.BatchFields(
                    log_append_time=append_time, max_timestamp=kept[0].timestamp if append_time else None
                ),
                base_offset=kept[0].offset,
                codec=header.codec,
            )
    if made is None:
        made = run(convert.up_entry(data, 0, header))  # this checks the CRC
    if keep_old or delete_horizon_ms is None:
        return Stays(made, count)
    converted = batch.read_header(made)
    return rewritten(memoryview(made), converted, Verdict(delete_horizon_ms=delete_horizon_ms))


def _emptied(header: BatchHeader) -> bytearray:
    """Returns the batch without records, as Kafka leaves it: without codec, base timestamp and delete horizon."""
    return batch.build(
        [],
        batch.BatchFields(
            log_append_time=header.log_append_time,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            last_offset_delta=header.last_offset_delta,
            max_timestamp=header.max_timestamp,
        ),
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
    )


class _Output(Segment):
    """A segment that is being written, under temporary file names."""

    __slots__ = ("_pending", "_suffix", "converted", "records")

    def __init__(self, files: Files, target: Target, base_offset: int):
        super().__init__(files, target.directory, base_offset, 0, target.index_interval_bytes)
        self._suffix = target.suffix
        self._pending = bytearray()
        self.converted = self.records = 0
        self.reset()  # its index files are written even if they stay empty
        self._file = log = files.open(self.path(LOG_SUFFIX), create=True)
        if log.size():
            log.truncate(0)

    def path(self, suffix: str) -> str:
        return super().path(suffix) + self._suffix

    def add(self, entry: bytes | bytearray | memoryview, header: BatchHeader, records: int, converted: int) -> None:
        """Appends a batch; it is written together with others. Raises OSError."""
        self.count(header, self.size_bytes)
        self._pending += entry
        self.size_bytes += len(entry)
        self.converted += converted
        self.records += abs(records)
        if len(self._pending) >= _WRITE_BYTES:
            self.write_pending()

    def add_run(self, run: Run, first: int, stop: int, index_bytes: int) -> int:
        """Appends the batches of a run from `first` on, up to `stop` or to the one that fills an index; returns the
        number after the last. Raises OSError."""
        stop = self._count_run(run, first, stop, index_bytes)
        begin, end = run.bounds[first], run.bounds[stop]
        self._pending += memoryview(run.data)[begin:end]
        self.size_bytes += end - begin
        records = run.records(first, stop)
        self.converted += records if run.converted else 0
        self.records += records
        if len(self._pending) >= _WRITE_BYTES:
            self.write_pending()
        return stop

    def _count_run(self, run: Run, first: int, stop: int, index_bytes: int) -> int:
        """Counts these batches like `count`, but visits only those that get an index entry."""
        bounds, times = run.bounds, run.max_timestamps
        if self.size_bytes == 0:
            self.first_timestamp_ms = times[first]
        done, since_bytes = first, self._since_index_bytes
        while done < stop:
            # The next batch to get an index entry: more than the interval lies between it and the last entry's batch.
            due = bisect_right(bounds, bounds[done] + self._index_interval_bytes - since_bytes, done, stop)
            until = min(due + 1, stop)
            latest = max(times[done:until])
            if latest > self.max_timestamp_ms:
                self.max_timestamp_ms = latest
                self.max_timestamp_offset = run.last_offsets[times.index(latest, done, until)]
            since_bytes += bounds[until] - bounds[done]
            done = until
            if due < stop:
                position = self.size_bytes + bounds[due] - bounds[first]
                self._offset_index.append(run.last_offsets[due] - self.base_offset, position)
                self._time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
                since_bytes = bounds[due + 1] - bounds[due]
                if self.is_index_full(index_bytes):
                    break
        self._since_index_bytes = since_bytes
        self.next_offset = run.last_offsets[done - 1] + 1
        return done

    def write_pending(self) -> None:
        """Writes all pending batches to the file. Raises OSError."""
        if self._pending:
            self._opened().write(self.size_bytes - len(self._pending), self._pending)
            self._pending = bytearray()

    def finish(self, aborted: bytes, modified_ns: int) -> None:
        """Writes the rest and the indexes, and makes all files durable. Raises OSError."""
        self.write_pending()
        self.save_indexes()
        if aborted:
            with contextlib.closing(self._files.open(self.path(txn_index.SUFFIX), create=True)) as file:
                file.truncate(0)
                file.write(0, aborted)
                file.sync()
        self._files.set_modified_ns(self.path(LOG_SUFFIX), modified_ns)
        self.doubt_files()
        self.sync()
        self.close()


class _Writer:
    """The outputs of one rewrite; the last one is being written."""

    def __init__(self, files: Files, target: Target, on_progress: Progress | None):
        self._files = files
        self._target = target
        self._end_offset = target.end_offset
        self._limits = target.limits
        self._on_progress = on_progress
        self._converted = 0
        self._read_bytes = 0
        self._reported_bytes = 0
        self.aborted: list[bytes] = []
        self.outputs: list[_Output] = []

    def read(self, size_bytes: int) -> None:
        """Counts bytes of the sources that are done."""
        self._read_bytes += size_bytes
        if self._on_progress is not None and self._read_bytes - self._reported_bytes >= _WRITE_BYTES:
            self._report()

    def add(self, entry: bytes | bytearray | memoryview, header: BatchHeader, records: int, converted: int) -> None:
        """Appends the next batch. Raises OSError, and InvalidRecords for offsets that do not rise."""
        out = self._current()
        if header.base_offset < out.next_offset or header.last_offset_delta < 0:
            raise InvalidRecords(f"offset {header.base_offset} where {out.next_offset} is next")
        if header.last_offset >= self._end_offset:
            raise InvalidRecords(f"offset {header.last_offset} where {self._end_offset} is the end")
        if out.size_bytes and (
            out.size_bytes + len(entry) > self._limits.segment_bytes
            or header.last_offset - out.base_offset > MAX_RELATIVE_OFFSET
            or out.is_index_full(self._limits.index_bytes)
        ):
            out = self._next(header.base_offset, header.last_offset)
        out.add(entry, header, records, converted)
        self._converted += converted

    def add_run(self, run: Run) -> None:
        """Appends the batches of a run, to as many outputs as they need. Raises like `add`."""
        out, done, count = self._current(), 0, len(run.last_offsets)
        if run.base_offsets[0] < out.next_offset:
            raise InvalidRecords(f"offset {run.base_offsets[0]} where {out.next_offset} is next")
        if run.last_offsets[-1] >= self._end_offset:
            raise InvalidRecords(f"offset {run.last_offsets[-1]} where {self._end_offset} is the end")
        while done < count:
            stop = self._fitting(out, run, done)
            if stop == done:
                out = self._next(run.base_offsets[done], run.last_offsets[done])
                continue
            begin, done = done, out.add_run(run, done, stop, self._limits.index_bytes)
            if run.converted:
                self._converted += run.records(begin, done)

    def _fitting(self, out: _Output, run: Run, first: int) -> int:
        """Returns the end of the batches from `first` on for which an output has room. An empty one takes any first
        batch."""
        least = first if out.size_bytes else first + 1
        if out.is_index_full(self._limits.index_bytes):
            return least
        room = self._limits.segment_bytes - out.size_bytes
        by_size = bisect_right(run.bounds, run.bounds[first] + room, first) - 1
        by_offset = bisect_right(run.last_offsets, out.base_offset + MAX_RELATIVE_OFFSET, first)
        return max(min(by_size, by_offset), least)

    def _current(self) -> _Output:
        return self.outputs[-1] if self.outputs else self._begin(self._target.base_offset)

    def _begin(self, base_offset: int) -> _Output:
        out = _Output(self._files, self._target, base_offset)
        self.outputs.append(out)
        return out

    def _next(self, base_offset: int, last_offset: int) -> _Output:
        """Begins another output at the end of the last one: a hole between segments would look like lost data."""
        self.outputs[-1].write_pending()
        end = self.outputs[-1].next_offset
        return self._begin(end if last_offset - end <= MAX_RELATIVE_OFFSET else base_offset)

    def finish(self, modified_ns: int) -> None:
        """Completes all outputs. Raises OSError."""
        self._current()
        for number, out in enumerate(self.outputs):
            is_last = number == len(self.outputs) - 1
            # A transaction belongs to the segment of its marker.
            aborted = [
                entry
                for entry in self.aborted
                if (number == 0 or _LAST_OFFSET.unpack_from(entry)[0] >= out.base_offset)
                and (is_last or _LAST_OFFSET.unpack_from(entry)[0] < self.outputs[number + 1].base_offset)
            ]
            out.finish(b"".join(aborted), modified_ns)
        if self._on_progress is not None:
            self._report()

    def _report(self) -> None:
        self._reported_bytes = self._read_bytes
        if self._on_progress is not None:
            self._on_progress(self._read_bytes, self._converted)

    def discard(self) -> None:
        """Removes the output, as far as the disk allows."""
        for out in self.outputs:
            with contextlib.suppress(OSError):
                out.close()
            for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, txn_index.SUFFIX):
                with contextlib.suppress(OSError):
                    self._files.remove(out.path(kind))

"""Finds the last record of each key: per segment, and then for a whole partition.

Owns the two halves of compaction's search for surviving records, and the files between them. In a task per segment
`keys_of` lists the last offset of each key in the segment, with keys as hashes of 16 bytes (those of
`storage/compaction/offset_map.py`, so that two keys are equal here exactly if they are for the broker's cleaner), and
the state of transactions. `split` divides that list into buckets by hash, for a shuffle; `settle` determines for a
bucket which offsets are kept.

Below `first_dirty_offset` a partition was cleaned before: a record there is dropped only if a later one, at or after
that offset, has its key, even if a key occurs twice. So every clean record is listed, and the result for clean records
are those to drop; for dirty records it is those to keep.

Memory: a task of `keys_of` holds a window and ROWS rows of 24 bytes, several times while they are sorted; one of
`settle` holds the rows of its bucket, about ROWS.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ....protocol.limits import INT64_MAX
from ....protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ....protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ....storage.compaction.cleaned_transactions import CleanedTransactions
from ....storage.compaction.offset_map import digests
from ....storage.errors import StorageError
from ....storage.io.files import DiskFiles, Files
from ....storage.producers import txn_index
from ....storage.producers.txn_index import AbortedTransaction
from ....storage.segments.segment import file_name
from ...readers import columnar
from ...readers.columnar import Rows
from ...readers.columnar.columns import record_batch
from ...readers.columnar.varints import Int64s
from ..in_place.directory_hold import COMPACTED, own_suffix
from ..in_place.windows import entry_windows

ROWS = 1 << 20
"""Keys that are sorted at once, and the size of a bucket."""

WINDOW_BYTES = 8 << 20

# The kinds of blocks in a file: keys of dirty records, keys of clean ones (hashes and offsets), clean records without a
# key, tombstones (offsets).
DIRTY, CLEAN, KEYLESS, TOMBSTONES = range(4)

_BLOCK = struct.Struct("<qq")
_COUNT = struct.Struct("<q")
_KIND = struct.Struct(">xxh")
_ROW_WORDS = 3  # two for the hash, one for the offset


@dataclass(frozen=True, slots=True)
class KeysItem:
    """A segment to read: the `index`-th of the partition with number `partition` in the plan. Its offsets are below
    `end_offset`. `aborted` are the aborted transactions that may have batches in it."""

    partition: int
    index: int
    directory: str
    base_offset: int
    size_bytes: int
    first_dirty_offset: int
    end_offset: int = INT64_MAX
    aborted: tuple[AbortedTransaction, ...] = ()

    @property
    def path(self) -> str:
        return os.path.join(self.directory, file_name(self.base_offset))

    def __str__(self) -> str:
        return self.path


class KeysFound(NamedTuple):
    """The result of a segment: the name of the file with its keys and its number of rows, the records without markers,
    the clean ones of these that were not aborted, and the tombstones that were not; and for each producer with
    transactions in it, whether a batch of its last transaction is left. For a damaged segment only the problem."""

    name: str
    rows: int
    records: int
    clean_records: int
    tombstones: int
    left: dict[int, bool]
    problem: str | None = None


def keys_of(item: KeysItem, files: Files | None = None) -> KeysFound:
    """Reads a segment and writes its keys to a file beside it, with a name unique to this attempt. Verifies every CRC;
    damage is returned as the problem. Raises OSError."""
    files, position = files or DiskFiles(), 0
    name = f"{item.base_offset:020d}.keys{own_suffix(COMPACTED)}"
    try:
        with _Blocks(files, os.path.join(item.directory, name)) as blocks:
            keys = _Keys(item, blocks)
            for data, places in entry_windows(files, item.path, item.size_bytes, WINDOW_BYTES):
                for rows in columnar.spans(memoryview(data)[: places[-1]], columnar.Options(control=True)):
                    keys.add(rows)
                position += places[-1]
            return keys.finish(name)
    except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
        problem = f"{item.path}, in the window from byte {position}: {error}"
    except StorageError as error:
        if isinstance(error.__cause__, OSError):
            raise
        problem = str(error)
    return KeysFound("", 0, 0, 0, 0, {}, problem)


class _Blocks:
    """The file of a task: blocks of numbers, each with its kind and count. Removed after an error."""

    def __init__(self, files: Files, path: str) -> None:
        self._files, self._path = files, path
        self._file = files.open(path, create=True)
        self._position = 0

    def __enter__(self) -> _Blocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if kind is not None:
            with contextlib.suppress(OSError):  # swept later
                self._files.remove(self._path)

    def add(self, kind: int, *columns: Int64s) -> None:
        """Adds a block, unless it is empty."""
        if not columns[0].size:
            return
        for data in (_BLOCK.pack(kind, columns[0].size), *(column.tobytes() for column in columns)):
            self._file.write(self._position, data)
            self._position += len(data)


def blocks(files: Files, path: str, kinds: Sequence[int]) -> Iterator[tuple[int, Int64s]]:
    """Yields the blocks of these kinds in a file: (kind, columns), of rows or of offsets. Raises OSError."""
    with contextlib.closing(files.open(path)) as file:
        position, size = 0, file.size()
        while position < size:
            kind, count = _BLOCK.unpack(file.read(position, _BLOCK.size))
            columns = _ROW_WORDS if kind in (DIRTY, CLEAN) else 1
            position += _BLOCK.size
            if kind in kinds:
                data = np.frombuffer(bytes(file.read(position, 8 * count * columns)), np.int64)
                yield kind, data.reshape(columns, count)
            position += 8 * count * columns


class _Buffer:
    """Columns of one kind, written as a block when they are long: rows of hashes sorted by them, of dirty ones only the
    last of each key; offsets, which ascend, as they are."""

    def __init__(self, kind: int, blocks: _Blocks) -> None:
        self._kind, self._blocks = kind, blocks
        self._parts: list[np.ndarray] = []
        self._size = self.written = 0

    def add(self, *columns: Int64s) -> None:
        """Adds rows: two words of each hash and the offset, or the offset alone."""
        self._parts.append(np.vstack(columns))
        self._size += columns[0].size
        if self._size >= ROWS:
            self.flush()

    def flush(self) -> None:
        if not self._parts:
            return
        rows = np.concatenate(self._parts, axis=1)
        self._parts, self._size = [], 0
        if self._kind in (DIRTY, CLEAN):
            order = by_hash(rows[0], rows[1])
            if self._kind == DIRTY:
                order = order[_last_of_runs(rows[0][order], rows[1][order])]
            rows = rows[:, order]
        self._blocks.add(self._kind, *rows)
        self.written += rows.shape[1]


def by_hash(first: Int64s, second: Int64s) -> Int64s:
    """Returns the order by hash, stable."""
    order = np.argsort(first.view(np.uint64), kind="stable")
    sorted_first, sorted_second = first[order], second[order]
    same = sorted_first[1:] == sorted_first[:-1]
    if (same & (sorted_second[1:] != sorted_second[:-1])).any():  # rows that share half a hash: very rare
        return np.lexsort((second, first.view(np.uint64)))
    return order


def _last_of_runs(first: Int64s, second: Int64s) -> np.ndarray:
    """Returns which of these sorted rows are the last of their hash."""
    last = np.ones(first.size, np.bool_)
    np.logical_or(first[1:] != first[:-1], second[1:] != second[:-1], out=last[:-1])
    return last


class _Keys:
    """The keys of a segment while it is read."""

    def __init__(self, item: KeysItem, blocks: _Blocks) -> None:
        self._first_dirty = item.first_dirty_offset
        self._next_offset, self._end_offset = item.base_offset, item.end_offset
        self._dirty, self._clean, self._keyless, self._tombstones = (
            _Buffer(kind, blocks) for kind in (DIRTY, CLEAN, KEYLESS, TOMBSTONES)
        )
        self._transactions = CleanedTransactions(item.aborted)
        self._left: dict[int, bool] = {}
        self._records = self._clean_records = 0

    def add(self, rows: Rows) -> None:
        """Takes the next rows."""
        self._check_offsets(rows)
        included = self._included(rows)
        offsets = rows.offsets
        if not offsets.size:
            return
        keys = record_batch(rows, ("key",)).column(0)
        tombstones = rows.values.sizes < 0
        if included is not None:
            keys, offsets, tombstones = keys.filter(pa.array(included)), offsets[included], tombstones[included]
        if keys.null_count:
            keyed = keys.is_valid().to_numpy(zero_copy_only=False)
            self._keyless.add(offsets[~keyed & (offsets < self._first_dirty)])
            tombstones = tombstones & keyed
        self._tombstones.add(offsets[tombstones])
        dirty = offsets >= self._first_dirty
        self._clean_records += int(np.count_nonzero(~dirty))
        for chosen, add in ((~dirty, self._add_clean), (dirty, self._add_dirty)):
            if chosen.all():
                add(keys, offsets)
            elif chosen.any():
                add(keys.filter(pa.array(chosen)), offsets[chosen])

    def _check_offsets(self, rows: Rows) -> None:
        """Checks that offsets ascend: no CRC covers them, and damage must not decide which records are dropped. Raises
        CorruptRecords."""
        first = 0
        for number, (header, count) in enumerate(zip(rows.entries, rows.counts.tolist(), strict=True)):
            begin, last = header.base_offset, header.last_offset
            if count:
                own = rows.offsets[first : first + count]
                begin, last = min(begin, int(own[0])), max(last, int(own[-1]))
                if count > 1 and not (own[1:] > own[:-1]).all():
                    raise CorruptRecords(f"offsets do not ascend after {begin}")
            if begin < self._next_offset and not (rows.continues and not number):
                raise CorruptRecords(f"offset {begin}, but {self._next_offset} is the lowest possible")
            if last >= self._end_offset:
                raise CorruptRecords(f"offset {last}, but the segment ends at {self._end_offset}")
            self._next_offset = last + 1
            first += count

    def _add_dirty(self, keys: pa.Array, offsets: Int64s) -> None:
        words, codes, offsets = _hashed(keys, offsets)
        last = np.empty(len(words), np.int64)
        last[codes] = offsets  # for rows with equal codes the last assignment wins
        self._dirty.add(*words.T, last)

    def _add_clean(self, keys: pa.Array, offsets: Int64s) -> None:
        words, codes, offsets = _hashed(keys, offsets)
        self._clean.add(*words[codes].T, offsets)

    def _included(self, rows: Rows) -> np.ndarray | None:
        """Returns which rows are in data batches that were not aborted; None for all."""
        attributes = np.array([header.attributes for header in rows.entries], np.int64)
        special = np.flatnonzero(attributes & (CONTROL_BIT | TRANSACTIONAL_BIT))
        if not special.size:
            self._records += rows.offsets.size
            return None
        included = np.ones(len(rows.entries), np.bool_)
        first = np.cumsum(rows.counts) - rows.counts
        control_records = 0
        for index in special.tolist():
            header = rows.entries[index]
            if header.is_control:
                included[index] = False
                control_records += int(rows.counts[index])
                self._on_control(rows, header, int(first[index]))
            elif header.is_transactional:
                self._left[header.producer_id] = True
                included[index] = not self._transactions.on_batch(header)
        self._records += rows.offsets.size - control_records
        return np.repeat(included, rows.counts)

    def _on_control(self, rows: Rows, header: BatchHeader, row: int) -> None:
        """Records a marker, like `CleanedTransactions` and `txn_index.read_marker`."""
        if not header.record_count or header.producer_id < 0 or rows.keys.sizes[row] < _KIND.size:
            return
        (kind,) = _KIND.unpack_from(rows.payload, int(rows.keys.starts[row]))
        if kind in (txn_index.ABORT, txn_index.COMMIT):
            self._transactions.on_end(header, kind)
            self._left[header.producer_id] = False

    def finish(self, name: str) -> KeysFound:
        """Writes the remaining rows."""
        for part in (self._dirty, self._clean, self._keyless, self._tombstones):
            part.flush()
        return KeysFound(
            name,
            self._dirty.written + self._clean.written,
            self._records,
            self._clean_records,
            self._tombstones.written,
            self._left,
        )


def _hashed(keys: pa.Array, offsets: Int64s) -> tuple[np.ndarray, Int64s, Int64s]:
    """Returns the hashes of the distinct keys, two words each, and for each record with a key the index of its hash,
    and its offset."""
    encoded = keys.dictionary_encode()
    codes = encoded.indices
    if codes.null_count:
        valid = codes.is_valid()
        codes, offsets = codes.filter(valid), offsets[valid.to_numpy(zero_copy_only=False)]
    words = np.frombuffer(digests(encoded.dictionary.to_pylist()), np.int64).reshape(-1, 2)
    return words, codes.to_numpy(), offsets


# -- the shuffle


class Part(NamedTuple):
    """Rows of a bucket from one block of one segment: the segment's index in its partition, the number of the block,
    its kind, and the columns."""

    segment: int
    block: int
    kind: int
    data: bytes


def split(files: Files, path: str, segment: int, buckets: int) -> Iterator[tuple[int, Part]]:
    """Yields the rows of a segment by bucket, `buckets` of them by hash. Raises OSError."""
    bounds = np.array([(number << 64) // buckets for number in range(1, buckets)], np.uint64)
    for number, (kind, rows) in enumerate(blocks(files, path, (DIRTY, CLEAN))):
        cuts = [0, *np.searchsorted(rows[0].view(np.uint64), bounds).tolist(), rows.shape[1]]
        for bucket in range(buckets):
            if cuts[bucket] < cuts[bucket + 1]:
                found = rows[:, cuts[bucket] : cuts[bucket + 1]]
                yield bucket, Part(segment, number, kind, found.tobytes())


def settle(parts: Iterable[Part]) -> dict[int, Int64s]:
    """Returns for each segment, by its index, the offsets of a bucket's dirty records to keep and clean records to
    drop, ascending. `parts` are all rows with the hashes of the bucket."""
    # Clean rows first, then by offset: the last row of a hash is the last record of its key, if any is dirty.
    ordered = sorted(parts, key=lambda part: (part.kind == DIRTY, part.segment, part.block))
    if not ordered:
        return {}
    read = [np.frombuffer(part.data, np.int64).reshape(_ROW_WORDS, -1) for part in ordered]
    rows = np.concatenate(read, axis=1)
    counts = [part.shape[1] for part in read]
    segments = np.repeat(np.array([part.segment for part in ordered], np.int64), counts)
    dirty = np.repeat(np.array([part.kind == DIRTY for part in ordered], np.bool_), counts)
    order = by_hash(rows[0], rows[1])
    last = _last_of_runs(rows[0][order], rows[1][order])
    dirty = dirty[order]
    chosen = last & dirty
    if not dirty.all():
        ends = np.flatnonzero(last)
        superseded = np.repeat(dirty[ends], np.diff(ends, prepend=-1))
        chosen |= superseded & ~dirty
    segments, offsets = segments[order][chosen], rows[2][order][chosen]
    order = np.lexsort((offsets, segments))
    segments, offsets = segments[order], offsets[order]
    cuts = np.flatnonzero(np.diff(segments)) + 1
    return {
        int(segments[start]): offsets[start:end]
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), segments.size], strict=True)
        if end > start
    }


def write_settled(files: Files, directory: str, found: dict[int, Int64s]) -> str:
    """Writes the settled offsets of a bucket and returns the name of the file. Raises OSError."""
    name = f"kept{own_suffix(COMPACTED)}"
    table = b"".join(_BLOCK.pack(segment, offsets.size) for segment, offsets in found.items())
    with contextlib.closing(files.open(os.path.join(directory, name), create=True)) as file:
        file.write(0, b"".join([_COUNT.pack(len(found)), table, *(offsets.tobytes() for offsets in found.values())]))
    return name


def read_settled(files: Files, directory: str, names: Iterable[str], segments: Sequence[int]) -> list[Int64s]:
    """Returns the settled offsets of these segments, one array for each file and segment. Raises OSError."""
    pieces: list[Int64s] = []
    for name in names:
        with contextlib.closing(files.open(os.path.join(directory, name))) as file:
            (count,) = _COUNT.unpack(file.read(0, _COUNT.size))
            table = bytes(file.read(_COUNT.size, count * _BLOCK.size)) if count else b""
            position = _COUNT.size + len(table)
            for segment, size in _BLOCK.iter_unpack(table):
                if segment in segments:
                    pieces.append(np.frombuffer(bytes(file.read(position, 8 * size)), np.int64))
                position += 8 * size
    return pieces

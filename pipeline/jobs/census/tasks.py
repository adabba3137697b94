"""Counts one piece of a log: a segment, or a part of one.

Owns reading in windows and counting with arrays: no Python work per record, little per entry. A file is read, never
mapped, since a broker may truncate it. Damage is counted with its place; counting ends only if no further entry is
recognisable. `columnar` has the decoder and its limits.
"""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import numpy.typing as npt

from ....protocol.collection import without_collection
from ....protocol.records.batch import CODEC_BITS, CONTROL_BIT, HEADER_BYTES, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT
from ....protocol.records.layout import LENGTH_AT, PREFIX_BYTES
from ....storage import inspect
from ....storage.errors import StorageError
from ...objects.logs import files_of, is_missing, use
from ...readers import columnar
from ...readers.columnar import Options, Rows
from .facts import Amount, Damaged, Facts, Sizes, Times, bin_of, merge
from .plan import SegmentPiece

WINDOW_BYTES = 8 << 20
"""Bytes per read: two chunks of the decoder. A larger entry is read alone."""

_SMALL = 4096  # sizes below this are counted exactly before they are put into bins
_BINS_OF_SMALL = np.array([bin_of(size) for size in range(_SMALL)], np.int64)
_SIZE = struct.Struct(">i")
_LEAST_BYTES = 14
_COMMIT, _ABORT = 1, 0

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def count(piece: SegmentPiece) -> Facts:
    """Counts a piece. A deleted file counts as gone, an unreadable one as damage. Raises nothing."""
    use(piece.objects)
    counter = _Counter(piece)
    try:
        # There are no cycles here, and a collection would scan all headers of a chunk repeatedly, for a quarter of the
        # time with tiny batches.
        with inspect.FileSource(piece.path, files_of(piece.path)) as source, without_collection():
            counter.read(source)
    except (StorageError, OSError) as error:
        if not is_missing(piece.path):
            counter.lost(piece.start, piece.size_bytes, str(error))
        else:  # deleted by retention or the cleaner
            counter.facts.gone += 1
    return merge([counter.facts])  # merge sorts the damage: the decoder's findings come after wrong CRCs


class _Counter:
    """The counts of a piece while it is read."""

    def __init__(self, piece: SegmentPiece) -> None:
        self.facts = Facts()
        self._piece = piece

    def lost(self, position: int, size_bytes: int, what: str, *, is_end: bool = False) -> None:
        kind = "damaged" if not is_end else "open end" if self._piece.is_newest else "cut"
        self.facts.add_damage(Damaged(self._piece.path, position, size_bytes, kind, what))

    def read(self, source: inspect.FileSource) -> None:
        """Counts window by window. Raises OSError."""
        position = self._piece.start
        source.size = min(source.size, self._piece.end)  # ignores later appends
        if source.size < self._piece.end and source.size <= position:
            self.lost(position, self._piece.end - position, "the file was truncated", is_end=True)
            return
        while position < source.size:
            data = source.read(position, min(WINDOW_BYTES, source.size - position))
            size = _whole(data)
            if not size:
                found = inspect.entry_at(source, position)
                if isinstance(found, inspect.Damage):
                    self.lost(position, self._piece.end - position, found.reason, is_end=found.is_tail)
                    return
                size = found.size_bytes
                if size > inspect.ENTRY_BYTES_MAX:
                    self.lost(position, size, f"an entry of {size} bytes is not opened")
                    position += size
                    continue
                data = source.read(position, size)
            if not self._count(memoryview(data)[:size], position):
                return
            position += size

    def _count(self, data: memoryview, position: int) -> bool:
        """Counts whole entries. Returns whether a following entry is recognisable."""
        ended: list[int] = []

        def damaged(damage: columnar.Damage) -> None:
            at = position + damage.position
            if damage.header is None:
                self.lost(at, self._piece.end - at, str(damage.error))
                ended.append(at)
            else:
                self.lost(at, damage.header.size_bytes, str(damage.error))

        for rows in columnar.spans(data, Options(control=True, on_damage=damaged)):
            add(self.facts, rows)
        return not ended


def _whole(data: bytes) -> int:
    """Returns how many bytes are whole entries, by their sizes."""
    unpack = _SIZE.unpack_from
    position, end = 0, len(data)
    with contextlib.suppress(struct.error):
        while position < end:
            size = unpack(data, position + LENGTH_AT)[0] + PREFIX_BYTES
            if size < _LEAST_BYTES or position + size > end:
                break
            position += size
    return position


# -- rows to facts


def add(facts: Facts, rows: Rows) -> None:
    """Adds the counts of these rows."""
    entries = rows.entries
    attributes = np.array([header.attributes for header in entries], np.int64)
    magics = np.array([header.magic for header in entries], np.int64)
    control = (attributes & CONTROL_BIT > 0) & (magics == 2)
    if control.any():
        _add_markers(facts, rows, control)
    new = np.ones(len(entries), np.bool_)
    new[0] = not rows.continues
    records = np.where(control, 0, rows.counts)
    old_plain = (magics < 2) & (attributes & CODEC_BITS == 0)
    raw = _raw_bytes(rows) + np.where(new & (magics == 2), HEADER_BYTES, 0)
    # A run of plain messages is one entry in the rows, but each message counts as an entry.
    stored = np.where(old_plain, raw, np.array([header.size_bytes for header in entries], np.int64) * new)
    number = np.where(old_plain, records, new)
    amounts = np.stack((number, records, stored, raw))
    kinds = magics * 8 + (attributes & CODEC_BITS)
    for kind in np.unique(kinds).tolist():
        facts.amount(kind >> 3, kind & CODEC_BITS).add(_sum(amounts, kinds == kind))
    largest = stored[~old_plain]
    if largest.size:
        facts.largest_entry_bytes = max(facts.largest_entry_bytes, int(largest.max()))
    if old_plain.any():
        sizes = (rows.ends - rows.begins)[np.repeat(old_plain, rows.counts)]
        facts.largest_entry_bytes = max(facts.largest_entry_bytes, int(sizes.max(initial=0)))
    _add_producers(facts, rows, attributes, control, amounts)
    _add_range(facts, rows, magics)
    data = None if not control.any() else np.repeat(~control, rows.counts)
    facts.keys.add(sizes_of(rows.keys.sizes if data is None else rows.keys.sizes[data]))
    facts.values.add(sizes_of(rows.values.sizes if data is None else rows.values.sizes[data]))
    if rows.headers is not None:
        facts.with_headers += int(np.count_nonzero(rows.headers.counts))
        facts.headers += int(rows.headers.counts.sum())
        facts.header_bytes += int(rows.headers.keys.sizes.sum(dtype=np.int64))
        facts.header_bytes += int(np.maximum(rows.headers.values.sizes, 0).sum(dtype=np.int64))
    appended = np.where(magics == 0, -1, (attributes & LOG_APPEND_TIME_BIT > 0).astype(np.int64))
    _add_times(facts, rows, appended, control)


def _sum(amounts: Int64s, of: Bools) -> Amount:
    return Amount(*amounts[:, of].sum(axis=1).tolist())


def _raw_bytes(rows: Rows) -> Int64s:
    """Returns the bytes of each entry's records in the payload."""
    ends = np.cumsum(rows.counts)
    found = np.zeros(len(rows.counts), np.int64)
    some = rows.counts > 0
    found[some] = rows.ends[ends[some] - 1] - rows.begins[(ends - rows.counts)[some]]
    return found


def _add_markers(facts: Facts, rows: Rows, control: Bools) -> None:
    """Counts the records of control batches by type: the key has a version and a type, two bytes each."""
    of_control = np.repeat(control, rows.counts)
    starts, sizes = rows.keys.starts[of_control], rows.keys.sizes[of_control]
    payload = np.frombuffer(rows.payload, np.uint8)
    complete = starts[sizes >= 4]
    kinds = payload[complete + 2].astype(np.int64) << 8 | payload[complete + 3]
    commits, aborts = int((kinds == _COMMIT).sum()), int((kinds == _ABORT).sum())
    facts.commits += commits
    facts.aborts += aborts
    facts.other_markers += starts.size - commits - aborts


def _add_producers(facts: Facts, rows: Rows, attributes: Int64s, control: Bools, amounts: Int64s) -> None:
    ids = np.array([header.producer_id for header in rows.entries], np.int64)
    numbered = (ids >= 0) & ~control
    if numbered.any():
        facts.producers.update(np.unique(ids[numbered]).tolist())
        facts.numbered.add(_sum(amounts, numbered))
        facts.transactional.add(_sum(amounts, numbered & (attributes & TRANSACTIONAL_BIT > 0)))


def _add_range(facts: Facts, rows: Rows, magics: Int64s) -> None:
    new = [header for header in rows.entries if header.magic == 2]
    if new:
        first = min(header.base_offset for header in new)
        facts.add_range(first, max(header.next_offset for header in new))
    if len(new) < len(rows.entries) and rows.offsets.size:
        old = rows.offsets if not new else rows.offsets[np.repeat(magics < 2, rows.counts)]
        if old.size:
            facts.add_range(int(old.min()), int(old.max()) + 1)


def _add_times(facts: Facts, rows: Rows, kinds: Int64s, control: Bools) -> None:
    """Adds timestamps by type: -1 for v0, 0 CreateTime, 1 LogAppendTime."""
    kinds = np.where(control, -2, kinds)
    for kind, times in ((-1, None), (0, facts.create), (1, facts.append)):
        if not (kinds == kind).any():
            continue
        found = rows.timestamps if (kinds == kind).all() else rows.timestamps[np.repeat(kinds == kind, rows.counts)]
        timed = found if times is not None else found[:0]
        if timed.size and timed.min() < 0:
            timed = timed[timed != -1]
        facts.untimed += found.size - timed.size
        if times is not None and timed.size:
            times.add(Times(timed.size, int(timed.min()), int(timed.max())))


def sizes_of(sizes: npt.NDArray[np.integer]) -> Sizes:
    """Returns the statistics of these sizes; -1 is null."""
    if not sizes.size:
        return Sizes()
    # From -1 on, with all large sizes in one bin.
    numbers = np.bincount(np.minimum(sizes, _SMALL) + 1, minlength=_SMALL + 2)
    nulls = int(numbers[0])
    found = Sizes(count=sizes.size - nulls, nulls=nulls, total=int(sizes.sum(dtype=np.int64)) + nulls)
    if not found.count:
        return found
    binned = np.bincount(_BINS_OF_SMALL, weights=numbers[1:-1])
    some = np.flatnonzero(binned)
    found.bins = dict(zip(some.tolist(), binned[some].astype(np.int64).tolist(), strict=True))
    found.most = int(sizes.max())
    small = np.flatnonzero(numbers[1:-1])
    found.least = int(small[0]) if small.size else int(sizes[sizes >= _SMALL].min())
    if numbers[-1]:
        _add_large(found, sizes[sizes >= _SMALL].astype(np.int64))
    return found


def _add_large(found: Sizes, sizes: Int64s) -> None:
    bits = np.frexp(sizes.astype(np.float64))[1].astype(np.int64)  # exact: sizes are below 2**31
    indexes = bin_of(_SMALL) + (bits - _SMALL.bit_length()) * 8 + (sizes >> (bits - 4)) % 8
    for index, number in zip(*(part.tolist() for part in np.unique(indexes, return_counts=True)), strict=True):
        found.bins[index] = found.bins.get(index, 0) + number

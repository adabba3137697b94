"""Drops records from many v2 batches at once; byte-equal to `filtering.thinned`, which handles one batch.

    reader = RunReader(chooser)
    rewrite(..., choose=reader, read=reader.read)

Owns the walk over a segment that calls the chooser for every entry, in order, and returns its decisions by offset as
runs: batches that are kept, dropped, or lose records or get a delete horizon, whose records are decoded and reassembled
by columns; and v0/v1 messages that are kept as v2. Unusual entries, and groups too small to gain, are returned
unchanged with their verdict, for the slow path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ....protocol.records import batch, formats
from ....protocol.records.batch import DELETE_HORIZON_BIT, NO_TIMESTAMP, BatchHeader
from ....protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ....storage.compaction.compaction import Chooser
from ....storage.compaction.rewrite import Run, Verdict, every, none
from ....storage.io.files import Files
from ...readers.columnar import batches
from ...readers.columnar.columns import pieces
from ...readers.columnar.encoding import bytes_of, joined
from ...readers.columnar.rows import Rows, Spans
from ...readers.columnar.upgrade import PADDING, upgraded
from ...readers.columnar.varints import Int64s, after_varints, checked_difference, zigzag_widths, zigzags
from ..in_place.windows import entry_windows
from .last_offsets import WINDOW_BYTES

LEAST_RECORDS = 200
"""Fewer records are handled batch by batch: the array operations cost as much as about this number."""

_MOST_RECORDS = batches.MAX_ROWS // 2
_MOST_BYTES = 32 << 20
_EVERY, _STAY, _GO = range(3)  # the meaning of a batch's listed offsets


class Chosen:
    """Keeps a record by its offset: one of `offsets`, or any other with `is_complement`."""

    __slots__ = ("_given", "is_complement", "offsets")

    def __init__(self, offsets: Sequence[int], *, is_complement: bool) -> None:
        self.offsets, self.is_complement = offsets, is_complement
        self._given: frozenset[int] | None = None  # built on demand; most are never called record by record

    def __call__(self, offset: int, key: bytes | None, has_value: bool) -> bool:
        if self._given is None:
            self._given = frozenset(self.offsets)
        return (offset in self._given) is not self.is_complement


class _Item(NamedTuple):
    """An entry of a window with its verdict; `horizon_ms` is the delete horizon to write into it."""

    position: int
    header: BatchHeader
    verdict: Verdict
    horizon_ms: int | None

    def entry(self, window: memoryview) -> memoryview:
        return window[self.position : self.position + self.header.size_bytes]

    @property
    def goes(self) -> bool:
        return self.verdict.keep is none and not self.verdict.keep_empty

    @property
    def is_whole(self) -> bool:
        """Whether the entry changes its format at most."""
        return self.verdict.keep is every and self.horizon_ms is None

    @property
    def is_thinned(self) -> bool:
        """Whether the batch is thinned together with others."""
        header, keep = self.header, self.verdict.keep
        return (
            not self.is_whole
            and (keep is every or isinstance(keep, Chosen))
            and header.magic == batch.MAGIC
            and not (header.is_control or header.log_append_time)
            and 0 < header.record_count <= _MOST_RECORDS
        )


class _Kept(NamedTuple):
    """A batch without its dropped records."""

    data: bytearray | memoryview
    max_timestamp: int
    count: int


class RunReader:
    """Reads a segment as runs, see the module. For one group, like its chooser."""

    def __init__(self, chooser: Chooser, *, keep_old: bool = False) -> None:
        self._chooser = chooser
        self._keep_old = keep_old
        self._verdict: Verdict | None = None

    def __call__(self, header: BatchHeader, data: memoryview) -> Verdict:
        """Returns the verdict on the entry that `read` has just returned."""
        verdict, self._verdict = self._verdict, None
        assert verdict is not None, "the entry was not read"
        return verdict

    def read(self, files: Files, path: str, size_bytes: int) -> Iterator[tuple[memoryview, BatchHeader] | Run]:
        """Reads a segment, see `storage.compaction.rewrite.Read`."""
        for data, places in entry_windows(files, path, size_bytes, WINDOW_BYTES):
            window = memoryview(data)
            items: list[_Item] = []
            for position, end in pairwise(places):
                header = formats.read_header(window, position)
                verdict = self._chooser(header, window[position:end])
                # An existing delete horizon is kept.
                horizon_ms = None if header.has_delete_horizon else verdict.delete_horizon_ms
                items.append(_Item(position, header, verdict, horizon_ms))
            yield from self._written(window, items)

    def _written(self, window: memoryview, items: list[_Item]) -> Iterator[tuple[memoryview, BatchHeader] | Run]:
        thinned = _thinned(window, [item for item in items if item.is_thinned])
        run: list[tuple[BatchHeader, _Kept]] = []
        old: list[_Item] = []
        for item in items:
            if item.goes:
                continue
            made, header = thinned.get(item.position), item.header
            is_old = item.is_whole and header.magic != batch.MAGIC and not self._keep_old
            if old and not is_old:
                yield from self._upgraded(window, old)
                old = []
            if item.is_whole and header.magic == batch.MAGIC:
                made = _Kept(item.entry(window), header.max_timestamp, header.record_count)
            if made is not None:
                run.append((header, made))
                continue
            if run:
                yield _run(run)
                run = []
            if is_old:
                old.append(item)
            else:
                yield self._alone(window, item)
        if run:
            yield _run(run)
        if old:
            yield from self._upgraded(window, old)

    def _alone(self, window: memoryview, item: _Item) -> tuple[memoryview, BatchHeader]:
        self._verdict = item.verdict
        return item.entry(window), item.header

    def _upgraded(self, window: memoryview, items: list[_Item]) -> Iterator[tuple[memoryview, BatchHeader] | Run]:
        """Upgrades consecutive old entries; those between them were dropped."""
        entries = [item.entry(window) for item in items]
        places = [0, *accumulate(map(len, entries))]
        by_place = dict(zip(places, items, strict=False))
        end_offset = items[-1].header.next_offset
        for found in upgraded(b"".join((*entries, PADDING)), places, next_offset=0, end_offset=end_offset):
            yield found if isinstance(found, Run) else self._alone(window, by_place[found.position])


def _run(kept: Sequence[tuple[BatchHeader, _Kept]]) -> Run:
    """Returns consecutive batches as a run."""
    parts = [made.data for _, made in kept]
    return Run(
        b"".join(parts),
        [0, *accumulate(map(len, parts))],
        [header.base_offset for header, _ in kept],
        [header.last_offset for header, _ in kept],
        [made.max_timestamp for _, made in kept],
        [made.count for _, made in kept],
        False,
        sum(header.size_bytes for header, _ in kept),
    )


# -- many batches at once


def _thinned(window: memoryview, items: Sequence[_Item]) -> dict[int, _Kept]:
    """Returns the thinned batches by position. Missing ones need the slow path."""
    found: dict[int, _Kept] = {}
    chunk: list[_Item] = []
    payloads: list[bytes | memoryview] = []
    records = size = 0
    for item in items:
        if records + item.header.record_count > _MOST_RECORDS or size > _MOST_BYTES:
            found.update(_together(chunk, payloads, records))
            chunk, payloads, records, size = [], [], 0, 0
        try:
            if not batch.crc_matches(window, item.position, item.header):
                continue
            payload = batch.payload(window, item.position, item.header)
        except (CorruptRecords, InvalidRecords, UnsupportedCodec):
            continue
        chunk.append(item)
        payloads.append(payload)
        records += item.header.record_count
        size += len(payload)
    found.update(_together(chunk, payloads, records))
    return found


def _together(items: list[_Item], payloads: list[bytes | memoryview], records: int) -> dict[int, _Kept]:
    if not items or records < LEAST_RECORDS:
        return {}
    headers = [item.header for item in items]
    try:
        rows, *more = batches.rows(headers, payloads, [True] * len(headers))
        made = None if more else _filtered(rows, items)
    except (InvalidRecords, UnsupportedCodec):
        return {}  # the slow path names the batch and the reason
    return {} if made is None else dict(zip((item.position for item in items), made, strict=True))


def _filtered(rows: Rows, items: Sequence[_Item]) -> list[_Kept] | None:
    """Returns the batches with their kept records; None if one has none left. Raises InvalidRecords for timestamps that
    do not fit."""
    kept = np.flatnonzero(_mask(rows, items))
    counts = np.bincount(np.repeat(np.arange(len(items)), rows.counts)[kept], minlength=len(items))
    if not counts.all():
        return None
    starts = np.cumsum(counts) - counts
    times = rows.timestamps[kept]
    old_bases = np.array([item.header.base_timestamp for item in items], np.int64)
    has_horizon = np.array([item.header.has_delete_horizon for item in items], np.bool_)
    gets_horizon = np.array([item.horizon_ms is not None for item in items], np.bool_)
    horizons = np.array([item.horizon_ms or 0 for item in items], np.int64)
    bases = np.where(gets_horizon, horizons, np.where(has_horizon, old_bases, times[starts]))
    latest = np.maximum(np.maximum.reduceat(times, starts), NO_TIMESTAMP)
    data, ends = _records(rows, kept, times, np.repeat(bases, counts), np.repeat(bases != old_bases, counts))
    made: list[_Kept] = []
    bounds = [0, *ends[np.cumsum(counts)].tolist()]
    bits = np.where(has_horizon | gets_horizon, DELETE_HORIZON_BIT, 0).tolist()
    for number, (item, base, newest, count) in enumerate(
        zip(items, bases.tolist(), latest.tolist(), counts.tolist(), strict=True)
    ):
        header = item.header._replace(base_timestamp=base, max_timestamp=newest, record_count=count)
        payload = data[bounds[number] : bounds[number + 1]]
        made.append(_Kept(batch.with_payload(header, payload, header.codec, bits=bits[number]), newest, count))
    return made


def _mask(rows: Rows, items: Sequence[_Item]) -> np.ndarray:
    """Returns which records are kept."""
    kinds: list[int] = []
    listed: list[int] = []
    for item in items:
        keep = item.verdict.keep
        if isinstance(keep, Chosen):
            listed += keep.offsets
            kinds.append(_GO if keep.is_complement else _STAY)
        else:
            kinds.append(_EVERY)
    of_record = np.repeat(np.array(kinds, np.int8), rows.counts)
    known = np.array(listed or [-1], np.int64)
    at = np.minimum(np.searchsorted(known, rows.offsets), known.size - 1)
    is_listed = known[at] == rows.offsets
    return (of_record == _EVERY) | (is_listed == (of_record == _STAY))


def _records(
    rows: Rows, kept: Int64s, times: Int64s, bases: Int64s, is_retimed: np.ndarray
) -> tuple[memoryview, np.ndarray]:
    """Returns the bytes of these records, concatenated, and the end of each, preceded by 0. Retimed records have
    another base timestamp; their bytes before the offset delta are written again."""
    data = np.frombuffer(rows.payload, np.uint8)
    begins, ends = rows.begins[kept], rows.ends[kept]
    retimed = np.flatnonzero(is_retimed)
    # A record begins with its length, attributes and timestamp delta; the offset delta follows.
    offsets_at = after_varints(data, after_varints(data, begins[retimed]) + 1)
    deltas = checked_difference(times[retimed], bases[retimed], "a timestamp")
    _, delta_widths = zigzag_widths(deltas)
    begins[retimed] = offsets_at
    tails = pieces(rows.payload, Spans(begins, ends - begins))
    if not retimed.size:
        return bytes_of(tails)
    lengths = 1 + delta_widths + ends[retimed] - offsets_at
    zeros = np.zeros(retimed.size, np.uint8), np.ones(retimed.size, np.int64)
    heads = [_scattered(*written, retimed, kept.size) for written in (zigzags(lengths), zeros, zigzags(deltas))]
    return bytes_of(joined(*heads, tails))


def _scattered(data: np.ndarray, widths: Int64s, at: Int64s, count: int) -> pa.Array:
    """Returns an array of `count` elements, with these at the places `at` and the others empty."""
    all_widths = np.zeros(count, np.int64)
    all_widths[at] = widths
    bounds = np.zeros(count + 1, np.int32)
    np.cumsum(all_widths, out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)])

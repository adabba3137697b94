"""Converts entries of any format to v2 batches at the same offsets, like storage/compaction/rewrite.py, many at once.

    for made in upgraded(window, size, next_offset=0, end_offset=2**63 - 1):
        ...  # a Run of batches, or an Entry that is to be converted alone

Owns the fast path, byte-equal to `convert.up_entry`: plain v0 and v1 messages become batches of one record, wrappers
become one batch each with the same codec, and v2 is copied. Damaged or unusual entries, and groups too small to gain,
are returned for the slow path, which also names the damage. Only CRCs are computed one by one. Reads no file, raises
nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ....protocol.records import batch, formats, legacy
from ....protocol.records.batch import (
    CODEC_BITS,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAX_DECOMPRESSED_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
)
from ....protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ....protocol.records.layout import LEGACY_ATTRIBUTES_AT, MAGIC_AT
from ....storage.compaction.rewrite import Run
from ....storage.format.index import MAX_RELATIVE_OFFSET
from . import legacy as legacy_rows
from .chunks import CHUNK_BYTES
from .columns import record_batch
from .encoding import HEAD, payloads, singles
from .varints import PADDING as PADDING
from .varints import Int64s

LEAST_ENTRIES = 8
"""Smaller groups are converted one by one: the array operations of a run take as long as several conversions."""

_WRITTEN = ("offset", "timestamp", "key", "value")


class Entry(NamedTuple):
    """The position of an entry that must be converted alone."""

    position: int
    size: int


class _Group(NamedTuple):
    """Consecutive entries of one kind: `places` has the start of each and the end of the last one."""

    window: bytes
    data: npt.NDArray[np.uint8]
    places: list[int]
    magic: int
    attributes: int

    @property
    def source_bytes(self) -> int:
        return self.places[-1] - self.places[0]

    def heads(self, kind: Any) -> Any:
        """Returns the header fields of each entry."""
        starts = np.array(self.places[:-1], np.int64)
        rows: Any = np.ndarray((self.data.size - kind.itemsize + 1,), f"V{kind.itemsize}", self.data, strides=(1,))
        return rows[starts].view(kind)


class _Unusual(Exception):
    """The entries need the slow path."""


def upgraded(window: bytes, places: Sequence[int], *, next_offset: int, end_offset: int) -> Iterator[Run | Entry]:
    """Yields the entries as runs of v2 batches, in order, or as positions for the slow path. `places` are the starts of
    the entries and the end of the last one. `window` continues after them by `PADDING`. The offsets of runs ascend from
    `next_offset` and stay below `end_offset`."""
    data = np.frombuffer(window, np.uint8)
    for group in _groups(window, data, places):
        done = group.places[0]
        try:
            for run in _made(group, next_offset, end_offset):
                yield run
                next_offset = run.last_offsets[-1] + 1
                done += run.source_bytes
        except (_Unusual, CorruptRecords, InvalidRecords, UnsupportedCodec):
            for position, end in pairwise(group.places[group.places.index(done) :]):
                yield Entry(position, end - position)
            # The offset after the last entry, from its header.
            next_offset = max(next_offset, formats.read_header(window, group.places[-2]).next_offset)


def _groups(window: bytes, data: npt.NDArray[np.uint8], places: Sequence[int]) -> Iterator[_Group]:
    starts = np.array(places[:-1], np.int64)
    if not starts.size:
        return
    magics = data[starts + MAGIC_AT]
    known = np.array([batch.CODEC_BITS, batch.CODEC_BITS | LOG_APPEND_TIME_BIT, 0], np.uint8)
    attributes = data[starts + LEGACY_ATTRIBUTES_AT] & known[magics]
    # Wrappers are one kind, whatever their codec.
    kinds = magics.astype(np.int64) << 8 | np.where(attributes & CODEC_BITS, 128, attributes)
    cuts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), starts.size]
    for first, stop in pairwise(cuts):
        yield _Group(window, data, list(places[first : stop + 1]), int(magics[first]), int(attributes[first]))


def _made(group: _Group, next_offset: int, end_offset: int) -> Iterator[Run]:
    if len(group.places) <= LEAST_ENTRIES:
        raise _Unusual
    if group.magic == batch.MAGIC:
        return _copied(group, next_offset, end_offset)
    if group.attributes & CODEC_BITS:
        return _wrappers(group, next_offset, end_offset)
    return _plain(group, next_offset, end_offset)


def _check_offsets(base_offsets: Int64s, last_offsets: Int64s, next_offset: int, end_offset: int) -> None:
    if (
        base_offsets[0] < next_offset
        or last_offsets[-1] >= end_offset
        or (last_offsets < base_offsets).any()
        or (base_offsets[1:] <= last_offsets[:-1]).any()
    ):
        raise _Unusual


def _numbers(values: Any) -> Sequence[int]:
    return array("q", values.astype(np.int64).tobytes())


# --- format v2


def _copied(group: _Group, next_offset: int, end_offset: int) -> Iterator[Run]:
    heads = group.heads(HEAD)
    base_offsets = heads["base_offset"].astype(np.int64)
    last_offsets = base_offsets + heads["last_delta"]
    _check_offsets(base_offsets, last_offsets, next_offset, end_offset)
    start, end = group.places[0], group.places[-1]
    yield Run(
        memoryview(group.window)[start:end],
        _numbers(np.array(group.places, np.int64) - start),
        _numbers(base_offsets),
        _numbers(last_offsets),
        _numbers(heads["max_timestamp"]),
        _numbers(np.abs(heads["record_count"].astype(np.int64))),
        False,
        group.source_bytes,
    )


# --- plain messages


def _plain(group: _Group, next_offset: int, end_offset: int) -> Iterator[Run]:
    rows = legacy_rows.plain_rows(group.window, group.places)
    _check_offsets(rows.offsets, rows.offsets, next_offset, end_offset)
    data, bounds = singles(record_batch(rows, _WRITTEN), group.attributes)
    offsets = _numbers(rows.offsets)
    yield Run(data, _numbers(bounds), offsets, offsets, _numbers(rows.timestamps), None, True, group.source_bytes)


# --- wrappers


def _wrappers(group: _Group, next_offset: int, end_offset: int) -> Iterator[Run]:
    """Converts wrappers, some megabytes of decompressed messages at a time."""
    opened: list[tuple[BatchHeader, bytes]] = []
    size = begin = 0
    view = memoryview(group.window)
    for index, place in enumerate(group.places[:-1]):
        header = legacy.read_header(view, place)
        if not legacy.crc_matches(view, place, header):
            raise _Unusual
        inside = legacy.inner(view, place, header, max_bytes=MAX_DECOMPRESSED_BYTES)
        opened.append((header, inside))
        size += len(inside)
        if size >= CHUNK_BYTES or index == len(group.places) - 2:
            run = _packed(opened, next_offset, end_offset, group.places[index + 1] - group.places[begin])
            yield run
            next_offset = run.last_offsets[-1] + 1
            opened, size, begin = [], 0, index + 1


def _packed(opened: Sequence[tuple[BatchHeader, bytes]], next_offset: int, end_offset: int, source_bytes: int) -> Run:
    """Returns these wrappers as batches."""
    headers = [header for header, _ in opened]
    rows = legacy_rows.rows(headers, [inside for _, inside in opened], [True] * len(opened))
    bounds = np.concatenate(([0], np.cumsum(rows.counts)))
    base_offsets, last_offsets = rows.offsets[bounds[:-1]], rows.offsets[bounds[1:] - 1]
    claimed = np.array([header.base_offset for header in headers], np.int64)
    if (last_offsets > claimed).any() or (last_offsets - base_offsets > MAX_RELATIVE_OFFSET).any():
        raise _Unusual
    _check_offsets(base_offsets, last_offsets, next_offset, end_offset)
    data, ends = payloads(record_batch(rows, _WRITTEN), bounds.tolist())
    latest = np.maximum(np.maximum.reduceat(rows.timestamps, bounds[:-1]), NO_TIMESTAMP)
    firsts, counts = rows.timestamps[bounds[:-1]].tolist(), rows.counts.tolist()
    places = ends[bounds].tolist()
    times: list[int] = []
    batches: list[bytes | bytearray] = []
    for index, header in enumerate(headers):
        payload = data[places[index] : places[index + 1]]
        if len(payload) > MAX_DECOMPRESSED_BYTES:
            raise _Unusual
        base = int(base_offsets[index])
        times.append(header.max_timestamp if header.log_append_time else int(latest[index]))
        made = BatchHeader(
            base,
            HEADER_BYTES,
            -1,
            batch.MAGIC,
            0,
            header.attributes & LOG_APPEND_TIME_BIT,
            int(last_offsets[index]) - base,
            firsts[index],
            times[-1],
            -1,
            -1,
            -1,
            counts[index],
        )
        batches.append(batch.with_payload(made, payload, header.codec))
    return Run(
        b"".join(batches),
        _numbers(np.cumsum([0, *map(len, batches)])),
        _numbers(base_offsets),
        _numbers(last_offsets),
        array("q", times),
        array("q", counts),
        True,
        source_bytes,
    )

"""Headers of many entries at once: positions of entries in a buffer, and their fields as numpy arrays.

Owns the walk from entry to entry and the header layout of all three formats. Checks sizes and formats, no CRC; reads no
file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ....protocol.records import batch
from ....protocol.records.formats import MIN_ENTRY_BYTES
from ....protocol.records.layout import MAGIC_AT, MIN_BYTES, PREFIX_BYTES
from ..columnar.encoding import HEAD

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_SIZE_AND_MAGIC = struct.Struct(">8xi4xB")
_LEAST_SIZES = tuple(size - PREFIX_BYTES for size in MIN_BYTES)  # by magic

_OLD = np.dtype(
    [("offset", ">i8"), ("size", ">i4"), ("crc", ">u4"), ("magic", "i1"), ("attributes", "i1"), ("timestamp", ">i8")]
)


class Walk(NamedTuple):
    """The positions of whole entries and their end; `problem` is the reason if bytes follow that are no entry."""

    positions: list[int]
    end: int
    problem: str | None


def walk(data: bytes | bytearray | memoryview, position: int, end: int) -> Walk:
    """Finds the whole entries of `data` between two positions."""
    found: list[int] = []
    add, unpack = found.append, _SIZE_AND_MAGIC.unpack_from
    last_start = end - MIN_ENTRY_BYTES
    while position <= last_start:
        size, magic = unpack(data, position)
        if magic > batch.MAGIC or size < _LEAST_SIZES[magic]:
            return Walk(found, position, f"an entry of {size + PREFIX_BYTES} bytes of format v{magic}")
        following = position + PREFIX_BYTES + size
        if following > end:
            break
        add(position)
        position = following
    return Walk(found, position, None)


def _stored(name: str, old: str | int) -> cached_property[Int64s]:
    """Returns a property of `Table` with a field as it is in the header."""
    return cached_property(lambda table: table._field(name, old))


def _flag_of_v2(bit: int) -> cached_property[Bools]:
    """Returns a property of `Table` with an attribute bit that only format v2 has."""
    return cached_property(lambda table: (table.attributes & bit != 0) & table.is_new)


def _timestamps(name: str) -> cached_property[Int64s]:
    """Returns a property of `Table` with a timestamp of the header; -1 for v0, which has none."""

    def found(table: Table) -> Int64s:
        stored = table._field(name, "timestamp")
        return stored if table._all_new else np.where(table.magics > 0, stored, -1)

    return cached_property(found)


@dataclass(frozen=True)
class Table:
    """Headers as arrays, with one element per entry.

    `data` holds at least the headers, at the indexes `places`; `positions` are those of the entries in the file. For a
    v0/v1 message the first and the last offset are its own, the timestamp of v0 is -1, and fields that the format lacks
    are -1. For a wrapper `record_counts` is -1 and the first offset is unknown.
    """

    data: npt.NDArray[np.uint8]
    places: Int64s
    positions: Int64s

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, places: Sequence[int], start: int) -> Table:
        """Returns the headers at these places of `data`, which begins at `start` in its file."""
        at = np.array(places, np.int64)
        return cls(np.frombuffer(data, np.uint8), at, at + start)

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def magics(self) -> npt.NDArray[np.uint8]:
        return self.data[self.places + MAGIC_AT]

    @cached_property
    def is_new(self) -> Bools:
        """True for format v2."""
        return self.magics == batch.MAGIC

    @cached_property
    def _all_new(self) -> bool:
        return bool(self.is_new.all())

    @cached_property
    def _news(self) -> Any:
        places = self.places if self._all_new else self.places[self.is_new]
        return self.data[places[:, None] + np.arange(HEAD.itemsize)].view(HEAD)[:, 0]

    @cached_property
    def _olds(self) -> Any:
        return self.data[self.places[~self.is_new][:, None] + np.arange(_OLD.itemsize)].view(_OLD)[:, 0]

    def _field(self, name: str, old: str | int) -> Int64s:
        """Returns a v2 field; for v0/v1 messages their field `old`, or a constant."""
        new = self._news[name].astype(np.int64)
        if self._all_new:
            return new
        found = np.empty(len(self), np.int64)
        found[self.is_new] = new
        found[~self.is_new] = self._olds[old] if isinstance(old, str) else old
        return found

    @cached_property
    def sizes(self) -> Int64s:
        """Sizes of the whole entries in bytes."""
        return self._field("size", "size") + PREFIX_BYTES

    @cached_property
    def attributes(self) -> Int64s:
        """The attribute bits; for v0/v1 only those that the format defines."""
        found = self._field("attributes", "attributes")
        if self._all_new:
            return found
        known = np.array([batch.CODEC_BITS, batch.CODEC_BITS | batch.LOG_APPEND_TIME_BIT, 0xFFFF], np.int64)
        return found & known[self.magics]

    @cached_property
    def codecs(self) -> Int64s:
        return self.attributes & batch.CODEC_BITS

    @cached_property
    def wrappers(self) -> Bools:
        """True for a compressed v0/v1 message, which holds inner messages."""
        return ~self.is_new & (self.codecs > 0)

    @cached_property
    def appended(self) -> Bools:
        """True for LogAppendTime."""
        return self.attributes & batch.LOG_APPEND_TIME_BIT != 0

    transactional = _flag_of_v2(batch.TRANSACTIONAL_BIT)
    control = _flag_of_v2(batch.CONTROL_BIT)
    delete_horizons = _flag_of_v2(batch.DELETE_HORIZON_BIT)

    base_offsets = _stored("base_offset", "offset")
    """The offset fields."""
    producer_ids = _stored("producer_id", -1)
    producer_epochs = _stored("producer_epoch", -1)
    base_sequences = _stored("base_sequence", -1)
    leader_epochs = _stored("leader_epoch", -1)
    crcs = _stored("crc", "crc")
    base_timestamps = _timestamps("base_timestamp")
    max_timestamps = _timestamps("max_timestamp")

    @cached_property
    def last_offsets(self) -> Int64s:
        return self.base_offsets + self._field("last_delta", 0)

    @cached_property
    def timestamp_types(self) -> Int64s:
        return np.where(self.magics > 0, self.appended.astype(np.int64), -1)

    @cached_property
    def record_counts(self) -> Int64s:
        found = self._field("record_count", 1)
        return found if self._all_new else np.where(self.wrappers, -1, found)

    def first_offsets(self, previous: int) -> Int64s:
        """Returns the first offsets; for a wrapper the lowest possible one, after the entry before it. `previous` is
        the last offset before all of these entries."""
        if self._all_new or not self.wrappers.any():
            return self.base_offsets
        before = np.concatenate((np.array([previous], np.int64), self.last_offsets[:-1])) + 1
        return np.where(self.wrappers, np.minimum(before, self.base_offsets), self.base_offsets)

    def latest_times(self) -> Int64s:
        """Returns an upper bound of the timestamps of each entry's records."""
        return np.maximum(self.base_timestamps, self.max_timestamps)

"""Checks the indexes of a new segment against its log while that is read: records are found by them.

Owns the checks of `.index` and `.timeindex`: each entry must name a batch of the log, in the time index one whose
timestamp no earlier batch exceeds. Missing index entries only cost time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....protocol.records.errors import CorruptRecords
from ....protocol.records.layout import LAST_OFFSET_DELTA_AT, MAGIC_AT, MAX_TIMESTAMP_AT, OFFSET_AT
from ....storage.compaction.rewrite import Source
from ....storage.io.files import Files
from ....storage.producers import txn_index
from ....storage.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX

_HEAD_BYTES = MAX_TIMESTAMP_AT + 8
_HEAD = np.dtype(
    {
        "names": ["base", "delta", "latest"],
        "formats": [">i8", ">i4", ">i8"],
        "offsets": [OFFSET_AT, LAST_OFFSET_DELTA_AT, MAX_TIMESTAMP_AT],
        "itemsize": _HEAD_BYTES,
    }
)
_BY_OFFSET = np.dtype([("offset", ">i4"), ("position", ">i4")])
_BY_TIME = np.dtype([("time", ">i8"), ("offset", ">i4")])
_NAME_DIGITS = 20


class Indexes:
    """The two indexes of a log of v2 batches, whose name begins with its base offset. Raises OSError."""

    def __init__(self, files: Files, log: Source) -> None:
        base = int(os.path.basename(log.log_path)[:_NAME_DIGITS])

        def read(kind: str, entry: np.dtype) -> np.ndarray:
            data = files.read_bytes(_beside(log.log_path, kind))
            if len(data) % entry.itemsize:
                raise CorruptRecords(f"its {kind} has {len(data)} bytes")
            return np.frombuffer(data, entry)

        by_offset, by_time = read(INDEX_SUFFIX, _BY_OFFSET), read(TIME_INDEX_SUFFIX, _BY_TIME)
        self._offsets = by_offset["offset"].astype(np.int64) + base
        self._positions = by_offset["position"].astype(np.int64)
        self._times, self._of_times = by_time["time"].astype(np.int64), by_time["offset"].astype(np.int64) + base
        for rising in (self._positions, self._offsets, self._times):
            if (np.diff(rising) <= 0).any():
                raise CorruptRecords("the entries of an index do not ascend")
        self._done = self._done_times = 0
        self._latest = -1

    def add(self, place: int, data: bytes, places: Sequence[int]) -> None:
        """Takes the next batches: they begin at `places` of the data, the first one at `place` of the log."""
        at = np.array(places[:-1], np.int64)
        if int(at[-1]) + _HEAD_BYTES > len(data) or (np.frombuffer(data, np.uint8)[at + MAGIC_AT] != 2).any():
            raise CorruptRecords("an entry is not of format v2")
        rows: Any = np.ndarray((len(data) - _HEAD_BYTES + 1,), f"V{_HEAD_BYTES}", data, strides=(1,))
        heads = rows[at].view(_HEAD)
        lasts = heads["base"].astype(np.int64) + heads["delta"]
        end = int(np.searchsorted(self._positions, place + places[-1]))
        positions, offsets = self._positions[self._done : end] - place + places[0], self._offsets[self._done : end]
        self._done = end
        self._check(at, positions, lasts, offsets, "offset")
        own = heads["latest"].astype(np.int64)
        latest = np.maximum.accumulate(np.maximum(own, self._latest))
        self._latest = int(latest[-1])
        end = int(np.searchsorted(self._of_times, lasts[-1], "right"))
        times, offsets = self._times[self._done_times : end], self._of_times[self._done_times : end]
        self._done_times = end
        for expected in (own, latest):
            self._check(lasts, offsets, expected, times, "time")

    @staticmethod
    def _check(known: npt.NDArray, of: npt.NDArray, expected: npt.NDArray, by_index: npt.NDArray, what: str) -> None:
        found = np.minimum(np.searchsorted(known, of), known.size - 1)
        if (known[found] != of).any() or (expected[found] != by_index).any():
            raise CorruptRecords(f"an entry of its {what} index matches no batch")

    def finish(self) -> None:
        """Checks that no index entries are left after the last batch."""
        if self._done < self._positions.size or self._done_times < self._times.size:
            raise CorruptRecords("an index has entries after the end of its log")


def aborted_transactions(files: Files, logs: Sequence[Source]) -> bytes:
    """Returns the whole entries of the transaction indexes of some logs. Raises OSError."""
    found = b""
    for log in logs:
        with contextlib.suppress(FileNotFoundError):
            data = files.read_bytes(_beside(log.log_path, txn_index.SUFFIX))
            found += data[: len(data) // txn_index.ENTRY_BYTES * txn_index.ENTRY_BYTES]
    return found


def _beside(log_path: str, kind: str) -> str:
    """Returns the path of another file of the same segment."""
    folder, name = os.path.split(log_path)
    return os.path.join(folder, name[:_NAME_DIGITS] + kind + name[_NAME_DIGITS + len(LOG_SUFFIX) :])

"""The schedule of a replay.

Owns the division of rows into slices of a tenth of a second, which are sent together. At a rate, a slice is due when
its first record is; at the original pace, when its last one is: no record is sent before its time. Records of one
partition keep their order; a timestamp that goes back, or is missing, counts as the latest one before it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...readers.columns import EXACT_TIME

SLICE_S = 0.1
LEAST, MOST = 1e-6, 1e9
"""Limits of rates and speeds, so that computed times stay within the range of numbers."""

NAP_S = 0.5
"""The longest sleep without a check for the end."""

Clock = Callable[[], float]
Sleep = Callable[[float], object]


class Slice(NamedTuple):
    """Rows that are sent together, at `due_s` of the clock."""

    due_s: float
    rows: pa.RecordBatch


def at_once(batches: Iterable[pa.RecordBatch], start_s: float) -> Iterator[Slice]:
    """Yields the rows without delay."""
    for rows in batches:
        if rows.num_rows:
            yield Slice(start_s, rows)


def at_rate(batches: Iterable[pa.RecordBatch], start_s: float, rate: float) -> Iterator[Slice]:
    """Yields slices at `rate` records per second, from `start_s` on."""
    each = max(1, int(rate * SLICE_S))
    sent = 0
    for rows in batches:
        position = 0
        while position < rows.num_rows:
            count = min(each - sent % each, rows.num_rows - position)
            yield Slice(start_s + (sent - sent % each) / rate, rows.slice(position, count))
            position, sent = position + count, sent + count


def at_pace(batches: Iterable[pa.RecordBatch], start_s: float, origin_ms: int, speed: float) -> Iterator[Slice]:
    """Yields slices at `speed` times the pace of the timestamps: a record of `origin_ms` is due at `start_s`."""
    latest = origin_ms
    per_slice_ms = max(1, int(SLICE_S * 1000 * speed))
    for rows in batches:
        if not rows.num_rows:
            continue
        times = np.maximum.accumulate(np.maximum(milliseconds(rows), latest))
        latest = int(times[-1])
        slots = (times - origin_ms) // per_slice_ms
        bounds = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(times)]
        for begin, end in pairwise(bounds):
            due_s = start_s + (int(times[end - 1]) - origin_ms) / 1000 / speed
            yield Slice(due_s, rows.slice(begin, end - begin))


def milliseconds(rows: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns the timestamps of rows as in the log; -1 for none."""
    return rows.column(EXACT_TIME.name).to_numpy()


def wait(until_s: float, clock: Clock, sleep: Sleep, is_over: Callable[[], bool] = lambda: False) -> bool:
    """Sleeps until `until_s`. Returns False if the replay was stopped before."""
    while (left_s := until_s - clock()) > 0:
        if is_over():
            return False
        sleep(min(left_s, NAP_S))
    return True

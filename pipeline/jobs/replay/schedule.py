"""When which records are due.

Owns the cutting of rows into slices of a tenth of a second: what is sent together. At a rate a slice goes when its
first record is due, by original times when its last one is: no record comes before its time. Records of one partition
never overtake each other; a time that goes back, or is none, counts as the latest before it. Pure.
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
"""Rates and speeds: with others sums of times would leave what a number holds."""

NAP_S = 0.5
"""Nobody sleeps longer without a look whether it is to end."""

Clock = Callable[[], float]
Sleep = Callable[[float], object]


class Slice(NamedTuple):
    """Rows that are sent together, when `due_s` comes, by the clock."""

    due_s: float
    rows: pa.RecordBatch


def at_once(batches: Iterable[pa.RecordBatch], start_s: float) -> Iterator[Slice]:
    """As they come."""
    for rows in batches:
        if rows.num_rows:
            yield Slice(start_s, rows)


def at_rate(batches: Iterable[pa.RecordBatch], start_s: float, rate: float) -> Iterator[Slice]:
    """So many records a second, from `start_s` on."""
    each = max(1, int(rate * SLICE_S))
    sent = 0
    for rows in batches:
        position = 0
        while position < rows.num_rows:
            count = min(each - sent % each, rows.num_rows - position)
            yield Slice(start_s + (sent - sent % each) / rate, rows.slice(position, count))
            position, sent = position + count, sent + count


def at_pace(batches: Iterable[pa.RecordBatch], start_s: float, origin_ms: int, speed: float) -> Iterator[Slice]:
    """`speed` times as fast as by the timestamps: what was written at `origin_ms` is due at `start_s`."""
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
    """The timestamps of rows as they are in the log; -1 for none."""
    return rows.column(EXACT_TIME.name).to_numpy()


def wait(until_s: float, clock: Clock, sleep: Sleep, is_over: Callable[[], bool] = lambda: False) -> bool:
    """Sleeps until then; False if it is over before."""
    while (left_s := until_s - clock()) > 0:
        if is_over():
            return False
        sleep(min(left_s, NAP_S))
    return True

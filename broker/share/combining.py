"""Combines the stored state of a share partition with newer state, as Kafka's `PersisterStateBatchCombiner` does.

Where two batches overlap, the one with the higher delivery count is kept, and with equal counts the one with the higher
state: the newer one, since counts and states only grow.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from .values import StateBatch


def combined(batches: Sequence[StateBatch], newer: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    """Returns batches in order of their offsets without overlaps, adjacent ones with equal state joined, and nothing
    below the start offset; start offset -1 keeps all.
    """
    kept = [b._replace(first=max(b.first, start_offset)) for b in (*batches, *newer) if b.last >= start_offset]
    if len(kept) < 2:
        return kept
    heap = [(b.first, b.last, b.delivery_count, b.state) for b in kept]
    heapq.heapify(heap)
    made: list[StateBatch] = []
    first, last, count, state = heapq.heappop(heap)
    while heap:
        next_first, next_last, next_count, next_state = heapq.heappop(heap)
        is_same = (next_count, next_state) == (count, state)
        if next_first > last + 1 or (next_first == last + 1 and not is_same):
            made.append(StateBatch(first, last, state, count))
            first, last, count, state = next_first, next_last, next_count, next_state
        elif is_same:
            last = max(last, next_last)
        elif (next_count, next_state) < (count, state):  # the rest of the older one after the end
            if next_last > last:
                heapq.heappush(heap, (last + 1, next_last, next_count, next_state))
        else:
            if last > next_last:
                heapq.heappush(heap, (next_last + 1, last, count, state))
            if next_first > first:
                made.append(StateBatch(first, next_first - 1, state, count))
            first, last, count, state = next_first, next_last, next_count, next_state
    made.append(StateBatch(first, last, state, count))
    return made

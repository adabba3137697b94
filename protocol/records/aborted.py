"""The batches of aborted transactions among those of a Fetch response (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable

from . import batch
from .batch import BatchHeader, Buffer

ABORT = 0
"""The type of the control record that ends an aborted transaction."""


class AbortedTransactions:
    """Aborted transactions, given as (producer id, first offset), followed over the batches in their order. Each lasts
    from its first offset to the ABORT marker of its producer."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._waiting = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
        self._ids: set[int] = set()

    def include(self, data: Buffer, position: int, header: BatchHeader) -> bool:
        """Returns whether the records of the next batch are part of one. Raises CorruptRecords and InvalidRecords for a
        damaged marker, which then ends none."""
        while self._waiting and self._waiting[-1][0] <= header.last_offset:
            self._ids.add(self._waiting.pop()[1])
        if header.producer_id not in self._ids:
            return False
        if not header.is_control:
            return header.is_transactional
        keys = [record.key for record in batch.records(data, position)]
        if any(key is not None and int.from_bytes(key[2:4], "big") == ABORT for key in keys):
            self._ids.discard(header.producer_id)
        return False

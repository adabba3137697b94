"""Joins the batches of a segment's producers to runs while their sequences are consecutive.

A run ends at a marker, at another epoch, where sequences do not follow, and on `close`. A producer's first batch in a
segment, in a transaction or after a break is a run of its own, yielded at once: later batches may be joined across
those of other producers, since they begin no transaction.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.records.batch import BatchHeader
from .. import inspect
from ..producers import txn_index
from ..producers.producer_state import SEQUENCE_SPACE, at_or_below
from .facts import NO_MARKER, OTHER_CONTROL, Events, Run

_MAX_SEQUENCE = SEQUENCE_SPACE - 1


@dataclass(slots=True)
class _Known:
    """A producer in this segment: its last batch with the sequence, the newest sequence, and the open run.

    `is_again`: the last batch repeats earlier sequences, so the following ones may be repeats too.
    """

    last_header: BatchHeader
    epoch: int
    last: int
    newest: int
    is_again: bool
    first: BatchHeader | None = None
    count: int = 0
    records: int = 0
    position: int = 0
    missing: int = 0

    def run(self) -> Run:
        """Returns the open run, which must exist."""
        assert self.first is not None
        return _run(self.position, self.first, self.last_header, self.count, self.records, self.missing)


class OpenRuns:
    """Collects runs: `take` adds each sound batch of a producer, `close` ends all runs."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def close(self) -> Events:
        for known in self._known.values():
            if known.first is not None:
                yield known.run()
                known.first = None

    def take(self, found: inspect.BatchFacts, log: inspect.Source, missing: int) -> Events:
        """Adds a batch; yields the runs that it ends, and its own run if it is complete."""
        header = found.header
        known = self._known.get(header.producer_id)
        if header.is_control:
            if known is not None:
                if known.first is not None:
                    yield known.run()
                del self._known[header.producer_id]
            yield _run(found.position, header, header, 1, header.record_count, missing, _marker(log, found))
            return
        first = header.base_sequence
        is_again, newest, follows = False, header.last_sequence, False
        if known is not None and known.epoch == header.producer_epoch and (first >= 0) == (known.last >= 0):
            if first < 0:
                follows, newest = True, -1
            else:
                following = (known.newest + 1) & _MAX_SEQUENCE
                follows = first == (known.last + 1) & _MAX_SEQUENCE and not (known.is_again and first == following)
                is_again = known.is_again if follows else first != following and at_or_below(first, known.newest)
                newest = known.newest if at_or_below(newest, known.newest) else newest
            follows = follows and known.last_header.is_transactional == header.is_transactional
            if follows:
                if known.first is None:
                    known.first, known.position, known.missing = header, found.position, missing
                    known.count = known.records = 0
                known.count += 1
                known.records += header.record_count
                known.last_header, known.last, known.newest = header, header.last_sequence, newest
                return
        if known is not None and known.first is not None:
            yield known.run()
        self._known[header.producer_id] = _Known(header, header.producer_epoch, header.last_sequence, newest, is_again)
        yield _run(found.position, header, header, 1, header.record_count, missing)


def _run(
    position: int,
    first: BatchHeader,
    last: BatchHeader,
    batches: int,
    records: int,
    missing: int,
    marker: tuple[int, int] = (NO_MARKER, -1),
) -> Run:
    """Returns the run from the `first` batch to the `last`; `marker` is (kind, coordinator epoch)."""
    return Run(
        position,
        first.base_offset,
        last.last_offset,
        batches,
        records,
        last.producer_id,
        last.producer_epoch,
        first.base_sequence,
        last.last_sequence,
        last.base_offset,
        last.base_sequence,
        first.base_timestamp,
        last.max_timestamp,
        last.is_transactional,
        *marker,
        missing,
        first.max_timestamp if first.log_append_time else -1,
    )


def _marker(log: inspect.Source, found: inspect.BatchFacts) -> tuple[int, int]:
    """Returns (kind, coordinator epoch) of a control batch."""
    if found.size_bytes <= inspect.WINDOW_BYTES:
        marker = txn_index.read_marker(log.read(found.position, found.size_bytes), 0, found.header)
        if marker is not None:
            return marker.kind, marker.coordinator_epoch
    return OTHER_CONTROL, -1

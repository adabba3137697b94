"""What a partition's log tells of transactions: which were begun, how each ended, and which is open.

Owns following them. Pure: fed with batches, oldest first, it gives each transaction when its marker comes; what is open
then is in `open`. Its memory grows with the producers that have one open, never with the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ...broker.replica.producer_log import LogBatch
from ...storage.producers.producer_state import Producer

OPEN, COMMITTED, ABORTED, ENDED, EMPTY = "open", "committed", "aborted", "ended", "empty"
_ENDINGS = {"COMMIT": COMMITTED, "ABORT": ABORTED}


class InPartition(NamedTuple):
    """One transaction as one partition has it; -1 for what is not known.

    `first_offset` and `last_offset` are those of its records; `first_offset` is -1 for a marker that ends nothing here:
    nothing was written, or it is gone from the log. `batches` and `records` count what is in the log now, 0 if that is
    nothing; what a broker tells has -1 in these and in `last_offset`. `begun_ms` is the timestamp of its first batch.
    `state` is open, committed, aborted, or ended for a marker that cannot be read. The marker's epoch is higher than
    the producer's where the end fenced the producer or was told to go on with a new epoch (KIP-890).
    """

    producer_id: int
    epoch: int
    first_offset: int
    last_offset: int
    batches: int
    records: int
    begun_ms: int
    newest_ms: int
    state: str
    marker_offset: int = -1
    marker_epoch: int = -1
    coordinator_epoch: int = -1
    ended_ms: int = -1


class TransactionHistory:
    """See the module. `opening` are producers whose transactions were open where the log's files begin."""

    def __init__(self, log_start_offset: int, opening: Mapping[int, Producer] | None = None) -> None:
        self._log_start_offset = log_start_offset
        self.open: dict[int, InPartition] = {
            producer_id: _begun(producer_id, known.epoch, known.transaction_first_offset)
            for producer_id, known in (opening or {}).items()
        }
        """The open transactions, by producer."""
        self.ended: Counter[str] = Counter()
        """How many ended at or above the log start, by state; those of which there is only a marker count as EMPTY."""

    def step(self, found: LogBatch) -> InPartition | None:
        """One batch more; the transaction that it ends, unless its marker is below the log start."""
        header = found.header
        if header.producer_id < 0:
            return None
        known = self.open.get(header.producer_id)
        if not header.is_control:
            if known is not None or header.is_transactional:
                known = known or _begun(header.producer_id, header.producer_epoch, header.base_offset)
                self.open[header.producer_id] = _joined(known, found) if header.is_transactional else known
            return None
        self.open.pop(header.producer_id, None)
        if header.last_offset < self._log_start_offset:
            return None
        kind, coordinator_epoch = found.marker or ("?", -1)
        state = _ENDINGS.get(kind, ENDED)
        self.ended[EMPTY if known is None else state] += 1
        return (known or _begun(header.producer_id, header.producer_epoch, -1))._replace(
            state=state,
            marker_offset=header.base_offset,
            marker_epoch=header.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            ended_ms=header.max_timestamp,
        )

    @property
    def still_open(self) -> list[InPartition]:
        """The open transactions, the one that began first at the front."""
        return sorted(self.open.values(), key=lambda one: one.first_offset)

    def last_stable_offset(self, end_offset: int) -> int:
        """Where a reader of committed records stops, in a log that ends at `end_offset`."""
        first = min((one.first_offset for one in self.open.values()), default=end_offset)
        return max(first, self._log_start_offset)


def _begun(producer_id: int, epoch: int, first_offset: int) -> InPartition:
    return InPartition(producer_id, epoch, first_offset, -1, 0, 0, -1, -1, OPEN)


def _joined(known: InPartition, found: LogBatch) -> InPartition:
    header = found.header
    first_ms = header.max_timestamp if header.has_delete_horizon else header.base_timestamp
    is_first = not known.batches and known.first_offset == header.base_offset
    return known._replace(
        epoch=header.producer_epoch,
        last_offset=header.last_offset,
        batches=known.batches + 1,
        records=known.records + max(header.record_count, 0),
        begun_ms=first_ms if is_first else known.begun_ms,
        newest_ms=max(known.newest_ms, header.max_timestamp),
    )

"""The transactions in a partition's log: their beginnings, their ends, and the open ones.

Pure: it is fed with batches, oldest first, and returns each transaction at its marker. Its memory use grows with the
open transactions, not with the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...broker.replica.producer_log import LogBatch
from ...protocol.named import NamedTuple
from ...storage.producers.producer_state import Producer

OPEN, COMMITTED, ABORTED, ENDED, EMPTY = "open", "committed", "aborted", "ended", "empty"
_ENDINGS = {"COMMIT": COMMITTED, "ABORT": ABORTED}


class InPartition(NamedTuple):
    """A transaction in one partition; unknown numbers are -1.

    `first_offset` and `last_offset` are those of its records. `first_offset` is -1 for a marker without records: none
    were written here, or they are no longer in the log. `batches` and `records` count those in the log now; they and
    `last_offset` are -1 if the source is a broker. `begun_ms` is the timestamp of the first batch. `state` is open,
    committed, aborted, or ended for an unreadable marker. `marker_epoch` is above `epoch` if the end of the transaction
    bumped the epoch, to fence the producer or by KIP-890.
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
    """Follows the transactions of a log. `opening` are the producers with a transaction open where the files begin."""

    def __init__(self, log_start_offset: int, opening: Mapping[int, Producer] | None = None) -> None:
        self._log_start_offset = log_start_offset
        self.open: dict[int, InPartition] = {
            producer_id: _begun(producer_id, known.epoch, known.transaction_first_offset)
            for producer_id, known in (opening or {}).items()
        }
        """The open transactions, by producer."""
        self.ended: Counter[str] = Counter()
        """The number of transactions ended at or above the log start, by state; EMPTY for those without records."""

    def step(self, found: LogBatch) -> InPartition | None:
        """Processes the next batch. Returns the transaction that it ends, unless the marker is below the log start."""
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
        """The open transactions, by first offset."""
        return sorted(self.open.values(), key=lambda one: one.first_offset)

    def last_stable_offset(self, end_offset: int) -> int:
        """Returns the last stable offset of a log that ends at `end_offset`."""
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

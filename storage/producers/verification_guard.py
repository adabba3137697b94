"""Verification guards: whether a client's batch may begin or continue a transaction in one partition (KIP-890).

A guard records that the coordinator was queried whether a producer's transaction is open and includes this partition. A
marker voids all earlier guards: otherwise a batch verified before its transaction ended could be appended after the
end, and would leave a transaction that is never completed. Batches that the coordinator refused are not passed to this
module.
"""

from __future__ import annotations

from ...protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from .producer_state import ACCEPT, CachedBatch, Fenced, Misplaced, OutOfOrder, Producer, Verdict

KEPT_MS = 24 * 3600 * 1000  # for producers that do not expire


class Guard:
    """The verification of a producer. All requests of a producer share one until a marker comes."""

    __slots__ = ("bumps_epoch", "is_void", "lowest_sequence", "made_ms", "producer_epoch")

    def __init__(self, producer_epoch: int, lowest_sequence: int, bumps_epoch: bool, made_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        """The lowest base sequence verified in the epoch: a batch above it may not be the first one written, since
        earlier ones may have failed and be retried."""
        self.bumps_epoch = bumps_epoch
        """Whether each transaction has an epoch of its own, so that its first batch has sequence 0."""
        self.made_ms = made_ms
        self.is_void = False


IN_TRANSACTION = Guard(-1, 0, False, 0)
"""The guard of a batch whose transaction was open here when it was received: it must still be open when the batch is
written."""
IN_TRANSACTION.is_void = True


class Guards:
    """The guards of one log, by producer id."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._of)

    def give(
        self, producer_id: int, producer_epoch: int, sequence: int = 0, *, bumps_epoch: bool = False, now_ms: int = 0
    ) -> Guard:
        """Returns the guard of a batch that begins with this sequence, to be called before the coordinator is
        queried."""
        guard = self._of.get(producer_id)
        if guard is None:
            guard = self._of[producer_id] = Guard(producer_epoch, sequence, bumps_epoch, now_ms)
        elif producer_epoch > guard.producer_epoch:
            guard.producer_epoch, guard.lowest_sequence, guard.bumps_epoch = producer_epoch, sequence, bumps_epoch
        elif producer_epoch == guard.producer_epoch and sequence < guard.lowest_sequence:
            guard.lowest_sequence, guard.bumps_epoch = sequence, bumps_epoch
        return guard

    def end(self, producer_id: int) -> None:
        """Voids the guard of a producer."""
        guard = self._of.pop(producer_id, None)
        if guard is not None:
            guard.is_void = True

    def refuse(self, producer_id: int, producer_epoch: int) -> None:
        """Voids the guard of a producer, unless it has a later epoch."""
        guard = self._of.get(producer_id)
        if guard is not None and guard.producer_epoch <= producer_epoch:
            self.end(producer_id)

    def expire(self, now_ms: int, expiration_ms: int | None) -> None:
        """Voids the guards that are older than the producer expiration."""
        latest_ms = now_ms - (KEPT_MS if expiration_ms is None else expiration_ms)
        for producer_id in [producer_id for producer_id, guard in self._of.items() if guard.made_ms <= latest_ms]:
            self.end(producer_id)

    def due_ms(self, expiration_ms: int | None) -> int | None:
        """Returns the time in ms from which on `expire` voids a guard; None for never."""
        kept_ms = KEPT_MS if expiration_ms is None else expiration_ms
        return min((guard.made_ms + kept_ms for guard in self._of.values()), default=None)


def judge_transaction(known: Producer | None, batch: BatchHeader, verdict: Verdict, guard: Guard | None) -> Verdict:
    """Returns the verdict on a transactional batch, given that on its sequences. Without a guard any batch may begin a
    transaction."""
    if isinstance(verdict, CachedBatch | Fenced):
        return verdict
    begun = known is not None and known.transaction_first_offset >= 0
    if not batch.attributes & TRANSACTIONAL_BIT:
        if begun and verdict is ACCEPT:
            return Misplaced("a batch of no transaction while one is open")
        return verdict
    if guard is None or batch.attributes & CONTROL_BIT:
        return verdict
    if begun and known is not None and known.epoch == batch.producer_epoch:
        return verdict
    if guard.is_void:
        return Misplaced("a batch of a transaction that is not open in this partition")
    if verdict is ACCEPT and (first := batch.base_sequence) > 0:
        if guard.bumps_epoch and not (known is not None and known.batches):
            return OutOfOrder(0)
        if first > guard.lowest_sequence:
            return OutOfOrder(guard.lowest_sequence)
    return verdict

"""Whether a client's batch may begin or go on with a transaction in one partition (KIP-890).

Owns the guards: what says that the coordinator was asked whether a producer's transaction is open and has this
partition in it. A marker makes all that were given out before it void, so that an answer which the coordinator gave
before a transaction ended lets nothing in behind its end, where nobody would ever end it again. Knows neither the
coordinator nor what it answered: a batch that was refused there is not brought here.
"""

from __future__ import annotations

from ...protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from .producer_state import ACCEPT, Duplicate, Fenced, Misplaced, OutOfOrder, Producer, Verdict

KEPT_MS = 24 * 3600 * 1000  # where producers do not expire


class Guard:
    """That a producer is being verified, or was. One for all requests of a producer until a marker comes."""

    __slots__ = ("bumps_epoch", "is_void", "lowest_sequence", "made_ms", "producer_epoch")

    def __init__(self, producer_epoch: int, lowest_sequence: int, bumps_epoch: bool, made_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        """The least first sequence that was brought in the epoch: a batch above it may not be the first to be written,
        as those before it may have failed and come again."""
        self.bumps_epoch = bumps_epoch
        """Whether each transaction has an epoch of its own, so that none begins above sequence 0 where no batch is
        known."""
        self.made_ms = made_ms
        self.is_void = False


IN_TRANSACTION = Guard(-1, 0, False, 0)
"""For a batch whose transaction was open here when it came: it must be so still when the batch is written."""
IN_TRANSACTION.is_void = True


class Guards:
    """Those of one log, by producer id."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._of)

    def give(
        self, producer_id: int, producer_epoch: int, sequence: int = 0, *, bumps_epoch: bool = False, now_ms: int = 0
    ) -> Guard:
        """The guard of a batch that begins with the sequence, to be got before the coordinator is asked."""
        guard = self._of.get(producer_id)
        if guard is None:
            guard = self._of[producer_id] = Guard(producer_epoch, sequence, bumps_epoch, now_ms)
        elif producer_epoch > guard.producer_epoch:
            guard.producer_epoch, guard.lowest_sequence, guard.bumps_epoch = producer_epoch, sequence, bumps_epoch
        elif producer_epoch == guard.producer_epoch and sequence < guard.lowest_sequence:
            guard.lowest_sequence, guard.bumps_epoch = sequence, bumps_epoch
        return guard

    def end(self, producer_id: int) -> None:
        """Makes void what was given out for a producer."""
        guard = self._of.pop(producer_id, None)
        if guard is not None:
            guard.is_void = True

    def refuse(self, producer_id: int, producer_epoch: int) -> None:
        """The same if none of a later epoch was given out."""
        guard = self._of.get(producer_id)
        if guard is not None and guard.producer_epoch <= producer_epoch:
            self.end(producer_id)

    def expire(self, now_ms: int, expiration_ms: int | None) -> None:
        """Makes the guards void that are older than a producer may become."""
        latest_ms = now_ms - (KEPT_MS if expiration_ms is None else expiration_ms)
        for producer_id in [producer_id for producer_id, guard in self._of.items() if guard.made_ms <= latest_ms]:
            self.end(producer_id)

    def due_ms(self, expiration_ms: int | None) -> int | None:
        """From when on `expire` has something to do; None if never."""
        kept_ms = KEPT_MS if expiration_ms is None else expiration_ms
        return min((guard.made_ms + kept_ms for guard in self._of.values()), default=None)


def judge_transaction(known: Producer | None, batch: BatchHeader, verdict: Verdict, guard: Guard | None) -> Verdict:
    """The verdict over a batch, given that over its sequences. No guard: whatever comes may begin a transaction."""
    if isinstance(verdict, Duplicate | Fenced):
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

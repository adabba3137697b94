"""Elementary changes of a transactional id, from which `table` composes its transitions.

Owns how a record is written, how a transaction is decided and completed, and how an owner is fenced. `table` decides
which event leads to which change; nothing here uses a clock or does I/O.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...protocol.errors import ErrorCode
from .settings import TransactionSettings
from .state import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Allocate,
    Append,
    Effect,
    InitProducerId,
    Phase,
    Reply,
    Response,
    Slot,
    TimeOut,
    Transaction,
    TransactionState,
    WriteMarkers,
)

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD

STATES = (DEAD, EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
"""The states that an id can be in; PREPARE_EPOCH_FENCE is never used."""

LAST_EPOCH = MAX_EPOCH - 1
"""The last epoch returned to clients; its owner continues with a new producer id."""


class Step:
    """A transition in progress: the slot so far and the effects collected."""

    __slots__ = ("effects", "now_ms", "settings", "slot")

    def __init__(self, slot: Slot, now_ms: int, settings: TransactionSettings) -> None:
        self.slot = slot
        self.now_ms = now_ms
        self.settings = settings
        self.effects: list[Effect] = []

    @property
    def settled(self) -> Transaction:
        assert self.slot.settled is not None
        return self.slot.settled

    def reply(self, token: int | None, response: Response) -> None:
        if token is not None:
            self.effects.append(Reply(token, response))

    def settle(self, settled: Transaction | None, phase: Phase = Phase.STILL) -> None:
        self.slot = Slot(self.slot.transactional_id, settled, phase, None, self.slot.fence_failed)

    def write(
        self,
        written: Transaction | None,
        token: int | None = None,
        accepted: Response | None = None,
        fence_epoch: int | None = None,
    ) -> None:
        append = Append(self.slot.transactional_id, written, token, accepted, fence_epoch)
        before = self.slot
        self.slot = Slot(before.transactional_id, before.settled, Phase.WRITING, append, before.fence_failed)
        self.effects.append(append)

    def changed(self, **fields: Any) -> Transaction:
        """Returns the settled transaction with `fields` replaced and the update time set to now."""
        before = self.settled
        return replace(before, last_update_ms=self.now_ms, previous_producer_id=before.producer_id, **fields)

    def finish(self) -> None:
        """Continues a decided transaction: writes its markers, or completes it if it has no partitions."""
        settled = self.settled
        if not settled.partitions:
            self.complete()
            return
        self.slot = replace(self.slot, phase=Phase.MARKING)
        self.effects.append(
            WriteMarkers(
                settled.transactional_id,
                settled.producer_id,
                settled.producer_epoch,
                settled.state is PREPARE_COMMIT,
                settled.partitions,
                settled.client_version,
            )
        )

    def complete(self) -> None:
        """Writes that the decided transaction is complete. If its epochs are exhausted, the next producer id takes
        over.
        """
        before = self.settled
        completed = self.changed(
            state=COMPLETE_COMMIT if before.state is PREPARE_COMMIT else COMPLETE_ABORT,
            partitions=(),
            next_producer_id=NO_PRODUCER_ID,
        )
        if before.client_version >= 2 and before.next_producer_id != NO_PRODUCER_ID:
            completed = replace(completed, producer_id=before.next_producer_id, producer_epoch=0)
        self.write(completed)

    def fence(self, event: InitProducerId | TimeOut) -> None:
        """Aborts the open transaction of another producer, at an epoch that this producer does not have.

        With transaction.version 2 the result is the same as after an abort by the owner, with a new producer id after
        the last epoch (KAFKA-19367; 4.0.0 bumped the epoch twice). If the owner then requests the abort itself, it gets
        a success.
        """
        before = self.settled
        # The epoch of a failed write may be in the log but was never handed out, so it can be used again.
        epoch = before.producer_epoch if self.slot.fence_failed else min(before.producer_epoch + 1, MAX_EPOCH)
        bumps = self.settings.server_version >= 2
        next_producer_id = NO_PRODUCER_ID
        if bumps and epoch == MAX_EPOCH:
            if event.new_producer_id is None:
                self.effects.append(Allocate(event))
                return
            next_producer_id = event.new_producer_id
        written = self.decided(
            replace(before, producer_epoch=epoch - 1),
            committed=False,
            client_version=2 if bumps else 0,
            next_producer_id=next_producer_id,
        )
        if not bumps:
            written = replace(written, producer_epoch=epoch, last_producer_epoch=NO_EPOCH)
        token = event.token if isinstance(event, InitProducerId) else None
        self.write(written, token, Response(ErrorCode.CONCURRENT_TRANSACTIONS), fence_epoch=epoch)

    def decided(
        self, before: Transaction, *, committed: bool, client_version: int, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """Returns `before` with its end decided.

        From version 2 on the owner continues with the next epoch (KIP-890), which keeps late writes of this transaction
        out of the next one.
        """
        after = replace(
            before,
            state=PREPARE_COMMIT if committed else PREPARE_ABORT,
            last_update_ms=self.now_ms,
            # A transaction aborted without any partition begins and ends now.
            start_ms=before.start_ms if before.state is ONGOING else self.now_ms,
            previous_producer_id=before.producer_id,
            next_producer_id=next_producer_id,
            client_version=client_version,
        )
        if client_version < 2:
            return after
        epoch = min(before.producer_epoch + 1, MAX_EPOCH)
        return replace(after, producer_epoch=epoch, last_producer_epoch=before.producer_epoch)

"""One transactional id in each state, and the results of the table in a short form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.transactions.settings import TransactionSettings
from ottla.broker.transactions.state import (
    Allocate,
    Append,
    Effect,
    Event,
    Forget,
    Phase,
    Reply,
    Response,
    Slot,
    Transaction,
    TransactionState,
    WriteMarkers,
)
from ottla.broker.transactions.table import advance
from ottla.protocol.errors import ErrorCode

EMPTY, ONGOING, P_COMMIT, P_ABORT, C_COMMIT, C_ABORT, DEAD, _ = TransactionState
IDLE = (EMPTY, C_COMMIT, C_ABORT)
COMMIT, ABORT = True, False
NOW = 1_000_000
SETTINGS = TransactionSettings(expiration_ms=50_000)
OLD_SERVER = TransactionSettings(expiration_ms=50_000, server_version=0)
HELD = (("t", 0), ("t", 1))
# The owner of every id below: producer 7 at epoch 4, previously at epoch 3.
OWNER = Transaction(
    "tx", 7, 4, 60_000, start_ms=900_000, last_update_ms=950_000, last_producer_epoch=3, previous_producer_id=7
)


def transaction(state: TransactionState, **changes: Any) -> Transaction:
    held = HELD if state in (ONGOING, P_COMMIT, P_ABORT) else ()
    start_ms = -1 if state is EMPTY else OWNER.start_ms
    return replace(OWNER, **{"state": state, "partitions": held, "start_ms": start_ms, **changes})


def slot_in(state: TransactionState, phase: Phase = Phase.STILL, **changes: Any) -> Slot:
    return Slot("tx", None if state is DEAD else transaction(state, **changes), phase)


def feed(slot: Slot, event: Event, settings: TransactionSettings = SETTINGS) -> tuple[Slot, list[str]]:
    after, effects = advance(slot, event, now_ms=NOW, settings=settings)
    return after, rendered(effects)


def rendered(effects: tuple[Effect, ...]) -> list[str]:
    """Effects in a short form: `response CODE producer/epoch`, `write STATE producer/epoch`, `markers commit
    producer/epoch`.
    """
    short = []
    for effect in effects:
        if isinstance(effect, Reply):
            error, producer_id, epoch, missing = effect.response
            whom = "" if producer_id == epoch == -1 else f" {producer_id}/{epoch}"
            short.append(f"response {int(error)}{whom}{''.join(f' -{t}{n}' for t, n in missing)}")
        elif isinstance(effect, Append):
            written = effect.written
            what = f"{written.state.value} {written.producer_id}/{written.producer_epoch}" if written else "tombstone"
            short.append(f"write {what}")
        elif isinstance(effect, WriteMarkers):
            result = "commit" if effect.committed else "abort"
            assert effect.partitions == HELD
            short.append(f"markers {result} {effect.producer_id}/{effect.producer_epoch}")
        elif isinstance(effect, Allocate):
            short.append("allocate")
        else:
            assert isinstance(effect, Forget)
            short.append("forget")
    return short


# The write under way in each state, when its outcome arrives.
WRITES = {
    DEAD: Append("tx", Transaction("tx", 8, 0, 60_000), 9, Response(ErrorCode.NONE, 8, 0)),
    EMPTY: Append("tx", transaction(ONGOING), 9, Response(ErrorCode.NONE)),
    ONGOING: Append("tx", transaction(P_COMMIT, producer_epoch=5), 9, Response(ErrorCode.NONE, 7, 5)),
    P_COMMIT: Append("tx", transaction(C_COMMIT)),
    P_ABORT: Append("tx", transaction(C_ABORT)),
    C_COMMIT: Append("tx", None),
    C_ABORT: Append("tx", transaction(EMPTY, producer_epoch=5), 9, Response(ErrorCode.NONE, 7, 5)),
}

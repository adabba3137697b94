"""The transaction coordinator as a table: (state, event) -> (state, effects).

Owns every decision about the owner of a transactional id and the end of its transaction. Uses no clock, socket, log or
producer id block: they arrive with the events and leave as effects. Behaves like Apache Kafka's coordinator (KIP-98,
360, 588, 890, 1228), except that a failed write of the completion record is retried by the periodic check for timeouts.

All fenced producers get PRODUCER_FENCED; the request handlers map it to INVALID_PRODUCER_EPOCH for older versions of
their API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from ...protocol.errors import ErrorCode
from ..errors import Refused
from .moves import (
    COMPLETE_COMMIT,
    EMPTY,
    LAST_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATES,
    Step,
)
from .settings import TransactionSettings
from .state import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    AddPartitions,
    Allocate,
    Appended,
    AppendFailed,
    Effect,
    EndTxn,
    Event,
    Expire,
    Forget,
    InitProducerId,
    Loaded,
    MarkersWritten,
    Phase,
    Request,
    Response,
    Slot,
    TimeOut,
    Transaction,
    TransactionState,
    VerifyPartitions,
)


def advance(slot: Slot, event: Event, *, now_ms: int, settings: TransactionSettings) -> tuple[Slot, tuple[Effect, ...]]:
    """Returns the id's slot after `event`, and the effects to carry out, in order."""
    step = Step(slot, now_ms, settings)
    try:
        if not slot.transactional_id and isinstance(event, Request):
            raise Refused(ErrorCode.INVALID_REQUEST)
        TABLE[slot.state, type(event)](step, event)
    except Refused as refused:
        assert isinstance(event, Request)
        step.reply(event.token, Response(refused.code))
    return step.slot, tuple(step.effects)


# --- InitProducerId --------------------------------------------------------------------------------------------------


def _check_init(step: Step, event: InitProducerId) -> None:
    """Validates the request. Raises Refused."""
    settled = step.slot.settled
    if (event.producer_id == NO_PRODUCER_ID) != (event.producer_epoch == NO_EPOCH):
        raise Refused(ErrorCode.INVALID_REQUEST)
    if step.slot.pending:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if (
        settled is not None
        and event.producer_id not in (NO_PRODUCER_ID, settled.producer_id)
        and settled.producer_epoch != NO_EPOCH
        # The producer may have missed the response that moved it from its last epoch to a new producer id.
        and not (event.producer_id == settled.previous_producer_id and event.producer_epoch >= LAST_EPOCH)
    ):
        raise Refused(ErrorCode.PRODUCER_FENCED)


def _give(step: Step, event: InitProducerId, owned: Transaction) -> None:
    """Writes the producer id and epoch of the new owner, and returns them to it once they are durable."""
    given = replace(
        owned,
        state=EMPTY,
        partitions=(),
        # Before 4.0 the start time of the last transaction remains visible until a restart; it is in no record.
        start_ms=-1 if step.settings.server_version >= 2 else owned.start_ms,
        timeout_ms=NO_TIMEOUT_MS if event.two_phase else event.timeout_ms,
        last_update_ms=step.now_ms,
        next_producer_id=NO_PRODUCER_ID,
    )
    step.write(given, event.token, Response(ErrorCode.NONE, given.producer_id, given.producer_epoch))


def _init_dead(step: Step, event: InitProducerId) -> None:
    _check_init(step, event)
    if event.new_producer_id is None:
        step.effects.append(Allocate(event))
        return
    fresh = event.new_producer_id
    _give(step, event, Transaction(step.slot.transactional_id, fresh, 0, event.timeout_ms, previous_producer_id=fresh))


def _init_idle(step: Step, event: InitProducerId) -> None:
    """Assigns the next epoch or, after the last epoch, a new producer id; there is no open transaction."""
    _check_init(step, event)
    before = step.settled
    recovers = event.producer_id != NO_PRODUCER_ID and before.producer_epoch != NO_EPOCH
    if recovers and event.producer_epoch != before.producer_epoch:
        if event.producer_epoch != before.last_producer_epoch:
            raise Refused(ErrorCode.PRODUCER_FENCED)
        _give(step, event, step.changed())  # the response was lost, or EndTxn bumped the epoch
        return
    last_epoch = before.producer_epoch if recovers else NO_EPOCH
    if before.producer_epoch < LAST_EPOCH:
        _give(step, event, step.changed(producer_epoch=before.producer_epoch + 1, last_producer_epoch=last_epoch))
    elif event.new_producer_id is None:
        step.effects.append(Allocate(event))
    else:
        owned = step.changed(producer_id=event.new_producer_id, producer_epoch=0, last_producer_epoch=last_epoch)
        _give(step, event, owned)


def _init_ongoing(step: Step, event: InitProducerId) -> None:
    _check_init(step, event)
    step.fence(event)


def _init_deciding(step: Step, event: InitProducerId) -> None:
    _check_init(step, event)
    raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)


# --- AddPartitions, VerifyPartitions ---------------------------------------------------------------------------------


def _names_next(settled: Transaction, event: AddPartitions | VerifyPartitions | EndTxn) -> bool:
    """Whether the client already uses the next producer id, which its last EndTxn returned."""
    promised = settled.next_producer_id != NO_PRODUCER_ID and event.producer_id == settled.next_producer_id
    return promised and event.producer_epoch == 0


def _owner_error(slot: Slot, event: AddPartitions | VerifyPartitions | EndTxn) -> ErrorCode:
    """Returns the error of a request by a producer that does not own the id (any longer)."""
    settled = slot.settled
    if settled is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if _names_next(settled, event):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if event.producer_id != settled.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if event.producer_epoch != settled.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _check_add(step: Step, event: AddPartitions) -> None:
    """Raises Refused unless the producer may add to the transaction. In the states dead, prepare commit and prepare
    abort it may not, and this is the whole move.
    """
    slot = step.slot
    error = _owner_error(slot, event)
    # From 4.0 on a client may use the epoch of a pending change, so whether it is fenced is known only after the
    # change.
    ahead = step.settings.server_version >= 2
    if slot.pending and slot.settled is not None and (ahead or error is ErrorCode.NONE):
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    _check_undecided(slot, error)


def _check_undecided(slot: Slot, error: ErrorCode) -> None:
    """Raises Refused for the error of a producer that does not own the id, and for a transaction that is decided."""
    if error is not ErrorCode.NONE:
        raise Refused(error)
    if slot.state in (PREPARE_COMMIT, PREPARE_ABORT):
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)


def _add_first(step: Step, event: AddPartitions) -> None:
    _check_add(step, event)
    partitions = tuple(dict.fromkeys(event.partitions))
    begun = step.changed(
        state=ONGOING, partitions=partitions, start_ms=step.now_ms, client_version=event.client_version
    )
    step.write(begun, event.token, Response(ErrorCode.NONE))


def _add_more(step: Step, event: AddPartitions) -> None:
    _check_add(step, event)
    before = step.settled.partitions
    partitions = tuple(dict.fromkeys(before + event.partitions))
    if partitions == before:
        step.reply(event.token, Response(ErrorCode.NONE))
        return
    grown = step.changed(partitions=partitions, client_version=event.client_version)
    step.write(grown, event.token, Response(ErrorCode.NONE))


def _verify(step: Step, event: VerifyPartitions) -> None:
    """Checks the partitions, even during a pending change: the append of the records checks the log again."""
    _check_undecided(step.slot, _owner_error(step.slot, event))
    held = set(step.settled.partitions)
    missing = tuple(partition for partition in event.partitions if partition not in held)
    step.reply(event.token, Response(ErrorCode.NONE, missing=missing))


# --- EndTxn ----------------------------------------------------------------------------------------------------------


def _repeats(settled: Transaction, event: EndTxn) -> bool:
    """Whether a version 2 client repeats the EndTxn that bumped its epoch or moved it to a new producer id."""
    if event.producer_id == settled.producer_id:
        # The owner is at MAX_EPOCH only while its transaction is being completed.
        deciding = settled.state in (PREPARE_COMMIT, PREPARE_ABORT)
        reached = settled.producer_epoch < MAX_EPOCH or deciding
        return reached and event.producer_epoch == settled.producer_epoch - 1
    moved = settled.previous_producer_id == event.producer_id and settled.producer_epoch == 0
    return moved and event.producer_epoch == LAST_EPOCH


def _check_end(slot: Slot, event: EndTxn, *, may_repeat: bool = False, may_continue: bool = True) -> None:
    """Checks the producer id, the epoch and pending changes. Raises Refused.

    `may_repeat`: in this state a version 2 client may repeat its EndTxn. `may_continue`: it may also use the current
    epoch.
    """
    settled = slot.settled
    if settled is None:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if event.client_version < 2:
        error = _owner_error(slot, event)
        if slot.pending and error is ErrorCode.NONE:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is not ErrorCode.NONE:
            raise Refused(error)
        return
    if slot.pending or _names_next(settled, event):
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
    repeats = _repeats(settled, event)
    if event.producer_id != settled.producer_id and not repeats:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    present = event.producer_id == settled.producer_id and event.producer_epoch == settled.producer_epoch
    if not (may_repeat and repeats) and not (present and may_continue):
        raise Refused(ErrorCode.PRODUCER_FENCED)


def _decide(step: Step, event: EndTxn) -> None:
    """Writes the decision; the client gets its response as soon as that is durable."""
    before = step.settled
    if event.client_version < 2:
        written = step.decided(before, committed=event.committed, client_version=0)
        step.write(written, event.token, Response(ErrorCode.NONE))
        return
    next_producer_id = NO_PRODUCER_ID
    if before.producer_epoch >= LAST_EPOCH:
        if event.new_producer_id is None:
            step.effects.append(Allocate(event))
            return
        next_producer_id = event.new_producer_id
    written = step.decided(
        before, committed=event.committed, client_version=event.client_version, next_producer_id=next_producer_id
    )
    if next_producer_id == NO_PRODUCER_ID:
        accepted = Response(ErrorCode.NONE, written.producer_id, written.producer_epoch)
    else:
        accepted = Response(ErrorCode.NONE, next_producer_id, 0)
    step.write(written, event.token, accepted)


def _end_dead(step: Step, event: EndTxn) -> None:
    raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def _end_empty(step: Step, event: EndTxn) -> None:
    _check_end(step.slot, event)
    if event.client_version < 2 or event.committed:
        raise Refused(ErrorCode.INVALID_TXN_STATE)
    _decide(step, event)


def _end_ongoing(step: Step, event: EndTxn) -> None:
    _check_end(step.slot, event)
    _decide(step, event)


def _end_deciding(step: Step, event: EndTxn) -> None:
    _check_end(step.slot, event, may_repeat=True, may_continue=False)
    same = event.committed == (step.slot.state is PREPARE_COMMIT)
    raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS if same else ErrorCode.INVALID_TXN_STATE)


def _end_complete(step: Step, event: EndTxn) -> None:
    _check_end(step.slot, event, may_repeat=True)
    settled = step.settled
    same = event.committed == (settled.state is COMPLETE_COMMIT)
    if event.client_version >= 2 and not _repeats(settled, event):
        # An abort before the next transaction began.
        if event.committed:
            raise Refused(ErrorCode.INVALID_TXN_STATE)
        _decide(step, event)
    elif not same:
        raise Refused(ErrorCode.INVALID_TXN_STATE)
    elif event.client_version < 2:
        step.reply(event.token, Response(ErrorCode.NONE))
    else:
        step.reply(event.token, Response(ErrorCode.NONE, settled.producer_id, settled.producer_epoch))


# --- periodic checks, Loaded -----------------------------------------------------------------------------------------


def _time_out(step: Step, event: TimeOut) -> None:
    settled = step.settled
    if step.slot.pending or settled.timeout_ms == NO_TIMEOUT_MS:
        return
    if settled.start_ms + settled.timeout_ms < step.now_ms:
        step.fence(event)


def _complete_at_last(step: Step, event: TimeOut) -> None:
    if step.slot.phase is Phase.MARKED:
        step.complete()


def due_ms(slot: Slot, which: type[TimeOut] | type[Expire], settings: TransactionSettings) -> int | None:
    """Returns the time from which this event has an effect if nothing changes: 0 if at once, None if never."""
    settled = slot.settled
    if settled is None or slot.state not in states_moved_by(which):
        return None
    if which is TimeOut and slot.state is not ONGOING:
        return 0 if slot.phase is Phase.MARKED else None
    if slot.pending:
        return None
    if which is Expire:
        return settled.last_update_ms + settings.expiration_ms
    return None if settled.timeout_ms == NO_TIMEOUT_MS else settled.start_ms + settled.timeout_ms + 1


def _expire(step: Step, event: Expire) -> None:
    if not step.slot.pending and step.settled.last_update_ms <= step.now_ms - step.settings.expiration_ms:
        step.write(None)


def _finish_loaded(step: Step, event: Loaded) -> None:
    if not step.slot.pending:
        step.finish()


# --- outcomes --------------------------------------------------------------------------------------------------------


def _appended(step: Step, event: Appended) -> None:
    write = event.write
    if step.slot.writing != write:
        return
    step.settle(write.written)
    if write.accepted is not None:
        step.reply(write.token, write.accepted)
    if write.written is None:
        step.effects.append(Forget(write.transactional_id))
    elif write.written.state in (PREPARE_COMMIT, PREPARE_ABORT):
        if step.slot.fence_failed:
            step.slot = replace(step.slot, fence_failed=False)
        step.finish()


def _append_failed(step: Step, event: AppendFailed) -> None:
    write, settled = event.write, step.slot.settled
    if step.slot.writing != write:
        return
    deciding = step.slot.state in (PREPARE_COMMIT, PREPARE_ABORT)
    if write.fence_epoch is not None and settled is not None:
        # The record may be in the log in spite of the error, so the owner stays fenced.
        settled = replace(settled, producer_epoch=write.fence_epoch, last_producer_epoch=NO_EPOCH)
        step.slot = replace(step.slot, fence_failed=True)
    step.settle(settled, Phase.MARKED if deciding else Phase.STILL)
    step.reply(write.token, Response(event.error))
    if settled is None:
        step.effects.append(Forget(write.transactional_id))


def _markers_written(step: Step, event: MarkersWritten) -> None:
    settled, markers = step.settled, event.markers
    ours = (settled.producer_id, settled.producer_epoch) == (markers.producer_id, markers.producer_epoch)
    if step.slot.phase is Phase.MARKING and ours:
        step.complete()


# --- the table -------------------------------------------------------------------------------------------------------


def _nothing(step: Step, event: Event) -> None:
    """Ignores an event that has no meaning in this state."""


# The move of each event in each of STATES.
_MOVES: dict[type, Sequence[Callable[[Step, Any], None]]] = {
    # state: dead, empty, ongoing, prepare commit, prepare abort, complete commit, complete abort
    InitProducerId: (_init_dead, _init_idle, _init_ongoing, _init_deciding, _init_deciding, _init_idle, _init_idle),
    AddPartitions: (_check_add, _add_first, _add_more, _check_add, _check_add, _add_first, _add_first),
    VerifyPartitions: (_verify,) * len(STATES),
    EndTxn: (_end_dead, _end_empty, _end_ongoing, _end_deciding, _end_deciding, _end_complete, _end_complete),
    TimeOut: (_nothing, _nothing, _time_out, _complete_at_last, _complete_at_last, _nothing, _nothing),
    Expire: (_nothing, _expire, _nothing, _nothing, _nothing, _expire, _expire),
    # In the state ongoing the owner may continue; otherwise the timeout since its start applies.
    Loaded: (_nothing, _nothing, _nothing, _finish_loaded, _finish_loaded, _nothing, _nothing),
    # A write of an earlier incarnation of the id is recognized by its record.
    Appended: (_appended,) * len(STATES),
    AppendFailed: (_append_failed,) * len(STATES),
    MarkersWritten: (_nothing, _nothing, _nothing, _markers_written, _markers_written, _nothing, _nothing),
}
TABLE = {(state, event): move for event, moves in _MOVES.items() for state, move in zip(STATES, moves, strict=True)}


@cache
def states_moved_by(kind: type) -> frozenset[TransactionState]:
    """Returns the states in which an event of this kind has an effect."""
    return frozenset(state for (state, of), move in TABLE.items() if of is kind and move is not _nothing)

"""The transaction coordinator as a table: (state, event) -> (state, effects).

Owns every decision about the owner of a transactional id and the end of its transaction. Uses no clock, socket, log or
producer id block: they arrive with the events and leave as effects. Behaves like Apache Kafka's coordinator (KIP-98,
360, 588, 890, 1228), except that a failed write of the completion record is retried by the periodic check for timeouts.

All fenced producers get PRODUCER_FENCED; the request handlers map it to INVALID_PRODUCER_EPOCH for older versions of
their API.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

from ...protocol.errors import ErrorCode
from .moves import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
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
    AddOffsets,
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
    Partition,
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
    if not slot.transactional_id and isinstance(event, Request):
        step.refuse(event.token, ErrorCode.INVALID_REQUEST)
    else:
        TABLE[slot.state, type(event)](step, event)
    return step.slot, tuple(step.effects)


# --- InitProducerId --------------------------------------------------------------------------------------------------


def _init_accepted(step: Step, event: InitProducerId) -> bool:
    """Validates the request; sends the error response and returns False if it is refused."""
    settled = step.slot.settled
    error = ErrorCode.NONE
    if (event.producer_id == NO_PRODUCER_ID) != (event.producer_epoch == NO_EPOCH):
        error = ErrorCode.INVALID_REQUEST
    elif not event.two_phase and not 0 < event.timeout_ms <= step.settings.max_timeout_ms:
        error = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    elif step.slot.pending:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    elif (
        settled is not None
        and event.producer_id not in (NO_PRODUCER_ID, settled.producer_id)
        and settled.producer_epoch != NO_EPOCH
        # The producer may have missed the response that moved it from its last epoch to a new producer id.
        and not (event.producer_id == settled.previous_producer_id and event.producer_epoch >= LAST_EPOCH)
    ):
        error = ErrorCode.PRODUCER_FENCED
    if error is not ErrorCode.NONE:
        step.refuse(event.token, error)
    return error is ErrorCode.NONE


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
    if not _init_accepted(step, event):
        return
    if event.new_producer_id is None:
        step.effects.append(Allocate(event))
        return
    fresh = event.new_producer_id
    _give(step, event, Transaction(step.slot.transactional_id, fresh, 0, event.timeout_ms, previous_producer_id=fresh))


def _init_idle(step: Step, event: InitProducerId) -> None:
    """Assigns the next epoch or, after the last epoch, a new producer id; there is no open transaction."""
    if not _init_accepted(step, event):
        return
    before = step.settled
    recovers = event.producer_id != NO_PRODUCER_ID and before.producer_epoch != NO_EPOCH
    if recovers and event.producer_epoch != before.producer_epoch:
        if event.producer_epoch == before.last_producer_epoch:
            _give(step, event, step.changed())  # the response was lost, or EndTxn bumped the epoch
        else:
            step.refuse(event.token, ErrorCode.PRODUCER_FENCED)
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
    if _init_accepted(step, event):
        step.fence(event)


def _init_deciding(step: Step, event: InitProducerId) -> None:
    if _init_accepted(step, event):
        step.refuse(event.token, ErrorCode.CONCURRENT_TRANSACTIONS)


# --- AddPartitions, AddOffsets, VerifyPartitions ---------------------------------------------------------------------


def _names_next(settled: Transaction, event: AddPartitions | AddOffsets | VerifyPartitions | EndTxn) -> bool:
    """Whether the client already uses the next producer id, which its last EndTxn returned."""
    promised = settled.next_producer_id != NO_PRODUCER_ID and event.producer_id == settled.next_producer_id
    return promised and event.producer_epoch == 0


def _owner_error(slot: Slot, event: AddPartitions | AddOffsets | VerifyPartitions | EndTxn) -> ErrorCode:
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


def _add_refused(step: Step, event: AddPartitions | AddOffsets) -> bool:
    slot = step.slot
    error = _owner_error(slot, event)
    # From 4.0 on a client may use the epoch of a pending change, so whether it is fenced is known only after the
    # change.
    ahead = step.settings.server_version >= 2
    if slot.pending and slot.settled is not None and (ahead or error is ErrorCode.NONE):
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error is ErrorCode.NONE and slot.state in (PREPARE_COMMIT, PREPARE_ABORT):
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error is not ErrorCode.NONE:
        step.refuse(event.token, error)
    return error is not ErrorCode.NONE


def _added(event: AddPartitions | AddOffsets) -> tuple[Partition, ...]:
    return event.partitions if isinstance(event, AddPartitions) else (event.partition,)


def _add_refusing(step: Step, event: AddPartitions | AddOffsets) -> None:
    refused = _add_refused(step, event)
    assert refused


def _add_first(step: Step, event: AddPartitions | AddOffsets) -> None:
    if not _add_refused(step, event):
        partitions = tuple(dict.fromkeys(_added(event)))
        begun = step.changed(
            state=ONGOING, partitions=partitions, start_ms=step.now_ms, client_version=event.client_version
        )
        step.write(begun, event.token, Response(ErrorCode.NONE))


def _add_more(step: Step, event: AddPartitions | AddOffsets) -> None:
    if _add_refused(step, event):
        return
    before = step.settled.partitions
    partitions = tuple(dict.fromkeys(before + _added(event)))
    if partitions == before:
        step.refuse(event.token, ErrorCode.NONE)
        return
    grown = step.changed(partitions=partitions, client_version=event.client_version)
    step.write(grown, event.token, Response(ErrorCode.NONE))


def _verify(step: Step, event: VerifyPartitions) -> None:
    """Checks the partitions, even during a pending change: the append of the records checks the log again."""
    error = _owner_error(step.slot, event)
    if error is ErrorCode.NONE and step.slot.state in (PREPARE_COMMIT, PREPARE_ABORT):
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if error is not ErrorCode.NONE:
        step.refuse(event.token, error)
        return
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


def _end_error(slot: Slot, event: EndTxn, *, may_repeat: bool, may_continue: bool = True) -> ErrorCode:
    """Checks the producer id, the epoch and pending changes.

    `may_repeat`: in this state a version 2 client may repeat its EndTxn. `may_continue`: it may also use the current
    epoch.
    """
    settled = slot.settled
    if settled is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if event.client_version < 2:
        error = _owner_error(slot, event)
        return ErrorCode.CONCURRENT_TRANSACTIONS if slot.pending and error is ErrorCode.NONE else error
    if slot.pending or _names_next(settled, event):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    repeats = _repeats(settled, event)
    if event.producer_id != settled.producer_id and not repeats:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if may_repeat and repeats:
        return ErrorCode.NONE
    present = event.producer_id == settled.producer_id and event.producer_epoch == settled.producer_epoch
    return ErrorCode.NONE if present and may_continue else ErrorCode.PRODUCER_FENCED


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
    step.refuse(event.token, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def _end_empty(step: Step, event: EndTxn) -> None:
    error = _end_error(step.slot, event, may_repeat=False)
    if error is ErrorCode.NONE and (event.client_version < 2 or event.committed):
        error = ErrorCode.INVALID_TXN_STATE
    if error is not ErrorCode.NONE:
        step.refuse(event.token, error)
    else:
        _decide(step, event)


def _end_ongoing(step: Step, event: EndTxn) -> None:
    error = _end_error(step.slot, event, may_repeat=False)
    if error is not ErrorCode.NONE:
        step.refuse(event.token, error)
    else:
        _decide(step, event)


def _end_deciding(step: Step, event: EndTxn) -> None:
    error = _end_error(step.slot, event, may_repeat=True, may_continue=False)
    if error is ErrorCode.NONE:
        same = event.committed == (step.slot.state is PREPARE_COMMIT)
        error = ErrorCode.CONCURRENT_TRANSACTIONS if same else ErrorCode.INVALID_TXN_STATE
    step.refuse(event.token, error)


def _end_complete(step: Step, event: EndTxn) -> None:
    error = _end_error(step.slot, event, may_repeat=True)
    if error is not ErrorCode.NONE:
        step.refuse(event.token, error)
        return
    settled = step.settled
    same = event.committed == (settled.state is COMPLETE_COMMIT)
    if event.client_version < 2:
        step.refuse(event.token, ErrorCode.NONE if same else ErrorCode.INVALID_TXN_STATE)
    elif not _repeats(settled, event):
        # An abort before the next transaction began.
        if event.committed:
            step.refuse(event.token, ErrorCode.INVALID_TXN_STATE)
        else:
            _decide(step, event)
    elif same:
        step.reply(event.token, Response(ErrorCode.NONE, settled.producer_id, settled.producer_epoch))
    else:
        step.refuse(event.token, ErrorCode.INVALID_TXN_STATE)


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
    if write.token is not None:
        step.refuse(write.token, event.error)
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


TABLE: dict[tuple[TransactionState, type], Callable[[Step, Any], None]] = {
    # requests
    (DEAD, InitProducerId): _init_dead,
    (EMPTY, InitProducerId): _init_idle,
    (ONGOING, InitProducerId): _init_ongoing,
    (PREPARE_COMMIT, InitProducerId): _init_deciding,
    (PREPARE_ABORT, InitProducerId): _init_deciding,
    (COMPLETE_COMMIT, InitProducerId): _init_idle,
    (COMPLETE_ABORT, InitProducerId): _init_idle,
    (DEAD, AddPartitions): _add_refusing,
    (EMPTY, AddPartitions): _add_first,
    (ONGOING, AddPartitions): _add_more,
    (PREPARE_COMMIT, AddPartitions): _add_refusing,
    (PREPARE_ABORT, AddPartitions): _add_refusing,
    (COMPLETE_COMMIT, AddPartitions): _add_first,
    (COMPLETE_ABORT, AddPartitions): _add_first,
    (DEAD, AddOffsets): _add_refusing,
    (EMPTY, AddOffsets): _add_first,
    (ONGOING, AddOffsets): _add_more,
    (PREPARE_COMMIT, AddOffsets): _add_refusing,
    (PREPARE_ABORT, AddOffsets): _add_refusing,
    (COMPLETE_COMMIT, AddOffsets): _add_first,
    (COMPLETE_ABORT, AddOffsets): _add_first,
    **dict.fromkeys(product(STATES, (VerifyPartitions,)), _verify),
    (DEAD, EndTxn): _end_dead,
    (EMPTY, EndTxn): _end_empty,
    (ONGOING, EndTxn): _end_ongoing,
    (PREPARE_COMMIT, EndTxn): _end_deciding,
    (PREPARE_ABORT, EndTxn): _end_deciding,
    (COMPLETE_COMMIT, EndTxn): _end_complete,
    (COMPLETE_ABORT, EndTxn): _end_complete,
    # periodic checks and loading
    (DEAD, TimeOut): _nothing,
    (EMPTY, TimeOut): _nothing,
    (ONGOING, TimeOut): _time_out,
    (PREPARE_COMMIT, TimeOut): _complete_at_last,
    (PREPARE_ABORT, TimeOut): _complete_at_last,
    (COMPLETE_COMMIT, TimeOut): _nothing,
    (COMPLETE_ABORT, TimeOut): _nothing,
    (DEAD, Expire): _nothing,
    (EMPTY, Expire): _expire,
    (ONGOING, Expire): _nothing,
    (PREPARE_COMMIT, Expire): _nothing,
    (PREPARE_ABORT, Expire): _nothing,
    (COMPLETE_COMMIT, Expire): _expire,
    (COMPLETE_ABORT, Expire): _expire,
    (DEAD, Loaded): _nothing,
    (EMPTY, Loaded): _nothing,
    (ONGOING, Loaded): _nothing,  # the owner may continue; otherwise the timeout since its start applies
    (PREPARE_COMMIT, Loaded): _finish_loaded,
    (PREPARE_ABORT, Loaded): _finish_loaded,
    (COMPLETE_COMMIT, Loaded): _nothing,
    (COMPLETE_ABORT, Loaded): _nothing,
    # outcomes of writes: a write of an earlier incarnation of the id is recognized by its record
    **dict.fromkeys(product(STATES, (Appended,)), _appended),
    **dict.fromkeys(product(STATES, (AppendFailed,)), _append_failed),
    (DEAD, MarkersWritten): _nothing,
    (EMPTY, MarkersWritten): _nothing,
    (ONGOING, MarkersWritten): _nothing,
    (PREPARE_COMMIT, MarkersWritten): _markers_written,
    (PREPARE_ABORT, MarkersWritten): _markers_written,
    (COMPLETE_COMMIT, MarkersWritten): _nothing,
    (COMPLETE_ABORT, MarkersWritten): _nothing,
}


@cache
def states_moved_by(kind: type) -> frozenset[TransactionState]:
    """Returns the states in which an event of this kind has an effect."""
    return frozenset(state for (state, of), move in TABLE.items() if of is kind and move is not _nothing)

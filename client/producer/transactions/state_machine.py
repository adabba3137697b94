"""The transactions of a producer as a table: (state, event) -> (state, effects). KIP-98, 360, 447, 588, 890.

Owns the conditions for writing to a partition, the ways to end a transaction, the meaning of a coordinator's error, and
the need for a new epoch. Pure: no I/O, no clock; requests and waits are in `manager.py`. The rules, by number:

 1. A partition, or a group whose offsets are committed, is added to the transaction at the coordinator before the first
    write: in the first version of transactions by a request of its own, in the second by the write itself.
 2. A commit is requested when all records are acknowledged. After any failure only an abort is possible.
 3. An abort drops unsent batches, and waits for those in flight. Copies of requests without a response may still
    arrive: in the second version the marker bumps the epoch, which fences them; in the first the client waits until
    they have expired.
 4. A request without a response is repeated: a coordinator that has processed it returns the same response again. A
    requested commit cannot be cancelled. In the first version, where transactions share an epoch, a late copy could
    begin, extend or end the next transaction: the client waits until all copies have expired.
 5. Batches of an aborted transaction may leave a gap in the sequences. In the second version each transaction has a new
    epoch. In the first a new epoch is requested (KIP-360); without that API (before 2.5) the sequences go back to the
    last acknowledged one, if it is certain that no later batch was written.
 6. A newer epoch in a partition may mean that another producer has the transactional id, or that the transaction timed
    out: the response to the abort decides (KIP-588). The same error from a coordinator is final.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from ....protocol.errors import ErrorCode
from ...net.errors import (
    ClientError,
    InvalidTransactionState,
    KafkaError,
    ProducerFailed,
    ProducerFenced,
    TransactionFailed,
    is_retriable,
)
from ...net.metadata import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1


class State(Enum):
    """The state of a transactional producer; the values complete the sentence "the producer ..."."""

    NEW = "has no producer id yet"
    INITIALIZING = "is waiting for its producer id"
    READY = "has no transaction open"
    OPEN = "has a transaction open"
    FAILED = "has a transaction that can only be aborted"
    COMMITTING = "is committing"
    ABORTING = "is aborting"
    FATAL = "has failed"


@dataclass(frozen=True, slots=True)
class TransactionStatus:
    """The producer and its transaction: the state with its data.

    `is_v2`: transactions of the second version. `can_bump`: a new epoch can be requested. `waiting` are partitions to
    be added, `adding` those in a request without a response.
    """

    state: State = State.NEW
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    is_v2: bool = False
    can_bump: bool = False
    waiting: frozenset[TopicPartition] = frozenset()
    adding: frozenset[TopicPartition] = frozenset()
    added: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    has_begun: bool = False  # the coordinator has the transaction, for certain
    may_have_begun: bool = False
    needs_epoch: bool = False
    is_unknown: bool = False  # the coordinator does not have the producer id
    end_sent: bool = False
    error: ClientError | None = None

    @property
    def resends_always(self) -> bool:
        """Whether sent batches are retried until a response, also in a transaction that will be aborted (rule 5)."""
        return not (self.is_v2 or self.can_bump)


# Events


class Event(Enum):
    """An event without data; the first four are calls of the application. The values are for messages."""

    INITIALIZE = "initialize"
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"
    TAKE = "take"
    """A request with all waiting partitions is sent."""
    USE_GROUP = "use group"
    """A request with a group's offsets is sent."""


@dataclass(frozen=True, slots=True)
class Identified:
    """The coordinator returned a producer id."""

    producer_id: int
    epoch: int
    is_v2: bool
    can_bump: bool


@dataclass(frozen=True, slots=True)
class Use:
    """The first batch of a partition is ready to be sent."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Added:
    """The coordinator has added partitions."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupAdded:
    """The coordinator has added a group."""

    group: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """The transaction can no longer be committed.

    `is_sequenced`: a batch with sequences is not acknowledged; `is_definite`: it is certainly not in the log.
    `is_unknown`: the coordinator does not have the producer id.
    """

    error: ClientError
    is_sequenced: bool = False
    is_definite: bool = True
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Doom:
    """The producer has a fatal error."""

    error: ProducerFailed


@dataclass(frozen=True, slots=True)
class Drained:
    """The batches that a Drain waited for are finished."""

    is_aborting: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The coordinator has ended the transaction; the producer id and epoch of the next one, or -1 for the same."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


# Effects


class Effect(Enum):
    """An effect without data."""

    ADD_PARTITIONS = auto()
    """Send AddPartitionsToTxn, with TAKE, until no partition waits."""
    DROP_UNSENT = auto()
    """Fail all batches not in flight."""
    ADOPT = auto()
    """Start the sequences from 0 with the current producer id and epoch."""
    REWIND = auto()
    """Continue the sequences after the last acknowledged ones."""
    WAKE = auto()
    """Wake the sender: more batches may be sent."""


@dataclass(frozen=True, slots=True)
class RequestProducerId:
    """Send InitProducerId: for the next epoch of these (KIP-360), or for any producer id."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Drain:
    """For a commit: send all batches and wait. For an abort: drop those not in flight, and wait for the rest."""

    is_aborting: bool


@dataclass(frozen=True, slots=True)
class End:
    """Send EndTxn."""

    is_commit: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """Complete the waiting call of the application."""

    error: ClientError | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the producer."""

    error: ProducerFailed


CALLS = (Event.INITIALIZE, Event.BEGIN, Event.COMMIT, Event.ABORT)
Outcome = tuple[TransactionStatus, tuple[Any, ...]]


def advance(status: TransactionStatus, event: object) -> Outcome:
    """Returns the new state after an event, and the effects to perform, in order.

    A call of the application that is not allowed in the state raises InvalidTransactionState or TransactionFailed. Any
    other event that the state does not expect is late, and changes nothing.
    """
    move = TABLE.get((status.state, event if isinstance(event, Event) else type(event)))
    if move is not None:
        return move(status, event)
    if isinstance(event, Event) and event in CALLS:
        raise InvalidTransactionState(f"{event.value} is not possible: the producer {status.state.value}")
    return status, ()


# Beginning


def _to(state: State, *effects: Any) -> _Move:
    """Returns the move that only changes the state."""
    return lambda status, event: (replace(status, state=state), effects)


def _identified(status: TransactionStatus, event: Identified) -> Outcome:
    ready = TransactionStatus(State.READY, event.producer_id, event.epoch, event.is_v2, event.can_bump)
    return ready, (Effect.ADOPT, Settle())


# Partitions and groups (rule 1)


def _use(status: TransactionStatus, event: Use) -> Outcome:
    where = event.partition
    if where in status.added or where in status.adding or where in status.waiting:
        return status, ()
    if status.is_v2:
        return replace(status, added=status.added | {where}, may_have_begun=True), ()
    effects = () if status.waiting or status.adding else (Effect.ADD_PARTITIONS,)
    return replace(status, waiting=status.waiting | {where}), effects


def _take(status: TransactionStatus, event: Event) -> Outcome:
    adding = status.adding | status.waiting
    return replace(status, adding=adding, waiting=frozenset(), may_have_begun=True), ()


def _added(status: TransactionStatus, event: Added) -> Outcome:
    changed = replace(
        status, adding=status.adding - event.partitions, added=status.added | event.partitions, has_begun=True
    )
    return changed, (Effect.WAKE,)


def _use_group(status: TransactionStatus, event: Event) -> Outcome:
    return replace(status, may_have_begun=True), ()


def _group_added(status: TransactionStatus, event: GroupAdded) -> Outcome:
    return replace(status, groups=status.groups | {event.group}, has_begun=True), ()


# Failures


def _noted(status: TransactionStatus, event: Trouble) -> TransactionStatus:
    torn = event.is_sequenced and (status.can_bump or not event.is_definite)
    return replace(
        status,
        error=status.error or event.error,
        needs_epoch=status.needs_epoch or torn,
        is_unknown=status.is_unknown or event.is_unknown,
    )


def _fail_transaction(status: TransactionStatus, event: Trouble) -> Outcome:
    # After a refused commit it is unknown whether the coordinator has a transaction.
    begun = status.has_begun and not status.end_sent
    failed = replace(_noted(status, event), state=State.FAILED, waiting=frozenset(), has_begun=begun, end_sent=False)
    settled = (Settle(failed.error),) if status.state is State.COMMITTING else ()
    return failed, (Effect.DROP_UNSENT, *settled)


def _note_trouble(status: TransactionStatus, event: Trouble) -> Outcome:
    noted = _noted(status, event)
    return _renew(noted) if event.is_unknown and status.end_sent else (noted, ())


def _doom(status: TransactionStatus, event: Doom) -> Outcome:
    return replace(status, state=State.FATAL, error=event.error), (Fail(event.error), Settle(event.error))


# Ending (rules 2 to 5)


def _commit_failed(status: TransactionStatus, event: Event) -> Outcome:
    failed = TransactionFailed(f"the transaction cannot be committed, only aborted: {status.error}")
    raise failed from status.error


def _abort(status: TransactionStatus, event: Event) -> Outcome:
    if status.end_sent:
        raise InvalidTransactionState(
            "the transaction cannot be aborted: its commit was requested, and the result is unknown"
        )
    return replace(status, state=State.ABORTING, waiting=frozenset()), (Drain(is_aborting=True),)


def _drained_commit(status: TransactionStatus, event: Drained) -> Outcome:
    if event.is_aborting:
        return status, ()
    if not status.may_have_begun:
        return _ready(status, Settle())
    return replace(status, end_sent=True), (End(is_commit=True),)


def _drained_abort(status: TransactionStatus, event: Drained) -> Outcome:
    if not event.is_aborting:
        return status, ()
    if status.is_unknown:
        return _renew(status)
    if not status.may_have_begun:
        return _aborted(status)
    return replace(status, end_sent=True), (End(is_commit=False),)


def _ended(status: TransactionStatus, event: Ended) -> Outcome:
    if status.is_v2 and event.producer_id != NO_PRODUCER_ID:
        return _ready(replace(status, producer_id=event.producer_id, epoch=event.epoch), Effect.ADOPT, Settle())
    return _ready(status, Settle()) if status.state is State.COMMITTING else _aborted(status)


def _aborted(status: TransactionStatus) -> Outcome:
    return _renew(status) if status.needs_epoch else _ready(status, Effect.REWIND, Settle())


def _renew(status: TransactionStatus) -> Outcome:
    """Requests a new epoch, which fences late copies of the old one; sequences start from 0."""
    if status.can_bump:
        renewing = replace(status, state=State.INITIALIZING)
        return renewing, (RequestProducerId(status.producer_id, status.epoch),)
    error = ProducerFailed(
        "the transaction is aborted, but one of its batches may be written, and the broker (before Kafka 2.5) cannot"
        f" bump the epoch: continue with a new producer: {status.error}"
    )
    error.__cause__ = status.error
    return _doom(status, Doom(error))


def _ready(status: TransactionStatus, *effects: Any) -> Outcome:
    ready = TransactionStatus(State.READY, status.producer_id, status.epoch, status.is_v2, status.can_bump)
    return ready, effects


_Move = Callable[[TransactionStatus, Any], Outcome]

_SENDING = (State.OPEN, State.COMMITTING)
_BEGUN = (State.OPEN, State.COMMITTING, State.FAILED, State.ABORTING)
_MOVES: tuple[tuple[Event | type, tuple[State, ...], _Move], ...] = (
    (Event.INITIALIZE, (State.NEW,), _to(State.INITIALIZING, RequestProducerId())),
    (Identified, (State.INITIALIZING,), _identified),
    (Event.BEGIN, (State.READY,), _to(State.OPEN)),
    (Use, _SENDING, _use),
    (Event.TAKE, _SENDING, _take),
    (Added, _BEGUN, _added),
    (Event.USE_GROUP, _SENDING, _use_group),
    (GroupAdded, _BEGUN, _group_added),
    (Trouble, _SENDING, _fail_transaction),
    (Trouble, (State.FAILED, State.ABORTING), _note_trouble),
    (Event.COMMIT, (State.OPEN,), _to(State.COMMITTING, Drain(is_aborting=False))),
    (Event.COMMIT, (State.FAILED,), _commit_failed),
    (Event.ABORT, (State.OPEN, State.FAILED, State.COMMITTING), _abort),
    (Drained, (State.COMMITTING,), _drained_commit),
    (Drained, (State.ABORTING,), _drained_abort),
    (Ended, (State.COMMITTING, State.ABORTING), _ended),
    (Doom, tuple(state for state in State if state is not State.FATAL), _doom),
)
TABLE: dict[tuple[State, Event | type], _Move] = {
    (state, event): move for event, states, move in _MOVES for state in states
}


# Responses of coordinators


class Call(Enum):
    """A request to a coordinator. The values are for messages."""

    INIT = "InitProducerId"
    ADD = "adding a partition to the transaction"
    OFFSETS = "adding offsets to the transaction"
    COMMIT = "the commit"
    ABORT = "the abort"


class Verdict(Enum):
    """The meaning of a coordinator's error code."""

    DONE = auto()
    AGAIN = auto()
    """Retry after a back-off."""
    SOON = auto()
    """Retry soon: the previous transaction is being completed."""
    MOVED = auto()
    """Retry at the coordinator, looked up again."""
    TROUBLE = auto()
    """The transaction can only be aborted."""
    UNKNOWN = auto()
    """As TROUBLE, and the coordinator does not have the producer id: a new epoch instead of an abort."""
    FATAL = auto()


_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_UNKNOWN = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID)
_NOT_ALLOWED = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def judge(status: TransactionStatus, call: Call, code: int) -> Verdict:
    """Returns the meaning of an error code in the response to a call."""
    if code == ErrorCode.NONE:
        return Verdict.DONE
    if code in _MOVED:
        return Verdict.MOVED
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return Verdict.SOON
    if is_retriable(code):
        return Verdict.AGAIN
    if code in _FENCED or code in _NOT_ALLOWED or call is Call.INIT:
        return Verdict.FATAL
    if code in _UNKNOWN:
        return Verdict.UNKNOWN if status.can_bump else Verdict.FATAL
    if call is Call.ABORT:
        nothing_open = code == ErrorCode.INVALID_TXN_STATE and not status.is_v2 and not status.has_begun
        return Verdict.DONE if nothing_open else Verdict.FATAL
    if call is Call.COMMIT:
        # These two codes mean that it is certainly not committed; after any other it may be.
        is_certain = code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
        return Verdict.TROUBLE if is_certain else Verdict.FATAL
    return Verdict.TROUBLE


def fatal(call: Call, code: int, transactional_id: str) -> ProducerFailed:
    """Returns the fatal error of the producer for an error code of a call."""
    if code in _FENCED:
        made: ProducerFailed = ProducerFenced(
            f"a newer producer has the transactional id {transactional_id!r}, or a transaction of this one timed out"
        )
    else:
        made = ProducerFailed(f"{call.value} was refused: {KafkaError(code)}")
    made.__cause__ = KafkaError(code, call.value)
    return made

"""Transactions of a producer as a table: (state, event) -> (state, effects). KIP-98, 360, 447, 588, 890.

Owns when a partition may be written, what ends a transaction and how, what an error of a coordinator means, and when a
new epoch is needed. Pure: no I/O, no clock; requests and waiting are `manager.py`'s. The rules, by number:

 1. A partition, or a group whose offsets are committed, is made known to the coordinator before it is written to: in
    the first version of transactions by a request of its own, in the second by the write itself.
 2. A commit is asked for when everything that was sent is acknowledged. If anything failed, only an abort can follow.
 3. An abort drops what was never sent, and waits for what is in flight. Of what was sent and not answered copies may
    still arrive: in the second version markers raise the epoch, which fences them; in the first they are waited for.
 4. A request that was not answered is repeated: a coordinator that has done it answers as it did the first time. Once
    a commit was asked for, it cannot be taken back. In the first version, where transactions share an epoch, a late
    copy could begin, fill or end the next one: nothing goes on until there can be none.
 5. Batches of a transaction that was aborted may have left a gap in the sequences. The second version begins each
    transaction with another epoch. In the first an epoch is asked for (KIP-360); where there is none to be had (before
    2.5) the sequences go back to what was acknowledged, if it is certain that nothing behind it was written.
 6. A partition that knows a newer epoch may mean that another producer took over, or that the transaction timed out:
    the abort tells (KIP-588). That a coordinator says so is final.
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

__all__ = ["Call", "Standing", "State", "Verdict", "advance", "fatal", "judge"]

NO_PRODUCER_ID = -1
NO_EPOCH = -1

TopicPartition = tuple[str, int]


class State(Enum):
    """Where a transactional producer is."""

    NEW = "has no producer id yet"
    INITIALIZING = "is being given its producer id"
    READY = "has no transaction open"
    OPEN = "has a transaction open"
    FAILED = "has a transaction that can only be aborted"
    COMMITTING = "is committing"
    ABORTING = "is aborting"
    FATAL = "has failed"


@dataclass(frozen=True, slots=True)
class Standing:
    """All that is known of the producer and of its transaction.

    `is_v2`: transactions of the second version. `can_bump`: an epoch of its own can be asked for. `waiting` are
    partitions to be added, `asked` those in a request that is not answered yet.
    """

    state: State = State.NEW
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    is_v2: bool = False
    can_bump: bool = False
    waiting: frozenset[TopicPartition] = frozenset()
    asked: frozenset[TopicPartition] = frozenset()
    added: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    has_begun: bool = False  # at the coordinator, for certain
    may_have_begun: bool = False
    needs_epoch: bool = False
    is_unknown: bool = False  # the coordinator does not know the producer id
    end_sent: bool = False
    error: ClientError | None = None

    @property
    def resends_always(self) -> bool:
        """What was sent is sent again until it is answered, also in a transaction that will be aborted (rule 5)."""
        return not (self.is_v2 or self.can_bump)


# -- events


@dataclass(frozen=True, slots=True)
class Initialize:
    """The application wants a producer id."""


@dataclass(frozen=True, slots=True)
class Identified:
    """The coordinator gave one."""

    producer_id: int
    epoch: int
    is_v2: bool
    can_bump: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """The application begins a transaction."""


@dataclass(frozen=True, slots=True)
class Use:
    """A batch of a partition is the first to leave."""

    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Take:
    """A request leaves with all partitions that wait."""


@dataclass(frozen=True, slots=True)
class Added:
    """The coordinator has them."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class UseGroup:
    """A request leaves that takes a group's offsets into the transaction."""


@dataclass(frozen=True, slots=True)
class GroupAdded:
    """The coordinator has the group."""

    group: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """The transaction cannot be committed any more.

    `is_sequenced`: a batch that was given sequences is not acknowledged; `is_definite`: it is not in the log.
    `is_unknown`: the coordinator does not know the producer id.
    """

    error: ClientError
    is_sequenced: bool = False
    is_definite: bool = True
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Doom:
    """The producer cannot go on."""

    error: ProducerFailed


@dataclass(frozen=True, slots=True)
class Commit:
    """The application commits."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The application aborts."""


@dataclass(frozen=True, slots=True)
class Drained:
    """What a Drain waited for is over."""

    is_aborting: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The coordinator has decided; with what the next transaction is written, or -1."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


# -- effects


@dataclass(frozen=True, slots=True)
class AskProducerId:
    """InitProducerId: of these the next epoch (KIP-360), or any."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """AddPartitionsToTxn, with Take, until none waits."""


@dataclass(frozen=True, slots=True)
class DropUnsent:
    """Whatever is not in flight fails."""


@dataclass(frozen=True, slots=True)
class Drain:
    """For a commit: send all and wait for it. For an abort: drop what is not in flight, and wait for the rest."""

    is_aborting: bool


@dataclass(frozen=True, slots=True)
class End:
    """EndTxn."""

    is_commit: bool


@dataclass(frozen=True, slots=True)
class Adopt:
    """Sequences begin anew with the producer id and epoch of now."""


@dataclass(frozen=True, slots=True)
class Rewind:
    """Sequences go on behind what was acknowledged."""


@dataclass(frozen=True, slots=True)
class Wake:
    """More may be sent."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Who waits for the call is told."""

    error: ClientError | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The producer is over."""

    error: ProducerFailed


Outcome = tuple[Standing, tuple[Any, ...]]


def advance(standing: Standing, event: object) -> Outcome:
    """What becomes of the producer at this event, and what is to be done, in order.

    A call of the application that does not fit raises InvalidTransactionState or TransactionFailed; anything else that
    does not fit comes too late, and changes nothing.
    """
    move = TABLE.get((standing.state, type(event)))
    if move is not None:
        return move(standing, event)
    if isinstance(event, Initialize | Begin | Commit | Abort):
        what = type(event).__name__.lower()
        raise InvalidTransactionState(f"{what} does not fit: the producer {standing.state.value}")
    return standing, ()


# -- beginning


def _initialize(standing: Standing, event: Initialize) -> Outcome:
    return replace(standing, state=State.INITIALIZING), (AskProducerId(),)


def _identified(standing: Standing, event: Identified) -> Outcome:
    ready = Standing(State.READY, event.producer_id, event.epoch, event.is_v2, event.can_bump)
    return ready, (Adopt(), Settle())


def _begin(standing: Standing, event: Begin) -> Outcome:
    return replace(standing, state=State.OPEN), ()


# -- partitions and groups (rule 1)


def _use(standing: Standing, event: Use) -> Outcome:
    where = event.partition
    if where in standing.added or where in standing.asked or where in standing.waiting:
        return standing, ()
    if standing.is_v2:
        return replace(standing, added=standing.added | {where}, may_have_begun=True), ()
    effects = () if standing.waiting or standing.asked else (AddPartitions(),)
    return replace(standing, waiting=standing.waiting | {where}), effects


def _take(standing: Standing, event: Take) -> Outcome:
    asked = standing.asked | standing.waiting
    return replace(standing, asked=asked, waiting=frozenset(), may_have_begun=True), ()


def _added(standing: Standing, event: Added) -> Outcome:
    changed = replace(
        standing, asked=standing.asked - event.partitions, added=standing.added | event.partitions, has_begun=True
    )
    return changed, (Wake(),)


def _use_group(standing: Standing, event: UseGroup) -> Outcome:
    return replace(standing, may_have_begun=True), ()


def _group_added(standing: Standing, event: GroupAdded) -> Outcome:
    return replace(standing, groups=standing.groups | {event.group}, has_begun=True), ()


# -- trouble


def _noted(standing: Standing, event: Trouble) -> Standing:
    torn = event.is_sequenced and (standing.can_bump or not event.is_definite)
    return replace(
        standing,
        error=standing.error or event.error,
        needs_epoch=standing.needs_epoch or torn,
        is_unknown=standing.is_unknown or event.is_unknown,
    )


def _fail_transaction(standing: Standing, event: Trouble) -> Outcome:
    # A commit that was refused leaves open whether the coordinator knows of a transaction.
    begun = standing.has_begun and not standing.end_sent
    failed = replace(_noted(standing, event), state=State.FAILED, waiting=frozenset(), has_begun=begun, end_sent=False)
    told = (Settle(failed.error),) if standing.state is State.COMMITTING else ()
    return failed, (DropUnsent(), *told)


def _note_trouble(standing: Standing, event: Trouble) -> Outcome:
    return _noted(standing, event), ()


def _trouble_in_abort(standing: Standing, event: Trouble) -> Outcome:
    noted = _noted(standing, event)
    return _renew(noted) if event.is_unknown and standing.end_sent else (noted, ())


def _doom(standing: Standing, event: Doom) -> Outcome:
    return replace(standing, state=State.FATAL, error=event.error), (Fail(event.error), Settle(event.error))


# -- ending (rules 2 to 5)


def _commit(standing: Standing, event: Commit) -> Outcome:
    return replace(standing, state=State.COMMITTING), (Drain(is_aborting=False),)


def _commit_failed(standing: Standing, event: Commit) -> Outcome:
    failed = TransactionFailed(f"the transaction cannot be committed, only aborted: {standing.error}")
    raise failed from standing.error


def _abort(standing: Standing, event: Abort) -> Outcome:
    if standing.end_sent:
        raise InvalidTransactionState("whether the transaction was committed is not known yet: it cannot be aborted")
    return replace(standing, state=State.ABORTING, waiting=frozenset()), (Drain(is_aborting=True),)


def _drained_commit(standing: Standing, event: Drained) -> Outcome:
    if event.is_aborting:
        return standing, ()
    if not standing.may_have_begun:
        return _ready(standing, Settle())
    return replace(standing, end_sent=True), (End(is_commit=True),)


def _drained_abort(standing: Standing, event: Drained) -> Outcome:
    if not event.is_aborting:
        return standing, ()
    if standing.is_unknown:
        return _renew(standing)
    if not standing.may_have_begun:
        return _aborted(standing)
    return replace(standing, end_sent=True), (End(is_commit=False),)


def _ended(standing: Standing, event: Ended) -> Outcome:
    if standing.is_v2 and event.producer_id != NO_PRODUCER_ID:
        return _ready(replace(standing, producer_id=event.producer_id, epoch=event.epoch), Adopt(), Settle())
    return _ready(standing, Settle()) if standing.state is State.COMMITTING else _aborted(standing)


def _aborted(standing: Standing) -> Outcome:
    return _renew(standing) if standing.needs_epoch else _ready(standing, Rewind(), Settle())


def _renew(standing: Standing) -> Outcome:
    """Asks for another epoch, so that what is left of the old one is fenced, and sequences begin anew."""
    if standing.can_bump:
        renewing = replace(standing, state=State.INITIALIZING)
        return renewing, (AskProducerId(standing.producer_id, standing.epoch),)
    error = ProducerFailed(
        "the transaction is aborted, but whether a batch of it was written is not known, and the broker (before 2.5)"
        f" gives no new epoch: go on with another producer: {standing.error}"
    )
    error.__cause__ = standing.error
    return _doom(standing, Doom(error))


def _ready(standing: Standing, *effects: Any) -> Outcome:
    ready = Standing(State.READY, standing.producer_id, standing.epoch, standing.is_v2, standing.can_bump)
    return ready, effects


_Move = Callable[[Standing, Any], Outcome]

TABLE: dict[tuple[State, type], _Move] = {
    (State.NEW, Initialize): _initialize,
    (State.INITIALIZING, Identified): _identified,
    (State.READY, Begin): _begin,
    (State.OPEN, Use): _use,
    (State.COMMITTING, Use): _use,
    (State.OPEN, Take): _take,
    (State.COMMITTING, Take): _take,
    (State.OPEN, Added): _added,
    (State.COMMITTING, Added): _added,
    (State.FAILED, Added): _added,
    (State.ABORTING, Added): _added,
    (State.OPEN, UseGroup): _use_group,
    (State.COMMITTING, UseGroup): _use_group,
    (State.OPEN, GroupAdded): _group_added,
    (State.COMMITTING, GroupAdded): _group_added,
    (State.FAILED, GroupAdded): _group_added,
    (State.ABORTING, GroupAdded): _group_added,
    (State.OPEN, Trouble): _fail_transaction,
    (State.COMMITTING, Trouble): _fail_transaction,
    (State.FAILED, Trouble): _note_trouble,
    (State.ABORTING, Trouble): _trouble_in_abort,
    (State.OPEN, Commit): _commit,
    (State.FAILED, Commit): _commit_failed,
    (State.OPEN, Abort): _abort,
    (State.FAILED, Abort): _abort,
    (State.COMMITTING, Abort): _abort,
    (State.COMMITTING, Drained): _drained_commit,
    (State.ABORTING, Drained): _drained_abort,
    (State.COMMITTING, Ended): _ended,
    (State.ABORTING, Ended): _ended,
    **{(state, Doom): _doom for state in State if state is not State.FATAL},
}


# -- what coordinators answer


class Call(Enum):
    """What a coordinator is asked. The values are for people."""

    INIT = "the producer id"
    ADD = "a partition of the transaction"
    OFFSETS = "the offsets of the transaction"
    COMMIT = "the commit"
    ABORT = "the abort"


class Verdict(Enum):
    """What an answer means for who asked."""

    DONE = auto()
    AGAIN = auto()
    """The same once more, after a back-off."""
    SOON = auto()
    """The same once more: the transaction before is just being completed."""
    MOVED = auto()
    """The same once more, from the coordinator as it is found now."""
    TROUBLE = auto()
    """The transaction can only be aborted."""
    UNKNOWN = auto()
    """As TROUBLE, and the coordinator does not know the producer id: another epoch instead of an abort."""
    FATAL = auto()


_MOVED = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
_UNKNOWN = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID)
_NOT_ALLOWED = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def judge(standing: Standing, call: Call, code: int) -> Verdict:
    """What a code means in the answer to a call."""
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
        return Verdict.UNKNOWN if standing.can_bump else Verdict.FATAL
    if call is Call.ABORT:
        nothing_open = code == ErrorCode.INVALID_TXN_STATE and not standing.is_v2 and not standing.has_begun
        return Verdict.DONE if nothing_open else Verdict.FATAL
    if call is Call.COMMIT:
        # Those two say for certain that it is not committed, anything else may mean that it is.
        is_certain = code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
        return Verdict.TROUBLE if is_certain else Verdict.FATAL
    return Verdict.TROUBLE


def fatal(call: Call, code: int, transactional_id: str) -> ProducerFailed:
    """The end of the producer, as an answer to a call."""
    if code in _FENCED:
        made: ProducerFailed = ProducerFenced(
            f"another producer has taken over the transactional id {transactional_id!r}, or a transaction of this one"
            " took longer than its time-out"
        )
    else:
        made = ProducerFailed(f"{call.value} was refused: {KafkaError(code)}")
    made.__cause__ = KafkaError(code, call.value)
    return made

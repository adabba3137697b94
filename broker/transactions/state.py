"""The values of a transactional id: its transaction, the events that move it, and the effects it asks for.

Owns no behaviour: `table` moves a slot, a shell performs the effects. All values are immutable, so one can be kept,
compared and written without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias, get_args

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX, INT32_MAX

NO_PRODUCER_ID = -1
NO_EPOCH = -1
MAX_EPOCH = INT16_MAX
"""Kept for fencing the last owner of a producer id; no client is ever given it."""

NO_TIMEOUT_MS = INT32_MAX
"""The time-out of a transaction that takes part in a two-phase commit (KIP-939): it never ends by itself."""

Partition: TypeAlias = tuple[str, int]
"""Topic and index."""


class TransactionState(Enum):
    """The values are Kafka's names as ListTransactions and DescribeTransactions spell them.

    DEAD is an id of which nothing is known: never there, or expired. PREPARE_EPOCH_FENCE is a name that clients may ask
    for; nothing is ever in that state.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


class Phase(Enum):
    """What is on its way for an id, beside what its log says."""

    STILL = "still"
    WRITING = "writing"  # a record; its outcome is not known
    MARKING = "marking"  # the markers of a transaction that was decided
    MARKED = "marked"  # they are written, and the record that says so could not be


@dataclass(frozen=True, slots=True)
class Transaction:
    """What one record of the log says of a transactional id. Times are in ms since the epoch, -1 if there is none.

    `last_producer_epoch` is the epoch from which its owner came to the present one, -1 if another owner had it; it is
    not in the log. `previous_producer_id` is the producer id before the last change, `next_producer_id` the one that
    the owner goes on with once this transaction is complete, its epochs being used up (KIP-890). `partitions` are in
    the order in which they were added. `client_version` is 2 for a client whose EndTxn bumps the epoch, else 0.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[Partition, ...] = ()
    start_ms: int = -1
    last_update_ms: int = -1
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH
    client_version: int = 0


class Answer(NamedTuple):
    """The answer to a request. Producer id and epoch are those to go on with; -1 where the request has none.

    `missing` are the partitions of a verification that the transaction does not hold: TRANSACTION_ABORTABLE each.
    """

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    missing: tuple[Partition, ...] = ()


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """A producer begins to own the id; or, with its present producer id and epoch (KIP-360), recovers from an error.

    `new_producer_id` is empty at first; see Allocate.
    """

    token: int
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    new_producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """AddPartitionsToTxn, or the same done by a Produce of a client of version 2."""

    token: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[Partition, ...]
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class AddOffsets:
    """AddOffsetsToTxn, or the same done by a TxnOffsetCommit of version 2: the one of the group's offsets."""

    token: int
    producer_id: int
    producer_epoch: int
    partition: Partition
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class VerifyPartitions:
    """Does the running transaction hold these partitions? (KIP-890)"""

    token: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class EndTxn:
    """Commit or abort. `new_producer_id` as in InitProducerId."""

    token: int
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int = 0
    new_producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class TimeOut:
    """The sweep for transactions that are open for too long came by. `new_producer_id` as in InitProducerId."""

    new_producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class Expire:
    """The sweep for ids that nobody has used for too long came by."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The transaction was read from the log: what was decided and not finished is finished now."""


@dataclass(frozen=True, slots=True)
class Append:
    """Write `written` as the id's last record, None as a tombstone; then feed Appended or AppendFailed.

    Other events may come before the outcome. `accepted` answers `token` once the record is durable. `fence_epoch` is
    the epoch that this write raises the producer to in order to fence it, None for all other writes.
    """

    transactional_id: str
    written: Transaction | None
    token: int | None = None
    accepted: Answer | None = None
    fence_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The record is in the log, and stays there."""

    write: Append


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """It could not be written, or nobody knows; `error` is for the client."""

    write: Append
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """End the producer's transaction in each of the partitions; then feed MarkersWritten with this.

    It is asked for again after a restart, so a partition may get its marker twice. One that is not there any more, or
    cannot hold a marker, counts as done.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[Partition, ...]
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """All of them."""

    markers: WriteMarkers


Request: TypeAlias = InitProducerId | AddPartitions | AddOffsets | VerifyPartitions | EndTxn

Event: TypeAlias = (
    InitProducerId
    | AddPartitions
    | AddOffsets
    | VerifyPartitions
    | EndTxn
    | TimeOut
    | Expire
    | Loaded
    | Appended
    | AppendFailed
    | MarkersWritten
)
EVENTS: tuple[type, ...] = get_args(Event)

# --- effects ---------------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """Answer the request that the token names."""

    token: int
    answer: Answer


class Allocate(NamedTuple):
    """What was asked needs a fresh producer id: feed it once more with one, or answer why there is none."""

    request: InitProducerId | EndTxn | TimeOut


class Forget(NamedTuple):
    """Nothing is known of the id any more: its slot may go."""

    transactional_id: str


Effect: TypeAlias = Reply | Append | WriteMarkers | Allocate | Forget

# --- the slot --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slot:
    """All that the coordinator keeps of one transactional id.

    `settled` is its last record, None if there is none; `writing` the record on its way, in phase WRITING only.
    `fence_failed`: the epoch was raised to fence the producer, and the record of it may or may not be in the log.
    """

    transactional_id: str
    settled: Transaction | None = None
    phase: Phase = Phase.STILL
    writing: Append | None = None
    fence_failed: bool = False

    @property
    def state(self) -> TransactionState:
        """What the log says."""
        return TransactionState.DEAD if self.settled is None else self.settled.state

    @property
    def pending(self) -> bool:
        """A change is under way; clients are told CONCURRENT_TRANSACTIONS, and come back."""
        return self.phase is not Phase.STILL

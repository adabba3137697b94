"""Values of a transactional id: its transaction, the events that change it, and the effects that follow.

Contains no behaviour: `table` computes the transitions, the coordinator carries out the effects. All values are
immutable, so they can be kept, compared and written without copying.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias, get_args

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ...protocol.limits import INT16_MAX, INT32_MAX
from ...protocol.named import NamedTuple

NO_PRODUCER_ID = -1
NO_EPOCH = -1
MAX_EPOCH = INT16_MAX
"""Reserved for fencing the last owner of a producer id; never returned to a client."""

NO_TIMEOUT_MS = INT32_MAX
"""Timeout of a transaction in a two-phase commit (KIP-939): it never times out."""

Partition: TypeAlias = tuple[str, int]
"""Topic and partition index."""


class TransactionState(Enum):
    """States of a transactional id; values are Kafka's names in ListTransactions and DescribeTransactions.

    DEAD is an unknown id: never used, or expired. PREPARE_EPOCH_FENCE is accepted as a filter of ListTransactions; no
    transaction is ever in this state.
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
    """The write in progress for a transactional id, in addition to the state in its log."""

    STILL = "still"
    WRITING = "writing"  # a record, with its outcome unknown
    MARKING = "marking"  # the markers of a decided transaction
    MARKED = "marked"  # the markers are written, but the record of completion failed


@frozen
class Transaction:
    """Content of a record for a transactional id. Times are in ms since the epoch, -1 if unset.

    `last_producer_epoch` is the epoch before the last bump by the same owner, -1 if another owner had it; it is not in
    the log. `previous_producer_id` is the producer id before the last change; `next_producer_id` is the one that the
    owner uses after this transaction, when the epochs of the present id are exhausted (KIP-890). `partitions` are in
    the order of addition. `client_version` is 2 for a client whose EndTxn bumps the epoch, else 0.
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


class Response(NamedTuple):
    """Response to a request. Producer id and epoch are for the next transaction; -1 if the request returns none.

    `missing` are the partitions of a verification that the transaction does not contain; each is TRANSACTION_ABORTABLE.
    """

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    missing: tuple[Partition, ...] = ()


# --- events ----------------------------------------------------------------------------------------------------------


@frozen
class InitProducerId:
    """A producer takes ownership of the id or, if it sends its current producer id and epoch (KIP-360), recovers from
    an error.

    `new_producer_id` is None at first; see Allocate. The transactions of a producer with `two_phase` have no timeout
    (KIP-939); the timeout of the request is ignored.
    """

    token: int
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    new_producer_id: int | None = None
    two_phase: bool = False


@frozen
class AddPartitions:
    """AddPartitionsToTxn, AddOffsetsToTxn with the partition of a group's offsets, or the implicit addition
    by a Produce or TxnOffsetCommit of a version 2 client.
    """

    token: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[Partition, ...]
    client_version: int = 0


@frozen
class VerifyPartitions:
    """The check that the open transaction contains these partitions (KIP-890)."""

    token: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[Partition, ...]


@frozen
class EndTxn:
    """Commit or abort. `new_producer_id` is None at first, as in InitProducerId."""

    token: int
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int = 0
    new_producer_id: int | None = None


@frozen
class TimeOut:
    """The periodic check for timed-out transactions. `new_producer_id` is None at first, as in InitProducerId."""

    new_producer_id: int | None = None


@frozen
class Expire:
    """The periodic check for expired transactional ids."""


@frozen
class Loaded:
    """The transaction was restored from the log: if it is decided but incomplete, it is completed now."""


@frozen
class Append:
    """Effect: write `written` as the id's record, None as a tombstone; then feed Appended or AppendFailed.

    Other events may arrive before the outcome. `accepted` is the response for `token` once the record is durable.
    `fence_epoch` is the epoch to which this write bumps the producer in order to fence it, None for all other writes.
    """

    transactional_id: str
    written: Transaction | None
    token: int | None = None
    accepted: Response | None = None
    fence_epoch: int | None = None


@frozen
class Appended:
    """The record is durable in the log."""

    write: Append


@frozen
class AppendFailed:
    """The record was not written, or the outcome is unknown; `error` is the code for the client."""

    write: Append
    error: ErrorCode


@frozen
class WriteMarkers:
    """Effect: write the transaction marker to each of the partitions, then feed MarkersWritten.

    Repeated after a restart, so a partition may get its marker twice. A partition that no longer exists, or whose
    format has no markers, counts as written.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[Partition, ...]
    client_version: int = 0


@frozen
class MarkersWritten:
    """All markers of the transaction are written."""

    markers: WriteMarkers


Request: TypeAlias = InitProducerId | AddPartitions | VerifyPartitions | EndTxn

Event: TypeAlias = Request | TimeOut | Expire | Loaded | Appended | AppendFailed | MarkersWritten
EVENTS: tuple[type, ...] = get_args(Event)

# --- effects ---------------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """Effect: respond to the request identified by `token`."""

    token: int
    response: Response


class Allocate(NamedTuple):
    """Effect: allocate a producer id and feed the request again with it, or respond with the allocation's error."""

    request: InitProducerId | EndTxn | TimeOut


class Forget(NamedTuple):
    """Effect: remove the slot; the id has no state any more."""

    transactional_id: str


Effect: TypeAlias = Reply | Append | WriteMarkers | Allocate | Forget

# --- the slot --------------------------------------------------------------------------------------------------------


@frozen
class Slot:
    """State of one transactional id in the coordinator.

    `settled` is its last record, None if there is none; `writing` is the record being written, in phase WRITING only.
    `fence_failed`: the epoch was bumped to fence the producer, and the record of it may or may not be in the log.
    """

    transactional_id: str
    settled: Transaction | None = None
    phase: Phase = Phase.STILL
    writing: Append | None = None
    fence_failed: bool = False

    @property
    def state(self) -> TransactionState:
        """The state in the log."""
        return TransactionState.DEAD if self.settled is None else self.settled.state

    @property
    def pending(self) -> bool:
        """Whether a write is in progress; requests then get CONCURRENT_TRANSACTIONS, on which clients retry."""
        return self.phase is not Phase.STILL

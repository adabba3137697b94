"""Values of share groups: the states of a record, acknowledgements, acquired ranges, and stored state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from typing import TypeVar

from ...protocol.named import NamedTuple


class RecordState(IntEnum):
    """The state of a record of a share partition; the numbers are those of stored state. ACQUIRED is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """It is not delivered again, and is being written to the dead-letter queue of the group (KIP-1191)."""
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether nothing is left to do for the record."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AcknowledgeType(IntEnum):
    """The types of an acknowledgement. A gap is an offset without a record for consumers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class DeliveryEnd(Enum):
    """How the last delivery of a record ended. It is not stored."""

    ACCEPTED = "accepted"
    RELEASED = "released"
    REJECTED = "rejected"
    GAP = "no record for consumers"
    LOCK_EXPIRED = "its lock expired"
    SESSION_CLOSED = "the share session of its member ended"


class Acknowledgement(NamedTuple):
    """An acknowledgement of the offsets from `first` to `last`: one type for all of them, or one for each offset."""

    first: int
    last: int
    types: Sequence[int]


class Acquired(NamedTuple):
    """Acquired offsets, `first` to `last`, each delivered for the `delivery_count`th time."""

    first: int
    last: int
    delivery_count: int


class InFlight(NamedTuple):
    """Offsets in flight with one state, `first` to `last`. Acquired ones have a member and the expiry of its lock."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    ended: DeliveryEnd | None
    member: str
    deadline_ms: int | None


class StateBatch(NamedTuple):
    """The stored state of the offsets from `first` to `last`."""

    first: int
    last: int
    state: int
    delivery_count: int


class DeadLetters(NamedTuple):
    """Offsets from `first` to `last` for the dead-letter queue: rejected, or delivered as often as the limit allows."""

    first: int
    last: int
    delivery_count: int
    is_rejected: bool


class StoredState(NamedTuple):
    """The stored state of a share partition, as read from `__share_group_state`; start offset -1 before the first
    acquisition.
    """

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]


class FetchedBatch(NamedTuple):
    """The header of a batch that was read from the log, as far as acquisition depends on it."""

    first: int
    last: int
    producer_id: int
    is_transactional: bool
    is_control: bool
    is_abort: bool
    """Whether it is the marker of an aborted transaction."""


R = TypeVar("R", Acquired, InFlight, DeadLetters)


def joined(ranges: Iterable[R]) -> list[R]:
    """Joins adjacent ranges of offsets that have equal values otherwise."""
    firsts: list[R] = []
    lasts: list[int] = []
    for one in ranges:
        if firsts and lasts[-1] + 1 == one.first and firsts[-1][2:] == one[2:]:
            lasts[-1] = one.last
        else:
            firsts.append(one)
            lasts.append(one.last)
    return [one if one.last == last else one._replace(last=last) for one, last in zip(firsts, lasts, strict=True)]

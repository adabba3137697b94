"""Events and effects that consumer, share and streams groups have in common. All are values."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ...protocol.limits import INT32_MAX
from ...protocol.named import NamedTuple
from .common_state import LEAVE, Partitions

C = TypeVar("C")
E = TypeVar("E")


@frozen
class AssignedSettings:
    """The settings that consumer, share and streams groups have in common, with Kafka's defaults of most of them. Times
    in milliseconds, sizes in members. `first_epoch` is a behaviour of the release.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = INT32_MAX
    assignment_interval_ms: int = 1_000
    first_epoch: int = 1


# --- events ----------------------------------------------------------------------------------------------------------


@frozen
class MemberLeave:
    """A heartbeat with the epoch LEAVE or STATIC_LEAVE; in a streams group also a request that all members end."""

    member_id: str
    epoch: int = LEAVE
    instance_id: str | None = None
    shuts_down: bool = False


@frozen
class Delete:
    """DeleteGroups, or the removal of a group that is not used any more."""


@frozen
class Loaded:
    """The group was restored from the log: the sessions of its members start now."""


@frozen
class Timer:
    """A timer is identified by the event that it produces."""


@frozen
class SessionExpired(Timer):
    """The session timeout of the member passed without a heartbeat."""

    member_id: str


@frozen
class RevocationOverdue(Timer):
    """The rebalance timeout passed, and the member has not confirmed that it revoked what it has to."""

    member_id: str


# --- responses -------------------------------------------------------------------------------------------------------


class HeartbeatReply(NamedTuple):
    """Response to ConsumerGroupHeartbeat and ShareGroupHeartbeat; an assignment of None means that it is unchanged."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class DeleteReply(NamedTuple):
    error: ErrorCode


# --- effects ---------------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """Effect: respond to the request."""

    response: Any


class StartTimer(NamedTuple):
    """Effect: feed `timer` after the delay; replaces a running timer of the same name unless `if_absent`."""

    timer: Timer
    delay_ms: int
    if_absent: bool = False


class CancelTimer(NamedTuple):
    """Effect: stop the timer if it is running."""

    timer: Timer


class Forget(NamedTuple):
    """Effect: remove the group; it receives no more events."""


@frozen
class Decision(Generic[C, E]):
    """What an event leads to: changes, written together before they apply, and then effects. If the write fails nothing
    happens but an error response to the request.
    """

    changes: tuple[C, ...] = ()
    effects: tuple[E, ...] = ()

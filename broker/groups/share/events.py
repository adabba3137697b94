"""Events of a share group, settings, responses and effects. All are values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from ....protocol.errors import ErrorCode
from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple
from .assignor import Partitions
from .state import Change


@frozen
class Settings:
    """Settings of a group, with Kafka's defaults. `first_epoch` is a behaviour of the release."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 200
    assignment_interval_ms: int = 0
    initialize_retry_ms: int = 30_000
    first_epoch: int = 1


# --- events ----------------------------------------------------------------------------------------------------------


@frozen
class Heartbeat:
    """ShareGroupHeartbeat of a member that stays or joins; None means unchanged."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


@frozen
class Leave:
    """ShareGroupHeartbeat with the epoch LEAVE."""

    member_id: str


@frozen
class SessionExpired:
    """The session timeout of the member passed without a heartbeat."""

    member_id: str
    name: str = "session"


@frozen
class StateInitialized:
    """The share coordinator has initialized the state of partitions, or with `failed` could not."""

    partitions: Partitions
    failed: bool = False


@frozen
class AlterOffsets:
    """AlterShareGroupOffsets: new start offsets by topic name and partition index."""

    offsets: Mapping[str, Mapping[int, int]]


@frozen
class DeleteOffsets:
    """DeleteShareGroupOffsets of topics, by name."""

    topics: tuple[str, ...]


@frozen
class OffsetsDeleted:
    """The share coordinator has deleted the state of topics."""

    topic_ids: frozenset[bytes]


@frozen
class TopicDeleted:
    """A topic was deleted, and its state with it."""

    topic_id: bytes


@frozen
class DeleteGroup:
    """DeleteGroups: the state of all share partitions is to be deleted first."""


@frozen
class Loaded:
    """The group was restored from the log: the sessions of its members start now."""


Event: TypeAlias = (
    Heartbeat
    | Leave
    | SessionExpired
    | StateInitialized
    | AlterOffsets
    | DeleteOffsets
    | OffsetsDeleted
    | TopicDeleted
    | DeleteGroup
    | Loaded
)

# --- responses -------------------------------------------------------------------------------------------------------


class HeartbeatReply(NamedTuple):
    """Response to ShareGroupHeartbeat; an assignment of None means that it is unchanged."""

    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class OffsetsReply(NamedTuple):
    """Response to AlterOffsets and DeleteOffsets: error codes and messages by topic name and partition index, for
    DeleteOffsets with index -1.
    """

    error: ErrorCode
    message: str | None = None
    results: Mapping[tuple[str, int], tuple[ErrorCode, str | None]] = {}


Response: TypeAlias = HeartbeatReply | OffsetsReply

# --- effects ---------------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """Effect: respond to the request."""

    response: Response


class StartTimer(NamedTuple):
    """Effect: feed `timer` after the delay; replaces a running timer of the same name."""

    timer: SessionExpired
    delay_ms: int


class CancelTimer(NamedTuple):
    """Effect: stop the timer if it is running."""

    timer: SessionExpired


class Initialize(NamedTuple):
    """Effect: initialize the state of share partitions with start offsets (-1: none), then feed StateInitialized."""

    state_epoch: int
    starts: Mapping[bytes, Mapping[int, int]]


class DeleteState(NamedTuple):
    """Effect: delete the state of share partitions, then feed OffsetsDeleted."""

    partitions: Partitions


Effect: TypeAlias = Reply | StartTimer | CancelTimer | Initialize | DeleteState


@frozen
class Decision:
    """What an event leads to: changes, written together before they apply, and then effects. If the write fails nothing
    happens but an error response to the request.
    """

    changes: tuple[Change, ...] = ()
    effects: tuple[Effect, ...] = field(default_factory=tuple[Effect, ...])

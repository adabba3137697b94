"""Events of a share group, settings, responses and effects. All are values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ....protocol.errors import ErrorCode
from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple
from ..common_events import AssignedSettings, CancelTimer, Loaded, MemberLeave, Reply, SessionExpired, StartTimer
from ..common_state import Partitions


@frozen
class Settings(AssignedSettings):
    max_size: int = 200
    assignment_interval_ms: int = 0
    initialize_retry_ms: int = 30_000


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


Event: TypeAlias = (
    Heartbeat
    | MemberLeave
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


class OffsetsReply(NamedTuple):
    """Response to AlterOffsets and DeleteOffsets: error codes and messages by topic name and partition index, for
    DeleteOffsets with index -1.
    """

    error: ErrorCode
    message: str | None = None
    results: Mapping[tuple[str, int], tuple[ErrorCode, str | None]] = {}


# --- effects ---------------------------------------------------------------------------------------------------------


class Initialize(NamedTuple):
    """Effect: initialize the state of share partitions with start offsets (-1: none), then feed StateInitialized."""

    state_epoch: int
    starts: Mapping[bytes, Mapping[int, int]]


class DeleteState(NamedTuple):
    """Effect: delete the state of share partitions, then feed OffsetsDeleted."""

    partitions: Partitions


Effect: TypeAlias = Reply | StartTimer | CancelTimer | Initialize | DeleteState

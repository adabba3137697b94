"""Events of a streams group, settings, responses and effects. All are values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from ....protocol.errors import ErrorCode
from ....protocol.frozen import frozen
from ....protocol.limits import INT32_MAX
from ....protocol.named import NamedTuple
from .endpoints import EndpointPartitions
from .state import Change, Endpoint
from .values import InternalTopic, TaskOffsets, TasksTuple, Topology

STANDBY_REPLICAS, RACK_TAGS = "num.standby.replicas", "rack.aware.assignment.tags"
"""Configs of an assignment, by the names in the record of the group."""


@frozen
class Settings:
    """Settings of a group, with Kafka's defaults. Times in milliseconds, sizes in members.

    `first_epoch` and `has_static_members` are behaviours of the release: the latter is what 4.4 added to the protocol.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = INT32_MAX
    assignment_interval_ms: int = 1_000
    initial_delay_ms: int = 3_000
    standby_replicas: int = 0
    rack_tags: tuple[str, ...] = ()
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = 10_000
    first_epoch: int = 1
    has_static_members: bool = True

    @property
    def assignment_configs(self) -> dict[str, str]:
        """The configs of an assignment, as they are stored."""
        configs = {STANDBY_REPLICAS: str(self.standby_replicas)}
        if self.rack_tags and self.has_static_members:
            configs[RACK_TAGS] = ",".join(self.rack_tags)
        return configs


# --- events ----------------------------------------------------------------------------------------------------------


@frozen
class Heartbeat:
    """StreamsGroupHeartbeat of a member that stays or joins. None, or a time of -1, means unchanged."""

    member_id: str
    epoch: int
    endpoint_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: TasksTuple | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] | None = None
    offsets: TaskOffsets | None = None
    end_offsets: TaskOffsets | None = None
    shuts_down: bool = False
    client_id: str = ""
    client_host: str = ""
    api_version: int = 1


@frozen
class MemberLeave:
    """StreamsGroupHeartbeat with the epoch LEAVE or STATIC_LEAVE."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    shuts_down: bool = False


@frozen
class Delete:
    """DeleteGroups, or the removal of a group that is not used any more."""


@frozen
class Loaded:
    """The group was restored from the log: the sessions of its members start now."""


@frozen
class SessionExpired:
    """The session timeout of the member passed without a heartbeat."""

    member_id: str
    name: str = "session"


@frozen
class RevocationOverdue:
    """The rebalance timeout passed, and the member has not confirmed that it revoked tasks."""

    member_id: str
    name: str = "revocation"


@frozen
class DelayOver:
    """The first assignment of the group need not wait any longer."""

    name: str = "delay"


Timer: TypeAlias = SessionExpired | RevocationOverdue | DelayOver
"""A timer is identified by the event that it produces."""
TIMERS = (SessionExpired, RevocationOverdue, DelayOver)
Event: TypeAlias = Heartbeat | MemberLeave | Delete | Loaded | Timer

# --- responses -------------------------------------------------------------------------------------------------------


class StatusText(NamedTuple):
    """A status of a group, and what it is about."""

    code: int
    detail: str


@frozen
class HeartbeatReply:
    """Response to StreamsGroupHeartbeat. `tasks` of None means unchanged, `endpoints` of None that the member has those
    of `endpoint_epoch`. `to_create` are the internal topics that do not exist.
    """

    error: ErrorCode
    message: str | None = None
    member_id: str = ""
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    statuses: tuple[StatusText, ...] = ()
    tasks: TasksTuple | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[tuple[Endpoint, EndpointPartitions], ...] | None = None
    to_create: tuple[InternalTopic, ...] = ()


class DeleteReply(NamedTuple):
    error: ErrorCode


Response: TypeAlias = HeartbeatReply | DeleteReply

# --- effects ---------------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """Effect: respond to the request."""

    response: Response


class StartTimer(NamedTuple):
    """Effect: feed `timer` after the delay; replaces a running timer of the same name."""

    timer: Timer
    delay_ms: int


class CancelTimer(NamedTuple):
    """Effect: stop the timer if it is running."""

    timer: Timer


class Forget(NamedTuple):
    """Effect: remove the group; it receives no more events."""


Effect: TypeAlias = Reply | StartTimer | CancelTimer | Forget


@frozen
class Decision:
    """What an event leads to: changes, written together before they apply, and then effects. If the write fails nothing
    happens but an error response to the request.
    """

    changes: tuple[Change, ...] = ()
    effects: tuple[Effect, ...] = field(default_factory=tuple[Effect, ...])

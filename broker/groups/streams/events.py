"""Events of a streams group, settings, responses and effects. All are values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ....protocol.errors import ErrorCode
from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple
from ..common_events import (
    AssignedSettings,
    CancelTimer,
    Delete,
    Forget,
    Loaded,
    MemberLeave,
    Reply,
    StartTimer,
    Timer,
)
from .endpoints import EndpointPartitions
from .state import Endpoint
from .values import InternalTopic, TaskOffsets, TasksTuple, Topology

STANDBY_REPLICAS, RACK_TAGS = "num.standby.replicas", "rack.aware.assignment.tags"
"""Configs of an assignment, by the names in the record of the group."""


@frozen
class Settings(AssignedSettings):
    """`has_static_members` is a behaviour of the release: what 4.4 added to the protocol."""

    initial_delay_ms: int = 3_000
    standby_replicas: int = 0
    rack_tags: tuple[str, ...] = ()
    task_offset_interval_ms: int = 60_000
    acceptable_recovery_lag: int = 10_000
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
class DelayOver(Timer):
    """The first assignment of the group need not wait any longer."""


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


# --- effects ---------------------------------------------------------------------------------------------------------


Effect: TypeAlias = Reply | StartTimer | CancelTimer | Forget

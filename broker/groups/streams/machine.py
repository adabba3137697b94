"""The streams group protocol as a table: (state, event) -> decision (KIP-1071).

Owns every decision about members, epochs, topologies and assignments. Uses no clock, socket or log. A decision does not
change the group: its changes are written first, and then applied. Rules: `GroupMetadataManager` of Kafka 4.2 to 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....protocol.errors import ErrorCode
from ..common_events import (
    Delete,
    DeleteReply,
    Loaded,
    MemberLeave,
    RevocationOverdue,
    SessionExpired,
    StartTimer,
)
from ..common_machine import Replies, decided, delete, expired, leave, loaded, nothing, revocation_overdue
from ..common_state import JOIN, GroupState
from .events import RACK_TAGS, DelayOver, Heartbeat, HeartbeatReply, Settings, StatusText
from .moves import Step, check_room
from .state import EndpointEpochSet, Group, Info, Member, ShutdownRequested
from .topology import Configured
from .values import Status

TAGS_SINCE = 1
"""The version of StreamsGroupHeartbeat from which on missing client tags are reported."""


# --- heartbeats ------------------------------------------------------------------------------------------------------


def _heartbeat(step: Step, event: Heartbeat) -> None:
    group, settings = step.group, step.settings
    is_joining = event.epoch == JOIN
    if is_joining:
        check_room(group, event, settings)
    before: Member = step.member_of(event)
    info = _updated(before.info, event, settings)
    step.put_info(before, info)
    needed = info != before.info if event.instance_id is None else _matters(before.info, info)
    topology = step.topology(event.topology)
    configured, found_hash = step.configure(topology)
    validated = step.validated_epoch(configured, event.owned)
    step.report_offsets(event)
    needed = needed or found_hash != group.metadata_hash or validated != group.validated_epoch
    if needed or settings.assignment_configs != group.configs:
        step.advance_epoch(found_hash, validated)
    step.begin_delay()
    after = Member(before.member_id, info, before.current)
    target_epoch, target, delay = step.target(after, configured)
    after = step.reconcile(after, target_epoch, target.get(after.member_id), event.owned)
    step.effects.append(StartTimer(SessionExpired(event.member_id), settings.session_timeout_ms))
    if event.shuts_down:
        step.changes.append(ShutdownRequested(event.member_id))
    has_moved = after.current.assigned != before.current.assigned
    endpoint_epoch = _endpoint_epoch(step, before, after, has_moved=has_moved, is_joining=is_joining)
    endpoints = None
    if endpoint_epoch != event.endpoint_epoch:
        endpoints = step.endpoints(after, configured)
    step.reply(
        HeartbeatReply(
            ErrorCode.NONE,
            None,
            event.member_id,
            after.current.epoch,
            settings.heartbeat_interval_ms,
            settings.task_offset_interval_ms if settings.has_static_members else 0,
            settings.acceptable_recovery_lag if settings.has_static_members else -1,
            _statuses(step, event, after, configured, delay),
            after.current.assigned.tasks if is_joining or has_moved else None,
            # As in Kafka, a group that has just been made does not keep what has no record.
            endpoint_epoch if group.is_stored else 0,
            endpoints,
            configured.to_create,
        )
    )


def _updated(info: Info, event: Heartbeat, settings: Settings) -> Info:
    """Returns what the member has sent, with the fields of a heartbeat that are not unchanged."""
    endpoint = info.endpoint if event.endpoint is None else event.endpoint
    if event.epoch == JOIN and settings.has_static_members:
        endpoint = event.endpoint
    timeout_ms = event.rebalance_timeout_ms
    return Info(
        instance_id=info.instance_id if event.instance_id is None else event.instance_id,
        rack_id=info.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=info.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=info.topology_epoch if event.topology is None else event.topology.epoch,
        process_id=info.process_id if event.process_id is None else event.process_id,
        endpoint=endpoint,
        tags=info.tags if event.tags is None else event.tags,
    )


def _matters(before: Info, after: Info) -> bool:
    """Whether a static member has changed what assignments depend on."""
    return (before.topology_epoch, before.rack_id, before.tags, before.process_id) != (
        after.topology_epoch,
        after.rack_id,
        after.tags,
        after.process_id,
    )


def _endpoint_epoch(step: Step, before: Member, after: Member, *, has_moved: bool, is_joining: bool) -> int:
    """Returns the epoch of the endpoints, after a new one if the endpoint of the member has other tasks."""
    has_endpoint = after.info.endpoint is not None
    if step.settings.has_static_members:
        is_new = before.info.endpoint != after.info.endpoint or (has_moved and has_endpoint)
    else:
        is_new = has_endpoint and (is_joining or has_moved)
    epoch = step.group.endpoint_epoch + is_new
    if is_new:
        step.changes.append(EndpointEpochSet(epoch))
    return epoch


def _statuses(
    step: Step, event: Heartbeat, member: Member, configured: Configured, delay: str | None
) -> tuple[StatusText, ...]:
    """Returns the statuses of a heartbeat, in Kafka's order. `delay` is why no assignment was computed, or None."""
    found: list[StatusText] = []
    topology, sent = step.group.topology, member.info.topology_epoch
    if topology is not None and sent < topology.epoch:
        follows = "is behind the group's topology epoch"  # words: quoted
        text = f"The member's topology epoch {sent} {follows} {topology.epoch}."
        found.append(StatusText(Status.STALE_TOPOLOGY, text))
    if delay is not None:
        found.append(StatusText(Status.ASSIGNMENT_DELAYED, delay))
    if configured.problem is not None:
        found.append(StatusText(configured.problem.status, configured.problem.text))
    shutdown_by = step.group.shutdown_by or (event.member_id if event.shuts_down else None)
    if shutdown_by is not None:
        text = (
            f"Streams group member {shutdown_by} encountered a fatal error and requested a shutdown for the entire "
            "application."
        )
        found.append(StatusText(Status.SHUTDOWN_APPLICATION, text))
    required = step.settings.assignment_configs.get(RACK_TAGS, "").split(",")
    missing = [tag for tag in required if tag and tag not in member.info.tags]
    if missing and event.api_version >= TAGS_SINCE:
        text = (
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure them "
            "via 'client.tag.<tagKey>' in your Streams config."
        )
        found.append(StatusText(Status.MISSING_CLIENT_TAGS, text))
    return tuple(found)


def _leave(step: Step, event: MemberLeave) -> None:
    if event.shuts_down:
        step.changes.append(ShutdownRequested(event.member_id))
    leave(step, event)


# --- timers and the table --------------------------------------------------------------------------------------------


def _delay_over(step: Step, event: DelayOver) -> None:
    step.end_delay()
    # The topology is configured by the first heartbeat after the one that made the group; then that one assigns.
    if step.group.configured is not None:
        step.target(None, step.group.configured)


def _delay_over_empty(step: Step, event: DelayOver) -> None:
    step.end_delay()


_WITH_MEMBERS: dict[type, Callable[[Step, Any], None]] = {
    Heartbeat: _heartbeat,
    MemberLeave: _leave,
    Delete: delete,
    Loaded: loaded,
    SessionExpired: expired,
    RevocationOverdue: revocation_overdue,
    DelayOver: _delay_over,
}
_WITHOUT_MEMBERS: dict[type, Callable[[Step, Any], None]] = {
    **dict.fromkeys(_WITH_MEMBERS, nothing),
    Heartbeat: _heartbeat,
    MemberLeave: _leave,
    Delete: delete,
    DelayOver: _delay_over_empty,
}

# The states of a group with members differ in what its members have to do, not in what events lead to.
TABLE: dict[tuple[GroupState, type], Callable[[Step, Any], None]] = {
    (state, event): handler
    for state in Group.states
    if state is not GroupState.DEAD
    for event, handler in (_WITHOUT_MEMBERS if state is GroupState.EMPTY else _WITH_MEMBERS).items()
}
REPLIES: Replies = {
    Heartbeat: HeartbeatReply,
    MemberLeave: HeartbeatReply,
    Delete: lambda code, _: DeleteReply(code),
}
decide = partial(decided, TABLE, Step, REPLIES)

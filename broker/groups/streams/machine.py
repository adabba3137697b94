"""The streams group protocol as a table: (state, event) -> decision (KIP-1071).

Owns every decision about members, epochs, topologies and assignments. Uses no clock, socket or log. A decision does not
change the group: its changes are written first, and then applied. Rules: `GroupMetadataManager` of Kafka 4.2 to 4.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....protocol.errors import ErrorCode
from ...errors import Refused
from ..members import known_member, known_static, member_of
from ..topics import TopicLookup
from .events import (
    Decision,
    DelayOver,
    Delete,
    DeleteReply,
    Event,
    Forget,
    Heartbeat,
    HeartbeatReply,
    Loaded,
    MemberLeave,
    Reply,
    RevocationOverdue,
    SessionExpired,
    Settings,
    StartTimer,
)
from .moves import Step, check_epoch, check_room, tombstones
from .state import (
    HOLDS_NOTHING,
    JOIN,
    STATIC_LEAVE,
    CurrentSet,
    EndpointEpochSet,
    Group,
    GroupState,
    Info,
    Member,
    MemberState,
    ShutdownRequested,
)
from .statuses import statuses_of

NOT_EMPTY = "The group is not empty."


def decide(group: Group, event: Event, *, now_ms: int, settings: Settings, topics: TopicLookup) -> Decision:
    """Returns the changes of the group that `event` leads to, and the effects after them, in order."""
    step = Step(group, now_ms, settings, topics)
    try:
        TABLE[group.state, type(event)](step, event)
    except Refused as refused:
        return refusal(event, refused.code, refused.message or None)
    return step.decision()


def refusal(event: Event, code: ErrorCode, message: str | None = None) -> Decision:
    """Returns the error response to the request of an event, and nothing else."""
    if isinstance(event, Heartbeat | MemberLeave):
        return Decision(effects=(Reply(HeartbeatReply(code, message)),))
    if isinstance(event, Delete):
        return Decision(effects=(Reply(DeleteReply(code)),))
    return Decision()


# --- heartbeats ------------------------------------------------------------------------------------------------------


def _heartbeat(step: Step, event: Heartbeat) -> None:
    group, settings = step.group, step.settings
    is_joining = event.epoch == JOIN
    if is_joining:
        check_room(group, event, settings)
    before = _member_of(step, event)
    info = _updated(before.info, event, settings)
    needed = step.put_info(before, info)
    if event.instance_id is not None:
        needed = needed and _matters(before.info, info)
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
    step.effects.append(
        Reply(
            HeartbeatReply(
                ErrorCode.NONE,
                None,
                event.member_id,
                after.current.epoch,
                settings.heartbeat_interval_ms,
                settings.task_offset_interval_ms if settings.has_static_members else 0,
                settings.acceptable_recovery_lag if settings.has_static_members else -1,
                statuses_of(step, event, after, configured, delay),
                after.current.assigned.tasks if is_joining or has_moved else None,
                # As in Kafka, a group that has just been made does not keep what has no record.
                endpoint_epoch if group.is_stored else 0,
                endpoints,
                configured.to_create,
            )
        )
    )


def _member_of(step: Step, event: Heartbeat) -> Member:
    """Returns the member that sends a heartbeat, or a new one. A static member that returns with a new id takes the
    place of the old one. Raises Refused.
    """
    group = step.group
    if event.instance_id is None:
        if event.epoch == JOIN:
            return group.members.get(event.member_id) or Member(event.member_id)
        member = known_member(group, event.member_id)
        check_epoch(member, event)
        return member
    if event.epoch != JOIN:
        member = known_static(group, event.member_id, event.instance_id)
        check_epoch(member, event)
        return member
    holder = group.static_member(event.instance_id)
    if holder is None:
        return group.members.get(event.member_id) or Member(event.member_id)
    if holder.current.epoch != STATIC_LEAVE:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {event.member_id} with instance id {event.instance_id} cannot join the group because the "
            f"instance id is owned by {holder.member_id} member.",
        )
    return step.replace_member(holder, event.member_id)


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


def _leave(step: Step, event: MemberLeave) -> None:
    group = step.group
    member = member_of(group, event.member_id, event.instance_id)
    if event.shuts_down:
        step.changes.append(ShutdownRequested(event.member_id))
    if event.instance_id is not None and event.epoch == STATIC_LEAVE:
        assigned = member.current.assigned
        active = {id: dict.fromkeys(epochs, 0) for id, epochs in assigned.active.items()}
        current = replace(
            member.current, epoch=STATIC_LEAVE, assigned=assigned._replace(active=active), revoking=HOLDS_NOTHING
        )
        step.changes.append(CurrentSet(member.member_id, current))
    else:
        step.remove(member)
    step.effects.append(Reply(HeartbeatReply(ErrorCode.NONE, None, event.member_id, event.epoch)))


# --- timers and the rest ---------------------------------------------------------------------------------------------


def _expired(step: Step, event: SessionExpired) -> None:
    member = step.group.members.get(event.member_id)
    if member is not None:
        step.remove(member)


def _revocation_overdue(step: Step, event: RevocationOverdue) -> None:
    member = step.group.members.get(event.member_id)
    # A static member that left keeps its place until its session expires.
    if member is not None and member.current.state is MemberState.UNREVOKED_TASKS and member.current.epoch >= 0:
        step.remove(member)


def _delay_over(step: Step, event: DelayOver) -> None:
    step.end_delay()
    # The topology is configured by the first heartbeat after the one that made the group; then that one assigns.
    if step.group.configured is not None:
        step.target(None, step.group.configured)


def _delay_over_empty(step: Step, event: DelayOver) -> None:
    step.end_delay()


def _loaded(step: Step, event: Loaded) -> None:
    for member in step.group.members.values():
        step.effects.append(StartTimer(SessionExpired(member.member_id), step.settings.session_timeout_ms))
        if member.current.state is MemberState.UNREVOKED_TASKS:
            step.effects.append(StartTimer(RevocationOverdue(member.member_id), member.info.rebalance_timeout_ms))


def _delete(step: Step, event: Delete) -> None:
    step.changes += tombstones(step.group)
    step.effects += [Forget(), Reply(DeleteReply(ErrorCode.NONE))]


def _delete_busy(step: Step, event: Delete) -> None:
    raise Refused(ErrorCode.NON_EMPTY_GROUP, NOT_EMPTY)


def _nothing(step: Step, event: Event) -> None:
    """Ignores an event that has no meaning in this state."""


_WITH_MEMBERS: dict[type, Callable[[Step, Any], None]] = {
    Heartbeat: _heartbeat,
    MemberLeave: _leave,
    Delete: _delete_busy,
    Loaded: _loaded,
    SessionExpired: _expired,
    RevocationOverdue: _revocation_overdue,
    DelayOver: _delay_over,
}
_WITHOUT_MEMBERS: dict[type, Callable[[Step, Any], None]] = {
    **_WITH_MEMBERS,
    Delete: _delete,
    Loaded: _nothing,
    SessionExpired: _nothing,
    RevocationOverdue: _nothing,
    DelayOver: _delay_over_empty,
}

# The states of a group with members differ in what its members have to do, not in what events lead to.
TABLE: dict[tuple[GroupState, type], Callable[[Step, Any], None]] = {
    (state, event): handler
    for state in GroupState
    if state is not GroupState.DEAD
    for event, handler in (_WITHOUT_MEMBERS if state is GroupState.EMPTY else _WITH_MEMBERS).items()
}

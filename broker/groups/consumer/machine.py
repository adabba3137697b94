"""The consumer group protocol as a table: (state, event) -> decision (KIP-848).

Owns every decision about members, epochs and assignments. Uses no clock, socket, log or random id: they arrive with the
events and leave as effects. A decision does not change the group: its changes are written first, and then applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....protocol.errors import ErrorCode
from ...errors import Refused
from ..classic.state import Heartbeat as ClassicHeartbeat
from ..classic.state import Join as ClassicJoin
from ..classic.state import Leave as ClassicLeave
from ..classic.state import Sync as ClassicSync
from ..members import known_member, known_static, member_of
from ..topics import TopicLookup
from .classic_members import classic_heartbeat, classic_join, classic_leave, classic_sync, fence, refused_classic
from .events import (
    Decision,
    Delete,
    DeleteReply,
    Event,
    Forget,
    HeartbeatReply,
    HeartbeatRequest,
    JoinOverdue,
    Loaded,
    MemberHeartbeat,
    MemberLeave,
    RegexesResolved,
    Reply,
    RevocationOverdue,
    SessionExpired,
    Settings,
    StartTimer,
    SyncOverdue,
)
from .moves import (
    Step,
    Subscriptions,
    check_epoch,
    check_room,
)
from .regexes import resolved, update_regex
from .removal import tombstones
from .state import (
    JOIN,
    STATIC_LEAVE,
    UNASSIGNED,
    Assigned,
    CurrentSet,
    Group,
    GroupState,
    Info,
    Member,
    MemberState,
    Partitions,
)


def decide(group: Group, event: Event, *, now_ms: int, settings: Settings, topics: TopicLookup) -> Decision:
    """Returns the changes of the group that `event` leads to, and the effects after them, in order."""
    step = Step(group, now_ms, settings, topics)
    try:
        TABLE[group.state, type(event)](step, event)
    except Refused as error:
        return refused(event, error.code, error.message)
    return Decision(tuple(step.changes), tuple(step.effects))


def refused(event: Event, code: ErrorCode, message: str | None = None) -> Decision:
    """Returns the error response to the request of an event, and nothing else."""
    token: int | None = getattr(event, "token", None)
    if token is None:
        return Decision()
    if isinstance(event, MemberHeartbeat | MemberLeave):
        return Decision(effects=(Reply(token, HeartbeatReply(code, message)),))
    if isinstance(event, Delete):
        return Decision(effects=(Reply(token, DeleteReply(code)),))
    return Decision(effects=(Reply(token, refused_classic(event, code)),))


# --- heartbeats ------------------------------------------------------------------------------------------------------


def _heartbeat(step: Step, event: MemberHeartbeat) -> None:
    request, group = event.request, step.group
    member_id = request.member_id or event.new_member_id
    check_room(group, request.member_id, step.settings.max_size)
    member, is_new = _member_of(step, request, member_id)
    info = _updated(member.info, request)
    names_changed = step.put_info(member, info)
    regex_changed, is_known = update_regex(step, member.info, info, request.caller)
    # With a new expression the epoch follows once its topics are known.
    needed = names_changed or (regex_changed and is_known)
    epoch, is_homogeneous = group.epoch, None
    if needed or step.has_stale_metadata:
        subscriptions = Subscriptions(group)
        subscriptions.count(member.info, -1)
        subscriptions.count(info, 1)
        subscriptions.drop_unused_regexes()
        subscriptions.members += is_new
        epoch = step.advance_epoch(subscriptions, needed=needed)
        is_homogeneous = subscriptions.are_homogeneous
    updated = Member(member_id, info, member.current)
    if is_homogeneous is None:
        is_homogeneous = Subscriptions(group).are_homogeneous
    target_epoch, target = step.target(updated, epoch, is_homogeneous=is_homogeneous)
    changed = names_changed or regex_changed
    updated = step.reconcile(updated, target_epoch, target, request.owned, subscription_changed=changed)
    step.start_session(member_id, info)
    sends = request.epoch == JOIN or request.is_full or updated.current.assigned != member.current.assigned
    step.reply(
        event.token,
        HeartbeatReply(
            ErrorCode.NONE,
            None,
            member_id,
            updated.current.epoch,
            step.settings.heartbeat_interval_ms,
            _partitions(updated.current.assigned) if sends else None,
        ),
    )


def _member_of(step: Step, request: HeartbeatRequest, member_id: str) -> tuple[Member, bool]:
    """Returns the member that sends a heartbeat, and whether it is one more. A static member that returns with a new
    id takes the place of the old one.
    """
    group, rejoins = step.group, step.settings.rejoins_at_zero
    if request.instance_id is None:
        member = group.members.get(member_id)
        if member is None and request.epoch == JOIN:
            return Member(member_id), True
        member = known_member(group, member_id)
        check_epoch(member, request.epoch, request.owned, rejoins_at_zero=rejoins)
        return member, False
    if request.epoch != JOIN:
        member = known_static(group, member_id, request.instance_id)
        check_epoch(member, request.epoch, request.owned, rejoins_at_zero=rejoins)
        return member, False
    holder = group.static_member(request.instance_id)
    if holder is None:
        member = group.members.get(member_id)
        return (Member(member_id), True) if member is None else (member, False)
    if holder.info.classic is None and holder.current.epoch != STATIC_LEAVE:
        raise Refused(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {request.instance_id} cannot join the group because the "
            f"instance id is owned by {holder.member_id} member.",
        )
    return step.replace_member(holder, member_id), False


def _updated(info: Info, request: HeartbeatRequest) -> Info:
    """Returns what the member has sent, with the fields of a heartbeat that are not unchanged."""
    timeout_ms = request.rebalance_timeout_ms
    return Info(
        instance_id=info.instance_id if request.instance_id is None else request.instance_id,
        rack_id=info.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=info.topics if request.topics is None else request.topics,
        regex=info.regex if request.regex is None else request.regex,
        rebalance_timeout_ms=info.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=info.assignor if request.assignor is None else request.assignor,
    )


def _partitions(assigned: Assigned) -> Partitions:
    return {topic_id: frozenset(epochs) for topic_id, epochs in assigned.items() if epochs}


def _leave(step: Step, event: MemberLeave) -> None:
    group = step.group
    member = member_of(group, event.member_id, event.instance_id)
    if event.instance_id is not None and event.epoch == STATIC_LEAVE:
        assigned = member.current.assigned
        if step.settings.resets_epochs:
            assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in assigned.items()}
        current = replace(member.current, epoch=STATIC_LEAVE, assigned=assigned, revoking=UNASSIGNED)
        step.changes.append(CurrentSet(member.member_id, current))
    else:
        fence(step, [member])
    step.reply(event.token, HeartbeatReply(ErrorCode.NONE, None, event.member_id, event.epoch))


# --- timers and the rest ---------------------------------------------------------------------------------------------


def _expired(step: Step, event: SessionExpired | JoinOverdue | SyncOverdue) -> None:
    member = step.group.members.get(event.member_id)
    if member is not None:
        fence(step, [member])


def _revocation_overdue(step: Step, event: RevocationOverdue) -> None:
    member = step.group.members.get(event.member_id)
    # A static member that left keeps its place until its session expires.
    if member is not None and member.current.state is MemberState.UNREVOKED_PARTITIONS and member.current.epoch >= 0:
        fence(step, [member])


def _loaded(step: Step, event: Loaded) -> None:
    for member in step.group.members.values():
        # As in Kafka, also a classic member has the timeout of the group until its next request.
        step.effects.append(StartTimer(SessionExpired(member.member_id), step.settings.session_timeout_ms))
        if member.current.state is MemberState.UNREVOKED_PARTITIONS:
            step.effects.append(StartTimer(RevocationOverdue(member.member_id), member.info.rebalance_timeout_ms))


def _delete(step: Step, event: Delete) -> None:
    step.changes += tombstones(step.group)
    step.effects.append(Forget(step.group.group_id))
    if event.token is not None:
        step.reply(event.token, DeleteReply(ErrorCode.NONE))


def _delete_busy(step: Step, event: Delete) -> None:
    raise Refused(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def _nothing(step: Step, event: Event) -> None:
    """Ignores an event that has no meaning in this state."""


def _unknown_member(step: Step, event: ClassicSync | ClassicHeartbeat) -> None:
    raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {event.member_id} is not a member.")


_EVENTS_OF_MEMBERS: dict[type, Callable[[Step, Any], None]] = {
    MemberHeartbeat: _heartbeat,
    MemberLeave: _leave,
    ClassicJoin: classic_join,
    ClassicSync: classic_sync,
    ClassicHeartbeat: classic_heartbeat,
    ClassicLeave: classic_leave,
    Delete: _delete_busy,
    Loaded: _loaded,
    RegexesResolved: resolved,
    SessionExpired: _expired,
    RevocationOverdue: _revocation_overdue,
    JoinOverdue: _expired,
    SyncOverdue: _expired,
}
_EVENTS_WITHOUT_MEMBERS: dict[type, Callable[[Step, Any], None]] = {
    MemberHeartbeat: _heartbeat,
    MemberLeave: _leave,
    # The coordinator turns an empty group into a classic one before it feeds a join.
    ClassicJoin: _nothing,
    ClassicSync: _unknown_member,
    ClassicHeartbeat: classic_heartbeat,
    ClassicLeave: classic_leave,
    Delete: _delete,
    Loaded: _nothing,
    RegexesResolved: _nothing,
    SessionExpired: _nothing,
    RevocationOverdue: _nothing,
    JoinOverdue: _nothing,
    SyncOverdue: _nothing,
}

# The states of a group with members differ in what its members have to do, not in what events lead to.
TABLE: dict[tuple[GroupState, type], Callable[[Step, Any], None]] = {
    (state, event): handler
    for state in (GroupState.EMPTY, GroupState.ASSIGNING, GroupState.RECONCILING, GroupState.STABLE)
    for event, handler in (_EVENTS_WITHOUT_MEMBERS if state is GroupState.EMPTY else _EVENTS_OF_MEMBERS).items()
}

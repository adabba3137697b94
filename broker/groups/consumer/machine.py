"""The consumer group protocol as a table: (state, event) -> decision (KIP-848).

Owns every decision about members, epochs and assignments. Uses no clock, socket, log or random id: they arrive with the
events and leave as effects. A decision does not change the group: its changes are written first, and then applied.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....protocol.errors import ErrorCode
from ...errors import Refused
from ..classic.state import ErrorReply, JoinReply, LeaveReply, SyncReply
from ..classic.state import Heartbeat as ClassicHeartbeat
from ..classic.state import Join as ClassicJoin
from ..classic.state import Leave as ClassicLeave
from ..classic.state import Sync as ClassicSync
from ..common_events import (
    Delete,
    DeleteReply,
    HeartbeatReply,
    Loaded,
    MemberLeave,
    RevocationOverdue,
    SessionExpired,
)
from ..common_machine import Replies, decided, delete, expired, leave, loaded, nothing, revocation_overdue
from ..common_state import JOIN, GroupState, Partitions
from .classic_members import classic_heartbeat, classic_join, classic_leave, classic_sync
from .events import JoinOverdue, MemberHeartbeat, RegexesResolved, SyncOverdue
from .moves import Step, Subscriptions, check_room
from .regexes import resolved, update_regex
from .state import Assigned, Group, Info, Member

# --- heartbeats ------------------------------------------------------------------------------------------------------


def _heartbeat(step: Step, request: MemberHeartbeat) -> None:
    group, member_id = step.group, request.member_id
    check_room(group, member_id, step.settings.max_size)
    member: Member = step.member_of(request)
    is_new = member_id not in group.members and step.replaced is None
    info = _updated(member.info, request)
    names_changed = info.topics != member.info.topics
    step.put_info(member, info)
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
        HeartbeatReply(
            ErrorCode.NONE,
            None,
            member_id,
            updated.current.epoch,
            step.settings.heartbeat_interval_ms,
            _partitions(updated.current.assigned) if sends else None,
        ),
    )


def _updated(info: Info, request: MemberHeartbeat) -> Info:
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


# --- the table -------------------------------------------------------------------------------------------------------


def _unknown_member(step: Step, event: ClassicSync | ClassicHeartbeat) -> None:
    raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {event.member_id} is not a member.")


_EVENTS_OF_MEMBERS: dict[type, Callable[[Step, Any], None]] = {
    MemberHeartbeat: _heartbeat,
    MemberLeave: leave,
    ClassicJoin: classic_join,
    ClassicSync: classic_sync,
    ClassicHeartbeat: classic_heartbeat,
    ClassicLeave: classic_leave,
    Delete: delete,
    Loaded: loaded,
    RegexesResolved: resolved,
    SessionExpired: expired,
    RevocationOverdue: revocation_overdue,
    JoinOverdue: expired,
    SyncOverdue: expired,
}
_EVENTS_WITHOUT_MEMBERS: dict[type, Callable[[Step, Any], None]] = {
    **dict.fromkeys(_EVENTS_OF_MEMBERS, nothing),
    MemberHeartbeat: _heartbeat,
    MemberLeave: leave,
    # The coordinator turns an empty group into a classic one before it feeds a join.
    ClassicSync: _unknown_member,
    ClassicHeartbeat: classic_heartbeat,
    ClassicLeave: classic_leave,
    Delete: delete,
}

# The states of a group with members differ in what its members have to do, not in what events lead to.
TABLE: dict[tuple[GroupState, type], Callable[[Step, Any], None]] = {
    (state, event): handler
    for state in Group.states
    if state is not GroupState.DEAD
    for event, handler in (_EVENTS_WITHOUT_MEMBERS if state is GroupState.EMPTY else _EVENTS_OF_MEMBERS).items()
}
REPLIES: Replies = {
    MemberHeartbeat: HeartbeatReply,
    MemberLeave: HeartbeatReply,
    Delete: lambda code, _: DeleteReply(code),
    ClassicJoin: lambda code, _: JoinReply(code, ""),
    ClassicSync: lambda code, _: SyncReply(code),
    ClassicHeartbeat: lambda code, _: ErrorReply(code),
    ClassicLeave: lambda code, _: LeaveReply(code),
}
decide = partial(decided, TABLE, Step, REPLIES)

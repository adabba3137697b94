"""Members of the classic protocol in a group of the consumer protocol (KIP-848), and the members that leave.

JoinGroup, SyncGroup, Heartbeat and LeaveGroup of such members have their responses at once: the generation is the epoch
of the member, the group has no leader, and the broker assigns the partitions. When the last member of the consumer
protocol leaves, the group becomes a classic one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....protocol.consumer_protocol import ConsumerProtocolSubscription, read_subscription, version_of
from ....protocol.errors import ErrorCode, MalformedMessage
from ...errors import Refused
from ..classic.state import (
    CONSUMER_PROTOCOL_TYPE,
    ErrorReply,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    LeftMember,
    Sync,
    SyncReply,
)
from ..common_events import CancelTimer, StartTimer
from ..common_machine import known_static, member_of
from ..common_state import ClassicMember, MemberState
from .conversion import Joining, downgraded, downgrades_with, embedded
from .events import BecomeClassic, JoinOverdue, SyncOverdue
from .moves import Step, Subscriptions, check_room
from .reconciliation import Owned
from .regexes import update_regex
from .state import Group, Info, Member

# --- JoinGroup -------------------------------------------------------------------------------------------------------


def classic_join(step: Step, event: Join) -> None:
    """Adds or updates a member of the classic protocol, and reconciles it."""
    group, request = step.group, event.request
    member_id = request.member_id or event.new_member_id
    if step.settings.migration == "disabled":
        text = f"Cannot join the consumer group {group.group_id} with the classic protocol because the group "
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{text}migration is disabled.")
    check_room(group, request.member_id, step.settings.max_size)
    if not _supports(group, request.protocol_type, [name for name, _ in request.protocols]):
        text = f"Member {member_id}'s protocols are not supported."
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
    if request.requires_member_id and not request.member_id and request.instance_id is None:
        step.reply(JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return
    holder = group.static_member(request.instance_id)
    member = _joining_member(step, event, member_id, holder)
    is_new = member_id not in group.members and step.replaced is None
    subscription = _subscription(request.protocols[0][1])
    info = Info(
        instance_id=member.info.instance_id if request.instance_id is None else request.instance_id,
        rack_id=subscription.rack_id or member.info.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        assignor=member.info.assignor,
        classic=ClassicMember(request.session_timeout_ms, request.protocols),
    )
    changed = info.topics != member.info.topics
    step.put_info(member, info)
    regex_changed, _ = update_regex(step, member.info, info, None)
    changed = changed or regex_changed
    subscriptions = Subscriptions(group)
    subscriptions.count(member.info, -1)
    subscriptions.count(info, 1)
    subscriptions.drop_unused_regexes()
    subscriptions.members += is_new
    epoch = group.epoch
    if changed or step.has_stale_metadata:
        epoch = step.advance_epoch(subscriptions, needed=changed)
    updated = Member(member_id, info, member.current)
    owned = _owned(subscription, step)
    if holder is not None and downgrades_with(group, step.settings, holder):
        updated = _downgrade(step, updated, holder, epoch, owned, changed=changed)
    else:
        target_epoch, target = step.target(updated, epoch, is_homogeneous=subscriptions.are_homogeneous)
        updated = step.reconcile(updated, target_epoch, target, owned, subscription_changed=changed)
        step.effects.append(CancelTimer(JoinOverdue(member_id)))
        step.start_session(member_id, info)
        step.effects.append(StartTimer(SyncOverdue(member_id), info.rebalance_timeout_ms))
    name = request.protocols[0][0]
    step.reply(JoinReply(ErrorCode.NONE, member_id, updated.current.epoch, CONSUMER_PROTOCOL_TYPE, name))


def _supports(group: Group, protocol_type: str, names: Sequence[str]) -> bool:
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    return any(group.classic_protocols.get(name, 0) == group.classic_members for name in names)


def _joining_member(step: Step, event: Join, member_id: str, holder: Member | None) -> Member:
    """Returns the member that joins, or a new one."""
    instance_id = event.request.instance_id
    if instance_id is not None and event.request.member_id:
        return known_static(step.group, member_id, instance_id)
    return step.group.member(member_id) if holder is None else step.replace_member(holder, member_id)


def _downgrade(step: Step, member: Member, holder: Member, epoch: int, owned: Owned, *, changed: bool) -> Member:
    """Makes the group a classic one, with a classic static member in the place of its last member of the consumer
    protocol. A rebalance follows if the assignment is not up to date.
    """
    group = step.group
    rebalances = group.assignment_epoch < epoch
    if not rebalances:
        target = group.target_of(holder.member_id)
        member = step.reconcile(member, group.assignment_epoch, target, owned, subscription_changed=changed)
    classic = downgraded(group, step.topics, step.now_ms, joining=Joining(member, holder.member_id))
    step.changes += group.tombstones({holder.member_id: member.member_id})
    step.effects.append(BecomeClassic(classic, rebalances))
    return member


def _subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(metadata)
    except MalformedMessage:
        text = "Malformed embedded consumer protocol in subscription deserialization."
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text) from None


def _owned(subscription: ConsumerProtocolSubscription, step: Step) -> Owned:
    found = ((step.topics.id_of(one.topic), one.partitions) for one in subscription.owned_partitions)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found if topic_id is not None}


# --- SyncGroup, Heartbeat, LeaveGroup --------------------------------------------------------------------------------


def _classic_member(group: Group, event: Sync | Heartbeat) -> tuple[Member, ClassicMember]:
    """Returns the member of a request. Raises Refused, also for a member of the consumer protocol."""
    member = member_of(group, event.member_id, event.instance_id)
    if member.info.classic is None:
        text = f"Member {member.member_id} does not use the classic protocol."
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    if member.current.epoch != event.generation_id:
        text = f"The request generation id {event.generation_id} is not equal to the member epoch "
        raise Refused(ErrorCode.ILLEGAL_GENERATION, f"{text}{member.current.epoch} of member {member.member_id}.")
    return member, member.info.classic


def classic_sync(step: Step, event: Sync) -> None:
    """Returns the current assignment of the member."""
    member, classic = _classic_member(step.group, event)
    name, metadata = classic.protocols[0]
    if event.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or event.protocol_name not in (None, name):
        text = f"Member {member.member_id} has joined with the protocol {name}."
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
    is_late = step.group.assignment_epoch > member.current.epoch
    if is_late and member.current.state is not MemberState.UNREVOKED:
        _await_join(step, member)
        step.reply(SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    step.effects.append(CancelTimer(SyncOverdue(member.member_id)))
    step.start_session(member.member_id, member.info)
    assigned = {topic_id: frozenset(epochs) for topic_id, epochs in member.current.assigned.items()}
    assignment = embedded(assigned, step.topics, version_of(metadata))
    step.reply(SyncReply(ErrorCode.NONE, event.protocol_type, event.protocol_name, assignment))


def classic_heartbeat(step: Step, event: Heartbeat) -> None:
    """Keeps the session of the member. REBALANCE_IN_PROGRESS makes it join again, when it has partitions to revoke or
    can get more.
    """
    member, _ = _classic_member(step.group, event)
    step.start_session(member.member_id, member.info)
    state = member.current.state
    rejoins = (
        member.current.epoch < step.group.assignment_epoch
        or state is MemberState.UNREVOKED
        or (state is MemberState.UNRELEASED and not _waits_for_others(step.group, member))
    )
    if rejoins:
        _await_join(step, member)
    step.reply(ErrorReply(ErrorCode.REBALANCE_IN_PROGRESS if rejoins else ErrorCode.NONE))


def _await_join(step: Step, member: Member) -> None:
    overdue = JoinOverdue(member.member_id)
    step.effects.append(StartTimer(overdue, member.info.rebalance_timeout_ms, if_absent=True))


def _waits_for_others(group: Group, member: Member) -> bool:
    """Returns whether a partition of the member's target still has another owner."""
    assigned: Mapping[bytes, Mapping[int, int]] = member.current.assigned
    return any(
        index not in assigned.get(topic_id, ()) and group.is_owned(topic_id, index)
        for topic_id, indexes in group.target_of(member.member_id).items()
        for index in indexes
    )


def classic_leave(step: Step, event: Leave) -> None:
    """Removes members, also those of the consumer protocol: administrators use LeaveGroup for both."""
    left: list[LeftMember] = []
    gone: dict[str, Member] = {}
    for member_id, instance_id in event.members:
        error = ErrorCode.NONE
        try:
            member = _leaving(step.group, member_id, instance_id)
            gone[member.member_id] = member
        except Refused as refused:
            error = refused.code
        left.append(LeftMember(member_id, instance_id, error))
    step.remove(gone.values())
    step.reply(LeaveReply(ErrorCode.NONE, tuple(left)))


def _leaving(group: Group, member_id: str, instance_id: str | None) -> Member:
    member = group.static_member(instance_id)
    # An administrator removes by instance id alone (KIP-345).
    return member if member is not None and not member_id else member_of(group, member_id, instance_id)

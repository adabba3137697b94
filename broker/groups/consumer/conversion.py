"""Online migration between the classic and the consumer protocol (KIP-848): a group of one becomes one of the other.

Members keep their assignment. `group.consumer.migration.policy` permits each direction.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ....protocol.consumer_protocol import assignment_bytes, read_assignment, read_subscription, version_of
from ....protocol.errors import ErrorCode, MalformedMessage
from ....protocol.named import NamedTuple
from ...errors import Refused
from ..classic.moves import select_protocol
from ..classic.state import CONSUMER_PROTOCOL_TYPE
from ..classic.state import Group as ClassicGroup
from ..classic.state import GroupState as ClassicState
from ..classic.state import Member as ClassicGroupMember
from ..common_state import AssignmentEpochSet, ClassicMember, CurrentSet, EpochSet, InfoSet, Partitions, TargetSet
from ..metadata_hash import group_hash
from ..topics import TopicLookup
from .events import Settings
from .state import Change, Current, Group, Info, Member


class Joining(NamedTuple):
    """A classic static member that takes the place of a member of the consumer protocol."""

    member: Member
    replaced_id: str


# --- to the consumer protocol ----------------------------------------------------------------------------------------


def upgraded(group: ClassicGroup, settings: Settings, topics: TopicLookup) -> list[Change]:
    """Returns the changes that make a group with the members of a classic group. Raises Refused with
    GROUP_ID_NOT_FOUND if it cannot be converted.
    """
    if not settings.upgrades:
        raise _not_upgraded(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _not_upgraded(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > settings.max_size:
        raise _not_upgraded(group, "the group size exceeds the consumer group maximum size")
    made = [_upgraded_member(group, one, topics) for one in group.members.values()]
    names = {topic for member in made for topic in member.info.topics}
    epoch = group.generation_id
    targets: dict[str, Partitions] = {
        member.member_id: {topic_id: frozenset(epochs) for topic_id, epochs in member.current.assigned.items()}
        for member in made
    }
    return [
        *(InfoSet(member.member_id, member.info) for member in made),
        EpochSet(epoch, group_hash(topics.shapes_of(names)) if settings.by_hash else 0),
        *(TargetSet(name, partitions) for name, partitions in targets.items()),
        AssignmentEpochSet(epoch),
        *(CurrentSet(member.member_id, member.current) for member in made),
    ]


def _not_upgraded(group: ClassicGroup, reason: str, more: str = "") -> Refused:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.{more}"
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _upgraded_member(group: ClassicGroup, member: ClassicGroupMember, topics: TopicLookup) -> Member:
    try:
        subscription = read_subscription(member.metadata(group.protocol_name))
        assignment = read_assignment(member.assignment)
    except MalformedMessage:
        raise _not_upgraded(group, "the embedded consumer protocol is malformed") from None
    if assignment.user_data:
        advice = " Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
        raise _not_upgraded(group, "an unsupported custom assignor is in use", advice)
    assigned: dict[bytes, dict[int, int]] = {}
    for topic in assignment.assigned_partitions:
        topic_id = topics.id_of(topic.topic)
        if topic_id is not None and topic.partitions:
            assigned[topic_id] = dict.fromkeys(topic.partitions, group.generation_id)
    info = Info(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )
    return Member(member.member_id, info, Current(group.generation_id, group.generation_id, assigned=assigned))


# --- to the classic protocol -----------------------------------------------------------------------------------------


def downgrades(group: Group, settings: Settings, leaving: Collection[Member]) -> bool:
    """Returns whether only members of the classic protocol remain, so that the group becomes a classic one."""
    remaining = len(group.members) - len(leaving)
    classic = group.classic_members - sum(member.info.classic is not None for member in leaving)
    return classic == remaining > 0 and settings.downgrades and remaining <= settings.classic_max_size


def downgrades_with(group: Group, settings: Settings, replaced: Member) -> bool:
    """Returns whether the group becomes a classic one when a classic member takes the place of `replaced`."""
    is_last = replaced.info.classic is None and group.classic_members == len(group.members) - 1
    return is_last and settings.downgrades and len(group.members) <= settings.classic_max_size


def downgraded(
    group: Group,
    topics: TopicLookup,
    now_ms: int,
    *,
    leaving: Collection[str] = (),
    joining: Joining | None = None,
) -> ClassicGroup:
    """Returns the classic group of the members, without those that leave and with one that joins. Each member has its
    target assignment. Raises Refused if a subscription cannot be read.
    """
    kept = [member for name, member in group.members.items() if name not in leaving]
    if joining is not None:
        kept = [member for member in kept if member.member_id != joining.replaced_id]
        kept.append(joining.member)
    members = {member.member_id: _classic(member) for member in kept}
    protocol_name = select_protocol(members)
    for name, member in members.items():
        holder_id = joining.replaced_id if joining is not None and name == joining.member.member_id else name
        try:
            version = version_of(member.metadata(protocol_name))
        except MalformedMessage as error:
            text = f"Cannot downgrade the classic group {group.group_id}: {error}."
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, text) from None
        target = group.target_of(holder_id)
        members[name] = replace(member, assignment=embedded(target, topics, version))
    return ClassicGroup(
        group.group_id,
        state=ClassicState.STABLE,
        generation_id=group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol_name,
        leader=next(iter(members)),
        members=members,
        state_changed_ms=now_ms,
    )


def _classic(member: Member) -> ClassicGroupMember:
    assert member.info.classic is not None
    return ClassicGroupMember(
        member_id=member.member_id,
        instance_id=member.info.instance_id,
        client_id=member.info.client_id,
        client_host=member.info.client_host,
        rebalance_timeout_ms=member.info.rebalance_timeout_ms,
        session_timeout_ms=member.info.classic.session_timeout_ms,
        protocols=member.info.classic.protocols,
    )


def embedded(partitions: Partitions, topics: TopicLookup, version: int) -> bytes:
    """Returns the assignment of a classic member. Topics that do not exist any more are left out."""
    named = [(topics.name_of(topic_id), sorted(indexes)) for topic_id, indexes in partitions.items()]
    return assignment_bytes([(name, indexes) for name, indexes in named if name is not None], version)

"""Groups of all kinds as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...storage.errors import StorageError
from ..errors import Refused
from ..groups.classic.state import CONSUMER_PROTOCOL_TYPE
from ..groups.classic.state import Group as ClassicGroup
from ..groups.classic.subscription import partitions_of, topics_of
from ..groups.consumer.state import NOTHING
from ..groups.consumer.state import Group as ConsumerGroup
from ..groups.offsets import CommittedOffset
from ..groups.share.state import ASSIGNOR, SharePartitionKey
from ..groups.share.state import Group as ShareGroup
from ..groups.streams.assignor import STICKY
from ..groups.streams.state import Group as StreamsGroup
from ..share.values import RecordState
from .views import Group, GroupOffset, Member, NotFound, SharePartitionView, ShareRecords, ShareRecordsInFlight

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..groups.classic.state import Member as ClassicMember
    from ..groups.consumer.state import Member as ConsumerMember
    from ..groups.registry import AnyGroup
    from ..groups.share.state import Member as ShareMember
    from ..groups.streams.state import Member as StreamsMember


def group_view(state: BrokerState, group_id: str) -> Group:
    """Returns a group with its members and offsets; one that does not exist is Dead."""
    _, group = state.groups.describe(group_id)
    if group is None:
        return Group(group_id, "Dead", "", "", -1, None, (), ())
    committed = state.groups.offsets(group_id)
    return Group(
        id=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=protocol_of(state, group),
        generation=generation_of(group),
        leader=group.leader if isinstance(group, ClassicGroup) else None,
        members=_members(state, group),
        offsets=tuple(_offset(state, place, one) for place, one in sorted(committed.items()))
        if not isinstance(group, ShareGroup)
        else start_offsets(state, group),
        type=group.kind,
        assignment_epoch=None if isinstance(group, ClassicGroup) else group.assignment_epoch,
        share_partitions=_share_partitions(state, group) if isinstance(group, ShareGroup) else (),
    )


def protocol_of(state: BrokerState, group: AnyGroup) -> str:
    """Returns the name of the protocol that the members have selected; of the assignor in a group of another
    kind than classic.
    """
    if isinstance(group, ShareGroup):
        return ASSIGNOR
    if isinstance(group, StreamsGroup):
        return STICKY
    if not isinstance(group, ConsumerGroup):
        return group.protocol_name or ""
    default = state.groups.settings.consumer.assignors[:1]
    return max(group.assignors or default, key=lambda name: group.assignors.get(name, 0))


def generation_of(group: AnyGroup) -> int:
    """Returns the generation; the epoch of a group of another kind than classic."""
    return group.generation_id if isinstance(group, ClassicGroup) else group.epoch


def _members(state: BrokerState, group: AnyGroup) -> tuple[Member, ...]:
    if isinstance(group, ConsumerGroup):
        return tuple(_consumer_member(state, group, member) for member in group.members.values())
    if isinstance(group, ShareGroup):
        return tuple(_share_member(state, group, member) for member in group.members.values())
    if isinstance(group, StreamsGroup):
        return tuple(_streams_member(state, group, member) for member in group.members.values())
    return tuple(_classic_member(group, member) for member in group.members.values())


def _classic_member(group: ClassicGroup, member: ClassicMember) -> Member:
    topics: Iterable[str] = ()
    assignment: Iterable[tuple[str, int]] = ()
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        topics = topics_of(member.metadata(group.protocol_name)) or ()
        assignment = partitions_of(member.assignment) or ()
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        topics=tuple(sorted(topics)),
        assignment=tuple(sorted(assignment)),
    )


def _consumer_member(state: BrokerState, group: ConsumerGroup, member: ConsumerMember) -> Member:
    info = member.info
    resolved = group.resolved.get(info.regex) if info.regex else None
    settings = state.groups.settings.of_group(group.kind, state.groups.configs(group.group_id))
    return _member(
        member,
        settings.session_timeout_ms if info.classic is None else info.classic.session_timeout_ms,
        info.topics if resolved is None else info.topics | resolved.topics,
        tuple(sorted((*_places(state, member.current.assigned), *_places(state, member.current.revoking)))),
        regex=info.regex,
        target=_places(state, group.target.get(member.member_id, NOTHING)),
    )


def _share_member(state: BrokerState, group: ShareGroup, member: ShareMember) -> Member:
    timeout_ms = state.groups.share_groups.settings_of(group.group_id).session_timeout_ms
    return _member(member, timeout_ms, member.info.topics, _places(state, member.current.assigned))


def _member(
    member: ConsumerMember | ShareMember | StreamsMember,
    session_timeout_ms: int,
    topics: Iterable[str],
    assignment: tuple[tuple[str, int], ...],
    **more: Any,
) -> Member:
    """Returns a member of a group of another kind than classic."""
    return Member(
        member_id=member.member_id,
        instance_id=member.info.instance_id,
        client_id=member.info.client_id,
        client_host=member.info.client_host,
        session_timeout_ms=session_timeout_ms,
        topics=tuple(sorted(topics)),
        assignment=assignment,
        epoch=member.current.epoch,
        **more,
    )


def _places(state: BrokerState, partitions: Mapping[bytes, Iterable[int]]) -> tuple[tuple[str, int], ...]:
    named = ((state.groups.topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items())
    return tuple(sorted((name, index) for name, indexes in named if name is not None for index in indexes))


def _streams_member(state: BrokerState, group: StreamsGroup, member: StreamsMember) -> Member:
    """A member, with the partitions that its active tasks read."""
    current, sources = member.current, group.source_topics

    def read(*roles: Mapping[str, Iterable[int]]) -> tuple[tuple[str, int], ...]:
        found = {(topic, index) for topic, id in sources.items() for tasks in roles for index in tasks.get(id, ())}
        return tuple(sorted(one for one in found if state.groups.topics.has_partition(*one)))

    return _member(
        member,
        state.groups.streams_groups.settings_of(group.group_id).session_timeout_ms,
        sources,
        read(current.assigned.active, current.revoking.active),
        target=read(group.target_of(member.member_id).active),
    )


def start_offsets(state: BrokerState, group: ShareGroup) -> tuple[GroupOffset, ...]:
    """Returns the start offsets of the share partitions that have one; the records below are done. Of those above, the
    lag counts the ones that are not (KIP-1226)."""
    found: list[GroupOffset] = []
    for topic, index, key in share_places(state, group):
        try:
            stored = state.share_state.summary(key)
        except Refused:  # its log is offline
            continue
        if stored is not None and stored.start_offset >= 0:
            start = CommittedOffset(stored.start_offset, stored.leader_epoch, "", 0)
            found.append(_offset(state, (topic, index), start, done=max(0, stored.complete_count)))
    return tuple(found)


def share_places(state: BrokerState, group: ShareGroup) -> list[tuple[str, int, SharePartitionKey]]:
    """Returns (topic, partition, key) of the share partitions that have state, in order."""
    return sorted(
        (name, index, SharePartitionKey(group.group_id, topic_id, index))
        for topic_id, topic in group.initialization.initialized.items()
        if (name := state.groups.topics.name_of(topic_id)) is not None
        for index in topic.partitions
    )


def share_records(state: BrokerState, group_id: str, topic: str, partition: int) -> ShareRecordsInFlight:
    """Returns the records of a share partition in flight. Raises NotFound for the group, Refused for the partition."""
    _, group = state.groups.describe(group_id)
    if not isinstance(group, ShareGroup):
        raise NotFound(f"there is no share group {group_id}")
    state.topics.partition(topic, partition)
    topic_id = state.topics.named(topic).id
    limit = state.share_configs.rules(group_id).delivery_limit
    led = state.share_partitions.get(SharePartitionKey(group_id, topic_id, partition))
    if led is None:
        return ShareRecordsInFlight(None, limit, ())
    found = tuple(
        ShareRecords(
            one.first,
            one.last,
            one.state.name.lower(),
            one.delivery_count,
            one.ended.value if one.ended is not None else None,
            one.member or None,
            one.deadline_ms,
        )
        for one in led.machine.records()
    )
    return ShareRecordsInFlight(led.machine.start_offset, limit, found)


def _share_partitions(state: BrokerState, group: ShareGroup) -> tuple[SharePartitionView, ...]:
    found: list[SharePartitionView] = []
    for topic, index, key in share_places(state, group):
        led = state.share_partitions.get(key)
        if led is None:
            found.append(SharePartitionView(topic, index))
            continue
        counts = dict.fromkeys(RecordState, 0)
        deliveries = 0
        start, in_flight = led.machine.start_offset, led.machine.in_flight
        for batch in led.machine.batches:
            record_state = RecordState(batch.state)
            counts[record_state] += batch.last - max(batch.first, start) + 1
            if record_state <= RecordState.ACQUIRED:
                deliveries = max(deliveries, batch.delivery_count)
        end = start + in_flight - 1 if in_flight else None
        going = counts[RecordState.AVAILABLE], counts[RecordState.ACQUIRED], counts[RecordState.ACKNOWLEDGED]
        archived = counts[RecordState.ARCHIVING] + counts[RecordState.ARCHIVED]
        found.append(SharePartitionView(topic, index, start, end, *going, archived, deliveries))
    return tuple(found)


def _offset(state: BrokerState, place: tuple[str, int], one: CommittedOffset, done: int = 0) -> GroupOffset:
    topic, index = place
    plain = topic, index, one.offset, one.leader_epoch, one.metadata
    try:
        log = state.topics.partition(topic, index).log
        start, end = log.log_start_offset, log.high_watermark
        return GroupOffset(*plain, max(0, end - one.offset - done), start, end)
    except (Refused, StorageError):
        return GroupOffset(*plain, None)


def consumer_lag(state: BrokerState, topic: str, index: int, offset: int) -> int | None:
    """Returns how many offsets of a partition follow a committed one; None if the partition was deleted or is
    offline."""
    try:
        return max(0, state.topics.partition(topic, index).log.high_watermark - offset)
    except (Refused, StorageError):
        return None

"""Descriptions of groups of every kind: consumer groups (KIP-848), share groups (KIP-932), streams groups (KIP-1071),
and groups of the classic protocol. A request for each kind that the broker serves is sent until every group is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from ...protocol.consumer_protocol import read_assignment
from ...protocol.errors import ErrorCode, MalformedMessage
from ...protocol.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from ...protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ...protocol.messages.share.share_group_describe import ShareGroupDescribeRequest
from ...protocol.messages.streams.streams_group_describe import StreamsGroupDescribeRequest
from ..net.connection import Connection
from ..net.errors import ClientError, KafkaError, UnsupportedVersion
from .calls import failure
from .types import (
    CLASSIC,
    CONSUMER,
    SHARE,
    STREAMS,
    GroupDescription,
    MemberDescription,
    MemberTasks,
    TopicPartition,
)

DEAD = "Dead"  # the state of a group that does not exist, before DescribeGroups v6 had an error for it
OTHER_KIND = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Errors after which the next request may find the group."""
UPGRADED = {0: False, 1: True}
Described: TypeAlias = dict[str, GroupDescription | ClientError]


async def describe_at(connection: Connection, groups: Sequence[str], node_id: int) -> Described:
    """Describes groups of the coordinator at the connection, whose node id is `node_id`."""
    found: Described = {}
    left: list[str] = list(groups)
    for request_class, read in KINDS:
        try:
            version = connection.version_of(request_class)
        except UnsupportedVersion:
            continue
        if not left:
            break
        response = await connection.request(request_class(group_ids=left, include_authorized_operations=False), version)
        for result in response.groups:
            if result.error_code not in OTHER_KIND:
                failed = failure(result)
                found[result.group_id] = failed or read(result, node_id)
        left = [name for name in groups if name not in found]
    if left:
        response = await connection.request(DescribeGroupsRequest(groups=left))
        found |= {result.group_id: _classic(result, node_id) for result in response.groups}
    return found


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        (topic.topic_name, index) for topic in assignment.topic_partitions for index in sorted(topic.partitions)
    )


def _group(kind: str, member_of: Callable[[Any], MemberDescription], result: Any, node_id: int) -> GroupDescription:
    return GroupDescription(
        result.group_id,
        result.group_state,
        kind,
        result.assignor_name or "",
        node_id,
        tuple(member_of(member) for member in result.members),
        kind,
        result.group_epoch,
        result.assignment_epoch,
    )


def _share_member(member: Any) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        None,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        b"",
        b"",
        member.member_epoch,
        topics=tuple(member.subscribed_topic_names),
    )


def _consumer_member(member: Any) -> MemberDescription:
    return _share_member(member)._replace(
        instance_id=member.instance_id,
        target=_partitions(member.target_assignment),
        upgraded=UPGRADED.get(member.member_type),
        regex=member.subscribed_topic_regex,
    )


def _streams(result: Any, node_id: int) -> GroupDescription:
    topology = result.topology
    sources = {
        part.subtopology_id: [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]
        for part in (topology.subtopologies or () if topology is not None else ())
    }
    found = _group(STREAMS, partial(_streams_member, sources), result, node_id)
    return found if topology is None else found._replace(topology_epoch=topology.epoch)


def _streams_member(sources: Mapping[str, Sequence[str]], member: Any) -> MemberDescription:
    tasks, target = _tasks(member.assignment), _tasks(member.target_assignment)
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _read_by(tasks, sources),
        b"",
        b"",
        member.member_epoch,
        _read_by(target, sources),
        not member.is_classic,
        topics=tuple(sorted({topic for topics in sources.values() for topic in topics})),
        tasks=tasks,
        target_tasks=target,
        process=member.process_id,
    )


def _tasks(assignment: Any) -> MemberTasks:
    return MemberTasks(
        *(
            {one.subtopology_id: tuple(sorted(one.partitions)) for one in found}
            for found in (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
        )
    )


def _read_by(tasks: MemberTasks, sources: Mapping[str, Sequence[str]]) -> tuple[TopicPartition, ...]:
    read = ((topic, indexes) for id, indexes in tasks.active.items() for topic in sources.get(id, ()))
    return tuple(sorted({(topic, index) for topic, indexes in read for index in indexes}))


Kind: TypeAlias = (
    type[ConsumerGroupDescribeRequest] | type[ShareGroupDescribeRequest] | type[StreamsGroupDescribeRequest]
)
KINDS: tuple[tuple[Kind, Callable[[Any, int], GroupDescription]], ...] = (
    (ConsumerGroupDescribeRequest, partial(_group, CONSUMER, _consumer_member)),
    (ShareGroupDescribeRequest, partial(_group, SHARE, _share_member)),
    (StreamsGroupDescribeRequest, _streams),
)


def _classic(result: Any, node_id: int) -> GroupDescription | ClientError:
    if (wrong := failure(result)) is not None:
        return wrong
    if result.group_state == DEAD:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {result.group_id!r} does not exist")
    members = tuple(
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assigned(bytes(member.member_assignment), result.protocol_type),
            bytes(member.member_assignment),
            bytes(member.member_metadata),
        )
        for member in result.members
    )
    return GroupDescription(
        result.group_id, result.group_state, result.protocol_type, result.protocol_data, node_id, members, CLASSIC
    )


def _assigned(data: bytes, protocol_type: str) -> tuple[TopicPartition, ...]:
    """Returns the partitions of a consumer's assignment; none for other protocols and malformed assignments."""
    if protocol_type != CONSUMER:
        return ()
    try:
        found = read_assignment(data).assigned_partitions
    except MalformedMessage:
        return ()
    return tuple((one.topic, index) for one in found for index in one.partitions)

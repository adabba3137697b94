"""StreamsGroupDescribe v0-v1: state, topology and members of streams groups. KIP-1071, KIP-1331, KIP-1357.

v1 adds the assignor, and the description of the topology: none is stored, because Kafka needs a plugin for that. Where
the protocol is not enabled each group gets UNSUPPORTED_VERSION. Requires DESCRIBE on each group, and on each topic of
its topology.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.acls import ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.streams.streams_group_describe import (
    Assignment,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ....protocol.messages.streams.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    TaskIds,
    TaskOffset,
    TopicInfo,
)
from ...context import RequestContext, handles
from ...groups.streams.assignor import STICKY
from ...groups.streams.state import NO_OFFSETS, Group, Member, target_of
from ...groups.streams.topology import ConfiguredSubtopology
from ...groups.streams.values import InternalTopic, Subtopology, TaskOffsets, TasksTuple
from ..groups.describing import check_visible, describe_each, described_group, in_order

HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."
NOT_STORED = 1
"""The status of a description that no plugin has stored."""

Described = StreamsGroupDescribeResponse.DescribedGroup


@handles(StreamsGroupDescribeRequest)
async def streams_group_describe(
    request: StreamsGroupDescribeRequest, context: RequestContext
) -> StreamsGroupDescribeResponse:
    """Describes groups. As in Kafka, groups without permission come first."""
    groups = await describe_each(
        request.group_ids,
        context,
        is_enabled=context.broker.serves_streams_groups,
        failed=_failed,
        described=lambda name: _described(name, request, context),
    )
    return StreamsGroupDescribeResponse(groups=groups)


def _failed(group_id: str, error: ErrorCode, message: str | None) -> Described:
    return Described(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
    )


def _described(group_id: str, request: StreamsGroupDescribeRequest, context: RequestContext) -> Described:
    group = described_group(group_id, Group, context)
    topology = _topology(group)
    topics = {
        name
        for part in (topology.subtopologies or () if topology is not None else ())
        for name in (
            *part.source_topics,
            *part.repartition_sink_topics,
            *(topic.name for topic in part.repartition_source_topics),
            *(topic.name for topic in part.state_changelog_topics),
        )
    }
    check_visible(topics, context, HIDDEN_TOPICS)
    described = Described(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=topology,
        members=[_member(member, group) for member in in_order(group.members)],
        assignor_name=STICKY,
    )
    if request.include_topology_description:
        described.topology_description_status = NOT_STORED
    if request.include_authorized_operations:
        described.authorized_operations = context.authorized_operations(ResourceType.GROUP, group_id)
    return described


def _topology(group: Group) -> Described.Topology | None:
    """The configured topology, with numbers of partitions; before it is configured, as members have sent it."""
    configured, sent = group.configured, group.topology
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        parts = [_part(id, part) for id, part in sorted(configured.subtopologies.items())]
        return Described.Topology(epoch=configured.epoch, subtopologies=parts)
    if sent is None:
        return None
    parts = [_part(id, part) for id, part in sorted(sent.subtopologies.items())]
    return Described.Topology(epoch=sent.epoch, subtopologies=parts)


def _part(id: str, part: Subtopology | ConfiguredSubtopology) -> Described.Topology.Subtopology:
    return Described.Topology.Subtopology(
        subtopology_id=id,
        source_topics=sorted(part.source_topics),
        repartition_sink_topics=sorted(part.repartition_sinks),
        state_changelog_topics=_topics(part.changelogs),
        repartition_source_topics=_topics(part.repartition_sources),
    )


def _topics(topics: Iterable[InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics)
    ]


def _member(member: Member, group: Group) -> Described.Member:
    info, current = member.info, member.current
    reported = group.offsets.get(member.member_id, NO_OFFSETS)
    return Described.Member(
        member_id=member.member_id,
        member_epoch=current.epoch,
        instance_id=info.instance_id,
        rack_id=info.rack_id,
        client_id=info.client_id,
        client_host=info.client_host,
        topology_epoch=info.topology_epoch,
        process_id=info.process_id,
        user_endpoint=None if info.endpoint is None else Endpoint(host=info.endpoint.host, port=info.endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in info.tags.items()],
        task_offsets=_offsets(reported.offsets),
        task_end_offsets=_offsets(reported.end_offsets),
        assignment=_assignment(current.assigned.tasks),
        target_assignment=_assignment(target_of(group, member.member_id)),
        is_classic=False,
    )


def _offsets(offsets: TaskOffsets) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=id, partition=partition, offset=of_part[partition])
        for id, of_part in sorted(offsets.items())
        for partition in sorted(of_part)
    ]


def _assignment(tasks: TasksTuple) -> Assignment:
    active, standby, warmup = (
        [TaskIds(subtopology_id=id, partitions=sorted(found)) for id, found in sorted(role.items())] for role in tasks
    )
    return Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)

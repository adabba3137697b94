"""StreamsGroupDescribe v0-v1: state, topology and members of streams groups. StreamsGroupTopologyDescriptionUpdate v0:
the description of a topology. KIP-1071, KIP-1331, KIP-1357.

v1 adds the assignor, and the description of the topology. Kafka stores descriptions in a plugin, and has none of its
own: without one it refuses them with UNSUPPORTED_VERSION, and no heartbeat requests them. Where the protocol is not
enabled each group gets UNSUPPORTED_VERSION. Describing requires DESCRIBE on each group, and on each topic of its
topology, an update READ on the group.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.streams.parts import Endpoint, KeyValue, TaskOffset
from ....protocol.messages.streams.streams_group_describe import (
    Assignment,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ....protocol.messages.streams.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...groups.streams.assignor import STICKY
from ...groups.streams.records import task_ids, topic_infos
from ...groups.streams.state import NO_OFFSETS, Group, Member
from ...groups.streams.topology import ConfiguredSubtopology
from ...groups.streams.values import Subtopology, TaskOffsets, TasksTuple
from ..groups.describing import check_visible, describe_assigned, in_order

NO_PLUGIN = "The broker has no streams group topology description plugin configured."
HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."
NOT_STORED = 1
"""The status of a description that no plugin has stored."""

Described = StreamsGroupDescribeResponse.DescribedGroup
_failed = partial(Described, group_state="", group_epoch=0, assignment_epoch=0, members=[])


@handles(StreamsGroupDescribeRequest)
async def streams_group_describe(
    request: StreamsGroupDescribeRequest, context: RequestContext
) -> StreamsGroupDescribeResponse:
    """Describes groups. As in Kafka, groups without permission come first."""
    enabled = context.broker.serves_streams_groups
    groups = await describe_assigned(
        request, context, group_class=Group, failed=_failed, fields=_fields, is_enabled=enabled
    )
    for group in groups if request.include_topology_description else ():
        if not group.error_code:
            group.topology_description_status = NOT_STORED
    return StreamsGroupDescribeResponse(groups=groups)


@handles(StreamsGroupTopologyDescriptionUpdateRequest)
async def streams_group_topology_description_update(
    request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Refuses the description."""
    if not context.broker.serves_streams_groups:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    if not context.allowed(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    raise Refused(ErrorCode.UNSUPPORTED_VERSION, NO_PLUGIN)


def _fields(group: Group, context: RequestContext) -> dict[str, Any]:
    topology = _topology(group)
    topics = topics_of(topology.subtopologies or ()) if topology is not None else []
    check_visible(set(topics), context, HIDDEN_TOPICS)
    members = [_member(member, group) for member in in_order(group.members)]
    return {"members": members, "topology": topology, "assignor_name": STICKY}


def topics_of(subtopologies: Iterable[Any]) -> list[str]:
    """Returns the topics of a topology in a request or response, each once."""
    return list(
        dict.fromkeys(
            name
            for part in subtopologies
            for name in (
                *part.source_topics,
                *part.repartition_sink_topics,
                *(topic.name for topic in part.repartition_source_topics),
                *(topic.name for topic in part.state_changelog_topics),
            )
        )
    )


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
        state_changelog_topics=topic_infos(sorted(part.changelogs)),
        repartition_source_topics=topic_infos(sorted(part.repartition_sources)),
    )


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
        target_assignment=_assignment(group.target_of(member.member_id)),
        is_classic=False,
    )


def _offsets(offsets: TaskOffsets) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=id, partition=partition, offset=of_part[partition])
        for id, of_part in sorted(offsets.items())
        for partition in sorted(of_part)
    ]


def _assignment(tasks: TasksTuple) -> Assignment:
    active, standby, warmup = map(task_ids, tasks)
    return Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)

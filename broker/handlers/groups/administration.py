"""Administration of groups: ListGroups v0-v5, DescribeGroups v0-v6, DeleteGroups v0-v3 and OffsetDelete v0.

ListGroups lists the groups of this broker, by state (KIP-518) and type (KIP-848, KIP-932, KIP-1071). Without DESCRIBE
on the cluster a client gets the groups it may describe, or a refusal, as in the release (KIP-231).

DescribeGroups returns state and members of classic groups (KIP-345, KIP-430, KIP-1043). A group that does not exist, or
that does not use the classic protocol, is Dead, from v6 on with GROUP_ID_NOT_FOUND. Requires DESCRIBE on each group.

DeleteGroups deletes groups without members, with their offsets (KIP-229). The error message of v3 is of plug-ins for
streams groups (KIP-1331); these groups have none. Requires DELETE on each group.

OffsetDelete deletes committed offsets of topics that a group is not subscribed to (KIP-496). Requires DELETE on the
group and READ on each topic.
"""

from __future__ import annotations

from functools import partial

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.limits import INT32_MIN
from ....protocol.messages.groups.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ....protocol.messages.groups.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ....protocol.messages.groups.list_groups import ListGroupsRequest, ListGroupsResponse
from ....protocol.messages.groups.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ...context import RequestContext, handles
from ...groups.classic.state import Group, GroupState, Member
from ...groups.common_state import GroupState as AssignedState
from ...groups.share.state import Group as ShareGroup
from ...java_hash import timeline_place
from .describing import GROUP_ENTRIES, describe_each

STATES = frozenset(state.value for state in (*GroupState, *AssignedState))
NOT_FOUND_SINCE = 6
NOT_REQUESTED = INT32_MIN
LOOKED_UP_PER_ENTRY = 10  # partitions that are looked up in the time of one entry of a cooperative step

Described = DescribeGroupsResponse.DescribedGroup
_failed = partial(
    Described,
    group_state="",
    protocol_type="",
    protocol_data="",
    members=[],
    authorized_operations=NOT_REQUESTED,
)
Deleted = DeleteGroupsResponse.DeletableGroupResult
Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
RequestedPartition = OffsetDeleteRequest.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition


@handles(ListGroupsRequest)
async def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """Lists groups, from 4.0 on in the order of Kafka's tables. An empty filter matches all groups, an unknown name in
    a filter matches none."""
    sees_all = context.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if not sees_all and not context.broker.profile.behaviour.describe_suffices:
        context.check_allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    states = request.states_filter
    if not context.broker.profile.behaviour.group_states_in_any_case:
        states = [state if state in STATES else "" for state in states]  # "" matches nothing
    error, groups = context.groups.list_groups(states, request.types_filter)
    if not context.broker.profile.behaviour.old_group_coordinator:
        partition_of = context.broker.groups.partition_of
        groups = sorted(groups, key=lambda one: (partition_of(one.group_id), timeline_place(one.group_id)))
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=listed.group_id,
                protocol_type=listed.protocol_type,
                group_state=listed.state,
                group_type=listed.group_type,
            )
            for listed in groups
            if sees_all or context.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, listed.group_id)
        ],
    )


@handles(DescribeGroupsRequest)
async def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describes groups; only Stable groups have metadata and assignments. As in Kafka, groups without permission come
    first.
    """
    described = partial(_described, context=context, request=request)
    groups = await describe_each(request.groups, context, is_enabled=True, failed=_failed, described=described)
    return DescribeGroupsResponse(groups=groups)


def _described(group_id: str, context: RequestContext, request: DescribeGroupsRequest) -> Described:
    operations = NOT_REQUESTED
    if request.include_authorized_operations:
        operations = context.authorized_operations(ResourceType.GROUP, group_id)
    error, group = context.groups.describe(group_id)
    message = None
    state = GroupState.DEAD.value if error is ErrorCode.NONE else ""
    is_other = group is not None and not isinstance(group, Group)
    if error is ErrorCode.NONE and (group is None or is_other) and context.api_version >= NOT_FOUND_SINCE:
        text = f"Group {group_id} is not a classic group." if is_other else f"Group {group_id} not found."
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, text
    if not isinstance(group, Group):
        found = _failed(error_code=error, error_message=message, group_id=group_id, group_state=state)
        if error is ErrorCode.NONE:
            found.authorized_operations = operations
        return found
    stable = group.state is GroupState.STABLE
    return Described(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol_name or "" if stable else "",
        members=[_member(group, member, stable) for member in group.members.values()],
        authorized_operations=operations,
    )


def _member(group: Group, member: Member, stable: bool) -> Described.DescribedGroupMember:
    return Described.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol_name) if stable else b"",
        member_assignment=member.assignment if stable else b"",
    )


@handles(DeleteGroupsRequest)
async def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Returns one result for each group, also if it is named twice. As in Kafka, groups without permission come
    last.
    """
    results: list[Deleted] = []
    refused: list[Deleted] = []
    for name in dict.fromkeys(request.groups_names):
        await context.step(GROUP_ENTRIES)
        if not context.allowed(AclOperation.DELETE, ResourceType.GROUP, name):
            refused.append(Deleted(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        _, group = context.groups.describe(name)
        if isinstance(group, ShareGroup):
            error = await context.groups.delete_share_group(name)
        else:
            error = context.groups.delete(name)
        error = error or await context.broker.group_records_durable(name)
        results.append(Deleted(group_id=name, error_code=error))
    return DeleteGroupsResponse(throttle_time_ms=0, results=results + refused)


@handles(OffsetDeleteRequest)
async def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Deletes offsets. A partition without a committed offset succeeds; one that does not exist is an error. As in
    Kafka, topics without permission come first.
    """
    context.check_allowed(AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    groups = context.groups
    refused = {topic.name: context.topic_refusal(AclOperation.READ, topic.name) for topic in request.topics}
    known: dict[tuple[str, int], None] = {}
    for topic in request.topics:
        await context.step(1 + len(topic.partitions) // LOOKED_UP_PER_ENTRY)
        if refused[topic.name] is ErrorCode.NONE:
            requested = ((topic.name, one.partition_index) for one in topic.partitions)
            known |= dict.fromkeys(one for one in requested if groups.topics.has_partition(*one))
    error, results = groups.delete_offsets(request.group_id, list(known))
    if error is ErrorCode.NONE and results:
        error = await context.broker.group_records_durable(request.group_id)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=[])
    topics: list[Topic] = []
    for topic in sorted(request.topics, key=lambda topic: refused[topic.name] is ErrorCode.NONE):

        def response(one: RequestedPartition, name: str = topic.name) -> Topic.OffsetDeleteResponsePartition:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            code = refused[name] or results.get((name, one.partition_index), unknown)
            return Topic.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=code)

        topics.append(Topic(name=topic.name, partitions=await context.mapped(response, topic.partitions)))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)

"""ListGroups v0-v5: the groups of this broker, by state (KIP-518) and type (KIP-848, KIP-932, KIP-1071).

Without DESCRIBE on the cluster a client gets the groups it may describe, or a refusal, as in the release (KIP-231).
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.messages.groups.list_groups import ListGroupsRequest, ListGroupsResponse
from ...context import RequestContext, handles
from ...groups.classic.state import GroupState
from ...groups.common_state import GroupState as AssignedState
from ...java_hash import timeline_place

STATES = frozenset(state.value for state in (*GroupState, *AssignedState))


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

"""DeleteGroups v0-v3: deletes groups without members, with their offsets. KIP-229. Requires DELETE on each group.

The error message of v3 is of plug-ins for streams groups (KIP-1331); these groups have none.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ...context import RequestContext, handles
from ...groups.share.state import Group as ShareGroup

GROUP_ENTRIES = 2  # entries of a cooperative step for each group


@handles(DeleteGroupsRequest)
async def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Returns one result for each group, also if it is named twice. As in Kafka, groups without permission come
    last.
    """
    results: list[DeleteGroupsResponse.DeletableGroupResult] = []
    result = DeleteGroupsResponse.DeletableGroupResult
    refused: list[DeleteGroupsResponse.DeletableGroupResult] = []
    for name in dict.fromkeys(request.groups_names):
        await context.step(GROUP_ENTRIES)
        if not context.allowed(AclOperation.DELETE, ResourceType.GROUP, name):
            refused.append(result(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        _, group = context.groups.describe(name)
        if isinstance(group, ShareGroup):
            error = await context.groups.delete_share_group(name)
        else:
            error = context.groups.delete(name)
        error = error or await context.broker.group_records_durable(name)
        results.append(result(group_id=name, error_code=error))
    return DeleteGroupsResponse(throttle_time_ms=0, results=results + refused)

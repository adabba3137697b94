"""DeleteGroups v0-v2: groups without members go, with their offsets. KIP-229."""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ..context import RequestContext, handles


@handles(DeleteGroupsRequest)
async def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """One result per group, also if it is named twice."""
    results = []
    for name in dict.fromkeys(request.groups_names):
        error = context.groups.delete(name)
        if error is ErrorCode.NONE:
            error = await context.broker.group_records_durable(name)
        results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=error))
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)

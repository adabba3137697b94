"""DescribeAcls v0-v3: the access control entries that a filter matches (KIP-140, KIP-290)."""

from __future__ import annotations

from ....protocol.messages.security.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from .requests import check_describing, filter_of

Resource = DescribeAclsResponse.DescribeAclsResource


@handles(DescribeAclsRequest)
async def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Returns the entries that match, grouped by pattern. In v0 the filter has a literal pattern."""
    wanted = filter_of(request)
    try:
        check_describing(context)
    except Refused as error:
        return DescribeAclsResponse(error_code=code_of(error), error_message=message_of(error), resources=[])
    found: dict[tuple[int, str, int], Resource] = {}
    for acl in context.broker.acls.find(wanted):
        resource = found.get(acl[:3])
        if resource is None:
            kind, name, pattern_type = acl[:3]
            resource = Resource(resource_type=kind, resource_name=name, pattern_type=pattern_type, acls=[])
            found[acl[:3]] = resource
        entry = Resource.AclDescription(
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
        )
        resource.acls.append(entry)
    # From 2.5 on the message is empty here, but null in DeleteAcls.
    text = "" if context.broker.profile.behaviour.acl_text else None
    return DescribeAclsResponse(error_code=0, error_message=text, resources=list(found.values()))

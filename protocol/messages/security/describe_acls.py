"""DescribeAcls: request and response of API key 29. KIP-140, KIP-290 (v1)."""

from __future__ import annotations

from ...acls import PatternType
from ...primitives import Int8, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=29, versions="0-3", flexible="2+")
class DescribeAclsRequest:
    """A filter of access control entries; null matches every name, principal or host."""

    resource_type_filter: Int8
    resource_name_filter: Text | None
    pattern_type_filter: Int8 = field("1+", default=PatternType.LITERAL)
    principal_filter: Text | None
    host_filter: Text | None
    operation: Int8
    permission_type: Int8


@message(api_key=29, versions="0-3", flexible="2+")
class DescribeAclsResponse:
    """The matching entries by resource pattern."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: Text | None
    resources: list[DescribeAclsResource]

    @group
    class DescribeAclsResource:
        resource_type: Int8
        resource_name: Text
        pattern_type: Int8 = field("1+", default=PatternType.LITERAL)
        acls: list[AclDescription]

        @group
        class AclDescription:
            principal: Text
            host: Text
            operation: Int8
            permission_type: Int8

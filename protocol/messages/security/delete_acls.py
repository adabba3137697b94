"""DeleteAcls: request and response of API key 31. KIP-140, KIP-290 (v1)."""

from __future__ import annotations

from ...acls import PatternType
from ...primitives import Int8, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=31, versions="0-3", flexible="2+")
class DeleteAclsRequest:
    """Filters; entries that match any of them are deleted. Null matches every name, principal or host."""

    filters: list[DeleteAclsFilter]

    @group
    class DeleteAclsFilter:
        resource_type_filter: Int8
        resource_name_filter: Text | None
        pattern_type_filter: Int8 = field("1+", default=PatternType.LITERAL)
        principal_filter: Text | None
        host_filter: Text | None
        operation: Int8
        permission_type: Int8


@message(api_key=31, versions="0-3", flexible="2+")
class DeleteAclsResponse:
    """The deleted entries by filter, in the request's order."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult]

    @group
    class DeleteAclsFilterResult:
        error_code: Int16
        error_message: Text | None
        matching_acls: list[DeleteAclsMatchingAcl]

        @group
        class DeleteAclsMatchingAcl:
            error_code: Int16
            error_message: Text | None
            resource_type: Int8
            resource_name: Text
            pattern_type: Int8 = field("1+", default=PatternType.LITERAL)
            principal: Text
            host: Text
            operation: Int8
            permission_type: Int8

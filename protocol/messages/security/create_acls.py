"""CreateAcls: request and response of API key 30. KIP-140, KIP-290 (v1)."""

from __future__ import annotations

from ...acls import PatternType
from ...primitives import Int8, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=30, versions="0-3", flexible="2+")
class CreateAclsRequest:
    """Access control entries to add."""

    creations: list[AclCreation]

    @group
    class AclCreation:
        resource_type: Int8
        resource_name: Text
        resource_pattern_type: Int8 = field("1+", default=PatternType.LITERAL)
        principal: Text
        host: Text
        operation: Int8
        permission_type: Int8


@message(api_key=30, versions="0-3", flexible="2+")
class CreateAclsResponse:
    """One result per entry, in the request's order."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult]

    @group
    class AclCreationResult:
        error_code: Int16
        error_message: Text | None

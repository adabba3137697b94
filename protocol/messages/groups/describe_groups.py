"""DescribeGroups: request and response of API key 15. KIP-430, KIP-345, KIP-1043."""

from __future__ import annotations

from ...primitives import Bool, Bytes, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """v3 can request authorized operations (KIP-430)."""

    groups: list[Text]
    include_authorized_operations: Bool = field("3+", default=False)


@message(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """State, protocol and members; v6 adds an error message (KIP-1043)."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]

    @group
    class DescribedGroup:
        error_code: Int16
        error_message: Text | None = field("6+", default=None)
        group_id: Text
        group_state: Text
        protocol_type: Text
        protocol_data: Text
        members: list[DescribedGroupMember]
        authorized_operations: Int32 = field("3+", default=-2147483648)

        @group
        class DescribedGroupMember:
            member_id: Text
            group_instance_id: Text | None = field("4+", default=None, ignorable=True)
            client_id: Text
            client_host: Text
            member_metadata: Bytes
            member_assignment: Bytes

"""ListGroups: request and response of API key 16. KIP-518, KIP-848."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """v4 filters by state (KIP-518), v5 by type (KIP-848)."""

    states_filter: list[Text] = field("4+", default=list)
    types_filter: list[Text] = field("5+", default=list)


@message(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """Groups, with their state (v4) and type (v5)."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]

    @group
    class ListedGroup:
        group_id: Text
        protocol_type: Text
        group_state: Text = field("4+", default="", ignorable=True)
        group_type: Text = field("5+", default="", ignorable=True)

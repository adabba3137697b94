"""DeleteGroups: request and response of API key 42. KIP-229, KIP-1331."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    """Deletes groups without members."""

    groups_names: list[Text]


@message(api_key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    """One error per group."""

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]

    @group
    class DeletableGroupResult:
        group_id: Text
        error_code: Int16
        error_message: Text | None = field("3+", default=None, ignorable=True)

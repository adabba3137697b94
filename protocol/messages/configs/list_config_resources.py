"""ListConfigResources (at first ListClientMetricsResources): request and response of API key 74. KIP-714, KIP-1142."""

from __future__ import annotations

from ...primitives import Int8, Int16, Int32, Text
from ...schema import field, group, message

CLIENT_METRICS = 16  # KIP-714's number of that resource type


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """v0 lists client metrics resources, v1 those of the given types; none for all types."""

    resource_types: list[Int8] = field("1+", default=list)


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """Resource names; v1 adds their types."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: list[ConfigResource]

    @group
    class ConfigResource:
        resource_name: Text
        resource_type: Int8 = field("1+", default=CLIENT_METRICS, ignorable=True)

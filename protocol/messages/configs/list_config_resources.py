"""ListConfigResources: request and response of API key 74, ListClientMetricsResources at first. KIP-714, KIP-1142."""

from __future__ import annotations

from ...primitives import Int8, Int16, Int32, Text
from ...schema import field, group, message

CLIENT_METRICS = 16  # KIP-714's number for that kind of resource


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    """v0 asks for the resources of client metrics, v1 for those of any types; none named means all."""

    resource_types: list[Int8] = field("1+", default=list)


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    """Names of resources, from v1 on with their types."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    config_resources: list[ConfigResource]

    @group
    class ConfigResource:
        resource_name: Text
        resource_type: Int8 = field("1+", default=CLIENT_METRICS, ignorable=True)

"""IncrementalAlterConfigs: request and response of API key 44. KIP-339."""

from __future__ import annotations

from ...primitives import Bool, Int8, Int16, Int32, Text
from ...schema import group, message


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    """Sets, deletes, appends to and subtracts from configs."""

    resources: list[AlterConfigsResource]
    validate_only: Bool

    @group
    class AlterConfigsResource:
        resource_type: Int8
        resource_name: Text
        configs: list[AlterableConfig]

        @group
        class AlterableConfig:
            name: Text
            config_operation: Int8
            value: Text | None


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    """One result per resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]

    @group
    class AlterConfigsResourceResponse:
        error_code: Int16
        error_message: Text | None
        resource_type: Int8
        resource_name: Text

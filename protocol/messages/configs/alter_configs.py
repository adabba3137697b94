"""AlterConfigs: request and response of API key 33. KIP-133."""

from __future__ import annotations

from ...primitives import Bool, Int8, Int16, Int32, Text
from ...schema import group, message


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    """Replaces all configs of a resource."""

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
            value: Text | None


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    """One result per resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]

    @group
    class AlterConfigsResourceResponse:
        error_code: Int16
        error_message: Text | None
        resource_type: Int8
        resource_name: Text

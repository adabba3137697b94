"""AlterConfigs v0-v2: replaces all configs of a resource (KIP-133). IncrementalAlterConfigs is its better successor."""

from __future__ import annotations

from collections import Counter

from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of
from ..resources import replace

Result = AlterConfigsResponse.AlterConfigsResourceResponse


@handles(AlterConfigsRequest)
async def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Each resource on its own, all of its configs or none."""
    responses = []
    counts = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    for asked in request.resources:
        result = Result(
            error_code=0, error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        try:
            if counts[asked.resource_type, asked.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            configs = [(config.name, config.value) for config in asked.configs]
            replace(
                context,
                asked.resource_type,
                asked.resource_name,
                configs,
                validate_only=request.validate_only,
            )
        except Exception as error:
            result.error_code = code_of(error)
            result.error_message = message_of(error)
        responses.append(result)
    return AlterConfigsResponse(responses=responses)

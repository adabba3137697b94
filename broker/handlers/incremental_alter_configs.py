"""IncrementalAlterConfigs v0-v1: sets, removes, appends to and subtracts from configs (KIP-339)."""

from __future__ import annotations

from collections import Counter

from ...protocol.errors import ErrorCode
from ...protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of
from ..resources import Change, alter

Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


@handles(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Each resource on its own, all of its changes or none."""
    responses = []
    counts = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    for asked in request.resources:
        result = Result(
            error_code=0, error_message=None, resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        try:
            if counts[asked.resource_type, asked.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            changes = [Change(config.name, config.config_operation, config.value) for config in asked.configs]
            alter(
                context,
                asked.resource_type,
                asked.resource_name,
                changes,
                validate_only=request.validate_only,
            )
        except Exception as error:
            result.error_code = code_of(error)
            result.error_message = message_of(error)
        responses.append(result)
    return IncrementalAlterConfigsResponse(responses=responses)

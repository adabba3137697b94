"""AlterConfigs v0-v2: replaces all configs of a resource (KIP-133). IncrementalAlterConfigs is its successor."""

from __future__ import annotations

from collections import Counter

from ....protocol.acls import AclOperation
from ....protocol.errors import ErrorCode
from ....protocol.messages.configs.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from .resources import check_allowed, check_kinds, check_values, replace

RESOURCE_ENTRIES = 20  # entries of a cooperative step for each resource

Result = AlterConfigsResponse.AlterConfigsResourceResponse


@handles(AlterConfigsRequest)
async def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Handles each resource on its own: all of its configs are set, or none."""
    behaviour = context.broker.profile.behaviour
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    # With ZooKeeper the last of several entries for a resource replaces the others.
    last_of_each = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    refused = None
    try:
        values = ((config.name, config.value) for resource in request.resources for config in resource.configs)
        check_values(values, behaviour)
        check_kinds((resource.resource_type for resource in request.resources), behaviour, is_whole=True)
    except Refused as error:
        refused = error
    each = behaviour.kraft_configs or refused is not None
    responses: list[Result] = []
    for resource in request.resources if each else last_of_each.values():
        if context.is_due(RESOURCE_ENTRIES + len(resource.configs)):
            await context.next_step()
        kind, name = resource.resource_type, resource.resource_name
        result = Result(error_code=0, error_message=None, resource_type=kind, resource_name=name)
        try:
            if refused is not None:
                raise refused
            if counts[kind, name] > 1 and behaviour.kraft_configs:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            has_text = behaviour.refusal_texts == "alter"
            check_allowed(context, AclOperation.ALTER_CONFIGS, kind, name, has_text=has_text)
            configs = [(config.name, config.value) for config in resource.configs]
            replace(context, kind, name, configs, validate_only=request.validate_only)
        except Exception as error:
            result.error_code = code_of(error)
            result.error_message = message_of(error)
        responses.append(result)
    return AlterConfigsResponse(responses=responses)

"""IncrementalAlterConfigs v0-v1: sets, removes, appends to and subtracts from configs (KIP-339)."""

from __future__ import annotations

from collections import Counter

from ....protocol.acls import AclOperation
from ....protocol.errors import ErrorCode
from ....protocol.messages.configs.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...config.resource_types import BROKER, BROKER_LOGGER
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from .resources import Change, alter, check_allowed, check_changes, check_kinds, unknown_operation

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
RESOURCE_ENTRIES = 20  # entries of a cooperative step for each resource
CHANGES_PER_ENTRY = 5

Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


@handles(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Handles each resource on its own: all of its changes are made, or none. A KRaft controller refuses the whole
    request if a change has an unknown operation.
    """
    behaviour = context.broker.profile.behaviour
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    # With ZooKeeper the last of several entries for a resource replaces the others.
    last_of_each = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    refused = None
    try:
        check_kinds((resource.resource_type for resource in request.resources), behaviour, is_whole=False)
    except Refused as error:
        refused = error
    each = behaviour.kraft_configs or refused is not None
    unknown = await _unknown(request, counts, context) if behaviour.kraft_configs else None
    responses: list[Result] = []
    for resource in request.resources if each else last_of_each.values():
        if context.is_due(RESOURCE_ENTRIES + len(resource.configs)):
            await context.next_step()
        kind, name = resource.resource_type, resource.resource_name
        result = Result(error_code=0, error_message=None, resource_type=kind, resource_name=name)
        try:
            if refused is not None:
                raise refused
            _check(resource, counts[kind, name], context)
            alter(context, kind, name, _changes(resource), validate_only=request.validate_only, refused=unknown)
        except Exception as error:
            result.error_code = code_of(error)
            result.error_message = message_of(error)
        responses.append(result)
    return IncrementalAlterConfigsResponse(responses=responses)


def _changes(resource: Resource) -> list[Change]:
    return [Change(config.name, config.config_operation, config.value) for config in resource.configs]


def _check(resource: Resource, times: int, context: RequestContext) -> None:
    """Checks whether a resource that is named `times` times may be changed. Raises Refused."""
    behaviour = context.broker.profile.behaviour
    if times > 1 and behaviour.kraft_configs:
        raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    kind, name = resource.resource_type, resource.resource_name
    try:
        check_allowed(context, AclOperation.ALTER_CONFIGS, kind, name, has_text=behaviour.refusal_texts == "alter")
    except Refused as refused:
        raise Refused(refused.code, wordless=True) if kind == BROKER_LOGGER else refused from None


async def _unknown(
    request: IncrementalAlterConfigsRequest, counts: Counter[tuple[int, str]], context: RequestContext
) -> Refused | None:
    """The reason why a KRaft controller refuses the whole request: a change with an unknown operation."""
    for resource in request.resources:
        if context.is_due(1 + len(resource.configs) // CHANGES_PER_ENTRY):
            await context.next_step()
        kind, name = resource.resource_type, resource.resource_name
        refused = unknown_operation(_changes(resource))
        if refused is None or kind in (BROKER, BROKER_LOGGER):
            continue
        try:
            _check(resource, counts[kind, name], context)
            check_changes(context, kind, name, _changes(resource))
        except Refused:
            continue
        return refused
    return None

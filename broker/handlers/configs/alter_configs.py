"""Changes of configs: AlterConfigs v0-v2 replaces all configs of a resource (KIP-133), IncrementalAlterConfigs v0-v1
sets, removes, appends to and subtracts from some (KIP-339).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ....protocol.acls import AclOperation
from ....protocol.errors import ErrorCode
from ....protocol.messages.configs.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ....protocol.messages.configs.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ...config.resource_types import BROKER, BROKER_LOGGER
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from .resources import (
    Change,
    alter,
    check_allowed,
    check_changes,
    check_kind,
    of_nulls,
    replace,
    unknown_operation,
)

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
RESOURCE_ENTRIES = 20  # entries of a cooperative step for each resource
CHANGES_PER_ENTRY = 5


@handles(AlterConfigsRequest)
async def alter_configs(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Handles each resource on its own: all of its configs are set, or none."""

    def change(resource: AlterConfigsRequest.AlterConfigsResource) -> None:
        configs = [(config.name, config.value) for config in resource.configs]
        replace(context, resource.resource_type, resource.resource_name, configs, validate_only=request.validate_only)

    return await _altered(request, AlterConfigsResponse, change, context, is_whole=True)


@handles(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Handles each resource on its own: all of its changes are made, or none. A KRaft controller refuses the whole
    request if a change has an unknown operation.
    """
    unknown = await _unknown(request, context) if context.broker.profile.behaviour.kraft_configs else None

    def change(resource: Resource) -> None:
        kind, name = resource.resource_type, resource.resource_name
        alter(context, kind, name, _changes(resource), validate_only=request.validate_only, refused=unknown)

    return await _altered(request, IncrementalAlterConfigsResponse, change, context, is_whole=False)


async def _altered(
    request: Any, response: Any, change: Callable[[Any], None], context: RequestContext, *, is_whole: bool
) -> Any:
    """Calls `change` with each resource that may be changed; `is_whole` is whether all of its configs are replaced.
    Returns the response.
    """
    behaviour = context.broker.profile.behaviour
    counts = _counts(request)
    refused = None
    try:
        if not behaviour.kraft_configs:  # ZooKeeper refuses the whole request
            configs = (config for resource in request.resources for config in resource.configs)
            if is_whole and (nulls := [config.name for config in configs if config.value is None]):
                raise of_nulls(",".join(nulls))
            for resource in request.resources:
                check_kind(resource.resource_type, behaviour, is_whole=is_whole)
    except Refused as error:
        refused = error
    # With ZooKeeper the last of several entries for a resource replaces the others.
    last_of_each = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    each = behaviour.kraft_configs or refused is not None
    results: list[Any] = []
    for resource in request.resources if each else last_of_each.values():
        await context.step(RESOURCE_ENTRIES + len(resource.configs))
        kind, name = resource.resource_type, resource.resource_name
        result = response.AlterConfigsResourceResponse(
            error_code=0, error_message=None, resource_type=kind, resource_name=name
        )
        try:
            if refused is not None:
                raise refused
            _check(kind, name, counts[kind, name], context, is_whole=is_whole)
            change(resource)
        except Exception as error:
            result.error_code = code_of(error)
            result.error_message = message_of(error)
        results.append(result)
    return response(responses=results)


def _counts(request: Any) -> Counter[tuple[int, str]]:
    return Counter((resource.resource_type, resource.resource_name) for resource in request.resources)


def _check(kind: int, name: str, times: int, context: RequestContext, *, is_whole: bool) -> None:
    """Checks whether a resource that is named `times` times may be changed. Raises Refused."""
    behaviour = context.broker.profile.behaviour
    if times > 1 and behaviour.kraft_configs:
        raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    try:
        check_allowed(context, AclOperation.ALTER_CONFIGS, kind, name, has_text=behaviour.refusal_texts == "alter")
    except Refused as refused:
        is_wordless = kind == BROKER_LOGGER and not is_whole
        raise Refused(refused.code, wordless=True) if is_wordless else refused from None


def _changes(resource: Resource) -> list[Change]:
    return [Change(config.name, config.config_operation, config.value) for config in resource.configs]


async def _unknown(request: IncrementalAlterConfigsRequest, context: RequestContext) -> Refused | None:
    """The reason why a KRaft controller refuses the whole request: a change with an unknown operation."""
    counts = _counts(request)
    for resource in request.resources:
        await context.step(1 + len(resource.configs) // CHANGES_PER_ENTRY)
        kind, name = resource.resource_type, resource.resource_name
        refused = unknown_operation(_changes(resource))
        if refused is None or kind in (BROKER, BROKER_LOGGER):
            continue
        try:
            _check(kind, name, counts[kind, name], context, is_whole=False)
            check_changes(context, kind, name, _changes(resource))
        except Refused:
            continue
        return refused
    return None

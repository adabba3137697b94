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

Asked = IncrementalAlterConfigsRequest.AlterConfigsResource
RESOURCE_ENTRIES = 20  # what a resource counts in a cooperative step
CHANGES_PER_ENTRY = 5

Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


@handles(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Each resource on its own, all of its changes or none; with KRaft the controller does nothing of a request that
    has a kind of change that it does not know."""
    behaviour = context.broker.profile.behaviour
    counts = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    # With ZooKeeper the last of several for one resource stood for all of them.
    asked_for = {(asked.resource_type, asked.resource_name): asked for asked in request.resources}
    refused = None
    try:
        check_kinds((asked.resource_type for asked in request.resources), behaviour, is_whole=False)
    except Refused as error:
        refused = error
    each = behaviour.kraft_configs or refused is not None
    unknown = await _unknown(request, counts, context) if behaviour.kraft_configs else None
    responses: list[Result] = []
    for asked in request.resources if each else asked_for.values():
        if context.is_due(RESOURCE_ENTRIES + len(asked.configs)):
            await context.next_step()
        kind, name = asked.resource_type, asked.resource_name
        result = Result(error_code=0, error_message=None, resource_type=kind, resource_name=name)
        try:
            if refused is not None:
                raise refused
            _check(asked, counts[kind, name], context)
            alter(context, kind, name, _changes(asked), validate_only=request.validate_only, refused=unknown)
        except Exception as error:
            result.error_code = code_of(error)
            result.error_message = message_of(error)
        responses.append(result)
    return IncrementalAlterConfigsResponse(responses=responses)


def _changes(asked: Asked) -> list[Change]:
    return [Change(config.name, config.config_operation, config.value) for config in asked.configs]


def _check(asked: Asked, times: int, context: RequestContext) -> None:
    """Whether a resource that is named so many times may be changed. Raises Refused."""
    behaviour = context.broker.profile.behaviour
    if times > 1 and behaviour.kraft_configs:
        raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    has_text = behaviour.refusal_texts == "alter"
    kind, name = asked.resource_type, asked.resource_name
    check_allowed(context, AclOperation.ALTER_CONFIGS, kind, name, has_text=has_text)


async def _unknown(
    request: IncrementalAlterConfigsRequest, counts: Counter[tuple[int, str]], context: RequestContext
) -> Refused | None:
    """Why a controller of KRaft does nothing: a change of no known kind in what it is asked."""
    for asked in request.resources:
        if context.is_due(1 + len(asked.configs) // CHANGES_PER_ENTRY):
            await context.next_step()
        kind, name = asked.resource_type, asked.resource_name
        refused = unknown_operation(_changes(asked))
        if refused is None or kind in (BROKER, BROKER_LOGGER):
            continue
        try:
            _check(asked, counts[kind, name], context)
            check_changes(context, kind, name, _changes(asked))
        except Refused:
            continue
        return refused
    return None

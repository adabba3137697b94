"""Quotas of users, client ids and addresses (KIP-546, KIP-612): DescribeClientQuotas v0-v1 returns those that were set,
AlterClientQuotas v0-v1 sets and removes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ....protocol.messages.configs.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ....storage.errors import StorageError
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...quotas.stored import Component, alteration

Described = DescribeClientQuotasResponse.EntryData
Altered = AlterClientQuotasResponse.EntryData


@handles(DescribeClientQuotasRequest)
async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Returns the quotas that match all components; defaults from the broker's configuration are not included."""
    components = [Component(one.entity_type, one.match_type, one.match) for one in request.components]
    if not context.allowed(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)  # without a message, as in Kafka
    found = context.broker.quotas.stored.describe(components, strict=request.strict)
    return DescribeClientQuotasResponse(
        error_code=0,
        error_message="",  # as in Kafka, which returns no null here
        entries=[
            Described(
                entity=[Described.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[Described.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ],
    )


@handles(AlterClientQuotasRequest)
async def alter_client_quotas(request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
    """Handles each entity on its own: all of its changes are made, or none."""
    requested = await context.mapped(alteration, request.entries)
    broker = context.broker
    try:
        context.check_allowed(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
        results = await broker.quotas.alter(requested, broker.scheduler, validate_only=request.validate_only)
    except Refused as refused:
        results = [(one.entity, refused) for one in requested]
    except StorageError as error:
        results = [(one.entity, Refused(code_of(error))) for one in requested]
    return AlterClientQuotasResponse(entries=await context.mapped(_altered, results))


def _altered(result: tuple[Mapping[str, str | None], Refused | None]) -> Altered:
    entity, refused = result
    return Altered(
        error_code=refused.code if refused else 0,
        error_message=(refused.message or None) if refused else None,
        entity=[Altered.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
    )

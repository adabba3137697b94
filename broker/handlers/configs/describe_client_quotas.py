"""DescribeClientQuotas v0-v1: the quotas that were set (KIP-546, KIP-612)."""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.configs.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...quotas.stored import Component

Entry = DescribeClientQuotasResponse.EntryData


@handles(DescribeClientQuotasRequest)
async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Returns the quotas that match all components; defaults from the broker's configuration are not included."""
    components = [Component(one.entity_type, one.match_type, one.match) for one in request.components]
    if not context.allowed(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # without a message, as in Kafka
        return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)
    try:
        found = context.broker.quotas.stored.describe(components, strict=request.strict)
    except Refused as refused:
        return DescribeClientQuotasResponse(
            error_code=refused.code, error_message=refused.message or None, entries=None
        )
    return DescribeClientQuotasResponse(
        error_code=0,
        error_message="",  # as in Kafka, which returns no null here
        entries=[
            Entry(
                entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[Entry.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ],
    )

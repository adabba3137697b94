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
    """What matches all components; defaults of the configuration are none of them."""
    components = [Component(one.entity_type, one.match_type, one.match) for one in request.components]
    if not context.allowed(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # without words, as Kafka's
        return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)
    try:
        found = context.broker.quotas.stored.describe(components, strict=request.strict)
    except Refused as refused:
        return DescribeClientQuotasResponse(
            error_code=refused.code, error_message=refused.message or None, entries=None
        )
    return DescribeClientQuotasResponse(
        error_code=0,
        error_message="",  # as Kafka's, which has no null there
        entries=[
            Entry(
                entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[Entry.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in found
        ],
    )

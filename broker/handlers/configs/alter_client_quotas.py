"""AlterClientQuotas v0-v1: sets and removes quotas of users, client ids and addresses (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Mapping

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from ....storage.errors import StorageError
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...quotas.stored import alteration

Entry = AlterClientQuotasResponse.EntryData


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
    return AlterClientQuotasResponse(entries=await context.mapped(_entry, results))


def _entry(result: tuple[Mapping[str, str | None], Refused | None]) -> Entry:
    entity, refused = result
    return Entry(
        error_code=refused.code if refused else 0,
        error_message=(refused.message or None) if refused else None,
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
    )

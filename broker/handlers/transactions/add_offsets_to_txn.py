"""AddOffsetsToTxn v0-v4: adds the offsets of a group to a transaction (KIP-98). v2 has PRODUCER_FENCED (KIP-588).

Requires WRITE on the transactional id and READ on the group.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ...context import RequestContext, handles
from ...futures import settled
from ...transactions.codes import known

FENCED_SINCE = 2
ABORTABLE_SINCE = 4


@handles(AddOffsetsToTxnRequest)
async def add_offsets_to_txn(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    """Adds the partition of `__consumer_offsets` that holds the group. Clients with transaction.version 2 (KIP-890) add
    it by TxnOffsetCommit.
    """
    context.check_allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    context.check_allowed(AclOperation.READ, ResourceType.GROUP, request.group_id)
    response = await settled(
        context.transactions.add_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id, client_version=0
        )
    )
    version = context.api_version
    error = known(response.error, fenced=version >= FENCED_SINCE, abortable=version >= ABORTABLE_SINCE)
    return AddOffsetsToTxnResponse(error_code=error)

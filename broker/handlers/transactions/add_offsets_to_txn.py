"""AddOffsetsToTxn v0-v4: takes the offsets of a group into a transaction (KIP-98). v2 knows PRODUCER_FENCED (KIP-588).

Asks for WRITE on the transactional id and READ on the group.
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
    """What is added is the partition of `__consumer_offsets` that holds the group; clients of KIP-890's second part add
    it by TxnOffsetCommit itself."""
    context.check_allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    context.check_allowed(AclOperation.READ, ResourceType.GROUP, request.group_id)
    answer = await settled(
        context.transactions.add_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id, client_version=0
        )
    )
    version = context.api_version
    error = known(answer.error, fenced=version >= FENCED_SINCE, abortable=version >= ABORTABLE_SINCE)
    return AddOffsetsToTxnResponse(error_code=error)

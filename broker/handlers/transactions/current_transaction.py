"""A producer's transaction (KIP-98): AddOffsetsToTxn v0-v4 adds the offsets of a group, EndTxn v0-v5 commits or aborts.

v2 has PRODUCER_FENCED (KIP-588). With v5 of EndTxn the producer continues with another epoch after each transaction
(KIP-890), in releases whose `transaction_version` in `releases/behaviour.py` allows it.

Both require WRITE on the transactional id, and AddOffsetsToTxn READ on the group.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ....protocol.messages.transactions.end_txn import EndTxnRequest, EndTxnResponse
from ...context import RequestContext, handles
from ...futures import settled
from ...metadata.features import OWN_EPOCH_SINCE
from . import known

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


@handles(EndTxnRequest)
async def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Ends the transaction. The response means that the decision is durable; the markers follow."""
    context.check_allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    version = context.api_version
    response = await settled(
        context.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            committed=request.committed,
            client_version=2 if version >= OWN_EPOCH_SINCE else 0,
        )
    )
    return EndTxnResponse(
        error_code=known(response.error, fenced=version >= FENCED_SINCE, abortable=version >= ABORTABLE_SINCE),
        producer_id=response.producer_id,
        producer_epoch=response.producer_epoch,
    )

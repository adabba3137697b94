"""ListTransactions v0-v2: the transactional ids that this broker coordinates (KIP-664).

v1 filters by the duration of a transaction (KIP-994), v2 by a pattern of ids (KIP-1152). Ids without permission are
left out.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.messages.transactions.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ...context import RequestContext, handles

State = ListTransactionsResponse.TransactionState


@handles(ListTransactionsRequest)
async def list_transactions(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """Lists the ids that match all filters; an empty filter matches all. Unknown state names are returned."""
    error, unknown, found = context.transactions.list(
        states=request.state_filters,
        producer_ids=request.producer_id_filters,
        duration_ms=request.duration_filter,
        pattern=request.transactional_id_pattern,
    )
    return ListTransactionsResponse(
        error_code=error,
        unknown_state_filters=unknown,
        transaction_states=[
            State(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.value,
            )
            for one in found
            if context.allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
        ],
    )

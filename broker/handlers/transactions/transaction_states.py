"""The transactional ids that this broker coordinates (KIP-664): DescribeTransactions v0 has their state,
ListTransactions v0-v2 lists them.

ListTransactions v1 filters by the duration of a transaction (KIP-994), v2 by a pattern of ids (KIP-1152). Both require
DESCRIBE on each id; ListTransactions leaves the others out, and DescribeTransactions topics without permission.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.transactions.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ....protocol.messages.transactions.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ...context import RequestContext, handles

Described = DescribeTransactionsResponse.TransactionState
Listed = ListTransactionsResponse.TransactionState


@handles(DescribeTransactionsRequest)
async def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describes each id as often as it is requested, as in Kafka."""
    states = await context.mapped(lambda name: _described(name, context), request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=states)


def _described(transactional_id: str, context: RequestContext) -> Described:
    if not context.allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return Described(error_code=refused, transactional_id=transactional_id, topics=[])
    error, found = context.transactions.describe(transactional_id)
    if found is None:
        return Described(error_code=error, transactional_id=transactional_id, topics=[])
    indexes: dict[str, list[int]] = {}
    for topic, index in found.partitions:
        indexes.setdefault(topic, []).append(index)
    return Described(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            Described.TopicData(topic=topic, partitions=held)
            for topic, held in indexes.items()
            if context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )


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
            Listed(
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                transaction_state=one.state.value,
            )
            for one in found
            if context.allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
        ],
    )

"""DescribeTransactions v0: the coordinator's state of transactional ids (KIP-664).

Requires DESCRIBE on each id; topics without permission are left out.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.transactions.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from ...context import RequestContext, handles

State = DescribeTransactionsResponse.TransactionState


@handles(DescribeTransactionsRequest)
async def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describes each id as often as it is requested, as in Kafka."""
    states = await context.mapped(lambda name: _state(name, context), request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=states)


def _state(transactional_id: str, context: RequestContext) -> State:
    if not context.allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return State(error_code=refused, transactional_id=transactional_id, topics=[])
    error, found = context.transactions.describe(transactional_id)
    if found is None:
        return State(error_code=error, transactional_id=transactional_id, topics=[])
    indexes: dict[str, list[int]] = {}
    for topic, index in found.partitions:
        indexes.setdefault(topic, []).append(index)
    return State(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            State.TopicData(topic=topic, partitions=held)
            for topic, held in indexes.items()
            if context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        ],
    )

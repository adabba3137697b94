"""DescribeTransactions v0: what the coordinator knows of transactional ids (KIP-664).

Left out: authorization, there being no ACLs yet.
"""

from __future__ import annotations

from ...protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ..context import RequestContext, handles

State = DescribeTransactionsResponse.TransactionState


@handles(DescribeTransactionsRequest)
async def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Each id as often as it is asked for, as in Kafka."""
    return DescribeTransactionsResponse(
        transaction_states=[_state(name, context) for name in request.transactional_ids]
    )


def _state(transactional_id: str, context: RequestContext) -> State:
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
        topics=[State.TopicData(topic=topic, partitions=held) for topic, held in indexes.items()],
    )

"""AddPartitionsToTxn v0-v5: takes partitions into a transaction before they are written to (KIP-98).

v2 knows PRODUCER_FENCED (KIP-588). v4 and v5 are what brokers send to each other: several transactions at once, each
of which may be verified only (KIP-890). A partition that it lacks answers TRANSACTION_ABORTABLE in releases that have
v5, as in Kafka also in v4, and INVALID_TXN_STATE in those before.

Clients (up to v3) are asked for WRITE on the transactional id and on each topic, brokers for CLUSTER_ACTION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.api_key import ApiKey
from ....protocol.errors import ErrorCode
from ....protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ...context import RequestContext, handles
from ...futures import settled
from ...metadata.topics import INTERNAL_TOPICS
from ...transactions.codes import known
from ...transactions.state import Partition, Response

FENCED_SINCE = 2
SEVERAL_SINCE = 4
ABORTABLE_SINCE = 5


Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Outcome = Response | asyncio.Future[Response]


@handles(AddPartitionsToTxnRequest)
async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """All partitions of a transaction or none: those that may not be added have their error, the others are told that
    they were not tried."""
    if context.api_version < SEVERAL_SINCE:
        asked = Asked(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        outcome: Outcome | dict[Partition, ErrorCode]
        if context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id):
            outcome = await _begin(asked, context)
        else:
            outcome = Response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        results = await _results(asked.topics, outcome, context)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    context.check_allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    # All are begun before the first is awaited, so that the next request finds its place behind them.
    begun = [(one, await _begin(one, context)) for one in request.transactions]
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            Result(transactional_id=one.transactional_id, topic_results=await _results(one.topics, outcome, context))
            for one, outcome in begun
        ]
    )


async def _begin(asked: Asked, context: RequestContext) -> Outcome | dict[Partition, ErrorCode]:
    """Adds or verifies the partitions; or, if some of them may not be, the errors of these."""
    partitions: list[Partition] = []
    refused: dict[Partition, ErrorCode] = {}
    if context.is_due():
        await context.next_step()
    for topic in asked.topics:
        named = [(topic.name, index) for index in topic.partitions]
        partitions += named
        refusals = await context.mapped(lambda partition: _refusal(partition, context), named)
        refused.update((partition, error) for partition, error in zip(named, refusals, strict=True) if error)
    if refused:
        return refused
    transactions = context.transactions
    producer = asked.transactional_id, asked.producer_id, asked.producer_epoch
    if asked.verify_only:
        return transactions.verify(*producer, partitions)
    # Only a broker that adds what its client writes to calls v4 and later without asking to verify.
    client_version = 2 if context.api_version >= SEVERAL_SINCE else 0
    return transactions.add_partitions(*producer, partitions, client_version=client_version)


def _refusal(partition: Partition, context: RequestContext) -> ErrorCode:
    """Nobody but the coordinators writes to their topics: to Kafka's clients that is a matter of authorization."""
    if context.api_version < SEVERAL_SINCE:
        if partition[0] in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused = context.topic_refusal(AclOperation.WRITE, partition[0])
        if refused is not ErrorCode.NONE:
            return refused
    known_here = context.broker.topics.has_partition(*partition)
    return ErrorCode.NONE if known_here else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _results(
    topics: Sequence[AddPartitionsToTxnTopic],
    outcome: Outcome | dict[Partition, ErrorCode],
    context: RequestContext,
) -> list[AddPartitionsToTxnTopicResult]:
    version = context.api_version
    knows_abortable = ABORTABLE_SINCE in context.broker.apis.served[ApiKey.ADD_PARTITIONS_TO_TXN]
    if isinstance(outcome, dict):
        rest, errors = ErrorCode.OPERATION_NOT_ATTEMPTED, outcome
    else:
        answer = await settled(outcome)
        rest, errors = answer.error, dict.fromkeys(answer.missing, ErrorCode.TRANSACTION_ABORTABLE)
    result = AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult
    results: list[AddPartitionsToTxnTopicResult] = []
    if context.is_due():  # a transaction may have no topics
        await context.next_step()
    for topic in topics:

        def partition(
            index: int, name: str = topic.name
        ) -> AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult:
            code = known(errors.get((name, index), rest), fenced=version >= FENCED_SINCE, abortable=knows_abortable)
            return result(partition_index=index, partition_error_code=code)

        partitions = await context.mapped(partition, topic.partitions)
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
    return results

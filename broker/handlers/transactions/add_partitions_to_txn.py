"""AddPartitionsToTxn v0-v5: adds partitions to a transaction before they are written to (KIP-98).

v2 has PRODUCER_FENCED (KIP-588). Brokers use v4 and v5: they have several transactions, each of which may be verified
only (KIP-890). The error of a partition that is not in the transaction is TRANSACTION_ABORTABLE in releases with v5, as
in Kafka also in v4, and INVALID_TXN_STATE in earlier ones.

Clients (up to v3) need WRITE on the transactional id and on each topic, brokers need CLUSTER_ACTION.
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
from ...metadata.topics import is_internal
from ...transactions.state import Partition, Response
from . import known

FENCED_SINCE = 2
SEVERAL_SINCE = 4
ABORTABLE_SINCE = 5


RequestedTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Outcome = Response | asyncio.Future[Response]


@handles(AddPartitionsToTxnRequest)
async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """Adds all partitions of a transaction or none: refused partitions have their error, the others
    OPERATION_NOT_ATTEMPTED.
    """
    if context.api_version < SEVERAL_SINCE:
        requested = RequestedTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        outcome: Outcome | dict[Partition, ErrorCode]
        if context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, requested.transactional_id):
            outcome = await _begin(requested, context)
        else:
            outcome = Response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        results = await _results(requested.topics, outcome, context)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    context.check_allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    # All are begun before the first is awaited, so that a later request is handled after them.
    begun = [(one, await _begin(one, context)) for one in request.transactions]
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            Result(transactional_id=one.transactional_id, topic_results=await _results(one.topics, outcome, context))
            for one, outcome in begun
        ]
    )


async def _begin(requested: RequestedTransaction, context: RequestContext) -> Outcome | dict[Partition, ErrorCode]:
    """Adds or verifies the partitions, or returns the errors of those that may not be added."""
    partitions: list[Partition] = []
    refused: dict[Partition, ErrorCode] = {}
    await context.step()
    for topic in requested.topics:
        named = [(topic.name, index) for index in topic.partitions]
        partitions += named
        refusals = await context.mapped(lambda partition: _refusal(partition, context), named)
        refused.update((partition, error) for partition, error in zip(named, refusals, strict=True) if error)
    if refused:
        return refused
    transactions = context.transactions
    producer = requested.transactional_id, requested.producer_id, requested.producer_epoch
    if requested.verify_only:
        return transactions.verify(*producer, partitions)
    # Without verify_only, v4 and later come from a broker that adds the partitions its client writes to.
    client_version = 2 if context.api_version >= SEVERAL_SINCE else 0
    return transactions.add_partitions(*producer, partitions, client_version=client_version)


def _refusal(partition: Partition, context: RequestContext) -> ErrorCode:
    """The error of a partition, or NONE. Only coordinators write to internal topics; clients get an authorization
    error.
    """
    if context.api_version < SEVERAL_SINCE:
        if is_internal(partition[0], context.broker.config):
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
        response = await settled(outcome)
        rest, errors = response.error, dict.fromkeys(response.missing, ErrorCode.TRANSACTION_ABORTABLE)
    result = AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult
    results: list[AddPartitionsToTxnTopicResult] = []
    await context.step()  # a transaction may have no topics
    for topic in topics:

        def partition(
            index: int, name: str = topic.name
        ) -> AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult:
            code = known(errors.get((name, index), rest), fenced=version >= FENCED_SINCE, abortable=knows_abortable)
            return result(partition_index=index, partition_error_code=code)

        partitions = await context.mapped(partition, topic.partitions)
        results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions))
    return results

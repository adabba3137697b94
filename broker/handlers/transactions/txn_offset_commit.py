"""TxnOffsetCommit v0-v6: commits offsets as part of a transaction (KIP-98).

v2 has leader epochs; v3 has the consumer's member id and generation, which are checked (KIP-447). Up to v4 the
transaction must have the group's offsets already; from v5 on they are added here. Both depend on the release (KIP-890).
v6 has topic ids, and errors of its own for an unknown group and a stale member epoch (KIP-1319).

Requires WRITE on the transactional id, READ on the group and on each topic.
"""

from __future__ import annotations

import asyncio

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ...context import RequestContext, handles
from ...futures import settled
from ...groups.offsets import CommittedOffset, Partition
from ...metadata.topics import GROUP_OFFSETS_TOPIC
from ..groups.commits import COMMITS_AT_ONCE, JUDGED, judged, response_topics
from . import known

LOADING_SINCE = 2  # clients before KAFKA-7296 fail at COORDINATOR_LOAD_IN_PROGRESS
ABORTABLE_SINCE = 4
ADDS_SINCE = 5
TOPIC_IDS_SINCE = 6

Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
KINDS = Topic, Topic.TxnOffsetCommitResponsePartition
RequestedPartition = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition


@handles(TxnOffsetCommitRequest)
async def txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    """Commits offsets. Unknown partitions and too long metadata have errors of their own; all other partitions share
    the verdict on the transaction and the member.
    """
    refused = _refusal(request, context)
    if refused is not ErrorCode.NONE:
        return TxnOffsetCommitResponse(topics=await response_topics(KINDS, request.topics, None, refused, context))
    now_ms = context.now_ms()

    def committed(one: RequestedPartition) -> CommittedOffset:
        return CommittedOffset(one.committed_offset, one.committed_leader_epoch, one.committed_metadata or "", now_ms)

    by_id = context.api_version >= TOPIC_IDS_SINCE
    names, errors, commits = await judged(request.topics, committed, context, by_id=by_id)
    outcome = ErrorCode.NONE
    if any(error in JUDGED for found in errors for error in found):
        outcome, gone = await _commit(commits, request, context)
        if gone:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors = [
                [
                    unknown if (name, one.partition_index) in gone else error
                    for one, error in zip(topic.partitions, found, strict=True)
                ]
                for name, topic, found in zip(names, request.topics, errors, strict=True)
            ]
        if outcome is ErrorCode.NONE and commits:
            outcome = await context.broker.group_records_durable(request.group_id)
        if outcome is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < LOADING_SINCE:
            outcome = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponse(topics=await response_topics(KINDS, request.topics, errors, outcome, context))


def _refusal(request: TxnOffsetCommitRequest, context: RequestContext) -> ErrorCode:
    """The error of the request as a whole, or NONE."""
    if not context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    is_allowed = context.allowed(AclOperation.READ, ResourceType.GROUP, request.group_id)
    return ErrorCode.NONE if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED


async def _commit(
    commits: list[tuple[Partition, CommittedOffset]], request: TxnOffsetCommitRequest, context: RequestContext
) -> tuple[ErrorCode, set[Partition]]:
    """Writes the offsets in cooperative steps. Returns one error for all of them, and the partitions that were deleted
    meanwhile.

    A step checks the transaction and writes without yielding: offsets written after the end of their transaction would
    belong to one that never ends.
    """
    gone: set[Partition] = set()
    for first in range(0, len(commits) or 1, COMMITS_AT_ONCE):
        some = commits[first : first + COMMITS_AT_ONCE]
        await context.step(2 * len(some))
        outcome, has_waited = await _transaction_error(request, context)
        if outcome is not ErrorCode.NONE:
            return outcome, gone
        if has_waited or context.is_in_steps:
            missing = {partition for partition, _ in some if not context.groups.topics.has_partition(*partition)}
            some = [one for one in some if one[0] not in missing]
            gone |= missing
        outcome = context.groups.commit(
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
            commits=some,
            api_version=context.api_version,
            producer=(request.producer_id, request.producer_epoch),
        )
        if outcome is not ErrorCode.NONE:
            return outcome, gone
    return ErrorCode.NONE, gone


async def _transaction_error(request: TxnOffsetCommitRequest, context: RequestContext) -> tuple[ErrorCode, bool]:
    """Returns the error of a transaction that does not have the group's offsets, and whether other requests ran
    meanwhile. Adds the offsets if the version leaves that to the broker.
    """
    broker, version = context.broker, context.api_version
    error = context.groups.unavailable(request.group_id)
    if error is ErrorCode.NONE and (request.producer_id < 0 or request.producer_epoch < 0):
        error = ErrorCode.INVALID_PRODUCER_ID_MAPPING  # a transaction always has both, verified or not
    if error is not ErrorCode.NONE:
        return error, False
    has_waited = False
    behaviour, transactions = broker.profile.behaviour, broker.transactions
    producer = request.transactional_id, request.producer_id, request.producer_epoch
    verifies = behaviour.verifies_offsets and context.config["transaction.partition.verification.enable"]
    if version >= ADDS_SINCE and broker.features.transaction_version >= 2:
        adding = transactions.add_offsets(*producer, request.group_id, client_version=2)
        error, has_waited = (await settled(adding)).error, isinstance(adding, asyncio.Future)
        # During the wait for a sync another request may have ended the transaction.
        verifies = error is ErrorCode.NONE and has_waited
    if verifies:
        held = (GROUP_OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
        response = transactions.verify(*producer, [held])
        error = ErrorCode.TRANSACTION_ABORTABLE if response.missing else response.error
    # A fenced producer gets this code in every version, as in Produce.
    return known(error, fenced=False, abortable=version >= ABORTABLE_SINCE), has_waited

"""OffsetCommit v0-v10: stores a group's committed offsets. KIP-211, 320, 345, 848, 1251.

All versions are stored in `__consumer_offsets`, also v0, which the oldest brokers kept in ZooKeeper. v1 may have a
timestamp, v2-v4 a retention time. From v9 on members of the consumer protocol commit, with their epoch in place of the
generation. Requires READ on the group and on each topic.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.limits import wrapped_int64
from ....protocol.messages.groups.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ...context import RequestContext, handles
from ...groups.offsets import CommittedOffset
from .commits import JUDGED, commit, commit_refusal, refused_first

TOPIC_IDS_SINCE = 10
SORTED_PER_ENTRY = 20  # topics that are sorted in the time of one entry of a cooperative step

Topic = OffsetCommitResponse.OffsetCommitResponseTopic
RequestedPartition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition


@handles(OffsetCommitRequest)
async def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Commits offsets. Unknown partitions and too long metadata have errors of their own; all other partitions share
    the verdict on the member.
    """
    groups, now_ms = context.groups, context.now_ms()
    if not context.allowed(AclOperation.READ, ResourceType.GROUP, request.group_id):
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return await _response([(topic, [refused] * len(topic.partitions)) for topic in request.topics], context)
    errors: list[list[ErrorCode]] = []
    commits: list[tuple[tuple[str, int], CommittedOffset]] = []
    for topic in request.topics:
        name = groups.topics.name_of(topic.topic_id) if context.api_version >= TOPIC_IDS_SINCE else topic.name
        if context.is_due():  # also for a topic without partitions
            await context.next_step()
        errors.append(await _refusals(name, topic.partitions, context))
        for partition, error in zip(topic.partitions, errors[-1], strict=True):
            if context.is_due():
                await context.next_step()
            if name is not None and error is ErrorCode.NONE:
                committed = _committed(partition, request.retention_time_ms, now_ms)
                commits.append(((name, partition.partition_index), committed))
    outcome = ErrorCode.NONE
    if context.is_due(len(errors) // SORTED_PER_ENTRY):
        await context.next_step()
    is_judged = any(error in JUDGED for found in errors for error in found)
    if is_judged and context.api_version == 0 and not context.broker.profile.behaviour.first_offsets:
        refused = ErrorCode.UNSUPPORTED_VERSION
        return await _response([(topic, [refused] * len(topic.partitions)) for topic in request.topics], context)
    if is_judged:
        outcome = await commit(
            context,
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
            commits=commits,
            api_version=context.api_version,
        )
        if outcome is ErrorCode.NONE and commits:
            outcome = await context.broker.group_records_durable(request.group_id)
    if context.is_due(len(errors) // SORTED_PER_ENTRY):
        await context.next_step()
    judged_topics = refused_first(request.topics, errors)
    if context.is_due(len(errors) // SORTED_PER_ENTRY):
        await context.next_step()
    if outcome is not ErrorCode.NONE:
        judged_topics = [
            (topic, [outcome if error in JUDGED else error for error in found]) for topic, found in judged_topics
        ]
    return await _response(judged_topics, context)


async def _response(
    judged_topics: list[tuple[OffsetCommitRequest.OffsetCommitRequestTopic, list[ErrorCode]]], context: RequestContext
) -> OffsetCommitResponse:
    topics: list[Topic] = []
    for topic, found in judged_topics:
        pairs = list(zip(topic.partitions, found, strict=True))
        partitions = await context.mapped(_partition, pairs)
        topics.append(Topic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetCommitResponse(topics=topics)


def _partition(judged: tuple[RequestedPartition, ErrorCode]) -> Topic.OffsetCommitResponsePartition:
    return Topic.OffsetCommitResponsePartition(partition_index=judged[0].partition_index, error_code=judged[1])


async def _refusals(name: str | None, requested: list[RequestedPartition], context: RequestContext) -> list[ErrorCode]:
    """The reasons why offsets of these partitions of a topic cannot be committed; NONE for the others."""
    refused = ErrorCode.UNKNOWN_TOPIC_ID if name is None else context.topic_refusal(AclOperation.READ, name)
    if name is None or refused is not ErrorCode.NONE:
        return [refused] * len(requested)
    groups = context.groups

    def refusal(one: RequestedPartition) -> ErrorCode:
        return commit_refusal(groups, name, one.partition_index, one.committed_metadata)

    return await context.mapped(refusal, requested)


def _committed(partition: RequestedPartition, retention_time_ms: int, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms if partition.commit_timestamp == -1 else partition.commit_timestamp,
        expire_timestamp_ms=None if retention_time_ms == -1 else wrapped_int64(now_ms + retention_time_ms),
    )

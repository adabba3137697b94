"""OffsetCommit v0-v10: stores a group's committed offsets. KIP-211, 320, 345, 848, 1251.

All versions are stored in `__consumer_offsets`, also v0, which the oldest brokers kept in ZooKeeper. v1 may have a
timestamp, v2-v4 a retention time. From v9 on members of the consumer protocol commit, with their epoch in place of the
generation. Requires READ on the group and on each topic.
"""

from __future__ import annotations

from functools import partial

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.limits import wrapped_int64
from ....protocol.messages.groups.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ...context import RequestContext, handles
from ...groups.offsets import CommittedOffset
from .commits import JUDGED, SORTED_PER_ENTRY, commit, judged, response_topics

TOPIC_IDS_SINCE = 10

Topic = OffsetCommitResponse.OffsetCommitResponseTopic
KINDS = Topic, Topic.OffsetCommitResponsePartition
RequestedPartition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition


@handles(OffsetCommitRequest)
async def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Commits offsets. Unknown partitions and too long metadata have errors of their own; all other partitions share
    the verdict on the member.
    """
    now_ms = context.now_ms()
    if not context.allowed(AclOperation.READ, ResourceType.GROUP, request.group_id):
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetCommitResponse(topics=await response_topics(KINDS, request.topics, None, refused, context))
    committed = partial(_committed, retention_time_ms=request.retention_time_ms, now_ms=now_ms)
    by_id = context.api_version >= TOPIC_IDS_SINCE
    _, errors, commits = await judged(request.topics, committed, context, by_id=by_id)
    outcome = ErrorCode.NONE
    await context.step(len(errors) // SORTED_PER_ENTRY)
    is_judged = any(error in JUDGED for found in errors for error in found)
    if is_judged and context.api_version == 0 and not context.broker.profile.behaviour.first_offsets:
        refused = ErrorCode.UNSUPPORTED_VERSION
        return OffsetCommitResponse(topics=await response_topics(KINDS, request.topics, None, refused, context))
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
    return OffsetCommitResponse(topics=await response_topics(KINDS, request.topics, errors, outcome, context))


def _committed(partition: RequestedPartition, retention_time_ms: int, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms if partition.commit_timestamp == -1 else partition.commit_timestamp,
        expire_timestamp_ms=None if retention_time_ms == -1 else wrapped_int64(now_ms + retention_time_ms),
    )

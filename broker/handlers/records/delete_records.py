"""DeleteRecords v0-v2: moves log start offsets (KIP-107). Requires DELETE on each topic."""

from __future__ import annotations

from ....protocol.acls import AclOperation
from ....protocol.errors import ErrorCode
from ....protocol.messages.records.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ....storage.errors import OffsetOutOfRange
from ....storage.partition_log import PartitionLog
from ...context import RequestContext, handles
from ...errors import Refused, code_of

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = Topic.DeleteRecordsPartitionResult

RequestedPartition = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition

HIGH_WATERMARK = -1
MOVE_ENTRIES = 50  # entries of a cooperative step for each new log start offset


@handles(DeleteRecordsRequest)
async def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Handles each partition on its own. All new log start offsets are made durable together, before the first is
    applied.
    """
    found: list[tuple[str, list[tuple[int, tuple[PartitionLog, int] | ErrorCode]]]] = []
    for topic in request.topics:

        def target(
            requested: RequestedPartition, name: str = topic.name
        ) -> tuple[int, tuple[PartitionLog, int] | ErrorCode]:
            return requested.partition_index, _target(name, requested.partition_index, requested.offset, context)

        found.append((topic.name, await context.mapped(target, topic.partitions)))
    targets = [target for _, partitions in found for _, target in partitions]
    moves = {
        log: offset for log, offset in (t for t in targets if isinstance(t, tuple)) if offset > log.log_start_offset
    }
    if moves:
        await context.broker.note_log_starts(moves)
    topics: list[Topic] = []
    for name, partitions in found:
        results: list[PartitionResult] = []
        for index, moved in partitions:
            await context.step(1 if isinstance(moved, ErrorCode) else MOVE_ENTRIES)
            results.append(_delete(name, index, moved, context))
        await context.step()
        topics.append(Topic(name=name, partitions=results))
    return DeleteRecordsResponse(topics=topics)


def _target(name: str, index: int, offset: int, context: RequestContext) -> tuple[PartitionLog, int] | ErrorCode:
    """The log and its new log start offset, or an error code."""
    try:
        context.check_topic(AclOperation.DELETE, name)
        topic = context.broker.topics.named(name)
        log = context.partition(name, index).log
        if topic.is_internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        policy = topic.config["cleanup.policy"]
        is_allowed = not policy and context.broker.profile.behaviour.deletes_without_policy
        if "delete" not in policy and not is_allowed:
            raise Refused(ErrorCode.POLICY_VIOLATION)
        target = log.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= target <= log.high_watermark:
            raise OffsetOutOfRange(target, log.log_start_offset, log.high_watermark)
    except Exception as error:
        return code_of(error)
    return log, target


def _delete(
    name: str, index: int, target: tuple[PartitionLog, int] | ErrorCode, context: RequestContext
) -> PartitionResult:
    if isinstance(target, ErrorCode):
        return PartitionResult(partition_index=index, low_watermark=-1, error_code=target)
    try:
        before, offset = target
        log = context.broker.topics.partition(name, index).log  # it may have moved meanwhile
        if log.topic_id != before.topic_id:  # deleted and created again
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        low_watermark = log.delete_records_before(offset) if offset > log.log_start_offset else log.log_start_offset
    except Exception as error:
        return PartitionResult(partition_index=index, low_watermark=-1, error_code=code_of(error))
    return PartitionResult(partition_index=index, low_watermark=low_watermark, error_code=0)

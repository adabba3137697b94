"""DeleteRecords v0-v2: moves log start offsets (KIP-107). Asks for DELETE on each topic."""

from __future__ import annotations

from ...protocol.acls import AclOperation
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ...storage.errors import OffsetOutOfRange
from ...storage.log import PartitionLog
from ..context import RequestContext, handles
from ..errors import Refused, code_of

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Answer = Topic.DeleteRecordsPartitionResult

HIGH_WATERMARK = -1


@handles(DeleteRecordsRequest)
async def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Each partition on its own; all log starts that move are made durable together, before any of them moves."""
    found = [
        (
            topic.name,
            [(p.partition_index, _target(topic.name, p.partition_index, p.offset, context)) for p in topic.partitions],
        )
        for topic in request.topics
    ]
    targets = [target for _, partitions in found for _, target in partitions]
    moves = {
        log: offset for log, offset in (t for t in targets if isinstance(t, tuple)) if offset > log.log_start_offset
    }
    if moves:
        await context.broker.note_log_starts(moves)
    return DeleteRecordsResponse(
        topics=[
            Topic(name=name, partitions=[_delete(name, index, target, context) for index, target in partitions])
            for name, partitions in found
        ]
    )


def _target(name: str, index: int, offset: int, context: RequestContext) -> tuple[PartitionLog, int] | Exception:
    """The log, and where it is to start; or why not."""
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
        return error
    return log, target


def _delete(name: str, index: int, target: tuple[PartitionLog, int] | Exception, context: RequestContext) -> Answer:
    try:
        if isinstance(target, Exception):
            raise target
        before, offset = target
        log = context.broker.topics.partition(name, index).log  # which may have moved to another directory meanwhile
        if log.topic_id != before.topic_id:  # deleted, and made anew
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        low_watermark = log.delete_records_before(offset) if offset > log.log_start_offset else log.log_start_offset
    except Exception as error:
        return Answer(partition_index=index, low_watermark=-1, error_code=code_of(error))
    return Answer(partition_index=index, low_watermark=low_watermark, error_code=0)

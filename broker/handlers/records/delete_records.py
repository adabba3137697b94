"""DeleteRecords v0-v2: moves log start offsets (KIP-107). Asks for DELETE on each topic."""

from __future__ import annotations

from ....protocol.acls import AclOperation
from ....protocol.errors import ErrorCode
from ....protocol.messages.records.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ....storage.errors import OffsetOutOfRange
from ....storage.partition_log import PartitionLog
from ...context import RequestContext, handles
from ...errors import Refused, code_of

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Answer = Topic.DeleteRecordsPartitionResult

Asked = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition

HIGH_WATERMARK = -1
MOVE_ENTRIES = 50  # what the move of a log start counts in a cooperative step


@handles(DeleteRecordsRequest)
async def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Each partition on its own; all log starts that move are made durable together, before any of them moves."""
    found: list[tuple[str, list[tuple[int, tuple[PartitionLog, int] | ErrorCode]]]] = []
    for topic in request.topics:

        def target(asked: Asked, name: str = topic.name) -> tuple[int, tuple[PartitionLog, int] | ErrorCode]:
            return asked.partition_index, _target(name, asked.partition_index, asked.offset, context)

        found.append((topic.name, await context.mapped(target, topic.partitions)))
    targets = [target for _, partitions in found for _, target in partitions]
    moves = {
        log: offset for log, offset in (t for t in targets if isinstance(t, tuple)) if offset > log.log_start_offset
    }
    if moves:
        await context.broker.note_log_starts(moves)
    topics: list[Topic] = []
    for name, partitions in found:
        answers: list[Answer] = []
        for index, moved in partitions:
            if context.is_due(1 if isinstance(moved, ErrorCode) else MOVE_ENTRIES):
                await context.next_step()
            answers.append(_delete(name, index, moved, context))
        if context.is_due():
            await context.next_step()
        topics.append(Topic(name=name, partitions=answers))
    return DeleteRecordsResponse(topics=topics)


def _target(name: str, index: int, offset: int, context: RequestContext) -> tuple[PartitionLog, int] | ErrorCode:
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
        return code_of(error)
    return log, target


def _delete(name: str, index: int, target: tuple[PartitionLog, int] | ErrorCode, context: RequestContext) -> Answer:
    if isinstance(target, ErrorCode):
        return Answer(partition_index=index, low_watermark=-1, error_code=target)
    try:
        before, offset = target
        log = context.broker.topics.partition(name, index).log  # which may have moved to another directory meanwhile
        if log.topic_id != before.topic_id:  # deleted, and made anew
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        low_watermark = log.delete_records_before(offset) if offset > log.log_start_offset else log.log_start_offset
    except Exception as error:
        return Answer(partition_index=index, low_watermark=-1, error_code=code_of(error))
    return Answer(partition_index=index, low_watermark=low_watermark, error_code=0)

"""DeleteRecords v0-v2: moves log start offsets (KIP-107)."""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ...storage.errors import OffsetOutOfRange
from ..context import RequestContext, handles
from ..errors import Refused, code_of

Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Answer = Topic.DeleteRecordsPartitionResult

HIGH_WATERMARK = -1


@handles(DeleteRecordsRequest)
async def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Each partition on its own."""
    return DeleteRecordsResponse(
        topics=[
            Topic(
                name=topic.name,
                partitions=[_delete(topic.name, p.partition_index, p.offset, context) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(name: str, index: int, offset: int, context: RequestContext) -> Answer:
    try:
        topic = context.broker.topics.named(name)
        if topic.is_internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = context.broker.topics.partition(name, index).log
        if "delete" not in topic.config["cleanup.policy"]:
            raise Refused(ErrorCode.POLICY_VIOLATION)
        target = log.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= target <= log.high_watermark:
            raise OffsetOutOfRange(target, log.log_start_offset, log.high_watermark)
        low_watermark = log.delete_records_before(target) if target > log.log_start_offset else log.log_start_offset
    except Exception as error:
        return Answer(partition_index=index, low_watermark=-1, error_code=code_of(error))
    return Answer(partition_index=index, low_watermark=low_watermark, error_code=0)

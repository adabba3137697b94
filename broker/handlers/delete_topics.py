"""DeleteTopics v0-v6, by name or by id (KIP-4, KIP-516)."""

from __future__ import annotations

from collections import Counter

from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ...protocol.primitives import ZERO_UUID
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of

Result = DeleteTopicsResponse.DeletableTopicResult
STRICT_FROM = 5  # the first version that a quota of mutations refuses (KIP-599)


@handles(DeleteTopicsRequest)
async def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Each topic on its own; what is listed twice is refused."""
    if context.api_version >= 6:
        asked = [(state.name, state.topic_id) for state in request.topics]
    else:
        asked = [(name, ZERO_UUID) for name in request.topic_names]
    counts = Counter(asked)
    return DeleteTopicsResponse(
        responses=[_delete(name, topic_id, times > 1, context) for (name, topic_id), times in counts.items()]
    )


def _delete(name: str | None, topic_id: bytes, is_duplicate: bool, context: RequestContext) -> Result:
    topics = context.broker.topics
    try:
        if not context.broker.config["delete.topic.enable"]:
            raise Refused(ErrorCode.TOPIC_DELETION_DISABLED if context.api_version >= 3 else ErrorCode.INVALID_REQUEST)
        if name is not None and topic_id != ZERO_UUID:
            raise Refused(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if name is None and topic_id == ZERO_UUID:
            raise Refused(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        if is_duplicate:
            what = "id" if name is None else "name"
            raise Refused(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
        if name is not None:
            topic = topics.named(name)
        else:
            topic = topics.by_id(topic_id)
            if topic is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        context.mutates(len(topic.partitions), strict_from=STRICT_FROM)
        topics.delete(topic, context.now_ms())
        context.broker.groups.forget_topic(topic.name)
    except Exception as error:
        message = message_of(error)
        return Result(name=name, topic_id=topic_id, error_code=code_of(error), error_message=message)
    return Result(name=topic.name, topic_id=topic.id, error_code=0)

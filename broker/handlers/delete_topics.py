"""DeleteTopics v0-v6, by name or by id (KIP-4, KIP-516).

Asks for DELETE on each topic, or on the cluster where the release does. Whether a name that may not be described is
there is not told, nor which name an id has; that there is such an id is no secret.
"""

from __future__ import annotations

from collections import Counter

from ...protocol.acls import AclOperation, ResourceType
from ...protocol.errors import ErrorCode
from ...protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ...protocol.primitives import ZERO_UUID
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of
from ..security.authorizer import REFUSAL_TEXTS

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
            _check_name(name, context)
            topic = topics.named(name)
        else:
            topic = topics.by_id(topic_id)
            if topic is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
            is_described = context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
            name = topic.name if is_described else None
            _check_found(topic.name, is_described, context)
        context.mutates(len(topic.partitions), strict_from=STRICT_FROM)
        topics.delete(topic, context.now_ms())
        context.broker.groups.forget_topic(topic.name)
    except Exception as error:
        message = message_of(error)
        if code_of(error) in REFUSAL_TEXTS and context.broker.profile.behaviour.refusal_texts != "alter":
            message = None
        return Result(name=name, topic_id=topic_id, error_code=code_of(error), error_message=message)
    return Result(name=topic.name, topic_id=topic.id, error_code=0)


def _check_name(name: str, context: RequestContext) -> None:
    """Whether a topic may be deleted by its name."""
    if context.broker.profile.behaviour.deletes_as_kraft:
        if context.allowed(AclOperation.DELETE, ResourceType.CLUSTER):
            return
        context.check_topic(AclOperation.DESCRIBE, name)
        context.broker.topics.named(name)
    context.check_topic(AclOperation.DELETE, name)


def _check_found(name: str, is_described: bool, context: RequestContext) -> None:
    """Whether a topic that was found by its id may be deleted."""
    if context.broker.profile.behaviour.deletes_as_kraft:
        if context.allowed(AclOperation.DELETE, ResourceType.CLUSTER):
            return
    elif not is_described:
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    context.check_topic(AclOperation.DELETE, name)

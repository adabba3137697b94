"""DeleteTopics v0-v6, by name or by id (KIP-4, KIP-516).

Requires DELETE on each topic, or on the cluster where the release does. Without DESCRIBE the response does not reveal
whether a name exists, nor the name of an id; it does reveal whether an id exists.
"""

from __future__ import annotations

from collections import Counter

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ....protocol.primitives import ZERO_UUID
from ....protocol.records.steps import Steps
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...metadata.topics import Topic
from ...security.authorizer import REFUSAL_TEXTS

Result = DeleteTopicsResponse.DeletableTopicResult
BY_ID_FROM = 6
TOPIC_ENTRIES = 20  # entries of a cooperative step for each topic
STRICT_FROM = 5  # the first version that a controller mutation quota refuses (KIP-599)


@handles(DeleteTopicsRequest)
async def delete_topics(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Handles each topic on its own. A KRaft controller refuses topics that are listed twice, a ZooKeeper controller
    returns two results.
    """
    requested: list[tuple[str | None, bytes]]
    if context.api_version >= BY_ID_FROM:
        requested = [(state.name, state.topic_id) for state in request.topics]
    else:
        requested = [(name, ZERO_UUID) for name in request.topic_names]
    if context.broker.profile.behaviour.topics_as_kraft:
        return DeleteTopicsResponse(responses=await _responses(requested, context))
    if any(name is not None and topic_id != ZERO_UUID for name, topic_id in requested):
        refused = ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse(
            responses=[Result(name=name, topic_id=topic_id, error_code=refused) for name, topic_id in requested]
        )
    # Topics are looked up before the first is deleted: one that is listed by name and by id is deleted once.
    topics = context.broker.topics
    found = [topics.by_id(topic_id) if name is None else topics.get(name) for name, topic_id in requested]
    done: dict[object, Result] = {}
    responses: list[Result] = []
    for (name, topic_id), topic in zip(requested, found, strict=True):
        key = (name, topic_id) if topic is None else topic.id
        await context.step(TOPIC_ENTRIES)
        result = done[key] if key in done else await _delete(name, topic_id, context)
        done[key] = result
        responses.append(Result(name=result.name, topic_id=topic_id, error_code=result.error_code, error_message=None))
    return DeleteTopicsResponse(responses=responses)


async def _responses(requested: list[tuple[str | None, bytes]], context: RequestContext) -> list[Result]:
    """Responds as a KRaft controller. It resolves ids first: if a topic is also listed by name, both entries are
    refused.
    """
    counts = Counter(requested)
    topics = context.broker.topics
    named = {topic_id: topic.name for name, topic_id in counts if name is None and (topic := topics.by_id(topic_id))}
    both = {
        name
        for name in named.values()
        if counts[name, ZERO_UUID] == 1 and _may_delete(name, context)  # else it would show which topic has the id
    }
    responses: list[Result] = []
    for (name, topic_id), times in counts.items():
        problem = ""
        await context.step(TOPIC_ENTRIES)
        if name is not None and topic_id != ZERO_UUID:
            problem = "You may not specify both topic name and topic id."
        elif name is None and topic_id == ZERO_UUID:
            problem = "Neither topic name nor id were specified."
        elif times > 1:
            problem = f"Duplicate topic {'id' if name is None else 'name'}."
        elif name in both:
            topic_id = topics.named(name).id
            problem = "The provided topic name maps to an ID that was already supplied."
        if problem:
            refused = ErrorCode.INVALID_REQUEST
            result = Result(name=name, topic_id=topic_id, error_code=refused, error_message=problem)
            responses += [result] * (times if problem.startswith("You may") or problem.startswith("Neither") else 1)
        elif named.get(topic_id) not in both:
            responses.append(await _delete(name, topic_id, context))
    return responses


def _may_delete(name: str, context: RequestContext) -> bool:
    return context.allowed(AclOperation.DELETE, ResourceType.CLUSTER) or all(
        context.allowed(operation, ResourceType.TOPIC, name)
        for operation in (AclOperation.DESCRIBE, AclOperation.DELETE)
    )


async def _delete(name: str | None, topic_id: bytes, context: RequestContext) -> Result:
    topics = context.broker.topics
    try:
        if not context.broker.config["delete.topic.enable"]:
            raise Refused(ErrorCode.TOPIC_DELETION_DISABLED if context.api_version >= 3 else ErrorCode.INVALID_REQUEST)
        if name is not None:
            _check_name(name, context)
            topic = _named(name, context)
        else:
            topic = topics.by_id(topic_id)
            if topic is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            is_described = context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
            name = topic.name if is_described else None
            _check_found(topic.name, is_described, context)
        topic_id = topic.id  # from here on the response has it
        context.mutates(len(topic.partitions), strict_from=STRICT_FROM)
        await topics.changes.make(topic.name, _deleting(topic, context))
    except Exception as error:
        message = message_of(error)
        if code_of(error) in REFUSAL_TEXTS and context.broker.profile.behaviour.refusal_texts != "alter":
            message = None
        return Result(name=name, topic_id=topic_id, error_code=code_of(error), error_message=message)
    return Result(name=topic.name, topic_id=topic.id, error_code=0)


def _deleting(topic: Topic, context: RequestContext) -> Steps[None]:
    yield from context.broker.topics.deleting(topic, context.now_ms())
    context.broker.groups.forget_topic(topic.name)


def _named(name: str, context: RequestContext) -> Topic:
    topic = context.broker.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return topic


def _check_name(name: str, context: RequestContext) -> None:
    """Checks whether a topic may be deleted by its name. Raises Refused."""
    if context.broker.profile.behaviour.topics_as_kraft:
        if context.allowed(AclOperation.DELETE, ResourceType.CLUSTER):
            return
        context.check_topic(AclOperation.DESCRIBE, name)
        _named(name, context)
    context.check_topic(AclOperation.DELETE, name)


def _check_found(name: str, is_described: bool, context: RequestContext) -> None:
    """Checks whether a topic that was found by its id may be deleted. Raises Refused."""
    if context.broker.profile.behaviour.topics_as_kraft:
        if context.allowed(AclOperation.DELETE, ResourceType.CLUSTER):
            return
    elif not is_described:
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    context.check_topic(AclOperation.DELETE, name)

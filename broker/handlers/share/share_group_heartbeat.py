"""ShareGroupHeartbeat v1: joins, keeps and leaves a share group (KIP-932).

With share.version 0 the response is UNSUPPORTED_VERSION. Requires READ on the group, and DESCRIBE on each topic that is
named.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.share.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...groups.share.events import Heartbeat, HeartbeatReply, Leave
from ...groups.share.state import JOIN, LEAVE
from ..groups.heartbeat_checks import check_texts

LONGEST_MEMBER_ID = 36  # that of a UUID


@handles(ShareGroupHeartbeatRequest)
async def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    """Returns the epoch of the member, and its assignment if that has changed or the member may not have it."""
    try:
        _check(request, context)
        for topic in request.subscribed_topic_names or ():
            if context.is_due():
                await context.next_step()
            if not context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
                return _response(HeartbeatReply(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        _check_fields(request)
    except Refused as refused:
        return _response(HeartbeatReply(refused.code, refused.message or None))
    reply = context.groups.share_heartbeat(request.group_id, _read(request, context))
    if reply.error is ErrorCode.NONE:
        error = await context.broker.group_records_durable(request.group_id)
        if error is not ErrorCode.NONE:
            reply = HeartbeatReply(error)
    return _response(reply)


def _check(request: ShareGroupHeartbeatRequest, context: RequestContext) -> None:
    """Checks what Kafka checks before the topics. Raises Refused."""
    if not context.broker.features.share_groups:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    if not context.allowed(AclOperation.READ, ResourceType.GROUP, request.group_id):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not 0 < len(request.member_id) <= LONGEST_MEMBER_ID:
        raise Refused(ErrorCode.INVALID_REQUEST)


def _check_fields(request: ShareGroupHeartbeatRequest) -> None:
    """Checks the request by itself, in Kafka's order. Raises Refused."""
    problem = None
    check_texts(("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id))
    if request.member_epoch == JOIN and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVE:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)


def _read(request: ShareGroupHeartbeatRequest, context: RequestContext) -> Heartbeat | Leave:
    if request.member_epoch == LEAVE:
        return Leave(request.member_id)
    topics = request.subscribed_topic_names
    return Heartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=None if topics is None else frozenset(topics),
        client_id=context.client_id,
        client_host=f"/{context.client_host}",  # in the format of Java, which every Kafka tool shows
    )


def _response(reply: HeartbeatReply) -> ShareGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        assignment = ShareGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in reply.assignment.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )

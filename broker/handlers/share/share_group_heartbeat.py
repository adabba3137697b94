"""ShareGroupHeartbeat v1: joins, keeps and leaves a share group (KIP-932).

With share.version 0 the response is UNSUPPORTED_VERSION. Requires READ on the group, and DESCRIBE on each topic that is
named.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.share.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...groups.common_events import MemberLeave
from ...groups.common_state import JOIN, LEAVE
from ...groups.share.events import Heartbeat
from ..groups.membership import check_described, check_texts, heartbeat_response, member_heartbeat

LONGEST_MEMBER_ID = 36  # that of a UUID


@handles(ShareGroupHeartbeatRequest)
async def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    """Returns the epoch of the member, and its assignment if that has changed or the member may not have it."""
    enabled = context.broker.features.share_groups
    reply = await member_heartbeat("share", request, context, read=_read, is_enabled=enabled)
    return heartbeat_response(reply, ShareGroupHeartbeatResponse, TopicPartitions)


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


async def _read(request: ShareGroupHeartbeatRequest, context: RequestContext) -> Heartbeat | MemberLeave:
    if not 0 < len(request.member_id) <= LONGEST_MEMBER_ID:
        raise Refused(ErrorCode.INVALID_REQUEST)
    await check_described(request.subscribed_topic_names or (), context)
    _check_fields(request)
    if request.member_epoch == LEAVE:
        return MemberLeave(request.member_id)
    topics = request.subscribed_topic_names
    return Heartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=None if topics is None else frozenset(topics),
        client_id=context.client_id,
        client_host=f"/{context.client_host}",  # in the format of Java, which every Kafka tool shows
    )

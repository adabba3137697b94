"""ConsumerGroupHeartbeat v0-v1: joins, keeps and leaves a group of the consumer protocol. KIP-848, KIP-1082.

v1 has regular expressions of topics, and requires the member to make its id. Where the protocol is not enabled the
response is UNSUPPORTED_VERSION. Requires READ on the group, and DESCRIBE on each topic that is named.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...groups.common_events import MemberLeave
from ...groups.common_state import JOIN, LEAVE, STATIC_LEAVE
from ...groups.consumer.events import Caller, MemberHeartbeat
from ...groups.consumer.reconciliation import Owned
from .membership import check_described, check_texts, heartbeat_response, member_heartbeat

MEMBER_ID_REQUIRED_SINCE = 1
Assignment = ConsumerGroupHeartbeatResponse.Assignment


@handles(ConsumerGroupHeartbeatRequest)
async def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """Returns the epoch of the member, and its assignment if that has changed or the member may not have it."""
    enabled = context.broker.serves_consumer_groups
    reply = await member_heartbeat("consumer", request, context, read=_read, is_enabled=enabled)
    return heartbeat_response(reply, ConsumerGroupHeartbeatResponse, Assignment.TopicPartitions)


def _check(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> None:
    """Checks the request by itself, in Kafka's order. Raises Refused."""
    epoch = request.member_epoch
    needs_id = context.api_version >= MEMBER_ID_REQUIRED_SINCE or epoch > 0 or epoch == LEAVE
    check_texts(
        ("MemberId", request.member_id if needs_id else None),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    )
    problem = None
    if epoch == JOIN:
        if request.rebalance_timeout_ms == -1:
            problem = "RebalanceTimeoutMs must be provided in first request."
        elif request.topic_partitions is None or request.topic_partitions:
            problem = "TopicPartitions must be empty when (re-)joining."
        elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            problem = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == STATIC_LEAVE and request.instance_id is None:
        problem = "InstanceId can't be null."
    elif epoch < STATIC_LEAVE:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
    assignors = context.groups.settings.consumer.assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        text = f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
        raise Refused(ErrorCode.UNSUPPORTED_ASSIGNOR, f"{text}{', '.join(assignors)}.")


async def _read(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> MemberHeartbeat | MemberLeave:
    await check_described(request.subscribed_topic_names or (), context)
    _check(request, context)
    if request.member_epoch < JOIN:
        return MemberLeave(request.member_id, request.member_epoch, request.instance_id)
    owned: Owned | None = None
    if request.topic_partitions is not None:
        owned = {one.topic_id: frozenset(one.partitions) for one in request.topic_partitions}
    topics = request.subscribed_topic_names
    return MemberHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else frozenset(topics),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
        client_id=context.client_id,
        client_host=f"/{context.client_host}",  # in the format of Java, which every Kafka tool shows
        caller=Caller(context.principal, context.client_host),
    )

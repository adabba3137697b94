"""ShareGroupDescribe v1: state and members of share groups (KIP-932).

With share.version 0 each group gets UNSUPPORTED_VERSION. Requires DESCRIBE on each group, and on each topic of its
assignments.
"""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.acls import ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.share.share_group_describe import (
    Assignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from ...context import RequestContext, handles
from ...groups.share.state import ASSIGNOR, Group, Member
from ..groups.describing import HIDDEN_TOPICS, check_visible, describe_each, described_group, in_order

Described = ShareGroupDescribeResponse.DescribedGroup


@handles(ShareGroupDescribeRequest)
async def share_group_describe(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describes groups. As in Kafka, groups without permission come first."""
    with_operations = request.include_authorized_operations
    groups = await describe_each(
        request.group_ids,
        context,
        is_enabled=context.broker.features.share_groups,
        failed=_failed,
        described=lambda name: _described(name, context, with_operations=with_operations),
    )
    return ShareGroupDescribeResponse(groups=groups)


def _failed(group_id: str, error: ErrorCode, message: str | None) -> Described:
    return Described(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _described(group_id: str, context: RequestContext, *, with_operations: bool) -> Described:
    group = described_group(group_id, Group, context)
    name_of = context.groups.topics.name_of
    members = [_member(member, name_of) for member in in_order(group.members)]
    topics = {one.topic_name for member in members for one in member.assignment.topic_partitions}
    check_visible(topics, context, HIDDEN_TOPICS)
    described = Described(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=members,
    )
    if with_operations:
        described.authorized_operations = context.authorized_operations(ResourceType.GROUP, group_id)
    return described


def _member(member: Member, name_of: Callable[[bytes], str | None]) -> Described.Member:
    info, current = member.info, member.current
    return Described.Member(
        member_id=member.member_id,
        rack_id=info.rack_id,
        member_epoch=current.epoch,
        client_id=info.client_id,
        client_host=info.client_host,
        subscribed_topic_names=sorted(info.topics),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
                for topic_id, indexes in current.assigned.items()
                if (name := name_of(topic_id)) is not None
            ]
        ),
    )

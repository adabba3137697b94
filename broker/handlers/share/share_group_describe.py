"""ShareGroupDescribe v1: state and members of share groups (KIP-932).

With share.version 0 each group gets UNSUPPORTED_VERSION. Requires DESCRIBE on each group, and on each topic of its
assignments.
"""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.share.share_group_describe import (
    Assignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from ...context import RequestContext, handles
from ...groups.share.state import ASSIGNOR, Group, Member

GROUP_ENTRIES = 2  # entries of a cooperative step for each group
HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."

Described = ShareGroupDescribeResponse.DescribedGroup


@handles(ShareGroupDescribeRequest)
async def share_group_describe(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describes groups. As in Kafka, groups without permission come first."""
    names = request.group_ids
    if not context.broker.features.share_groups:
        groups = await context.mapped(lambda name: _failed(name, ErrorCode.UNSUPPORTED_VERSION), names)
        return ShareGroupDescribeResponse(groups=groups)
    allowed = {name: context.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, name) for name in names}
    refused = [_failed(name, ErrorCode.GROUP_AUTHORIZATION_FAILED) for name in names if not allowed[name]]
    visible = [name for name in names if allowed[name]]
    with_operations = request.include_authorized_operations
    described = await context.mapped(
        lambda name: _described(name, context, with_operations=with_operations), visible, GROUP_ENTRIES
    )
    return ShareGroupDescribeResponse(groups=refused + described)


def _failed(group_id: str, error: ErrorCode, message: str | None = None) -> Described:
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
    if not group_id:
        return _failed(group_id, ErrorCode.INVALID_GROUP_ID)
    error, group = context.groups.describe(group_id)
    if error is not ErrorCode.NONE:
        return _failed(group_id, error)
    if not isinstance(group, Group):
        text = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a share group."
        return _failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, text)
    name_of = context.groups.topics.name_of
    members = [_member(member, name_of) for member in group.members.values()]
    topics = {one.topic_name for member in members for one in member.assignment.topic_partitions}
    if context.broker.authorizer is not None and not all(
        context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics
    ):
        return _failed(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
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

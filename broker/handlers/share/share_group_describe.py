"""ShareGroupDescribe v1: state and members of share groups (KIP-932).

With share.version 0 each group gets UNSUPPORTED_VERSION. Requires DESCRIBE on each group, and on each topic of its
assignments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....protocol.messages.share.share_group_describe import (
    Assignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from ...context import RequestContext, handles
from ...groups.share.state import ASSIGNOR, Group, Member
from ..groups.describing import HIDDEN_TOPICS, check_visible, describe_assigned, in_order

Described = ShareGroupDescribeResponse.DescribedGroup
_failed = partial(Described, group_state="", group_epoch=0, assignment_epoch=0, assignor_name="", members=[])


@handles(ShareGroupDescribeRequest)
async def share_group_describe(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describes groups. As in Kafka, groups without permission come first."""
    enabled = context.broker.features.share_groups
    groups = await describe_assigned(
        request, context, group_class=Group, failed=_failed, fields=_fields, is_enabled=enabled
    )
    return ShareGroupDescribeResponse(groups=groups)


def _fields(group: Group, context: RequestContext) -> dict[str, Any]:
    name_of = context.groups.topics.name_of
    members = [_member(member, name_of) for member in in_order(group.members)]
    topics = {one.topic_name for member in members for one in member.assignment.topic_partitions}
    check_visible(topics, context, HIDDEN_TOPICS)
    return {"members": members, "assignor_name": ASSIGNOR}


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

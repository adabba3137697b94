"""ConsumerGroupDescribe v0-v1: state and members of groups of the consumer protocol. KIP-848, KIP-1099.

Where the protocol is not enabled each group gets UNSUPPORTED_VERSION. Requires DESCRIBE on each group, and on each
topic of its assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ....protocol.messages.groups.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ...context import RequestContext, handles
from ...groups.consumer.state import Group, Member
from .describing import HIDDEN_TOPICS, check_visible, describe_assigned, in_order

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

Described = ConsumerGroupDescribeResponse.DescribedGroup
_failed = partial(Described, group_state="", group_epoch=0, assignment_epoch=0, assignor_name="", members=[])


@handles(ConsumerGroupDescribeRequest)
async def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Describes groups. As in Kafka, groups without permission come first."""
    enabled = context.broker.serves_consumer_groups
    groups = await describe_assigned(
        request, context, group_class=Group, failed=_failed, fields=_fields, is_enabled=enabled
    )
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _fields(group: Group, context: RequestContext) -> dict[str, Any]:
    name_of = context.groups.topics.name_of
    members = [_member(member, group, name_of) for member in in_order(group.members)]
    check_visible(_topics(members), context, HIDDEN_TOPICS)
    assignors = group.assignors or context.groups.settings.consumer.assignors[:1]
    return {"members": members, "assignor_name": max(assignors, key=lambda name: group.assignors.get(name, 0))}


def _topics(members: Iterable[Described.Member]) -> set[str]:
    return {
        one.topic_name
        for member in members
        for assignment in (member.assignment, member.target_assignment)
        for one in assignment.topic_partitions
    }


def _member(member: Member, group: Group, name_of: Callable[[bytes], str | None]) -> Described.Member:
    info, current = member.info, member.current
    # A member is responsible for the partitions that it has to revoke until it has confirmed that.
    owned: dict[bytes, list[int]] = {}
    for part in (current.assigned, current.revoking):
        for topic_id, epochs in part.items():
            owned.setdefault(topic_id, []).extend(epochs)
    return Described.Member(
        member_id=member.member_id,
        instance_id=info.instance_id,
        rack_id=info.rack_id,
        member_epoch=current.epoch,
        client_id=info.client_id,
        client_host=info.client_host,
        subscribed_topic_names=sorted(info.topics),
        subscribed_topic_regex=info.regex,
        assignment=_assignment(owned, name_of),
        target_assignment=_assignment(group.target_of(member.member_id), name_of),
        member_type=CONSUMER_MEMBER if info.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], name_of: Callable[[bytes], str | None]) -> Assignment:
    named = [(topic_id, name_of(topic_id), sorted(indexes)) for topic_id, indexes in partitions.items()]
    return Assignment(
        topic_partitions=[
            Assignment.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for topic_id, name, indexes in named
            if name is not None
        ]
    )

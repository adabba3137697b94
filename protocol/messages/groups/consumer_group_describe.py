"""ConsumerGroupDescribe: request and response of API key 69. KIP-848, KIP-1099."""

from __future__ import annotations

from ...limits import INT32_MIN
from ...primitives import Bool, Int8, Int16, Int32, Text, Uuid
from ...schema import field, group, message


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """v1 has the fields of v0."""

    group_ids: list[Text]
    include_authorized_operations: Bool


@group
class Assignment:
    topic_partitions: list[TopicPartitions]

    @group
    class TopicPartitions:
        topic_id: Uuid
        topic_name: Text
        partitions: list[Int32]


@message(api_key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """v1 adds the type of each member: 0 for the classic protocol, 1 for the consumer protocol (KIP-1099)."""

    throttle_time_ms: Int32
    groups: list[DescribedGroup]

    @group
    class DescribedGroup:
        error_code: Int16
        error_message: Text | None = None
        group_id: Text
        group_state: Text
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: Text
        members: list[Member]
        authorized_operations: Int32 = INT32_MIN

        @group
        class Member:
            member_id: Text
            instance_id: Text | None = None
            rack_id: Text | None = None
            member_epoch: Int32
            client_id: Text
            client_host: Text
            subscribed_topic_names: list[Text]
            subscribed_topic_regex: Text | None = None
            assignment: Assignment
            target_assignment: Assignment
            member_type: Int8 = field("1+", default=-1, ignorable=True)

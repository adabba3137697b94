"""ShareGroupDescribe: request and response of API key 77. KIP-932."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Text, Uuid
from ...schema import group, message


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeRequest:
    group_ids: list[Text]
    include_authorized_operations: Bool


@group
class TopicPartitions:
    topic_id: Uuid
    topic_name: Text
    partitions: list[Int32]


@group
class Assignment:
    topic_partitions: list[TopicPartitions]


@message(api_key=77, versions="1", flexible="0+")
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup]

    @group
    class DescribedGroup:
        error_code: Int16 = 0
        error_message: Text | None = None
        group_id: Text
        group_state: Text
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: Text
        members: list[Member]
        authorized_operations: Int32 = -2147483648

        @group
        class Member:
            member_id: Text
            rack_id: Text | None = None
            member_epoch: Int32
            client_id: Text
            client_host: Text
            subscribed_topic_names: list[Text]
            assignment: Assignment

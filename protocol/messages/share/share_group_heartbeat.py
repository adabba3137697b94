"""ShareGroupHeartbeat: request and response of API key 76. KIP-932."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text, Uuid
from ...schema import group, message


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest:
    group_id: Text
    member_id: Text
    member_epoch: Int32
    rack_id: Text | None = None
    subscribed_topic_names: list[Text] | None = None


@group
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Text | None = None
    member_id: Text | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None

    @group
    class Assignment:
        topic_partitions: list[TopicPartitions]
